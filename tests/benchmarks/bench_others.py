"""bench_others: ops of public packages -> what their own autotune costs and picks, and ours.

For each sweep file of tests/data/others whose package is installed, and on a GPU:

1. `tritune sweep`, which locks winners in a folder of its own;
2. its own autotune: the first call of a new process, with a cold Triton cache; and then, in that
   process, every launch with its pick and with ours, interleaved in one window;
3. the first call of a new process that `tritune.install` serves, again with a cold Triton cache:
   to benchmark anything there is an error, and results are compared with the reference.

A step that fails is told, and the next one is begun.

With a folder that is kept, steps may be taken one by one, and `own` beside a `sweep` elsewhere.

    python tests/benchmarks/bench_others.py [--only NAME ...] [--problems N] [--json FILE]
        [--folder FOLDER] [--steps sweep own served]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OTHERS = ROOT / "tests" / "data" / "others"
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

PACKAGES = {
    "dyt": "liger_kernel",
    "mlp": "liger_kernel",
    "moe": "liger_kernel",
    "gla": "fla",
    "conv": "fla",
    "delta": "fla",
    "norm": "fla",
    "mixed": "torchao",
    "int8": "torchao",
    "split_k": "gemlite",
    "cce": "cut_cross_entropy",
    "nms": "conch",
}
"""Sweep file -> what has to be installed for it."""
SEED = 20
LARGEST_ERROR = 0.03
"""Of a result, relative to the largest value of the reference's; whole numbers must be equal."""
MOST_REJECTIONS = 40
"""How many rejected configs of a kernel are kept whole in the JSON."""
RESULT = "RESULT "
"""What the last line of a step begins with."""


# --- in a process of its own --------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """One launch of an autotuned kernel, and the config that it was made with."""

    tuner: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    config: Any

    @property
    def name(self) -> str:
        from tritune import adopt, contract

        return adopt.name_of(self.tuner, contract.describe(self.tuner))

    def again(self, config: Any) -> Callable[[], object]:
        """The same launch, hook included, with this config."""
        named = {**dict(zip(self.tuner.arg_names, self.args, strict=False)), **self.kwargs}
        every = {**self.kwargs, **config.all_kwargs()}

        def run() -> None:
            if config.pre_hook is not None:
                config.pre_hook({**named, **config.all_kwargs()})
            self.tuner.fn.run(*self.args, **every)

        return run


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def made(file: Path, index: int) -> Any:
    """The problem of this index of a sweep file, as every step makes it."""
    import torch

    from tritune.launches import torch_values
    from tritune.spec import read_sweep

    sweep = read_sweep(file)
    module, _, function = str(sweep.problem).rpartition(":")
    sys.path.insert(0, str(file.parent))
    problem = getattr(importlib.import_module(Path(module).stem), function)
    torch.set_default_device(device())
    torch.manual_seed(SEED)
    return problem(**torch_values(sweep.problems[index]))


def first_call(problem: Any) -> tuple[float, Any]:
    wait()
    began = time.perf_counter()
    results = problem.run()
    wait()
    return time.perf_counter() - began, results


@contextlib.contextmanager
def recorded(launches: list[Launch]) -> Iterator[None]:
    """Note every launch through an autotuner; of those inside one another the outermost."""
    from triton.runtime.autotuner import Autotuner

    inside: list[Any] = []

    def noting(own: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if inside:
                return own(self, *args, **kwargs)
            inside.append(self)
            try:
                result = own(self, *args, **kwargs)
            finally:
                inside.pop()
            launches.append(Launch(self, args, kwargs, self.best_config))
            return result

        return run

    kinds = [Autotuner, *below(Autotuner)]
    owns = {kind: vars(kind)["run"] for kind in kinds if "run" in vars(kind)}
    for kind, own in owns.items():
        kind.run = noting(own)
    try:
        yield
    finally:
        for kind, own in owns.items():
            kind.run = own


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def own(file: Path, index: int, watch: Any = None) -> dict[str, Any]:
    """Its own autotune: how long the first call takes, and what it picked beside what we did."""
    theirs: list[Launch] = []
    problem = made(file, index)
    with recorded(theirs):
        seconds, results = first_call(problem)
    found: dict[str, Any] = {"seconds": seconds, "errors": errors(results, problem)}
    if lockfile(file).is_file():
        try:
            found["kernels"] = paired(file, problem, theirs, watch)
        except Exception as error:  # noqa: BLE001  # the first call has been timed all the same
            found["unpaired"] = f"{type(error).__name__}: {error}"
    return found


def paired(
    file: Path, problem: Any, theirs: Sequence[Launch], watch: Any
) -> dict[str, dict[str, Any]]:
    """Both picks of every launch, on the same arguments, interleaved."""
    from timing import GpuWatch, interleaved

    import tritune

    ours: list[Launch] = []
    tritune.install(lockfile(file))
    with recorded(ours):
        problem.run()
    if [one.name for one in theirs] != [one.name for one in ours]:
        raise RuntimeError("the op launched other kernels once it was served")
    watch = watch or GpuWatch.open()
    rows: dict[str, dict[str, Any]] = {}
    for one, other in zip(theirs, ours, strict=True):
        us = interleaved(watch, {"own": one.again(one.config), "tuned": one.again(other.config)})
        row = rows.setdefault(one.name, {"own": 0.0, "tuned": 0.0, "launches": 0, "same": 0})
        row["own"] += us["own"]
        row["tuned"] += us["tuned"]
        row["launches"] += 1
        row["same"] += one.config.all_kwargs() == other.config.all_kwargs()
    return rows


def lockfile(file: Path) -> Path:
    return file.parent / "tritune.lock"


def served(file: Path, index: int) -> dict[str, Any]:
    """Served: how long the first call takes, where to benchmark anything is an error."""
    from triton.runtime.autotuner import Autotuner

    import tritune

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("production benchmarked something")

    tritune.install(lockfile(file))
    problem = made(file, index)
    for kind in (Autotuner, *below(Autotuner)):
        if "_bench" in vars(kind):
            kind._bench = never  # type: ignore[attr-defined]
    seconds, results = first_call(problem)
    found: dict[str, Any] = {"seconds": seconds, "errors": errors(results, problem)}
    return {**found, "served": tritune.stats()}


def errors(results: Any, problem: Any) -> list[float]:
    """The largest error of each result, relative to the largest value of the reference's."""
    import torch

    expected = problem.reference()
    found = []
    for a, b in zip(several(results), several(expected), strict=True):
        if b.is_floating_point():
            scale = max(b.double().abs().max().item(), 1e-30)
            found.append((a.double() - b.double()).abs().max().item() / scale)
        else:
            found.append(0.0 if torch.equal(a, b) else 1.0)
    return found


def several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


STEPS: dict[str, Callable[[Path, int], dict[str, Any]]] = {"own": own, "served": served}


# --- the process that asks ----------------------------------------------------------------


class Said(NamedTuple):
    """What a process printed."""

    out: str
    err: str


def python(folder: Path, *args: object, codes: Sequence[int] = (0,), **env: str) -> Said:
    """Run Python; the end of what it said is the error where it ends with none of *codes*."""
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **env},
    )
    if done.returncode not in codes:
        raise RuntimeError("\n".join((done.stdout + done.stderr).splitlines()[-12:]))
    return Said(done.stdout, done.stderr)


def step(name: str, file: Path, index: int) -> dict[str, Any]:
    """One step in a process of its own, with a Triton cache of its own."""
    with tempfile.TemporaryDirectory() as cache:
        said = python(file.parent, __file__, "--step", name, file, index, TRITON_CACHE_DIR=cache)
    [found] = [line for line in said.out.splitlines() if line.startswith(RESULT)]
    result: dict[str, Any] = json.loads(found.removeprefix(RESULT))
    return result


def swept(file: Path) -> dict[str, Any]:
    """`tritune sweep`: of each kernel its configs, those that ran, and why others did not.

    Its exit code 1 is a finding too: a problem of which no config is right.
    """
    began = time.perf_counter()
    said = python(
        file.parent,
        *("-m", "tritune", "sweep", file.name, "--json"),
        codes=(0, 1),
        TRITUNE_CACHE_DIR=str(file.parent / "cache"),
    )
    seconds = time.perf_counter() - began
    reports = json.loads(said.out)["reports"]
    return {
        "seconds": seconds,
        "stages": [line for line in said.err.splitlines() if "took" in line or "warning" in line],
        "kernels": dict(map(counted, reports)),
    }


def counted(report: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    outcomes = report["outcomes"]
    reasons = Counter(one["reason"] for one in outcomes if "reason" in one)
    counts = {
        "nominal": len(report["kernel"]["configs"]),
        "problems": len(report["work"]),
        "effective": sum("median_us" in one for one in outcomes),
        "rejected": dict(reasons),
        "rejections": [one for one in outcomes if "reason" in one][:MOST_REJECTIONS],
        "unsolved": report.get("unsolved", []),
        "locked": report["locked"],
    }
    return report["kernel"]["name"], counts


def measure(
    name: str, folder: Path, most: int | None = None, steps: Sequence[str] = ("sweep", *STEPS)
) -> dict[str, Any]:
    """One sweep file, and *most* of its problems by their number, from the sweep to both timed."""
    from tritune.spec import read_sweep

    file = prepared(name, folder)
    problems: list[dict[str, Any]] = [
        {"problem": str(one)} for one in read_sweep(file).problems[:most]
    ]
    row: dict[str, Any] = {"name": name, "problems": problems, "failed": {}}

    def tried(what: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        try:
            found = ask()
        except Exception as error:  # noqa: BLE001  # told, and the others go on
            row["failed"][what] = str(error)
            print(f"{name}: {what} failed\n{error}", flush=True)
            return None
        print(f"{name}: {what} {seconds(found)}", *figures(found), flush=True)
        return found

    row["sweep"] = tried("sweep", lambda: swept(file)) if "sweep" in steps else None
    for index, one in enumerate(problems):
        for each in (one for one in STEPS if one in steps):
            if each == "own" or row["sweep"] or lockfile(file).is_file():
                ask = partial(step, each, file, index)
                one[each] = tried(f"{each} {one['problem']}", ask)
    return row


def prepared(name: str, folder: Path) -> Path:
    """The sweep file and its module alone in a folder, where its lockfile will lie."""
    text = (OTHERS / f"{name}.yaml").read_text()
    module = text.split("problem:", 1)[1].split(":", 1)[0].strip()
    (folder / name).mkdir(parents=True, exist_ok=True)
    for each in (f"{name}.yaml", module):
        shutil.copy(OTHERS / each, folder / name / each)
    return folder / name / f"{name}.yaml"


# --- what is printed ----------------------------------------------------------------------


def table(row: Mapping[str, Any]) -> Iterator[str]:
    """What was found of one sweep file."""
    yield f"== {row['name']}"
    for one in row["problems"]:
        yield f"{one['problem']}: {_first_calls(one)}"
        for kernel, kinds in ((one.get("served") or {}).get("served") or {}).items():
            if others := {k: n for k, n in kinds.items() if n and k != "exact"}:
                yield f"  {kernel}: not as locked {others}"
        if why := (one.get("own") or {}).get("unpaired"):
            yield f"  not timed beside its own pick: {why}"
    counts = (row["sweep"] or {}).get("kernels", {})
    us: dict[str, list[tuple[float, float, int, int]]] = defaultdict(list)
    for one in row["problems"]:
        for kernel, found in ((one.get("own") or {}).get("kernels", {})).items():
            figures = (found["own"], found["tuned"], found["same"], found["launches"])
            us[kernel].append(figures)
    yield f"{'kernel':52} {'nominal':>7} {'ran':>5} {'rejected':>9}  own/tuned us (ratio) a problem"
    for kernel in dict.fromkeys((*counts, *us)):
        yield _line(kernel.rpartition(":")[2], counts.get(kernel), us.get(kernel, []))


def _first_calls(one: Mapping[str, Any]) -> str:
    """How long those took that were made, and whether what was served is right."""
    took = [f"{each} {seconds(one[each])}" for each in STEPS if each in one]
    said = f"first call {', '.join(took) or 'not made'}"
    if "served" not in one:
        return said
    worst = max((one["served"] or {}).get("errors", [float("nan")]))
    return f"{said}; error {worst:.1e}, {'right' if worst <= LARGEST_ERROR else 'NOT RIGHT'}"


def _line(
    kernel: str, counts: Mapping[str, Any] | None, us: Sequence[tuple[float, float, int, int]]
) -> str:
    known = counts or {"nominal": "?", "effective": "?", "rejected": {}}
    rejected = sum(known["rejected"].values())
    pairs = (
        f"{a:.1f}/{b:.1f} ({a / b:.3f}{', same config' if same == launches else ''})"
        for a, b, same, launches in us
    )
    return (
        f"{kernel:52} {known['nominal']:>7} {known['effective']:>5} {rejected:>9}  "
        + " · ".join(pairs)
    )


def figures(found: Mapping[str, Any]) -> Iterator[str]:
    """Of a step, how far off its results are, and what its own picks take over ours, a kernel."""
    if "errors" in found:
        yield f"error {max(found['errors']):.1e}"
    for kernel, one in found.get("kernels", {}).items():
        if "own" in one:
            yield f"{kernel.rpartition(':')[2]} {one['own'] / one['tuned']:.3f}"


def seconds(found: Mapping[str, Any] | None) -> str:
    return f"{found['seconds']:.2f} s" if found else "failed"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=PACKAGES, metavar="NAME")
    parser.add_argument("--problems", type=int, metavar="N", help="only the first N of each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--folder", type=Path, help="keep sweeps and lockfiles here")
    parser.add_argument("--steps", nargs="+", choices=("sweep", *STEPS), default=("sweep", *STEPS))
    parser.add_argument("--dry-run", action="store_true", help="say what would be run")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.step:
        name, file, index = given.step
        print(RESULT + json.dumps(STEPS[name](Path(file), int(index))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder.absolute() if given.folder else Path(scratch)
        for name in given.only or PACKAGES:
            if importlib.util.find_spec(PACKAGES[name]) is None:
                print(f"{name}: {PACKAGES[name]} is not installed: `make test-others`")
            elif given.dry_run:
                print(f"{name}: would run {prepared(name, folder)}")
            else:
                rows.append(measure(name, folder, given.problems, given.steps))
                print("\n".join(table(rows[-1])), flush=True)
                if given.json:  # after each: what ends the run loses no earlier one
                    given.json.write_text(json.dumps(rows, indent=1))
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())

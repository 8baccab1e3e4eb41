"""bench_compile: a grid of matmul configs -> what compiling costs, against how others do it.

(a) 288 configs x 2 compile classes: each through Triton's whole pipeline, one a task, on all
    cores, against tritune's way. Needs no GPU.
(b) 16 configs x 4 shapes: `@triton.autotune` in one process against `tritune sweep`, both from
    their start to their end with cold caches. Needs a GPU.

One run, ratios. `--small` takes a few configs of (a) and leaves (b) out; so does a machine with
no GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import compile_tasks  # noqa: E402

from tritune import compile as compiling  # noqa: E402
from tritune import grouping, space  # noqa: E402
from tritune.cores import default_jobs  # noqa: E402
from tritune.device import cuda, lowering, targets  # noqa: E402
from tritune.limit import Limit  # noqa: E402
from tritune.model import Candidate, Compiled, Config, Problem, Reason, Rejected  # noqa: E402
from tritune.spec import read_sweep  # noqa: E402
from tritune.workers import Done, Pool  # noqa: E402

KERNEL = "compile_matmul:matmul_kernel"
GRID = compile_tasks.DATA / "compile_matmul.yaml"
LISTED = compile_tasks.DATA / "compile_matmul_listed.yaml"
LIMIT_S = 120.0
SMALL = 12
AUTOTUNE = """\
import sys
sys.path.insert(0, {data!r})
import torch
import compile_matmul
for m, n, k in ((4096, 4096, 4096), (64, 4096, 4096), (1024, 14336, 4096), (1000, 4095, 1023)):
    a, b = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((m, k), (k, n)))
    compile_matmul.matmul(compile_matmul.autotuned, a, b)
    torch.cuda.synchronize()
    print(m, n, k, compile_matmul.autotuned.best_config, flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What compiling took."""

    wall_s: float
    cpu_s: float
    compiles: int
    told: str = ""


class CountedPool:
    """A pool that adds up the CPU-seconds of its calls."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.cpu_s = 0.0

    def run(
        self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], *limits: Any
    ) -> Iterator[tuple[int, Any]]:
        wrapped = [(function, *task) for task in tasks]
        for index, answer in self._pool.run(compile_tasks.counted, wrapped, *limits):
            if isinstance(answer, Done):
                value, seconds = answer.value
                self.cpu_s += seconds
                yield index, Done(value)
            else:
                yield index, answer


def naive(configs: Sequence[Config], jobs: int, kept: Path | None) -> Cost:
    """Every config of both classes through the whole pipeline, one a task."""
    tasks = [(shape, config.as_dict()) for shape in compile_tasks.SHAPES for config in configs]
    began, cpu_s, lost = time.monotonic(), 0.0, 0
    with TemporaryDirectory() as folder:
        logs = Path(folder)
        cache = str(kept or logs / "cache")
        with Pool(jobs, compile_tasks.open_plain, cache, log_folder=logs) as pool:
            for _, answer in pool.run(compile_tasks.whole_pipeline, tasks, LIMIT_S):
                lost += not isinstance(answer, Done)
                cpu_s += answer.value if isinstance(answer, Done) else 0.0
    told = f"{lost} failed" if lost else ""
    return Cost(wall_s=time.monotonic() - began, cpu_s=cpu_s, compiles=len(tasks), told=told)


def ours(configs: Sequence[Config], jobs: int, problems: Sequence[Problem]) -> Cost:
    """The same grid as a sweep of all problems compiles it."""
    sweep, target = read_sweep(GRID), targets.find("H200")
    candidates = [
        Candidate(kernel=KERNEL, problem=problem, config=config)
        for problem in problems
        for config in configs
    ]
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        logs = Path(folder)
        with Pool(
            jobs,
            lowering.open_session,
            sweep.kernel,
            None,
            target,
            str(logs / "cache"),
            log_folder=logs,
        ) as plain:
            pool: Any = CountedPool(plain)
            found = compiling.find_launches(pool, candidates, lambda _: None)
            lowered = compiling.lower(pool, found.launches, logs, lambda _: None)
            groups, out = grouping.group(
                found.launches, lowered, target=target, work=found.by_problem,
                lead=lambda _: False,
            )  # fmt: skip
            long = grouping.longest(groups, jobs // 2)
            ordered = sorted(
                groups,
                key=lambda one: (one.lowered.ttgir not in long, grouping.promise(one, target)),
            )
            made = list(
                compiling.compile_groups(
                    pool, ordered, target=target, limit=Limit(LIMIT_S), logs=logs
                )
            )
        return Cost(
            wall_s=time.monotonic() - began,
            cpu_s=pool.cpu_s,
            compiles=len({one.lowered.ttgir for one in groups}),
            told=told_of(out, made),
        )


def told_of(
    out: Sequence[Rejected], made: Sequence[tuple[grouping.Group, Compiled | Rejected]]
) -> str:
    longest = max((one.seconds for _, one in made if isinstance(one, Compiled)), default=0.0)
    late = {
        one.detail for _, one in made if isinstance(one, Rejected) and one.reason is Reason.TIMEOUT
    }
    oversize = len({one.candidate.config for one in out if one.reason is Reason.SHARED})
    return (
        f"{oversize} configs of the aligned class oversize before LLVM, "
        f"longest single compile {longest:.1f} s, {len(late)} cut off {sorted(late) or ''}"
    )


def compare_compiling(jobs: int, *, small: bool, kept: Path | None = None) -> None:
    sweep, target = read_sweep(GRID), targets.find("H200")
    configs = list(space.configs(sweep, target))
    if small:
        quick = [one for one in configs if one["BLOCK_M"] == 64 and one["BLOCK_N"] == 64]
        configs = [one for one in quick if one["num_warps"] == 4][:SMALL]
    mine = ours(configs, jobs, sweep.problems)
    plain = naive(configs, jobs, kept)
    print(f"(a) {len(configs)} configs, {jobs} processes, cold caches")
    for name, cost in (("whole pipeline", plain), ("tritune", mine)):
        print(
            f"  {name:14}  {cost.wall_s:7.1f} s wall  {cost.cpu_s:8.1f} CPU-s  "
            f"{cost.compiles:4} through LLVM  {cost.told}"
        )
    cpu, wall = mine.cpu_s / plain.cpu_s, mine.wall_s / plain.wall_s
    print(f"  tritune / whole pipeline: CPU {cpu:.0%}, wall {wall:.0%}", flush=True)


def timed(command: Sequence[str], **env: str) -> float:
    began = time.monotonic()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.monotonic() - began
    print("\n".join(f"    {line}" for line in done.stdout.splitlines()))
    if done.returncode:
        print(done.stderr[-3000:])
    return took


def compare_tuning() -> None:
    with TemporaryDirectory() as folder:
        at = Path(folder)
        print("(b) 16 configs on 4 shapes, from start to end, cold caches", flush=True)
        command = [sys.executable, "-W", "ignore", "-c"]
        script = AUTOTUNE.format(data=str(compile_tasks.DATA))
        theirs = timed([*command, script], TRITON_CACHE_DIR=str(at / "theirs"))
        lockfile = at / "tritune.lock"
        mine = timed(
            [sys.executable, "-m", "tritune", "sweep", str(LISTED), "--lockfile", str(lockfile)],
            TRITON_CACHE_DIR=str(at / "ours"),
            TRITUNE_CACHE_DIR=str(at / "cache"),
        )
        print(f"  @triton.autotune  {theirs:6.1f} s")
        print(f"  tritune sweep     {mine:6.1f} s, lockfile written: {lockfile.is_file()}")
        print(f"  tritune / autotune: {mine / theirs:.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a few configs, no GPU")
    parser.add_argument("--only", choices=["a", "b"], help="one of the two comparisons")
    parser.add_argument("--keep", type=Path, help="where what the whole pipeline made stays")
    parser.add_argument("--jobs", type=int, default=default_jobs())
    options = parser.parse_args()
    small = options.small or not cuda.present()
    if options.only != "b":
        compare_compiling(options.jobs, small=small, kept=options.keep)
    if options.only != "a" and not small:
        compare_tuning()


if __name__ == "__main__":
    main()

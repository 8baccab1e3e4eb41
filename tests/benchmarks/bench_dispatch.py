"""bench_dispatch: what one launch costs on the host, in microseconds, by who picks its config.

Kernels that do nothing, so that the GPU is never what is waited for: the host alone is timed,
2,000 launches at a time, the ways in turn, the median of five.

    python tests/benchmarks/bench_dispatch.py [--json FILE]
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
import triton.language as tl

import tritune
from tritune import lock, runtime
from tritune.model import Config, Evidence, Lock, Problem, Winner

LAUNCHES = 2000
ALTERNATIONS = 5
JIT = "plain jit, config by hand"
LAUNCH = Callable[[], object]


@triton.jit
def wide_kernel(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, alpha,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pass


@triton.jit
def narrow_kernel(x, y, n, BLOCK: tl.constexpr):
    pass


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel that does nothing, and how it is launched."""

    jit: Any
    key: tuple[str, ...]
    like: tuple[str, ...]
    config: Mapping[str, int]
    other: Mapping[str, int]
    """A second config, so that autotuning has a choice."""
    scalars: tuple[Any, ...]

    @property
    def name(self) -> str:
        taken = len(self.like) + len(self.scalars)
        return f"{self.jit.fn.__name__}, {taken} arguments"

    def arguments(self, device: str) -> tuple[Any, ...]:
        return (*(torch.empty(1024, device=device) for _ in self.like), *self.scalars)


CASES = (
    Case(
        jit=wide_kernel,
        key=("M", "N", "K"),
        like=("a", "b", "c"),
        config={
            "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8,
            "num_warps": 4, "num_stages": 3,
        },
        other={
            "BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8,
            "num_warps": 4, "num_stages": 3,
        },
        scalars=(512, 512, 512, 512, 1, 512, 1, 512, 1, 0.5),
    ),
    Case(
        jit=narrow_kernel,
        key=("n",),
        like=("x", "y"),
        config={"BLOCK": 1024, "num_warps": 4},
        other={"BLOCK": 512, "num_warps": 4},
        scalars=(1024,),
    ),
)  # fmt: skip


def locked(case: Case, arguments: tuple[Any, ...], folder: Path) -> Any:
    """The kernel under `@tritune.kernel`, with a lockfile that holds exactly this call."""

    def decorated(lockfile: Path) -> Any:
        decorator = tritune.kernel(
            key=case.key, like=case.like, default=dict(case.other), lockfile=lockfile
        )
        return decorator(case.jit)

    first = decorated(folder / "none.lock")
    winner = Winner(
        kernel=first.name,
        key=first.key_of(first.bind(arguments, {})),
        problem=Problem.of({}),
        config=Config.of(case.config),
        evidence=Evidence(us=1.0, default_us=2.0, margin=0.1, noise=0.0, bits="", ir="", triton=""),
    )
    path = folder / f"{case.jit.fn.__name__}.lock"
    lock.write(path, lock.merge_winners(Lock(), runtime.identify(0), [winner]))
    return decorated(path)


def autotuned(case: Case) -> Any:
    configs = []
    for values in (case.config, case.other):
        options = {n: value for n, value in values.items() if n.startswith("num_")}
        meta = {n: value for n, value in values.items() if n not in options}
        configs.append(triton.Config(meta, **options))
    return triton.autotune(configs, key=list(case.key))(case.jit)


def ways(case: Case, arguments: tuple[Any, ...], folder: Path) -> dict[str, LAUNCH]:
    """What is compared, plain jit first."""
    ours, stock, grid, config = locked(case, arguments, folder), autotuned(case), (1,), case.config
    names = [*case.key, *case.like]
    asked = {name: value for name, value in ours.bind(arguments, {}).items() if name in names}
    by_hand = dict(config)

    def asked_first() -> None:
        ours[grid](*arguments, **ours.config(**asked))

    return {
        JIT: lambda: case.jit[grid](*arguments, **by_hand),
        "autotune, tuned before": lambda: stock[grid](*arguments),
        "tritune, looked up": lambda: ours[grid](*arguments),
        "tritune, config() and launch": asked_first,
        "tritune, launch with its config": lambda: ours[grid](*arguments, **by_hand),
    }


def warm(case: Case, launches: Mapping[str, LAUNCH]) -> None:
    """Compile and tune; the look-up has to be one that hits."""
    for launch in launches.values():
        launch()
    counts = next(n for name, n in tritune.stats().items() if case.jit.fn.__name__ in name)
    if counts["default"] or not counts["exact"]:
        raise RuntimeError(f"{case.name}: the lockfile was missed: {counts}")


def alternate(
    launches: Mapping[str, LAUNCH],
    *,
    clock: Callable[[], float] = time.perf_counter,
    settle: Callable[[], object] = lambda: None,
    count: int,
) -> dict[str, float]:
    """Microseconds a launch: the median over the alternations, each in another order."""
    taken: dict[str, list[float]] = {name: [] for name in launches}
    names = list(launches)
    for number in range(ALTERNATIONS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            launch = launches[name]
            settle()
            began = clock()
            for _ in range(count):
                launch()
            taken[name].append((clock() - began) / count * 1e6)
    return {name: statistics.median(each) for name, each in taken.items()}


def table(title: str, us: Mapping[str, float]) -> Iterator[str]:
    wide = max(map(len, [title, *us]))
    yield f"{title.ljust(wide)}  µs a launch  of plain jit"
    for name, value in us.items():
        yield f"{name.ljust(wide)}  {value:11.2f}  {value / us[JIT]:11.2f}x"


def measure(
    case: Case, device: str, settle: Callable[[], object], count: int = LAUNCHES
) -> dict[str, float]:
    arguments = case.arguments(device)
    with tempfile.TemporaryDirectory() as folder:
        launches = ways(case, arguments, Path(folder))
        warm(case, launches)
        return alternate(launches, settle=settle, count=count)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    options = parser.parse_args(words)
    torch.cuda.init()
    print(f"{torch.cuda.get_device_name()}'s host, Triton {triton.__version__}\n")
    found = {}
    for case in CASES:
        found[case.name] = measure(case, "cuda", torch.cuda.synchronize)
        print(*table(case.name, found[case.name]), "", sep="\n", flush=True)
    if options.json:
        document = {"triton": triton.__version__, "us": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""bench_dispatch: what one launch costs on the host, in microseconds, by who picks its config.

Kernels that do nothing, so that the GPU is never what is waited for: the host alone is timed,
2,000 launches at a time, the ways in turn, five times. A ratio is of two ways of one turn, and
what is printed is the median of the five.

    python tests/benchmarks/bench_dispatch.py [--json FILE]

With `--stand-in` no GPU is needed: a driver that launches nothing stands in, so that the times
are those of Python alone, without the driver's own launch, which every way pays alike. So its
ratios are further from 1 than a GPU's.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

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


class NoLaunch:
    """What a binary is launched by: calls the hooks that it is given, as the real ones do."""

    def __init__(self, src: Any, metadata: Any) -> None:
        pass

    def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *args) -> None:
        if enter is not None:
            enter(metadata)
        if leave is not None:
            leave(metadata)


class StandIn:
    """A driver of an H200 that loads and launches nothing."""

    launcher_cls = NoLaunch
    utils = SimpleNamespace(
        get_device_properties=lambda index: {
            "multiprocessor_count": 132,
            "max_shared_mem": 232448,
            "mem_bus_width": 6016,
            "mem_clock_rate": 3201000,
        },
        load_binary=lambda *binary: (1, 2, 10, 0, 1024),
        unload_module=lambda module: None,
    )

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_benchmarker(self) -> Any:
        def benchmark(run: Any, quantiles: Any = None) -> tuple[float, ...]:
            run()
            return 1.0, 1.0, 1.0

        return benchmark


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
        "tritune, given **cfg": lambda: ours[grid](*arguments, **by_hand),
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
) -> dict[str, list[float]]:
    """Microseconds a launch, one figure an alternation, each in another order."""
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
    return taken


def ratio(taken: Mapping[str, Sequence[float]], name: str) -> float:
    """What *name* costs of plain jit: the median over the alternations."""
    return statistics.median(a / b for a, b in zip(taken[name], taken[JIT], strict=True))


def table(title: str, taken: Mapping[str, Sequence[float]]) -> Iterator[str]:
    wide = max(map(len, [title, *taken]))
    yield f"{title.ljust(wide)}  µs a launch  of plain jit"
    for name, each in taken.items():
        us = statistics.median(each)
        yield f"{name.ljust(wide)}  {us:11.2f}  {ratio(taken, name):11.2f}x"


def measure(
    case: Case, device: str, settle: Callable[[], object], count: int = LAUNCHES
) -> dict[str, list[float]]:
    arguments = case.arguments(device)
    with tempfile.TemporaryDirectory() as folder:
        launches = ways(case, arguments, Path(folder))
        warm(case, launches)
        return alternate(launches, settle=settle, count=count)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    parser.add_argument("--stand-in", action="store_true", help="with no GPU: the host alone")
    parser.add_argument("--launches", type=int, default=LAUNCHES, metavar="N", help="at a time")
    options = parser.parse_args(words)
    device, settle, where = place(stand_in=options.stand_in)
    print(f"{where}, Triton {triton.__version__}, Python {platform.python_version()}\n")
    found = {}
    for case in CASES:
        found[case.name] = taken = measure(case, device, settle, options.launches)
        print(*table(case.name, taken), "", sep="\n", flush=True)
    if options.json:
        document = {"where": where, "triton": triton.__version__, "us": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def place(*, stand_in: bool) -> tuple[str, Callable[[], object], str]:
    """Where tensors are, what waits for the GPU, and what to call it."""
    if stand_in:
        triton.runtime.driver.set_active(StandIn())
        return "cpu", lambda: None, "Host cost without a GPU (a stand-in that launches nothing)"
    torch.cuda.init()
    return "cuda", torch.cuda.synchronize, f"{torch.cuda.get_device_name()}'s host"


if __name__ == "__main__":
    sys.exit(main())

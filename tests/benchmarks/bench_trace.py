"""bench_trace: what `tritune trace` adds to a launch on the host, in microseconds.

The kernels of bench_dispatch, which do nothing, under Triton's autotuner (tuned before) and
under tritune's line: 200 launches at a time, with the tracer in place and without, in turn, 100
times. What is printed is the least of each, as what another process takes only adds, and the
median over the turns of what is added. The third way is a class of somebody else's, whose `run`
calls its parent's. Then what a new key costs, and what writing all counts does, once a second
or more seldom.

    python tests/benchmarks/bench_trace.py [--stand-in]

With `--stand-in` no GPU is needed: a driver that launches nothing stands in, so the host's own
launch, which tracing adds nothing to, is missing from both sides, and no launch is timed.

After them: what a new key costs, and what a second of writing counts costs, by how many keys.
"""

from __future__ import annotations

import argparse
import functools
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench_dispatch
import triton
from triton.runtime.autotuner import Autotuner

from tritune.routing import Route
from tritune.tracing import recorder, wrapping

TURNS, WIDE = 100, 60
TUNED = "autotune, tuned before"
WAYS = (TUNED, "tritune, looked up", "a class of its own, tuned before")
KEYS = 3000


class Own(Autotuner):
    """As packages have them."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return super().run(*args, **kwargs)


def under_a_class_of_its_own(case: bench_dispatch.Case, device: str) -> Callable[[], object]:
    stock = bench_dispatch.autotuned(case)
    own, arguments = Own.__new__(Own), case.arguments(device)
    vars(own).update(vars(stock))
    own[(1,)](*arguments)  # tunes
    return lambda: own[(1,)](*arguments)


def taken_us(launch: Callable[[], object], settle: Callable[[], object], count: int) -> float:
    settle()
    began = time.perf_counter()
    for _ in range(count):
        launch()
    return (time.perf_counter() - began) / count * 1e6


def compared(
    launch: Callable[[], object], route: Route, settle: Callable[[], object], count: int
) -> list[tuple[float, float]]:
    """Without and with the tracer, a pair a turn."""
    pairs = []
    for turn in range(TURNS):
        found = {}
        for is_traced in (turn % 2 == 0, turn % 2 == 1):
            if is_traced:
                route.begin()
            try:
                launch()
                found[is_traced] = taken_us(launch, settle, count)
            finally:
                route.end()
        pairs.append((found[False], found[True]))
    return pairs


def table(title: str, pairs: Sequence[tuple[float, float]]) -> str:
    plain = min(without for without, _ in pairs)
    added = min(traced for _, traced in pairs) - plain
    middle = statistics.median(traced - without for without, traced in pairs)
    return f"{title.ljust(WIDE)}  {plain:6.2f}  {added:+6.2f}  {middle:+6.2f}"


def of_keys(case: bench_dispatch.Case, device: str, folder: str) -> Iterator[str]:
    """What keys cost that are new, and what all of them cost when counts are written."""
    tracing = recorder.Recorder(folder)
    launched, taken = bench_dispatch.autotuned(case), []
    first, *others = case.scalars
    tensors = case.arguments(device)[: len(case.like)]
    for number in range(KEYS):
        arguments = (*tensors, first + number, *others)
        began = time.perf_counter()
        launch = tracing.seen(launched, arguments, {}, (1,))
        taken.append((time.perf_counter() - began) * 1e6)
        launch.count = 1
    yield f"{case.name}: a new key".ljust(WIDE) + f"  {statistics.median(taken):6.1f}"
    began = time.perf_counter()
    tracing.flush()
    took = (time.perf_counter() - began) * 1e6
    yield f"{case.name}: counts of {KEYS:,} keys".ljust(WIDE) + f"  {took:6.0f}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stand-in", action="store_true", help="with no GPU: the host alone")
    parser.add_argument("--launches", type=int, default=200, metavar="N", help="at a time")
    options = parser.parse_args(words)
    device, settle, where = bench_dispatch.place(stand_in=options.stand_in)
    print(f"{where}, Triton {triton.__version__}, Python {platform.python_version()}\n")
    print(f"{'µs a launch'.ljust(WIDE)}  {'plain':>6}  {'traced':>6}  {'median':>6}")
    with tempfile.TemporaryDirectory() as folder:
        tracing = recorder.Recorder(folder)
        route = Route(functools.partial(wrapping.traced, tracing))
        for case in bench_dispatch.CASES:
            launches = bench_dispatch.ways(case, case.arguments(device), Path(folder))
            bench_dispatch.warm(case, launches)
            launches[WAYS[-1]] = under_a_class_of_its_own(case, device)
            for way in WAYS:
                pairs = compared(launches[way], route, settle, options.launches)
                print(table(f"{case.name}: {way}", pairs), flush=True)
            print(*of_keys(case, device, folder), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

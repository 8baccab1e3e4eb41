"""bench_trace: what `tritune trace` adds to a launch on the host, in microseconds.

The kernels of bench_dispatch, which do nothing, under Triton's autotuner (tuned before) and
under tritune's line: 200 launches at a time, with the tracer in place and without, in turn, 100
times. What is printed is the least of each: what another process takes only adds.

    python tests/benchmarks/bench_trace.py [--stand-in]

With `--stand-in` no GPU is needed: a driver that launches nothing stands in, so the host's own
launch, which tracing adds nothing to, is missing from both sides, and no launch is timed.
"""

from __future__ import annotations

import argparse
import functools
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bench_dispatch
import triton

from tritune.routing import Route
from tritune.tracing import recorder, wrapping

TURNS = 100
WAYS = ("autotune, tuned before", "tritune, looked up")


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


def table(title: str, pairs: Sequence[tuple[float, float]]) -> Iterator[str]:
    plain = min(without for without, _ in pairs)
    added = min(traced for _, traced in pairs) - plain
    yield f"{title.ljust(52)}  {plain:6.2f}  {added:+6.2f}  {added / plain * 100:+6.1f} %"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stand-in", action="store_true", help="with no GPU: the host alone")
    parser.add_argument("--launches", type=int, default=200, metavar="N", help="at a time")
    options = parser.parse_args(words)
    device, settle, where = bench_dispatch.place(stand_in=options.stand_in)
    print(f"{where}, Triton {triton.__version__}, Python {platform.python_version()}\n")
    print(f"{'µs a launch'.ljust(52)}  {'plain':>6}  {'traced':>6}")
    with tempfile.TemporaryDirectory() as folder:
        tracing = recorder.Recorder(folder)
        route = Route(functools.partial(wrapping.traced, tracing))
        for case in bench_dispatch.CASES:
            launches = bench_dispatch.ways(case, case.arguments(device), Path(folder))
            bench_dispatch.warm(case, launches)
            for way in WAYS:
                pairs = compared(launches[way], route, settle, options.launches)
                print(*table(f"{case.name}: {way}", pairs), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

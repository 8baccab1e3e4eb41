"""bench_trust: sweeps on a simulated GPU -> how often they are right, and how often they agree.

Four matmul problems of a recorded grid, and the small problems of the recorded sweeps of softmax
and split-K, under what a process adds to each binary. No GPU; a second for two or three sweeps.

    python tests/benchmarks/bench_trust.py [--resamplings 1000] [--processes 2]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import simulated  # noqa: E402

STEP = 10
"""Resamplings of one task."""
SMALL = 0.04
"""Of the resamplings, done on the recorded sweeps too: those have seven times as many problems."""
PLANTED = 100


def grid(seeds: Sequence[int]) -> simulated.Count:
    return simulated.count(simulated.of_grid(), seeds)


def small(seeds: Sequence[int], process: float) -> simulated.Count:
    truths = simulated.of_records("softmax", "splitk")
    return simulated.count(truths, seeds, (process, process))


def planted(gain: float, process: float) -> int:
    """How often the second binary takes the place of the incumbent."""
    truth = simulated.of_pair(gain, 0.004)
    slow, fast = truth.us
    replaced = 0
    for seed in range(PLANTED):
        device = simulated.Simulated([truth], seed, (process, process))
        [found] = simulated.sweep([truth], device, [slow], [slow])
        replaced += found.winner.config == fast
    return replaced


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resamplings", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    few = max(STEP, int(SMALL * given.resamplings))
    with ProcessPoolExecutor(given.processes) as pool:
        found = pool.map(grid, _steps(given.resamplings))
        print(f"grid, 0.5 to 1 % a process: {sum(found, simulated.Count())}", flush=True)
        for process in (0.0, 0.003, 0.005, 0.01):
            steps = _steps(few)
            parts = pool.map(small, steps, [process] * len(steps))
            print(f"small, {process:.1%}: {sum(parts, simulated.Count())}", flush=True)
    for process in (0.0, 0.003, 0.005):
        shares = ", ".join(f"{gain:.1%}: {planted(gain, process)}" for gain in (0.003, 0.01, 0.02))
        print(f"planted gains found of {PLANTED}, {process:.1%}: {shares}", flush=True)


def _steps(resamplings: int) -> list[range]:
    return [range(i, min(i + STEP, resamplings)) for i in range(0, resamplings, STEP)]


if __name__ == "__main__":
    main()

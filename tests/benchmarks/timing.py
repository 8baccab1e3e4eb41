"""timing: several ways to do one piece of work -> the median time of each, in microseconds.

All run inside one window, interleaved, in an order that is rotated and reversed, so that clocks
and temperature are the same for all. A sample is: let the host get ahead, flush the L2 cache,
start event, the work, stop event. Knows nothing of kernels or of tritune.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Run = Callable[[], object]

CYCLES_PER_US = 2600
"""Above the clock of every GPU: an idle kernel of so many cycles lasts a microsecond at least."""
AHEAD, AHEAD_US = 1.5, 30.0
LONGEST_AHEAD_US = 20_000.0
ROUNDS = 26


class Watch(Protocol):
    """What takes samples; a test has one that needs no GPU."""

    device: str
    """Where operands have to be."""

    def host_us(self, run: Run) -> float:
        """How long the host takes to enqueue *run*."""

    def sample(self, run: Run, ahead_us: float) -> Any:
        """Enqueue one sample, the GPU idling for *ahead_us* first; None when that was too short."""

    def read(self, samples: Sequence[Any]) -> list[float]:
        """The samples in microseconds, once the GPU has done them all."""


@dataclass
class GpuWatch:
    """Samples on the current GPU, each with a cold L2 cache."""

    flush: Any
    device: str = "cuda"

    @classmethod
    def open(cls) -> GpuWatch:
        """Size the flush from the GPU's L2 cache, and bring its clocks up."""
        import torch

        size = 2 * torch.cuda.get_device_properties().L2_cache_size
        watch = cls(torch.empty(max(size, 1 << 25), dtype=torch.uint8, device="cuda"))
        watch.warm_up(0.5)
        return watch

    def warm_up(self, seconds: float) -> None:
        import torch

        a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(20):
                torch.mm(a, a)
            torch.cuda.synchronize()

    def host_us(self, run: Run) -> float:
        import torch

        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        taken = time.perf_counter() - began
        torch.cuda.synchronize()
        return taken * 1e6

    def sample(self, run: Run, ahead_us: float) -> Any:
        import torch

        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(ahead_us * CYCLES_PER_US))
        self.flush.zero_()
        start.record()
        run()
        stop.record()
        # Passed already: the GPU waited for the host, and the sample holds some of that wait.
        return None if start.query() else (start, stop)

    def read(self, samples: Sequence[Any]) -> list[float]:
        import torch

        torch.cuda.synchronize()
        return [start.elapsed_time(stop) * 1e3 for start, stop in samples]


def interleaved(watch: Watch, runs: Mapping[str, Run], rounds: int = ROUNDS) -> dict[str, float]:
    """The median of each, over *rounds* samples of which the first is thrown away."""
    ahead: dict[str, float] = {}
    for name, run in runs.items():
        run()  # the first one compiles, or loads what is compiled
        ahead[name] = AHEAD_US + AHEAD * max(watch.host_us(run) for _ in range(2))
    samples: dict[str, list[Any]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in turn(list(runs), number):
            samples[name].append(_sample(watch, runs[name], name, ahead))
    taken = watch.read([one for name in runs for one in samples[name][1:]])
    each = rounds - 1
    return {
        name: statistics.median(taken[i * each : (i + 1) * each]) for i, name in enumerate(runs)
    }


def _sample(watch: Watch, run: Run, name: str, ahead: dict[str, float]) -> Any:
    while (found := watch.sample(run, ahead[name])) is None:
        ahead[name] *= 2
        if ahead[name] > LONGEST_AHEAD_US:
            raise RuntimeError(f"{name} waits for the GPU on the host: it cannot be timed so")
    return found


def turn(names: list[str], number: int) -> list[str]:
    """The order of a round: every other one is reversed, and each begins with another."""
    first = number // 2 % len(names)
    order = names[first:] + names[:first]
    return order[::-1] if number % 2 else order


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """None where there is nothing to take it of."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None

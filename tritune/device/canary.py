"""device.canary: fixed work on a GPU -> how long it took, and under which clock.

Runs in the worker that owns the GPU. `guards` says what it means.
"""

from __future__ import annotations

import os
import time

from tritune.device.bench import Bench
from tritune.device.guards import Canary

SIDE = 4096
"""Of the square matrices that the warm-up multiplies."""
ELEMENTS = 1 << 26
"""Of the fp32 tensors that a canary adds: 256 MB each, so that one addition outlasts by far what
a busy host needs to enqueue the next, and the chip stays cool."""
CANARIES = 40
"""Additions of one canary: a few milliseconds, longer than a time slice of another process."""
CLOCK_CYCLES = 1_000_000
"""What the idle kernel of a canary takes: half a millisecond, so its clock is known to 0.1 %."""


def warm_up(bench: Bench, seconds: float) -> None:
    """Real work until the clocks are where a sweep will hold them; else the first looks fast."""
    import torch

    generator = torch.Generator(device=bench.device).manual_seed(1)
    options = {"device": bench.device, "dtype": torch.float16}
    a = torch.randn(SIDE, SIDE, generator=generator, **options)
    out = torch.empty(SIDE, SIDE, **options)
    # Kept, so that a problem that fills the memory leaves room for a canary.
    bench.canary = tuple(torch.ones(ELEMENTS, device=bench.device) for _ in range(2))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(CANARIES):
            torch.mm(a, a, out=out)
        torch.cuda.synchronize()


def canary(bench: Bench) -> Canary:
    """A fixed piece of work, timed, and the clock it had: what an idle kernel says of it.

    Light on purpose, and in large pieces: on an H200 with no one else on it a matrix product
    read 14 % slow after the sweep's own products had warmed it (a power cap lowers the clock of
    heavy work only, which the idle kernel does not see), and additions of 8 microseconds read
    42 % slow while the host was busy.
    """
    import torch

    a, out = bench.canary
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
    torch.add(a, 1.0, out=out)
    events[0].record()
    torch.cuda._sleep(CLOCK_CYCLES)  # noqa: SLF001  # the only idle kernel
    events[1].record()
    events[2].record()
    for _ in range(CANARIES):
        torch.add(a, 1.0, out=out)
    events[3].record()
    torch.cuda.synchronize()
    idle_us, us = (events[i].elapsed_time(events[i + 1]) * 1e3 for i in (0, 2))
    mhz = CLOCK_CYCLES / idle_us if torch.version.cuda else 0.0
    return Canary(us=us / CANARIES, mhz=mhz, pid=os.getpid())

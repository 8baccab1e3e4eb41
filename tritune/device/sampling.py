"""device.sampling: prepared candidates on a GPU -> interleaved samples in microseconds.

Order of one sample: restore what the kernel would find changed, let the host get ahead, flush
the L2 cache, start event, launch, stop event; nothing is synchronised in between.

There is no replay of CUDA graphs. Its use would be kernels that run shorter than the host needs
to launch them, and here the GPU idles until the host has enqueued everything up to the stop
event, so that no launch is ever waited for: on an H200 a layer norm of one row reads 5.3 us,
where enqueueing it takes the host 15 to 30 us. What is between the events besides the kernel is
the GPU's own step from one command to the next, the same for every config. A graph would have to
be captured for each config and rotated over copies of all buffers to be cold, and would still
step. It falls short in one case: an op timed as a whole whose launches follow each other faster
in a graph than in a stream.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tritune import intercept, runtime, verify
from tritune.device.bench import Bench, Prepared, guarded, put_back, synchronize
from tritune.device.written import Before, changed, put, undoing, watching
from tritune.intercept import Captured
from tritune.model import Candidate, Config, Reason, Rejected

CYCLES_PER_US = 2600
"""Above the clock of every GPU: an idle kernel of so many cycles lasts a microsecond at least."""
AHEAD = 1.5
AHEAD_US = 30.0
"""The GPU idles before a sample for this many times as long as the host needs to enqueue it, and
a little more, so that no launch overhead is in between the events."""
KEPT = 24
"""Prepared candidates kept at a time."""


def sample(
    bench: Bench, candidates: Sequence[Candidate], rounds: int, first: int
) -> tuple[tuple[float, ...] | Rejected, ...]:
    """Interleaved samples in microseconds, or why a candidate could not be prepared."""
    ready: dict[int, Prepared] = {}
    answers: dict[int, Any] = {}
    for i, candidate in enumerate(candidates):
        made = _made(bench, candidate)
        if isinstance(made, Rejected):
            answers[i] = made
        else:
            ready[i] = made
    order = list(ready)
    events: dict[int, list[Any]] = {i: [] for i in order}
    for number in range(first, first + rounds):
        for i in turn(order, number):
            events[i].append(_time(bench, ready[i]))
    synchronize(bench)
    for i, pairs in events.items():
        answers[i] = tuple(round(a.elapsed_time(b) * 1e3, 2) for a, b in pairs)
    return tuple(answers[i] for i in range(len(candidates)))


def turn(order: Sequence[int], number: int) -> list[int]:
    """The order of round *number*: rotated by it, and reversed where it is odd."""
    start = number % max(len(order), 1)
    rotated = [*order[start:], *order[:start]]
    return rotated[::-1] if number % 2 else rotated


def _made(bench: Bench, candidate: Candidate) -> Prepared | Rejected:
    """Prepared; where memory is short, with no more held than this window needs."""
    attempt = partial(_prepare, bench, candidate.config)
    made = guarded(candidate, attempt)
    if isinstance(made, Rejected) and made.reason is Reason.MEMORY:
        bench.prepared.clear()
        made = guarded(candidate, attempt)
    return made


def _prepare(bench: Bench, config: Config) -> Prepared:
    found = bench.prepared.get(config)
    if found is None:
        while len(bench.prepared) >= KEPT:
            bench.prepared.pop(next(iter(bench.prepared)))
        found = (
            _whole_op(bench, config) if bench.made.timed == "op" else _kernel_only(bench, config)
        )
        bench.prepared[config] = found
    return found


def _whole_op(bench: Bench, config: Config) -> Prepared:
    import torch

    put_back(bench)
    kernel = bench.loaded.kernel
    before: Before = []
    with torch.device(bench.device), watching(before):
        intercept.capture(kernel, bench.made.run, config, key=bench.under)
    bench.note(changed(before))
    put_back(bench)

    def run() -> None:
        with torch.device(bench.device):
            if bench.loaded.is_foreign:  # else Triton tunes its other kernels, or keys, here
                intercept.capture(kernel, bench.made.run, config, key=bench.under)
                return
            with runtime.forced(kernel, config.as_dict()):
                bench.made.run()

    return Prepared(run=run, ahead_us=_ahead_us(bench, run), restore=list(bench.pristine))


def _ahead_us(bench: Bench, run: Callable[[], Any]) -> float:
    """How long the host takes to enqueue what *run* launches, with a margin."""
    run()
    synchronize(bench)
    began = time.perf_counter()
    run()
    host_us = (time.perf_counter() - began) * 1e6
    synchronize(bench)
    return AHEAD_US + AHEAD * host_us


def _kernel_only(bench: Bench, config: Config) -> Prepared:
    import torch

    put_back(bench)
    before: Before = []
    born: list[Any] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.device(bench.device))
        if not bench.repeatable:
            # Else a new tensor may lie where the last run left the very result.
            stack.enter_context(verify.poisoned())
        if not bench.written:
            stack.enter_context(verify.keeping(born))
        stack.enter_context(watching(before))
        _, captured = intercept.capture(
            bench.loaded.kernel, bench.made.run, config, key=bench.under
        )
    changes = changed(before, captured)
    bench.note(changes)
    own = [one for one in changes if one.launch >= 0]  # else it is what this kernel reads
    # A config may write what the default does not, as a counter of the parts of a sum.
    repeatable = bench.repeatable and bench.written.issuperset((o.launch, o.place) for o in own)
    for one in captured:
        _share_outputs(bench, one, repeatable=repeatable)
    hooks = [one.kernel.hook_of(one.config) for one in captured]

    def run() -> None:
        for one, hook in zip(captured, hooks, strict=True):
            if hook is not None:
                hook(one.for_hook())
            one.launch()

    restore = [] if repeatable else undoing(own)
    return Prepared(run=run, ahead_us=_ahead_us(bench, run), restore=restore, kept=born)


def _share_outputs(bench: Bench, one: Captured, *, repeatable: bool) -> None:
    """Write into the default's outputs where they are alike, so that outputs are held once."""
    if not repeatable:
        return
    args = list(one.args)
    for place, output in bench.outputs.items():
        if place < len(args) and _alike(args[place], output):
            args[place] = output
    one.args = tuple(args)


def _alike(a: Any, b: Any) -> bool:
    """Whether it is such a tensor; a descriptor, which has a shape too, keeps its own."""
    if not hasattr(a, "data_ptr"):
        return False
    return bool(a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride())


def _time(bench: Bench, prepared: Prepared) -> tuple[Any, Any]:
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    put(prepared.restore)
    torch.cuda._sleep(int(prepared.ahead_us * CYCLES_PER_US))  # noqa: SLF001  # the only idle kernel
    if bench.cold:
        bench.flush.zero_()
    start.record()
    prepared.run()
    stop.record()
    return start, stop

"""device.bench: a config on a GPU -> right or wrong; makes a problem and studies what it writes.

Runs in the worker that owns the GPU and may die with it. Does not know which candidates matter,
nor how long anything took: `sampling` does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tritune import launches, silicon, verify
from tritune.device.lowering import brief
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.launches import Captured
from tritune.load import Loaded, load
from tritune.model import (
    Candidate,
    Config,
    DeviceIdentity,
    Problem,
    Reason,
    Rejected,
    Timing,
    Verified,
)

T = TypeVar("T")


@dataclass
class Prepared:
    """A candidate ready to be timed: what to run, and what to put back before each run."""

    run: Callable[[], Any]
    ahead_us: float
    """How long the GPU has to wait for the host."""
    restore: list[tuple[Any, Any]] = field(default_factory=list)
    """(tensor, its content before the launch); only where a repeat would not be the same."""


@dataclass
class Bench:
    """What the worker keeps between calls: one problem, its reference, prepared candidates."""

    loaded: Loaded
    device: Any
    cold: bool
    flush: Any
    problem: Problem | None = None
    made: Any = None
    references: tuple[Any, ...] = ()
    default_error: float | None = None
    repeatable: bool = True
    pristine: list[tuple[Any, Any]] = field(default_factory=list)
    """(tensor of the problem that the op writes, its content at first)."""
    outputs: dict[int, Any] = field(default_factory=dict)
    """Written fresh tensors of the default's launch, by position, shared by equal candidates."""
    prepared: dict[Config, Prepared] = field(default_factory=dict)


def open_bench(
    kernel: str | None, problem: str | None, index: int, cache: str, timing: Timing
) -> Bench:
    """Take GPU *index*: load the kernel, set the device current, size the flush from its L2."""
    os.environ["TRITON_CACHE_DIR"] = cache
    import torch

    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    flush = torch.empty(
        max(2 * properties.L2_cache_size, 1 << 25), dtype=torch.uint8, device="cuda"
    )
    return Bench(
        loaded=load(kernel, problem),
        device=torch.device("cuda", index),
        cold=timing.cache == "cold",
        flush=flush,
    )


def identify(index: int) -> DeviceIdentity:
    """The silicon of GPU *index*, as Triton's driver and torch report it."""
    import torch

    torch.cuda.set_device(index)
    found = silicon.identity(silicon.current())
    if found is None:
        raise EnvironmentFaultError("Triton's driver does not say what GPU this is")
    return found


def warm_up(bench: Bench, seconds: float) -> None:
    """Real work until the clocks are where a sweep will hold them; else the first looks fast."""
    import torch

    a = torch.randn(4096, 4096, device=bench.device, dtype=torch.float16)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for _ in range(20):
            torch.mm(a, a)
        torch.cuda.synchronize()


def check(bench: Bench, candidate: Candidate, default: Config) -> Verified | Rejected:
    """Run a candidate once on poisoned outputs and compare it with the reference."""
    return guarded(candidate, lambda: _check(bench, candidate, default))


def _check(bench: Bench, candidate: Candidate, default: Config) -> Verified | Rejected:
    if bench.problem != candidate.problem:
        open_problem(bench, candidate.problem, default)
    outputs, _ = _run(bench, candidate.config)
    found = verify.difference(outputs, bench.references)
    limit = verify.allowed(found, bench.default_error)
    if not found.error <= limit:
        detail = verify.complaint(found, limit)
        return Rejected(candidate=candidate, reason=Reason.WRONG, detail=detail)
    return Verified(candidate=candidate, error=found.error, bits=verify.digest(outputs))


def _run(bench: Bench, config: Config) -> tuple[tuple[Any, ...], list[Captured]]:
    import torch

    for tensor, content in bench.pristine:
        tensor.copy_(content)
    with torch.device(bench.device), verify.poisoned():
        returned, captured = launches.capture(bench.loaded.kernel, bench.made.run, config)
    torch.cuda.synchronize()
    return verify.tensors(returned), captured


def open_problem(bench: Bench, problem: Problem, default: Config) -> None:
    """Make a problem, its reference, and find out what its op writes, on the default config."""
    import torch

    close_problem(bench)
    torch.cuda.empty_cache()
    with verify.poisoned():
        bench.made = launches.make(bench.loaded, problem, str(bench.device))
    if bench.made.reference is not None:
        with torch.device(bench.device):
            bench.references = verify.tensors(bench.made.reference())
    try:
        _study_default(bench, default)
    except TrituneError:
        raise
    except Exception:
        # A default that cannot run leaves the others to be judged by the type's tolerance.
        if not bench.references:
            raise
        torch.cuda.synchronize()
    bench.problem = problem


def close_problem(bench: Bench) -> None:
    """Drop everything that belongs to the last problem."""
    bench.problem, bench.made, bench.references, bench.default_error = None, None, (), None
    bench.repeatable = True
    bench.pristine.clear()
    bench.outputs.clear()
    bench.prepared.clear()


def _study_default(bench: Bench, default: Config) -> None:
    before: list[tuple[Captured, list[tuple[int | str, Any, Any]]]] = []
    with watching(before):
        outputs, captured = _run(bench, default)
    written = [
        (place, tensor, content)
        for _, found in before
        for place, tensor, content in found
        if not same_bits(tensor, content)
    ]
    if not bench.references:
        bench.references = tuple(out.clone() for out in outputs)
    bench.default_error = verify.difference(outputs, bench.references).error
    bench.repeatable = _repeatable(captured, written)
    _, again = _run(bench, default)
    old = {tensor.data_ptr() for one in again for _, tensor in _tensors(one)}
    bench.pristine = [(t, content) for _, t, content in written if t.data_ptr() in old]
    bench.outputs = {
        place: tensor
        for place, tensor, _ in written
        if tensor.data_ptr() not in old and isinstance(place, int)
    }


def watching(before: list[Any]) -> Any:
    """A context in which every launch first notes the content of its tensors in *before*."""
    from unittest import mock

    launch = Captured.launch

    def noted(self: Captured) -> None:
        before.append((self, [(place, t, t.clone()) for place, t in _tensors(self)]))
        launch(self)

    return mock.patch.object(Captured, "launch", noted)


def _tensors(one: Captured) -> list[tuple[int | str, Any]]:
    """The tensors of a launch with their places, each storage once."""
    import torch

    seen: set[int] = set()
    found: list[tuple[int | str, Any]] = []
    places: list[tuple[int | str, Any]] = [*enumerate(one.args), *one.kwargs.items()]
    for place, arg in places:
        tensor = getattr(arg, "base", arg)
        if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            found.append((place, tensor))
    return found


def same_bits(a: Any, b: Any) -> bool:
    import torch

    if a.numel() == 0:
        return True
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(a, b))


def _repeatable(captured: Sequence[Captured], written: Sequence[tuple[Any, Any, Any]]) -> bool:
    """Whether a launch over its own outputs gives them again: no accumulation, no state."""
    import torch

    after = [tensor.clone() for _, tensor, _ in written]
    for one in captured:
        one.launch()
    torch.cuda.synchronize()
    return all(same_bits(t, a) for (_, t, _), a in zip(written, after, strict=True))


STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
)
"""CUDA errors after which every call of the process fails."""


def guarded(candidate: Candidate, attempt: Callable[[], T]) -> T | Rejected:
    """The worker's boundary: what a launch raises is a rejected candidate."""
    import torch

    try:
        return attempt()
    except TrituneError:
        raise
    except torch.OutOfMemoryError as error:
        torch.cuda.empty_cache()
        return Rejected(candidate=candidate, reason=Reason.MEMORY, detail=brief(error))
    except Exception as error:  # noqa: BLE001  # drivers raise anything; its name is in the detail
        text = str(error)
        sticky = next((words for words in STICKY if words in text), "")
        if not sticky and "out of resource" in text:
            return Rejected(candidate=candidate, reason=Reason.SHARED, detail=brief(error))
        detail = sticky or brief(error)
        return Rejected(candidate=candidate, reason=Reason.LAUNCH, detail=detail)

"""device.bench: a config on a GPU -> right or wrong; makes the problem, knows its reference.

Runs in the worker that owns the GPU and may die with it. Does not know which candidates matter,
what an op writes (`study` does), nor how long anything took (`sampling` does).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tritune import blame, intercept, launches, silicon, verify
from tritune.contract import quoted
from tritune.device.lowering import brief, refuse_no_room
from tritune.device.stages import count_compiles
from tritune.device.written import Before, Written, beyond, changed, put, watching
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.intercept import Captured
from tritune.load import Loaded, load
from tritune.model import (
    VARIES,
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
    kept: Any = None
    """What launches may point to, and do not hold."""


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
    written: frozenset[tuple[int, int | str]] = frozenset()
    """What the default's launches leave other than it was: the launch's number, and the place."""
    own: frozenset[int] = frozenset()
    """Pointers of the problem's own tensors, as far as the default's launches show them."""
    adds_to: tuple[str, ...] = ()
    """Arguments that a launch over its own results changes again."""
    unsteady: tuple[str, ...] = ()
    """Arguments that two launches on the same content leave with other bits."""
    pristine: list[tuple[Any, Any]] = field(default_factory=list)
    """(tensor of the problem that the op writes, its content at first), in order."""
    outputs: dict[int, Any] = field(default_factory=dict)
    """Written fresh tensors of the default's launch, by position, shared by equal candidates."""
    prepared: dict[Config, Prepared] = field(default_factory=dict)
    canary: Any = None
    compiled: Callable[[], int] = int
    """Of the kernel under trial: what a launch here did not find in the compile cache."""

    @property
    def under(self) -> str:
        """The key whose launches are meant; empty for all of the kernel's."""
        return "" if self.problem is None else self.problem.key

    def note(self, changes: Sequence[Written]) -> None:
        """Put back from now on what one config writes of the problem's own, others or not."""
        self.pristine[:0] = beyond(self.pristine, changes, self.own)


def open_bench(
    kernel: str | None, problem: str | None, index: int, cache: str, timing: Timing
) -> Bench:
    """Take GPU *index*: load the kernel, set the device current, size the flush from its L2."""
    os.environ["TRITON_CACHE_DIR"] = cache
    import torch

    torch.cuda.set_device(index)
    properties = torch.cuda.get_device_properties(index)
    size = max(2 * properties.L2_cache_size, 1 << 25)
    flush = torch.empty(size, dtype=torch.uint8, device="cuda")
    bench = Bench(
        loaded=load(kernel, problem),
        device=torch.device("cuda", index),
        cold=timing.cache == "cold",
        flush=flush,
    )
    bench.compiled = count_compiles(bench.loaded.kernel.contract.function.short)
    return bench


def compiles(bench: Bench) -> int:
    return bench.compiled()


def leave(bench: Bench) -> int:
    """Hold no more of the GPU's memory for a problem; how many compiles there were."""
    close_problem(bench)
    return bench.compiled()


def identify(index: int) -> DeviceIdentity:
    """The silicon of GPU *index*, as Triton's driver and torch report it."""
    import torch

    torch.cuda.set_device(index)
    found = silicon.identity(silicon.current())
    if found is None:
        raise EnvironmentFaultError("Triton's driver does not say what GPU this is")
    return found


def check(bench: Bench, candidate: Candidate) -> Verified | Rejected:
    """Run a candidate once on poisoned outputs and compare it with the reference."""
    return guarded(candidate, lambda: _check(bench, candidate))


def _check(bench: Bench, candidate: Candidate) -> Verified | Rejected:
    before: Before = []
    with watching(before):
        outputs, _ = run_once(bench, candidate.config)
    bench.note(changed(before))
    found = launches.compared(bench.loaded, candidate.problem, outputs, bench.references)
    limit = verify.allowed(found, bench.default_error)
    if not found.error <= limit:
        detail = verify.complaint(found, limit)
        if bench.adds_to:
            detail += f"; a launch adds to {quoted(bench.adds_to)}: is it set before?"
        elif not bench.written:
            # What is added to the NaN of a poisoned output stays that NaN.
            detail += "; a launch changes nothing: does it add to what was never set?"
        return Rejected(candidate=candidate, reason=Reason.WRONG, detail=detail)
    bits = VARIES if bench.unsteady else verify.digest(outputs)
    return Verified(candidate=candidate, error=found.error, bits=bits)


def run_once(bench: Bench, config: Config) -> tuple[tuple[Any, ...], list[Captured]]:
    """The op on the problem as it was made, every new tensor poisoned: outputs and launches."""
    import torch

    put_back(bench)
    with torch.device(bench.device), verify.poisoned():
        returned, captured = intercept.capture(
            bench.loaded.kernel, bench.made.run, config, key=bench.under
        )
    synchronize(bench)
    return verify.tensors(returned), captured


def put_back(bench: Bench) -> None:
    """Give every tensor of the problem the content it was made with."""
    put(bench.pristine)


def synchronize(bench: Bench) -> None:
    import torch

    if bench.device.type == "cuda":
        torch.cuda.synchronize()


def open_problem(bench: Bench, candidate: Candidate) -> Rejected | None:
    """Make the problem of *candidate* in place of the last one; why not, where it cannot be."""

    def attempt() -> None:
        close_problem(bench)
        with verify.poisoned():
            bench.made = launches.make(bench.loaded, candidate.problem, str(bench.device))
        bench.problem = candidate.problem

    return guarded(candidate, attempt)


def close_problem(bench: Bench) -> None:
    """Drop everything that belongs to the last problem; its tensors are as they were made."""
    import torch

    put_back(bench)
    bench.problem, bench.made, bench.references, bench.default_error = None, None, (), None
    bench.repeatable, bench.adds_to, bench.unsteady = True, (), ()
    bench.written, bench.own = frozenset(), frozenset()
    for held in (bench.pristine, bench.outputs, bench.prepared):
        held.clear()
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()


def judge(bench: Bench, candidate: Candidate, default: Candidate | None) -> Rejected | None:
    """Learn what is right: the reference, and what the default itself achieves.

    With no *default*, as it cannot run, the others are judged by the type's tolerance.
    """

    def _kept(reference: Any) -> Any:
        own = {tensor.data_ptr() for tensor, _ in bench.pristine}
        return reference.clone() if reference.data_ptr() in own else reference

    def attempt() -> None:
        import torch

        if bench.made.reference is not None:
            # The study ran the op, and an op in place changed what the reference is made from.
            put_back(bench)
            with torch.device(bench.device):
                bench.references = tuple(map(_kept, verify.tensors(bench.made.reference())))
        if default is not None:
            outputs, _ = run_once(bench, default.config)
            if bench.made.reference is None:
                bench.references = tuple(out.clone() for out in outputs)
            bench.default_error = verify.difference(outputs, bench.references).error

    return guarded(candidate, attempt)


def has_reference(bench: Bench, _: Candidate) -> bool:
    return bench.made.reference is not None


def uuid(_: Bench) -> str:
    """The GPU as NVML names it; empty where torch does not tell."""
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    found = str(getattr(properties, "uuid", ""))
    return f"GPU-{found}" if found and "GPU-" not in found else found


STICKY = (
    "illegal memory access",
    "misaligned address",
    "unspecified launch failure",
    "illegal instruction",
    "invalid program counter",
    "invalid address space",
    "operation not supported on global/shared address space",
    "hardware stack error",
    "device-side assert triggered",
)
"""CUDA errors after which every call of the process fails."""


ASKED = re.compile(r"Tried to allocate ([\d.]+ \w+)")
FREE = re.compile(r"of which ([\d.]+ \w+) is free")


def guarded(candidate: Candidate, attempt: Callable[[], T]) -> T | Rejected:
    """The worker's boundary: what a launch raises is a rejected candidate."""
    import torch

    try:
        return attempt()
    except TrituneError:
        raise
    except torch.OutOfMemoryError as error:
        said = str(error)
    except Exception as error:  # noqa: BLE001  # drivers raise anything; its name is in the detail
        return _raised(candidate, error)
    # Past the handler: its traceback holds the tensors that did fit.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return Rejected(candidate=candidate, reason=Reason.MEMORY, detail=_lacking(said))


def _raised(candidate: Candidate, error: Exception) -> Rejected:
    refuse_no_room(error)
    text = str(error)
    sticky = next((words for words in STICKY if words in text), "")
    if not sticky and "out of resource" in text:
        return Rejected(candidate=candidate, reason=Reason.SHARED, detail=brief(error))
    detail = sticky or f"{brief(error)}{blame.told(error)}"
    return Rejected(candidate=candidate, reason=Reason.LAUNCH, detail=detail)


def _lacking(said: str) -> str:
    """Bytes needed and free, as torch's message has them."""
    asked, free = ASKED.search(said), FREE.search(said)
    if asked is None or free is None:
        return said.splitlines()[0][:200]
    return f"needs {asked[1]} more, {free[1]} free"

"""device.interpreter: a config on a small problem -> right or wrong, on Triton's interpreter.

Results only: the interpreter has no warps, no stages and no clock that means anything, so
nothing here is ever a time. Runs in a worker whose environment says `TRITON_INTERPRET=1`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tritune import blame, dtypenames, intercept, launches, verify
from tritune.device import faults
from tritune.errors import KernelError, TrituneError, line_of
from tritune.load import Loaded, load
from tritune.model import Candidate, Problem, Reason, Rejected, Verified

ENV = {"TRITON_INTERPRET": "1"}
NO_NUMPY = (
    "Triton's interpreter needs numpy, which cannot be imported "
    "(pip install 'tritune[interpreter]')"
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unloaded:
    """What loads elsewhere, and not where no GPU is there and Triton interprets."""

    why: str


class UnverifiableError(Exception):
    """The interpreter fails, or a GPU is missing: nothing is known of the config."""


def open_interpreter(kernel: str | None, problem: str | None) -> Loaded | Unloaded:
    """Load a kernel; Triton must not have been imported before `TRITON_INTERPRET` was set."""
    try:
        import numpy as np
    except ImportError:
        return Unloaded(NO_NUMPY)
    del np
    faults.refuse_stubs()
    try:
        return load(kernel, problem)
    except TrituneError as error:  # the kernel was described before, so it is not the module's
        return Unloaded(f"its module cannot be loaded in Triton's interpreter: {error.what}")


def check(loaded: Loaded | Unloaded, candidate: Candidate) -> Verified | Rejected:
    """Run one candidate and compare it with the reference.

    Raises:
        KernelError: the problem function or the reference raises, which no config can mend.
    """
    if isinstance(loaded, Unloaded):
        return Rejected(candidate=candidate, reason=Reason.UNVERIFIED, detail=loaded.why)
    try:
        return _check(loaded, candidate)
    except TrituneError:
        raise
    except UnverifiableError as error:
        return Rejected(candidate=candidate, reason=Reason.UNVERIFIED, detail=str(error))
    except intercept.UnmadeError:
        return Rejected(candidate=candidate, reason=Reason.PRUNED, detail=launches.PRUNED)
    except Exception as error:  # noqa: BLE001  # the boundary: an interpreted kernel raises anything
        why = faults.why_unverified(error)
        reason = Reason.UNVERIFIED if why else Reason.INTERPRETED
        return Rejected(candidate=candidate, reason=reason, detail=why or faults.told(error))


def _check(loaded: Loaded, candidate: Candidate) -> Verified | Rejected:
    problem, under = candidate.problem, candidate.problem.key
    if loaded.is_foreign:
        made = _made(loaded, problem)
        _, captured = intercept.capture(
            loaded.kernel, made.run, candidate.config, launch=False, key=under
        )
        if not intercept.is_admitted(captured):
            return Rejected(candidate=candidate, reason=Reason.PRUNED, detail=launches.PRUNED)
    with verify.poisoned():
        made = _made(loaded, problem)
    references = _references(loaded, problem, made)
    with verify.poisoned():
        returned, _ = intercept.capture(loaded.kernel, made.run, candidate.config, key=under)
    outputs = verify.tensors(returned)
    found = launches.compared(loaded, problem, outputs, references)
    if not found.error <= found.tolerance:
        detail = verify.complaint(found, found.tolerance)
        return Rejected(candidate=candidate, reason=Reason.MISTAKEN, detail=detail)
    return Verified(candidate=candidate, error=found.error, bits=verify.digest(outputs))


def _references(loaded: Loaded, problem: Problem, made: Any) -> tuple[Any, ...]:
    reference = made.reference
    if reference is not None:
        said = f"the reference raises on the smoke problem {problem}"
        return verify.tensors(_told_once(said, reference, packages=False))
    made_again = _made(loaded, problem)
    returned = intercept.as_it_comes(made_again.run)
    return tuple(out.clone() for out in verify.tensors(returned))


def _made(loaded: Loaded, problem: Problem) -> Any:
    said = f"the problem function raises on the smoke problem {problem}"
    hint = dtypenames.told(value for _, value in problem.axes)
    return _told_once(said, lambda: launches.make(loaded, problem, "cpu"), packages=True, hint=hint)


def _told_once(said: str, call: Callable[[], T], *, packages: bool, hint: str = "") -> T:
    """What a call returns that knows of no config: where it raises, it does for every one.

    No lowering runs a reference, so what a package raises in one would not be told again.
    """
    try:
        return call()
    except TrituneError:
        raise
    except Exception as error:
        if why := faults.why_unverified(error, packages=packages):
            raise UnverifiableError(why) from error
        where = blame.line(error)
        raise KernelError(f"{said}: {line_of(error)}", where=where, hint=hint) from error

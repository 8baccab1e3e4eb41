"""device.interpreter: a config on a small problem -> right or wrong, on Triton's interpreter.

Results only: the interpreter has no warps, no stages and no clock that means anything, so
nothing here is ever a time. Runs in a worker whose environment says `TRITON_INTERPRET=1`.
"""

from __future__ import annotations

from tritune import blame, intercept, launches, verify
from tritune.device.lowering import brief
from tritune.errors import TrituneError
from tritune.load import Loaded, load
from tritune.model import Candidate, Reason, Rejected, Verified

ENV = {"TRITON_INTERPRET": "1"}


def open_interpreter(kernel: str | None, problem: str | None) -> Loaded:
    """Load a kernel; Triton must not have been imported before `TRITON_INTERPRET` was set."""
    return load(kernel, problem)


def check(loaded: Loaded, candidate: Candidate) -> Verified | Rejected:
    """Run one candidate and compare it with the reference."""
    try:
        return _check(loaded, candidate)
    except TrituneError:
        raise
    except intercept.UnmadeError:
        return Rejected(candidate=candidate, reason=Reason.PRUNED, detail=launches.PRUNED)
    except Exception as error:  # noqa: BLE001  # the boundary: an interpreted kernel raises anything
        return Rejected(
            candidate=candidate, reason=Reason.LAUNCH, detail=f"{brief(error)}{blame.told(error)}"
        )


def _check(loaded: Loaded, candidate: Candidate) -> Verified | Rejected:
    under = candidate.problem.key
    if loaded.is_foreign:
        made = launches.make(loaded, candidate.problem, "cpu")
        _, captured = intercept.capture(
            loaded.kernel, made.run, candidate.config, launch=False, key=under
        )
        if not intercept.is_admitted(captured):
            return Rejected(candidate=candidate, reason=Reason.PRUNED, detail=launches.PRUNED)
    with verify.poisoned():
        made = launches.make(loaded, candidate.problem, "cpu")
    reference = made.reference
    if reference is None:
        made_again = launches.make(loaded, candidate.problem, "cpu")
        returned = intercept.as_it_comes(made_again.run)
        references = tuple(out.clone() for out in verify.tensors(returned))
    else:
        references = verify.tensors(reference())
    with verify.poisoned():
        returned, _ = intercept.capture(loaded.kernel, made.run, candidate.config, key=under)
    outputs = verify.tensors(returned)
    found = verify.difference(outputs, references)
    if not found.error <= found.tolerance:
        detail = verify.complaint(found, found.tolerance)
        return Rejected(candidate=candidate, reason=Reason.WRONG, detail=detail)
    return Verified(candidate=candidate, error=found.error, bits=verify.digest(outputs))

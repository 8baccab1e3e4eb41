"""device.answers: what a worker answers -> a value, a rejected candidate, or an error.

Knows nothing of what was asked.
"""

from __future__ import annotations

from typing import TypeVar

from tritune.device import bench
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.model import Candidate, Reason, Rejected
from tritune.workers import Answer, Died, Done, Raised, TimedOut

T = TypeVar("T")


def value(answer: Answer[T], what: str) -> T:
    """What was asked for; without it the sweep cannot go on."""
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case Raised(message=message, type_name=kind):
            hint = _cure(message)
            raise EnvironmentFaultError(f"{what}: {kind}: {message}", hint=hint)
        case TimedOut(seconds=seconds):
            raise EnvironmentFaultError(f"{what} within {seconds:.0f} s", hint=_LOOK)
        case _:
            raise EnvironmentFaultError(f"{what}: its process {answer}", hint=_LOOK)


_LOOK = "does `nvidia-smi` work, and does torch see the GPU?"


def _cure(message: str) -> str:
    if "C compiler" in message:
        return "Triton builds its launcher with a C compiler: install one, or set CC"
    return _LOOK


def rejected(answer: Raised | Died | TimedOut, candidate: Candidate) -> Rejected:
    """The rejection of the candidate that the call was about."""
    match answer:
        case Raised(error=TrituneError() as error):
            raise error
        case TimedOut(seconds=seconds):
            reason, detail = Reason.HANG, f"cut off after {seconds:.0f} s"
        case Died():
            reason, detail = Reason.LAUNCH, f"its process {answer}"
        case Raised(type_name=kind, message=message):
            sticky = next((words for words in bench.STICKY if words in message), "")
            lines = message.splitlines() or [""]
            reason, detail = Reason.LAUNCH, sticky or f"{kind}: {lines[0]}"[:200]
    return Rejected(candidate=candidate, reason=reason, detail=detail)


def is_poisoned(found: object) -> bool:
    """Whether every later call of that process would fail."""
    return isinstance(found, Rejected) and found.detail in bench.STICKY

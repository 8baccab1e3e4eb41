"""check: an entry, and what today's code and sweep file make of it -> Status and why.

An entry is as good as the code it was measured on. Under the same Triton the TTIR decides, in
which comments, line numbers and names of locals do not stand. Under another Triton the TTIR
differs by itself (in 2 of 10 kernels between 3.6 and 3.9), so there the source decides, and what
is unchanged is older, not stale. Knows nothing of how the TTIR was made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tritune import hooks
from tritune.model import Entry, Evidence, Problem


class Status(Enum):
    """What can be said of an entry, or of a problem that has none. The value is what is shown."""

    STALE = "stale"
    MISSING = "missing"
    UNSETTLED = "unsettled"
    OLDER = "older"
    ORPHAN = "orphan"
    UNMEASURED = "unmeasured"
    UNKNOWN = "unknown"
    FRESH = "fresh"

    @property
    def is_due(self) -> bool:
        return self in DUE

    @property
    def is_untimed(self) -> bool:
        return self in UNTIMED

    @property
    def is_orphan(self) -> bool:
        return self is Status.ORPHAN


DUE = frozenset({Status.STALE, Status.MISSING, Status.UNSETTLED})
"""What a sweep has to measure, and what a check fails for."""
UNTIMED = frozenset({Status.UNMEASURED, Status.OLDER})
"""What is served as it is, and a sweep of all times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One entry, or one problem or target that has none, and how it stands."""

    status: Status
    why: str
    kernel: str
    device: str
    key: str
    sweep: str
    """The sweep file that asks for it; empty where none does."""
    problem: Problem | None
    file: str
    """Where to look: the lockfile, or the sweep file where nothing is locked."""
    line: int
    broken: str = ""
    """Why the locked config cannot be compiled any more: the kernel's fault, not the entry's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Today:
    """What stands beside the evidence of an entry."""

    triton: str
    source: str
    space: str
    ir: str = ""
    """Digest of the TTIR of the locked config."""
    broken: str = ""
    """Why the locked config cannot be compiled any more."""
    unvouched: str = ""
    """Why nobody says that the locked config is valid."""
    hook: str = ""
    """The `pre_hook` of the locked config."""
    unknown: str = ""
    """Why nothing can be said here."""


def judge(entry: Entry | None, today: Today) -> tuple[Status, str]:
    """How a problem that is asked for stands."""
    if today.unknown:
        return Status.UNKNOWN, f"cannot be lowered here: {today.unknown}"
    if entry is None:
        return Status.MISSING, "nothing is locked for it"
    for ask in (_stale, _unsettled, _unmeasured, _older):
        status, why = ask(entry.evidence, today)
        if why:
            return status, why
    return Status.FRESH, ""


def failing(*, strict: bool) -> frozenset[Status]:
    """What a check fails for: what is due, and with *strict* all that is not fresh."""
    return frozenset(Status) - {Status.FRESH} if strict else DUE


def _stale(evidence: Evidence, today: Today) -> tuple[Status, str]:
    if today.broken:
        # What was imported was never run here.
        any_more = "" if evidence.unmeasured else " any more"
        return Status.STALE, f"the kernel cannot run it{any_more}: {today.broken}"
    if today.unvouched:
        return Status.STALE, today.unvouched
    rule = _same_triton if evidence.triton == today.triton else _other_triton
    if rule(evidence, today):
        return Status.STALE, "the kernel's code changed"
    if why := _other_hook(evidence.hook, today.hook):
        return Status.STALE, why
    if evidence.space and evidence.space != today.space:
        return Status.STALE, "the space that was searched changed"
    return Status.STALE, ""


def _other_hook(before: str, now: str) -> str:
    """An entry that names none is of an older sweep, or of a config that had none."""
    if before not in {"", now} and hooks.named(before) == hooks.named(now):
        return f"the code of its pre_hook `{hooks.named(before)}` changed"
    return hooks.gone(before, now)


def _same_triton(evidence: Evidence, today: Today) -> bool:
    if not evidence.ir:
        return _differs(evidence.source, today.source)
    return _differs(evidence.ir, today.ir)


def _other_triton(evidence: Evidence, today: Today) -> bool:
    # An equal TTIR is proof of equal code whatever made it: a local was renamed.
    return evidence.ir != today.ir and _differs(evidence.source, today.source)


def _differs(before: str, now: str) -> bool:
    """Whether two digests differ; where there was none, nothing can be held against it."""
    return bool(before) and before != now


def _unsettled(evidence: Evidence, _: Today) -> tuple[Status, str]:
    return Status.UNSETTLED, "both sides of a merge changed it" if evidence.unsettled else ""


def _unmeasured(evidence: Evidence, _: Today) -> tuple[Status, str]:
    why = "it was imported, and nobody timed it here" if evidence.unmeasured else ""
    return Status.UNMEASURED, why


def _older(evidence: Evidence, today: Today) -> tuple[Status, str]:
    if evidence.triton == today.triton:
        return Status.OLDER, ""
    return Status.OLDER, f"measured under Triton {evidence.triton}, and this is {today.triton}"

"""replay_device: recorded outcomes -> the `Device` contract, so that a sweep is decided anew.

With no GPU, the same way each time: sample *n* of a candidate is a function of *n* and of what was
recorded, whatever was asked before. So an interrupted sweep that goes on sees what an undisturbed
one would have seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tritune.device.guards import Canary
from tritune.model import Candidate, Compiled, Measured, Outcome, Reason, Rejected, Target, Verified


class ReplayDevice:
    """A GPU as its journal remembers it."""

    def __init__(self, outcomes: Sequence[Outcome], *, target: Target, triton: str) -> None:
        self.target = target
        self.triton = triton
        self._outcomes = {one.candidate: one for one in outcomes}

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        found = self._find(compiled.candidate)
        if isinstance(found, Rejected):
            return found
        return Verified(candidate=compiled.candidate, error=found.error, bits=found.bits)

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        return tuple(
            self._samples(one.candidate, range(first, first + rounds), compiled[:i].count(one))
            for i, one in enumerate(compiled)
        )

    def canary(self) -> Canary:
        return Canary(us=1.0, mhz=0.0)

    def renew(self) -> None:
        """There is no process to renew."""

    def close(self) -> None:
        """There is nothing to give back."""

    def _find(self, candidate: Candidate) -> Outcome:
        missing = Rejected(candidate=candidate, reason=Reason.TIMING, detail="not in the record")
        return self._outcomes.get(candidate, missing)

    def _samples(
        self, candidate: Candidate, rounds: range, again: int
    ) -> tuple[float, ...] | Rejected:
        """Under its second name a candidate takes other samples of its own."""
        found = self._find(candidate)
        if isinstance(found, Rejected):
            return found
        us = _recorded(found)
        shift = again * (len(us) // 2 or 1)
        return tuple(us[(number + shift) % len(us)] for number in rounds)


def _recorded(found: Measured) -> tuple[float, ...]:
    return found.finals_us + found.confirm_us or found.samples_us

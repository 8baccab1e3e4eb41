"""limit: what compiles have cost -> how long one may take.

A hard ceiling, and below it a limit that learns: 8 times what nine of ten compiles took on this
machine in this run, never under 30 s (of an unaligned matmul most binaries take 0.3 to 2 s here,
and the largest tiles, which are sound, 11 and 26 s: under 10 s they were lost). Compiles still
under way count with what they have taken so far, and those cut off with their limit, so a machine
that is slow, or slow because it compiles 16 at once, raises its own limit; one config that hangs
among many does not.
"""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 20
"""Compiles before anything is learnt."""
FACTOR = 8.0
QUANTILE = 0.9
LEAST_S = 30.0


class Limit:
    """The time limit of one run of compiles. *learns* is off where a user has set it."""

    def __init__(self, hard_s: float, *, learns: bool = True) -> None:
        self._hard_s = hard_s
        self._learns = learns
        self._costs: list[float] = []

    def answered(self, seconds: float) -> None:
        """A compile ended, or was cut off, after *seconds*."""
        self._costs.append(seconds)

    def __call__(self, under_way: Sequence[float] = ()) -> float:
        """Seconds a compile may take, where those under way have taken so long."""
        if not self._learns or len(self._costs) < ENOUGH:
            return self._hard_s
        costs = sorted((*self._costs, *under_way))
        usual = costs[int(QUANTILE * (len(costs) - 1))]
        return min(self._hard_s, max(LEAST_S, FACTOR * usual))

    def said(self, seconds: float) -> str:
        """What a reader is told of a compile that was cut off after *seconds*."""
        learnt = seconds < self._hard_s
        how = f", the limit learnt from {len(self._costs)} compiles" if learnt else ""
        return f"cut off after {seconds:.3g} s{how}; --compile-limit S raises it"

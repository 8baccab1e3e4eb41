"""standing: two that were measured -> which of them keeps its place beside the other.

Round by round within a process; and of all processes that timed both, each on its own and all
together, for what a process adds to a binary is the same in every round of it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tritune.model import Measured
from tritune.paired import BEAT, Comparison, compare

STUDENT = {
    0.95: {2: 2.92, 3: 2.353, 4: 2.132, 5: 2.015},
    0.99: {2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365},
}
"""Confidence -> degrees of freedom -> that quantile of Student's t, one-sided."""


def gives_way(
    holder: Measured, challenger: Measured, doubt: float = 0.0, margin: float = BEAT
) -> bool:
    """Whether the challenger beats it: by the margin in each process, and surely in all together.

    *doubt* is how far the mean of a comparison may be off for what a process adds, times the root
    of the number of processes.
    """
    windows = _windows(holder, challenger)
    least = min(one.excess for one in windows)
    mean = together(holder, challenger)
    surely = mean.excess - doubt / math.sqrt(len(windows)) > margin
    return least > margin and mean.is_beaten and surely


def doubt_of(ran: Sequence[Measured], confidence: float = 0.95) -> float:
    """What processes add to a comparison: how far two of them moved the contenders apart.

    One-sided, at a *confidence* of `STUDENT`, from as many contenders as there are; none from two
    of them, which is one difference and tells nothing of how it varies.
    """
    quantile = STUDENT[confidence]
    both = [one for one in ran if one.finals_us and one.confirm_us]
    if len(both) <= min(quantile):
        return 0.0
    first = both[0]
    moved = [compared(one, first).excess - in_finals(one, first).excess for one in both]
    return quantile[min(len(both) - 1, max(quantile))] * statistics.stdev(moved)


def together(one: Measured, other: Measured) -> Comparison:
    """The mean of what the finals and the confirmations say."""
    found = _windows(one, other)
    return Comparison(
        excess=statistics.fmean(each.excess for each in found),
        noise=math.hypot(*(each.noise for each in found)) / len(found),
        floor=found[0].floor,
    )


def _windows(one: Measured, other: Measured) -> list[Comparison]:
    """In each process that timed both."""
    found = [in_finals(one, other)]
    if one.confirm_us and other.confirm_us:
        found.append(compared(one, other))
    if one.doubted_us and other.doubted_us:
        found.append(compare(one.doubted_us, other.doubted_us, max(one.floor, other.floor)))
    return found


def compared(one: Measured, other: Measured) -> Comparison:
    """By the confirmation where both are in it, else by the finals, else by screening."""
    if one.confirm_us and other.confirm_us:
        return compare(one.confirm_us, other.confirm_us, max(one.floor, other.floor))
    return in_finals(one, other)


def in_finals(one: Measured, other: Measured) -> Comparison:
    """Round by round where both were in the finals (the eliminated up to where they left)."""
    if one.finals_us and other.finals_us:
        return compare(one.finals_us, other.finals_us, max(one.floor, other.floor))
    ratio = _screened_us(one) / _screened_us(other)
    return Comparison(excess=ratio - 1, noise=max(one.noise, other.noise))


def _screened_us(measured: Measured) -> float:
    return statistics.median(measured.samples_us or measured.finals_us)

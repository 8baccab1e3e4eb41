"""pipeline.reach: winners of a kernel with `near` -> the sizes that each was verified to serve.

A kernel whose author says near="M" runs, at an M that is not locked, what is locked for another
(`nearby.nearest`). A config that is right at its own size may be wrong there: so each winner is
run at both ends of the range in which it would be served, and compared with the reference. In the
lock stands the range that this bears out; beyond it the kernel runs its default.

Both ends of every winner, not only half the smallest and twice the largest of a row of sizes: a
softmax locked with BLOCK=1024 at n=1024 and with BLOCK=8192 at n=8192 is right at 512, and wrong
at 1536.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tritune import space
from tritune.errors import SpecError
from tritune.journal import Journal
from tritune.keys import joined, split
from tritune.model import Config, Entry, Problem, Winner
from tritune.nearby import along, within
from tritune.pipeline import elsewhere
from tritune.pipeline.job import Job
from tritune.workers import Worker

Known = Mapping[tuple[Problem, Config], str]
"""Why a config is not right on a problem, empty where it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """The outermost sizes at which a winner would be served, its own included."""

    winner: Winner
    own: int
    low: int
    high: int

    @property
    def outer(self) -> tuple[int, ...]:
        return tuple(value for value in (self.low, self.high) if value != self.own)


def reached(
    job: Job, chosen: Sequence[Winner], locked: Mapping[str, Entry], gpu: Worker
) -> tuple[Winner, ...]:
    """The winners with their reach in the evidence; as they are, where it cannot be known here.

    What is to be run for it runs in the process *gpu*.
    """
    if job.info.near is None:
        return tuple(chosen)
    keys = {*locked, *(winner.key for winner in chosen)}
    ends = [one for winner in chosen if (one := _ends(job, winner, keys)) is not None]
    known = dict(_known(job))
    every = dict.fromkeys(ask for one in ends for ask in _asks(job, one))
    asks = [ask for ask in every if ask[:2] not in known]
    if asks and job.setting.index is not None:
        known |= elsewhere.verify(job, asks, gpu)
    for one in ends:
        job.warnings.extend(_refusals(job, one, known))
    found = {one.winner: _reach(job, one, known) for one in ends}
    return tuple(
        replace(one, evidence=replace(one.evidence, reach=found.get(one, one.evidence.reach)))
        for one in chosen
    )


def span(own: int, others: Sequence[int]) -> tuple[int, int]:
    """From where to where `nearby.nearest` takes *own*; a tie is of both."""
    below = max((other for other in others if other < own), default=None)
    above = min((other for other in others if other > own), default=None)
    low, high = (own + 1) // 2, 2 * own
    if below is not None:
        low = max(below + 1, min(low, math.isqrt(below * own - 1) + 1))
    if above is not None:
        high = max(own, min((above - 1) // 2, math.isqrt(own * above)))
    return low, high


def _ends(job: Job, winner: Winner, keys: set[str]) -> Ends | None:
    row = along(keys, split(winner.key).items(), job.info.near or "")
    own = next((size for size, key in row.items() if key == winner.key), None)
    if own is None:  # no size that a look-up would take another for
        return None
    low, high = span(own, [*row])

    def holds(value: int) -> bool:
        return _is_admitted(job, winner.config, _problem(job, winner, value))

    if holds(own):
        low, high = (farthest(own, end, holds) for end in (low, high))
    else:  # as of the default, which no constraint keeps out: near serves it nowhere else
        low = high = own
    return Ends(winner=winner, own=own, low=low, high=high)


def farthest(own: int, end: int, holds: Callable[[int], bool]) -> int:
    """The size nearest to *end* up to which the constraints hold."""
    if holds(end):
        return end
    while abs(end - own) > 1:
        middle = (own + end) // 2
        own, end = (middle, end) if holds(middle) else (own, middle)
    return own


def _is_admitted(job: Job, config: Config, problem: Problem) -> bool:
    try:
        return space.admitted(job.sweep, job.target, config, problem) is None
    except SpecError:  # a constraint that has no answer there keeps near from serving
        return False


def _problem(job: Job, winner: Winner, value: int) -> Problem:
    """The winner's problem at another size; its own, where no axis is that size."""
    axes = winner.problem.as_dict()
    name = job.info.near or ""
    return Problem.of(axes | {name: value} if name in axes else axes)


def _asks(job: Job, ends: Ends) -> Iterator[elsewhere.Ask]:
    parts = split(ends.winner.key)
    for value in ends.outer:
        key = joined({**parts, job.info.near or "": str(value)}.items())
        yield _problem(job, ends.winner, value), ends.winner.config, key


def _known(job: Job) -> Known:
    """What the journal holds, or the record that the times are from."""
    path = job.setting.record or job.journal
    anew = job.options.fresh and job.setting.record is None
    if job.setting.identity is None or anew or not path.is_file():
        return {}
    return Journal.open(path, read_only=True).reach(
        job.info.name,
        source=job.journal_source,
        device=job.setting.identity,
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton or None,
    )


def _reach(job: Job, ends: Ends, known: Known) -> str:
    own, held, near = ends.own, ends.winner.evidence.reach, job.info.near or ""
    said = {
        value: known.get((_problem(job, ends.winner, value), ends.winner.config))
        for value in ends.outer
    }
    is_wrong = any(said.values())
    if None in said.values() and not is_wrong:
        return held
    low, high = (end if said.get(end) == "" else own for end in (ends.low, ends.high))
    # A neighbour that came since narrows what is served, and says nothing against it.
    if not is_wrong and within(held, near, low) and within(held, near, high):
        return held
    return f"{low} <= {near} <= {high}"


def _refusals(job: Job, ends: Ends, known: Known) -> Iterator[str]:
    config, near = ends.winner.config, job.info.near
    for value in ends.outer:
        if why := known.get((_problem(job, ends.winner, value), config)):
            yield (
                f"{ends.winner.problem}: near does not serve it at {near}={value} and thereabouts, "
                f"where its config is not verified: {why}: {config}"
            )

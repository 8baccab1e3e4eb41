"""measure: Compiled -> Measured | Rejected.

Decides which candidate of one problem to sample next; a `Device` does the sampling, so the
same decisions are tested with no GPU. Does not know what wins: that is choosing's business.

Two configs timed minutes apart cannot be ranked (one config's median was seen to move by 15 %
with power and clocks), so every comparison here is made inside one interleaved window.
Screening goes in chunks in which the best so far rides along; a candidate's score is its
ratio to that rider, chained to the first chunk's clock. The finals compare round by round.

Screening looks at a candidate's fastest sample: a disturbance only ever adds time, and it does
so often (on an H200 one sample in 20 of a 19 us kernel took 2 to 3 times as long; judged by one
sample, or the median of three, the best of 238 configs missed the finals in one race of five).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from tritune.device import Device
from tritune.model import Compiled, Config, Measured, Outcome, Reason, Rejected, Timing

IN_FLIGHT = 16
"""Most candidates that are interleaved in one window."""
DROP_AT_ONCE = 3.0
"""Out after one sample, if this many times slower than the best of the window."""
DROP = 1.5
"""The same, after all screening samples."""
FINAL_BAND = 0.05
"""This near to the best is in the finals."""
FINAL_NOISE = 3.0
"""Or within this many times the noise that screening itself showed, up to `DROP`."""
FINALISTS = 16
BLOCK = 5
"""Rounds of the finals between two decisions."""
FIRST_DECISION = 10
"""Rounds before anything is decided: the first block that has a 99 % interval of a median."""
SAME = 0.005
"""Nearer than this is a tie; nothing is eliminated that is not surely slower by more."""
FAR = 0.05
"""The default and the incumbent stay until surely this far off: their place is what is at stake."""
DOUBT = 0.01
"""One minus the confidence of the paired interval."""


def measure(
    device: Device,
    compiled: Sequence[Compiled],
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    record: Callable[[Outcome], None],
    progress: Callable[[str], None],
) -> tuple[Outcome, ...]:
    """Verify, screen and race the candidates of one problem; one outcome each, in their order.

    The default and the incumbent are always in the finals, as themselves or as the group of
    configs that is the same binary. What comes through the finals is verified once more.
    """
    race = _Race(device, timing, (default, incumbent or default), record, progress)
    race.finals(race.screen(compiled))
    return tuple(race.outcomes[one.candidate.config] for one in compiled)


@dataclass(eq=False, slots=True)
class _Entrant:
    """A candidate on its way through the race: what was measured of it so far."""

    measured: Measured
    score_us: float = math.inf
    """Its time, as the clock of the first chunk would have shown it."""

    def finals_us(self) -> float:
        return statistics.median(self.measured.finals_us)


class _Race:
    """The race of one problem. Whoever is in `outcomes` is out of it."""

    def __init__(
        self,
        device: Device,
        timing: Timing,
        protected: tuple[Config, Config],
        record: Callable[[Outcome], None],
        progress: Callable[[str], None],
    ) -> None:
        self._device = device
        self._timing = timing
        self._protected = protected
        self._record = record
        self._progress = progress
        self.outcomes: dict[Config, Outcome] = {}

    def screen(self, compiled: Sequence[Compiled]) -> list[_Entrant]:
        """Verify all and sample each a few times; the finalists."""
        # The default and the incumbent go first: a good time early drops slow ones early.
        waiting = iter(sorted(compiled, key=lambda one: not self._is_protected(one)))
        field: list[_Entrant] = []
        while chunk := list(islice(waiting, IN_FLIGHT - bool(field))):
            fresh = list(self._verified(chunk))
            field += self._screen_chunk(fresh, min(field, key=_score, default=None))
            field = [entrant for entrant in field if not self._is_out(entrant)]
            self._say(f"screened {len(self.outcomes) + len(field)} of {len(compiled)}", field)
        return self._finalists(field)

    def _verified(self, chunk: Sequence[Compiled]) -> Iterator[_Entrant]:
        for compiled in chunk:
            answer = self._device.verify(compiled)
            if isinstance(answer, Rejected):
                self._finish(compiled, answer)
            else:
                # Three figures, as the journal keeps them: a replay has to see equal outcomes.
                error = float(f"{answer.error:.3g}")
                yield _Entrant(
                    Measured(compiled=compiled, samples_us=(), error=error, bits=answer.bits)
                )

    def _screen_chunk(self, fresh: list[_Entrant], rider: _Entrant | None) -> list[_Entrant]:
        """Those of *fresh* that are near the best of the window; the others are out."""
        running = ([rider] if rider and fresh else []) + fresh
        times: dict[_Entrant, tuple[float, ...]] = {}
        # The first round warms up clocks and caches. It can make a candidate look slow, never
        # fast: so it may keep one in, and it is no sample.
        for rounds, limit in ((2, DROP_AT_ONCE), (self._timing.screen_samples - 1, DROP)):
            for entrant, samples in self._sample(running, rounds):
                times[entrant] = times.get(entrant, ()) + samples
            running = _near([one for one in running if not self._is_out(one)], times, limit)
        scale = rider.score_us / min(times[rider]) if rider in times else 1.0
        for entrant in fresh:
            if not self._is_out(entrant):
                entrant.measured = replace(entrant.measured, samples_us=times[entrant][1:])
                entrant.score_us = scale * min(times[entrant])
                if entrant not in running and not self._is_protected(entrant.measured.compiled):
                    self._finish(entrant.measured.compiled, entrant.measured)
        return fresh

    def _finalists(self, field: list[_Entrant]) -> list[_Entrant]:
        if not field:
            return []
        noise = statistics.median(entrant.measured.noise for entrant in field)
        band = min(max(FINAL_BAND, FINAL_NOISE * noise), DROP - 1)
        best_us = min(entrant.score_us for entrant in field)
        ranked = sorted(
            field, key=lambda one: (not self._is_protected(one.measured.compiled), one.score_us)
        )
        chosen = [
            entrant
            for entrant in ranked[:FINALISTS]
            if self._is_protected(entrant.measured.compiled)
            or entrant.score_us <= best_us * (1 + band)
        ]
        for entrant in field:
            if entrant not in chosen:
                self._finish(entrant.measured.compiled, entrant.measured)
        return chosen

    def finals(self, field: list[_Entrant]) -> None:
        """Race round by round until one is left, all that are left tie, or rounds run out."""
        rounds = 0
        while field and rounds < self._timing.final_rounds:
            block = min(BLOCK, self._timing.final_rounds - rounds)
            for entrant, samples in self._sample(field, block):
                so_far = entrant.measured.finals_us
                entrant.measured = replace(entrant.measured, finals_us=so_far + samples)
            rounds += block
            field = [entrant for entrant in field if not self._is_out(entrant)]
            if rounds >= FIRST_DECISION and field:
                field, settled = self._eliminate(field)
                self._say(f"finals, {rounds} rounds, {len(field)} left", field)
                if settled:
                    break
        for entrant in field:
            self._recheck(entrant)

    def _eliminate(self, field: list[_Entrant]) -> tuple[list[_Entrant], bool]:
        """Those not surely slower than the best, and whether all of them surely tie with it."""
        best = min(field, key=_Entrant.finals_us)
        kept, settled = [best], True
        for entrant in field:
            low, high = _interval(entrant.measured.finals_us, best.measured.finals_us)
            if entrant is best:
                continue
            if low > 1 + (FAR if self._is_protected(entrant.measured.compiled) else SAME):
                self._leave(entrant)
            else:
                kept.append(entrant)
                settled = settled and low >= 1 - SAME and high <= 1 + SAME
        return kept, settled

    def _leave(self, entrant: _Entrant) -> None:
        # An eliminated default or incumbent may yet keep its place, by choosing's margins.
        if self._is_protected(entrant.measured.compiled):
            self._recheck(entrant)
        else:
            self._finish(entrant.measured.compiled, entrant.measured)

    def _recheck(self, entrant: _Entrant) -> None:
        """Verify what may win once more: a race between its blocks may show only now and then."""
        compiled = entrant.measured.compiled
        answer = self._device.verify(compiled)
        if isinstance(answer, Rejected):
            again = replace(answer, detail=f"after timing: {answer.detail}")
            self._finish(compiled, again)
        else:
            self._finish(compiled, entrant.measured)

    def _sample(
        self, entrants: Sequence[_Entrant], rounds: int
    ) -> Iterator[tuple[_Entrant, tuple[float, ...]]]:
        """Sample in one window; who fails, or whose times make no sense, is out."""
        if not entrants or rounds < 1:
            return
        answers = self._device.sample([one.measured.compiled for one in entrants], rounds)
        for entrant, answer in zip(entrants, answers, strict=True):
            compiled = entrant.measured.compiled
            samples = answer if isinstance(answer, Rejected) else _checked(compiled, answer)
            if isinstance(samples, Rejected):
                self._finish(compiled, samples)
            else:
                yield entrant, samples

    def _finish(self, compiled: Compiled, outcome: Outcome) -> None:
        self.outcomes[compiled.candidate.config] = outcome
        self._record(outcome)

    def _is_out(self, entrant: _Entrant) -> bool:
        return entrant.measured.candidate.config in self.outcomes

    def _is_protected(self, compiled: Compiled) -> bool:
        configs = (compiled.candidate.config, *compiled.aliases)
        return any(config in configs for config in self._protected)

    def _say(self, text: str, field: Sequence[_Entrant]) -> None:
        if field:
            best = min(field, key=lambda one: one.measured.median_us).measured
            text += f", best {best.median_us:.4g} us: {best.candidate.config}"
        self._progress(text)


def _score(entrant: _Entrant) -> float:
    return entrant.score_us


def _near(
    running: list[_Entrant], times: dict[_Entrant, tuple[float, ...]], limit: float
) -> list[_Entrant]:
    best = min((min(times[entrant]) for entrant in running), default=math.inf)
    return [entrant for entrant in running if min(times[entrant]) <= limit * best]


def _checked(compiled: Compiled, samples: Sequence[float]) -> tuple[float, ...] | Rejected:
    """Samples to 10 ns, as the journal keeps them; a time that is no time is a rejection."""
    rounded = tuple(round(sample, 2) for sample in samples)
    if all(math.isfinite(sample) and sample > 0 for sample in rounded):
        return rounded
    shown = ", ".join(f"{sample:g}" for sample in samples)
    return Rejected(
        candidate=compiled.candidate, reason=Reason.TIMING, detail=f"samples in us: {shown}"
    )


def _interval(slower: Sequence[float], faster: Sequence[float]) -> tuple[float, float]:
    """The 99 % interval of the median of the paired ratios, by order statistics.

    A median lies below the k-th of n ordered values with the chance that fewer than k of n
    fair coins show heads, whatever the distribution of the values: no model of the noise.
    """
    ratios = sorted(one / other for one, other in zip(slower, faster, strict=True))
    skip = _outside(len(ratios))
    if skip is None:
        return 0.0, math.inf
    return ratios[skip], ratios[-1 - skip]


@cache
def _outside(count: int) -> int | None:
    """How many ordered values lie outside the interval at either end; None with too few."""
    below, skip = 0.0, None
    for heads in range(count // 2):
        below += math.comb(count, heads) / 2**count
        if 2 * below > DOUBT:
            break
        skip = heads
    return skip

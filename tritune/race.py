"""race: Screened -> Measured | Rejected: the finals of one problem, and their confirmation.

Paired rounds in one window, whose order is rotated and reversed, until the leader is surely
faster than the default and the incumbent, or surely not by enough. Kernels of 5 us scatter by
8 % from launch to launch where kernels of 1 ms do by 0.2 %: so the rounds go on, as long as they
are cheap, until the comparison is quiet.

One binary runs in the finals under a second name. What those two are apart is the floor below
which no difference means anything.

A leader chosen by its samples was lucky in them. So the confirmation times the few that matter
anew, in a fresh process, and only those samples are evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tritune import paired
from tritune.device import Device
from tritune.model import VARIES, Compiled, Config, Measured, Outcome, Rejected, Timing
from tritune.screening import Screened, is_protected, sampled

FINAL_BAND = 0.05
"""This near to the best is in the finals."""
FINAL_FLOOR = 3.0
"""Or within this many times what one binary is from itself."""
FINAL_NOISE = 6.0
"""Or within this many times the noise of that comparison, which is about the scatter of a score.

Of 480 simulated races on a recorded grid 4 ended over 2 % from the true best with half as much,
none with this.
"""
FINALISTS = 16
RIVALS = 2
"""In the finals however slow, besides the default and the incumbent: a margin needs a rival."""
BLOCK = 5
"""Rounds between two decisions."""
FIRST_DECISION = 10
"""Rounds before anything is decided: the first block that has a 99 % interval of a median."""
SAME = 0.005
"""Nearer than this is a tie; nothing is eliminated that is not surely slower by more."""
FAR = 0.05
"""The default and the incumbent stay until surely this far off: their place is what is at stake."""
MORE = 16
"""Undecided finals go on up to this many times the rounds that were asked for..."""
MORE_US = 300_000.0
"""...and up to this much time of the GPU, where that is more rounds than were asked for."""
RIVALS_US = 100_000.0
"""...or this much, where only other challengers are undecided.

On simulated sweeps of small problems that was a time of the GPU of 0.19 s a problem instead of
0.12 s, and 78 % equal winners of two sweeps instead of 73 %.
"""
SAMPLE_US = 150.0
"""What a sample costs besides the kernel: the flush, and the head start of the host."""
CONFIRM_ROUNDS = 15


@dataclass(eq=False, slots=True)
class _Entrant:
    """A binary in a race: what was measured of it, and its samples in this race."""

    measured: Measured
    protected: bool
    us: tuple[float, ...] = ()


def finals(
    device: Device,
    screened: Screened,
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    record: Callable[[Outcome], None],
    progress: Callable[[str], None],
) -> tuple[Outcome, ...]:
    """Race what came near the best; one outcome for each that was screened, in its order.

    The default and the incumbent are in the race, as themselves or as the group of configs that
    is the same binary. What may win is verified once more: a race between a kernel's own blocks
    may show only now and then.
    """
    found = {one.candidate.config: one for one in screened.outcomes}
    ranked = screened.ranked()
    if ranked and timing.final_rounds:
        race = _Race(device, ranked[0][1].compiled, timing.final_rounds, progress)
        race.first = timing.screen_samples + 1
        twins = race.twins(FIRST_DECISION)
        protected = (default, incumbent or default)
        race.run(_finalists(ranked, protected, twins), FIRST_DECISION)
        for rejected in race.rejected:
            found[rejected.candidate.config] = rejected
        for one in race.entrants:
            config = one.measured.candidate.config
            found[config] = replace(one.measured, finals_us=one.us, floor=race.floor)
        for entrant in race.left():
            config = entrant.measured.candidate.config
            found[config] = _verified_again(device, found[config])
        for config in race.configs():
            record(found[config])
    return tuple(found[one.candidate.config] for one in screened.compiled)


def confirm(
    device: Device,
    contenders: Sequence[Measured],
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    progress: Callable[[str], None],
) -> tuple[Outcome, ...]:
    """Time the contenders of one problem anew; the device is in a fresh process."""
    if not contenders or not timing.final_rounds:
        return tuple(contenders)
    protected = (default, incumbent or default)
    race = _Race(device, None, timing.final_rounds, progress)
    race.rounds = min(CONFIRM_ROUNDS, timing.final_rounds)
    race.floor = max(one.floor for one in contenders)
    race.first = 1000 + timing.screen_samples + timing.final_rounds
    race.run([_Entrant(one, is_protected(one.compiled, protected)) for one in contenders], 0)
    found: dict[Config, Outcome] = {one.candidate.config: one for one in race.rejected}
    for one in race.entrants:
        found[one.measured.candidate.config] = replace(one.measured, confirm_us=one.us)
    return tuple(found[one.candidate.config] for one in contenders)


def _finalists(
    ranked: Sequence[tuple[float, Measured]],
    protected: Sequence[Config],
    twins: paired.Comparison,
) -> list[_Entrant]:
    """The default, the incumbent, the best two others, and all that are near the best."""
    band = max(FINAL_BAND, FINAL_FLOOR * abs(twins.excess), FINAL_NOISE * twins.noise)
    limit_us = ranked[0][0] * (1 + band)
    entrants = [(us, _Entrant(one, is_protected(one.compiled, protected))) for us, one in ranked]
    kept = [entrant for _, entrant in entrants if entrant.protected]
    others = [(us, entrant) for us, entrant in entrants if not entrant.protected]
    near = [entrant for us, entrant in others if us <= limit_us]
    rivals = [entrant for _, entrant in others[:RIVALS]]
    return kept + (near if len(near) > RIVALS else rivals)[: FINALISTS - len(kept)]


def _verified_again(device: Device, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Rejected):
        return outcome
    answer = device.verify(outcome.compiled)
    if isinstance(answer, Rejected):
        return replace(answer, detail=f"after timing: {answer.detail}")
    return outcome if answer.bits == outcome.bits else replace(outcome, bits=VARIES)


class _Race:
    """Interleaved rounds of some entrants; `rejected` holds those that failed on the way."""

    def __init__(
        self,
        device: Device,
        twin: Compiled | None,
        rounds: int,
        progress: Callable[[str], None],
    ) -> None:
        self._device, self._twin = device, twin
        self._asked = self.rounds = rounds
        self._progress = progress
        self._twin_us: tuple[float, ...] = ()
        self._gone: set[_Entrant] = set()
        self.first = 0
        self.floor = 0.0
        self.entrants: list[_Entrant] = []
        self.rejected: list[Rejected] = []

    def twins(self, rounds: int) -> paired.Comparison:
        """The twin and itself in a window of its own."""
        unknown = paired.Comparison(excess=0.0, noise=0.0)
        if self._twin is None:
            return unknown
        answers = [answer for _, answer in sampled(self._device, [self._twin] * 2, rounds, 0)]
        if any(isinstance(answer, Rejected) for answer in answers):
            return unknown
        one, other = (answer for answer in answers if not isinstance(answer, Rejected))
        return paired.compare(one, other)

    def run(self, entrants: list[_Entrant], eliminate_from: int) -> None:
        """Round by round until all is separated or tied, or rounds run out.

        From round *eliminate_from* on the surely slower leave; with 0 all stay to the end.
        """
        self.entrants = list(entrants)
        rounds, field = 0, self._field()
        most = self._most(field)
        while field and rounds < most:
            asked = rounds < self.rounds
            block = min(BLOCK, self.rounds - rounds) if asked else min(3 * BLOCK, most - rounds)
            self._block(field, block, self.first + rounds)
            rounds += block
            field = self._field()
            settled = False
            if field and eliminate_from and rounds >= eliminate_from:
                settled = self._eliminate(field)
                field = self._field()
                self._progress(f"finals, {rounds} rounds, {len(field)} left{_leader(field)}")
            if settled or (rounds >= self.rounds and not self._is_open(field, rounds)):
                break

    def left(self) -> list[_Entrant]:
        """Those that may yet win, by the margins of choosing: protected or not eliminated."""
        return [one for one in self.entrants if one.protected or one not in self._gone]

    def configs(self) -> list[Config]:
        """Of all that were raced, failed or not."""
        timed = [one.measured.candidate.config for one in self.entrants]
        return timed + [one.candidate.config for one in self.rejected]

    def _field(self) -> list[_Entrant]:
        return [one for one in self.entrants if one not in self._gone]

    def _most(self, field: Sequence[_Entrant]) -> int:
        return max(self.rounds, min(MORE * self._asked, int(MORE_US / _round_us(field))))

    def _block(self, field: Sequence[_Entrant], rounds: int, first: int) -> None:
        window = [one.measured.compiled for one in field]
        twin = [self._twin] if self._twin is not None and len(field) > 1 else []
        for index, (_, answer) in enumerate(sampled(self._device, [*window, *twin], rounds, first)):
            if index == len(field):
                self._take_twin(answer)
            elif isinstance(answer, Rejected):
                self.entrants.remove(field[index])
                self.rejected.append(answer)
            else:
                field[index].us += answer

    def _take_twin(self, answer: tuple[float, ...] | Rejected) -> None:
        itself = [one for one in self._field() if one.measured.compiled == self._twin]
        if isinstance(answer, Rejected) or not itself:
            self._twin = None  # it left: what is known of the floor by now has to do
            return
        self._twin_us += answer
        if len(self._twin_us) >= FIRST_DECISION:
            # Five decimals, as the journal keeps it: a replay has to see equal outcomes.
            self.floor = round(abs(paired.compare(self._twin_us, itself[0].us).excess), 5)

    def _is_open(self, field: Sequence[_Entrant], rounds: int) -> bool:
        """Whether more rounds may show that the leader beats the default or the incumbent.

        Or which of the others is the leader, as long as that is cheap.
        """
        if len(field) < 2:
            return False
        best = min(field, key=_median_us)
        is_cheap = rounds * _round_us(field) < RIVALS_US
        return any(
            paired.compare(one.us, best.us, self.floor).is_open
            for one in field
            if (one.protected or is_cheap) and one is not best
        )

    def _eliminate(self, field: Sequence[_Entrant]) -> bool:
        """Send home who is surely slower than the best; whether the rest surely ties with it."""
        best = min(field, key=_median_us)
        far = max(FAR, 2 * paired.BEAT_FLOOR * self.floor)
        settled = True
        for one in field:
            low, high = paired.interval(one.us, best.us)
            if one is best:
                continue
            if low > 1 + (far if one.protected else SAME):
                self._gone.add(one)
            else:
                settled = settled and low >= 1 - SAME and high <= 1 + SAME
        return settled


def _round_us(field: Sequence[_Entrant]) -> float:
    """What a round of them takes of the GPU."""
    return sum(one.measured.median_us + SAMPLE_US for one in field) or 1.0


def _median_us(entrant: _Entrant) -> float:
    return replace(entrant.measured, finals_us=entrant.us).median_us


def _leader(field: Sequence[_Entrant]) -> str:
    if not field:
        return ""
    best = min(field, key=_median_us)
    return f", best {_median_us(best):.4g} us: {best.measured.candidate.config}"

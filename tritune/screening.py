"""screening: Compiled -> Screened: each verified, then sampled a few times in chunks.

Two configs timed minutes apart cannot be ranked (one config's median was seen to move by 15 %
with power and clocks), so every comparison here is made inside one interleaved window: in each
chunk a standard rides along, and a candidate's score is its ratio to that, on the clock of the
first chunk. The standard is a middling one and stays the same: the best so far is the luckiest so
far, and chained from best to best the last of 238 configs were off by 4 % against the first in one
of five simulated screenings, by one standard they are by 1 %. Screening may run while others
compile.

It looks at a candidate's fastest sample: a disturbance only ever adds time, and it does so often
(on an H200 one sample in 20 of a 19 us kernel took 2 to 3 times as long; judged by one sample, or
the median of three, the best of 238 configs missed the finals in one race of five).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tritune.device import Device
from tritune.model import Compiled, Config, Measured, Outcome, Reason, Rejected, Timing

IN_FLIGHT = 16
"""Most candidates that are interleaved in one window."""
DROP_AT_ONCE = 3.0
"""No more samples after the first, if this many times slower than the best of the window."""
DROP = 1.5
"""In no final after all of them, but as the second-best that a margin needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Screened:
    """The candidates of one problem after screening, in the order they came."""

    compiled: tuple[Compiled, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    scores_us: tuple[float, ...] = ()
    """Each one's time, as the clock of the first chunk would have shown it; infinite if out."""

    @classmethod
    def of(
        cls,
        known: Sequence[tuple[Compiled, Outcome]],
        scores_us: Mapping[Config, float] | None = None,
    ) -> Screened:
        """What is known of them, as far as it is still true: samples of their screening.

        What has none of the *scores_us* is ranked by its fastest sample, whatever clock it saw.
        """
        outcomes = [_screened_only(one, outcome) for one, outcome in known]
        scores = scores_us or {}
        return cls(
            compiled=tuple(one for one, _ in known),
            outcomes=tuple(outcomes),
            scores_us=tuple(
                scores.get(one.candidate.config, _fastest_us(one))
                if isinstance(one, Measured)
                else math.inf
                for one in outcomes
            ),
        )

    def by_config(self) -> dict[Config, float]:
        """The scores of what was timed."""
        return {one.candidate.config: score for score, one in self.ranked()}

    def ranked(self) -> list[tuple[float, Measured]]:
        """What was timed with its score, the best first."""
        pairs = zip(self.scores_us, self.outcomes, strict=True)
        timed = [(score, one) for score, one in pairs if isinstance(one, Measured)]
        return sorted(timed, key=lambda pair: pair[0])


def _screened_only(compiled: Compiled, outcome: Outcome) -> Outcome:
    if isinstance(outcome, Rejected):
        return outcome
    return replace(
        outcome, compiled=compiled, finals_us=(), confirm_us=(), doubted_us=(), floor=0.0
    )


def _fastest_us(measured: Measured) -> float:
    return min(measured.samples_us)


def screen(  # noqa: PLR0913  # what a race is between, and who is told
    device: Device,
    compiled: Sequence[Compiled],
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    record: Callable[[Outcome], None],
    progress: Callable[[str], None],
    so_far: Screened | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Screened:
    """Verify and sample candidates of one problem, each recorded as its samples come.

    *so_far* is what was screened of the problem before; the result holds it too. Where it
    *is_over* before another window, the result holds what was screened by then.
    """
    before = so_far or Screened()
    screening = _Screening(device, timing, before, record)
    # The default and the incumbent go first: a good time early drops slow ones early.
    protected = (default, incumbent or default)
    waiting = iter(sorted(compiled, key=lambda one: not is_protected(one, protected)))
    total = len(before.compiled) + len(compiled)
    while not is_over() and (chunk := list(islice(waiting, IN_FLIGHT - len(screening.riders())))):
        screening.chunk(chunk)
        progress(f"screened {len(screening.outcomes)} of {total}{_best_so_far(screening.best)}")
    seen = [one for one in compiled if one.candidate.config in screening.outcomes]
    every = (*before.compiled, *seen)
    outcomes = tuple(screening.outcomes[one.candidate.config] for one in every)
    scores = (screening.scores_us.get(one.candidate.config, math.inf) for one in every)
    return Screened(compiled=every, outcomes=outcomes, scores_us=tuple(scores))


def is_protected(compiled: Compiled, protected: Sequence[Config]) -> bool:
    """Whether it is the binary of the default or the incumbent."""
    return any(config in (compiled.candidate.config, *compiled.aliases) for config in protected)


def _best_so_far(best: Measured | None) -> str:
    if best is None:
        return ""
    return f", best {best.median_us:.4g} us: {best.candidate.config}"


class _Screening:
    """What is known of one problem, by the config that stands for each binary."""

    def __init__(
        self,
        device: Device,
        timing: Timing,
        before: Screened,
        record: Callable[[Outcome], None],
    ) -> None:
        self._device, self._timing, self._record = device, timing, record
        self.outcomes = {one.candidate.config: one for one in before.outcomes}
        self.scores_us = {score.candidate.config: us for us, score in before.ranked()}
        self._standard: Config | None = None

    @property
    def best(self) -> Measured | None:
        if not self.scores_us:
            return None
        found = self.outcomes[min(self.scores_us, key=self.scores_us.__getitem__)]
        return found if isinstance(found, Measured) else None

    def chunk(self, compiled: Sequence[Compiled]) -> None:
        """Sample those that are right in one window, with the standard and the best so far."""
        fresh = list(self._verified(compiled))
        ridden = [one.compiled for one in self.riders()] if fresh else []
        running = [*ridden, *(one.compiled for one in fresh)]
        times: dict[Config, tuple[float, ...]] = {}
        # The first round warms up clocks and caches. It can make a candidate look slow, never
        # fast: so it may keep one in, and it is no sample.
        more = self._timing.screen_samples - 1
        for first, rounds, limit in ((0, 2, DROP_AT_ONCE), (2, more, DROP)):
            for one, answer in sampled(self._device, running, rounds, first):
                if isinstance(answer, Rejected):
                    self._reject(answer)
                else:
                    times[one.candidate.config] = times.get(one.candidate.config, ()) + answer
            running = self._near(running, times, limit, ridden)
        self._keep(fresh, times, self._scale(ridden, times))

    def _scale(self, ridden: Sequence[Compiled], times: dict[Config, tuple[float, ...]]) -> float:
        """The clock of the first chunk over that of this one, by the first rider that ran."""
        configs = [one.candidate.config for one in ridden]
        known = next((config for config in configs if config in self.scores_us), None)
        return self.scores_us[known] / min(times[known][1:]) if known else 1.0

    def riders(self) -> list[Measured]:
        """The standard, and the best so far where that is another: what is slow drops out early."""
        best = self.best
        if best is None:
            return []
        if self._standard is None or self._standard not in self.scores_us:
            ranked = sorted(self.scores_us, key=self.scores_us.__getitem__)
            near = [
                one for one in ranked if self.scores_us[one] <= DROP * self.scores_us[ranked[0]]
            ]
            self._standard = near[len(near) // 2]
        found = self.outcomes[self._standard]
        return [found, best] if isinstance(found, Measured) and found is not best else [best]

    def _verified(self, compiled: Sequence[Compiled]) -> Iterator[Measured]:
        for one in compiled:
            answer = self._device.verify(one)
            if isinstance(answer, Rejected):
                self._reject(answer)
            else:
                # Three figures, as the journal keeps them: a replay has to see equal outcomes.
                error = float(f"{answer.error:.3g}")
                yield Measured(compiled=one, samples_us=(), error=error, bits=answer.bits)

    def _near(
        self,
        running: Sequence[Compiled],
        times: dict[Config, tuple[float, ...]],
        limit: float,
        ridden: Sequence[Compiled],
    ) -> list[Compiled]:
        """Who gets more samples; all of the *ridden*: what disturbs one may not set the scale."""
        alive = [one for one in running if not self._is_out(one.candidate.config)]
        fastest = {one: min(times[one.candidate.config]) for one in alive}
        best = min(fastest.values(), default=math.inf)
        return [one for one in alive if fastest[one] <= limit * best or one in ridden]

    def _keep(
        self, fresh: Sequence[Measured], times: dict[Config, tuple[float, ...]], scale: float
    ) -> None:
        for one in fresh:
            config = one.candidate.config
            if not self._is_out(config):
                self.scores_us[config] = scale * min(times[config][1:])
                self.outcomes[config] = replace(one, samples_us=times[config][1:])
                self._record(self.outcomes[config])

    def _reject(self, rejected: Rejected) -> None:
        self.scores_us.pop(rejected.candidate.config, None)
        self.outcomes[rejected.candidate.config] = rejected
        self._record(rejected)

    def _is_out(self, config: Config) -> bool:
        return isinstance(self.outcomes.get(config), Rejected)


def sampled(
    device: Device, compiled: Sequence[Compiled], rounds: int, first: int
) -> Iterator[tuple[Compiled, tuple[float, ...] | Rejected]]:
    """Sample in one window, the first round number *first*; a time that is no time is rejected."""
    if not compiled or rounds < 1:
        return
    answers = device.sample(compiled, rounds, first)
    for one, answer in zip(compiled, answers, strict=True):
        yield one, answer if isinstance(answer, Rejected) else _checked(one, answer)


def _checked(compiled: Compiled, samples: Sequence[float]) -> tuple[float, ...] | Rejected:
    """Samples to 10 ns, as the journal keeps them."""
    rounded = tuple(round(sample, 2) for sample in samples)
    if all(math.isfinite(sample) and sample > 0 for sample in rounded):
        return rounded
    shown = ", ".join(f"{sample:g}" for sample in samples)
    return Rejected(
        candidate=compiled.candidate, reason=Reason.TIMING, detail=f"samples in us: {shown}"
    )

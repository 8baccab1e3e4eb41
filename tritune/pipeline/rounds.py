"""pipeline.rounds: the problems of a sweep and a device -> outcomes, problem by problem.

    screen -> finals -> (next problem) ... -> confirm them all in a fresh process

Between two problems a guard looks at the GPU: what was measured while it was disturbed is
measured again, and a GPU that stays disturbed is refused, not locked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tritune import choose, measure
from tritune.device import Device
from tritune.device.guards import Guard
from tritune.errors import EnvironmentFaultError
from tritune.journal import CONFIRM, FINALS
from tritune.model import Config, Measured, Outcome, Problem, Rejected, Timing
from tritune.pipeline.cases import Case

TRIES = 3
"""Times that a disturbed problem is measured."""
WAIT_S = 10.0
PAUSE_S = 0.5
"""Before it is measured again: for the GPU to be quiet, looking so often."""
RESERVE = 0.1
"""The part of a budget that is kept for the confirmation."""


@dataclass(kw_only=True)
class Rounds:
    """Measures the cases of one sweep; `write` puts outcomes into the journal."""

    device: Device
    guard: Guard
    default: Config
    timing: Timing
    write: Callable[[Sequence[Outcome], str], None]
    advance: Callable[[str], None]
    budget_s: float | None = None
    allow_noisy: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    left_open: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    again: int = 0
    """Times that a disturbed problem was measured again."""
    _measured: int = 0
    _began: float | None = None

    def race(self, cases: Sequence[Case]) -> None:
        """Screen and finals of every problem that is not done with them, while a budget lasts."""
        self._began = self.clock()
        todo = [case for case in cases if not case.done]
        for case in todo:
            self._finals(case)
            if self.guard.eased():
                raced = [one for one in todo if one.done]
                self.again += len(raced)
                for one in raced:
                    self._finals(one)

    def _finals(self, case: Case) -> None:
        if self._is_spent(len(case.compiled) - len(case.known)):
            if not case.done:
                self.left_open.append(case.problem)
            return
        outcomes, quiet = self._undisturbed(case.problem, partial(self._race, case))
        changed = [one for one in outcomes if case.written.get(one.candidate.config) != one]
        self.write(changed or outcomes[:1], FINALS if quiet else "")
        case.written.update((one.candidate.config, one) for one in outcomes)
        case.outcomes, case.done = outcomes, FINALS
        self._measured += len(case.compiled)

    def confirm(self, cases: Sequence[Case]) -> int:
        """Time anew what is close to winning; how many configs that were.

        Where a locked config is about to lose its place, once more, in another process: that is
        a change of a file, and a process moves some binaries by as much as a margin.
        """
        waiting = [case for case in cases if case.done == FINALS]
        if not waiting:
            return 0
        count = self._in_a_fresh_process(waiting, second=False)
        doubted = [case for case in waiting if case.done == FINALS]
        if doubted:
            count += self._in_a_fresh_process(doubted, second=True)
        return count

    def _in_a_fresh_process(self, cases: Sequence[Case], *, second: bool) -> int:
        self.device.renew()
        self.guard.look()
        return sum(self._confirmed(case, second=second) for case in cases)

    def _confirmed(self, case: Case, *, second: bool) -> int:
        """Confirm it; it is not done if its incumbent would go by a first confirmation alone."""
        contenders = choose.contenders(
            case.outcomes, default=self.default, incumbent=case.incumbent
        )
        again, quiet = self._undisturbed(case.problem, partial(self._confirm, case, contenders))
        if second:
            again = tuple(map(_once_more, contenders, again))
        found = {one.candidate.config: one for one in again}
        outcomes = tuple(found.get(one.candidate.config, one) for one in case.outcomes)
        # With what lost its place in the confirmation since it was written.
        others = [one for one in outcomes if one.candidate.config not in found]
        lost = [one for one in others if case.written.get(one.candidate.config, one) != one]
        doubted = not second and choose.replaces(
            outcomes, default=self.default, incumbent=case.incumbent
        )
        self.write([*again, *lost] or outcomes[:1], CONFIRM if quiet and not doubted else "")
        case.written.update((one.candidate.config, one) for one in outcomes)
        case.outcomes, case.done = outcomes, FINALS if doubted else CONFIRM
        if not doubted:  # each problem counts once
            self.advance(f"{case.problem}: confirmed")
        return len(again)

    def _race(self, case: Case) -> tuple[Outcome, ...]:
        best = float("inf")

        def record(outcome: Outcome) -> None:
            nonlocal best
            if isinstance(outcome, Measured):
                best = min(best, outcome.median_us)
            config = outcome.candidate.config
            if config not in case.written:
                so_far = f"best so far {best:.1f} µs" if best < float("inf") else "none right yet"
                self.advance(f"{case.problem}: {so_far}")
            self.write([outcome], "")
            case.written[config] = outcome

        known = [
            (one, case.known[one.candidate.config])
            for one in case.compiled
            if one.candidate.config in case.known
        ]
        screened = measure.screen(
            self.device,
            [one for one in case.compiled if one.candidate.config not in case.known],
            default=self.default,
            incumbent=case.incumbent,
            timing=self.timing,
            record=record,
            progress=lambda _: None,
            so_far=measure.Screened.of(known, case.scores_us),
        )
        outcomes = measure.finals(
            self.device,
            screened,
            default=self.default,
            incumbent=case.incumbent,
            timing=self.timing,
            record=lambda _: None,
            progress=lambda _: None,
        )
        found = {one.candidate.config: one for one in outcomes}
        return tuple(found[one.candidate.config] for one in case.compiled)

    def _confirm(self, case: Case, contenders: Sequence[Measured]) -> tuple[Outcome, ...]:
        return measure.confirm(
            self.device,
            contenders,
            default=self.default,
            incumbent=case.incumbent,
            timing=self.timing,
            progress=lambda _: None,
        )

    def _undisturbed(
        self, problem: Problem, work: Callable[[], tuple[Outcome, ...]]
    ) -> tuple[tuple[Outcome, ...], bool]:
        """Do *work* until nothing disturbs it; its outcomes, and whether that came to be."""
        for attempt in range(TRIES):
            outcomes = work()
            wrong = self.guard.check(_floor(outcomes), _series(outcomes))
            if not wrong:
                return outcomes, True
            if attempt < TRIES - 1:
                self.again += 1
                self._wait()
        if not self.allow_noisy:
            raise EnvironmentFaultError(
                f"the GPU is disturbed, so nothing is locked: {wrong}",
                where=str(problem),
                hint="sweep again when it is quiet, what is done is kept; or lock as it is with "
                "`--allow-noisy`",
            )
        self.warnings.append(f"{problem}: measured on a disturbed GPU: {wrong}")
        return tuple(_doubted(one, self.guard.off) for one in outcomes), False

    def _wait(self) -> None:
        until = self.clock() + WAIT_S
        while self.guard.look() and self.clock() < until:
            self.sleep(PAUSE_S)

    def _is_spent(self, candidates: int) -> bool:
        """Whether a budget has no room for so many more."""
        if self.budget_s is None or self._began is None:
            return False
        spent = self.clock() - self._began
        each = spent / self._measured if self._measured else 0.0
        return spent + each * candidates >= self.budget_s * (1 - RESERVE)


def _floor(outcomes: Sequence[Outcome]) -> float:
    return max((one.floor for one in outcomes if isinstance(one, Measured)), default=0.0)


def _series(outcomes: Sequence[Outcome]) -> list[tuple[float, ...]]:
    """The samples of the race that ended last."""
    return [one.confirm_us or one.finals_us for one in outcomes if isinstance(one, Measured)]


def _doubted(outcome: Outcome, off: float) -> Outcome:
    """Its noise is at least what the GPU was off by."""
    if isinstance(outcome, Rejected) or not outcome.finals_us:
        return outcome
    return replace(outcome, floor=max(outcome.floor, round(off, 5)))


def _once_more(before: Measured, now: Outcome) -> Outcome:
    """A second confirmation beside the first: that has chosen whom to doubt, so it is no figure."""
    if isinstance(now, Rejected):
        return now
    return replace(now, doubted_us=before.confirm_us)

"""pipeline.rounds: the problems of a sweep and a device -> outcomes, problem by problem.

    screen -> finals -> (next problem) ... -> confirm them all in a fresh process

Between two problems a guard looks at the GPU: what was measured while it was disturbed is
measured again, and a GPU that stays disturbed is refused, not locked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tritune import choose, measure
from tritune.device import Device
from tritune.device.guards import Guard
from tritune.errors import EnvironmentFaultError
from tritune.journal import CONFIRM, FINALS
from tritune.model import Compiled, Config, Measured, Outcome, Problem, Reason, Rejected, Timing

TRIES = 3
"""Times that a disturbed problem is measured."""
WAIT_S = 10.0
PAUSE_S = 0.5
"""Before it is measured again: for the GPU to be quiet, looking so often."""
RESERVE = 0.1
"""The part of a budget that is kept for the confirmation."""
STILL_TRUE = (Reason.WRONG, Reason.LAUNCH, Reason.HANG)
"""Rejections while measuring, which hold for the same binary later; memory may be free by then."""


@dataclass(kw_only=True, slots=True)
class Case:
    """One problem on its way to a decision."""

    compiled: tuple[Compiled, ...]
    incumbent: Config | None
    known: Mapping[Config, Outcome] = field(default_factory=dict)
    """What the journal holds of it, by the config that stands for a binary."""
    scores_us: Mapping[Config, float] = field(default_factory=dict)
    """How that was ranked, where this sweep has screened it while compiling."""
    done: str = ""
    """The last stage it is done with."""
    outcomes: tuple[Outcome, ...] = ()
    """Of all that were compiled, once it is done with the finals."""
    written: dict[Config, Outcome] = field(default_factory=dict)
    """What the journal holds by now."""

    @property
    def problem(self) -> Problem:
        return self.compiled[0].candidate.problem


def resumed(
    compiled: Sequence[Compiled],
    known: Mapping[Config, Outcome],
    *,
    done: str,
    default: Config,
    incumbent: Config | None,
    scores_us: Mapping[Config, float] | None = None,
) -> Case:
    """A problem as the journal left it; *known* in the order that it was written.

    Outcomes of equal binaries stand, and so does the stage it is done with, where that was about
    all candidates of today, the default and the incumbent among the finalists.
    """
    still = still_true(compiled, known)
    case = Case(
        compiled=tuple(compiled),
        incumbent=incumbent,
        known=still,
        scores_us=scores_us or {},
        written={**known, **still},
    )
    if len(still) == len(compiled) and done:
        holders = [still[one.candidate.config] for one in compiled if _holds(one, case, default)]
        timed = [one for one in holders if isinstance(one, Measured)]
        raced = all(one.finals_us for one in timed)
        confirmed = done == CONFIRM and all(one.confirm_us for one in timed)
        case.done = CONFIRM if raced and confirmed else FINALS if raced else ""
    if case.done:
        case.outcomes = tuple(still[one.candidate.config] for one in compiled)
    if case.done == FINALS:  # an older confirmation was of other finals, and in another window
        case.outcomes = tuple(map(_unconfirmed, case.outcomes))
    return case


def still_true(
    compiled: Sequence[Compiled], known: Mapping[Config, Outcome]
) -> dict[Config, Outcome]:
    """What is known of binaries of today, by the config that stands for each of them today.

    That is another one once the lockfile holds an alias: the binary is the same, and so are its
    times. The last that was written counts.
    """
    latest: dict[tuple[Config, str], tuple[int, Outcome]] = {}
    for number, outcome in enumerate(known.values()):
        if isinstance(outcome, Rejected):
            latest[outcome.candidate.config, ""] = number, outcome
        else:
            for config in (outcome.candidate.config, *outcome.compiled.aliases):
                latest[config, outcome.compiled.binary] = number, outcome
    still: dict[Config, Outcome] = {}
    for one in compiled:
        config = one.candidate.config
        found = [latest[at] for at in ((config, ""), (config, one.binary)) if at in latest]
        if not found:
            continue
        last = max(found, key=lambda pair: pair[0])[1]
        if isinstance(last, Measured):
            still[config] = replace(last, compiled=one)
        elif last.reason in STILL_TRUE:
            still[config] = last
    return still


def _unconfirmed(outcome: Outcome) -> Outcome:
    return replace(outcome, confirm_us=()) if isinstance(outcome, Measured) else outcome


def _holds(compiled: Compiled, case: Case, default: Config) -> bool:
    configs = (compiled.candidate.config, *compiled.aliases)
    return default in configs or case.incumbent in configs


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
        """Time anew what is close to winning; how many configs that were."""
        waiting = [case for case in cases if case.done == FINALS]
        if not waiting:
            return 0
        self.device.renew()
        self.guard.look()
        count = 0
        for case in waiting:
            contenders = choose.contenders(
                case.outcomes, default=self.default, incumbent=case.incumbent
            )
            again, quiet = self._undisturbed(case.problem, partial(self._confirm, case, contenders))
            found = {one.candidate.config: one for one in again}
            outcomes = tuple(found.get(one.candidate.config, one) for one in case.outcomes)
            # With what lost its place in the confirmation since it was written.
            others = [one for one in outcomes if one.candidate.config not in found]
            lost = [one for one in others if case.written.get(one.candidate.config, one) != one]
            self.write([*again, *lost] or outcomes[:1], CONFIRM if quiet else "")
            case.written.update((one.candidate.config, one) for one in outcomes)
            case.outcomes, case.done = outcomes, CONFIRM
            self.advance(f"{case.problem}: confirmed")
            count += len(again)
        return count

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

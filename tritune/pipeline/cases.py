"""pipeline.cases: what a journal holds of a problem -> a Case, as far as that still stands.

Times belong to a binary: they stand where today's candidate is that binary, whichever of its
configs stands for it by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tritune import choose
from tritune.journal import CONFIRM, FINALS
from tritune.model import Compiled, Config, Measured, Outcome, Problem, Reason, Rejected

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
    all candidates of today, the default and the incumbent among the finalists. A confirmation
    that knew another incumbent has asked no third process about the one of today.
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
        asked = all(one.doubted_us for one in timed) or not choose.replaces(
            tuple(still.values()), default=default, incumbent=incumbent
        )
        case.done = CONFIRM if raced and confirmed and asked else FINALS if raced else ""
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
    if isinstance(outcome, Rejected):
        return outcome
    return replace(outcome, confirm_us=(), doubted_us=())


def _holds(compiled: Compiled, case: Case, default: Config) -> bool:
    configs = (compiled.candidate.config, *compiled.aliases)
    return default in configs or case.incumbent in configs

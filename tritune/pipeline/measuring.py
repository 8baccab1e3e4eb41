"""pipeline.measuring: compiled candidates and a GPU -> outcomes, each in the journal as it happens.

What the journal knows already is not measured again, and two sweeps never share one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from tritune.device import targets
from tritune.device.cuda import CudaDevice
from tritune.journal import CONFIRM, Journal
from tritune.model import Compiled, Config, Entry, Outcome, Problem, Rejected
from tritune.pipeline import racing
from tritune.pipeline.cases import Case, resumed
from tritune.pipeline.job import Job
from tritune.pipeline.racing import Race


def raced(
    job: Job,
    compiled: Sequence[Compiled],
    rejected: Sequence[Rejected],
    locked: Mapping[str, Entry],
    device: CudaDevice,
    scores_us: Mapping[Problem, Mapping[Config, float]] | None = None,
) -> Race:
    """Time what was compiled, problem by problem, as far as the end of its finals.

    What was *rejected* before is journalled with the rest; *scores_us* rank what was screened on
    the *device* already. After it another kernel may have the process.

    Raises:
        EnvironmentFaultError: the GPU does not answer or stays disturbed, the journal cannot be
            written, or another sweep has it. What was recorded stays.
    """
    journal = Journal.open(job.journal)
    try:
        with journal.hold():
            # What another sweep wrote while this one compiled.
            journal.close()
            journal = Journal.open(job.journal)
            known = known_outcomes(job, journal, job.setting.triton)
            _record_rejected(job, journal, rejected, known)
            cases = _cases(job, journal, compiled, locked, known, scores_us or {})
            if all(case.done == CONFIRM for case in cases):
                _say_known(job, cases)
                return Race(cases=cases)
            return racing.race(job, cases, device, partial(write, job, journal))
    finally:
        journal.close()


def confirmed(job: Job, running: Race) -> tuple[tuple[Outcome, ...], float]:
    """The outcomes, confirmed in a fresh process; also the seconds that the GPU was held.

    Raises:
        EnvironmentFaultError: as of `raced`.
    """
    seconds = running.seconds
    if running.rounds is not None:
        journal = Journal.open(job.journal)
        try:
            with journal.hold():
                running.rounds.write = partial(write, job, journal)
                seconds += racing.confirm(job, running)
        finally:
            journal.close()
    return tuple(one for case in running.cases for one in case.outcomes), seconds


def known_outcomes(
    job: Job, journal: Journal, triton: str | None
) -> dict[tuple[Problem, Config], Outcome]:
    """What a journal holds of this kernel, its source and this silicon, under this protocol."""
    if job.setting.identity is None:
        return {}
    return journal.known(
        job.info.name,
        source=job.journal_source,
        device=job.setting.identity,
        protocol=job.sweep.timing.protocol(),
        triton=triton,
    )


def is_done(job: Job, journal: Journal) -> bool:
    """Whether a journal says of every problem that a sweep came to its end."""
    stages = _stages(job, journal)
    return all(stages.get(problem) == CONFIRM for problem in job.sweep.problems)


def _stages(job: Job, journal: Journal) -> Mapping[Problem, str]:
    return journal.done(
        job.info.name,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
    )


def _record_rejected(
    job: Job,
    journal: Journal,
    rejected: Sequence[Rejected],
    known: Mapping[tuple[Problem, Config], Outcome],
) -> None:
    for one in rejected:
        if known.get((one.candidate.problem, one.candidate.config)) != one:
            write(job, journal, [one], "")


def _cases(
    job: Job,
    journal: Journal,
    compiled: Sequence[Compiled],
    locked: Mapping[str, Entry],
    known: Mapping[tuple[Problem, Config], Outcome],
    scores_us: Mapping[Problem, Mapping[Config, float]],
) -> tuple[Case, ...]:
    """The problems in the order of the file, each as far as the journal knows it."""
    by_problem: dict[Problem, list[Compiled]] = defaultdict(list)
    for one in compiled:
        by_problem[one.candidate.problem].append(one)
    done = _stages(job, journal)
    if job.options.fresh:
        known, done = {}, {}
    cases = []
    for problem in job.sweep.problems:
        if candidates := by_problem.get(problem):
            entry = locked.get(candidates[0].key)
            case = resumed(
                candidates,
                of_problem(known, problem),
                scores_us=scores_us.get(problem),
                done=done.get(problem, ""),
                default=job.info.default,
                incumbent=entry.config if entry else None,
            )
            cases.append(case)
    return tuple(cases)


def of_problem(
    known: Mapping[tuple[Problem, Config], Outcome], problem: Problem
) -> dict[Config, Outcome]:
    return {config: one for (of, config), one in known.items() if of == problem}


def _say_known(job: Job, cases: Sequence[Case]) -> None:
    total = sum(len(case.compiled) for case in cases)
    with job.step("measuring", None) as said:
        said.append(f"all {total:,} distinct candidates are in the journal already")


def write(job: Job, journal: Journal, outcomes: Sequence[Outcome], done: str) -> None:
    journal.record_all(
        outcomes,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
        done=done,
    )

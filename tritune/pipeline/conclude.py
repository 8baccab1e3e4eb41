"""pipeline.conclude: outcomes, measured or recorded -> winners, the lockfile and the report."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tritune import choose, devicelabels, lock, sharing
from tritune.compile import Found
from tritune.device import targets
from tritune.journal import Journal
from tritune.model import (
    IN_INTERPRETER,
    Config,
    DeviceIdentity,
    Entry,
    Lock,
    Measured,
    Outcome,
    Problem,
    Rejected,
    Report,
    SharedKey,
    Winner,
)
from tritune.pipeline.job import Job
from tritune.pipeline.measuring import known_outcomes
from tritune.pipeline.searched import signed


def incumbents(job: Job) -> dict[str, Entry]:
    """What the lockfile holds now for this kernel on this device, by key."""
    if job.setting.identity is None:
        return {}
    locked = lock.read(job.lockfile)
    known = devicelabels.find(locked.devices, job.setting.identity)
    label = known.name if known else None
    return {
        at.key: entry
        for at, entry in locked.entries
        if at.kernel == job.info.name and at.device == label
    }


def from_record(job: Job, found: Found) -> tuple[tuple[Outcome, ...], str]:
    """The recorded outcomes of what was planned, matched by config, problem and device.

    Also the version of Triton that they were recorded under.
    """
    if job.setting.record is None or job.setting.identity is None:
        return (), ""
    planned = {(one.candidate.problem, one.candidate.config) for one in found.launches if one.grids}
    with job.step("reading the recorded times", None) as said:
        journal = Journal.open(job.setting.record, read_only=True)
        tritons = journal.tritons(
            job.info.name, job.journal_source, job.setting.identity, job.sweep.timing.protocol()
        )
        triton = tritons[-1] if tritons else ""
        known = known_outcomes(job, journal, triton)
        finished = _finished(job, journal, triton)
        outcomes = tuple(one for one in known.values() if _names(one) & planned and finished(one))
        covered = set().union(*(_names(one) for one in outcomes)) if outcomes else set()
        missing = len(planned - covered)
        said.append(
            f"{sum(isinstance(one, Measured) for one in outcomes):,} timings taken on "
            f"{job.target.name}, not on this machine"
            + (f", {missing:,} missing" if missing else "")
        )
    return outcomes, triton


def _finished(job: Job, journal: Journal, triton: str) -> Callable[[Outcome], bool]:
    """Whether an outcome decides: not one of a problem that a sweep was interrupted in."""
    done = journal.done(
        job.info.name,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=triton,
    )
    # A journal that was not made by a sweep says of no problem that it is done.
    return lambda outcome: (
        not done or isinstance(outcome, Rejected) or outcome.candidate.problem in done
    )


def _names(outcome: Outcome) -> set[tuple[Problem, Config]]:
    candidate = outcome.compiled.candidate if isinstance(outcome, Measured) else outcome.candidate
    aliases = outcome.compiled.aliases if isinstance(outcome, Measured) else ()
    return {(candidate.problem, config) for config in (candidate.config, *aliases)}


def winners(
    job: Job,
    outcomes: Sequence[Outcome],
    found: Found,
    locked: Mapping[str, Entry],
    triton: str,
) -> tuple[Winner, ...]:
    """The config to lock for every problem of which something ran right."""
    keys = {one.candidate.problem: one.key for one in found.launches if one.grids}
    by_problem: dict[Problem, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_problem[outcome.candidate.problem].append(outcome)
    chosen: list[Winner] = []
    for problem, key in keys.items():
        winner = choose.choose(
            by_problem[problem],
            kernel=job.info.name,
            key=key,
            default=job.info.default,
            incumbent=locked.get(key),
            triton=triton,
        )
        if winner is not None:
            chosen.append(winner)
    return tuple(chosen)


def write_lock(job: Job, identity: DeviceIdentity, chosen: Sequence[Winner]) -> Lock:
    """Put the winners into the lockfile; entries of others stay as they are."""
    return lock.update(
        job.lockfile,
        lambda before: lock.merge_winners(
            before, identity, signed(job, chosen), job.near_constraints
        ),
    )


def nothing(job: Job, why: str) -> Report:
    """What a sweep has to say that has nothing to do."""
    found = Found(work=(), launches=(), rejected=())
    return report(job, found, (), (), gpu_s=0.0, not_locked=why)


def report(
    job: Job,
    found: Found,
    outcomes: Sequence[Outcome],
    chosen: Sequence[Winner],
    *,
    gpu_s: float,
    not_locked: str,
) -> Report:
    """All of it, for the views."""
    asked = {one.candidate.problem for one in found.launches if one.grids}
    refused = [one for one in (*found.rejected, *outcomes) if isinstance(one, Rejected)]
    asked |= {one.candidate.problem for one in refused if one.reason not in IN_INTERPRETER}
    settled = {winner.problem for winner in chosen} | set(job.left_open)
    empty = [p for p in job.sweep.problems if p not in asked]
    return Report(
        sweep=job.sweep.path,
        kernel=job.info,
        target=job.target,
        work=found.work,
        steps=tuple(job.steps),
        outcomes=tuple(outcomes),
        winners=tuple(chosen),
        unsolved=() if not_locked else tuple(p for p in job.sweep.problems if p in asked - settled),
        shared=_shared(job, outcomes, chosen),
        missed=job.missed,
        lockfile=str(job.lockfile),
        locked=bool(chosen) and not not_locked,
        not_locked=not_locked,
        warnings=(
            *job.warnings,
            *(f"nothing to time, the op launches nothing: {p}" for p in empty),
        ),
        not_interpreted=tuple(job.not_interpreted),
        replayed=job.setting.record is not None and bool(outcomes),
        wall_s=time.monotonic() - job.started,
        gpu_s=gpu_s,
    )


def _shared(
    job: Job, outcomes: Sequence[Outcome], chosen: Sequence[Winner]
) -> tuple[SharedKey, ...]:
    """What the winners gain over what the kernel's own autotuner would have cached."""
    if not job.info.stock_keys:  # it has none, or none that holds; and losses take time
        return ()
    losses = {
        winner.problem: choose.losses(
            [one for one in outcomes if one.candidate.problem == winner.problem], winner.config
        )
        for winner in chosen
    }
    return sharing.shared(job.info, losses)

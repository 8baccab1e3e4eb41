"""pipeline.conclude: compiled candidates -> outcomes, winners, the lockfile and the report."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tritune import choose, lock, measure, places
from tritune.compile import Found
from tritune.device import targets
from tritune.device.cuda import CudaDevice
from tritune.errors import TrituneError
from tritune.journal import Journal
from tritune.model import (
    Compiled,
    Config,
    DeviceIdentity,
    Entry,
    Lock,
    Measured,
    Outcome,
    Problem,
    Rejected,
    Report,
    Winner,
)
from tritune.pipeline.job import Job


def incumbents(job: Job) -> dict[str, Entry]:
    """What the lockfile holds now for this kernel on this device, by key."""
    if job.setting.identity is None:
        return {}
    locked = lock.read(job.lockfile)
    silicon = job.setting.identity.silicon()
    labels = {device.name for device in locked.devices if device.silicon() == silicon}
    return {
        at.key: entry
        for at, entry in locked.entries
        if at.kernel == job.info.name and at.device in labels
    }


def from_gpu(
    job: Job,
    compiled: Sequence[Compiled],
    rejected: Sequence[Rejected],
    locked: Mapping[str, Entry],
) -> tuple[tuple[Outcome, ...], float]:
    """Time what was compiled, problem by problem; also the seconds that the GPU was held.

    What was *rejected* before is journalled with the rest.
    """
    identity = job.setting.identity
    if identity is None or job.setting.index is None:
        raise TrituneError("there is no GPU to measure on")
    path = places.journal_path(job.places.journals, Path(job.sweep.path), job.target.name)
    journal = Journal.open(path)
    for outcome in rejected:
        _record(job, journal, outcome)
    device = CudaDevice(
        index=job.setting.index,
        kernel=job.sweep.kernel,
        problem=job.sweep.problem,
        default=job.info.default,
        identity=identity,
        triton=job.setting.triton,
        timing=job.sweep.timing,
        cache=job.places.binaries,
        log=job.places.logs / "device.log",
    )
    began = time.monotonic()
    try:
        with job.step("measuring", len(compiled)) as said:
            outcomes = _measure_all(job, device, journal, compiled, locked)
            timed = sum(isinstance(one, Measured) for one in outcomes)
            said.append(f"{timed:,} distinct candidates timed on {job.target.name}")
            if device.restarts:
                said.append(f"{device.restarts} restarts of the measuring process")
    finally:
        device.close()
    return outcomes, time.monotonic() - began


def _measure_all(
    job: Job,
    device: CudaDevice,
    journal: Journal,
    compiled: Sequence[Compiled],
    locked: Mapping[str, Entry],
) -> tuple[Outcome, ...]:
    by_problem: dict[Problem, list[Compiled]] = defaultdict(list)
    for one in compiled:
        by_problem[one.candidate.problem].append(one)
    known = {} if job.options.fresh else _known(job, journal, job.setting.triton)
    outcomes: list[Outcome] = []
    for problem in job.sweep.problems:
        candidates = by_problem.get(problem, [])
        done = [known.get((problem, one.candidate.config)) for one in candidates]
        if candidates and None not in done:
            outcomes += [one for one in done if one is not None]
            for _ in candidates:
                job.observer.advance(f"{problem}: in the journal already")
        elif candidates:
            entry = locked.get(candidates[0].key)
            outcomes += _measure(job, device, journal, candidates, entry)
    return tuple(outcomes)


def _measure(
    job: Job,
    device: CudaDevice,
    journal: Journal,
    candidates: Sequence[Compiled],
    incumbent: Entry | None,
) -> tuple[Outcome, ...]:
    best = [float("inf")]

    def record(outcome: Outcome) -> None:
        _record(job, journal, outcome)
        if isinstance(outcome, Measured):
            best[0] = min(best[0], outcome.median_us)
        job.observer.advance(f"{candidates[0].candidate.problem}: best so far {best[0]:.1f} µs")

    return measure.measure(
        device,
        candidates,
        default=job.info.default,
        incumbent=incumbent.config if incumbent else None,
        timing=job.sweep.timing,
        record=record,
        progress=lambda _: None,
    )


def _record(job: Job, journal: Journal, outcome: Outcome) -> None:
    journal.record(
        outcome,
        source=job.info.source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
    )


def _known(job: Job, journal: Journal, triton: str | None) -> dict[tuple[Problem, Config], Outcome]:
    identity = job.setting.identity
    if identity is None:
        return {}
    return journal.known(
        job.info.name,
        source=job.info.source,
        device=identity,
        protocol=job.sweep.timing.protocol(),
        triton=triton,
    )


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
            job.info.name, job.info.source, job.setting.identity, job.sweep.timing.protocol()
        )
        triton = tritons[-1] if tritons else ""
        known = _known(job, journal, triton)
        outcomes = tuple(one for one in known.values() if _names(one) & planned)
        covered = set().union(*(_names(one) for one in outcomes)) if outcomes else set()
        missing = len(planned - covered)
        said.append(
            f"{sum(isinstance(one, Measured) for one in outcomes):,} timings taken on a "
            f"{job.target.name}, not on this machine"
            + (f", {missing:,} missing" if missing else "")
        )
    return outcomes, triton


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
        lambda before: lock.merge_winners(before, identity, chosen, job.near_constraints),
    )


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
    asked |= {one.candidate.problem for one in found.rejected}
    solved = {winner.problem for winner in chosen}
    empty = [p for p in job.sweep.problems if p not in asked]
    return Report(
        sweep=job.sweep.path,
        kernel=job.info,
        target=job.target,
        work=found.work,
        steps=tuple(job.steps),
        outcomes=tuple(outcomes),
        winners=tuple(chosen),
        unsolved=() if not_locked else tuple(p for p in job.sweep.problems if p in asked - solved),
        lockfile=str(job.lockfile),
        locked=bool(chosen) and not not_locked,
        not_locked=not_locked,
        warnings=tuple(f"nothing to time, the op launches nothing: {p}" for p in empty),
        replayed=job.setting.record is not None,
        wall_s=time.monotonic() - job.started,
        gpu_s=gpu_s,
    )

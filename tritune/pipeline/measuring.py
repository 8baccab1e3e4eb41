"""pipeline.measuring: compiled candidates and a GPU -> outcomes, each in the journal as it happens.

What the journal knows already is not measured again, and two sweeps never share one.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tritune.device import guards, targets
from tritune.device.cuda import CudaDevice
from tritune.device.guards import Guard
from tritune.errors import TrituneError
from tritune.journal import Journal
from tritune.model import Compiled, Config, Entry, Measured, Outcome, Problem, Rejected
from tritune.pipeline.cases import Case, resumed
from tritune.pipeline.job import Job
from tritune.pipeline.rounds import Rounds

SHOWN = 3
"""Problems that a warning names."""


def from_gpu(
    job: Job,
    compiled: Sequence[Compiled],
    rejected: Sequence[Rejected],
    locked: Mapping[str, Entry],
    device: CudaDevice | None = None,
    scores_us: Mapping[Problem, Mapping[Config, float]] | None = None,
) -> tuple[tuple[Outcome, ...], float]:
    """Time what was compiled, problem by problem; also the seconds that the GPU was held.

    What was *rejected* before is journalled with the rest. A *device* that is open is used, and
    so are the *scores_us* of what was screened on it.

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
            began = time.monotonic()
            if any(case.done != "confirm" for case in cases):
                race(job, cases, partial(write, job, journal), device)
            else:
                _say_known(job, cases)
            gpu_s = time.monotonic() - began
    finally:
        journal.close()
    return tuple(one for case in cases for one in case.outcomes), gpu_s


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
    done = journal.done(
        job.info.name,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
    )
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


def race(
    job: Job,
    cases: Sequence[Case],
    write: Callable[[Sequence[Outcome], str], None],
    opened: CudaDevice | None = None,
) -> None:
    """Measure the cases on the job's GPU; *write* is told outcomes as they are known."""
    device = opened or open_device(job)
    sensors: guards.Nvml | guards.NoSensors = guards.NoSensors("the GPU has no UUID")
    todo = sum(len(case.compiled) - len(case.known) for case in cases if not case.done)
    try:
        with job.step("measuring", todo) as said:
            if uuid := device.uuid():
                sensors = guards.sensors(uuid)
            guard = Guard(device.canary, sensors)
            rounds = _rounds(job, write, device, guard)
            said.extend(_before(job, guard, sensors, cases))
            rounds.race(cases)
            said.extend(_after(job, device, guard, rounds, cases))
        waiting = sum(case.done == "finals" for case in cases)
        with job.step("confirming", waiting) as said:
            count = rounds.confirm(cases)
            said.append(f"{count:,} configs timed anew in a fresh process: theirs are the figures")
            said.append(f"{device.compiles() or 'nothing'} compiled while measuring")
    finally:
        device.close()
        guards.close(sensors)
    job.warnings.extend((*rounds.warnings, *device.notes))


def open_device(job: Job) -> CudaDevice:
    identity = job.setting.identity
    if identity is None or job.setting.index is None:
        raise TrituneError("there is no GPU to measure on")
    return CudaDevice(
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


def _rounds(
    job: Job,
    write: Callable[[Sequence[Outcome], str], None],
    device: CudaDevice,
    guard: Guard,
) -> Rounds:
    return Rounds(
        device=device,
        guard=guard,
        default=job.info.default,
        timing=job.sweep.timing,
        write=write,
        advance=job.observer.advance,
        budget_s=job.options.budget_s,
        allow_noisy=job.options.allow_noisy,
    )


def write(job: Job, journal: Journal, outcomes: Sequence[Outcome], done: str) -> None:
    journal.record_all(
        outcomes,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
        done=done,
    )


def _before(
    job: Job, guard: Guard, sensors: guards.Nvml | guards.NoSensors, cases: Sequence[Case]
) -> list[str]:
    """Of the step, what is known before it begins."""
    if isinstance(sensors, guards.NoSensors):
        job.warnings.append(f"only a canary watches the GPU: {sensors.why}")
    if guard.first.others:
        pids = ", ".join(f"pid {pid}" for pid in sorted(guard.first.others))
        job.warnings.append(f"another process is on the GPU from the start ({pids})")
    known = sum(len(case.known) for case in cases)
    return [f"{known:,} were in the journal already"] if known else []


def _after(
    job: Job, device: CudaDevice, guard: Guard, rounds: Rounds, cases: Sequence[Case]
) -> list[str]:
    """Of the step, what it did."""
    outcomes = [one for case in cases for one in case.outcomes]
    timed = sum(isinstance(one, Measured) for one in outcomes)
    said = [f"{timed:,} distinct candidates timed on {job.target.name}"]
    floors = [one.floor for one in outcomes if isinstance(one, Measured) and one.finals_us]
    if floors:
        said.append(
            f"one binary differs from itself by {statistics.median(floors):.1%}, "
            f"at most {max(floors):.1%}"
        )
    if guard.readings:
        clocks = [one.sm_mhz for one in guard.readings]
        heat = max(one.celsius for one in guard.readings)
        said.append(f"{min(clocks):,} to {max(clocks):,} MHz, up to {heat} °C")
    if device.restarts:
        said.append(
            f"{device.restarts} restarts of the measuring process, which cost "
            f"{device.restart_s:.0f} s"
        )
    if rounds.again:
        said.append(f"measured again {rounds.again} times, as the GPU was disturbed")
    _say_open(job, rounds, cases)
    return said


def _say_open(job: Job, rounds: Rounds, cases: Sequence[Case]) -> None:
    if not rounds.left_open:
        return
    job.left_open.extend(rounds.left_open)
    named = "; ".join(map(str, rounds.left_open[:SHOWN]))
    more = len(rounds.left_open) - SHOWN
    job.warnings.append(
        f"the budget of {job.options.budget_s:g} s left {len(rounds.left_open)} of {len(cases)} "
        f"problems as they were: {named}{f' and {more} more' if more > 0 else ''}"
    )

"""pipeline: a sweep file -> Reports; the only place where the stages meet.

    spec -> space -> plan -> compile -> measure -> choose -> lock

With no GPU the same way is gone as far as it honestly can be: results are verified in Triton's
interpreter, everything is lowered and compiled for the target, and times come from a recorded
journal or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tritune import grouping, keyed, lock
from tritune.compile import Found
from tritune.device import toolchain
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.model import Candidate, Entry, Outcome, Problem, Rejected, Report
from tritune.pipeline import (
    conclude,
    measuring,
    missed,
    overlap,
    prepare,
    racing,
    reach,
    smoke,
    twice,
)
from tritune.pipeline.checking import CheckOptions, check, due, not_fresh, nothing_due
from tritune.pipeline.compiling import (
    CompileReport,
    adopt,
    compile_only,
    compilers,
    refuse_wrong,
    turn,
)
from tritune.pipeline.importing import Imported, ImportOptions, import_tables
from tritune.pipeline.job import Job, Observer, SweepOptions, start
from tritune.pipeline.missed import names_others_alone
from tritune.pipeline.prebuilding import PrebuildOptions, prebuild
from tritune.pipeline.questions import device, rejected, space_counts
from tritune.pipeline.replacing import REPORT
from tritune.pipeline.retiming import retime
from tritune.pipeline.starting import Started
from tritune.pipeline.starting import start as start_sweep
from tritune.pipeline.tracefiles import Traced, TraceOptions
from tritune.pipeline.tracing import trace
from tritune.workers import Pool, Worker

__all__ = [
    "REPORT",
    "CheckOptions",
    "CompileReport",
    "ImportOptions",
    "Imported",
    "Observer",
    "PrebuildOptions",
    "Started",
    "SweepOptions",
    "TraceOptions",
    "Traced",
    "check",
    "compile_only",
    "device",
    "import_tables",
    "names_others_alone",
    "not_fresh",
    "prebuild",
    "refuse_wrong",
    "rejected",
    "retime",
    "run",
    "space_counts",
    "start_sweep",
    "trace",
]


def run(path: Path, options: SweepOptions, observer: Observer) -> tuple[Report, ...]:
    """Sweep one file.

    Raises:
        TrituneError: the file, the kernel or this machine cannot be used; nothing is lost.
    """
    jobs = start(path, options, observer)
    if options.shapes_from:
        jobs = missed.asked_for(jobs, options.shapes_from)
    elif options.stale:
        jobs = due(jobs)
    nothing = missed.nothing_missed if options.shapes_from else nothing_due
    with (
        twice.noticed(replace(jobs[0], observer=observer)),
        compilers(jobs[0]) as pool,
        racing.process(jobs[0]) as gpu,
    ):
        return _each(jobs, _Hands(pool, gpu), nothing)


@dataclass(frozen=True, slots=True)
class _Hands:
    """The processes of a sweep, which go from one kernel of it to the next."""

    pool: Pool
    gpu: Worker


def _each(
    jobs: Sequence[Job], hands: _Hands, nothing: Callable[[Job], Report]
) -> tuple[Report, ...]:
    """Sweep the kernels of an op; *nothing* is said of one that has no problems."""
    ends: list[Callable[[], Report]] = []
    try:
        for job in jobs:
            has_work = bool(job.sweep.problems)
            begun = _begin(job, hands, last=job is jobs[-1]) if has_work else partial(nothing, job)
            ends.append(begun)
    except EnvironmentFaultError:
        raise
    except TrituneError:
        # Who mends that kernel may change the op, and then what is raced, and not locked, is lost.
        with suppress(TrituneError):
            for end in ends:
                end()
        raise
    return tuple(end() for end in ends)


def _begin(job: Job, hands: _Hands, *, last: bool) -> Callable[[], Report]:
    """Sweep one kernel as far as its finals; what confirms and concludes it.

    All kernels of an op are confirmed at the end, for a fresh process is a matter of seconds.
    """
    dry = job.options.dry_run
    toolchain.check(job.target, launches=job.setting.index is not None)
    locked = conclude.incumbents(job)
    candidates, illegal = prepare.plan(job, locked)
    job.observer.say(f"{job.info.short}: {job.setting.source}")
    if job.options.compiled is not None:
        adopt(job, hands.pool, job.options.compiled)
    if job.setting.identity is not None:
        lock.refuse_unwritable(job.lockfile)
    if job.setting.index is not None or dry:
        return _measure(job, hands, (candidates, illegal), locked, last=last)
    wrong = smoke.interpret(job)
    with smoke.told_as_well(job, wrong):
        end = _measure(job, hands, (candidates, (*illegal, *wrong)), locked, last=last)
        report = end()
    unsolved = dict.fromkeys((*report.unsolved, *smoke.all_wrong(job, wrong)))
    return lambda: replace(report, unsolved=tuple(unsolved))


def _measure(
    job: Job,
    hands: _Hands,
    planned: tuple[Sequence[Candidate], tuple[Rejected, ...]],
    locked: Mapping[str, Entry],
    *,
    last: bool,
) -> Callable[[], Report]:
    """All that follows the interpreter, of what is left of the plan and what is out of it."""
    candidates, out = planned
    pool = hands.pool
    turn(pool, job)
    found = prepare.find_launches(job, pool, candidates, locked)
    prepare.announce(job, found.launches)
    if job.options.dry_run:
        return partial(conclude.report, job, found, (), (), gpu_s=0.0, not_locked="a dry run")
    first = {job.info.default, *(entry.config for entry in locked.values())}

    def lead(candidate: Candidate) -> bool:
        return candidate.config in first

    groups, failed = prepare.group(job, pool, found, lead)
    job = _with_a_default_that_fits(job, groups)

    device = None if job.setting.index is None else racing.open_device(job, hands.gpu)
    with overlap.on_gpu(job, locked, device) as screening:
        compiled, more = overlap.compile_all(job, pool, groups, found, screening, lead=lead)
    if last:  # nothing holds memory while finals run
        pool.close()
    out = (*out, *found.rejected, *failed, *more)
    if device is None:
        return partial(_from_record, job, found, out, hands.gpu)
    ahead_s = screening.seconds if screening else 0.0
    scores = screening.scores_us if screening else {}
    locked = conclude.incumbents(job)
    running = measuring.raced(job, compiled, out, locked, device, scores)
    running = replace(running, seconds=running.seconds + ahead_s)
    return partial(_confirm, job, found, out, running, locked, hands.gpu)


def _with_a_default_that_fits(job: Job, groups: Sequence[grouping.Group]) -> Job:
    """Of somebody else's kernel the first config that can run everywhere is what others beat."""
    default = keyed.default(job.info, groups)
    if default == job.info.default:
        return job
    job.warnings.append(f"its first config does not fit, so the default is {default}")
    return replace(job, info=replace(job.info, default=default))


def _from_record(job: Job, found: Found, out: tuple[Rejected, ...], gpu: Worker) -> Report:
    locked = conclude.incumbents(job)
    timed = _Timed(outcomes=(), triton=job.setting.triton)
    if job.setting.record is not None:
        outcomes, triton = conclude.from_record(job, found)
        timed = _Timed(outcomes=outcomes, triton=triton)
    return _conclude(job, found, out, timed, locked, gpu)


def _confirm(
    job: Job,
    found: Found,
    out: tuple[Rejected, ...],
    running: racing.Race,
    locked: Mapping[str, Entry],
    gpu: Worker,
) -> Report:
    outcomes, gpu_s = measuring.confirmed(job, running)
    timed = _Timed(outcomes=outcomes, triton=job.setting.triton, gpu_s=gpu_s)
    return _conclude(job, found, out, timed, locked, gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Timed:
    """What was timed, here or when it was recorded, and under which Triton."""

    outcomes: tuple[Outcome, ...]
    triton: str
    gpu_s: float = 0.0


def _conclude(
    job: Job,
    found: Found,
    out: tuple[Rejected, ...],
    timed: _Timed,
    locked: Mapping[str, Entry],
    gpu: Worker,
) -> Report:
    outcomes: tuple[Outcome, ...] = (*out, *timed.outcomes)
    chosen = conclude.winners(job, timed.outcomes, found, locked, timed.triton)
    why = _why_not(job, timed.outcomes)
    if chosen and job.setting.identity is not None and not why:
        chosen = reach.reached(job, chosen, locked, gpu)
        conclude.write_lock(job, job.setting.identity, chosen)
    report = conclude.report(job, found, outcomes, chosen, gpu_s=timed.gpu_s, not_locked=why)
    hopeless = _hopeless(found, out) - {winner.problem for winner in chosen}
    unsolved = tuple(p for p in job.sweep.problems if p in {*report.unsolved, *hopeless})
    return replace(report, unsolved=unsolved)


def _hopeless(found: Found, out: tuple[Rejected, ...]) -> set[Problem]:
    """Problems of which every candidate was rejected before any could be timed."""
    rejected = {one.candidate for one in out}
    launches = {one.candidate for one in found.launches if one.grids}
    left = {candidate.problem for candidate in launches - rejected}
    idle = {one.candidate.problem for one in found.launches if not one.grids}
    return {candidate.problem for candidate in rejected} - left - idle


def _why_not(job: Job, timed: tuple[Outcome, ...]) -> str:
    """Why nothing can be locked; empty where something can."""
    if job.setting.identity is None:
        return (
            f"no GPU here, and the repository carries no recorded journal of {job.sweep.path} "
            f"for {job.target.name}"
        )
    if job.setting.record is not None and not timed and job.missed:
        return f"the recorded journal {job.setting.record} has no times of these problems"
    if job.setting.record is not None and not timed:
        return (
            f"the recorded journal {job.setting.record} is of another kernel source, space or "
            "timing than today's: record it again on that GPU"
        )
    return ""

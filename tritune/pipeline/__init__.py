"""pipeline: a sweep file -> Reports; the only place where the stages meet.

    spec -> space -> plan -> compile -> measure -> choose -> lock

With no GPU the same way is gone as far as it honestly can be: results are verified in Triton's
interpreter, everything is lowered and compiled for the target, and times come from a recorded
journal or not at all.
"""

from __future__ import annotations

from pathlib import Path

from tritune.compile import Found
from tritune.device import lowering
from tritune.device.probe import toolchain_fault
from tritune.model import Compiled, Outcome, Reason, Rejected, Report
from tritune.pipeline import conclude, prepare
from tritune.pipeline.job import Job, Observer, SweepOptions, start
from tritune.pipeline.questions import device, rejected, space_counts
from tritune.workers import Pool

__all__ = ["Observer", "SweepOptions", "device", "rejected", "run", "space_counts"]


def run(path: Path, options: SweepOptions, observer: Observer) -> tuple[Report, ...]:
    """Sweep one file.

    Raises:
        TrituneError: the file, the kernel or this machine cannot be used; nothing is lost.
    """
    return tuple(_sweep(job) for job in start(path, options, observer))


def _sweep(job: Job) -> Report:
    dry = job.options.dry_run
    candidates, illegal = prepare.plan(job)
    job.observer.say(f"{job.info.name.rpartition(':')[2]}: {job.setting.source}")
    wrong = prepare.interpret(job) if job.setting.index is None and not dry else ()
    locked = conclude.incumbents(job)
    with _compilers(job) as pool:
        found = prepare.find_launches(job, pool, candidates)
        prepare.announce(job, found.launches)
        if dry:
            return conclude.report(job, found, (), (), gpu_s=0.0, not_locked="a dry run")
        first = (job.info.default, *(entry.config for entry in locked.values()))
        compiled, failed = prepare.compile_all(job, pool, found, first)
    _refuse_broken_toolchain(job, compiled, failed)
    out = (*illegal, *wrong, *found.rejected, *failed)
    return _conclude(job, found, compiled, out)


def _compilers(job: Job) -> Pool:
    return Pool(
        job.jobs,
        lowering.open_session,
        job.sweep.kernel,
        job.sweep.problem,
        job.target,
        str(job.places.binaries),
        log_folder=job.places.logs,
    )


def _refuse_broken_toolchain(
    job: Job, compiled: tuple[Compiled, ...], out: tuple[Rejected, ...]
) -> None:
    """When nothing compiles, ask whether anything would."""
    failed = {Reason.COMPILE, Reason.CRASH, Reason.TIMEOUT, Reason.REGISTERS}
    if compiled or not any(one.reason in failed for one in out):
        return
    fault = toolchain_fault(job.target, job.places.logs / "probe.log")
    if fault is not None:
        raise fault


def _conclude(
    job: Job, found: Found, compiled: tuple[Compiled, ...], out: tuple[Rejected, ...]
) -> Report:
    locked = conclude.incumbents(job)
    gpu_s, triton = 0.0, job.setting.triton
    timed: tuple[Outcome, ...] = ()
    if job.setting.index is not None:
        timed, gpu_s = conclude.from_gpu(job, compiled, out, locked)
    elif job.setting.record is not None:
        timed, triton = conclude.from_record(job, found)
    outcomes: tuple[Outcome, ...] = (*out, *timed)
    chosen = conclude.winners(job, timed, found, locked, triton)
    why = _why_not(job, timed)
    if chosen and job.setting.identity is not None and not why:
        conclude.write_lock(job, job.setting.identity, chosen)
    return conclude.report(job, found, outcomes, chosen, gpu_s=gpu_s, not_locked=why)


def _why_not(job: Job, timed: tuple[Outcome, ...]) -> str:
    """Why nothing can be locked; empty where something can."""
    if job.setting.identity is None:
        return (
            f"no GPU here, and the repository carries no recorded journal of {job.sweep.path} "
            f"for {job.target.name}"
        )
    if job.setting.record is not None and not timed:
        return (
            f"the recorded journal {job.setting.record} is of another kernel source, space or "
            "timing than today's: record it again on that GPU"
        )
    return ""

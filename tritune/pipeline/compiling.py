"""pipeline.compiling: a sweep file -> what compiles for a target, on a machine with no GPU.

The way of a sweep as far as binaries: nothing is verified, timed or locked.
"""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritune import bundle, places
from tritune.compile import Found
from tritune.device import lowering, occupancy, toolchain, wheel
from tritune.errors import EnvironmentFaultError
from tritune.model import Candidate, Compiled, Problem, Rejected, Step, Target
from tritune.pipeline import overlap, prepare
from tritune.pipeline.job import Job, Observer, SweepOptions, checked, near, start
from tritune.setting import Setting
from tritune.words import plural
from tritune.workers import Done, Pool

SERVED_LIMIT_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A binary of the report, and the share of an SM's threads that it can keep busy."""

    compiled: Compiled
    occupancy: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileReport:
    """Everything that compiling one kernel has to say."""

    sweep: str
    kernel: str
    target: Target
    steps: tuple[Step, ...]
    built: tuple[Built, ...]
    rejected: tuple[Rejected, ...]
    unsolved: tuple[Problem, ...]
    """Problems of which nothing compiles and fits."""
    output: str = ""
    warnings: tuple[str, ...] = ()
    wall_s: float = 0.0


def compile_only(
    path: Path, options: SweepOptions, observer: Observer, *, output: Path | None = None
) -> tuple[CompileReport, ...]:
    """Compile one file for a target, and put the binaries into *output*.

    Raises:
        TrituneError: the file, the kernel or this machine cannot be used.
    """
    jobs = start(path, options, observer, setting=lambda target: Setting(target=target))
    with compilers(jobs[0]) as pool:
        return tuple(_compile(job, pool, output) for job in jobs)


def refuse_wrong(path: Path, options: SweepOptions, output: Path | None) -> None:
    """Refuse what can be told of a compile before torch is imported.

    Raises:
        TrituneError: the file, the options or the folder cannot be used.
    """
    checked(path, options, is_named=True)
    if output is not None:
        places.refuse_unwritable(output)


def compilers(job: Job) -> Pool:
    """The processes that lower and compile, none of which touches a GPU."""
    return Pool(job.jobs, *_session(job), log_folder=job.places.logs)


def turn(pool: Pool, job: Job) -> None:
    """Have the processes compile another kernel, of the same op or not: they have its imports."""
    pool.turn(*_session(job))


def _session(job: Job) -> tuple[Any, ...]:
    """What makes the state of a compiling process."""
    sweep, cache = job.sweep, str(job.places.binaries)
    return lowering.open_session, sweep.kernel, sweep.problem, job.target, cache


def served(pool: Pool, logs: Path) -> bundle.Served:
    """What binaries made here serve for."""
    [(_, answer)] = pool.run(wheel.served, [()], SERVED_LIMIT_S)
    if isinstance(answer, Done):
        return answer.value
    raise EnvironmentFaultError(f"Triton does not say what it is: {answer}", hint=f"see {logs}")


def adopt(job: Job, pool: Pool, folder: Path) -> None:
    """Take the binaries of *folder* into this machine's compile cache; a dry run only looks."""
    turn(pool, job)
    asked = (folder, served(pool, job.places.logs), job.info.name, job.places.source)
    if job.options.dry_run:
        bundle.found(*asked)
        return
    with job.step("taking the compiled binaries", None) as said:
        try:
            count = bundle.adopt(*asked, job.places.binaries)
        except OSError as error:
            what = f"cannot be copied: {error.strerror or error}"
            where = str(error.filename or near(folder.absolute()))
            raise EnvironmentFaultError(what, where=where) from error
        said.append(f"{plural(count, 'binary', 'binaries')} of {near(folder.absolute())} taken")


def _compile(job: Job, pool: Pool, output: Path | None) -> CompileReport:
    toolchain.check(job.target, launches=False)
    candidates, illegal = prepare.plan(job)
    default = job.info.default

    def lead(candidate: Candidate) -> bool:
        return candidate.config == default

    turn(pool, job)
    found = prepare.find_launches(job, pool, candidates)
    groups, oversize = prepare.group(job, pool, found, lead)
    entries: set[str] = set()
    made, failed = overlap.compile_all(job, pool, groups, found, lead=lead, entries=entries)
    if output is not None:
        _write(job, pool, output, entries)
    rejected = (*illegal, *found.rejected, *oversize, *failed)
    return _report(job, found, made, rejected, output)


def _write(job: Job, pool: Pool, output: Path, entries: AbstractSet[str]) -> None:
    with job.step("writing the binaries", None) as said:
        try:
            output.mkdir(parents=True, exist_ok=True)
            count = bundle.write(
                output,
                served(pool, job.places.logs),
                job.info.name,
                job.places.source,
                [job.places.binaries / name for name in sorted(entries)],
            )
        except OSError as error:
            raise places.unwritable(output, error) from error
        said.append(f"{plural(count, 'binary', 'binaries')} in {near(output.absolute())}")


def _report(
    job: Job,
    found: Found,
    made: tuple[Compiled, ...],
    rejected: tuple[Rejected, ...],
    output: Path | None,
) -> CompileReport:
    solved = {one.candidate.problem for one in made}
    empty = {p for p in job.sweep.problems if p not in solved} - _idle(found)
    return CompileReport(
        sweep=job.sweep.path,
        kernel=job.info.name,
        target=job.target,
        steps=tuple(job.steps),
        built=tuple(Built(compiled=one, occupancy=occupancy.of(one, job.target)) for one in made),
        rejected=rejected,
        unsolved=tuple(problem for problem in job.sweep.problems if problem in empty),
        output="" if output is None else str(output),
        warnings=tuple(job.warnings),
        wall_s=time.monotonic() - job.started,
    )


def _idle(found: Found) -> set[Problem]:
    """Problems whose op launches nothing: there is nothing to compile."""
    return {one.candidate.problem for one in found.launches if not one.grids}

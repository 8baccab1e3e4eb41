"""pipeline.prepare: a job -> what is to be compiled: planned, launched, lowered, grouped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritune import compile as compiling
from tritune import grouping, keyed, space
from tritune import plan as planning
from tritune.errors import KernelError, SpecError
from tritune.grouping import Group
from tritune.intercept import ConflictError
from tritune.model import (
    LAUNCH_OPTIONS,
    Candidate,
    Config,
    Entry,
    Launches,
    Problem,
    Reason,
    Rejected,
)
from tritune.pipeline.job import Job, near
from tritune.pipeline.searched import Searched
from tritune.words import plural, shell
from tritune.workers import Pool

LOWER_S = 0.07
COMPILE_S = 1.0
MEASURE_S = 0.015
START_S = 8.0
"""What a lowering, a compile, a measured candidate and the starts of processes cost, for the
estimate before a sweep: about what our own sweeps took on an H200 with 16 cores."""


def plan(
    job: Job, locked: Mapping[str, Entry] | None = None
) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
    """Every candidate that the constraints admit; numbers that no launch can use are out.

    Of somebody else's list out is also what its author's perf_model leaves out, unless it is
    *locked*, by key.
    """
    configs = tuple(space.configs(job.sweep, job.target, job.info))
    _refuse_empty(job, configs)
    planned = planning.plan(
        job.info.name,
        configs,
        job.sweep.problems,
        target=job.target,
        default=job.info.default,
        admits=lambda config, problem: (
            space.admitted(job.sweep, job.target, config, problem) is None
        ),
    )
    if any((job.sweep.space, *(one.space for one in space.sections(job.sweep, job.target)))):
        return planned.candidates, planned.rejected  # whoever writes a space means all of it
    spared = {job.info.default, *(entry.config for entry in (locked or {}).values())}
    left, out = keyed.foreseen(job.info, planned.candidates, spared)
    return left, (*planned.rejected, *out)


def _refuse_empty(job: Job, configs: Sequence[Config]) -> None:
    """Constraints that leave a problem nothing but the default are hardly what was meant."""
    empty = [
        problem
        for problem in job.sweep.problems
        if all(space.admitted(job.sweep, job.target, config, problem) for config in configs)
    ]
    if len(empty) == len(job.sweep.problems):
        raise SpecError(
            f"they leave none of {plural(len(configs), 'config')} on any problem",
            where=job.sweep.where("constraints"),
            hint=f"`tritune show space {shell(job.sweep.path)}` says what each of them removes",
        )
    job.warnings.extend(
        f"{problem}: the constraints leave no config, so only the default is tried"
        for problem in empty
    )


def find_launches(
    job: Job,
    pool: Pool,
    candidates: Sequence[Candidate],
    locked: Mapping[str, Entry] | None = None,
) -> compiling.Found:
    """Of the candidates, and of what is *locked*, by key, and has to be raced besides."""
    with job.step("finding the launches", None) as said:
        try:
            found = compiling.find_launches(pool, candidates, job.observer.advance)
            if more := outside(job, found, candidates, locked or {}):
                added = compiling.find_launches(pool, more, job.observer.advance)
                found = replace(
                    found,
                    launches=(*found.launches, *added.launches),
                    rejected=(*found.rejected, *added.rejected),
                )
        except ConflictError as conflict:
            raise _in_both_places(job, conflict) from None
        classes = len({one.compile_class for one in found.launches if one.grids})
        total = len(found.launches) + len(found.rejected)
        said.append(f"{plural(total, 'candidate')}, {plural(classes, 'distinct compile')}")
    _refuse_shared_keys(job, found.launches)
    return found


def outside(
    job: Job,
    found: compiling.Found,
    candidates: Sequence[Candidate],
    locked: Mapping[str, Entry],
) -> tuple[Candidate, ...]:
    """Locked configs that today's space lacks, and that nobody has timed here or chosen yet.

    They are raced all the same, if somebody says that they are valid. Of the others a sweep only
    says that they lose their place: who narrows a space does not want them back.
    """
    planned, searched = set(candidates), Searched(job.sweep, job.target, job.info)
    wanted: list[Candidate] = []
    for problem, key in {one.candidate.problem: one.key for one in found.launches}.items():
        entry = locked.get(key)
        if entry is None:
            continue
        one = Candidate(kernel=job.info.name, problem=problem, config=entry.config)
        if one in planned:
            continue
        undecided = entry.evidence.unmeasured or entry.evidence.unsettled
        is_valid = can_launch(job, one.config) and not searched.unvouched(one.config, problem)
        if undecided and is_valid:
            wanted.append(one)
        else:
            job.warnings.append(f"{problem}: the locked config is not in the space: {one.config}")
    return tuple(wanted)


def can_launch(job: Job, config: Config) -> bool:
    """Whether it is a config of the kernel as it is today, with numbers that the target takes."""
    names, own = {*config}, {*job.info.default}
    return own <= names <= own | LAUNCH_OPTIONS and planning.legal(config, job.target) is None


def _in_both_places(job: Job, conflict: ConflictError) -> KernelError:
    """The same conflict, told with the line of the sweep file as well as that of the launch."""
    name = conflict.what.rpartition(" ")[2]
    place = job.sweep.where(f"space.{name}")
    return KernelError(conflict.what, where=conflict.where, hint=f"{conflict.hint} ({place})")


def _refuse_shared_keys(job: Job, found: Sequence[Launches]) -> None:
    """Two problems under one key cannot both be locked."""
    problems: dict[str, Problem] = {}
    for one in found:
        other = problems.setdefault(one.key, one.candidate.problem)
        if one.key and other != one.candidate.problem:
            raise SpecError(
                f"two problems are one to the kernel: `{other}` and `{one.candidate.problem}` "
                f"both have the key `{one.key}`",
                where=job.sweep.where("shapes"),
                hint=f"add what tells them apart to key= of `{job.info.name}`, or drop one",
            )


def announce(job: Job, found: Sequence[Launches]) -> None:
    """Before hours of work: what, about how long, and which file."""
    classes = len({one.compile_class for one in found if one.grids})
    problems = plural(len(job.sweep.problems), "problem")
    lines = [f"{plural(len(found), 'candidate')} on {problems} for {job.target.name}"]
    if job.setting.index is not None:
        seconds = START_S + classes * (LOWER_S + COMPILE_S) / job.jobs + len(found) * MEASURE_S
        about = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
        processes = plural(job.jobs, "compile process", "compile processes")
        lines.append(f"about {about} with {processes}")
    if job.setting.identity is None:
        lines.append("writes nothing")
    else:
        lines.append(f"{'would write' if job.options.dry_run else 'writes'} {near(job.lockfile)}")
    job.observer.say(", ".join(lines))
    if job.options.lockfile:
        job.observer.say(f"the kernel itself reads {near(Path(job.info.lockfile))}")


def group(
    job: Job, pool: Pool, found: compiling.Found, lead: grouping.Lead
) -> tuple[tuple[Group, ...], tuple[Rejected, ...]]:
    """Lower every class and gather equal ones; what cannot fit is out."""
    classes = {one.compile_class for one in found.launches if one.grids}
    with job.step("lowering to TTGIR", len(classes)) as said:
        lowered = compiling.lower(pool, found.launches, job.places.logs, job.observer.advance)
        groups, rejected = grouping.group(
            found.launches, lowered, target=job.target, work=found.by_problem, lead=lead
        )
        oversize = sum(one.reason is Reason.SHARED for one in rejected)
        same = plural(sum(len(group.aliases) for group in groups), "candidate")
        said.append(
            f"{len(classes):,} lowered for {job.target.name}: {same} the same as another, "
            f"{oversize:,} beyond its shared memory before LLVM"
        )
    return groups, rejected

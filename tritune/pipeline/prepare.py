"""pipeline.prepare: a job -> what can be timed: planned, verified on the CPU, lowered, compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tritune import compile as compiling
from tritune import plan as planning
from tritune import space
from tritune.device import interpreter
from tritune.errors import SpecError
from tritune.model import Candidate, Compiled, Config, Launches, Problem, Reason, Rejected
from tritune.pipeline.job import Job, near
from tritune.workers import Pool

INTERPRET_LIMIT_S = 120.0
LOWER_S = 0.07
COMPILE_S = 4.0
MEASURE_S = 0.03
"""What a lowering, a compile and a measured candidate cost, for the estimate before a sweep."""


def plan(job: Job) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
    """Every candidate that the constraints admit; numbers that no launch can use are out."""
    configs = space.configs(job.sweep, job.target, job.info)
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
    return planned.candidates, planned.rejected


def interpret(job: Job) -> tuple[Rejected, ...]:
    """Verify every distinct set of meta-parameters on the smoke problems, on the CPU."""
    tasks = _smoke_tasks(job)
    if not tasks:
        return ()
    wrong: list[Rejected] = []
    pool = Pool(
        job.jobs,
        interpreter.open_interpreter,
        job.sweep.kernel,
        job.sweep.problem,
        env=interpreter.ENV,
        log_folder=job.places.logs,
    )
    with job.step("verifying in the interpreter", len(tasks)) as said, pool:
        for index, answer in pool.run(interpreter.check, tasks, INTERPRET_LIMIT_S):
            outcome = compiling.outcome_of(answer, tasks[index][0])
            if isinstance(outcome, Rejected):
                wrong.append(outcome)
            job.observer.advance(str(tasks[index][0].config))
        configs = len({task[0].config for task in tasks})
        said.append(
            f"{configs} distinct sets of meta-parameters on {len(job.sweep.smoke)} smoke problems: "
            f"{len(tasks) - len(wrong)} results right, {len(wrong)} wrong (results, not times)"
        )
    return tuple(wrong)


def _smoke_tasks(job: Job) -> list[tuple[Candidate]]:
    tasks: dict[Candidate, None] = {}
    seen: set[tuple[Problem, Config]] = set()
    for problem in job.sweep.smoke:
        for config in space.configs(job.sweep, job.target, job.info):
            if space.admitted(job.sweep, job.target, config, problem):
                continue
            if (problem, config.meta()) not in seen:
                seen.add((problem, config.meta()))
                tasks[Candidate(kernel=job.info.name, problem=problem, config=config)] = None
    return [(candidate,) for candidate in tasks]


def find_launches(job: Job, pool: Pool, candidates: Sequence[Candidate]) -> compiling.Found:
    with job.step("finding the launches", None) as said:
        found = compiling.find_launches(pool, candidates, job.observer.advance)
        classes = len({one.compile_class for one in found.launches if one.grids})
        said.append(f"{len(candidates):,} candidates make {classes:,} distinct compiles")
    _refuse_shared_keys(job, found.launches)
    return found


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
    lines = [
        f"{len(found):,} candidates on {len(job.sweep.problems)} problems for {job.target.name}"
    ]
    if job.setting.index is not None:
        seconds = classes * (LOWER_S + COMPILE_S) / job.jobs + len(found) * MEASURE_S
        lines.append(f"about {max(seconds / 60, 1):.0f} min with {job.jobs} compile processes")
    if job.setting.identity is None:
        lines.append("writes nothing")
    else:
        lines.append(f"{'would write' if job.options.dry_run else 'writes'} {near(job.lockfile)}")
    job.observer.say(", ".join(lines))
    if job.options.lockfile:
        job.observer.say(f"the kernel itself reads {near(Path(job.info.lockfile))}")


def compile_all(
    job: Job, pool: Pool, found: compiling.Found, first: Sequence[Config]
) -> tuple[tuple[Compiled, ...], tuple[Rejected, ...]]:
    """Lower every class, gather equal ones, compile one of each; *first* come first."""
    classes = {one.compile_class for one in found.launches if one.grids}
    with job.step("lowering to TTGIR", len(classes)) as said:
        lowered = compiling.lower(pool, found.launches, job.observer.advance)
        groups, rejected = compiling.group(
            found.launches,
            lowered,
            target=job.target,
            work={work.problem: work for work in found.work},
            lead=lambda candidate: candidate.config in first,
        )
        oversize = sum(one.reason is Reason.SHARED for one in rejected)
        same = sum(len(group.aliases) for group in groups)
        said.append(
            f"{len(classes):,} lowered for {job.target.name}: {same:,} candidates launch the same "
            f"as another, {oversize:,} exceed its shared memory before LLVM"
        )
    compiled, more = _compile_groups(job, pool, groups, first)
    return compiled, (*rejected, *more)


def _compile_groups(
    job: Job, pool: Pool, groups: Sequence[compiling.Group], first: Sequence[Config]
) -> tuple[tuple[Compiled, ...], tuple[Rejected, ...]]:
    ordered = sorted(
        groups,
        key=lambda one: (one.candidate.config not in first, one.candidate.config.order()),
    )
    distinct = len({one.launches.compile_class for one in ordered})
    budget_s = None if job.setting.index is not None else job.options.compile_budget_s
    done: list[Compiled] = []
    rejected: list[Rejected] = []
    seen: set[str] = set()
    with job.step("compiling", distinct) as said:
        for one, outcome in compiling.compile_groups(
            pool,
            ordered,
            target=job.target,
            limit_s=job.sweep.timing.compile_limit_s,
            budget_s=budget_s,
        ):
            done.append(outcome) if isinstance(outcome, Compiled) else rejected.append(outcome)
            if one.launches.compile_class not in seen:
                seen.add(one.launches.compile_class)
                job.observer.advance(str(one.candidate.config))
        cut = "" if len(seen) == distinct else f" within the {budget_s:.0f} s that were allowed"
        said.append(f"{len(seen):,} of {distinct:,} distinct binaries for {job.target.name}{cut}")
    return tuple(done), tuple(rejected)

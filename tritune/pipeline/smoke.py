"""pipeline.smoke: a job -> what Triton's interpreter says of it on the CPU, on small problems."""

from __future__ import annotations

from collections.abc import Sequence

from tritune import compile as compiling
from tritune import space
from tritune.device import interpreter
from tritune.model import Candidate, Config, Problem, Reason, Rejected
from tritune.pipeline.job import Job
from tritune.workers import Pool

INTERPRET_LIMIT_S = 120.0
SHOWN = 8
"""So many configs are a line that somebody reads."""


def interpret(job: Job) -> tuple[Rejected, ...]:
    """Verify every distinct set of meta-parameters on the smoke problems, on the CPU."""
    tasks = _smoke_tasks(job)
    if not tasks:
        with job.step("verifying in the interpreter", None) as said:
            said.append("not done: the file has no `smoke:` problem that a config of it can run")
        return ()
    wrong: list[Rejected] = []
    left_out: set[Candidate] = set()
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
            if isinstance(outcome, Rejected) and outcome.reason is Reason.PRUNED:
                left_out.add(outcome.candidate)
            elif isinstance(outcome, Rejected):
                wrong.append(outcome)
            job.observer.advance(str(tasks[index][0].config))
        if any("bfloat16" in one.candidate.problem.as_dict().values() for one in wrong):
            job.warnings.append(
                "Triton's interpreter multiplies bfloat16 wrongly in `tl.dot`, so a wrong result "
                "on a bfloat16 smoke problem may be its own: use float16 in `smoke:`"
            )
        configs = len({task[0].config.meta() for task in tasks})
        right = len(tasks) - len(left_out) - len(wrong)
        reached = {one.config.meta() for (one,) in tasks if one not in left_out}
        job.not_interpreted.extend(_not_reached(job, reached))
        said.append(
            f"{configs} distinct sets of meta-parameters on {_problems(job)}: "
            f"{right} results right, {len(wrong)} wrong (results, not times)"
            + (f", {len(job.not_interpreted):,} sets not reached" if job.not_interpreted else "")
        )
    _warn(job)
    return tuple(wrong)


def _not_reached(job: Job, reached: set[Config]) -> list[Config]:
    """Sets of meta-parameters that are to be timed, and that ran on no smoke problem."""
    left = {
        config.meta(): None
        for config in space.configs(job.sweep, job.target, job.info)
        if config.meta() not in reached
        and any(
            space.admitted(job.sweep, job.target, config, problem) is None
            for problem in job.sweep.problems
        )
    }
    return list(left)


def _warn(job: Job) -> None:
    left = job.not_interpreted
    if not left:
        return
    first = "; ".join(map(str, left[:SHOWN]))
    rest = len(left) - SHOWN
    more = f"; and {rest:,} more, which --json has as `not_interpreted`" if rest > 0 else ""
    job.warnings.append(
        "the interpreter has not verified what no smoke problem can run under the constraints or "
        f"the prune function: {first}{more}"
    )


def _problems(job: Job) -> str:
    count = len(job.sweep.smoke)
    return "1 smoke problem" if count == 1 else f"{count} smoke problems"


def all_wrong(job: Job, wrong: Sequence[Rejected]) -> tuple[Problem, ...]:
    """The smoke problems on which no config gave the right result in the interpreter."""
    if not wrong:
        return ()
    # What it is too slow for says nothing of the kernel.
    failed = {one.candidate for one in wrong if one.reason is not Reason.TIMEOUT}
    left = {candidate.problem for (candidate,) in _smoke_tasks(job) if candidate not in failed}
    tried = {one.problem for one in failed}
    return tuple(problem for problem in job.sweep.smoke if problem in tried - left)


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

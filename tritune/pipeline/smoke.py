"""pipeline.smoke: a job -> what Triton's interpreter says of it on the CPU, on small problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from signal import SIGKILL

from tritune import space
from tritune.device import interpreter
from tritune.errors import ManyMistakesError, TrituneError, of_many
from tritune.model import Candidate, Config, Problem, Reason, Rejected, Verified
from tritune.pipeline.job import Job
from tritune.words import plural
from tritune.workers import Answer, Died, Done, Pool, Raised, TimedOut

INTERPRET_LIMIT_S = 120.0
OUT_OF_BOUNDS = "mostly by an access out of bounds: does a load or a store lack its mask?"
MEMORY = "as when memory runs out"
SHOWN = 8
"""So many configs are a line that somebody reads."""


def interpret(job: Job) -> tuple[Rejected, ...]:
    """Verify every distinct set of meta-parameters on the smoke problems, on the CPU."""
    tasks = _smoke_tasks(job)
    if not tasks:
        with job.step("verifying in the interpreter", None) as said:
            said.append("not done: the file has no `smoke:` problem that a config of it can run")
        return ()
    pool = Pool(
        job.jobs,
        interpreter.open_interpreter,
        job.sweep.kernel,
        job.sweep.problem,
        env=interpreter.ENV,
        log_folder=job.places.logs,
    )
    found = _Interpreted()
    with job.step("verifying in the interpreter", len(tasks)) as said, pool:
        for index, answer in pool.run(interpreter.check, tasks, INTERPRET_LIMIT_S):
            found.add(tasks[index][0], answer)
            job.observer.advance(str(tasks[index][0].config))
        found.refuse_faults()
        configs = len({task[0].config.meta() for task in tasks})
        reached = {one.config.meta() for (one,) in tasks if one not in found.left_out}
        job.not_interpreted.extend(_not_reached(job, reached))
        left = job.not_interpreted
        said.append(
            f"{plural(configs, 'distinct set')} of meta-parameters on "
            f"{plural(len(job.sweep.smoke), 'smoke problem')}: "
            f"{found.counted(len(tasks))}"
            + (f", {plural(len(left), 'set')} not reached" if left else "")
        )
    job.warnings.extend(found.warnings())
    _warn(job)
    return tuple(found.wrong)


@dataclass(kw_only=True)
class _Interpreted:
    """What became of the candidates."""

    wrong: list[Rejected] = field(default_factory=list)
    unverified: list[Rejected] = field(default_factory=list)
    left_out: set[Candidate] = field(default_factory=set)
    faults: dict[str, TrituneError] = field(default_factory=dict)
    """Of problem functions and references, each once: every config meets them."""

    def add(self, candidate: Candidate, answer: Answer[Verified | Rejected]) -> None:
        match answer:
            case Raised(error=TrituneError() as error):
                self.faults.setdefault(str(error), error)
            case Done(value=Rejected(reason=Reason.PRUNED)):
                self.left_out.add(candidate)
            case Done(value=Rejected(reason=Reason.UNVERIFIED) as one):
                self.unverified.append(one)
            case Done(value=Rejected() as one):
                self.wrong.append(one)
            case Died(signal=number):
                mostly = MEMORY if number == SIGKILL else OUT_OF_BOUNDS
                self.wrong.append(_out(candidate, Reason.ABORTED, f"{answer}, {mostly}"))
            case Raised():  # what is no `Exception`, as of `sys.exit`
                self.wrong.append(_out(candidate, Reason.INTERPRETED, str(answer)))
            case TimedOut():
                detail = f"Triton's interpreter is too slow: {answer}"
                self.unverified.append(_out(candidate, Reason.UNVERIFIED, detail))

    def refuse_faults(self) -> None:
        faults = list(self.faults.values())
        if faults:
            raise of_many(faults)

    def counted(self, tasks: int) -> str:
        failed = sum(one.reason is not Reason.MISTAKEN for one in self.wrong)
        right = tasks - len(self.left_out) - len(self.wrong) - len(self.unverified)
        parts = [
            f"{right} results right, {len(self.wrong) - failed} wrong (results, not times)",
            f"{failed} failed" if failed else "",
            f"{len(self.unverified)} cannot be verified with no GPU" if self.unverified else "",
        ]
        return ", ".join(part for part in parts if part)

    def warnings(self) -> Iterator[str]:
        mistaken = [one for one in self.wrong if one.reason is Reason.MISTAKEN]
        if any("bfloat16" in one.candidate.problem.as_dict().values() for one in mistaken):
            yield (
                "Triton's interpreter multiplies bfloat16 wrongly in `tl.dot`, so a wrong result "
                "on a bfloat16 smoke problem may be its own: use float16 in `smoke:`"
            )
        for detail, times in Counter(one.detail for one in self.unverified).items():
            yield f"{plural(times, 'run')} cannot be verified with no GPU: {detail}"


def _out(candidate: Candidate, reason: Reason, detail: str) -> Rejected:
    return Rejected(candidate=candidate, reason=reason, detail=detail)


@contextmanager
def told_as_well(job: Job, wrong: Sequence[Rejected]) -> Iterator[None]:
    """With a mistake that ends the sweep, which has no report then, what failed before it."""
    try:
        yield
    except TrituneError as fault:
        if not wrong:
            raise
        raise ManyMistakesError([*_failures(job, wrong), fault]) from fault


def _failures(job: Job, wrong: Sequence[Rejected]) -> Iterator[TrituneError]:
    """A line for each smoke problem and reason, with what the first config met."""
    alike: dict[tuple[Problem, Reason], list[Rejected]] = {}
    for one in wrong:
        alike.setdefault((one.candidate.problem, one.reason), []).append(one)
    for (problem, reason), rejected in alike.items():
        configs = plural(len(rejected), "config")
        yield TrituneError(
            f"{reason.value}, {configs} on {problem}: {rejected[0].detail}",
            where=job.sweep.where("smoke"),
        )


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


def all_wrong(job: Job, wrong: Sequence[Rejected]) -> tuple[Problem, ...]:
    """The smoke problems on which no config gave the right result in the interpreter."""
    if not wrong:
        return ()
    failed = {one.candidate for one in wrong}
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

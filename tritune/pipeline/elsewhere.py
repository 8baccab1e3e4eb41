"""pipeline.elsewhere: configs, and problems that no sweep is for -> right there, or why not.

What is found is in the journal at once, so that it is asked once a source and Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tritune.device import lowering, targets
from tritune.device.cuda import CudaDevice
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Launches,
    Problem,
    Reason,
    Rejected,
    Work,
)
from tritune.pipeline.compiling import compilers
from tritune.pipeline.job import Job
from tritune.pipeline.racing import open_device
from tritune.workers import Answer, Done, Pool, Worker

FACTS_LIMIT_S = 60.0
FOR_NOW = (Reason.MEMORY,)
"""What keeps a config from being verified this time, and says nothing against it."""

Facts = tuple[Work, tuple[Launches | Rejected, ...]]
Ask = tuple[Problem, Config, str]
"""A config is to be verified on a problem, whose key is to be this."""


def verify(job: Job, asks: Sequence[Ask], gpu: Worker) -> dict[tuple[Problem, Config], str]:
    """Run each config on its problem, in the process *gpu*; what is found is journalled at once."""
    found: dict[tuple[Problem, Config], str] = {}
    journal = Journal.open(job.journal)
    try:
        with job.step("verifying near", len(asks)) as said:
            for problem, config, why, lasting in _answers(job, asks, gpu):
                found[problem, config] = why
                if lasting:
                    _record(job, journal, problem, config, why)
                job.observer.advance(str(problem))
            right = sum(not why for why in found.values())
            said.append(f"{right:,} of {len(asks):,} ends of what near would serve are right")
    finally:
        journal.close()
    return found


def _record(job: Job, journal: Journal, problem: Problem, config: Config, why: str) -> None:
    journal.record_reach(
        Candidate(kernel=job.info.name, problem=problem, config=config),
        why,
        source=job.journal_source,
        device=job.setting.identity or targets.identity(job.target),
        protocol=job.sweep.timing.protocol(),
        triton=job.setting.triton,
    )


def _answers(
    job: Job, asks: Sequence[Ask], gpu: Worker
) -> Iterator[tuple[Problem, Config, str, bool]]:
    """Why each is not right, and whether that holds for the next sweep too."""
    with compilers(job) as pool:
        unlike = _compiled(job, pool, asks)
    yield from ((*at, why, lasting) for at, (why, lasting) in unlike.items())
    ready = [(problem, config) for problem, config, _ in asks if (problem, config) not in unlike]
    if not ready:
        return
    device = open_device(job, gpu)
    for problem, config in ready:
        why, lasting = _run(device, Candidate(kernel=job.info.name, problem=problem, config=config))
        yield problem, config, why, lasting
    device.leave()


def _compiled(
    job: Job, pool: Pool, asks: Sequence[Ask]
) -> dict[tuple[Problem, Config], tuple[str, bool]]:
    """Compile what is to run, with no GPU held; why not, for a problem that is not what is asked.

    What does not compile shows when it runs.
    """
    default = job.info.default
    unlike: dict[tuple[Problem, Config], tuple[str, bool]] = {}
    todo: dict[str, tuple[Candidate, str]] = {}
    tasks = [(problem, (config, default)) for problem, config, _ in asks]
    for index, answer in pool.run(lowering.facts, tasks, FACTS_LIMIT_S):
        problem, config, key = asks[index]
        launches = _launches(answer)
        if why := _difference(answer, launches, key):
            unlike[problem, config] = why, isinstance(answer, Done)
        else:
            todo |= {one.compile_class: (one.candidate, one.key) for one in launches if one.grids}
    limit_s = job.options.compile_limit_s or job.sweep.timing.compile_limit_s
    for _ in pool.run(lowering.compile_, todo.values(), limit_s):
        pass
    return unlike


def _launches(answer: Answer[Facts]) -> list[Launches]:
    found = answer.value[1] if isinstance(answer, Done) else ()
    return [one for one in found if isinstance(one, Launches)]


def _difference(answer: Answer[Facts], launches: Sequence[Launches], key: str) -> str:
    if not isinstance(answer, Done):
        return f"no problem of that size can be made ({str(answer).splitlines()[0][:200]})"
    if not launches:
        return "the op cannot be launched there"
    there = launches[0].key
    return "" if there == key else f"no problem of that size can be made (its key is {there})"


def _run(device: CudaDevice, candidate: Candidate) -> tuple[str, bool]:
    try:
        answer = device.verify(Compiled(candidate=candidate, key="", binary="", ir=""))
    except EnvironmentFaultError:
        raise
    except TrituneError as error:
        return error.what, True
    if not isinstance(answer, Rejected):
        return "", True
    return f"{answer.reason.value}, {answer.detail}", answer.reason not in FOR_NOW

"""compile: Candidate -> Compiled | Rejected, in processes that never touch a GPU.

In four steps, each over all candidates before the next begins, so that nothing is done twice:
what each one launches; one lowering to TTGIR a compile class; groups of equal TTGIR and grids,
of which the oversize are out before LLVM; one compile a group. Compiling is 97 % of an autotune.
Does not know how a candidate is timed, nor what wins.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGKILL
from typing import TypeVar

from tritune import dtypenames, grouping
from tritune.device import lowering
from tritune.errors import SIGNATURES, TrituneError
from tritune.fulltext import keep
from tritune.grouping import Group
from tritune.limit import Limit
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Launches,
    Lowered,
    Problem,
    Reason,
    Rejected,
    Target,
    Work,
)
from tritune.words import plural
from tritune.workers import Answer, Died, Done, Pool, Raised, TimedOut

T = TypeVar("T")

FACTS_LIMIT_S = 300.0
LOWER_LIMIT_S = 60.0
REGISTERS = re.compile(r"(?i)register allocation failed|allocate registers|too many registers")
CHUNK = 64
"""Configs of one problem that a worker looks at in one task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the candidates launch: facts, no binaries yet."""

    work: tuple[Work, ...]
    launches: tuple[Launches, ...]
    rejected: tuple[Rejected, ...]

    @property
    def by_problem(self) -> dict[Problem, Work]:
        return {work.problem: work for work in self.work}


def find_launches(
    pool: Pool, candidates: Sequence[Candidate], advance: Callable[[str], None]
) -> Found:
    """Run each op on fake tensors under each config, up to its launches."""
    tasks = _chunks(candidates)
    work: dict[Problem, Work] = {}
    seen: dict[Candidate, Launches | Rejected] = {}
    for index, answer in pool.run(lowering.facts, tasks, FACTS_LIMIT_S):
        problem, configs = tasks[index]
        done = _value(
            answer, f"the problem {problem}", dtypenames.told(dict(problem.axes).values())
        )
        work[problem] = done[0]
        seen.update({found.candidate: found for found in done[1]})
        advance(f"{problem}: {plural(len(configs), 'config')}")
    ordered = [seen[candidate] for candidate in candidates]
    return Found(
        work=tuple(work[problem] for problem in dict.fromkeys(c.problem for c in candidates)),
        launches=tuple(found for found in ordered if isinstance(found, Launches)),
        rejected=tuple(found for found in ordered if isinstance(found, Rejected)),
    )


def _chunks(candidates: Sequence[Candidate]) -> list[tuple[Problem, tuple[Config, ...]]]:
    by_problem: dict[Problem, list[Config]] = defaultdict(list)
    for candidate in candidates:
        by_problem[candidate.problem].append(candidate.config)
    return [
        (problem, tuple(configs[start : start + CHUNK]))
        for problem, configs in by_problem.items()
        for start in range(0, len(configs), CHUNK)
    ]


def lower(
    pool: Pool, found: Sequence[Launches], logs: Path, advance: Callable[[str], None]
) -> dict[str, Lowered | Rejected]:
    """One lowering a compile class: its TTGIR, and a lower bound of its shared memory."""
    firsts: dict[str, Candidate] = {}
    for launches in found:
        if launches.grids:
            firsts.setdefault(launches.compile_class, launches.candidate)
    classes = list(firsts)
    tasks = [(firsts[name],) for name in classes]
    lowered: dict[str, Lowered | Rejected] = {}
    for index, answer in pool.run(lowering.lower_loudly, tasks, LOWER_LIMIT_S):
        [candidate] = tasks[index]
        outcome: Lowered | Rejected = outcome_of(answer, candidate, logs)
        lowered[classes[index]] = outcome
        advance(str(candidate.config))
    return lowered


def compile_groups(  # what one run of compiles is told, each part once
    pool: Pool,
    groups: Sequence[Group],
    *,
    target: Target,
    limit: Limit,
    logs: Path,
    budget_s: float | None = None,
    entries: set[str] | None = None,
) -> Iterator[tuple[Group, Compiled | Rejected]]:
    """Compile in the given order, equal TTGIR once; a budget in seconds leaves the rest undone.

    With *entries* the binary of a group is put under the key of each of its configs, and what
    the compile cache calls it under each is added to them, whether or not it fits.
    """
    same: dict[str, list[Group]] = defaultdict(list)
    for one in groups:
        same[one.lowered.ttgir].append(one)
    alike = list(same.values())
    tasks = [_task(these, every_key=entries is not None) for these in alike]
    deadline = None if budget_s is None else time.monotonic() + budget_s
    for index, answer in pool.run(lowering.compile_, tasks, limit, deadline):
        outcome = outcome_of(answer, tasks[index][0], logs)
        if isinstance(answer, TimedOut) and isinstance(outcome, Rejected):
            outcome = replace(outcome, detail=limit.said(answer.seconds))
            limit.answered(answer.seconds)
        elif isinstance(outcome, Compiled) and outcome.seconds:
            limit.answered(outcome.seconds)
        if entries is not None and isinstance(outcome, Compiled):
            entries |= outcome.entries
        for one in alike[index]:
            yield one, _for_group(outcome, one, target)


def _task(
    alike: Sequence[Group], *, every_key: bool
) -> tuple[Candidate, str, str, tuple[Candidate, ...]]:
    """The arguments of `lowering.compile_`: a candidate, and one more of each other class."""
    first = alike[0]
    members = [m for one in alike for m in (one.members if every_key else one.members[:1])]
    classes = {one.compile_class: one.candidate for one in reversed(members)}
    del classes[first.launches.compile_class]
    others = tuple(reversed(classes.values()))
    return first.candidate, first.launches.key, first.lowered.ir, others


def _for_group(outcome: Compiled | Rejected, one: Group, target: Target) -> Compiled | Rejected:
    """What the compile of a TTGIR says of one group that has it."""
    if isinstance(outcome, Rejected):
        return replace(outcome, candidate=one.candidate)
    if why := grouping.unfit(outcome, target):
        return replace(why, candidate=one.candidate)
    return replace(outcome, candidate=one.candidate, key=one.launches.key, aliases=one.aliases)


def outcome_of(
    answer: Done[T] | Raised | Died | TimedOut, candidate: Candidate, logs: Path | None = None
) -> T | Rejected:
    """What a call says of a candidate; all that was printed is kept in *logs*."""
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case TimedOut(seconds=seconds):
            reason, detail = Reason.TIMEOUT, f"cut off after {seconds:.0f} s"
        case Died(signal=number):
            out_of_memory = ", as when memory runs out" if number == SIGKILL else ""
            reason, detail = Reason.CRASH, f"{answer}{out_of_memory}"
        case Raised(type_name=kind, message=message):
            registers = REGISTERS.search(f"{message}\n{_full(answer)}")
            reason = Reason.REGISTERS if registers else Reason.COMPILE
            # Ours has chosen the line already.
            line = message if kind == "CompilerError" else f"{kind}: {message}"
            detail = (line.splitlines() or [""])[0][:200]
    log = keep(logs, _full(answer)) if logs else ""
    return Rejected(candidate=candidate, reason=reason, detail=detail, log=log)


def _full(answer: Raised | Died | TimedOut) -> str:
    trace = answer.traceback if isinstance(answer, Raised) else ""
    return "\n".join(text for text in (trace, answer.output) if text)


def _value(answer: Answer[T], what: str, hint: str = "") -> T:
    """The answer of a call that has no candidate to reject.

    Raises:
        TrituneError: the call failed; its message is the user's to act on.
    """
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case Raised(said=said, where=where):
            why = said.partition(SIGNATURES)[0]
            raise TrituneError(f"{what} cannot be made: {why}", where=where, hint=hint)
        case TimedOut(seconds=seconds):
            raise TrituneError(f"{what} cannot be made within {seconds:.0f} s")
        case Died():
            raise TrituneError(f"{what} cannot be made: its process {answer}")

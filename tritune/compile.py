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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tritune.device import lowering
from tritune.errors import TrituneError
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
from tritune.workers import Answer, Died, Done, Pool, Raised, TimedOut

T = TypeVar("T")

FACTS_LIMIT_S = 300.0
LOWER_LIMIT_S = 60.0
CHUNK = 64
"""Configs of one problem that a worker looks at in one task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Candidates of one problem that make the very same launches, led by the one to measure."""

    launches: Launches
    lowered: Lowered
    aliases: tuple[Config, ...]

    @property
    def candidate(self) -> Candidate:
        return self.launches.candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the candidates launch: facts, no binaries yet."""

    work: tuple[Work, ...]
    launches: tuple[Launches, ...]
    rejected: tuple[Rejected, ...]


def find_launches(
    pool: Pool, candidates: Sequence[Candidate], advance: Callable[[str], None]
) -> Found:
    """Run each op on fake tensors under each config, up to its launches."""
    tasks = _chunks(candidates)
    work: dict[Problem, Work] = {}
    seen: dict[Candidate, Launches | Rejected] = {}
    for index, answer in pool.run(lowering.facts, tasks, FACTS_LIMIT_S):
        problem, configs = tasks[index]
        done = _value(answer, f"the problem {problem}")
        work[problem] = done[0]
        seen.update({found.candidate: found for found in done[1]})
        advance(f"{problem}: {len(configs)} configs")
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
    pool: Pool, found: Sequence[Launches], advance: Callable[[str], None]
) -> dict[str, Lowered | Rejected]:
    """One lowering a compile class: its TTGIR, and a lower bound of its shared memory."""
    firsts: dict[str, Candidate] = {}
    for launches in found:
        if launches.grids:
            firsts.setdefault(launches.compile_class, launches.candidate)
    classes = list(firsts)
    tasks = [(firsts[name],) for name in classes]
    lowered: dict[str, Lowered | Rejected] = {}
    for index, answer in pool.run(lowering.lower, tasks, LOWER_LIMIT_S):
        [candidate] = tasks[index]
        lowered[classes[index]] = outcome_of(answer, candidate)
        advance(str(candidate.config))
    return lowered


def group(
    found: Sequence[Launches],
    lowered: Mapping[str, Lowered | Rejected],
    *,
    target: Target,
    work: Mapping[Problem, Work],
    lead: Callable[[Candidate], bool],
) -> tuple[tuple[Group, ...], tuple[Rejected, ...]]:
    """Gather equal launches; reject what cannot fit *target*.

    A group is led by the candidate for which *lead* holds, else by the one that asks for the
    fewest resources. Where a whole op is timed, its meta-parameters may change other work too,
    so configs that differ in them are never one group.
    """
    rejected: list[Rejected] = []
    groups: dict[tuple[object, ...], list[tuple[Launches, Lowered]]] = defaultdict(list)
    for one in found:
        if not one.grids:
            continue
        ir = lowered[one.compile_class]
        if isinstance(ir, Rejected):
            rejected.append(replace(ir, candidate=one.candidate))
        elif ir.shared_bound > target.shared_bytes:
            rejected.append(_too_big(one.candidate, ir.shared_bound, target, "at least "))
        else:
            problem = one.candidate.problem
            meta = one.candidate.config.meta() if work[problem].timed == "op" else None
            groups[problem, ir.ttgir, one.grids, meta].append((one, ir))
    return tuple(_group(members, lead) for members in groups.values()), tuple(rejected)


def _group(members: list[tuple[Launches, Lowered]], lead: Callable[[Candidate], bool]) -> Group:
    ordered = sorted(
        members, key=lambda one: (not lead(one[0].candidate), one[0].candidate.config.order())
    )
    first, *rest = ordered
    aliases = tuple(launches.candidate.config for launches, _ in rest)
    return Group(launches=first[0], lowered=first[1], aliases=aliases)


def _too_big(candidate: Candidate, needed: int, target: Target, least: str = "") -> Rejected:
    detail = f"{least}{needed} bytes, {target.shared_bytes} available"
    return Rejected(candidate=candidate, reason=Reason.SHARED, detail=detail)


def compile_groups(
    pool: Pool,
    groups: Sequence[Group],
    *,
    target: Target,
    limit_s: float,
    budget_s: float | None,
) -> Iterator[tuple[Group, Compiled | Rejected]]:
    """Compile in the given order, each class once; a budget in seconds leaves the rest undone."""
    by_class: dict[str, list[Group]] = defaultdict(list)
    for one in groups:
        by_class[one.launches.compile_class].append(one)
    members = list(by_class.values())
    tasks = [(same[0].candidate, same[0].launches.key) for same in members]
    deadline = None if budget_s is None else time.monotonic() + budget_s
    for index, answer in pool.run(lowering.compile_, tasks, limit_s, deadline):
        outcome = outcome_of(answer, tasks[index][0])
        for same in members[index]:
            yield same, _for_group(outcome, same, target)


def _for_group(outcome: Compiled | Rejected, same: Group, target: Target) -> Compiled | Rejected:
    """What the compile of a class says of one group in it."""
    if isinstance(outcome, Rejected):
        return replace(outcome, candidate=same.candidate)
    if outcome.shared_bytes > target.shared_bytes:
        return _too_big(same.candidate, outcome.shared_bytes, target)
    if outcome.tensor_memory > target.tensor_memory:
        detail = f"{outcome.tensor_memory} columns, {target.tensor_memory} available"
        return Rejected(candidate=same.candidate, reason=Reason.TENSOR_MEMORY, detail=detail)
    return replace(outcome, candidate=same.candidate, key=same.launches.key, aliases=same.aliases)


def outcome_of(answer: Answer[T], candidate: Candidate) -> T | Rejected:
    match answer:
        case Done(value):
            return value
        case TimedOut(seconds=seconds):
            detail = f"cut off after {seconds:.0f} s"
            return Rejected(candidate=candidate, reason=Reason.TIMEOUT, detail=detail)
        case Died():
            return Rejected(candidate=candidate, reason=Reason.CRASH, detail=str(answer))
        case Raised(error=TrituneError() as error):
            raise error
        case Raised(type_name=kind, message=message):
            detail = f"{kind}: {message}".splitlines()[0][:200]
            return Rejected(candidate=candidate, reason=Reason.COMPILE, detail=detail)


def _value(answer: Answer[T], what: str) -> T:
    """The answer of a call that has no candidate to reject.

    Raises:
        TrituneError: the call failed; its message is the user's to act on.
    """
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case Raised(type_name=kind, message=message, traceback=trace):
            raise TrituneError(f"{what} cannot be made: {kind}: {message}", where=blame(trace))
        case TimedOut(seconds=seconds):
            raise TrituneError(f"{what} cannot be made within {seconds:.0f} s")
        case Died():
            raise TrituneError(f"{what} cannot be made: its process {answer}")


def blame(trace: str) -> str:
    """`file:line` of the innermost frame of a traceback that is not a library's."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [at for at in frames if "site-packages" not in at[0] and "/torch/" not in at[0]]
    return ":".join((own or frames or [("", "")])[-1]).strip(":")

"""keyed: a sweep and a kernel found in its op -> the problems of the kernel, one a key.

An op may launch a kernel of somebody else's several times under different keys, and each has a
winner of its own. Two problems may have one key, since the kernel's author does not find what
is between them important: then the first one decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tritune.grouping import Group
from tritune.model import (
    Candidate,
    Config,
    KernelInfo,
    Problem,
    Reason,
    Rejected,
    Sweep,
)


def of_kernel(sweep: Sweep, info: KernelInfo) -> tuple[Sweep, tuple[str, ...]]:
    """The sweep of one kernel, and what a reader should know of its problems."""
    own = sweep if sweep.kernel else replace(sweep, kernel=info.name)
    if not info.foreign:
        return own, ()
    firsts: dict[str, Problem] = {}
    notes = [note for problem in sweep.problems for note in _claimed(problem, info, firsts)]
    keys = dict(info.keys)
    smoke = tuple(problem for problem in sweep.smoke if problem in keys)
    several = info.several
    problems = tuple(
        problem.under(key) if problem in several else problem for key, problem in firsts.items()
    )
    return replace(own, problems=problems, smoke=smoke), tuple(notes)


def foreseen(
    info: KernelInfo, candidates: Sequence[Candidate], spared: Collection[Config]
) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
    """The candidates that its author's perf_model leaves, and those that it does not.

    Left are the *spared* ones too, which the others are compared with, and what its author does
    not list: there it was never meant to be asked.
    """
    own, limits = {*info.configs} - {*spared}, dict(_limits(info))
    out = [
        Rejected(
            candidate=one,
            reason=Reason.FORESEEN,
            detail=f"not of the {len(limits[one.problem])} that it foresees to be fastest",
        )
        for one in candidates
        if one.config in own and one.config not in limits.get(one.problem, own)
    ]
    gone = {one.candidate for one in out}
    return tuple(one for one in candidates if one not in gone), tuple(out)


def _limits(info: KernelInfo) -> Iterator[tuple[Problem, frozenset[Config]]]:
    several = info.several
    for problem, key, left in info.foreseen:
        yield (problem.under(key) if problem in several else problem), frozenset(left)


def default(info: KernelInfo, groups: Sequence[Group]) -> Config:
    """The default, or of a kernel that is foreign the first of its configs that always fits."""
    fitting: dict[Problem, set[Config]] = defaultdict(set)
    for group in groups:
        fitting[group.candidate.problem] |= {one.candidate.config for one in group.members}
    always = [one for one in info.configs if all(one in some for some in fitting.values())]
    if not info.foreign or not fitting or not always or info.default in always:
        return info.default
    return always[0]


def _claimed(problem: Problem, info: KernelInfo, firsts: dict[str, Problem]) -> Iterator[str]:
    for key in dict(info.keys).get(problem, ()):
        first = firsts.setdefault(key, problem)
        if first != problem:
            yield (f"`{problem}` and `{first}` are both `{key}` to the kernel: tuned on the latter")

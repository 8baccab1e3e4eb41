"""keyed: a sweep and a kernel found in its op -> the problems of the kernel, one a key.

An op may launch a kernel of somebody else's several times under different keys, and each has a
winner of its own. Two problems may have one key, since the kernel's author does not find what
is between them important: then the first one decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tritune.model import KernelInfo, Problem, Sweep


def of_kernel(sweep: Sweep, info: KernelInfo) -> tuple[Sweep, tuple[str, ...]]:
    """The sweep of one kernel, and what a reader should know of its problems."""
    own = sweep if sweep.kernel else replace(sweep, kernel=info.name)
    if not info.foreign:
        return own, ()
    firsts: dict[str, Problem] = {}
    notes = [note for problem in sweep.problems for note in _claimed(problem, info, firsts)]
    keys = dict(info.keys)
    smoke = tuple(problem for problem in sweep.smoke if problem in keys)
    several = {problem for problem, under in info.keys if len(under) > 1}
    problems = tuple(
        problem.under(key) if problem in several else problem for key, problem in firsts.items()
    )
    return replace(own, problems=problems, smoke=smoke), tuple(notes)


def _claimed(problem: Problem, info: KernelInfo, firsts: dict[str, Problem]) -> Iterator[str]:
    for key in dict(info.keys).get(problem, ()):
        first = firsts.setdefault(key, problem)
        if first != problem:
            yield (f"`{problem}` and `{first}` are both `{key}` to the kernel: tuned on the latter")

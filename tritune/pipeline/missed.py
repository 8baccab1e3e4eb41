"""pipeline.missed: a job and a log of misses -> the job with the missed keys as its problems.

A key says what a launch was; a problem says how to make one. What makes a problem of a key is
found by trying: the axes that a part of the key is named like take its value, dtypes are those of
the tensors, the rest is as in the sweep file, and the op, run on fake tensors, has to have the
very key. So nothing is guessed: a key that no such problem has is told, and left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritune import keys, misslog
from tritune.device import locked
from tritune.misslog import MissLog
from tritune.model import DTYPES, KernelInfo, Missed, Problem, Report, Sweep, Target, Value
from tritune.pipeline.conclude import nothing
from tritune.pipeline.job import Job, near
from tritune.pipeline.looking import desks
from tritune.pipeline.narrowing import narrowed
from tritune.words import plural
from tritune.workers import Answer, Done

LIMIT_S = 120.0
MOST = 256
"""Problems that are tried for one key."""
SHOWN = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Guess:
    """A problem that may have a key, and the axes of it that the key does not say."""

    problem: Problem
    kept: tuple[str, ...]


def asked_for(jobs: Sequence[Job], path: Path) -> tuple[Job, ...]:
    """The jobs with the problems of what the log at *path* says of each one's kernel.

    Raises:
        TrituneError: it is no log of misses, or `--only` leaves none.
    """
    log = misslog.read(path)
    for job in jobs:
        job.warnings.extend(_cut(log, path))
    return tuple(_asked_for(job, log) for job in jobs)


def nothing_missed(job: Job) -> Report:
    """What a sweep has to say where the log leaves it nothing to do."""
    path = job.options.shapes_from or Path()
    log, name = near(path.absolute()), job.info.name
    if job.missed:
        return nothing(job, f"no problem has a key that {log} names")
    held = misslog.read(path)
    what = "launch" if held.is_trace else "miss"
    return nothing(job, f"{log} has no {what} of {name}; {_held(held, f'{what}es')}")


def names_others_alone(path: Path, reports: Sequence[Report]) -> bool:
    """Whether a log has misses, and none that these sweeps have a problem of."""
    found = any(one.problem is not None for report in reports for one in report.missed)
    return not found and bool(misslog.read(path).counts)


def _held(log: MissLog, what: str) -> str:
    """The kernels that a log names, in its order."""
    names = log.kernels
    if not names:
        return "it is empty"
    rest = len(names) - SHOWN
    more = f" and {plural(rest, 'more kernel')}" if rest > 0 else ""
    return f"it has {what} of {', '.join(names[:SHOWN])}{more}"


def guesses(rows: Sequence[Problem], key: str) -> tuple[Guess, ...]:
    """Problems that may have *key*, those with most of it first, then in the order of the file."""
    every = itertools.chain.from_iterable(_by_size(row, key) for row in rows)
    # Stable: of equally many axes that are kept, the first row of the file.
    found: dict[Problem, Guess] = {}
    for one in sorted(every, key=lambda one: len(one.kept)):
        found.setdefault(one.problem, one)
    return tuple(found.values())[:MOST]


def _cut(log: MissLog, path: Path) -> Iterator[str]:
    if log.cut:
        numbers = ", ".join(map(str, log.cut[:SHOWN]))
        more = f" and {len(log.cut) - SHOWN} more" if len(log.cut) > SHOWN else ""
        yield f"{near(path.absolute())}: left out, as they are no whole lines: {numbers}{more}"


def _asked_for(job: Job, log: MissLog) -> Job:
    found = problems_of(job.sweep, job.info, job.target, log.of(job.info.name))
    missed = tuple(replace(one, is_traced=log.is_trace) for one in found)
    problems = tuple(one.problem for one in missed if one.problem is not None)
    sweep = replace(job.sweep, problems=problems)
    return replace(job, sweep=narrowed(sweep, job.options.only), missed=missed)


def problems_of(
    sweep: Sweep, info: KernelInfo, target: Target, wanted: Sequence[tuple[str, int]]
) -> tuple[Missed, ...]:
    """Each key, with its count, and a problem as the sweep file's that has it."""
    rows = sweep.problems
    tried = [guesses(rows, key) for key, _ in wanted]
    reference = sweep.kernel or info.name, sweep.problem
    configs = tuple(dict.fromkeys((info.default, *info.configs)))
    tasks = [
        (reference, target, tuple(guess.problem for guess in some), configs, key)
        for (key, _), some in zip(wanted, tried, strict=True)
    ]
    found: dict[int, Missed] = {}
    with desks() as pool:
        for index, answer in pool.run(locked.matching, tasks, LIMIT_S):
            key, lines = wanted[index]
            found[index] = _missed(Missed(key=key, lines=lines), answer, tried[index], rows)
    return tuple(found[index] for index in sorted(found))


def _missed(
    one: Missed, answer: Answer[tuple[int, str]], tried: Sequence[Guess], rows: Sequence[Problem]
) -> Missed:
    index, why = answer.value if isinstance(answer, Done) else (-1, str(answer).splitlines()[0])
    if index < 0:
        unaligned = keys.UNALIGNED in one.key
        return replace(
            one, why=misslog.UNALIGNED if unaligned else why or "the sweep file has no problem"
        )
    guess = tried[index]
    return replace(one, problem=guess.problem, kept=guess.kept, is_listed=guess.problem in rows)


def _by_size(row: Problem, key: str) -> Iterator[Guess]:
    """*row* with the values of *key* in as many of its axes as have one, then in fewer."""
    axes, said = dict(row.written), keys.split(key)
    folded = {name.casefold(): text for name, text in said.items()}
    types = misslog.dtypes(said)
    choices: dict[str, list[Value]] = {
        name: types for name, value in axes.items() if value in DTYPES and types
    }
    values = {
        name: keys.value_of(said.get(name, folded.get(name.casefold(), "")))
        for name in axes
        if name.casefold() in folded and name not in choices
    }
    for size in range(len(values), -1, -1):
        for names in itertools.combinations(values, size):
            taken = {name: values[name] for name in names}
            for dtypes in itertools.product(*choices.values()):
                made = axes | taken | dict(zip(choices, dtypes, strict=True))
                kept = tuple(name for name in axes if name not in {*taken, *choices})
                problem = Problem.of(made)
                yield Guess(problem=problem.under(key) if row.key else problem, kept=kept)

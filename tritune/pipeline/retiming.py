"""pipeline.retiming: lockfiles and a GPU -> what each entry loses today.

After an upgrade of the driver or of Triton: the locked config, the runner-up and the default are
timed again as in a sweep, paired and interleaved in one window, in a process of their own. Times
of then and of now are of two windows and do not compare; what does is today's times with each
other. Writes no lockfile and no journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune import choose, hooks, paired, places, setting
from tritune import compile as compiling
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Entry,
    LockedKey,
    Measured,
    Outcome,
    Problem,
    Rejected,
)
from tritune.pipeline import measuring, overlap, prepare, racing
from tritune.pipeline.cases import Case
from tritune.pipeline.compiling import compilers
from tritune.pipeline.conclude import incumbents
from tritune.pipeline.job import Job, Observer, SweepOptions, start
from tritune.workers import Pool

NO_GPU = "retime measures: run it where the GPU is that the entries are of"
NO_SHAPE = "no shape asks for it"
ROUNDS = 30
"""Of the finals, where the sweep file asks for none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retimed:
    """An entry and its rivals as they are today; times in microseconds, None where not timed."""

    at: LockedKey
    config: Config
    locked_us: float
    """What its evidence says: of another day, and no part of what it loses."""
    us: float | None = None
    default_us: float | None = None
    runner_up_us: float | None = None
    runner_up: Config | None = None
    loss: float | None = None
    """How much slower it is than the faster of the two, relative; None with neither."""
    noise: float = 0.0
    """Two standard errors of the loss."""
    is_past: bool = False
    """It surely loses more than was allowed, or it does not run any more."""
    why: str = ""
    """Why it was not timed."""


@dataclass(kw_only=True)
class Retiming:
    """All entries of one GPU; what a reader should know; and what kept some from being timed."""

    target: str
    triton: str
    bound: float
    entries: list[Retimed] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    faults: list[TrituneError] = field(default_factory=list)
    wall_s: float = 0.0


Wanted = Callable[[tuple[LockedKey, Entry]], bool]


def retime(
    paths: Sequence[Path],
    options: SweepOptions,
    observer: Observer,
    *,
    bound: float,
    wanted: Wanted = lambda _: True,
) -> Retiming:
    """Time what is locked for a GPU of this machine, for the problems of some sweep files.

    Raises:
        TrituneError: there is no such GPU, or it stays disturbed.
    """
    began = time.monotonic()
    with TemporaryDirectory(prefix="tritune-") as folder:
        place = setting.gpu(options.device, Path(folder) / "device.log", hint=NO_GPU)
    found = Retiming(target=place.target.name, triton=place.triton, bound=bound)
    for path in paths:
        try:
            for job in start(path, options, observer, setting=place):
                found.entries += _retime(job, bound, wanted)
                found.warnings += job.warnings
        except EnvironmentFaultError:
            raise
        except TrituneError as fault:
            found.faults.append(fault)
    found.wall_s = time.monotonic() - began
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Match:
    """An entry, its problem, and whom it is timed with."""

    at: LockedKey
    entry: Entry
    problem: Problem
    runner_up: Config | None

    def candidates(self, default: Config) -> tuple[Candidate, ...]:
        configs = dict.fromkeys((default, self.entry.config, self.runner_up or default))
        kernel = self.at.kernel
        return tuple(Candidate(kernel=kernel, problem=self.problem, config=one) for one in configs)


def _retime(job: Job, bound: float, wanted: Wanted) -> Iterator[Retimed]:
    held = {
        at: entry for key, entry in incumbents(job).items() if wanted((at := _at(job, key), entry))
    }
    if not held:
        return
    timed: dict[LockedKey, Retimed] = {}
    with compilers(job) as pool:
        defaults = [_candidate(job, problem, job.info.default) for problem in job.sweep.problems]
        found = compiling.find_launches(pool, defaults, job.observer.advance)
        keys = {one.candidate.problem: one.key for one in found.launches if one.grids}
        matches = tuple(_matches(job, keys, held))
        lost = {one.at: why for one in matches if (why := _lost_hook(job, one.entry))}
        there = (one for one in matches if one.at not in lost)
        able = tuple(one for one in there if prepare.can_launch(job, one.entry.config))
        made, rejected = _compile(job, pool, able)
    outcomes = _race(job, made, able)
    for one in matches:
        if one.at in lost:
            timed[one.at] = _plain(one.at, one.entry, why=lost[one.at], is_past=True)
        else:
            timed[one.at] = _retimed(job, one, (*rejected, *outcomes), bound)
    # Of an op that fails the key is not known, so any entry that is left may be its own.
    failed = next((f"{one.candidate.problem}: {one.detail}" for one in found.rejected), "")
    for at, entry in held.items():
        left = _plain(at, entry, why=failed or NO_SHAPE, is_past=bool(failed))
        yield timed.get(at) or left


def _lost_hook(job: Job, entry: Entry) -> str:
    """Why a launch misses it, so that its time without the hook says nothing."""
    return hooks.gone(entry.evidence.hook, job.info.hook_of(entry.config))


def _at(job: Job, key: str) -> LockedKey:
    return LockedKey(kernel=job.info.name, device=job.target.name, key=key)


def _candidate(job: Job, problem: Problem, config: Config) -> Candidate:
    return Candidate(kernel=job.info.name, problem=problem, config=config)


def _plain(at: LockedKey, entry: Entry, *, why: str, is_past: bool = False) -> Retimed:
    return Retimed(
        at=at, config=entry.config, locked_us=entry.evidence.us, why=why, is_past=is_past
    )


def _matches(
    job: Job, keys: Mapping[Problem, str], held: Mapping[LockedKey, Entry]
) -> Iterator[_Match]:
    known = _known(job)
    for problem, key in keys.items():
        at = _at(job, key)
        if at in held:
            outcomes = measuring.of_problem(known, problem).values()
            away = (held[at].config, job.info.default)
            best = choose.runner_up(tuple(outcomes), away)
            runner_up = best if best and prepare.can_launch(job, best) else None
            yield _Match(at=at, entry=held[at], problem=problem, runner_up=runner_up)


def _known(job: Job) -> Mapping[tuple[Problem, Config], Outcome]:
    """What the journal of the sweep holds, or the record beside it, under any Triton."""
    both = job.journal, places.record_path(Path(job.sweep.path), job.target.name)
    for journal in (one for one in both if one.is_file()):
        known = measuring.known_outcomes(job, Journal.open(journal, read_only=True), None)
        if known:
            return known
    return {}


def _compile(
    job: Job, pool: Pool, matches: Sequence[_Match]
) -> tuple[tuple[Compiled, ...], tuple[Rejected, ...]]:
    """As a sweep does it: equal binaries are one, led by what is locked."""
    default = job.info.default
    candidates = tuple(dict.fromkeys(c for one in matches for c in one.candidates(default)))
    if not candidates:
        return (), ()
    ours = {(one.problem, one.entry.config) for one in matches}
    narrowed = replace(job, sweep=replace(job.sweep, problems=tuple(m.problem for m in matches)))

    def lead(candidate: Candidate) -> bool:
        return (candidate.problem, candidate.config) in ours

    found = compiling.find_launches(pool, candidates, job.observer.advance)
    groups, failed = prepare.group(narrowed, pool, found, lead)
    compiled, more = overlap.compile_all(narrowed, pool, groups, found, lead=lead)
    return compiled, (*found.rejected, *failed, *more)


def _race(job: Job, compiled: Sequence[Compiled], matches: Sequence[_Match]) -> tuple[Outcome, ...]:
    cases = [
        Case(compiled=those, incumbent=one.entry.config)
        for one in matches
        if (those := tuple(made for made in compiled if made.candidate.problem == one.problem))
    ]
    if cases:
        timing = job.sweep.timing
        timing = replace(timing, final_rounds=timing.final_rounds or ROUNDS)
        timed = replace(job, sweep=replace(job.sweep, timing=timing))
        with closing(racing.open_device(timed, racing.process(timed))) as device:
            racing.confirm(timed, racing.race(timed, cases, device, lambda _, __: None))
    return tuple(outcome for case in cases for outcome in case.outcomes)


def _retimed(job: Job, one: _Match, outcomes: Sequence[Outcome], bound: float) -> Retimed:
    def of(config: Config | None) -> Outcome | None:
        every = (o for o in outcomes if o.candidate.problem == one.problem and config in _all(o))
        return next(every, None)

    winner, default, runner_up = map(of, (one.entry.config, job.info.default, one.runner_up))
    if not isinstance(winner, Measured):
        why = (
            f"{winner.reason.value}: {winner.detail}" if winner else "the kernel has other tunables"
        )
        return _plain(one.at, one.entry, why=why, is_past=True)
    rivals = [rival for rival in (default, runner_up) if isinstance(rival, Measured)]
    lags = [_lag(winner, rival) for rival in rivals if rival is not winner]
    worst = max(lags, key=lambda lag: lag.excess, default=None)
    return Retimed(
        at=one.at,
        config=one.entry.config,
        locked_us=one.entry.evidence.us,
        us=winner.median_us,
        default_us=_us(default),
        runner_up_us=_us(runner_up),
        runner_up=one.runner_up,
        loss=max(worst.excess, 0.0) if worst else None,
        noise=worst.noise if worst else 0.0,
        is_past=any(lag.is_slower_by(bound) for lag in lags),
    )


def _all(outcome: Outcome) -> tuple[Config, ...]:
    aliases = outcome.compiled.aliases if isinstance(outcome, Measured) else ()
    return (outcome.candidate.config, *aliases)


def _lag(winner: Measured, rival: Measured) -> paired.Comparison:
    """What the process says in which the winner loses least: where it loses, two were asked."""
    floor = max(winner.floor, rival.floor)
    asked = [(winner.confirm_us, rival.confirm_us), (winner.doubted_us, rival.doubted_us)]
    both = [(one, other) for one, other in asked if one and other]
    if not both:
        both = [(winner.finals_us or winner.samples_us, rival.finals_us or rival.samples_us)]
    return min((paired.compare(*each, floor) for each in both), key=lambda lag: lag.excess)


def _us(outcome: Outcome | None) -> float | None:
    return outcome.median_us if isinstance(outcome, Measured) else None

"""pipeline.job: a sweep file, the options and this machine -> everything known before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

from tritune import contract, keyed, places, references, space, spec
from tritune.cores import default_jobs
from tritune.device import targets
from tritune.discover import discover, needs_op, open_op
from tritune.errors import TrituneError
from tritune.load import describe_all
from tritune.model import Config, KernelInfo, Missed, Problem, Step, Sweep, Target
from tritune.pipeline.named import Named
from tritune.pipeline.narrowing import narrowed, with_problems
from tritune.pipeline.values import refuse_illegal
from tritune.places import Places
from tritune.setting import Setting, find
from tritune.workers import Answer, Done, Raised, Worker

T = TypeVar("T")

LOAD_LIMIT_S = 45.0
DISCOVER_LIMIT_S = 300.0
"""An op is run once on every problem, with no launch; mostly 0.1 s each."""


class Observer(Protocol):
    """Who is told what a sweep is doing."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins, of *total* steps where that is known."""

    def advance(self, text: str = "") -> None:
        """One step is done."""

    def say(self, text: str) -> None:
        """A line that stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepOptions:
    """What the command line says of a sweep."""

    only: str | None = None
    device: str | None = None
    target: str | None = None
    lockfile: Path | None = None
    dry_run: bool = False
    jobs: int | None = None
    compile_budget_s: float = 120.0
    compile_limit_s: float | None = None
    compiled: Path | None = None
    """A folder of binaries that `compile` made."""
    journal: Path | None = None
    fresh: bool = False
    budget_s: float | None = None
    """Seconds of measuring on the GPU."""
    allow_noisy: bool = False
    stale: bool = False
    shapes_from: Path | None = None
    """A log of misses, whose keys are the problems."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One sweep of one kernel: everything that is known before it starts."""

    sweep: Sweep
    options: SweepOptions
    info: KernelInfo
    setting: Setting
    places: Places
    observer: Observer
    started: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    missed: tuple[Missed, ...] = ()
    """What the log of misses named of this kernel, where the problems are from one."""
    left_open: list[Problem] = field(default_factory=list)
    """Problems that a budget did not reach."""
    not_interpreted: list[Config] = field(default_factory=list)
    """Sets of meta-parameters that no smoke problem reached in the interpreter."""

    @property
    def target(self) -> Target:
        return self.setting.target

    @property
    def lockfile(self) -> Path:
        return self.options.lockfile or Path(self.info.lockfile)

    @property
    def journal(self) -> Path:
        return places.journal_path(self.places.journals, Path(self.sweep.path), self.target.name)

    @property
    def journal_source(self) -> str:
        """What outcomes are of: an edit of the op or its reference may make right what was not."""
        hooks = "".join(f".{hook}" for hook in dict.fromkeys(self.info.hooks) if hook)
        return f"{self.info.source}.{self.info.problem_source}{hooks}"

    @property
    def near_constraints(self) -> dict[str, tuple[str, ...]]:
        """What has to hold where near serves another size, by kernel."""
        return near_constraints(self.sweep, self.target, self.info)

    @property
    def jobs(self) -> int:
        return self.options.jobs or default_jobs()

    @contextmanager
    def step(self, name: str, total: int | None) -> Iterator[list[str]]:
        """One stage: told as it goes, and kept as a line of the report."""
        said: list[str] = []
        began = time.monotonic()
        self.observer.stage(name, total)
        yield said
        text = " · ".join(said)
        self.steps.append(Step(name=name, text=text, seconds=time.monotonic() - began))


def near_constraints(sweep: Sweep, target: Target, info: KernelInfo) -> dict[str, tuple[str, ...]]:
    """What has to hold where near serves another size, by kernel."""
    if info.near is None:
        return {}
    # Of the problem function, not of the problems: a sweep may be of some of them only.
    axes = {name for name, _ in info.problem_params}
    admits = space.constraints(sweep, target)
    return {info.name: tuple(one.text for one in admits if one.names & axes)}


def start(
    path: Path,
    options: SweepOptions,
    observer: Observer,
    setting: Setting | Callable[[Target], Setting] | None = None,
) -> tuple[Job, ...]:
    """Read the file, ask the kernel module what it is, and find where the times come from.

    One job a kernel: a file that names only a problem tunes every kernel that its op launches.
    With a *setting* no GPU is looked for: it is that, or makes one of the target that options or
    file name.
    """
    sweep = checked(path, options, is_named=callable(setting))
    logs = places.made(places.cache_folder() / "logs")
    observer.stage("loading the kernel", None)
    infos = describe_kernels(sweep, options, logs / "load.log")
    if isinstance(setting, Setting):
        place = setting
    elif setting is None:
        place = find(sweep, device=options.device, target=options.target, log=logs / "device.log")
    else:
        place = setting(named_target(sweep, options))
    infos = launched(sweep, infos, place.target, logs / "load.log")
    if not options.shapes_from:
        infos = _without_idle(sweep, infos, options, observer)
    folders = Places.of(
        sources=(info.source for info in infos),
        target=f"{place.target.backend}:{place.target.arch}",
        journals=options.journal,
        journaled=setting is None and not options.dry_run,
    )
    jobs = []
    for info in infos:
        space.check_against(sweep, info)
        own, notes = keyed.of_kernel(sweep, info)
        jobs.append(
            Job(
                sweep=own,
                options=options,
                info=info,
                setting=place,
                places=folders,
                observer=observer,
                warnings=[*info.notes, *notes],
            )
        )
    return _named(jobs)


def _without_idle(
    sweep: Sweep, infos: tuple[KernelInfo, ...], options: SweepOptions, observer: Observer
) -> tuple[KernelInfo, ...]:
    kept = with_problems(sweep, infos, options.only)
    if idle := contract.quoted(info.short for info in infos if info not in kept):
        observer.say(f"not tuned, as only a smoke problem launches it: {idle}")
    return kept


def _named(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """With the kernel's name in what is told of each, where there are several."""
    if len(jobs) == 1:
        return tuple(jobs)
    return tuple(replace(job, observer=Named(job.observer, job.info.short)) for job in jobs)


def checked(path: Path, options: SweepOptions, *, is_named: bool) -> Sweep:
    """The sweep of a file, once all is right that can be told before anything is imported.

    With *is_named* the target has to be named, by the options or by the file.
    """
    sweep = read(path, options)
    if is_named or options.target:
        named_target(sweep, options)
    for reference, kinds in ((sweep.kernel, "tunable kernels"), (sweep.problem, "functions")):
        if reference:
            references.refuse(reference, kinds)
    return sweep


def named_target(sweep: Sweep, options: SweepOptions) -> Target:
    """The target of `--target`, else the file's first.

    Raises:
        TrituneError: neither names one.
    """
    name = options.target or next(iter(sweep.targets), None)
    if name is None:
        raise TrituneError(
            "no target is named", where=sweep.path, hint="name one with --target, or add `targets:`"
        )
    return targets.find(name)


def read(path: Path, options: SweepOptions) -> Sweep:
    sweep = spec.read_sweep(path)
    refuse_illegal(sweep)
    # Of a log of misses, it is the problems of that which are narrowed.
    return sweep if options.shapes_from else narrowed(sweep, options.only)


def describe_kernels(sweep: Sweep, options: SweepOptions, log: Path) -> tuple[KernelInfo, ...]:
    """Those that the file names, or that are decorated; none where only the op can tell."""
    named = sweep.problem and (options.target or sweep.targets)  # its package may ask for a GPU
    with _opened(sweep, named_target(sweep, options) if named else None, log) as worker:
        answer = worker.call(describe_all, timeout_s=LOAD_LIMIT_S)
    return loaded(answer, sweep.kernel or sweep.problem, sweep.path)


def launched(
    sweep: Sweep, infos: tuple[KernelInfo, ...], target: Target, log: Path
) -> tuple[KernelInfo, ...]:
    """The same, with kernels that nobody decorated found by running the op up to its launches."""
    if not needs_op(infos):
        return infos
    with _opened(sweep, target, log) as worker:
        answer = worker.call(discover, sweep, target, timeout_s=DISCOVER_LIMIT_S)
    return loaded(answer, sweep.kernel or sweep.problem, sweep.path, verb="run")


def _opened(sweep: Sweep, target: Target | None, log: Path) -> Worker:
    return Worker(open_op, sweep.kernel, sweep.problem, target, log=log, setup_limit_s=LOAD_LIMIT_S)


def loaded(answer: Answer[T], what: str | None, where: str = "", *, verb: str = "loaded") -> T:
    """What a worker answers that loads the user's module, or whatever else the *verb* says.

    Raises:
        TrituneError: what it raises; or the module exits, hangs or dies instead.
    """
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case _:
            raise TrituneError(f"`{what}` cannot be {verb}: {answer}", where=where)


def near(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

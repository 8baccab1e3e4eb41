"""pipeline.prebuilding: lockfiles -> the binaries of what is locked, in Triton's own cache.

For the build of an image, or the start of a server: a launch of a locked key then compiles
nothing. Needs no GPU where a target is named; writes no lockfile and no journal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune import hooks, places, setting
from tritune.cores import default_jobs
from tritune.device import locked, targets, toolchain
from tritune.errors import TrituneError
from tritune.model import Entry, KernelInfo, Lock, LockedKey, Problem, Target
from tritune.pipeline.checking import CheckOptions, asked_for, by_root, chip_of, chips_of, is_called
from tritune.pipeline.job import Observer
from tritune.pipeline.looking import Asked, Lockfile, builders, seen_of, tried
from tritune.workers import Answer, Done, Pool, Raised

CACHE_LIMIT_S = 60.0
NO_SWEEP = "no sweep file tunes this kernel"
NO_GPU = "name what to compile for: --target H200"


class Fate(Enum):
    """What became of an entry. The value is what is shown."""

    COMPILED = "compiled"
    CACHED = "in the cache already"
    FAILED = "failed"
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


UNBUILT = frozenset({Fate.FAILED, Fate.UNKNOWN})
"""Asked for, and a launch of it has to compile, or fails."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PrebuildOptions:
    """What the command line says of it."""

    target: str | None = None
    device: str | None = None
    lockfiles: tuple[Path, ...] = ()
    """These; each kernel's own, where none is given."""
    jobs: int | None = None
    compile_limit_s: float | None = None
    whole: bool = False
    """The sweep files are all that the project has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prebuilt:
    """One entry, and what became of it."""

    at: LockedKey
    file: str
    line: int
    fate: Fate
    why: str = ""
    problem: Problem | None = None
    seconds: float = 0.0


@dataclass(kw_only=True)
class Prebuilding:
    """The entries in the order of the files; and what kept some from being looked at."""

    target: str
    folder: str = ""
    """Triton's compile cache."""
    lockfiles: list[str] = field(default_factory=list)
    entries: list[Prebuilt] = field(default_factory=list)
    faults: list[TrituneError] = field(default_factory=list)
    wall_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Held:
    """One kernel, one lockfile, and the devices of it that are meant, by label."""

    asked: Asked
    chips: Mapping[str, Target]


@dataclass(frozen=True, kw_only=True)
class _Task:
    """One problem of one kernel on one device of its lockfile."""

    asked: Asked
    label: str
    chip: Target
    problem: Problem


def prebuild(paths: Sequence[Path], options: PrebuildOptions, observer: Observer) -> Prebuilding:
    """Compile all that the lockfiles hold for one GPU, for the problems of some sweep files.

    Raises:
        TrituneError: there is no such target, no GPU, no assembler that works, or no cache that
            can be written.
    """
    began = time.monotonic()
    place = _place(options)
    made = Prebuilding(target=place.target.name if place else options.target or "")
    every: list[_Held] = []
    for some in by_root(paths, made.faults):
        with builders(options.jobs or default_jobs()) as pool:
            made.folder = made.folder or _folder(pool)
            held = [
                _Held(asked=each, chips=_wanted(each.file.lock, options, place))
                for one in asked_for(pool, some, {}, CheckOptions(), made.faults)
                for each in _in_files(one, options)
            ]
            made.entries += _compile(pool, held, made.faults, options, observer)
            every += held
    made.entries += _left_over(every, made, options)
    made.lockfiles += dict.fromkeys(one.asked.file.shown for one in every)
    made.wall_s = time.monotonic() - began
    return made


def _place(options: PrebuildOptions) -> setting.Setting | None:
    if options.target is not None:
        toolchain.check(targets.find(options.target), launches=False)
        return None
    with TemporaryDirectory(prefix="tritune-") as folder:
        found = setting.gpu(options.device, Path(folder) / "device.log", hint=NO_GPU)
    toolchain.check(found.target, launches=True)
    return found


def _folder(pool: Pool) -> str:
    """Triton's compile cache, which is what all of the work is for.

    Raises:
        EnvironmentFaultError: it takes no file.
    """
    [(_, answer)] = pool.run(locked.own_cache, [()], CACHE_LIMIT_S)
    folder = answer.value if isinstance(answer, Done) else ""
    if folder:
        hint = "set TRITON_CACHE_DIR to a folder that can be written"
        places.refuse_unwritable(Path(folder), hint=hint)
    return folder


def _in_files(asked: Asked, options: PrebuildOptions) -> Iterator[Asked]:
    """A kernel with each of the lockfiles that are named; with its own, where none is."""
    if not options.lockfiles:
        yield asked
    for path in options.lockfiles:
        yield replace(asked, file=Lockfile(path))


def _wanted(
    held: Lock, options: PrebuildOptions, place: setting.Setting | None
) -> Mapping[str, Target]:
    if place is not None:
        return chip_of(place, held)
    name = options.target or ""
    return {label: chip for label, chip in chips_of(held).items() if is_called(chip, name)}


def _compile(
    pool: Pool,
    held: Sequence[_Held],
    faults: list[TrituneError],
    options: PrebuildOptions,
    observer: Observer,
) -> list[Prebuilt]:
    tasks = [
        _Task(asked=one.asked, label=label, chip=chip, problem=problem)
        for one in held
        for label, chip in one.chips.items()
        if one.asked.entries(label)
        for problem in one.asked.sweep.problems
    ]
    observer.stage("compiling what is locked", len(tasks))
    # Of the files' own limits the longest: one pool has one.
    limits = [one.asked.sweep.timing.compile_limit_s for one in held]
    limit_s = options.compile_limit_s or max(limits, default=0.0)
    found: dict[int, Prebuilt] = {}
    for index, answer in pool.run(locked.build, [_call(task) for task in tasks], limit_s):
        observer.advance(str(tasks[index].problem))
        if isinstance(answer, Raised) and answer.error is not None:
            faults.append(answer.error)
        elif (one := _told(tasks[index], answer)) is not None:
            found[index] = one
    return [found[index] for index in sorted(found)]


def _call(task: _Task) -> tuple[object, ...]:
    configs, held = tried(task.asked, task.asked.entries(task.label))
    return task.asked.reference, task.chip, task.problem, configs, held


def _told(task: _Task, answer: Answer[locked.Seen]) -> Prebuilt | None:
    """What became of the entry of a problem; None where nothing is locked for it."""
    asked = task.asked
    seen = seen_of(answer)
    at = LockedKey(kernel=asked.info.name, device=task.label, key=seen.key)
    entry = asked.entries(task.label).get(seen.key)
    if not seen.unknown and entry is None:
        return None
    fate, why = _fate(seen, entry, asked.info)
    return Prebuilt(
        at=at,
        file=asked.file.shown,
        line=asked.file.line(at),
        fate=fate,
        why=why,
        problem=task.problem,
        seconds=round(seen.seconds, 3),
    )


def _fate(seen: locked.Seen, entry: Entry | None, info: KernelInfo) -> tuple[Fate, str]:
    broken = seen.broken
    if entry is not None and not broken:  # a miss launches something else
        broken = hooks.gone(entry.evidence.hook, info.hook_of(entry.config))
    if broken:
        return Fate.FAILED, broken
    if seen.unknown:
        return Fate.UNKNOWN, seen.unknown
    return Fate.COMPILED if seen.seconds else Fate.CACHED, ""


def _left_over(
    every: Sequence[_Held], made: Prebuilding, options: PrebuildOptions
) -> Iterator[Prebuilt]:
    """Entries for which there is no problem, so that nobody knows how they are launched."""
    if made.faults:  # what could not be read may ask for them
        return
    built = {(one.file, one.at) for one in made.entries}
    unsure = {(one.file, one.at.kernel) for one in made.entries if one.fate is Fate.UNKNOWN}
    kernels = {one.asked.info.name for one in every}
    for held in {one.asked.file.shown: one for one in every}.values():
        file = held.asked.file
        for at, _ in file.lock.entries:
            why = "no shape asks for it" if at.kernel in kernels else NO_SWEEP
            asked_for_it = (file.shown, at) in built or (file.shown, at.kernel) in unsure
            ours = at.device in held.chips and (at.kernel in kernels or options.whole)
            if ours and not asked_for_it:
                line = file.line(at)
                yield Prebuilt(at=at, file=file.shown, line=line, fate=Fate.ORPHAN, why=why)

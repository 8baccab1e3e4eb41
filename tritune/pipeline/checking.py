"""pipeline.checking: sweep files -> Findings about their lockfiles, with no GPU; writes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune import devicelabels, keyed, space, spec
from tritune.check import DUE, Finding, Status
from tritune.contract import root
from tritune.device import targets
from tritune.errors import TrituneError
from tritune.model import Lock, LockedKey, Report, Sweep, Target
from tritune.pipeline.conclude import nothing
from tritune.pipeline.job import Job, SweepOptions
from tritune.pipeline.looking import Asked, Lockfile, described, desks, look
from tritune.setting import Setting, find
from tritune.words import plural
from tritune.workers import Pool


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """What the command line says of a check."""

    targets: tuple[str, ...] = ()
    """Only these; all that the files name and the lockfiles hold, where none is given."""
    lockfile: Path | None = None
    whole: bool = False
    """The files are all that the project has, so a kernel that none of them names is an orphan."""


@dataclass(kw_only=True)
class Checked:
    """The findings, in the order of the files; and what kept some of it from being checked."""

    findings: list[Finding] = field(default_factory=list)
    faults: list[TrituneError] = field(default_factory=list)


def check(paths: Sequence[Path], options: CheckOptions) -> Checked:
    """Compare what the lockfiles of some sweep files say with today's code and files."""
    for name in options.targets:
        targets.find(name)
    checked = Checked()
    asked: list[Asked] = []
    files: dict[Path, Lockfile] = {}
    for some in by_root(paths, checked.faults):
        with desks() as pool:
            for one in asked_for(pool, some, files, options, checked.faults):
                asked.append(one)
                chips = {
                    label: chip
                    for label, chip in chips_of(one.file.lock).items()
                    if one.entries(label) and _is_wanted(chip, options)
                }
                checked.findings += look(pool, one, chips, checked.faults)
                checked.findings += _targets_without_entries(one, chips, options)
    checked.findings += _left_over(asked, checked, options)
    return checked


def not_fresh(paths: Sequence[Path], options: SweepOptions) -> tuple[Path, ...]:
    """The files with something due on the device of a sweep, or with a mistake for it to tell.

    All of them are looked at by the same few processes: one file after the other, a project of
    six would take three times as long, and on most days there is nothing to do.
    """
    fresh: dict[str, bool] = {}
    faults: list[TrituneError] = []
    files: dict[Path, Lockfile] = {}
    place: Setting | None = None
    for some in by_root(paths, faults):
        with desks() as pool:
            here = CheckOptions(lockfile=options.lockfile)
            for one in asked_for(pool, some, files, here, faults):
                try:
                    # A GPU is the same one for every file, and asking it takes seconds.
                    place = place if place and place.index is not None else _place(one, options)
                    found = look(pool, one, chip_of(place, one.file.lock), faults)
                    is_fresh = not any(finding.status in DUE for finding in found)
                except TrituneError as fault:
                    faults.append(fault)
                    is_fresh = False
                fresh[one.sweep.path] = fresh.get(one.sweep.path, True) and is_fresh
    return tuple(path for path in paths if faults or not fresh.get(str(path), False))


def _place(asked: Asked, options: SweepOptions) -> Setting:
    with TemporaryDirectory(prefix="tritune-") as folder:
        log = Path(folder) / "device.log"
        return find(asked.sweep, device=options.device, target=options.target, log=log)


def due(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs with only those problems that a check calls stale, missing or unsettled."""
    with desks() as pool:
        version, _ = described(pool, jobs[0].sweep)
        return tuple(_due(pool, job, version) for job in jobs)


def _due(pool: Pool, job: Job, version: str) -> Job:
    asked = Asked(sweep=job.sweep, info=job.info, file=Lockfile(job.lockfile), triton=version)
    faults: list[TrituneError] = []
    found = look(pool, asked, chip_of(job.setting, asked.file.lock), faults)
    if faults:
        raise faults[0]
    wanted = {finding.problem for finding in found if finding.status in DUE}
    kept = tuple(problem for problem in job.sweep.problems if problem in wanted)
    return replace(job, sweep=replace(job.sweep, problems=kept))


def nothing_due(job: Job) -> Report:
    """What a sweep of stale entries has to say where there are none."""
    return nothing(job, "no entry is stale, missing or unsettled")


def chip_of(place: Setting, held: Lock) -> dict[str, Target]:
    """The device of a sweep, by what a lockfile calls it: nothing, where it has none such."""
    if place.identity is not None:
        found = devicelabels.find(held.devices, place.identity)
        same = [found.name] if found else []
    else:
        same = [label for label, chip in chips_of(held).items() if chip.name == place.target.name]
    return {same[0] if same else "": place.target}


def chips_of(held: Lock) -> dict[str, Target]:
    """The devices that a lockfile knows, by label."""
    return {device.name: targets.of_device(device) for device in held.devices}


def by_root(paths: Sequence[Path], faults: list[TrituneError]) -> list[list[Sweep]]:
    """The sweeps by the folder that their modules are imported from.

    A process that has imported one `ops` cannot import another.
    """
    by_root: dict[Path | None, list[Sweep]] = defaultdict(list)
    for path in paths:
        try:
            sweep = spec.read_sweep(path)
        except TrituneError as fault:
            faults.append(fault)
        else:
            by_root[_root(sweep)].append(sweep)
    return list(by_root.values())


def _root(sweep: Sweep) -> Path | None:
    module = Path((sweep.problem or sweep.kernel or "").rpartition(":")[0])
    # A dotted name means the same everywhere.
    return root(module) if module.suffix == ".py" else None


def asked_for(
    pool: Pool,
    sweeps: Sequence[Sweep],
    files: dict[Path, Lockfile],
    options: CheckOptions,
    faults: list[TrituneError],
) -> Iterator[Asked]:
    for sweep in sweeps:
        try:
            version, infos = described(pool, sweep)
            for info in infos:
                space.check_against(sweep, info)
                at = options.lockfile or Path(info.lockfile)
                files[at] = files.get(at) or Lockfile(at)
                own, _ = keyed.of_kernel(sweep, info)
                yield Asked(sweep=own, info=info, file=files[at], triton=version)
        except TrituneError as fault:
            if str(fault) not in map(str, faults):  # one lockfile is that of many sweep files
                faults.append(fault)


def _is_wanted(chip: Target, options: CheckOptions) -> bool:
    return not options.targets or any(is_called(chip, name) for name in options.targets)


def is_called(chip: Target, name: str) -> bool:
    """Whether a chip is what a sweep file or a command line calls *name*."""
    if ":" in name:
        return name.lower() == f"{chip.backend}:{chip.arch}"
    return name.lower() == chip.name.lower()


def _targets_without_entries(
    asked: Asked, chips: dict[str, Target], options: CheckOptions
) -> Iterator[Finding]:
    """What the file says it ships on, and what was asked for, of which nothing is locked."""
    if not asked.sweep.problems:  # only a smoke problem launches it
        return
    named = options.targets or asked.sweep.targets
    why = f"nothing is locked for any of its {plural(len(asked.sweep.problems), 'problem')}"
    for name in named:
        if not any(is_called(chip, name) for chip in chips.values()):
            yield asked.finding(Status.MISSING, why, "targets", name)
    if not named and not chips:
        yield asked.finding(Status.MISSING, why, "shapes", "")


def _left_over(
    asked: Sequence[Asked], checked: Checked, options: CheckOptions
) -> Iterator[Finding]:
    """Entries that nothing asks for."""
    if checked.faults:  # what could not be read may ask for them
        return
    found = checked.findings
    wanted = {(one.file, one.kernel, one.device, one.key) for one in found}
    unsure = {(one.kernel, one.device) for one in found if not one.key and one.problem}
    kernels = {one.info.name for one in asked}
    for file in {id(one.file): one.file for one in asked}.values():
        chips = chips_of(file.lock)
        for at, _ in file.lock.entries:
            known = (file.shown, at.kernel, at.device, at.key) in wanted
            if known or (at.kernel, at.device) in unsure:
                continue
            if at.device in chips and not _is_wanted(chips[at.device], options):
                continue
            if at.kernel in kernels or options.whole:
                status, why = _unasked(at, kernels, chips)
                yield _left(file, at, status, why)


def _unasked(at: LockedKey, kernels: set[str], chips: dict[str, Target]) -> tuple[Status, str]:
    if at.kernel not in kernels:
        return Status.ORPHAN, "no sweep file tunes this kernel"
    if at.device not in chips:
        return Status.UNKNOWN, f'"devices" does not say what {at.device} is'
    return Status.ORPHAN, "no shape asks for it"


def _left(file: Lockfile, at: LockedKey, status: Status, why: str) -> Finding:
    return Finding(
        status=status,
        why=why,
        kernel=at.kernel,
        device=at.device,
        key=at.key,
        sweep="",
        problem=None,
        file=file.shown,
        line=file.line(at),
    )

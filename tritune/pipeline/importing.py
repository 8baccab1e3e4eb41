"""pipeline.importing: tables of other tools -> entries of a lockfile, marked as unmeasured.

They are served as they are, and incumbents in the next sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tritune import devicelabels, keytext, lock
from tritune.axisvalues import did_you_mean
from tritune.configtables import Table
from tritune.device import targets
from tritune.errors import NothingFitsError, TableError, of_many
from tritune.model import DeviceIdentity, Entry, Evidence, Lock, LockedKey, Problem
from tritune.pipeline import questions, tablefiles, unasked
from tritune.pipeline.receiving import Home, Taken, home, take
from tritune.pipeline.swept import keys_of
from tritune.pipeline.unasked import Unasked

_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportOptions:
    """What the command line says of an import."""

    kernel: str | None = None
    sweep: Path | None = None
    device: str | None = None
    lockfile: Path | None = None
    form: str | None = None
    axis: str = "M"
    key: str = ""
    renames: Mapping[str, str] = field(default_factory=dict)
    force: bool = False
    project: tuple[Path, ...] = ()
    """Its sweep files, to say which keys none of them asks for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What became of one table."""

    path: str
    kernel: str
    device: str
    lockfile: Path
    fates: Mapping[str, str]
    """Key -> `added`, `replaced`, `there` or `kept`."""
    overruled: str
    """What the file's name calls the device, where --device says that it is another."""
    taken: Taken
    unasked: Unasked | None = None
    """What no shape asks for, of an import without a sweep file; None where it is not known."""

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.fates.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Imports:
    """What became of several tables."""

    tables: tuple[Imported, ...]
    left: tuple[TableError, ...]
    """What is not taken of them, or of some of them, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fit:
    """A table of which something is for the kernel."""

    table: Table
    device: DeviceIdentity
    taken: Taken


def import_tables(files: Sequence[str], options: ImportOptions) -> Imports:
    """Take every file's configs into the lockfile; nothing is written if one of them is wrong.

    Of several, as a pattern of the shell names them, those that fit the kernel are taken.

    Raises:
        TrituneError: a table is wrong, or none fits the kernel.
    """
    if options.sweep is not None and options.key:
        what = "it is for an import without --sweep, whose problems have all of a key"
        raise TableError(what, where="--key")
    left: list[TableError] = []
    tables = _fitting(files, lambda file: tablefiles.read(file, options.form, options.axis), left)
    _refuse_unknown(options.renames, tables)
    to = home(options.sweep, options.kernel)
    path = options.lockfile or to.lockfile
    lock.refuse_unwritable(path)
    if to.swept is None:
        keytext.check(options.key, to.receiver)
    found = _fitting(tables, _receive(to, path, options), left)
    left += (error for fit in found for error in fit.taken.failing)
    fits = _settled(found, left)
    if not fits:
        raise of_many(left)
    written = [_write(one, to, path, force=options.force) for one in fits]
    if options.sweep is None:
        tuning = unasked.files_of(to.receiver.kernel, options.project)
        written = [
            replace(one, unasked=unasked.find(tuning, tuple(one.fates), fit.device))
            for one, fit in zip(written, fits, strict=True)
        ]
    return Imports(tables=tuple(written), left=tuple(left))


def _refuse_unknown(renames: Mapping[str, str], tables: Sequence[Table]) -> None:
    known = {name for table in tables for row in table.rows for name, _ in row.values}
    for name in renames:
        if name not in known:
            what = f"no config has a `{name}`"
            raise TableError(what, where="--rename", hint=did_you_mean(name, sorted(known)))


def _fitting(given: Sequence[_A], take_one: Callable[[_A], _B], left: list[TableError]) -> list[_B]:
    """What is made of those that fit; the others are told in *left*, or raised if none does."""
    found = []
    for one in given:
        try:
            found.append(take_one(one))
        except NothingFitsError as error:
            left.append(error)
    if not found:
        raise of_many(left)
    return found


def _receive(to: Home, path: Path, options: ImportOptions) -> Callable[[Table], _Fit]:
    keys: dict[DeviceIdentity, dict[str, Problem]] = {}

    def receive(table: Table) -> _Fit:
        device = _device(table, options.device, path)
        if to.swept is not None and device not in keys:
            keys[device] = keys_of(to.swept, device)
        asked = keys.get(device, {})
        try:
            taken = take(table, device, to, asked, renames=options.renames, template=options.key)
        except TableError as error:
            if table.function:  # Triton's cache keeps what an older source of the kernel could run
                raise NothingFitsError(error.what, where=error.where, hint=error.hint) from None
            raise
        return _Fit(table=table, device=device, taken=taken)

    return receive


def _device(table: Table, named: str | None, path: Path) -> DeviceIdentity:
    """The silicon that a table is of: as the lockfile knows it, else as the data sheets do."""
    name = named or table.device
    if not name:
        return _here(table)
    known = [*lock.read(path).devices, *map(targets.identity, targets.TARGETS)]
    found = devicelabels.named(known, name)
    if found is None:
        raise TableError(
            f"`{name}` is no device that is known here",
            where="--device" if named else table.path,
            hint=f"--device NAME: {', '.join(dict.fromkeys(one.name for one in known))}",
        )
    return found


def _overruled(table: Table, device: DeviceIdentity) -> str:
    meant = devicelabels.named([device], table.device) if table.device else device
    return "" if meant else table.device


def _here(table: Table) -> DeviceIdentity:
    found = questions.device()
    if found is None:
        what = "it does not say which GPU it is of, and there is none here"
        raise TableError(what, where=table.path, hint="--device H200 says it")
    return targets.identity(found)


def _settled(found: Sequence[_Fit], left: list[TableError]) -> list[_Fit]:
    """The tables with one config for each key; which of two files is left is told in *left*.

    Triton's cache keeps a file for every version of Triton and of the kernel, and names neither:
    the one that was written last is of what runs today.
    """
    best: dict[tuple[object, str], _Fit] = {}
    for one in found:
        for key in one.taken.rows:
            at = one.device.silicon(), key
            best[at] = _newer(best.get(at, one), one, key)
    return [kept for one in found if (kept := _without_lost(one, best, left)).taken.rows]


def _newer(one: _Fit, other: _Fit, key: str) -> _Fit:
    """Whose config a key gets."""
    (row, config), (mine, own) = one.taken.rows[key], other.taken.rows[key]
    before, after = _written_ns(one.table), _written_ns(other.table)
    if config != own and (before == after or 0 in {before, after}):
        raise TableError(
            f"this row and that at {row.where} are both for {key}",
            where=mine.where,
            hint="leave one of the two files out",
        )
    return one if before >= after else other


def _written_ns(table: Table) -> int:
    """When a file of Triton's cache was written; 0 of what is not one."""
    return Path(table.path).stat().st_mtime_ns if table.function else 0


def _without_lost(
    one: _Fit, best: Mapping[tuple[object, str], _Fit], left: list[TableError]
) -> _Fit:
    """A table with those keys alone for which another file has no newer config."""
    kept = {}
    for key, (row, config) in one.taken.rows.items():
        winner = best[one.device.silicon(), key]
        taken = winner.taken.rows[key][1]
        if taken == config:
            kept[key] = row, config
            continue
        what = f"{key}: its {config} is left: {winner.table.path}, written later, has {taken}"
        left.append(TableError(what, where=one.table.path))
    return replace(one, taken=replace(one.taken, rows=kept))


def _write(fit: _Fit, to: Home, path: Path, *, force: bool) -> Imported:
    device, entries = fit.device, list(_entries(fit, to))
    fates: dict[LockedKey, str] = {}

    def change(before: Lock) -> Lock:
        after, said = lock.merge_imported(before, device, entries, to.near(device), force=force)
        fates.update(said)
        return after

    lock.update(path, change)
    return Imported(
        path=fit.table.path,
        kernel=to.receiver.kernel,
        device=next(iter(fates)).device,
        lockfile=path,
        fates={at.key: fate for at, fate in fates.items()},
        overruled=_overruled(fit.table, device),
        taken=fit.taken,
    )


def _entries(fit: _Fit, to: Home) -> Iterator[tuple[LockedKey, Entry]]:
    evidence = Evidence(
        us=0.0, default_us=None, margin=None, noise=0.0, bits="", ir="", triton=fit.table.triton,
        unmeasured=True,
    )  # fmt: skip
    for key, (_, config) in fit.taken.rows.items():
        at = LockedKey(kernel=to.receiver.kernel, device="", key=key)
        yield at, Entry(config=config, evidence=replace(evidence, hook=to.hook_of(config)))

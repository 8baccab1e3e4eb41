"""pipeline.importing: tables of other tools -> entries of a lockfile, marked as unmeasured.

They are served as they are, and incumbents in the next sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tritune import configlist, configtables, devicelabels, lock
from tritune.configtables import Row, Table
from tritune.device import targets
from tritune.errors import TableError
from tritune.model import DeviceIdentity, Entry, Evidence, Lock, LockedKey
from tritune.pipeline import questions, unasked
from tritune.pipeline.asking import ask
from tritune.pipeline.receiving import Home, Taken, home, take
from tritune.pipeline.unasked import Unasked

VLLM, CONFIGS, AUTOTUNE = "vllm", "configs", "autotune-cache"


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


def import_tables(files: Sequence[str], options: ImportOptions) -> tuple[Imported, ...]:
    """Take every file's configs into the lockfile; nothing is written if one of them is wrong.

    Raises:
        TrituneError: a table is wrong, or does not fit the kernel.
    """
    if options.sweep is not None and options.key:
        what = "it is for an import without --sweep, whose problems have all of a key"
        raise TableError(what, where="--key")
    tables = [_read(file, options) for file in files]
    to = home(options.sweep, options.kernel)
    path = options.lockfile or to.lockfile
    lock.refuse_unwritable(path)
    found: list[tuple[Table, DeviceIdentity, Taken]] = []
    for table in tables:
        device = _device(table, options.device, path)
        taken = take(table, device, to, renames=options.renames, template=options.key)
        found.append((table, device, taken))
    _refuse_doubled(found)
    written = [_write(*one, to, path, force=options.force) for one in found]
    if options.sweep is not None:
        return tuple(written)
    tuning = unasked.tuned_in(to.receiver.kernel, options.project)
    return tuple(
        replace(one, unasked=unasked.find(tuning, tuple(one.fates), device))
        for one, (_, device, _) in zip(written, found, strict=True)
    )


def _read(file: str, options: ImportOptions) -> Table:
    form = options.form or _form(file)
    if form == CONFIGS:
        return ask(configlist.read, file, options.axis)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TableError("not text in UTF-8", where=file) from None
    except OSError as error:
        hint = f"configs in Python are MODULE:NAME, as {file}:NAME" if _is_module(file) else ""
        what = (error.strerror or str(error)).lower()
        raise TableError(what, where=file, hint=hint) from None
    if form == AUTOTUNE:
        return configtables.parse_autotune(text, file)
    return configtables.parse_vllm(text, file, options.axis)


def _form(file: str) -> str:
    if file.endswith(".autotune.json"):
        return AUTOTUNE
    is_python = file.endswith(".py") or (":" in file and not Path(file).exists())
    return CONFIGS if is_python else VLLM


def _is_module(file: str) -> bool:
    return all(part.isidentifier() for part in file.split(".")) and not Path(file).exists()


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


def _refuse_doubled(found: Sequence[tuple[Table, DeviceIdentity, Taken]]) -> None:
    seen: dict[tuple[object, str], Row] = {}
    for _, device, taken in found:
        for key, (row, _) in taken.rows.items():
            other = seen.setdefault((device.silicon(), key), row)
            if other is not row:
                what = f"this row and that at {other.where} are both for {key}"
                raise TableError(what, where=row.where)


def _write(
    table: Table, device: DeviceIdentity, taken: Taken, to: Home, path: Path, *, force: bool
) -> Imported:
    evidence = Evidence(
        us=0.0, default_us=None, margin=None, noise=0.0, bits="", ir="", triton=table.triton,
        unmeasured=True,
    )  # fmt: skip
    kernel = to.receiver.kernel
    entries = [
        (
            LockedKey(kernel=kernel, device="", key=key),
            Entry(config=config, evidence=replace(evidence, hook=to.hook_of(config))),
        )
        for key, (_, config) in taken.rows.items()
    ]
    fates: dict[LockedKey, str] = {}

    def change(before: Lock) -> Lock:
        after, said = lock.merge_imported(before, device, entries, to.near(device), force=force)
        fates.update(said)
        return after

    lock.update(path, change)
    return Imported(
        path=table.path,
        kernel=kernel,
        device=next(iter(fates)).device,
        lockfile=path,
        fates={at.key: fate for at, fate in fates.items()},
        overruled=_overruled(table, device),
        taken=taken,
    )

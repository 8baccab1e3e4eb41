"""pipeline.receiving: a table, and a kernel or its sweep file -> the config that each key gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tritune import fitting, keytext, plan, references, space, spec
from tritune import subject as subjects
from tritune.configtables import Row, Table
from tritune.device import targets
from tritune.errors import NothingFitsError, SpecError, TableError, TrituneError, of_many
from tritune.fitting import Receiver
from tritune.keys import split
from tritune.model import Config, DeviceIdentity, KernelInfo, Problem
from tritune.pipeline import vetting
from tritune.pipeline.asking import ask
from tritune.pipeline.job import near_constraints
from tritune.pipeline.looking import described, desks
from tritune.pipeline.swept import Swept
from tritune.pipeline.vetting import Match
from tritune.words import shell


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """What takes the entries; `swept` says for which problems, where a sweep file does."""

    receiver: Receiver
    lockfile: Path
    reference: tuple[str, str | None]
    """The kernel and the problem function, to load them by."""
    swept: Swept | None = None

    def hook_of(self, config: Config) -> str:
        """The `pre_hook` that a config comes with, as far as a sweep file leads to it."""
        return "" if self.swept is None else self.swept.info.hook_of(config)

    def near(self, device: DeviceIdentity) -> dict[str, tuple[str, ...]]:
        """What guards a look-up of the nearest size, as far as a sweep file says it."""
        if self.swept is None:
            return {}
        return near_constraints(self.swept.sweep, targets.of_device(device), self.swept.info)


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The configs of one table by key, each with its row; and what found no counterpart."""

    rows: Mapping[str, tuple[Row, Config]]
    unused: tuple[Row, ...] = ()
    without: int = 0
    """Problems of the sweep file that no row is for."""
    aside: tuple[str, ...] = ()
    """What a file's name says besides, and nothing is made of."""
    overruled: tuple[tuple[str, str], ...] = ()
    """What it says besides, and what `--key` says in its place."""
    other_dtype: tuple[str, str] | None = None
    """The dtypes that it says the table is for, and a key that has none such."""
    broken: tuple[tuple[str, str], ...] = ()
    """Keys whose config constraints of the sweep file rule out, and each such constraint."""
    beyond: tuple[tuple[str, str], ...] = ()
    """Keys whose config has values that `space:` has not, and these."""
    failing: tuple[TableError, ...] = ()
    """Rows that cannot be run at some key, which is not among `rows`."""


def home(sweep: Path | None, kernel: str | None) -> Home:
    """The kernel that is named, alone or among those of a sweep file."""
    if sweep is not None:
        return _of_sweep(sweep, kernel)
    if kernel is None:
        hint = "name its sweep file with --sweep, or --kernel MODULE:NAME"
        raise TableError("no kernel is named", hint=hint)
    references.refuse(kernel, "Triton kernels", base="the current folder")
    about = ask(subjects.describe, kernel)
    if about.kind != subjects.TUNABLE:
        raise TableError(
            f"`{about.short}` has no tritune line, so it reads no lockfile",
            where=f"{about.file}:{about.line}",
            hint=_without_line(about, kernel),
        )
    receiver = Receiver(
        kernel=about.name,
        default=about.default,
        key=about.key,
        constants=about.constants,
        numbers=tuple(name for name in about.key if name not in about.constexprs),
        tensors=about.tensors,
        all_tensors=about.like,
    )
    return Home(receiver=receiver, lockfile=Path(about.lockfile), reference=(kernel, None))


def _without_line(about: subjects.Subject, kernel: str) -> str:
    line = f"`tritune init {shell(kernel)}` says which line to add"
    if about.kind != subjects.AUTOTUNED:
        return line
    swept = "--sweep FILE is for a kernel that nobody decorated: the sweep file of an op"
    return swept if about.is_installed else f"{line}; {swept}"


def _of_sweep(path: Path, kernel: str | None) -> Home:
    sweep = spec.read_sweep(path)
    with desks() as pool:
        _, infos = described(pool, sweep)
    info = _named(infos, kernel, path)
    space.check_against(sweep, info)
    constants = [name for name in info.constexprs if name not in {*info.tunables, *info.key}]
    receiver = Receiver(
        kernel=info.name, default=info.default, key=info.key, constants=tuple(constants)
    )
    return Home(
        receiver=receiver,
        lockfile=Path(info.lockfile),
        reference=(sweep.kernel or info.name, sweep.problem),
        swept=Swept(sweep=sweep, info=info),
    )


def _named(infos: list[KernelInfo], kernel: str | None, path: Path) -> KernelInfo:
    short = {info.short: info for info in infos}
    named = {**short, **{info.name: info for info in infos}}
    if kernel in named:
        return named[kernel]
    if kernel is None and len(infos) == 1:
        return infos[0]
    what = f"it tunes no `{kernel}`" if kernel else f"it tunes {len(infos)} kernels"
    raise SpecError(what, where=str(path), hint=f"--kernel NAME: {', '.join(sorted(short))}")


def take(
    table: Table,
    device: DeviceIdentity,
    to: Home,
    asked: Mapping[str, Problem],
    *,
    renames: Mapping[str, str],
    template: str,
) -> Taken:
    """Find the keys of every row: those of the sweep file's problems, or what *template* makes.

    *asked* are the keys of those problems on the device.

    Raises:
        NothingFitsError: no row is for any problem, or it is a table of another kernel.
        TrituneError: a config that the kernel cannot run, or a row that is for no key.
    """
    fitting.check_function(table, to.receiver)
    if to.swept is None:
        configs = _configs(table, device, to, renames)
        return _with_template(table, configs, to.receiver, template)
    pairs = _pairs(table, to.receiver, asked, to.swept)
    configs = _configs(table, device, to, renames)
    matches = [
        Match(key=key, problem=asked[key], row=row, config=configs[row]) for key, row in pairs
    ]
    taken = _with_sweep(table, matches, asked, to.receiver)
    vetting.refuse_unvouched(to.swept, device, matches, table)
    kept, failing = vetting.runnable(to.swept, device, matches)
    return replace(
        taken,
        rows={one.key: taken.rows[one.key] for one in kept},
        broken=tuple(vetting.broken(to.swept, device, kept)),
        beyond=tuple(vetting.beyond(to.swept, device, kept)),
        failing=failing,
    )


def _with_template(
    table: Table, configs: Mapping[Row, Config], to: Receiver, template: str
) -> Taken:
    first, keys = table.rows[0], [_key(row, table, template, to) for row in table.rows]
    overruled = (pair for row in table.rows for pair in fitting.overruled(row, template, to))
    return Taken(
        rows=_by_key((k, row, configs[row]) for k, row in zip(keys, table.rows, strict=True)),
        aside=fitting.ignored(first, template, to),
        overruled=tuple(dict.fromkeys(overruled)),
        other_dtype=fitting.other_dtype(first, keys, to),
    )


def _key(row: Row, table: Table, template: str, to: Receiver) -> str:
    fitting.check_length(row, to)
    key = fitting.key_of(row, template, to)
    keytext.check(key, to, where=row.where)
    if not fitting.has_dtypes(row, split(key), to):
        what = f"its tensors are {', '.join(row.dtypes or ())}, and those of {key} are not"
        raise NothingFitsError(what, where=table.path)
    return key


def _pairs(
    table: Table, to: Receiver, asked: Mapping[str, Problem], swept: Swept
) -> list[tuple[str, Row]]:
    """Every key with each row that is for it."""
    names = _names(asked)
    for row in table.rows:
        fitting.check_row(row, to, names)
    pairs = [(key, row) for key in asked for row in table.rows if fitting.fits(row, key, to)]
    if not pairs:
        raise NothingFitsError(
            f"no row of it is for any problem of {swept.sweep.path}",
            where=table.path,
            hint=f"their keys are as {next(iter(asked), 'nothing')}",
        )
    return pairs


def _names(asked: Iterable[str]) -> list[str]:
    """What their keys have parts of."""
    return list(dict.fromkeys(name for key in asked for name in split(key)))


def _with_sweep(
    table: Table, matches: Sequence[Match], asked: Mapping[str, Problem], to: Receiver
) -> Taken:
    first, names, used = table.rows[0], _names(asked), {one.row for one in matches}
    return Taken(
        rows=_by_key((one.key, one.row, one.config) for one in matches),
        unused=tuple(row for row in table.rows if row not in used),
        without=len(asked) - len(matches),
        aside=tuple(f"{n}={v}" for n, v in first.parts if n not in names),
        other_dtype=fitting.other_dtype(first, [one.key for one in matches], to),
    )


def _configs(
    table: Table, device: DeviceIdentity, to: Home, renames: Mapping[str, str]
) -> dict[Row, Config]:
    """The config of every row, or every mistake in them."""
    target = targets.of_device(device)
    made: dict[Row, Config] = {}
    wrong: list[TrituneError] = []
    for row in table.rows:
        try:
            made[row] = fitting.config(row, to.receiver, renames)
        except TableError as error:
            wrong.append(error)
            continue
        if ruling := plan.legal(made[row], target):
            wrong.append(TableError(ruling[1], where=row.where))
    if not wrong:
        # The kernel itself has the last word: it may know no hook for a config.
        hooked = tuple((config, row.hooked) for row, config in made.items())
        whys = ask(subjects.refusals, *to.reference, hooked)
        pairs = zip(made, whys, strict=True)
        wrong += [TableError(why, where=row.where) for row, why in pairs if why]
    if wrong:
        raise of_many(wrong)
    return made


def _by_key(found: Iterable[tuple[str, Row, Config]]) -> dict[str, tuple[Row, Config]]:
    rows: dict[str, tuple[Row, Config]] = {}
    for key, row, config in found:
        if key in rows:
            what = f"this row and that at {rows[key][0].where} are both for {key}"
            raise TableError(what, where=row.where)
        rows[key] = row, config
    return rows

"""pipeline.receiving: a table, and a kernel or its sweep file -> the config that each key gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tritune import fitting, keytext, plan, space, spec
from tritune import subject as subjects
from tritune.configtables import Row, Table
from tritune.device import locked, targets
from tritune.errors import SpecError, TableError, TrituneError, of_many
from tritune.fitting import Receiver
from tritune.keys import split
from tritune.model import Config, DeviceIdentity, KernelInfo, Problem, Sweep
from tritune.pipeline.asking import ask
from tritune.pipeline.job import near, near_constraints
from tritune.pipeline.looking import LOOK_LIMIT_S, described, desks
from tritune.workers import Done, Raised

MOST_NAMED = 4
"""Configs that a refusal names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A sweep file and the kernel of it that takes the entries."""

    sweep: Sweep
    info: KernelInfo


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
    broken: tuple[tuple[str, str], ...] = ()
    """Keys whose config a constraint of the sweep file rules out, and that constraint."""


def home(sweep: Path | None, kernel: str | None) -> Home:
    """The kernel that is named, alone or among those of a sweep file."""
    if sweep is not None:
        return _of_sweep(sweep, kernel)
    if kernel is None:
        hint = "name its sweep file with --sweep, or --kernel MODULE:NAME"
        raise TableError("no kernel is named", hint=hint)
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
        tensors=about.tensors,
        all_tensors=about.like,
    )
    return Home(receiver=receiver, lockfile=Path(about.lockfile), reference=(kernel, None))


def _without_line(about: subjects.Subject, kernel: str) -> str:
    line = f"`tritune init {kernel}` says which line to add"
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
    short = {info.name.rpartition(":")[2]: info for info in infos}
    named = {**short, **{info.name: info for info in infos}}
    if kernel in named:
        return named[kernel]
    if kernel is None and len(infos) == 1:
        return infos[0]
    what = f"it tunes no `{kernel}`" if kernel else f"it tunes {len(infos)} kernels"
    raise SpecError(what, where=str(path), hint=f"--kernel NAME: {', '.join(sorted(short))}")


def take(
    table: Table, device: DeviceIdentity, to: Home, *, renames: Mapping[str, str], template: str
) -> Taken:
    """Find the keys of every row: those of the sweep file's problems, or what *template* makes.

    Raises:
        TrituneError: a config that the kernel cannot run, or a row that is for no key.
    """
    if to.swept is None:
        keytext.check(template, to.receiver)
    configs = _configs(table, device, to, renames)
    if to.swept is None:
        keys = [(fitting.key_of(row, template, to.receiver), row) for row in table.rows]
        aside = fitting.ignored(table.rows[0], template, to.receiver)
        return Taken(rows=_by_key(keys, configs), aside=aside)
    asked = keys_of(to.swept, device)
    names = list(dict.fromkeys(name for key in asked for name in split(key)))
    for row in table.rows:
        fitting.check_row(row, to.receiver, names)
    pairs = [
        (key, row) for key in asked for row in table.rows if fitting.fits(row, key, to.receiver)
    ]
    if not pairs:
        raise TableError(
            f"no row of it is for any problem of {to.swept.sweep.path}",
            where=table.path,
            hint=f"their keys are as {next(iter(asked), 'nothing')}",
        )
    _refuse_unvouched(to.swept, device, [(asked[key], configs[row]) for key, row in pairs], table)
    used = {row for _, row in pairs}
    return Taken(
        rows=_by_key(pairs, configs),
        unused=tuple(row for row in table.rows if row not in used),
        without=len(asked) - len(pairs),
        aside=tuple(f"{n}={v}" for n, v in table.rows[0].parts if n not in names),
        broken=tuple(
            _broken(to.swept.sweep, device, ((asked[k], k, configs[r]) for k, r in pairs))
        ),
    )


def _refuse_unvouched(
    swept: Swept, device: DeviceIdentity, found: Iterable[tuple[Problem, Config]], table: Table
) -> None:
    """Refuse what nobody says is valid: it would be served at once, and may write out of bounds.

    Of a kernel that nobody decorated that is a config that neither its author lists nor the space
    of the sweep file, with its constraints, has.

    Raises:
        TableError: there are such.
    """
    sweep, info, target = swept.sweep, swept.info, targets.of_device(device)
    if not info.foreign:
        return
    listed, tried = {*info.configs}, {*space.configs(sweep, target, info)}
    strange = [
        config
        for problem, config in found
        if config not in listed
        and (config not in tried or space.admitted(sweep, target, config, problem))
    ]
    if strange:
        named = [*dict.fromkeys(map(str, strange))]
        more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        is_of_space = ", and not admitted by its sweep file" if sweep.space else ""
        short = info.name.rpartition(":")[2]
        raise TableError(
            f"nothing says that `{short}` is right with {'; '.join(named[:MOST_NAMED])}{more}: not "
            f"of the {len(listed)} configs of its author{is_of_space}",
            where=table.path,
            hint=f"put it into `space:` of {near(Path(sweep.path).absolute())}, with "
            "`constraints:` that say what is valid; a config that nobody listed may write out of "
            "bounds",
        )


def _broken(
    sweep: Sweep, device: DeviceIdentity, found: Iterable[tuple[Problem, str, Config]]
) -> Iterator[tuple[str, str]]:
    target = targets.of_device(device)
    for problem, key, config in found:
        if constraint := space.admitted(sweep, target, config, problem):
            yield key, constraint.text


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
        whys = ask(subjects.refusals, *to.reference, tuple(made.values()))
        pairs = zip(made, whys, strict=True)
        wrong += [TableError(why, where=row.where) for row, why in pairs if why]
    if wrong:
        raise of_many(wrong)
    return made


def _by_key(
    pairs: Iterable[tuple[str, Row]], configs: Mapping[Row, Config]
) -> dict[str, tuple[Row, Config]]:
    found: dict[str, tuple[Row, Config]] = {}
    for key, row in pairs:
        if key in found:
            what = f"this row and that at {found[key][0].where} are both for {key}"
            raise TableError(what, where=row.where)
        found[key] = row, configs[row]
    return found


def keys_of(swept: Swept, device: DeviceIdentity) -> dict[str, Problem]:
    """The key of every problem of a sweep file, as a launch there would have it."""
    sweep, info = swept.sweep, swept.info
    reference, target = (sweep.kernel or info.name, sweep.problem), targets.of_device(device)
    configs = tuple(dict.fromkeys((info.default, *info.configs)))
    tasks: list[tuple[object, ...]] = [
        (reference, target, problem, configs, {}) for problem in sweep.problems
    ]
    keys: dict[int, str] = {}
    with desks() as pool:
        for index, answer in pool.run(locked.look, tasks, LOOK_LIMIT_S):
            match answer:
                case Done(locked.Seen(key=key, unknown="")):
                    keys[index] = key
                case Raised(error=TrituneError() as error):
                    raise error
                case _:
                    why = answer.value.unknown if isinstance(answer, Done) else str(answer)
                    raise TableError(
                        f"the key of {sweep.problems[index]} is not known here: {why}",
                        where=sweep.path,
                        hint="--kernel with --key needs no sweep file",
                    )
    return {keys[index]: sweep.problems[index] for index in sorted(keys) if keys[index]}

"""export: a lockfile -> its winners in the formats of others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tritune.cli import options as shared

if TYPE_CHECKING:
    from tritune.model import DeviceIdentity, Entry, Lock, LockedKey


@click.command()
@click.argument("path", metavar="[LOCKFILE]", required=False, type=shared.READABLE)
@click.option(
    "--format",
    "form",
    type=click.Choice(["configs", "vllm"]),
    required=True,
    help="Python source with triton.Config, or tables of vLLM's.",
)
@click.option("--kernel", metavar="NAME", help="This kernel, where there are several.")
@click.option("--device", metavar="NAME", help="This device, where there are several.")
@click.option("--only", metavar="EXPR", help="Only the keys for which this holds, as 'N == 4096'.")
@click.option(
    "--axis",
    metavar="NAME",
    default="M",
    show_default=True,
    help="The part of a key that a table of vLLM's goes by.",
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="A name of the kernel's and the table's; no NEW leaves it out. May be given again.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write here: a file, or with vllm a folder for its files.",
)
def export(
    path: Path | None,
    *,
    form: str,
    only: str | None,
    axis: str,
    renames: tuple[str, ...],
    output: Path | None,
    **named: str | None,
) -> None:
    """Write what is locked as Python source, or as tables of vLLM's.

    LOCKFILE may be left out where the project has one. Without --output it goes to stdout.
    """
    from tritune import export as exporting
    from tritune.cli import filters

    if form == "configs":
        _refuse_for_tables()
    kept = _kept(path, named, only)
    if form == "configs":
        at = kept.entries[0][0]
        _put({"": exporting.configs_source(at.kernel, at.device, kept.entries)}, output)
        for hook in exporting.unwritten(kept.entries):
            _warn(f"{hook} cannot be imported: give its configs their pre_hook by hand")
        return
    names = filters.pairs(renames, "'--rename'")
    tables = exporting.vllm_tables(_silicon(kept), kept.entries, axis, names)
    if output is None and len(tables) > 1:
        raise click.UsageError(
            f"these are {len(tables)} tables: --output DIR writes a file each, --only keeps some"
        )
    _put(tables, output)
    for hook in exporting.hooked(kept.entries):
        _warn(f"no table holds a pre_hook, and configs here were measured with {hook}")


def _kept(path: Path | None, named: dict[str, str | None], only: str | None) -> Lock:
    """The entries of one kernel on one device."""
    from tritune.cli import filters, project

    held = _read(path or _single(project.lockfiles()))
    held = filters.keep(held, [filters.of_kernel(_one(held, named["kernel"], "--kernel"))])
    held = filters.keep(held, [filters.of_device(_one(held, named["device"], "--device"))])
    return filters.kept(only, [held])[0] if only else held


def _read(path: Path) -> Lock:
    from tritune import lock
    from tritune.errors import LockError

    held = lock.read(path)
    if not held.entries:
        raise LockError("nothing is locked in it", where=str(path))
    return held


def _single(paths: tuple[Path, ...]) -> Path:
    if len(paths) > 1:
        raise click.UsageError(f"name one of {', '.join(map(str, paths))}")
    return paths[0]


def _one(held: Lock, name: str | None, flag: str) -> str:
    """The kernel or the device that is named, or the only one there is."""
    from tritune.cli import filters

    if name is not None:
        return filters.known_name(name, flag, [held])
    found = _names(held.entries, flag)
    if len(found) > 1:
        raise click.UsageError(f"there are several; {flag} NAME: {', '.join(found)}")
    return found[0]


def _names(entries: Iterable[tuple[LockedKey, Entry]], flag: str) -> list[str]:
    return list(dict.fromkeys(at.kernel if flag == "--kernel" else at.device for at, _ in entries))


def _silicon(kept: Lock) -> DeviceIdentity:
    from tritune.errors import LockError

    if not kept.devices:
        label = kept.entries[0][0].device
        raise LockError(
            f'"devices" of the lockfile does not say what {label} is, and a table is named by it',
            hint="take its line from the lockfile's history",
        )
    return kept.devices[0]


def _refuse_for_tables() -> None:
    given = click.get_current_context().get_parameter_source
    for name, flag in (("axis", "--axis"), ("renames", "--rename")):
        if given(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{flag} is for --format vllm: Python source has whole keys")


def _refuse_other(output: Path, *, is_folder: bool) -> None:
    """A folder in place of a file, or a file in place of a folder."""
    from tritune.errors import TableError

    where = str(output)
    if not is_folder and output.is_dir():
        hint = f"name a file in it, as {output / 'tuned.py'}"
        raise TableError("it is a folder", where=where, hint=hint)
    if is_folder and output.is_file():
        hint = "tables have names of their own: name a folder for them"
        raise TableError("it is no folder", where=where, hint=hint)


def _refuse_missing(folder: Path) -> None:
    """A folder for tables is made, as `compile` makes one; those above it are a slip of the pen."""
    from tritune.errors import TableError

    if not folder.is_dir():
        hint = "make it, or name one that is there"
        raise TableError("there is no such folder", where=str(folder), hint=hint)


def _warn(text: str) -> None:
    click.echo(f"warning: {text}", err=True)


def _put(texts: dict[str, str], output: Path | None) -> None:
    """Each text into the file *output*, or into a file of its name below it; else on stdout."""
    from tritune import places

    for name, text in texts.items():
        if output is None:
            click.echo(text, nl=False)
            continue
        at = output / name if name else output
        _refuse_other(output, is_folder=bool(name))
        places.refuse_unwritable(at.parent, file=at)
        _refuse_missing(output.absolute().parent)
        places.write(at, text)
        click.echo(f"wrote {at}", err=True)

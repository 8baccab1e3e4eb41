"""import: tables of configs that other tools wrote -> entries of a lockfile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritune.cli import options as shared
from tritune.words import plural, shell

if TYPE_CHECKING:
    from tritune.configtables import Row
    from tritune.pipeline import Imported


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--kernel", metavar="NAME", help="The kernel: one of --sweep, or MODULE:NAME.")
@click.option("--sweep", type=shared.READABLE, metavar="FILE", help="For its problems.")
@click.option("--device", metavar="NAME", help="The GPU of the table, if its name does not say.")
@click.option(
    "--lockfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write here, in place of the kernel's own lockfile.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["vllm", "configs", "autotune-cache"]),
    help="What FILE is, if its name does not say.",
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="OLD=NEW",
    help="A name of the table and the kernel's; no NEW leaves it out. May be given again.",
)
@click.option(
    "--axis",
    metavar="NAME",
    default="M",
    show_default=True,
    help="What the sizes in the table are of.",
)
@click.option(
    "--key",
    default="",
    metavar="TEXT",
    help="The rest of the key where there is no --sweep, as 'M={} K=4096 a=f16 b=f16'.",
)
@click.option("--force", is_flag=True, help="Replace entries that were measured.")
def import_(files: tuple[str, ...], *, renames: tuple[str, ...], **given: Any) -> None:
    """Take configs of other tools into a lockfile.

    FILE is a table of vLLM's, a file of Triton's autotuner (NAME.autotune.json), or MODULE:NAME
    of a triton.Config or of a mapping from keys to them. The entries are marked as unmeasured:
    they run as they are, and the next sweep times them.
    """
    from tritune import pipeline
    from tritune.cli import filters, project

    pairs = filters.pairs(renames, "'--rename'")
    options = pipeline.ImportOptions(renames=pairs, project=project.named(), **given)
    done = pipeline.import_tables(files, options)
    imported = done.tables
    for error in done.left:
        click.echo(f"{error.where}: not taken: {error.what}", err=True)
    for one in imported:
        click.echo(_counts(one))
        for note in _notes(one):
            click.echo(f"{one.path}: {note}", err=True)
    for line in _next(imported, options.sweep, options.lockfile):
        click.echo(line, err=True)


def _next(imported: Sequence[Imported], sweep: Path | None, lockfile: Path | None) -> Iterator[str]:
    """Which sweep times the entries; of those that none does, what makes one."""
    from tritune.views.misses import yaml_row

    known = [one.unasked for one in imported if one.unasked is not None]
    missed = [(found.sweep, one) for found in known for one in found.keys]
    for path, one in missed:
        why = f": {one.why}" if one.problem is None else ""
        yield f"no shape of {path} asks for {one.key}, so no sweep times it{why}"
    rows = dict.fromkeys(yaml_row(one.problem) for _, one in missed if one.problem is not None)
    if rows:
        yield f"add to the shapes of {known[0].sweep}:"
        yield from (f"  - {row}" for row in rows)
    named = sweep or (known[0].sweep if known else None)
    times = "times them, and says what beats them"
    if named is None:
        yield f"next: where a shape of its sweep file asks for them, the next sweep {times}"
    elif rows or len(missed) < sum(len(one.fates) for one in imported):
        into = f" --lockfile {shell(lockfile)}" if lockfile else ""
        yield f"next: tritune sweep {shell(named)}{into} {times}"


def _counts(one: Imported) -> str:
    counts = one.counts
    words = {"added": "added", "replaced": "replaced", "there": "there already", "kept": "kept"}
    each = [f"{counts[fate]} {word}" for fate, word in words.items() if counts[fate]]
    kernel = one.kernel.rpartition(":")[2]
    return f"{one.lockfile}: {kernel} on {one.device}: {', '.join(each)}"


def _notes(one: Imported) -> Iterator[str]:
    if one.counts["kept"]:
        yield "what is kept was measured; --force replaces it"
    if one.taken.unused:
        rows = [_short(row) for row in one.taken.unused]
        more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
        yield f"no problem of the sweep file asks for {', '.join(rows[:8])}{more}"
    if one.taken.without:
        yield f"it has nothing for {plural(one.taken.without, 'problem')} of the sweep file"
    for key, texts in _by_key(one.taken.broken).items():
        rule = "rules" if len(texts) == 1 else "rule"
        named = " and ".join(f"`{text}`" for text in texts)
        yield f"{key}: the sweep file's {named} {rule} its config out; it is locked all the same"
    for key, text in one.taken.beyond:
        yield f"{key}: {text} is not in the sweep file's `space:`; it is locked all the same"
    yield from _notes_on_name(one)


def _by_key(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, text in pairs:
        found.setdefault(key, []).append(text)
    return found


def _notes_on_name(one: Imported) -> Iterator[str]:
    """What the name of a file says, and is not so here."""
    taken = one.taken
    said, key = taken.other_dtype or ("", "")
    aside = [text for text in taken.aside if text != f"dtype={said}"]
    if aside:
        yield f"{', '.join(aside)} of its name is not compared with the key"
    if said:
        yield f"dtype={said} of its name is of other work: no tensor of {key} has such a dtype"
    for named, instead in taken.overruled:
        yield f"its {named} is ignored: --key says {instead}"
    if one.overruled:
        yield f"device_name={one.overruled} of its name is ignored: --device says {one.device}"


def _short(row: Row) -> str:
    return "=".join(row.parts[0]) if row.parts else row.where

"""merge: two lockfiles, and what both came from -> one; the driver that git calls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritune.cli import options as shared

if TYPE_CHECKING:
    from tritune.merge import Merged
    from tritune.model import Lock


@click.command()
@click.argument("files", metavar="[BASE] OURS THEIRS", nargs=-1, type=shared.READABLE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write here, and leave OURS as it is.",
)
@click.option("--path", metavar="PATH", help="What messages call the file; git gives it.")
@click.option("--install", is_flag=True, help="Let git merge lockfiles so, in this repository.")
def merge(files: tuple[Path, ...], *, output: Path | None, path: str | None, install: bool) -> None:
    """Merge two lockfiles entry by entry.

    The result replaces OURS. Without BASE, the lockfile that both came from, every entry that
    differs was changed by both. Of those ours is kept, and marked for the next sweep to settle.
    """
    if install:
        if files:
            raise click.UsageError("--install takes no lockfile")
        _install()
        return
    if len(files) not in {2, 3}:
        raise click.UsageError("two lockfiles are needed, or three: [BASE] OURS THEIRS")
    _merge(files, output, path)


def _install() -> None:
    from tritune import git
    from tritune.model import LOCKFILE

    attributes, changed = git.install_driver()
    what = f"commit {attributes.name}" if changed else f"{attributes.name} says so already"
    click.echo(f"git merges {LOCKFILE} with tritune in this clone now; {what}", err=True)


def _merge(files: tuple[Path, ...], output: Path | None, path: str | None) -> None:
    from tritune import lock
    from tritune import merge as merging
    from tritune.model import Lock

    *before, ours, theirs = files
    base = _read(before[0], path, "base") if before else Lock()
    merged = merging.merge(base, _read(ours, path, "ours"), _read(theirs, path, "theirs"))
    lock.write(output or ours, merged.lock, option="-o PATH")
    if path is None:  # git's driver says only what somebody has to settle
        click.echo(f"wrote {output or ours}: {_counts(merged)}", err=True)
    for at in merged.unsettled:
        text = f"unsettled: {at.kernel.rpartition(':')[2]} on {at.device}: {at.key}"
        click.echo(
            f"{path or output or ours}: {text}: both sides changed it, ours is kept", err=True
        )
    if merged.unsettled:
        click.echo("next: tritune sweep --stale", err=True)


def _counts(merged: Merged) -> str:
    parts = [
        f"{len(merged.lock.entries)} locked",
        f"{merged.taken} taken from theirs",
        f"{merged.removed} removed by theirs" if merged.removed else "",
        f"{len(merged.unsettled)} unsettled",
    ]
    return ", ".join(part for part in parts if part)


def _read(file: Path, path: str | None, side: str) -> Lock:
    """A side of a merge; git gives an empty file where there was none."""
    from tritune import lock
    from tritune.model import Lock

    if path is not None and not file.stat().st_size:
        return Lock()
    return lock.read_as(file, f"{path} ({side})" if path else str(file))

"""init: a reference to a kernel -> its first sweep file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritune.cli import options as shared
from tritune.words import shell

if TYPE_CHECKING:
    from tritune.pipeline import Started


@click.command()
@click.argument("kernel", metavar="MODULE:NAME")
@click.option(
    "--output",
    type=shared.FOLDER,
    metavar="DIR",
    default="sweeps",
    show_default=True,
    help="Put the sweep file here.",
)
@click.option(
    "--force", is_flag=True, help="Replace the files that are there, the problem module too."
)
def init(kernel: str, *, output: Path, force: bool) -> None:
    """Write a first sweep file for a kernel.

    MODULE:NAME is package.module:name or path/to/file.py:name, a Triton kernel with tritune's
    line or without it. Where it has no problem function, one to fill in is written beside it,
    unless its module is there already. The kernel's own file is never changed.
    """
    from tritune import pipeline

    for line in _said(pipeline.start_sweep(kernel, output, force=force)):
        click.echo(line, err=True)


def _said(started: Started) -> list[str]:
    files = [started.sweep, *([started.problem] if started.problem else [])]
    steps = [
        *started.steps,
        f"fill in what is marked FILL IN in {' and '.join(map(str, files))}",
        f"tritune show space {shell(started.sweep)}",
    ]
    return [
        *(f"wrote {file}" for file in files),
        *([f"kept {started.kept}, which was there"] if started.kept else []),
        *(f"next: {step}" for step in steps),
    ]

"""show space: a sweep file -> how many configs it has, and what each constraint removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO


@click.command()
@click.argument("file", type=shared.READABLE)
@shared.only
@shared.target
@shared.as_json
def space(file: Path, *, as_json: bool, **given: Any) -> int:
    """Count the configs that each constraint of a sweep removes.

    Each kernel that it tunes has its own count. The exit code is 1 where one is left no config
    on any problem, which no sweep takes.
    """
    from tritune import pipeline

    spaces = pipeline.space_counts(file, pipeline.SweepOptions(**given))
    if as_json:
        from tritune.views import json_view

        click.echo(json_view.space_json(str(file), spaces))
    else:
        from tritune.views import page, tables

        page.put(tables.space_tables(str(file), spaces))
    empty = [one for one in spaces if one.left and not any(number for _, number in one.left)]
    return NO if empty else 0

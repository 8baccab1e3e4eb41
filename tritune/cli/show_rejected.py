"""show rejected: a sweep's journal -> each rejected config, why, and the limit it broke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tritune.cli import options as shared


@click.command()
@click.argument("file", type=shared.READABLE)
@click.argument("values", metavar="[NAME=VALUE]...", nargs=-1)
@shared.only
@shared.target
@shared.journal
@shared.as_json
def rejected(file: Path, values: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """List the rejected configs of a sweep, each with its reason.

    FILE is a sweep file. NAME=VALUE keeps those with that value, of the config or of the
    problem: num_warps=8 M=64.
    """
    from tritune import pipeline
    from tritune.cli import filters

    wanted = filters.pairs(values)
    found = pipeline.rejected(file, pipeline.SweepOptions(**given))
    outcomes = filters.rejected(found.outcomes, wanted, found.names)
    if as_json:
        from tritune.views import json_view

        click.echo(json_view.rejected_json(outcomes))
        return
    from tritune.views import page, tables

    page.put(tables.rejected_table(outcomes))

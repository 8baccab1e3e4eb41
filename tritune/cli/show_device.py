"""show device: the GPU of this machine -> its facts and limits."""

from __future__ import annotations

import click

from tritune.cli import options as shared


@click.command()
@shared.as_json
def device(*, as_json: bool) -> None:
    """Show the GPU of this machine and its limits."""
    from tritune import pipeline
    from tritune.errors import EnvironmentFaultError

    target = pipeline.device()
    if target is None:
        raise EnvironmentFaultError(
            "no GPU on this machine that torch and Triton can use",
            hint="`tritune sweep --target H200` compiles and verifies for one without it",
        )
    if as_json:
        from tritune.views import json_view

        click.echo(json_view.device_json(target))
        return
    from tritune.views import page, tables

    page.put(tables.device_table(target))

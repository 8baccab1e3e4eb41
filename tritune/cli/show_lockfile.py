"""show lockfile: lockfiles -> their entries, by kernel and device."""

from __future__ import annotations

from pathlib import Path

import click

from tritune.cli import options as shared


@click.command()
@click.argument("path", required=False, type=shared.READABLE)
@click.option("--kernel", metavar="NAME", help="Only this kernel, by its full or its short name.")
@click.option("--device", metavar="NAME", help="Only this device.")
@click.option(
    "--only",
    metavar="EXPR",
    help="Only the keys for which this holds, as 'M >= 1024'.",
)
@shared.as_json
def lockfile(
    path: Path | None, *, kernel: str | None, device: str | None, only: str | None, as_json: bool
) -> None:
    """Show what is locked, and the evidence for it.

    PATH is a lockfile; with none, every tritune.lock of the project is shown.
    """
    from tritune import lock
    from tritune.cli import filters, project

    paths = (path,) if path else project.lockfiles()
    locks = [lock.read(each) for each in paths]
    if kernel:
        wanted = filters.of_kernel(filters.known_name(kernel, "--kernel", locks))
        locks = [filters.keep(each, [wanted]) for each in locks]
    if device:
        wanted = filters.of_device(filters.known_name(device, "--device", locks))
        locks = [filters.keep(each, [wanted]) for each in locks]
    if only:
        locks = filters.kept(only, locks)
    kept = [(str(at), each) for at, each in zip(paths, locks, strict=True)]
    if as_json:
        from tritune.views import json_view

        click.echo(json_view.locks_json(kept))
        return
    from tritune.views import page, tables

    page.put(page.page(*(tables.lock_table(at, each) for at, each in kept)))

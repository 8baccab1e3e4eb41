"""compile: sweep files -> what compiles for a target, and a folder of binaries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO

if TYPE_CHECKING:
    from tritune.pipeline import CompileReport


@click.command(name="compile")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=shared.READABLE)
@shared.only
@shared.target
@shared.jobs
@click.option(
    "--output",
    type=shared.FOLDER,
    metavar="DIR",
    help="Put the binaries here, for `tritune sweep --compiled DIR`.",
)
@shared.compile_limit
@shared.as_json
def compile_(files: tuple[Path, ...], *, output: Path | None, as_json: bool, **given: Any) -> int:
    """Compile every config for a GPU that is not here.

    FILE is a sweep file; with none, those that pyproject.toml names under [tool.tritune] are
    compiled. Says what compiles, what does not fit, what is one binary, and what each takes.
    Touches no GPU, and times and locks nothing.
    """
    from tritune import pipeline
    from tritune.cli.project import sweep_files
    from tritune.views import binaries, page, progress

    reports: list[CompileReport] = []
    for path in sweep_files(files):
        with progress.observing() as observer:
            reports += pipeline.compile_only(
                path, pipeline.SweepOptions(**given), observer, output=output
            )
    if as_json:
        click.echo(binaries.reports_json(reports))
    else:
        page.put(binaries.reports_page(reports))
    return NO if any(report.unsolved for report in reports) else 0

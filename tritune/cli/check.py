"""check: sweep files -> whether their lockfiles are still true, as an exit code and a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO
from tritune.errors import ManyMistakesError


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=shared.READABLE)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME",
    help="Check for this GPU alone, as H200; may be given again.",
)
@click.option(
    "--lockfile",
    type=shared.READABLE,
    metavar="PATH",
    help="Check this lockfile in place of the kernel's own.",
)
@click.option("--strict", is_flag=True, help="Fail for all that is not fresh.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "github"]),
    default="text",
    show_default=True,
    help="Lines for people, or annotations for a pull request on GitHub.",
)
@shared.as_json
def check(files: tuple[Path, ...], *, strict: bool, form: str, as_json: bool, **given: Any) -> int:
    """Say which locked entries are stale, missing or unsettled.

    FILE is a sweep file; with none, those that pyproject.toml names under [tool.tritune] are
    checked. Needs no GPU, measures nothing and writes nothing.
    """
    from tritune import pipeline
    from tritune.check import failing
    from tritune.cli.project import sweep_files
    from tritune.views import checks, page

    options = pipeline.CheckOptions(whole=not files, **given)
    checked = pipeline.check(sweep_files(files), options)
    fails = failing(strict=strict)
    if as_json:
        click.echo(checks.findings_json(checked.findings))
    elif form == "github":
        click.echo(checks.github(checked.findings, fails))
    else:
        page.put(checks.findings_page(checked.findings, fails, files, options.lockfile))
    if checked.faults:
        raise ManyMistakesError(checked.faults)
    return NO if any(finding.status in fails for finding in checked.findings) else 0

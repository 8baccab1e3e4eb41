"""sweep: sweep files -> lockfiles, and a summary of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO, UNANSWERED
from tritune.errors import TrituneError, of_many

if TYPE_CHECKING:
    from tritune.model import Report
    from tritune.pipeline import SweepOptions


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1, type=shared.READABLE)
@shared.only
@click.option(
    "--device",
    metavar="DEVICE",
    help="A GPU by its index, or replay:JOURNAL.",
)
@shared.target
@click.option(
    "--lockfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PATH",
    help="Write here, where the kernel will not look.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, then stop.")
@shared.jobs
@shared.compile_limit
@click.option(
    "--compiled",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Take the binaries that `tritune compile --output DIR` made.",
)
@click.option(
    "--budget-compile",
    "compile_budget_s",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Seconds to compile for, with no GPU.",
)
@shared.journal
@click.option("--fresh", is_flag=True, help="Measure again what the journal holds already.")
@click.option(
    "--budget",
    "budget_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Of measuring on the GPU; what it does not reach stays as it is.",
)
@click.option(
    "--allow-noisy",
    is_flag=True,
    help="Lock what was measured on a disturbed GPU, with its noise.",
)
@click.option(
    "--stale",
    is_flag=True,
    help="Only what `tritune check` calls stale, missing or unsettled.",
)
@click.option(
    "--shapes-from",
    type=shared.READABLE,
    metavar="LOG",
    help="Sweep what this log of misses (TRITUNE_LOG) names, in place of the file's shapes.",
)
@shared.as_json
def sweep(files: tuple[Path, ...], *, as_json: bool, **given: Any) -> int:
    """Compile, verify and measure every config, and lock the winners.

    FILE is a sweep file; with none, those that pyproject.toml names under [tool.tritune] are
    swept. Interrupted, the same command goes on where it was.
    """
    from tritune.ahead import imports_packages
    from tritune.child import start_server
    from tritune.cli.project import sweep_files

    paths = sweep_files(files)
    start_server(packages=imports_packages(paths))
    from tritune.pipeline import SweepOptions

    if given["stale"] and given["shapes_from"]:
        raise click.UsageError("--stale is of the file's shapes, and --shapes-from of a log's")
    reports: list[Report] = []
    faults: list[TrituneError] = []
    options = SweepOptions(**given)
    for path in _due(paths, options):
        found = _sweep(path, options, faults)
        reports += found
        if found and not as_json:
            _show(found)
        if any(fault.exit_code == UNANSWERED for fault in faults):
            break  # no GPU, no compiler, a full disk: the next file fails alike
    if as_json:
        _print_json(reports)
    if faults:
        raise of_many(faults)
    return _code(reports, options)


def _code(reports: list[Report], options: SweepOptions) -> int:
    from tritune import pipeline

    log = options.shapes_from
    if log is not None and pipeline.names_others_alone(log, reports):
        return NO
    return NO if any(report.unsolved for report in reports) else 0


def _due(paths: tuple[Path, ...], options: SweepOptions) -> tuple[Path, ...]:
    """All of the files, or with `--stale` only those that are not fresh."""
    from tritune import pipeline

    if not options.stale:
        return paths
    due = pipeline.not_fresh(paths, options)
    for path in paths:
        if path not in due:
            click.echo(f"{path}: no entry is stale, missing or unsettled", err=True)
    return due


def _sweep(path: Path, options: SweepOptions, faults: list[TrituneError]) -> tuple[Report, ...]:
    """The reports of one file; a wrong file does not keep the others from their sweep."""
    from tritune import pipeline
    from tritune.views import progress

    try:
        with progress.observing() as observer:
            reports = pipeline.run(path, options, observer)
    except TrituneError as fault:
        faults.append(fault)
        return ()
    shared.warn([(report.kernel.name, report.warnings) for report in reports])
    return reports


def _show(reports: tuple[Report, ...]) -> None:
    from tritune.views import page, terminal

    page.put(terminal.summaries(reports, width=page.width()))


def _print_json(reports: list[Report]) -> None:
    from tritune.views import json_view

    click.echo(json_view.reports_json(reports))

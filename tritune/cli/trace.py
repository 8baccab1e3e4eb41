"""trace: a program -> its exit code, and what it launched."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tritune.cli import options as shared


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="[--] [PROGRAM [ARG]...]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--output",
    type=shared.FOLDER,
    metavar="DIR",
    default="traced",
    show_default=True,
    help="Put the trace, the report and the sweep files here.",
)
@click.option("--all", "every", is_flag=True, help="Count kernels with no autotuner as well.")
@click.option(
    "--force", is_flag=True, help="Replace the trace that is there, and the files that it wrote."
)
@shared.as_json
def trace(
    command: tuple[str, ...], *, output: Path, every: bool, force: bool, as_json: bool
) -> int:
    """Run a program, and write sweep files of what it launches.

    The program runs unchanged, and its exit code is this command's. Every kernel under an
    autotuner that it or its child processes launch is counted, by key, and timed now and then.
    The report goes to stderr, and as JSON to DIR/report.json; with --json also to stdout, after
    what the program printed. With no PROGRAM the trace in DIR is reported again, as after a kill.
    """
    from tritune import pipeline, places
    from tritune.cli import project
    from tritune.views import page, traces

    options = pipeline.TraceOptions(
        output=output, every=every, force=force, project=project.named()
    )
    traced = pipeline.trace(command, options)
    text, path = traces.report_json(traced), output / pipeline.REPORT
    places.write(path, f"{text}\n")
    if as_json:
        click.echo(text)
    page.put(traces.report(traced), sys.stderr)
    return traced.exit_code

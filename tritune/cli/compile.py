"""compile: sweep files -> what compiles for a target, in a folder; or what is locked, compiled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO
from tritune.errors import ManyMistakesError

if TYPE_CHECKING:
    from tritune.pipeline import CompileReport

YAML = (".yaml", ".yml")


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
@click.option(
    "--locked",
    is_flag=True,
    help="Compile only what is locked, into Triton's own cache; FILE may be a lockfile.",
)
@click.option(
    "--device", metavar="DEVICE", help="With --locked, compile for this GPU of the machine."
)
@shared.compile_limit
@shared.as_json
def compile_(
    files: tuple[Path, ...],
    *,
    locked: bool,
    device: str | None,
    output: Path | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Compile every config for a GPU that is not here.

    FILE is a sweep file; with none, those that pyproject.toml names under [tool.tritune] are
    compiled. Says what compiles, what does not fit, what is one binary, and what each takes.
    Touches no GPU, and times and locks nothing.

    With --locked only the locked configs are compiled, for the GPU of this machine or for
    --target, so that a later launch compiles nothing: for the build of an image.
    """
    if locked:
        from tritune.child import start_server

        _refuse(only=given["only"], output=output)
        if device is not None and given["target"] is not None:
            raise click.UsageError("--device is a GPU that is here, and --target one that is not")
        start_server()
        options = {name: given[name] for name in ("target", "jobs", "compile_limit_s")}
        return _locked(files, as_json=as_json, device=device, **options)
    _refuse_without(device)
    return _every(files, output, as_json=as_json, **given)


def _refuse(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(f"--locked compiles what is locked, so --{name} means nothing")


def _refuse_without(device: str | None) -> None:
    if device is not None:
        raise click.UsageError("--device is for --locked; name a GPU that is not here by --target")


def _locked(files: tuple[Path, ...], *, as_json: bool, **given: Any) -> int:
    from tritune import pipeline
    from tritune.cli.project import sweep_files
    from tritune.pipeline.prebuilding import UNBUILT
    from tritune.views import page, prebuilds, progress

    sweeps = tuple(path for path in files if path.suffix in YAML)
    lockfiles = tuple(path for path in files if path not in sweeps)
    options = pipeline.PrebuildOptions(lockfiles=lockfiles, whole=not sweeps, **given)
    with progress.observing() as observer:
        made = pipeline.prebuild(sweep_files(sweeps), options, observer)
    if as_json:
        click.echo(prebuilds.prebuilding_json(made))
    else:
        page.put(prebuilds.prebuilding_page(made))
    if made.faults:
        raise ManyMistakesError(made.faults)
    fails = not made.entries or any(one.fate in UNBUILT for one in made.entries)
    return NO if fails else 0


def _every(files: tuple[Path, ...], output: Path | None, *, as_json: bool, **given: Any) -> int:
    from tritune import pipeline
    from tritune.ahead import imports_packages
    from tritune.child import start_server
    from tritune.cli.project import sweep_files
    from tritune.views import binaries, page, progress

    reports: list[CompileReport] = []
    paths, options = sweep_files(files), pipeline.SweepOptions(**given)
    for path in paths:
        pipeline.refuse_wrong(path, options, output)
    start_server(packages=imports_packages(paths))
    for path in paths:
        with progress.observing() as observer:
            found = pipeline.compile_only(path, options, observer, output=output)
        shared.warn([(report.kernel, report.warnings) for report in found])
        reports += found
    if as_json:
        click.echo(binaries.reports_json(reports))
    else:
        page.put(binaries.reports_page(reports))
    return NO if any(report.unsolved for report in reports) else 0

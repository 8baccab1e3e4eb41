"""retime: lockfiles and the GPU of this machine -> what each entry loses today."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tritune.cli import options as shared
from tritune.cli.root import NO
from tritune.errors import EnvironmentFaultError, ManyMistakesError

if TYPE_CHECKING:
    from tritune.model import Lock
    from tritune.pipeline.retiming import Retiming, Wanted


def _share(_: click.Context, param: click.Parameter, text: str) -> float:
    """`3%` or `0.03`."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        what = f"{text!r} is no share of a time: say 3%, or 0.03"
        raise click.BadParameter(what, param=param)
    return share


@click.command()
@click.argument("path", metavar="[LOCKFILE]", required=False, type=shared.READABLE)
@click.option(
    "--max-regression",
    "bound",
    callback=_share,
    default="3%",
    show_default=True,
    metavar="SHARE",
    help="How much an entry may lose against the best of its rivals.",
)
@click.option("--only", metavar="EXPR", help="Only the keys for which this holds, as 'M >= 1024'.")
@click.option("--device", metavar="DEVICE", help="A GPU by its index, if not the first.")
@shared.jobs
@shared.journal
@click.option("--allow-noisy", is_flag=True, help="Tell what was measured on a disturbed GPU, too.")
@shared.as_json
def retime(
    path: Path | None, *, bound: float, only: str | None, as_json: bool, **given: Any
) -> int:
    """Time what is locked again, and say what each entry loses.

    After an upgrade of the driver or of Triton: the locked config of each entry is timed with the
    default, and with the runner-up where a journal knows it, in one window. LOCKFILE is read in
    place of the kernels' own; the sweep files are those that pyproject.toml names under
    [tool.tritune]. Writes nothing.
    """
    from tritune import pipeline
    from tritune.cli.project import sweep_files
    from tritune.views import page, progress, retimes

    options = pipeline.SweepOptions(lockfile=path, **given)
    paths, wanted = sweep_files((), takes_some=False), _wanted(path, only)
    with progress.observing() as observer:
        found = pipeline.retime(paths, options, observer, bound=bound, wanted=wanted)
    for warning in dict.fromkeys(found.warnings):
        click.echo(f"warning: {warning}", err=True)
    if found.entries or as_json:
        click.echo(retimes.retiming_json(found)) if as_json else page.put(
            retimes.retiming_page(found)
        )
    if found.faults:
        raise ManyMistakesError(found.faults)
    if not found.entries:
        raise _nothing(found, path, only)
    return NO if any(one.is_past for one in found.entries) else 0


def _wanted(path: Path | None, only: str | None) -> Wanted:
    """The entries that a command line asks for, by their keys."""
    if only is None:
        return lambda _: True
    from tritune.cli import filters

    return filters.only(only, _locks(path))


def _locks(path: Path | None) -> list[Lock]:
    from tritune import lock
    from tritune.cli import project

    return [lock.read(each) for each in ((path,) if path else project.lockfiles())]


def _nothing(found: Retiming, path: Path | None, only: str | None) -> Exception:
    if only is not None:
        from tritune.cli import filters

        locks = _locks(path)
        if not any(map(filters.only(only, locks), (one for lock in locks for one in lock.entries))):
            return filters.none_left(only, locks)
    where = str(path) if path else "the lockfiles of the project"
    return EnvironmentFaultError(
        f"nothing is locked for {found.target}, so there is nothing to time",
        where=where,
        hint="`tritune sweep` locks for the GPU that it runs on",
    )

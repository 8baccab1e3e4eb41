"""options: the options that several commands share, each described once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


class _Readable(click.Path):
    """A file that is there; of a slip in its name, the one beside it that is meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            from tritune.axisvalues import near_file

            if guess := near_file(Path(value)):
                what = f"{error.message} Did you mean {str(guess)!r}?"
                raise click.BadParameter(what, ctx=ctx, param=param) from None
            raise


READABLE = _Readable(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

only = click.option(
    "--only", metavar="EXPR", help="Only the problems for which this holds, as 'M >= 1024'."
)
target = click.option(
    "--target", metavar="NAME", help="The GPU to work for where none is here, as H200."
)
journal = click.option(
    "--journal",
    type=FOLDER,
    metavar="DIR",
    help="Where journals are, if not in the cache folder.",
)
jobs = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that compile, if not one a core.",
)
compile_limit = click.option(
    "--compile-limit",
    "compile_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds one config may compile for, if not learnt from the others.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def warn(said: Sequence[tuple[str, Sequence[str]]]) -> None:
    """The warnings of each kernel, each once; whose they are, where there are several."""
    for warning in dict.fromkeys(
        f"{kernel.rpartition(':')[2]}: {text}" if len(said) > 1 else text
        for kernel, warnings in said
        for text in warnings
    ):
        click.echo(f"warning: {warning}", err=True)

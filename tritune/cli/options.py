"""options: the options that several commands share, each described once."""

from __future__ import annotations

from pathlib import Path

import click

READABLE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)

only = click.option(
    "--only", metavar="EXPR", help="Only the problems for which this holds: 'M >= 1024 and N < K'."
)
target = click.option(
    "--target", metavar="NAME", help="The GPU to work for where none is here: H200, or cuda:90."
)
journal = click.option(
    "--journal",
    type=FOLDER,
    metavar="DIR",
    help="Where the journals are (default: the user's cache folder).",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

"""page: tables and lines -> stdout, or a string. All of rich that the other views need.

A line is never cut or folded: on a narrow terminal the terminal wraps it, in a file or a
pipe it stays whole for `grep`. Colour only repeats what the words say.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tritune.views.columns import Column

PLAIN_WIDTH = 100
"""Columns of a page that is not a terminal."""

_UNFOLDED = 100_000


def table(first: Sequence[Column], figures: Sequence[Column], last: Sequence[Column] = ()) -> Table:
    """Columns with their headings: *figures* to the right, the *first* and *last* are text."""
    columns = [*first, *figures, *last]
    right = {id(column) for column in figures}
    grid = Table.grid(padding=(0, 1, 0, 0))
    for column in columns:
        grid.add_column(justify="right" if id(column) in right else "left", no_wrap=True)
    grid.add_row(*(Text(column.heading, style="bold") for column in columns))
    for row in zip(*(column.cells for column in columns), strict=True):
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def table_width(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns) - 1


def line(text: str, style: str = "") -> Text:
    return Text(text, style=style)


def page(*parts: RenderableType | None) -> Group:
    """Parts below each other; None is a part that has nothing to say."""
    return Group(*(part for part in parts if part is not None))


def width(stream: TextIO | None = None) -> int:
    """Columns of the terminal at *stream*, by default stdout."""
    stream = stream or sys.stdout
    return Console(file=stream).width if stream.isatty() else PLAIN_WIDTH


def put(part: RenderableType, stream: TextIO | None = None) -> None:
    """Print a page, by default to stdout: coloured on a terminal, plain elsewhere."""
    stream = stream or sys.stdout
    if stream.isatty():
        Console(file=stream, width=_UNFOLDED, highlight=False).print(part, soft_wrap=True)
    else:
        stream.write(plain(part))
        stream.flush()


def plain(part: RenderableType) -> str:
    """A page as text with no colours and no blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=_UNFOLDED, highlight=False, color_system=None)
    console.print(part, soft_wrap=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{row.rstrip()}\n" for row in text.splitlines())

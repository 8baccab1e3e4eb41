"""retimes: what entries lose today -> a table a kernel, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tritune.views import json_view
from tritune.views.columns import Column, key_lines
from tritune.views.page import line, page, table
from tritune.views.units import NONE, format_s, format_us
from tritune.words import plural

if TYPE_CHECKING:
    from tritune.pipeline.retiming import Retimed, Retiming


def retiming_page(found: Retiming) -> Group:
    """Every entry with its rivals, what was not timed, then the answer."""
    timed = [one for one in found.entries if one.us is not None]
    parts: list[Table | Text] = []
    for kernel, entries in groupby(timed, key=lambda one: one.at.kernel):
        parts += [_table(kernel, list(entries)), line("")]
    return page(*parts, *_untimed(found), line(_answer(found), "red" if _past(found) else "green"))


def _table(kernel: str, entries: Sequence[Retimed]) -> Table:
    name = f"{kernel.rpartition(':')[2]} on {entries[0].at.device}"
    keys = Column(heading=name, cells=key_lines([one.at.key for one in entries]))
    figures = (
        _times("locked µs", [one.locked_us or None for one in entries]),
        _times("now", [one.us for one in entries]),
        _times("default now", [one.default_us for one in entries]),
        _times("runner-up now", [one.runner_up_us for one in entries]),
        Column(heading="loses", cells=tuple(_loss(one) for one in entries)),
    )
    marks = Column(heading="", cells=tuple("too much" if one.is_past else "" for one in entries))
    return table([keys], figures, [marks] if any(marks.cells) else [])


def _times(heading: str, times_us: Sequence[float | None]) -> Column:
    return Column(heading=f" {heading}", cells=tuple(format_us(us) for us in times_us))


def _loss(one: Retimed) -> str:
    return NONE if one.loss is None else f"{one.loss * 100:.1f} %"


def _untimed(found: Retiming) -> Iterator[Text]:
    for one in found.entries:
        if one.why:
            kernel = one.at.kernel.rpartition(":")[2]
            text = f"not timed: {kernel} on {one.at.device}: {one.at.key}: {one.why}"
            yield line(text, "red" if one.is_past else "yellow")


def _past(found: Retiming) -> int:
    return sum(one.is_past for one in found.entries)


def _answer(found: Retiming) -> str:
    timed = [one for one in found.entries if one.us is not None]
    worst = max((one.loss or 0.0 for one in timed), default=0.0)
    lose = sum(one.is_past for one in timed)
    broken = _past(found) - lose
    parts = [
        f"{lose:,} {'loses' if lose == 1 else 'lose'} more" if lose else "",
        f"{broken:,} {'does not run, or is' if broken == 1 else 'do not run, or are'} wrong"
        if broken
        else "",
    ]
    said = ", ".join(part for part in parts if part)
    said = said or f"none surely loses more, {worst * 100:.1f} % at most"
    return (
        f"{plural(len(timed), 'entry', 'entries')} timed with Triton {found.triton}, "
        f"{found.bound * 100:g} % allowed: {said} · {format_s(found.wall_s)}"
    )


def retiming_json(found: Retiming) -> str:
    return json_view.document(
        target=found.target,
        triton=found.triton,
        max_regression=found.bound,
        entries=[json_view.flat(one) for one in found.entries],
        wall_s=found.wall_s,
    )

"""columns: configs, problems and keys -> cells of a table that line up.

Tunables whose names share a first word share a column (`BLOCK_M/N/K`), and axes of problems
stand below each other, so that a reader compares down a column instead of reading pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tritune.model import DTYPES, LAUNCH_OPTIONS, Config, Problem, Value
from tritune.views.units import NONE


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A heading and its cells, top to bottom, all of one width."""

    heading: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        return max(len(cell) for cell in (self.heading, *self.cells))


def show(value: Value) -> str:
    """A value in as few characters as stay clear."""
    return "none" if value is None else DTYPES.get(str(value), str(value))


def align(rows: Sequence[Sequence[str]], *, right: bool) -> tuple[str, ...]:
    """Rows of equally many words -> lines in which every word has its own width."""
    widths = [max(len(word) for word in column) for column in zip(*rows, strict=True)]
    lines = (
        " ".join(
            word.rjust(width) if right else word.ljust(width)
            for word, width in zip(row, widths, strict=True)
        )
        for row in rows
    )
    return tuple(line.rstrip() for line in lines)


def problem_lines(problems: Sequence[Problem]) -> tuple[str, ...]:
    """Problems as `M=64   N=4096  f16`, axis below axis; an axis named dtype loses its name."""
    names = _union(problem.as_dict() for problem in problems)
    rows = [[_axis(name, problem.as_dict()) for name in names] for problem in problems]
    return align(rows, right=False)


def _axis(name: str, axes: Mapping[str, Value]) -> str:
    if name not in axes:
        return ""
    return show(axes[name]) if name == "dtype" else f"{name}={show(axes[name])}"


def key_lines(keys: Sequence[str]) -> tuple[str, ...]:
    """Keys of a lockfile, part below part where they all have equally many."""
    rows = [key.split(" ") for key in keys]
    return align(rows, right=False) if len({len(row) for row in rows}) == 1 else tuple(keys)


def config_columns(configs: Sequence[Config], *, compact: bool = False) -> tuple[Column, ...]:
    """A column for each tunable, or for each family of tunables with one first word.

    *compact* cuts a heading such as `GROUP_M` down to `G`, where no other starts with it.
    """
    values = [config.as_dict() for config in configs]
    groups = _families(_ordered(_union(values)))
    headings = [_heading(group) for group in groups]
    if compact:
        headings = _initials(headings)
    return tuple(
        Column(
            heading=heading,
            cells=align([[_cell(row, name) for name in group] for row in values], right=True),
        )
        for heading, group in zip(headings, groups, strict=True)
    )


def _cell(row: Mapping[str, Value], name: str) -> str:
    return show(row[name]) if name in row else NONE


def _union(rows: Iterable[Mapping[str, Value]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for row in rows for name in row))


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Meta-parameters, in the order matrix people say their axes, then launch options."""
    return tuple(sorted(names, key=lambda name: (_rank(name), name)))


def _rank(name: str) -> tuple[int, int]:
    if name in LAUNCH_OPTIONS:
        first = ("num_warps", "num_stages", "num_ctas")
        return (1, first.index(name) if name in first else len(first))
    # Config sorts its names, so M, N, K would come out as K, M, N.
    last = name.rpartition("_")[2]
    return (0, "MNK".index(last) if last in {"M", "N", "K"} and name.startswith("BLOCK") else 9)


def _families(names: Sequence[str]) -> list[tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        stem, _, rest = name.rpartition("_")
        alone = name in LAUNCH_OPTIONS or not stem or not rest
        groups.setdefault(name if alone else f"{stem}_", []).append(name)
    return [tuple(group) for group in groups.values()]


def _heading(group: Sequence[str]) -> str:
    first = group[0].removeprefix("num_") if group[0] in LAUNCH_OPTIONS else group[0]
    return "/".join((first, *(name.rpartition("_")[2] for name in group[1:])))


def _initials(headings: Sequence[str]) -> list[str]:
    taken = [heading[0] for heading in headings]
    return [
        heading[0]
        if heading.isupper() and "/" not in heading and taken.count(heading[0]) == 1
        else heading
        for heading in headings
    ]

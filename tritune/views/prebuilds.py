"""prebuilds: what became of the entries of lockfiles -> lines for people, or JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Group

from tritune.views import json_view
from tritune.views.page import line, page
from tritune.views.units import format_s

if TYPE_CHECKING:
    from tritune.pipeline.prebuilding import Prebuilding, Prebuilt


def prebuilding_page(made: Prebuilding) -> Group:
    """Every entry that a launch would have to compile, then the counts."""
    left = [one for one in made.entries if one.why]
    lines = [line(_told(one), "yellow" if one.fate.value == "orphan" else "red") for one in left]
    return page(*lines, line(_counts(made), "" if made.entries else "red"))


def _told(one: Prebuilt) -> str:
    kernel = one.at.kernel.rpartition(":")[2]
    what = one.at.key or str(one.problem)
    return (
        f"{one.file}:{one.line}: {one.fate.value}: {kernel} on {one.at.device}: {what}: {one.why}"
    )


def _counts(made: Prebuilding) -> str:
    files = ", ".join(made.lockfiles) or "no lockfile"
    if not made.entries:
        return f"nothing is locked for {made.target} in {files}"
    counts = Counter(one.fate.value for one in made.entries)
    each = ", ".join(f"{number:,} {fate}" for fate, number in counts.items())
    return (
        f"{len(made.entries):,} locked for {made.target} in {files}: {each} · "
        f"{format_s(made.wall_s)} · in {made.folder}"
    )


def prebuilding_json(made: Prebuilding) -> str:
    counts = Counter(one.fate.value for one in made.entries)
    return json_view.document(
        target=made.target,
        folder=made.folder,
        lockfiles=made.lockfiles,
        counts=counts,
        entries=[json_view.flat(one) for one in made.entries],
        wall_s=made.wall_s,
    )

"""diffs: changes between lockfiles -> tables for a terminal or a pull request, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType

from tritune.model import Config, Entry
from tritune.views import json_view
from tritune.views.columns import Column, key_lines, show
from tritune.views.page import line, page, table
from tritune.views.units import NONE, format_noise, format_ratio, format_us

if TYPE_CHECKING:
    from tritune.diff import Change

Found = Sequence[tuple[str, Sequence["Change"]]]
"""Changes by the path of their lockfile."""

HEADINGS = ("config", "µs", "faster", "noise", "bits", "note")
NOTHING = "no lockfile entry differs"


def changes_page(found: Found) -> Group:
    """The changes of every lockfile by kernel and device, each a row."""
    parts: list[RenderableType] = []
    for path, changes in _differing(found):
        parts.append(line(f"{path}: {_counts(changes)}", "bold"))
        for (kernel, device), some in groupby(changes, key=lambda c: (c.at.kernel, c.at.device)):
            rows = list(some)
            parts += [line(""), line(f"{kernel} on {device}"), _table(rows)]
    return page(*parts) if parts else page(line(NOTHING))


def _table(changes: Sequence[Change]) -> RenderableType:
    kinds = Column(heading="", cells=tuple(change.kind for change in changes))
    keys = Column(heading="key", cells=key_lines([change.at.key for change in changes]))
    cells = zip(*(_cells(change) for change in changes), strict=True)
    columns = [Column(heading=h, cells=column) for h, column in zip(HEADINGS, cells, strict=True)]
    return table([kinds, keys, columns[0]], columns[1:4], columns[4:])


def changes_markdown(found: Found) -> str:
    """A table a lockfile, for a comment on a pull request."""
    blocks = [_block(path, changes) for path, changes in _differing(found)]
    return "\n".join(blocks) if blocks else f"{NOTHING.capitalize()}.\n"


def _block(path: str, changes: Sequence[Change]) -> str:
    headings = ("", "kernel", "device", "key", *HEADINGS)
    rows = [headings, ["---"] * len(headings)]
    for change in changes:
        at = change.at
        named = (f"`{text}`" for text in (at.kernel.rpartition(":")[2], at.device, at.key))
        rows.append([change.kind, *named, *_cells(change)])
    texts = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"### {path}: {_counts(changes)}\n\n" + "".join(f"{text}\n" for text in texts)


def _differing(found: Found) -> list[tuple[str, Sequence[Change]]]:
    return [(path, changes) for path, changes in found if changes]


def _counts(changes: Sequence[Change]) -> str:
    counts = Counter(change.kind for change in changes)
    kinds = ("added", "removed", "changed")
    return ", ".join(f"{counts[kind]:,} {kind}" for kind in kinds if counts[kind])


def _cells(change: Change) -> tuple[str, ...]:
    entries = [entry for entry in (change.old, change.new) if entry is not None]
    return (
        _config(change),
        " → ".join(_time(entry) for entry in entries),
        format_ratio(change.faster),
        _noise(entries),
        {None: NONE, False: "same", True: "others"}[change.bits],
        ", ".join(_notes(change)) or NONE,
    )


def _time(entry: Entry) -> str:
    return "unmeasured" if entry.evidence.unmeasured else format_us(entry.evidence.us or None)


def _noise(entries: Sequence[Entry]) -> str:
    measured = [entry.evidence.noise for entry in entries if not entry.evidence.unmeasured]
    return format_noise(max(measured)) if measured else NONE


def _config(change: Change) -> str:
    if change.old is None or change.new is None:
        [entry] = [one for one in (change.old, change.new) if one is not None]
        return _values(entry.config)
    parts = [f"{part.name} {show(part.old)} → {show(part.new)}" for part in change.parts]
    return ", ".join(parts) or "the same"


def _values(config: Config) -> str:
    return " ".join(f"{name}={show(value)}" for name, value in config.values)


def _notes(change: Change) -> Iterator[str]:
    """What a reviewer should know beside the numbers."""
    if change.new is not None and change.new.evidence.unsettled:
        yield "unsettled"
    if change.old is not None and change.new is not None:
        yield from _made_otherwise(change.old, change.new)


def _made_otherwise(old: Entry, new: Entry) -> Iterator[str]:
    before, after = old.evidence, new.evidence
    if before.triton != after.triton:
        yield f"Triton {before.triton or NONE} → {after.triton or NONE}"
    elif before.ir != after.ir:
        yield "other code"
    if before.space and before.space != after.space:
        yield "other space"
    if before.hook and before.hook != after.hook:
        yield "other pre_hook"
    if before.reach != after.reach:
        yield f"near serves {before.reach or NONE} → {after.reach or NONE}"


def changes_json(found: Found) -> str:
    """Every lockfile that was compared, with its changes."""
    files = [{"path": path, "changes": [_change(one) for one in some]} for path, some in found]
    return json_view.document(lockfiles=files)


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        **json_view.plain(change.at),
        "old": json_view.plain(change.old),
        "new": json_view.plain(change.new),
        "parts": json_view.plain(change.parts),
        "faster": change.faster,
        "noise": change.noise,
        "bits_differ": change.bits,
    }

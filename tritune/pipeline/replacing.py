"""pipeline.replacing: texts for a folder -> written there, and what earlier ones left is gone.

What is there is ours only if it is still byte for byte what a report says was written: whatever
somebody has edited, or put there under one of these names, is kept, or moved aside with --force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritune.places import unwritable, write

REPORT = "report.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """What became of the files of a folder."""

    kept: tuple[Path, ...]
    """Files that were there and are not ours to replace."""
    removed: tuple[Path, ...]
    """Files that were written before, and are not of this trace."""
    moved: tuple[tuple[Path, Path], ...]
    """A file that is not as it was written -> where it is now."""
    digests: tuple[tuple[str, str], ...]
    """Names of the files that were written, and of what."""


@dataclass
class _Done:
    removed: list[Path] = field(default_factory=list)
    moved: list[tuple[Path, Path]] = field(default_factory=list)


def replace(folder: Path, texts: Mapping[str, str], *, force: bool) -> Replaced:
    """Write what is not there yet; with *force* all of it, and remove what else was written.

    Raises:
        EnvironmentFaultError: the disk does not let us.
    """
    before, done, kept = _digests(folder / REPORT), _Done(), []
    for name in sorted({*before, *texts}) if force else ():
        _clear(folder / name, texts.get(name), before.get(name), done)
    for name, text in texts.items():
        if _content(folder / name) in {None, text.encode()} or force:
            write(folder / name, text)
        else:
            kept.append(folder / name)
    made = {name: _digest(text.encode()) for name, text in texts.items()}
    made |= {path.name: before[path.name] for path in kept if path.name in before}
    gone = {path.name for path in (*done.removed, *(path for path, _ in done.moved))}
    left = {name: digest for name, digest in before.items() if name not in gone}
    return Replaced(
        kept=tuple(kept),
        removed=tuple(done.removed),
        moved=tuple(done.moved),
        digests=tuple(sorted({**left, **made}.items())),
    )


def _clear(path: Path, text: str | None, digest: str | None, done: _Done) -> None:
    """Make way for *text*, or for nothing."""
    content = _content(path)
    if content is None or (text is not None and content == text.encode()):
        return
    try:
        if _digest(content) != digest:
            aside = _free(path)
            path.rename(aside)
            done.moved.append((path, aside))
        elif text is None:
            path.unlink()
            done.removed.append(path)
    except OSError as error:
        raise unwritable(path, error) from error


def _content(path: Path) -> bytes | None:
    """What a file holds; None where there is none, or a pipe."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise unwritable(path, error) from error


def _free(path: Path) -> Path:
    """A name beside a file that no pattern of sweep files or modules matches."""
    aside, number = path.with_name(f"{path.name}.old"), 2
    while aside.exists():
        aside, number = path.with_name(f"{path.name}.old{number}"), number + 1
    return aside


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digests(report: Path) -> dict[str, str]:
    """What the last report says was written, by name; of one that is damaged, nothing."""
    try:
        said: Any = json.loads(report.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    match said:
        case {"written": dict() as written}:
            return {name: str(d) for name, d in written.items() if Path(name).name == name}
    return {}

"""project: the folder one stands in -> its sweep files and its lockfiles.

A project is the nearest folder upwards with a `pyproject.toml`, in the same repository. Reads only.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tritune.axisvalues import near
from tritune.errors import LockError, SpecError
from tritune.model import LOCKFILE

_RELATIVE = 'write them from the folder of this file, as "sweeps/*.yaml"'
_HINT = 'add `[tool.tritune] sweeps = ["sweeps/*.yaml"]` to pyproject.toml'


def sweep_files(
    named: Sequence[Path], folder: Path | None = None, *, takes_some: bool = True
) -> tuple[Path, ...]:
    """The files that are *named*, else those of pyproject's `[tool.tritune] sweeps`.

    *takes_some* is whether the command line can name any, for the hint.
    """
    if named:
        return tuple(dict.fromkeys(named))
    hint = f"name sweep files, or {_HINT}" if takes_some else _HINT
    pyproject = _pyproject(folder or Path.cwd())
    if pyproject is None:
        raise SpecError("no sweep file given, and no pyproject.toml here or above", hint=hint)
    globs = _globs(pyproject, hint)
    files = sorted({path for glob in globs for path in _matching(pyproject, glob)})
    if not files:
        shown = ", ".join(f"`{glob}`" for glob in globs)
        where, hint = f"{pyproject}: tool.tritune.sweeps", _RELATIVE
        raise SpecError(f"no file matches {shown}", where=where, hint=hint)
    return tuple(_near(path) for path in files)


def named() -> tuple[Path, ...]:
    """The sweep files of the project that one stands in, if it names any."""
    try:
        return sweep_files(())
    except SpecError:
        return ()


def lockfiles(folder: Path | None = None) -> tuple[Path, ...]:
    """Every lockfile of the project, sorted."""
    here = folder or Path.cwd()
    pyproject = _pyproject(here)
    root = pyproject.parent if pyproject else here
    found = tuple(_near(path) for path in below(root))
    if not found:
        raise LockError(f"no {LOCKFILE} below {root}", hint="`tritune sweep` writes one")
    return found


def below(root: Path) -> tuple[Path, ...]:
    """Every lockfile below a folder, sorted."""
    return tuple(sorted(_walk(root)))


def _walk(root: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _skipped(Path(at, name))]
        if LOCKFILE in files:
            yield Path(at, LOCKFILE)


def _skipped(folder: Path) -> bool:
    # pyvenv.cfg marks a virtual environment, whatever its name.
    hidden = folder.name.startswith(".") or folder.name in {"__pycache__", "node_modules"}
    return hidden or (folder / "pyvenv.cfg").exists()


def _near(path: Path) -> Path:
    """Relative to the folder one stands in, where it is below it: what one would type."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _pyproject(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        if (path := parent / "pyproject.toml").is_file():
            return path
        if (parent / ".git").exists():  # another project's, further up, is not this one's
            return None
    return None


def _globs(pyproject: Path, hint: str) -> tuple[str, ...]:
    where = f"{pyproject}: tool.tritune.sweeps"
    table = _table(pyproject)
    if "sweeps" not in table:
        what = "no sweep file given, and none named here"
        slip = next((key for key in table if near(key, ["sweeps"])), "")
        meant = f"write `sweeps` for its `{slip}`" if slip else hint
        raise SpecError(what, where=where, hint=meant)
    globs = table["sweeps"]
    if not isinstance(globs, list) or not all(isinstance(glob, str) for glob in globs):
        raise SpecError("expected a list of file patterns", where=where, hint=hint)
    if not globs:
        raise SpecError("it names no sweep file", where=where, hint=hint)
    if any(Path(glob).is_absolute() or not glob for glob in globs):
        raise SpecError("patterns are relative to this file", where=where, hint=_RELATIVE)
    return tuple(globs)


def _matching(pyproject: Path, glob: str) -> list[Path]:
    try:
        return list(pyproject.parent.glob(glob))
    except (IndexError, ValueError):  # of `.`, and of `**` beside other letters
        raise SpecError(
            f"`{glob}` is no pattern of files",
            where=f"{pyproject}: tool.tritune.sweeps",
            hint='write "sweeps/*.yaml", or "sweeps/**/*.yaml" for what is in folders below too',
        ) from None


def _table(pyproject: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=str(pyproject)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"not TOML: {error}", where=str(pyproject)) from None
    tool = content.get("tool", {})
    table = tool.get("tritune", {}) if isinstance(tool, dict) else {}
    return table if isinstance(table, dict) else {}

"""bundle: compiled binaries <-> a folder that another machine takes as its compile cache.

The folder is Triton's own cache entries, a folder for the kernels of an op, and a manifest of
all that they serve for. A mismatch is named, field by field: it would show as a silent compile
otherwise.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tritune.errors import SpecError

MANIFEST = "manifest.json"
FORMAT = 1
AGAIN = "copy the whole folder again, or make it again: `tritune compile FILE --output DIR`"
Served = tuple[tuple[str, str], ...]
"""What has to be equal where the binaries are used, by name."""


def write(folder: Path, served: Served, kernel: str, source: str, entries: Iterable[Path]) -> int:
    """Add binaries of one kernel, which are folders of a compile cache; how many these are.

    Raises:
        SpecError: the folder holds binaries that serve elsewhere.
    """
    kernels: dict[str, str] = {}
    if (folder / MANIFEST).is_file():
        before = _manifest(folder)
        _refuse(folder, _differences(before["served"], served), "choose another folder")
        kernels = before["kernels"]
    count = _copy(entries, folder / source)
    manifest = {
        "format": FORMAT,
        "served": dict(served),
        "kernels": dict(sorted((kernels | {kernel: source}).items())),
    }
    beside = folder / f".{MANIFEST}"
    beside.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / MANIFEST)
    return count


def adopt(folder: Path, served: Served, kernel: str, source: str, binaries: Path) -> int:
    """Take the binaries of one kernel into the compile cache of this machine; how many.

    Raises:
        SpecError: they do not serve here, field by field.
    """
    return _copy(found(folder, served, kernel, source).iterdir(), binaries)


def found(folder: Path, served: Served, kernel: str, source: str) -> Path:
    """Where the binaries of one kernel are, which serve here.

    Raises:
        SpecError: they do not, field by field.
    """
    manifest = _manifest(folder)
    there = manifest["kernels"].get(kernel)
    differences = _differences(manifest["served"], served)
    if there is None:
        differences.append(f"no binaries of `{kernel}` are in it")
    elif there != source:
        differences.append(f"the source of `{kernel}` is {there} there, {source} here")
    hint = "compile again from this source with this Triton, Python and environment"
    _refuse(folder, differences, hint)
    if not (folder / source).is_dir():
        raise SpecError(
            f"the folder of `{kernel}` that its {MANIFEST} names is gone",
            where=str(folder / source),
            hint=AGAIN,
        )
    return folder / source


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(
            f"there is no {MANIFEST}",
            where=str(folder),
            hint="`tritune compile FILE --output DIR` makes such a folder",
        ) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot be read: {error}", where=str(path)) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise SpecError(f"not a manifest of format {FORMAT}", where=str(path))
    for field in ("served", "kernels"):
        texts = manifest.get(field)
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise SpecError(f"has no `{field}` of names and texts", where=str(path), hint=AGAIN)
    return manifest


def _differences(there: Mapping[str, str], served: Served) -> list[str]:
    here = dict(served)
    names = [*here, *(name for name in there if name not in here)]
    return [
        f"{name} is {there.get(name, 'not set')} there, {here.get(name, 'not set')} here"
        for name in names
        if there.get(name) != here.get(name)
    ]


def _refuse(folder: Path, differences: list[str], hint: str) -> None:
    if differences:
        raise SpecError(
            f"its binaries do not serve here: {'; '.join(differences)}",
            where=str(folder / MANIFEST),
            hint=hint,
        )


def _copy(these: Iterable[Path], there: Path) -> int:
    """Copy the cache entries that are not there yet; how many entries are among *these*.

    A group file names its members by their absolute paths, so it is written anew.
    """
    entries = [path for path in these if any(path.glob("__grp__*.json"))]
    for entry in entries:
        to = there / entry.name
        if any(to.glob("__grp__*.json")):
            continue
        groups = {path.name: _members(path) for path in entry.glob("__grp__*.json")}
        shutil.copytree(entry, to, dirs_exist_ok=True)
        for group, members in groups.items():
            moved = {name: str(to.absolute() / Path(path).name) for name, path in members.items()}
            (to / group).write_text(json.dumps({"child_paths": moved}), encoding="utf-8")
    return len(entries)


def _members(group: Path) -> dict[str, str]:
    """Name and path of the files of a cache entry."""
    try:
        members: dict[str, str] = json.loads(group.read_text(encoding="utf-8"))["child_paths"]
    except (KeyError, TypeError, ValueError):
        what = "is cut off, or no file of Triton's compile cache"
        raise SpecError(what, where=str(group), hint=AGAIN) from None
    return members

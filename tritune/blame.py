"""blame: an exception -> the line of the user's own code that raised it.

That is the innermost one that is no library's: who reads it can mend it there.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of what somebody has installed."""
_LIBRARIES = ("torch", "triton", "numpy")
"""Wherever they lie: a build of one's own is no less a library."""
_PYTHON = f"{sysconfig.get_path('stdlib')}/"


def line(error: BaseException) -> str:
    """`file:line`; empty where none of it is the user's."""
    # What was raised from another error happened where that did: an interpreter wraps all.
    for each in (error.__cause__, error):
        frames = traceback.extract_tb(each.__traceback__) if each else []
        own = [one for one in frames if not _is_elses(one.filename)]
        if own:
            return f"{own[-1].filename}:{own[-1].lineno}"
    return ""


def told(error: BaseException) -> str:
    """` (file:line)`, to stand behind what is said of the error; empty where there is none."""
    place = line(error)
    here = f"{Path.cwd()}/"
    return f" ({place.removeprefix(here)})" if place else ""


def is_installed(file: str | Path) -> bool:
    """Whether a file, or what is in a folder, is of a package that somebody else wrote."""
    path = Path(file)
    if not _INSTALLED.isdisjoint(path.parts):
        return True
    below = path.parts[len(path.parts) - len(path.parents) :]  # without the root
    return any(
        name in _recorded(folder)
        for name, folder in zip(reversed(below), path.parents, strict=True)
    )


@functools.cache
def _recorded(folder: Path) -> frozenset[str]:
    """What packages have put into a folder of any name, as `pip install --target` does."""
    names: set[str] = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with contextlib.suppress(OSError):
            lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
            names.update(line.partition(",")[0].partition("/")[0] for line in lines)
    return frozenset(names)


def is_library(file: str) -> bool:
    """Whether it is of tritune, Python, torch, Triton or numpy; a package of kernels is none."""
    # Python's own folder may be what packages are installed in.
    return file.startswith(("<", *_folders())) or (
        file.startswith(_PYTHON) and not is_installed(file)
    )


def _is_elses(file: str) -> bool:
    return is_installed(file) or is_library(file)


def _folders() -> Iterator[str]:
    yield f"{Path(__file__).parent}/"
    for name in _LIBRARIES:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield f"{Path(file).parent}/"

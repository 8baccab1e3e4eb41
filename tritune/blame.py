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
from typing import Any

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of what somebody has installed."""
_LIBRARIES = ("torch", "triton", "numpy")
"""Wherever they lie: a build of one's own is no less a library."""
_NOTED = "tritune_noted"
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
    return f" ({_short(place)})" if place else ""


def _short(place: str) -> str:
    return place.removeprefix(f"{Path.cwd()}/")


def told_in_kernel(error: BaseException) -> str:
    """The same of the line of a kernel that Triton does not compile, once that is noted."""
    places: list[tuple[str, int]] = []
    each: BaseException | None = error
    while each is not None:  # from the kernel to the function that it calls
        places += vars(each).get(_NOTED, ())
        each = each.__cause__
    own = [f"{file}:{number}" for file, number in places if not _is_elses(file)]
    return f" ({_short(own[-1])})" if own else ""


def note_in_kernel(error: BaseException) -> None:
    """Note where Triton's code generator was, before Triton takes its frames out of the error."""
    number = getattr(getattr(error, "node", None), "lineno", None)
    frames = traceback.walk_tb(error.__traceback__) if number else ()
    found: list[Any] = [frame.f_locals.get("self") for frame, _ in frames]
    makers = [one for one in found if hasattr(one, "begin_line")]
    noted = [(str(one.file_name), one.begin_line + number) for one in makers[-1:]]
    vars(error).setdefault(_NOTED, noted)  # a cause comes again, as the context


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

"""pipeline.starting: a reference to a kernel -> its first sweep file, and a problem to fill in."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tritune import draft, places, references, skeleton
from tritune import subject as subjects
from tritune.errors import EnvironmentFaultError, SpecError
from tritune.pipeline.asking import ask
from tritune.pipeline.job import near
from tritune.pipeline.questions import device
from tritune.subject import Subject
from tritune.sweepfile import KNOWN_TARGETS


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """What was written, and what its owner has to do next."""

    sweep: Path
    problem: Path | None
    kept: Path | None
    """A problem module that was there: somebody has filled it in."""
    steps: tuple[str, ...]
    """What its owner has to do before gaps are filled in."""


def start(reference: str, folder: Path, *, force: bool) -> Started:
    """Write the first sweep file of a kernel into *folder*, and a problem skeleton if it has none.

    Raises:
        TrituneError: there is no such kernel, or its sweep file is there already and not *force*.
    """
    references.refuse(reference, "Triton kernels", base="the current folder")
    places.refuse_unwritable(folder)
    about = ask(subjects.describe, reference)
    sweep = folder / f"{about.short}.yaml"
    problem = None if about.problem else _beside(about, folder)
    is_kept = problem is not None and problem.exists() and not force
    if sweep.exists() and not force:
        raise _there(sweep, reference, problem if is_kept else None)
    named = draft.Places(
        kernel=_from(folder, reference),
        problem=_from(folder, f"{problem.absolute()}:{about.short}_problem") if problem else "",
        sweep=near(sweep.absolute()),
    )
    texts = {sweep: draft.sweep_text(about, named, _target())}
    if problem is not None and not is_kept:
        texts[problem] = skeleton.problem_text(about, named)
    _write(texts)
    return Started(
        sweep=sweep,
        problem=None if is_kept else problem,
        kept=problem if is_kept else None,
        steps=tuple(skeleton.steps(about, f"{near(Path(about.file))}:{about.line}")),
    )


def _beside(about: Subject, folder: Path) -> Path:
    """Beside the kernel, where its imports work; nothing of ours goes into installed packages."""
    name = f"{about.short}_problem.py"
    return folder / name if about.is_installed else Path(near(Path(about.file).parent)) / name


def _from(folder: Path, reference: str) -> str:
    """A reference by path as a file in *folder* has it; a dotted one means the same everywhere."""
    module, _, name = reference.rpartition(":")
    if not (module.endswith(".py") or "/" in module):
        return reference
    return f"{Path(os.path.relpath(module, folder)).as_posix()}:{name}"


def _target() -> str:
    """The GPU of this machine, if a sweep file can name it."""
    try:
        here = device()
    except EnvironmentFaultError:  # a driver that does not answer is no reason not to begin
        return ""
    return here.name if here is not None and here.name in KNOWN_TARGETS else ""


def _there(path: Path, reference: str, problem: Path | None) -> SpecError:
    """Of a sweep file that is there, perhaps of another kernel with this short name."""
    owner = _owner(path)
    force = f"--force replaces {f'both it and {problem}' if problem else 'it'}"
    if not owner:
        said, hint = "", force
    elif _from(path.parent, reference) == owner:
        said, hint = f", of `{owner}`", force
    else:
        said = f", of another kernel, `{owner}`"
        hint = f"--output DIR puts that of `{reference}` elsewhere, {force}"
    what = f"it is there already{said}, and nothing was written"
    return SpecError(what, where=str(path), hint=hint)


def _owner(path: Path) -> str:
    """The kernel of a sweep file, which may have gaps still, as it is written there."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^kernel: *[\"']?([^\s\"'#]+)", text, flags=re.MULTILINE)
    return found.group(1) if found else ""


def _write(texts: dict[Path, str]) -> None:
    for path in texts:  # all of them or none: half of a start would be in the way of the next
        places.refuse_unwritable(path.parent)
    for path, text in texts.items():
        places.write(path, text)

"""places: what tritune keeps outside the repository, and what it writes -> files and folders."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritune.errors import EnvironmentFaultError

VARIABLE = "TRITUNE_CACHE_DIR"


def cache_folder() -> Path:
    """`TRITUNE_CACHE_DIR`, else `tritune` in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or _home() / ".cache"
    return Path(base) / "tritune"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # in a container, say, whose user has a number and no name
        raise EnvironmentFaultError(
            "this user has no home folder, where a cache would be",
            hint=f"set {VARIABLE} to a folder that can be written",
        ) from error


def write(path: Path, text: str) -> None:
    """Write a file that a user asked for, and make its folder.

    Raises:
        EnvironmentFaultError: the disk does not let us.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a pipe, which has no path behind /dev/stdout
            path.write_text(text, encoding="utf-8")
        else:
            replace(Path(os.path.realpath(path)), text)  # a link stays a link
    except OSError as error:
        raise unwritable(path, error) from error


def replace(path: Path, text: str) -> None:
    """Write it beside and then replace it, so that nobody ever reads a part of it."""
    other = beside(path)
    try:
        with other.open("x", encoding="utf-8", newline="\n") as file:
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        other.replace(path)
    finally:
        other.unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """Where `replace` writes first; a file that its owner protects stays as it is."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
    return path.with_name(f".{path.name}.{os.getpid()}")


def unwritable(path: Path, error: OSError, hint: str = "") -> EnvironmentFaultError:
    """What is said of it, whatever it is."""
    what = f"cannot be written: {error.strerror or error}"
    return EnvironmentFaultError(what, where=str(path), hint=hint)


def made(folder: Path, hint: str = f"set {VARIABLE} to a folder that can be written") -> Path:
    """*folder*, there and writable; else *hint* is what to do about it.

    Raises:
        EnvironmentFaultError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise EnvironmentFaultError(
            f"cannot write here ({error.strerror})",
            where=str(folder),
            hint=hint,
        ) from error
    return folder


def refuse_unwritable(folder: Path, *, file: Path | None = None, hint: str = "") -> None:
    """Raise what writing into *folder* would, before hours of work; nothing is made.

    The error is of *file*, where only one is to be written into it; one that is there is left to
    `write`, for the folder of a pipe takes no file.

    Raises:
        EnvironmentFaultError: it, or the folder that it would be made in, takes no file.
    """
    try:  # asking alone may be forbidden
        if file is not None and file.exists():
            return
        there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        probe = there / f".tritune-{os.getpid()}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise unwritable(file or folder, error, hint) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Where one sweep keeps its journal, its binaries and what compilers print."""

    journals: Path
    binaries: Path
    logs: Path
    source: str
    """The digest of what the binaries are of."""

    @classmethod
    def of(
        cls, *, sources: Iterable[str], target: str, journals: Path | None, journaled: bool
    ) -> Places:
        """The folders for kernels with these source digests, on a target such as `cuda:90`.

        That of journals need not be writable where nothing is to be *journaled*.
        Binaries are kept by source digest: Triton's own cache serves an old binary after an edit
        that its key misses, such as a constant reached through a module. All kernels of an op
        have one folder: whoever measures one of them runs the others too.
        """
        cache, source = cache_folder(), _together(sorted({*sources}))
        held = journals or cache / "journals"
        if journaled and journals:
            made(journals, "name a folder that can be written with --journal DIR")
        elif journaled:
            made(held)
        return cls(
            source=source,
            journals=held,
            binaries=made(cache / "binaries" / source / target.replace(":", "-")),
            logs=made(cache / "logs"),
        )


def _together(sources: Sequence[str]) -> str:
    """One digest of several; of one itself."""
    if len(sources) == 1:
        return sources[0]
    return hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]


def journal_path(folder: Path, sweep: Path, device: str) -> Path:
    """The journal of one sweep file on one device."""
    digest = hashlib.sha256(os.fsencode(sweep.absolute())).hexdigest()[:8]
    return folder / f"{sweep.stem}-{digest}.{device.replace(' ', '_')}.jsonl"


def record_path(sweep: Path, device: str) -> Path:
    """The recorded journal that a repository carries for a sweep file and a device."""
    return sweep.parent / "recorded" / f"{sweep.stem}.{device.replace(' ', '_')}.jsonl.gz"

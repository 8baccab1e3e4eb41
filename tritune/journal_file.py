"""journal_file: lines of JSON <-> a file that `kill -9` and a second writer cannot spoil.

A call of `append` is one write under a lock, so a killed process costs at most its last line:
reading ignores that, and the next write, of whichever process, cuts it off. Nothing is synced;
what a power cut takes is measured again. Knows nothing of what the lines say.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tritune.errors import EnvironmentFaultError, TrituneError

ELSEWHERE = "put journals elsewhere with `--journal DIR` or TRITUNE_CACHE_DIR"
TAIL = 1 << 16


class JournalError(TrituneError):
    """A journal is damaged, or is none."""


class JournalFile:
    """A file of JSON objects, one a line; its first line, *head*, is written by itself."""

    def __init__(self, path: Path, head: dict[str, Any], *, read_only: bool) -> None:
        self.path = path
        self._head = head
        self._descriptor: int | None = None
        if read_only:
            return
        if path.suffix == ".gz":
            hint = "gunzip it to add to it"
            raise JournalError("a compressed journal is only read", where=str(path), hint=hint)
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o644)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Be the only one that holds it, until the end of the block or of this process."""
        path = self.path.with_name(f"{self.path.name}.lock")
        with _writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if (pid := holder(descriptor)) is not None:
                raise _held(self.path, pid)
            yield
        finally:
            os.close(descriptor)

    def lines(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Each line with its number, None where it is no JSON object; not a last one cut off."""
        texts = _read(self.path).split(b"\n")
        numbered = [(number, text) for number, text in enumerate(texts, start=1) if text.strip()]
        if numbered and _parse(numbered[-1][1]) is None:
            del numbered[-1]
        for number, text in numbered:
            yield number, _parse(text)

    def append(self, lines: Sequence[dict[str, Any]]) -> None:
        """Add lines; they are in the file when this returns."""
        if self._descriptor is None:
            raise JournalError("this journal is open to be read only", where=str(self.path))
        with _writing(self.path), _alone(self._descriptor):
            head = () if _repair(self._descriptor) else (self._head,)
            shown = (json.dumps(line, separators=(",", ":")) for line in (*head, *lines))
            _write(self._descriptor, "".join(f"{line}\n" for line in shown).encode())


def holder(descriptor: int) -> str | None:
    """The process that holds a lock file, empty where it has not said; None where we do now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, 20, 0).decode(errors="replace").strip()
    except OSError:
        return None  # a disk with no locks: hope, as for single lines
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return None


def _held(path: Path, pid: str) -> EnvironmentFaultError:
    return EnvironmentFaultError(
        f"another sweep{f' (process {pid})' if pid else ''} is measuring into this journal",
        where=str(path),
        hint="wait until it is done, or give this one another folder with `--journal DIR`",
    )


def _parse(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError as error:
        hint = "a sweep on a GPU writes one"
        raise JournalError("no such journal", where=str(path), hint=hint) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        what = f"a damaged gzip file: {error}"
        raise JournalError(what, where=str(path), hint="restore the file") from error
    except OSError as error:
        what = f"cannot read the journal: {error.strerror}"
        hint = "make it readable, or name another"
        raise EnvironmentFaultError(what, where=str(path), hint=hint) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what a disk says into what a user can do."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        hint = f"{'free some space' if is_full else 'make it writable'}, or {ELSEWHERE}"
        what = f"cannot write the journal: {error.strerror}"
        raise EnvironmentFaultError(what, where=str(path), hint=hint) from error


@contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    """Keep other writers out while a cut line is repaired; on a disk with no locks, hope."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _repair(descriptor: int) -> int:
    """End the last line, or cut it off where it is no JSON; the size of the file then."""
    size, span = os.fstat(descriptor).st_size, TAIL
    tail = os.pread(descriptor, span, max(0, size - span))
    while len(tail) < size and b"\n" not in tail.rstrip(b"\n"):
        span *= 4
        tail = os.pread(descriptor, span, max(0, size - span))
    body = tail.rstrip(b"\n")
    last = body[body.rfind(b"\n") + 1 :]
    if last.strip() and _parse(last) is None:
        os.ftruncate(descriptor, size - len(tail) + len(body) - len(last))
    elif last and tail == body:
        _write(descriptor, b"\n")
    return os.fstat(descriptor).st_size


def _write(descriptor: int, text: bytes) -> None:
    """All of it or nothing: what does not fit is taken back."""
    before = os.fstat(descriptor).st_size
    written = os.write(descriptor, text) if text else 0
    if written < len(text):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

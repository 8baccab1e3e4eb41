"""lock: Winners -> Lock, and Lock <-> the file on disk.

Knows nothing of how a winner was found. The format itself is in `locktext` and `lockrender`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from tritune import places
from tritune.devicelabels import with_device
from tritune.errors import EnvironmentFaultError, LockError, TrituneError
from tritune.lockhints import text_of
from tritune.lockrender import render, sort_entries
from tritune.locktext import parse
from tritune.model import DeviceIdentity, Entry, Evidence, Lock, LockedKey, Winner

__all__ = ["merge_winners", "parse", "read", "read_as", "render", "update", "write"]

_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
"""What is wrong with the machine and not with the path."""
OPTION = "--lockfile FILE"
"""What names another lockfile to write, of the commands that sweep or import."""


def read(path: Path | str) -> Lock:
    """The lockfile at *path*; an empty Lock where there is none yet."""
    path = Path(path)
    try:
        return read_as(path, str(path))
    except FileNotFoundError:
        return Lock()


def read_as(path: Path, name: str) -> Lock:
    """The lockfile at *path*, which is there, called *name* in messages."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _cannot("read", path, error) from error
    return parse(text_of(data, name), name)


def write(path: Path | str, lock: Lock, *, option: str = OPTION) -> None:
    """Replace the lockfile at *path*, at once and whole; *option* is what names another."""
    with _exclusive(Path(path)):
        _replace(Path(path), render(lock), option)


def update(path: Path | str, change: Callable[[Lock], Lock]) -> Lock:
    """Read, change and replace, with no other sweep in between."""
    with _exclusive(Path(path)):
        lock = change(read(path))
        _replace(Path(path), render(lock), OPTION)
        return lock


def merge_winners(
    lock: Lock,
    device: DeviceIdentity,
    winners: Iterable[Winner],
    near: Mapping[str, Sequence[str]] | None = None,
) -> Lock:
    """*lock* with the winners of one device in it; no other entry changes.

    *near* gives, by kernel, the constraints that name an axis of the problem. They guard every
    entry of a kernel, so those that an entry was swept under which is not among the winners stay.
    """
    devices, label = with_device(lock.devices, device)
    entries = dict(lock.entries)
    decided = set()
    for winner in winners:
        at = LockedKey(kernel=winner.kernel, device=label, key=winner.key)
        entries[at] = _entry(winner, entries.get(at))
        decided.add(at)
    shared = {at.kernel for at in entries if at not in decided}
    constraints = dict(lock.near)
    for name, texts in (near or {}).items():
        kept = constraints.get(name, ()) if name in shared else ()
        constraints[name] = tuple(dict.fromkeys((*kept, *texts)))
    return Lock(
        devices=devices,
        entries=sort_entries(entries.items()),
        near=tuple(sorted((name, texts) for name, texts in constraints.items() if texts)),
    )


def merge_imported(
    lock: Lock,
    device: DeviceIdentity,
    imported: Iterable[tuple[LockedKey, Entry]],
    near: Mapping[str, Sequence[str]],
    *,
    force: bool,
) -> tuple[Lock, dict[LockedKey, str]]:
    """*lock* with what nobody has timed here, and what became of each entry.

    `added`, `replaced`, `there` where the same config is locked already, or `kept`: what was
    measured gives way only with *force*. The device's label is put into every entry.
    """
    devices, label = with_device(lock.devices, device)
    entries, fates = dict(lock.entries), dict[LockedKey, str]()
    for at, entry in ((replace(at, device=label), entry) for at, entry in imported):
        before = entries.get(at)
        fates[at] = _fate(before, entry, force=force)
        if fates[at] in {"added", "replaced"}:
            entries[at] = entry
    added = {name: texts for name, texts in near.items() if texts and name not in dict(lock.near)}
    return (
        Lock(
            devices=devices,
            entries=sort_entries(entries.items()),
            near=tuple(
                sorted({**dict(lock.near), **{n: tuple(t) for n, t in added.items()}}.items())
            ),
        ),
        fates,
    )


def _fate(before: Entry | None, entry: Entry, *, force: bool) -> str:
    if before is None:
        return "added"
    if before.config == entry.config:
        return "there"
    return "replaced" if force or before.evidence.unmeasured else "kept"


def _entry(winner: Winner, before: Entry | None) -> Entry:
    # A kept incumbent keeps its evidence, so a sweep that decides nothing new changes no byte;
    # only what the sweep has seen anew (source, space, reach, hook) is what it is now.
    if winner.change == "kept" and before is not None and before.config == winner.config:
        seen, held = winner.evidence, before.evidence
        source, space = seen.source or held.source, seen.space or held.space
        seen = replace(
            held,
            source=source,
            space=space,
            reach=seen.reach or held.reach,
            hook=seen.hook,
            unsettled=False,
        )
        return replace(before, evidence=seen)
    return Entry(config=winner.config, evidence=_rounded(winner.evidence))


def _rounded(evidence: Evidence) -> Evidence:
    default_us, margin = evidence.default_us, evidence.margin
    return replace(
        evidence,
        us=float(f"{evidence.us:.3g}"),
        default_us=None if default_us is None else float(f"{default_us:.3g}"),
        margin=None if margin is None else round(margin, 3),
        noise=round(evidence.noise, 3),
        unsettled=False,
        unmeasured=False,
    )


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    # Beside the lockfile it would be litter in the user's repository.
    digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    seat = Path(tempfile.gettempdir(), f"tritune-{os.getuid()}-{digest}.lock")
    try:
        held = FileLock(seat, mode=0o600)
        held.acquire()
    except OSError as error:
        raise _cannot("locked", seat, error) from error
    try:
        yield
    finally:
        held.release()


def _replace(path: Path, text: str, option: str) -> None:
    real = Path(os.path.realpath(path))  # a link stays a link
    try:
        if real.exists() and real.read_bytes() == text.encode():
            return
        places.replace(real, text)
    except OSError as error:
        raise _cannot("written", path, error, option) from error


def refuse_unwritable(path: Path | str) -> None:
    """Raise what `write` would, before hours of work; the lockfile is not touched."""
    real = Path(os.path.realpath(path))
    try:
        beside = places.beside(real)
        beside.touch(exist_ok=False)
        beside.unlink()
    except OSError as error:
        raise _cannot("written", Path(path), error) from error


def _cannot(what: str, path: Path, error: OSError, option: str = OPTION) -> TrituneError:
    # One rule for whatever is written, as for a journal: no disk takes it, whoever is to blame.
    reads = what == "read" and error.errno not in _MACHINE
    kind = LockError if reads else EnvironmentFaultError
    return kind(
        f"cannot be {what}: {error.strerror or error}",
        where=str(path),
        hint=f"nothing was changed; {option} writes elsewhere" if what == "written" else "",
    )

"""lockhints: a text that is no whole lockfile -> what to do about it.

A lockfile that is damaged may be deleted; what somebody gave in its place may not.
"""

from __future__ import annotations

from tritune.errors import LockError, NoLockfileError

RESTORE = "restore it from git, or delete the file and sweep again"
NAME = "name a lockfile, such as kernels/tritune.lock"
NAME_ONE = f"{NAME}; if this was one, restore it from git"
_BEGINS = ("{", "<<<<<<<")
_HEAD = 80


def refuse_other(text: str, path: str) -> None:
    """Refuse what was never a lockfile, as a sweep file is, whatever was cut off.

    Raises:
        NoLockfileError: *text* does not begin as one does, or as an unfinished merge of one.
    """
    if text.lstrip().startswith(_BEGINS):
        return
    if path.endswith((".yaml", ".yml")):
        raise NoLockfileError("is no lockfile but a sweep file, by its name", where=path, hint=NAME)
    raise NoLockfileError("is no lockfile: it does not begin with `{`", where=path, hint=NAME_ONE)


def damaged(what: str, where: str, text: str) -> LockError:
    """Of a text that is not JSON as a lockfile is: a table and a journal begin like one."""
    return LockError(what, where=where, hint=RESTORE if '"tritune"' in text[:_HEAD] else NAME_ONE)


def text_of(data: bytes, path: str) -> str:
    """The text of a lockfile.

    Raises:
        LockError: it is none.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 at byte {error.start}"
        hint = RESTORE if data.startswith(b"{") else NAME_ONE
        raise LockError(what, where=path, hint=hint) from error

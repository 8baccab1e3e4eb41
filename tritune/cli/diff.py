"""diff: two lockfiles, or the lockfiles of two revisions -> what a sweep has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tritune.cli import options as shared
from tritune.cli.root import NO
from tritune.errors import EnvironmentFaultError, LockError, TrituneError
from tritune.words import some

if TYPE_CHECKING:
    from tritune.model import Lock


@click.command()
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--exit-code", is_flag=True, help="Exit 1 where anything differs, as git diff does.")
@click.option("--markdown", is_flag=True, help="Print a table for a pull request.")
@shared.as_json
def diff(
    old: str | None, new: str | None, *, exit_code: bool, markdown: bool, as_json: bool
) -> int:
    """Show which entries differ, and by how much.

    OLD and NEW are lockfiles, revisions, or REVISION:PATH. With no NEW it is the working tree;
    with no OLD either, the last commit is compared with it.
    """
    from tritune.diff import diff as compare
    from tritune.views import diffs, page

    pairs = _pairs(*_sides(old, new))
    found = [(path, compare(before, after)) for path, before, after in pairs]
    if as_json:
        click.echo(diffs.changes_json(found))
    elif markdown:
        click.echo(diffs.changes_markdown(found), nl=False)
    else:
        page.put(diffs.changes_page(found))
    return NO if exit_code and any(changes for _, changes in found) else 0


@dataclass(frozen=True, kw_only=True)
class _Side:
    """Lockfiles by their path in the repository; or one that was named, as it was named."""

    locks: Mapping[str, Lock]
    single: bool = False


def _sides(old: str | None, new: str | None) -> tuple[_Side, _Side]:
    if old is not None and new is None and Path(old).is_file():
        return _last_commit(), _file(Path(old))
    return _side(old) if old else _last_commit(), _side(new) if new else _working_tree()


def _pairs(old: _Side, new: _Side) -> list[tuple[str, Lock, Lock]]:
    from tritune.model import Lock

    if old.single and new.single:
        [(_, before)], [(path, after)] = old.locks.items(), new.locks.items()
        return [(path, before, after)]
    named = [side.locks for side in (old, new) if side.single]
    paths = sorted(named[0] if named else {**old.locks, **new.locks})
    return [(path, old.locks.get(path, Lock()), new.locks.get(path, Lock())) for path in paths]


def _side(text: str) -> _Side:
    from tritune import lock

    revision, colon, path = text.partition(":")
    if Path(text).is_file():
        return _file(Path(text))
    if colon:
        found = lock.parse(_text_at(revision, path), text)
        # As in git, a path with a dot is relative to where one stands, any other to the top.
        is_relative = path.startswith(("./", "../"))
        return _Side(locks={_in_tree(Path(path)) if is_relative else path: found}, single=True)
    if _is_revision(text):
        return _revision(text)
    raise LockError(
        f"`{text}` is neither a file nor a revision",
        hint=_SIDE,
    )


def _text_at(revision: str, path: str) -> str:
    from tritune import git

    try:
        return git.text_at(revision, path)
    except EnvironmentFaultError:
        raise
    except TrituneError as error:
        there = git.lockfiles(revision) if _is_revision(revision) else ()
        hint = f"{revision} has {some(there)}" if there else _SIDE
        raise LockError(error.what, where=error.where, hint=hint) from None


def _file(path: Path) -> _Side:
    from tritune import lock

    return _Side(locks={_in_tree(path): lock.read(path)}, single=True)


def _in_tree(path: Path) -> str:
    """What git calls it, which knows no `..` and no folder by a link to it."""
    from tritune import git

    try:
        return (path.parent.resolve() / path.name).relative_to(git.root()).as_posix()
    except (ValueError, TrituneError):  # outside of any repository
        return str(path)


def _last_commit() -> _Side:
    if not _is_revision("HEAD"):
        raise LockError("there is no commit to compare with", hint=_TWO)
    return _revision("HEAD")


def _is_revision(text: str) -> bool:
    from tritune import git

    try:
        return git.is_revision(text)
    except EnvironmentFaultError:
        raise
    except TrituneError as error:
        raise LockError(error.what, where=error.where, hint=_TWO) from None


_SIDE = "name a lockfile, a revision such as main, or main:kernels/tritune.lock"
_TWO = "name two lockfiles: tritune diff OLD NEW"


def _revision(revision: str) -> _Side:
    from tritune import git, lock

    return _Side(
        locks={
            path: lock.parse(git.text_at(revision, path), f"{revision}:{path}")
            for path in git.lockfiles(revision)
        }
    )


def _working_tree() -> _Side:
    from tritune import git, lock
    from tritune.cli.project import below

    top = git.root()
    return _Side(locks={path.relative_to(top).as_posix(): lock.read(path) for path in below(top)})

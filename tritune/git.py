"""git: a revision or a path -> the lockfiles there; and our merge driver, told to git."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tritune import places
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.model import LOCKFILE

ATTRIBUTES = f"{LOCKFILE} merge=tritune"


def root() -> Path:
    """The top folder of the repository one stands in."""
    return Path(_git("rev-parse", "--show-toplevel").strip())


def is_revision(text: str) -> bool:
    """Whether git knows a commit of that name.

    Raises:
        TrituneError: git cannot know one here: there is no repository.
    """
    root()
    try:
        _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
    except TrituneError:
        return False
    return True


def lockfiles(revision: str) -> tuple[str, ...]:
    """The lockfiles of a revision, relative to the top folder."""
    names = _git("ls-tree", "-r", "-z", "--name-only", "--full-tree", revision).split("\0")
    return tuple(sorted(name for name in names if name.rpartition("/")[2] == LOCKFILE))


def text_at(revision: str, path: str) -> str:
    """The text of a file in a revision.

    Raises:
        TrituneError: git has no such file there, or no such revision.
    """
    return _git("show", f"{revision}:{path}")


def install_driver() -> tuple[Path, bool]:
    """Let git merge lockfiles with tritune; the attributes file, and whether it was changed."""
    attributes = root() / ".gitattributes"
    # `.git/config` is this machine's own, and git may run where no environment is active.
    command = f"{shlex.quote(sys.executable)} -P -m tritune merge --path %P %O %A %B"
    _configure("merge.tritune.name", "tritune lockfiles, entry by entry")
    _configure("merge.tritune.driver", command)
    # Only looked at, and added to: what others wrote may be in any encoding.
    text = attributes.read_text("utf-8", errors="replace") if attributes.is_file() else ""
    if ATTRIBUTES in text.splitlines():
        return attributes, False
    between = "" if not text or text.endswith("\n") else "\n"
    try:
        with attributes.open("a", encoding="utf-8") as file:
            file.write(f"{between}{ATTRIBUTES}\n")
    except OSError as error:
        raise places.unwritable(attributes, error) from error
    return attributes, True


def _configure(name: str, value: str) -> None:
    try:
        _git("config", "--local", name, value)
    except TrituneError as error:  # it has been read before, so it cannot be written
        raise EnvironmentFaultError(error.what, where=error.where) from error


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603  # no shell, and git is the user's own
            ["git", *arguments],  # noqa: S607
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise EnvironmentFaultError("git is not installed") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["git failed"]
        what = said[0].removeprefix("fatal: ").removeprefix("error: ")
        raise TrituneError(what, where=f"git {arguments[0]}")
    return done.stdout.decode("utf-8", errors="replace")

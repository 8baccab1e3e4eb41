"""errors: mistakes a user can fix. Each says where, what, and what next.

`TrituneError` and its kinds are the only exceptions that reach a user without a traceback.
`exit_code` is what the command line returns for it: 2 the input is wrong, 3 it could not be
answered (no such GPU, driver, disk).
"""

from __future__ import annotations

from collections.abc import Sequence

LINE = 200
"""Characters of what somebody else's code raised."""
SIGNATURES = ", but expected one of:"
"""What torch goes on to list all its signatures after."""


def line_of(error: Exception) -> str:
    """What somebody else's code raised, in a line; its type alone where it says nothing."""
    text = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(SIGNATURES)
    if len(text) <= LINE:
        return text.rstrip(": ")
    words = text[:LINE].rpartition(" ")[0]  # not where a long path is most of it
    return f"{words if len(words) > LINE // 2 else text[:LINE]} …"


class TrituneError(Exception):
    """A message in three parts: `where: what`, and on its own line `hint: what next`."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line}\nhint: {self.hint}" if self.hint else line

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.hint))


def _rebuild(kind: type[TrituneError], what: str, where: str, hint: str) -> TrituneError:
    return kind(what, where=where, hint=hint)


class SpecError(TrituneError):
    """The sweep file is wrong."""


class KernelError(TrituneError):
    """The kernel module, or how it uses tritune, is wrong."""


class TableError(TrituneError):
    """A table of configs that another tool wrote is wrong, or does not fit the kernel."""


class NothingFitsError(TableError):
    """Nothing of a table is for the kernel: of several tables, the others may be."""


class LockError(TrituneError):
    """The lockfile is damaged, or cannot be read or written."""


class NoLockfileError(LockError):
    """What was given as a lockfile is something else."""


class LookupMissError(LockError):
    """`TRITUNE_MISS=error`, and a call's key is not locked."""


class EnvironmentFaultError(TrituneError):
    """The machine cannot answer: no such GPU, no C compiler, a broken driver, a full disk."""

    exit_code = 3


class ManyMistakesError(TrituneError):
    """Every mistake of one file, or of several, reported at once."""

    def __init__(self, errors: Sequence[TrituneError]) -> None:
        self.errors: tuple[TrituneError, ...] = tuple(
            each
            for error in errors
            for each in (error.errors if isinstance(error, ManyMistakesError) else (error,))
        )
        super().__init__(f"{len(self.errors)} mistakes")
        self.exit_code = max(error.exit_code for error in self.errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)

    def __reduce__(self) -> tuple[object, ...]:
        return (ManyMistakesError, (self.errors,))


def of_many(errors: Sequence[TrituneError]) -> TrituneError:
    """What to raise of one mistake or several: the one there is, or all of them."""
    return errors[0] if len(errors) == 1 else ManyMistakesError(errors)

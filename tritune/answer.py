"""answer: what became of a call in a child process: Done | Raised | Died | TimedOut."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from tritune.errors import TrituneError

T = TypeVar("T")


def signal_name(number: int) -> str:
    """Such as SIGSEGV; those of real time are mostly without a name."""
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"signal {number}")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What the function returned."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that left the function; `error` is the thing itself where it is ours."""

    type_name: str
    message: str
    traceback: str
    error: TrituneError | None = None
    output: str = ""
    where: str = ""
    """`file:line` of the user's own code that raised it, where there is such."""

    def __str__(self) -> str:
        return f"{self.said} ({self.where})" if self.where else self.said

    @property
    def said(self) -> str:
        """Its type, and its message where it has one."""
        return f"{self.type_name}: {self.message}" if self.message else self.type_name


@dataclass(frozen=True, slots=True)
class Died:
    """The process ended before it answered: by a signal, or with an exit code."""

    signal: int | None
    exit_code: int | None
    output: str = ""

    def __str__(self) -> str:
        if self.signal is None:
            return f"exited with code {self.exit_code}"
        return f"killed by signal {self.signal} ({signal_name(self.signal)})"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """It was killed at its time limit."""

    seconds: float
    output: str = ""

    def __str__(self) -> str:
        return f"no answer after {self.seconds:g} s"


Answer: TypeAlias = Done[T] | Raised | Died | TimedOut

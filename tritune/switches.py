"""switches: the environment, or a sweep -> what changes for every kernel of the process.

Process-wide on purpose: autograd runs the backward kernels of an op in threads of its own.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

KINDS = ("exact", "near", "default", "given", "forced")
"""How a launch came by its config."""

Interceptor = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], object]
"""Called as `interceptor(kernel, args, kwargs, grid)` in place of a launch."""

interceptor: Interceptor | None = None

tracers: set[int] = set()
"""Threads that run an op for the shapes of its results alone: their launches are left out."""

Counts = dict[tuple[str, str], int]

_running: dict[int, Counts] = {}
"""The counts of each thread that lives, by their id."""
_ended: Counts = {}
"""The sum of those of all that have ended."""
_registering = threading.RLock()  # a thread's end may come up while the lock is held


class _Ending:
    """Goes when its thread does."""


class _OfThread(threading.local):
    """The counts of one thread: nothing is shared, so nothing is locked on a launch."""

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.ending = _Ending()
        weakref.finalize(self.ending, _end, self.counts).atexit = False
        with _registering:
            _running[id(self.counts)] = self.counts


def _end(counts: Counts) -> None:
    """Add up what an ended thread counted: a server may start threads without end."""
    with _registering:
        if _running.pop(id(counts), None) is not None:
            for at, number in counts.items():
                _ended[at] = _ended.get(at, 0) + number


_mine = _OfThread()


@contextmanager
def intercept(function: Interceptor) -> Iterator[None]:
    """Every launch of every kernel calls *function* instead of running."""
    global interceptor  # noqa: PLW0603  # one for the process, read on every launch
    before, interceptor = interceptor, function
    try:
        yield
    finally:
        interceptor = before


@contextmanager
def tracing() -> Iterator[None]:
    """In this thread nothing is launched, and `config()` gives the default."""
    mine = threading.get_ident()
    nested = mine in tracers
    tracers.add(mine)
    try:
        yield
    finally:
        if not nested:
            tracers.discard(mine)


def is_tracing() -> bool:
    return bool(tracers) and threading.get_ident() in tracers


def are_set() -> bool:
    """Whether a launch may be something else than a launch."""
    return interceptor is not None or bool(tracers)


def count(at: tuple[str, str]) -> None:
    """One more launch of a kernel, and how it came by its config."""
    counts = _mine.counts
    counts[at] = counts.get(at, 0) + 1


def stats() -> dict[str, dict[str, int]]:
    """How often each kernel got an exact, near, default, given or forced config so far."""
    found: dict[str, dict[str, int]] = {}
    with _registering:
        counted = [item for counts in (_ended, *_running.values()) for item in list(counts.items())]
    for (kernel, kind), number in counted:
        found.setdefault(kernel, dict.fromkeys(KINDS, 0))[kind] += number
    return {kernel: found[kernel] for kernel in sorted(found)}


def off() -> bool:
    """`TRITUNE=off`: kernels run as if tritune were not installed."""
    said = os.environ.get("TRITUNE", "").lower()
    is_off = said in {"off", "0", "false"}
    if not is_off and said not in {"", "on", "1", "true"}:
        say_once(f"TRITUNE={said} is neither `on` nor `off`, so kernels run what is locked")
    return is_off


def miss_is_error() -> bool:
    said = os.environ.get("TRITUNE_MISS", "default").lower()
    if said not in {"default", "error"}:
        say_once(
            f"TRITUNE_MISS={said} is neither `default` nor `error`, so a miss runs the default"
        )
    return said == "error"


def say_once(text: str) -> None:
    """Warn of a variable that does not do what its user means, once a process."""
    if text not in _said:
        _said.add(text)
        logging.getLogger("tritune").warning("%s", text)


_said: set[str] = set()


def miss_log() -> str:
    """The file that takes every miss as a line of JSON; empty for none."""
    return os.environ.get("TRITUNE_LOG", "")


def lockfile() -> str:
    """The lockfile that every kernel reads in place of its own; empty for its own."""
    return os.environ.get("TRITUNE_LOCKFILE", "")

"""switches: what the environment, or a sweep, changes for every kernel of the process.

Process-wide on purpose: autograd runs the backward kernels of an op in threads of its own.
"""

from __future__ import annotations

import os
import threading
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

_counted: list[Counts] = []
_registering = threading.Lock()


class _OfThread(threading.local):
    """The counts of one thread: nothing is shared, so nothing is locked on a launch."""

    def __init__(self) -> None:
        self.counts: Counts = {}
        with _registering:
            _counted.append(self.counts)


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


def count(kernel: str, kind: str) -> None:
    counts = _mine.counts
    at = (kernel, kind)
    counts[at] = counts.get(at, 0) + 1


def stats() -> dict[str, dict[str, int]]:
    """How often each kernel got an exact, near, default, given or forced config so far."""
    found: dict[str, dict[str, int]] = {}
    with _registering:
        threads = list(_counted)
    for counts in threads:
        for (kernel, kind), number in list(counts.items()):
            found.setdefault(kernel, dict.fromkeys(KINDS, 0))[kind] += number
    return {kernel: found[kernel] for kernel in sorted(found)}


def off() -> bool:
    """`TRITUNE=off`: kernels run as if tritune were not installed."""
    return os.environ.get("TRITUNE", "").lower() in {"off", "0", "false"}


def miss_is_error() -> bool:
    return os.environ.get("TRITUNE_MISS", "default").lower() == "error"


def miss_log() -> str:
    """The file that takes every miss as a line of JSON; empty for none."""
    return os.environ.get("TRITUNE_LOG", "")


def lockfile() -> str:
    """The lockfile that every kernel reads in place of its own; empty for its own."""
    return os.environ.get("TRITUNE_LOCKFILE", "")

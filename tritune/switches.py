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

_counts: dict[str, dict[str, int]] = {}
_counting = threading.Lock()


@contextmanager
def intercept(function: Interceptor) -> Iterator[None]:
    """Every launch of every kernel calls *function* instead of running."""
    global interceptor  # noqa: PLW0603  # one for the process, read on every launch
    before, interceptor = interceptor, function
    try:
        yield
    finally:
        interceptor = before


def count(kernel: str, kind: str) -> None:
    with _counting:
        counts = _counts.setdefault(kernel, dict.fromkeys(KINDS, 0))
        counts[kind] += 1


def stats() -> dict[str, dict[str, int]]:
    """How often each kernel got an exact, near, default, given or forced config so far."""
    with _counting:
        return {kernel: dict(counts) for kernel, counts in _counts.items()}


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

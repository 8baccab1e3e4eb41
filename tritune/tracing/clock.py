"""tracing.clock: a launch -> how long it took on the GPU, told later.

A pair of events around the launch itself, set by Triton's launch hooks, so neither tuning nor a
compile is in between; of a launch of several, the last. They are read when they have passed,
and never waited for. Nothing is recorded while a CUDA graph is being captured.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton import knobs

PENDING = 1024
"""Launches whose events have not passed; beyond it, none is timed."""


class Clock:
    """The launches of this process that are being timed."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Callable[[float], None], _Around, int]] = deque()
        self._free: dict[int, list[Any]] = {}
        """Events of each GPU that can be used again: one belongs to where it was first recorded."""

    @property
    def is_full(self) -> bool:
        """Whether none is timed until some are read."""
        return len(self._pending) >= PENDING

    @contextmanager
    def timing(self, told: Callable[[float], None]) -> Iterator[None]:
        """Time the launch inside, and call *told* with its microseconds, at a later `read`."""
        if self.is_full or not _is_possible():
            yield
            return
        gpu = sys.modules["torch"].cuda.current_device()
        around = _Around(self._event(gpu), self._event(gpu))
        with around.hooked():
            yield
        if around.has_ended:
            self._pending.append((told, around, gpu))

    def read(self) -> None:
        """Tell of all that has ended; one thread at a time."""
        while self._pending and _is_possible():
            told, around, gpu = self._pending[0]
            if not around.end.query():
                return
            self._pending.popleft()
            told(around.start.elapsed_time(around.end) * 1e3)
            self._free.setdefault(gpu, []).extend((around.start, around.end))

    def _event(self, gpu: int) -> Any:
        with contextlib.suppress(KeyError, IndexError):  # none is free
            return self._free[gpu].pop()
        return sys.modules["torch"].cuda.Event(enable_timing=True)


class _Around:
    """Records an event before and after each launch of this thread."""

    def __init__(self, start: Any, end: Any) -> None:
        self.start, self.end = start, end
        self.has_ended = self._has_begun = False
        self._thread = threading.get_ident()

    def _enter(self, metadata: Any) -> None:
        del metadata
        if threading.get_ident() == self._thread:
            self.has_ended = False
            self._has_begun = _recorded(self.start)

    def _leave(self, metadata: Any) -> None:
        del metadata
        if threading.get_ident() == self._thread:
            self.has_ended = self._has_begun and _recorded(self.end)

    @contextmanager
    def hooked(self) -> Iterator[None]:
        enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        if not (hasattr(enter, "add") and hasattr(leave, "add")):  # somebody put his own there
            yield
            return
        enter.add(self._enter)
        leave.add(self._leave)
        try:
            yield
        finally:
            enter.remove(self._enter)
            leave.remove(self._leave)


def _recorded(event: Any) -> bool:
    try:
        event.record()
    except Exception:  # noqa: BLE001  # nothing of ours may stop a launch
        return False
    return True


def is_capturing() -> bool:
    """Whether this thread's stream is being captured."""
    torch: Any = sys.modules.get("torch")
    return bool(
        torch is not None
        and torch.cuda.is_initialized()
        and torch.cuda.is_current_stream_capturing()
    )


def _is_possible() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized() and not is_capturing()

"""progress: what a sweep is doing -> stderr, while it does it.

A bar with counts, the time left and the best so far on a terminal; plain lines, a few a
minute, where there is none, so that a log of a CI job stays readable. Results never come
this way.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tritune.views.units import format_count, format_s

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

INTERVAL_S = 2.0
"""Least time between two plain lines of one stage: a sweep of 20 minutes stays under 600."""


class PlainLines:
    """A first and a last line for every stage, between them one every two seconds at most."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._name = ""
        self._total: int | None = None
        self._count = 0
        self._text = ""
        self._began = self._spoke = 0.0

    def stage(self, name: str, total: int | None) -> None:
        self.done()
        self._name, self._total, self._count, self._text = name, total, 0, ""
        self._began = self._spoke = self._clock()
        self._write(f"{name}: {_of(0, total)}" if total is not None else name)

    def advance(self, text: str = "") -> None:
        self._count += 1
        self._text = text or self._text
        now = self._clock()
        if now - self._spoke >= INTERVAL_S and self._count != self._total:
            self._spoke = now
            self._write(self._line(self._left(now)))

    def say(self, text: str) -> None:
        self._write(text)

    def done(self) -> None:
        if self._name:
            self._write(self._line(f"took {format_s(self._clock() - self._began)}"))
            self._name = ""

    def _line(self, when: str) -> str:
        counts = _of(self._count, self._total) if self._count or self._total is not None else ""
        return f"{self._name}: {' · '.join(part for part in (counts, when, self._text) if part)}"

    def _left(self, now: float) -> str:
        if not self._total:
            return ""
        left = (now - self._began) / self._count * (self._total - self._count)
        return f"{format_s(left)} left"

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


def _of(count: int, total: int | None) -> str:
    return format_count(count) if total is None else f"{count:,}/{total:,}"


class Bar:
    """A live bar of the stage at hand; finished stages leave a line."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._bar = _live(stream)
        self._bar.start()
        self._clock = clock
        self._task: TaskID | None = None
        self._name = ""
        self._began = 0.0

    def stage(self, name: str, total: int | None) -> None:
        self._finish()
        self._name, self._began = name, self._clock()
        self._task = self._bar.add_task(name, total=total, text="")

    def advance(self, text: str = "") -> None:
        if self._task is not None:
            self._bar.advance(self._task)
        if self._task is not None and text:
            self._bar.update(self._task, text=text)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def done(self) -> None:
        self._finish()
        self._bar.stop()

    def _finish(self) -> None:
        if self._task is None:
            return
        [task] = [task for task in self._bar.tasks if task.id == self._task]
        counts = _of(int(task.completed), None if task.total is None else int(task.total))
        news = [counts, f"took {format_s(self._clock() - self._began)}", task.fields["text"]]
        self._bar.remove_task(self._task)
        self._task = None
        self.say(f"{self._name}: {' · '.join(part for part in news if part)}")


def _live(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", markup=False),
        console=Console(file=stream),
        transient=True,
    )


def observer(stream: TextIO | None = None) -> PlainLines | Bar:
    """The one that fits *stream*, by default stderr."""
    stream = stream or sys.stderr
    return Bar(stream) if _is_live(stream) else PlainLines(stream)


def _is_live(stream: TextIO) -> bool:
    if not stream.isatty():
        return False
    from rich.console import Console

    # rich knows TERM=dumb and TTY_COMPATIBLE; a bar on such a terminal is line noise.
    return not Console(file=stream).is_dumb_terminal


@contextmanager
def observing(stream: TextIO | None = None) -> Iterator[PlainLines | Bar]:
    """An observer whose bar is gone at the end, whatever ends it."""
    watcher = observer(stream)
    try:
        yield watcher
    finally:
        watcher.done()

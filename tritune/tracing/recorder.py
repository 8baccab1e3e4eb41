"""tracing.recorder: the launches of this process -> lines of JSON in a file of its own.

A key is written when it is first launched, before the launch, so that what crashes is there;
counts that have changed are written as launches come by, and at the end: once a second at first,
then ever more seldom, so that a day of it is a file of no size. A process that is killed loses
what it counted since. There is no thread: a program that forks must not be warned of one.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton

from tritune import silicon
from tritune.errors import line_of
from tritune.tracing.clock import Clock, is_capturing
from tritune.tracing.traced import Launch, Traced

logger = logging.getLogger("tritune")
EVERY_S = 1.0
"""Between two times that counts are written, at least;"""
SHARE = 0.01
"""and this part of the time that has passed: what a kill loses, at most;"""
BUSY = 200
"""and so many times as long as it takes."""
SPARSE = 2
"""Half as many launches more as there were, then one is timed again,"""
MOST = 256
"""and never more than this later."""
FAILURES = 256
"""Different reasons that are written of what cannot be traced; of a program with more, no more."""
SLOT = "_tritune_traced"
Call = tuple[tuple[Any, ...], dict[str, Any], Any]
"""The arguments of a launch by position, by name, and its grid."""


class Recorder:
    """All that one process has launched."""

    def __init__(
        self, folder: str, *, every: bool = False, opened: Callable[[], None] = lambda: None
    ) -> None:
        self.folder, self.every, self.opened = Path(folder), every, opened
        self.clock = Clock()
        self._empty()

    def _empty(self) -> None:
        self.file: Path | None = None
        self.lock = threading.Lock()
        self.launches: list[Launch] = []
        self.traced: list[Traced] = []
        self.failed: set[str] = set()
        self.written: list[list[Any]] = []
        """The counts of each launch, as they were written last."""
        self.above = ""
        """The end of a line that a full disk has cut off."""
        self.began = self.flushed = time.monotonic()
        self.wait_s = EVERY_S

    def seen(
        self, launched: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> Launch | None:
        """What to count a launch by; None where it cannot be told."""
        if getattr(launched, "_is_stock", False):
            return None  # its own autotuner makes the launch
        try:
            traced: Traced = vars(launched).get(SLOT) or self._trace(launched)
            launch, fact = traced.seen(args, kwargs)
            if fact is not None:
                self._note(traced, launch, (args, kwargs, grid))
        except Exception as error:  # noqa: BLE001  # nothing of ours may stop a launch
            self._fail(launched, error)
            return None
        return launch

    def _trace(self, launched: Any) -> Traced:
        traced = Traced(launched)
        with self.lock:
            vars(launched)[SLOT] = traced
            self.traced.append(traced)
            self._write(traced.described())
        return traced

    def _note(self, traced: Traced, launch: Launch, call: Call) -> None:
        with self.lock:
            if traced not in self.traced:  # of the process that this one is a fork of
                self.traced.append(traced)
                self._write(traced.described())
            launch.fact["launch"] = len(self.launches)
            self.launches.append(launch)
            if launch.fact["key"] is not None:
                _add_facts(traced, launch, call)
            self._write(launch.fact)
            if launch.arriving is None:
                launch.fact = {}  # of thousands of keys it is a lot, and nothing asks for it again

    def _fail(self, launched: Any, error: Exception) -> None:
        name = getattr(getattr(launched, "base_fn", launched), "__name__", type(launched).__name__)
        text = line_of(error)
        with self.lock:  # a thread that writes the first line opens the file
            if text not in self.failed and len(self.failed) < FAILURES:
                self.failed.add(text)
                self._write({"untraced": name, "why": text})

    def sampled(self, launch: Launch, run: Callable[[], Any]) -> Any:
        """Run a launch, timed, unless it is the first, which may tune."""
        launch.due = launch.count + min(max(launch.count // SPARSE, 1), MOST)
        try:
            if launch.count == 1:
                return run()
            if is_capturing():
                launch.captured = True
                return run()
            with self.clock.timing(launch.told):
                return run()
        finally:
            waited = time.monotonic() - self.flushed
            if waited >= self.wait_s or (self.clock.is_full and waited >= EVERY_S):
                self.flush()

    def flush(self) -> None:
        """Write the counts, and what has come to be known of times and contents."""
        if not self.lock.acquire(blocking=False):
            return  # another thread is at it
        try:
            self.flushed = time.monotonic()
            self._read()
            self._count()
            took = time.monotonic() - self.flushed
            self.wait_s = max(EVERY_S, SHARE * (self.flushed - self.began), BUSY * took)
        except Exception as error:  # noqa: BLE001  # as in `seen`
            logger.debug("tritune trace: %s", error)
        finally:
            self.lock.release()

    def _count(self) -> None:
        changed = {}
        for at, each in enumerate(self.launches):
            counts = [each.count, each.timed, round(each.us, 3), each.captured]
            if at == len(self.written):
                self.written.append([])
            if counts != self.written[at]:
                self.written[at] = changed[at] = counts
        if changed:
            self._write({"counts": changed})

    def _read(self) -> None:
        """Take in what the GPU has come to; of one that has failed, nothing."""
        try:
            if not is_capturing():
                self.clock.read()
                self._arrived()
        except RuntimeError as error:  # whatever torch makes of the program's own fault
            logger.debug("tritune trace: %s", error)

    def _arrived(self) -> None:
        for launch in self.launches:
            if launch.arriving is not None and launch.arriving.have_arrived():
                self._write(launch.fact)
                launch.arriving, launch.fact = None, {}

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line) + "\n"
        try:
            if self.file is None:
                self.file = self.folder / f"{os.getpid()}-{time.time_ns():x}.jsonl"
                text = json.dumps(_process()) + "\n" + text
                self.opened()
            with self.file.open("a", encoding="utf-8") as file:
                file.write(self.above + text)
            self.above = ""
        except OSError as error:
            self.written.clear()  # all counts are written again, below what there may be of these
            self.above = "\n"
            if "cannot write" not in self.failed:
                self.failed.add("cannot write")
                logger.warning("tritune trace: cannot write in %s: %s", self.folder, error)

    def forget(self) -> None:
        """Begin anew, in a fork: what the parent launched is the parent's to tell.

        A fork cannot give back what is CUDA's, and torch aborts where it has to for memory that a
        copy is on its way to: so what the parent waits for is never freed here.
        """
        for waited in (self.clock, self.launches):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(waited))
        for traced in self.traced:
            traced.forget()
        self.clock = Clock()
        self._empty()


def _add_facts(traced: Traced, launch: Launch, call: Call) -> None:
    if is_capturing():
        launch.fact["why"] = "its first launch was captured in a CUDA graph"
        return
    try:
        traced.facts(launch, *call)
    except Exception as error:  # noqa: BLE001  # then it is counted, and no more is known
        launch.fact["why"] = line_of(error)


def _process() -> dict[str, Any]:
    """Who writes this file."""
    return {
        "process": os.getpid(),
        "rank": os.environ.get("RANK", ""),
        "program": [sys.executable, *sys.argv][:64],
        "triton": triton.__version__,
        "device": _device(),
    }


def _device() -> str:
    try:
        device = silicon.identity(silicon.current())
    except Exception:  # noqa: BLE001  # a driver that does not answer is no reason to stop
        return ""
    return "" if device is None else device.name

"""workers: a call -> Done | Raised | Died | TimedOut, made in a child process that may be killed.

Compilers abort, kernels hang, and a user's module may print, exit or sleep: none of it may end
the sweep, so whatever runs such code runs here. Each child leads a process group of its own, and
the group dies with its time limit, with `close()`, and with this process, however that ends.
Knows nothing of torch or triton, except that they are imported once, in the fork server (1.6 to
6 s a process otherwise).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypeVar

from tritune.answer import Answer, Died, Done, Raised, TimedOut
from tritune.child import Child, Function, stateless

__all__ = ["Answer", "Died", "Done", "Pool", "Raised", "TimedOut", "Worker", "stateless"]

T = TypeVar("T")
Limit: TypeAlias = Callable[[Sequence[float]], float]
"""Seconds that the calls under way have taken -> seconds that each may take."""
A = TypeVar("A", bound="Raised | Died | TimedOut")

OUTPUT_BYTES = 1024 * 1024
"""How much of what a call printed its answer carries: the end. The log file has all of it."""
SETUP_LIMIT_S = 120.0
_NO_ENV: Mapping[str, str | None] = MappingProxyType({})


def _nothing(*_: object) -> None:
    """Stand for a call before there is one."""


class Worker:
    """One child process that makes a state once and answers calls on it, one at a time.

    The child starts with the first call, and again with the call after one that killed it.
    *env* changes its environment (None removes a name); what it prints goes to *log*.
    The making of the state has its own limit, so a call's limit is the call's alone.
    """

    def __init__(
        self,
        setup: Function[object],
        *args: object,
        log: Path,
        env: Mapping[str, str | None] = _NO_ENV,
        setup_limit_s: float = SETUP_LIMIT_S,
    ) -> None:
        self._setup, self._args, self._env, self._log = setup, args, env, log
        self._setup_limit_s = setup_limit_s
        self._child: Child | None = None
        self._task: tuple[Function[object], tuple[object, ...]] = (_nothing, ())
        self._task_limit_s: float | None = None
        self._limit, self._began = math.inf, 0.0
        self._offset = 0
        self.started = 0
        """Children that there were."""
        self.setup_failed = False
        """Whether the last answer is that of `setup`, which failed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill the child and everything it started. A later call starts a new one."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def turn(self, setup: Function[object], *args: object) -> None:
        """Have the next call made on another state, in the same child if it lives by then."""
        if (setup, args) == (self._setup, self._args):
            return
        self._setup, self._args = setup, args
        if self._child is not None and self._child.ready:
            self._child.ready = False
        else:
            self.close()

    def call(
        self, function: Function[T], *args: object, timeout_s: float | None = None
    ) -> Answer[T]:
        """*function(state, *args)*, made in the child."""
        self.begin(function, args, timeout_s)
        try:
            while (answer := self.step()) is None:
                wait(self.handles, timeout=self.left_s())
        except BaseException:
            self.close()
            raise
        return answer

    def begin(
        self, function: Function[object], args: tuple[object, ...], timeout_s: float | None
    ) -> None:
        """Hand the child a call; `step` answers it."""
        self._task, self._task_limit_s = (function, args), timeout_s
        self.setup_failed = False
        if self._child is not None and self._child.lives():
            if self._child.ready:
                self._send(self._child)
            else:  # it has been turned to another state
                self._mark(self._setup_limit_s)
                self._child.send(self._setup, self._args, makes_state=True)
            return
        self.close()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        self._mark(self._setup_limit_s)
        self._child = Child(self._env, self._log)
        self.started += 1
        self._child.send(self._setup, self._args, makes_state=True)

    def step(self) -> Answer[Any] | None:
        """The answer, once there is one. Returns at once; call it when a handle is ready."""
        child = self._child
        if child is None:
            raise RuntimeError("no call has begun")
        if child.connection.poll():
            return self._receive(child)
        if not child.lives():
            return self._died(child)
        if self.left_s() == 0:
            return self._failed(child, TimedOut(self._limit, self._output()))
        return None

    @property
    def handles(self) -> tuple[Connection | int, ...]:
        return () if self._child is None else self._child.handles

    def left_s(self) -> float | None:
        """Seconds to the time limit."""
        if self._limit == math.inf:
            return None
        return max(0.0, self._began + self._limit - time.monotonic())

    def spent_s(self) -> float | None:
        """Seconds that the call has taken; None while the state is being made."""
        child = self._child
        return time.monotonic() - self._began if child is not None and child.ready else None

    def limit_to(self, limit_s: float) -> None:
        """Change the limit of the call that is being made."""
        self._task_limit_s = limit_s
        if self._child is not None and self._child.ready:
            self._limit = limit_s

    def _send(self, child: Child) -> None:
        self._mark(self._task_limit_s)
        child.send(*self._task)

    def _mark(self, limit_s: float | None) -> None:
        self._offset = self._log.stat().st_size
        self._limit = math.inf if limit_s is None else limit_s
        self._began = time.monotonic()

    def _receive(self, child: Child) -> Answer[Any] | None:
        try:
            answer: Done[Any] | Raised = child.connection.recv()
        except (EOFError, ConnectionError):
            return self._died(child)
        if isinstance(answer, Raised):
            answer = replace(answer, output=self._output())
            return answer if child.ready else self._failed(child, answer)
        if child.ready:
            return answer
        child.ready = True
        self._send(child)
        return None

    def _died(self, child: Child) -> Died:
        wait([child.handles[1]], timeout=5.0)  # its end of the pipe closes before it is gone
        code = child.end()
        died = Died(-code if code < 0 else None, code if code >= 0 else None, self._output())
        return self._failed(child, died)

    def _failed(self, child: Child, answer: A) -> A:
        self.setup_failed = not child.ready
        child.end()
        self._child = None
        return answer

    def _output(self) -> str:
        with self._log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._offset, end - OUTPUT_BYTES))
            return log.read().decode(errors="replace")


class Pool:
    """Workers of one kind, each with its own log file in *log_folder*."""

    def __init__(
        self,
        size: int,
        setup: Function[object],
        *args: object,
        log_folder: Path,
        env: Mapping[str, str | None] = _NO_ENV,
        setup_limit_s: float = SETUP_LIMIT_S,
    ) -> None:
        logs = [log_folder / f"worker{number}.log" for number in range(size)]
        self._workers = [
            Worker(setup, *args, log=log, env=env, setup_limit_s=setup_limit_s) for log in logs
        ]
        self._works = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.close()

    def turn(self, setup: Function[object], *args: object) -> None:
        """Have what is run next made on another state, in the same processes."""
        self._works = False
        for worker in self._workers:
            worker.turn(setup, *args)

    def run(
        self,
        function: Function[T],
        tasks: Iterable[tuple[object, ...]],
        timeout_s: float | Limit,
        deadline: float | None = None,
    ) -> Iterator[tuple[int, Answer[T]]]:
        """*function(state, *task)* of every task, with its index, as they are answered.

        A `Limit` is asked again whenever something happens, for the calls under way as well.
        After *deadline* (of `time.monotonic`) no task is begun, and those left are not answered.
        Where no state can be made at all, how that failed is the answer of every task.
        """
        queue = enumerate(tasks)
        busy: dict[Worker, int] = {}
        try:
            while True:
                self._fill(busy, function, queue, deadline)
                if not busy:
                    return
                _set_limits(busy, timeout_s)
                for worker, answer in _answers(busy):
                    yield busy.pop(worker), answer
                    self._works = self._works or not worker.setup_failed
                    if not self._works:
                        yield from ((index, answer) for index, _ in queue)
        finally:
            if busy:
                self.close()

    def _fill(
        self,
        busy: dict[Worker, int],
        function: Function[object],
        queue: Iterator[tuple[int, tuple[object, ...]]],
        deadline: float | None,
    ) -> None:
        for worker in self._workers:
            if worker in busy:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                return
            index, task = next(queue, (None, ()))
            if index is None:
                return
            busy[worker] = index
            worker.begin(function, task, None)


def _set_limits(busy: Iterable[Worker], limit: float | Limit) -> None:
    spent = [seconds for worker in busy if (seconds := worker.spent_s()) is not None]
    limit_s = limit(spent) if callable(limit) else limit
    for worker in busy:
        worker.limit_to(limit_s)


def _answers(busy: Mapping[Worker, int]) -> list[tuple[Worker, Answer[Any]]]:
    """Wait until something happens; what it answers, if it does."""
    limits = [left for worker in busy if (left := worker.left_s()) is not None]
    wait([handle for worker in busy for handle in worker.handles], min(limits, default=None))
    return [(worker, answer) for worker in busy if (answer := worker.step()) is not None]

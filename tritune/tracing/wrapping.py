"""tracing.wrapping: `run` of Triton's classes -> the same, and a `Recorder` counts the launch."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from triton import knobs
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tritune import adopt, inductor
from tritune.dispatch import Kernel
from tritune.routing import Route
from tritune.tracing.recorder import SLOT, Recorder

Run = Callable[..., Any]
_ABSENT: Any = object()
_HOW = ("grid", "warmup")


class _OfThread(threading.local):
    """Whether this thread is in a launch: what that launches inside is not counted."""

    inside = False


_recorder: Recorder | None = None
_of_thread = _OfThread()


def begin(folder: str, *, every: bool = False) -> None:
    """Trace the launches of every autotuner of this process; *every* jit function's besides."""
    global _recorder  # noqa: PLW0603  # one for the process, as the classes that it patches
    recorder = _recorder = Recorder(folder, every=every, opened=_flush_at_the_end_of_a_fork)
    Route(functools.partial(traced, recorder)).begin()
    if every:
        kinds: list[Any] = [JITFunction]
        if knobs.runtime.interpret:
            from triton.runtime.interpreter import InterpretedFunction

            kinds.append(InterpretedFunction)
        for kind in kinds:
            kind.run = traced(recorder, kind, kind.run)


def flush() -> None:
    if _recorder is not None:
        _recorder.flush()


def forget() -> None:
    if _recorder is not None:
        _recorder.forget()


def traced(recorder: Recorder, kind: type, own: Run) -> Run:
    """What stands in place of the `run` of a class: the same, counted.

    A launch may come through several such (a class that calls its parent's `run`, a kernel that
    is served, a jit function under its autotuner), and is the outermost one's. To know takes a
    variable of the thread, which costs as much as all the rest, so it is asked only where that
    can be.
    """
    # A class of somebody else's may call its parent's `run`; ours and Triton's do not.
    always = recorder.every or not (kind is Autotuner or issubclass(kind, Kernel))
    unsaid = False if issubclass(kind, Kernel) else _ABSENT
    outermost = functools.partial(_outermost, recorder, own)

    @functools.wraps(own)
    def run(self: Any, *args: Any, grid: Any = _ABSENT, warmup: Any = unsaid, **named: Any) -> Any:
        # Every launch passes here, so what it costs is what tracing costs: about a microsecond.
        if warmup is not False or grid is _ABSENT:
            how = {n: v for n, v in zip(_HOW, (grid, warmup), strict=True) if v is not _ABSENT}
            return outermost(self, args, named, how)
        if always or self.__class__ is not kind or adopt.is_routing():
            if _of_thread.inside:
                return own(self, *args, grid=grid, warmup=False, **named)
            return outermost(self, args, named, {"grid": grid, "warmup": False})
        try:
            form = self.__dict__[SLOT].forms[(len(args), *named) if named else len(args)]
            launch = form.launches[form.compared(args, named)]
        except (KeyError, AttributeError, TypeError):
            launch = recorder.seen(self, args, named, grid)
        if launch is None:  # not told above, where what the launch raises would name our own error
            return own(self, *args, grid=grid, warmup=False, **named)
        launch.count = count = next(launch.counter)
        if count < launch.due:
            return own(self, *args, grid=grid, warmup=False, **named)
        call = functools.partial(own, self, *args, grid=grid, warmup=False, **named)
        return recorder.sampled(launch, call)

    inductor.keep_out(run)
    return run


def _outermost(
    recorder: Recorder,
    own: Run,
    launched: Any,
    args: tuple[Any, ...],
    named: dict[str, Any],
    how: dict[str, Any],
) -> Any:
    """Launch, and count it unless this thread is in a launch that is counted."""
    if _of_thread.inside or how.get("warmup"):
        return own(launched, *args, **how, **named)
    _of_thread.inside = True
    try:
        try:
            form = launched.__dict__[SLOT].forms[(len(args), *named) if named else len(args)]
            launch = form.launches[form.compared(args, named)]
        except (KeyError, AttributeError, TypeError):
            launch = recorder.seen(launched, args, named, how.get("grid"))
        if launch is None:
            return own(launched, *args, **how, **named)
        launch.count = next(launch.counter)
        if launch.count < launch.due:
            return own(launched, *args, **how, **named)
        return recorder.sampled(launch, functools.partial(own, launched, *args, **how, **named))
    finally:
        _of_thread.inside = False


def _flush_at_the_end_of_a_fork() -> None:
    """A child of multiprocessing ends without `atexit`, and forgets what its parent asked for."""
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, flush, exitpriority=0)

"""routing: a wrapper -> in place of `run` of Triton's autotuner and its subclasses, or past it.

Classes that are made later are wrapped too. Several routes may be open at once: each wraps what
it finds, so the last to begin is asked first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.autotuner import Autotuner

Run = Callable[..., Any]

_open: list[Route] = []
_runs: dict[type, tuple[Run, Run]] = {}
"""Class -> its own `run`, and what stands in its place."""
_through = threading.local()


@contextmanager
def let_through(tuner: Any) -> Iterator[None]:
    """In this thread, launches of *tuner* are Triton's own."""
    before, _through.tuner = getattr(_through, "tuner", None), tuner
    try:
        yield
    finally:
        _through.tuner = before


def is_let_through(tuner: Any) -> bool:
    return getattr(_through, "tuner", None) is tuner


class Route:
    """What *wrap* makes of a class and its `run`, in place of it; *spared* ones keep their own."""

    def __init__(self, wrap: Callable[[type, Run], Run], spared: tuple[type, ...] = ()) -> None:
        self.wrap, self.spared = wrap, spared

    def begin(self) -> None:
        _open.append(self)
        Autotuner.__init_subclass__ = classmethod(_subclassed)
        _settle_all()

    def end(self) -> None:
        if self in _open:
            _open.remove(self)
            _settle_all()
        if not _open and "__init_subclass__" in vars(Autotuner):
            del Autotuner.__init_subclass__


def ends_in_tritons(kind: type) -> bool:
    """Whether its own `run` is Triton's, or calls it: one of another kind keys as it likes."""
    for each in kind.__mro__:
        found = vars(each).get("run")
        if each is Autotuner:
            return True
        own = _runs.get(each, (found, found))[0]
        closed = getattr(getattr(own, "__code__", None), "co_freevars", ())
        if own is not None and "__class__" not in closed:  # what calls `super()` closes over that
            return False
    return False


def _settle_all() -> None:
    for kind in (Autotuner, *_below(Autotuner)):
        _settle(kind)


def _settle(kind: Any) -> None:
    """Wrap the `run` of a class as the routes that are open say; with none it has its own."""
    found = vars(kind).get("run")
    if found is None:
        return
    own, routed = _runs.pop(kind, (found, found))
    if found is not routed:  # somebody has replaced it since: then theirs is what is wrapped
        own = found
    run = own
    for route in _open:
        if not issubclass(kind, route.spared):
            run = route.wrap(kind, run)
    if run is not own:
        _runs[kind] = own, run
    if run is not found:
        kind.run = run


def _below(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _subclassed(kind: type, /, **named: Any) -> None:
    super(Autotuner, kind).__init_subclass__(**named)
    _settle(kind)

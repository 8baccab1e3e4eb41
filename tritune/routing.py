"""routing: a wrapper -> in place of `run` of Triton's autotuner, and of every class below it.

Classes that are made later are wrapped too. Several routes may be open at once: each wraps what
it finds, so the last to begin is asked first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from triton.runtime.autotuner import Autotuner

Run = Callable[..., Any]

_open: list[Route] = []


class Route:
    """What *wrap* makes of a class and its `run`, in place of it; *spared* ones keep their own."""

    def __init__(self, wrap: Callable[[type, Run], Run], spared: tuple[type, ...] = ()) -> None:
        self._wrap, self._spared = wrap, spared
        self._runs: dict[type, tuple[Any, Any]] = {}
        """Class -> its own `run`, and what stands in its place."""

    def begin(self) -> None:
        _open.append(self)
        Autotuner.__init_subclass__ = classmethod(_subclassed)
        for kind in (Autotuner, *_below(Autotuner)):
            self.add(kind)

    def end(self) -> None:
        if self in _open:
            _open.remove(self)
        for kind, (own, routed) in self._runs.items():
            if vars(kind).get("run") is routed:  # else somebody has replaced it since
                kind.run = own  # type: ignore[attr-defined]
        self._runs.clear()
        if not _open and "__init_subclass__" in vars(Autotuner):
            del Autotuner.__init_subclass__

    def add(self, kind: type) -> None:
        own = vars(kind).get("run")
        if own is None or kind in self._runs or issubclass(kind, self._spared):
            return
        routed = self._wrap(kind, own)
        self._runs[kind] = own, routed
        kind.run = routed  # type: ignore[attr-defined]


def _below(kind: type) -> Iterator[type]:
    each: type
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def _subclassed(kind: type, /, **named: Any) -> None:
    super(Autotuner, kind).__init_subclass__(**named)
    for route in _open:
        route.add(kind)

"""launcher: a jit function, its arguments and a grid -> the launch, without what `run` repeats.

Triton's own `run` reads environment variables and makes a string of the options on every
launch. The first launch of a specialisation goes through it; a later one asks Triton's binder
for the specialisation again, so alignment, value 1, dtypes and constants are told apart by
Triton's own rules, and then launches the binary that `run` gave. Whatever is out of the
ordinary (hooks that run before a launch, arguments with no hash) goes through `run` always.
Knobs that change code (`knobs.runtime.debug`, `knobs.compilation.instrumentation_mode`) are
read at the first launch of a specialisation; turned later, they change nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton import knobs
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

BINARIES = 4096
"""Specialisations remembered a kernel."""
_ABSENT = object()


class Launcher:
    """The launches of one kernel: what stands under `@tritune.kernel`, heuristics included."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self._heuristics: list[tuple[list[str], str, Callable[[dict[str, Any]], Any]]] = []
        while not isinstance(fn, JITFunction) and type(fn).__name__ == "Heuristics":
            self._heuristics += [(fn.arg_names, name, value) for name, value in fn.values.items()]
            fn = fn.fn
        self._jit: Any = fn if type(fn) is JITFunction else None
        self._binders: dict[int, Any] = {}
        self._binaries: dict[tuple[Any, ...], Any] = {}

    def launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Any:
        """Launch, and return the compiled kernel, as `run` does."""
        jit = self._jit
        if jit is None or jit.pre_run_hooks:
            return self._fn.run(*args, grid=grid, warmup=False, **kwargs)
        named = kwargs
        if self._heuristics:
            named = dict(kwargs)
            for names, name, heuristic in self._heuristics:
                named[name] = heuristic({**dict(zip(names, args, strict=False)), **named})
        active = driver.active
        device = active.get_current_device()
        binder = self._binders.get(device) or self._binder(device)
        try:
            bound, specialization, options = binder(*args, **named)
            at = (device, *specialization, *options.items())
            binary = self._binaries.get(at)
        except TypeError:  # a wrong argument, or one with no hash: `run` says it or takes it
            return self._fn.run(*args, grid=grid, warmup=False, **kwargs)
        if binary is None or self._globals_changed():
            return self._first(at, args, kwargs, grid)
        self._again(binary, bound, grid, active.get_current_stream(device))
        return binary

    def _binder(self, device: int) -> Any:
        *_, binder = self._jit.device_caches[device]
        self._binders[device] = binder
        return binder

    def _first(
        self, at: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> Any:
        binary = self._fn.run(*args, grid=grid, warmup=False, **kwargs)
        if hasattr(binary, "packed_metadata"):
            if len(self._binaries) >= BINARIES:
                self._binaries.clear()
            self._binaries[at] = binary
        return binary

    def _globals_changed(self) -> bool:
        """A global that the kernel was compiled with has another value now; `run` complains."""
        return any(
            names.get(name, _ABSENT) != value
            for (name, _), (value, names) in self._jit.used_global_vals.items()
        )

    @staticmethod
    def _again(binary: Any, bound: dict[str, Any], grid: Any, stream: Any) -> None:
        if callable(grid):
            grid = grid(bound)
        sizes = (*grid, 1, 1)
        # A chain of hooks is never None, and calling an empty one costs for nothing.
        enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        enter = enter if getattr(enter, "calls", enter) else None
        leave = leave if getattr(leave, "calls", leave) else None
        arguments = bound.values()
        metadata = binary.launch_metadata(grid, stream, *arguments) if enter or leave else None
        code, packed = binary.function, binary.packed_metadata
        here = (stream, code, packed, metadata, enter, leave)
        binary.run(sizes[0], sizes[1], sizes[2], *here, *arguments)

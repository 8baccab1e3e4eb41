"""launcher: a jit function, its arguments and a grid -> the launch, without what `run` repeats.

Triton's own `run` asks for the specialisation, makes a string of it and of the options, and
prepares for hooks that nobody set, on every launch. The first launch of a specialisation goes
through it. A later one is either known to be equal to an earlier one (`recall`), and then runs
the binary that `run` gave with nothing asked again (`again`); or it asks Triton's binder, so
that alignment, value 1, dtypes and constants are told apart by Triton's own rules (`launch`).
Whatever is out of the ordinary (hooks before a run, an instrumented compiler, a `run` that a
profiler has replaced, arguments with no hash) goes through `run` always.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

from triton import knobs
from triton.backends.compiler import BaseBackend
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a launch, by position and by name."""
BINARIES = 4096
"""Specialisations remembered a kernel."""
_ABSENT = object()
_RULES = ("get_int_specialization", "get_tensor_specialization")
"""What `recall` knows as it is for CUDA; AMD's also looks at how large a tensor is."""
_NOTHING = (None, None)
_RUN = JITFunction.run


class Again:
    """What a launch came to, to be done again with the arguments of an equal one."""

    __slots__ = ("binary", "device", "extra", "order")

    def __init__(
        self, binary: Any, device: int, passed: Sequence[str], bound: dict[str, Any]
    ) -> None:
        self.binary, self.device = binary, device
        places = {name: at for at, name in enumerate(passed)}
        self.extra = tuple(value for name, value in bound.items() if name not in places)
        """What was not passed: the config, and the signature's defaults."""
        more = iter(range(len(passed), len(passed) + len(self.extra)))
        order = [places[name] if name in places else next(more) for name in bound]
        usual = order == list(range(len(passed) + len(self.extra)))
        self.order = None if usual else _picker(order)
        """From what was passed, and `extra`, to the order of the signature."""

    def arguments(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        every = values + self.extra
        return every if self.order is None else self.order(every)


class Launcher:
    """The launches of one kernel: what stands under `@tritune.kernel`, heuristics included."""

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self._heuristics: list[tuple[list[str], str, Callable[[dict[str, Any]], Any]]] = []
        while not isinstance(fn, JITFunction) and type(fn).__name__ == "Heuristics":
            self._heuristics += [(fn.arg_names, name, value) for name, value in fn.values.items()]
            fn = fn.fn
        self.jit: Any = fn if type(fn) is JITFunction else None
        self._binaries: dict[tuple[Any, ...], Any] = {}

    def is_ordinary(self) -> bool:
        """Nothing is set that only Triton's own `run` heeds."""
        jit, runtime = self.jit, knobs.runtime
        if (
            jit is None
            or jit.pre_run_hooks
            or knobs.compilation.instrumentation_mode
            or runtime.add_stages_inspection_hook is not None
            or JITFunction.run is not _RUN
            or "run" in jit.__dict__
        ):
            return False
        # A global that the kernel was compiled with has another value now: `run` complains.
        for (name, _), (value, names) in jit.used_global_vals.items():
            if names.get(name, _ABSENT) != value:
                return False
        return True

    def launch(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Any:
        """Launch, and return the compiled kernel, as `run` does."""
        if not self.is_ordinary():
            return self._fn.run(*args, grid=grid, warmup=False, **kwargs)
        active = driver.active
        device = active.get_current_device()
        caches = self.jit.device_caches[device]
        try:
            bound, specialization, options = caches[-1](*args, **self._named(args, kwargs, grid))
            modes = (self.jit.debug, knobs.runtime.debug)
            at = (device, *modes, *specialization, *options.items())
            known, binary = self._binaries.get(at, _NOTHING)
        except TypeError:  # a wrong argument, or one with no hash: `run` says it or takes it
            return self._fn.run(*args, grid=grid, warmup=False, **kwargs)
        if known is not caches:  # never compiled, or all of it was dropped since
            binary = self._fn.run(*args, grid=grid, warmup=False, **kwargs)
            self._keep(at, caches, binary)
            return binary
        if callable(grid):
            grid = grid(bound)
        _start(binary, bound.values(), grid, active.get_current_stream(device))
        return binary

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> dict[str, Any]:
        """*kwargs*, and what the heuristics make of the call, as `run` would ask them."""
        if not self._heuristics:
            return kwargs
        named = dict(kwargs)
        given = {"grid": grid, "warmup": False}
        for names, name, heuristic in self._heuristics:
            named[name] = heuristic({**dict(zip(names, args, strict=False)), **given, **named})
        return named

    def _keep(self, at: tuple[Any, ...], caches: Any, binary: Any) -> None:
        if hasattr(binary, "packed_metadata"):
            if len(self._binaries) >= BINARIES:
                self._binaries.clear()
            self._binaries[at] = (caches, binary)

    def remember(
        self,
        binary: Any,
        call: tuple[tuple[Any, ...], dict[str, Any]],
        passed: Sequence[str],
        values: tuple[Any, ...],
    ) -> Again | None:
        """The launch that gave *binary*, for `again`; None where equal launches may differ.

        *passed* and *values* are what the caller passed, *call* has the config too.
        """
        if self._heuristics or not hasattr(binary, "packed_metadata") or not self.is_ordinary():
            return None
        device = driver.active.get_current_device()
        *_, backend, binder = self.jit.device_caches[device]
        if any(getattr(backend, rule) is not getattr(BaseBackend, rule) for rule in _RULES):
            return None
        bound, *_ = binder(*call[0], **call[1])
        again = Again(binary, device, passed, bound)
        same = map(operator.is_, again.arguments(values), bound.values())
        return again if all(same) else None

    def again(self, what: Again, values: tuple[Any, ...], grid: Any) -> Any:
        """Launch as an equal launch before; `is_ordinary` has to be asked first."""
        arguments: Collection[Any] = what.arguments(values)
        stream = driver.active.get_current_stream(what.device)
        if callable(grid):
            bound = dict(zip(self.jit.arg_names, arguments, strict=True))
            grid = grid(bound)
            arguments = bound.values()
        _start(what.binary, arguments, grid, stream)
        return what.binary


def _picker(order: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    if len(order) > 1:
        return operator.itemgetter(*order)
    first = order[0] if order else 0  # a getter of one place gives no tuple
    return operator.itemgetter(slice(first, first + len(order)))


def _start(binary: Any, arguments: Collection[Any], grid: Any, stream: Any) -> None:
    sizes = (*grid, 1, 1)
    runtime = knobs.runtime
    # A chain of hooks is never None, and calling an empty one costs for nothing.
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    enter = enter if getattr(enter, "calls", enter) else None
    leave = leave if getattr(leave, "calls", leave) else None
    metadata = binary.launch_metadata(grid, stream, *arguments) if enter or leave else None
    code, packed = binary.function, binary.packed_metadata
    here = (stream, code, packed, metadata, enter, leave)
    binary.run(sizes[0], sizes[1], sizes[2], *here, *arguments)

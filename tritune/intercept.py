"""intercept: an op and a config -> the op run with that config, and the launches in it.

Runs in a worker. The op runs unmodified: its launches of the kernel under trial get the config,
those of other kernels what is locked for them, or the first that fits. Knows nothing of
problems, compiling, timing or choosing.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritune import contract, hooks, runtime
from tritune.errors import KernelError
from tritune.model import Config, Value


@dataclass
class Captured:
    """One launch of the kernel under trial, ready to be made again."""

    kernel: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: Any
    config: Mapping[str, Any]
    given: Mapping[str, Any]
    """What the op itself passes by name."""

    def launch(self) -> None:
        self.kernel.fn.run(*self.args, **self.kwargs, grid=self.grid, warmup=False)

    def warmup(self) -> Any:
        """Compile without a launch."""
        return self.kernel.fn.run(*self.args, **self.kwargs, grid=self.grid, warmup=True)

    def named(self) -> dict[str, Any]:
        """Every argument by name, those that heuristics set and those left out included."""
        named = contract.with_heuristics(self.kernel.fn, self.for_hook())
        return {**dict(self.kernel.contract.function.defaults), **named}

    def for_hook(self) -> dict[str, Any]:
        """What the config's `pre_hook` is given, which is asked before any heuristic."""
        live = self.kernel.live(self.config)
        return hooks.arguments(self.kernel.arg_names, self.args, self.kwargs, self.grid, live)

    def grid_sizes(self) -> tuple[int, ...]:
        grid = self.grid(self.named()) if callable(self.grid) else self.grid
        return tuple(int(size) for size in (grid if isinstance(grid, Sequence) else (grid,)))


class ConflictError(KernelError):
    """The op itself passes a meta-parameter that the sweep tunes."""


class UnmadeError(Exception):
    """The prune function that makes a kernel's configs makes another list for this launch."""


def capture(
    kernel: Any, run: Callable[[], Any], config: Config, *, launch: bool = True, key: str = ""
) -> tuple[Any, list[Captured]]:
    """Run an op with *config* forced: what it returned, and its launches of *kernel*.

    With a *key* only the launches under it are meant; the others run as those of other kernels.

    Raises:
        ConflictError: a launch passes another value for a tunable than the one under trial.
        UnmadeError: the config is made for other arguments only, so nothing knows its hook.
    """
    forced = config.as_dict()
    captured: list[Captured] = []

    def intercepted(other: Any, args: Any, kwargs: Mapping[str, Any], grid: Any) -> None:
        meant = other.name == kernel.name
        if meant and key:
            meant = other.key_of(other.bind(args, kwargs)) == key
        tried = [forced] if meant else other.choices(args, kwargs, grid)
        one = _first_that_fits(other, args, kwargs, grid, tried, launch=launch)
        if meant:
            captured.append(one)

    # Under a key another launch of the kernel may be one that the config is wrong for.
    forcing = contextlib.nullcontext() if key else runtime.forced(kernel, forced)
    with forcing, runtime.intercept(intercepted):
        returned = run()
    return returned, captured


def as_it_comes(run: Callable[[], Any]) -> Any:
    """Run an op with nothing forced, and nothing tuned on the way: what it returned."""

    def intercepted(kernel: Any, args: Any, kwargs: Mapping[str, Any], grid: Any) -> None:
        tried = kernel.choices(args, kwargs, grid)
        _first_that_fits(kernel, args, kwargs, grid, tried, launch=True)

    with runtime.intercept(intercepted):
        return run()


def _first_that_fits(
    kernel: Any,
    args: Any,
    kwargs: Mapping[str, Any],
    grid: Any,
    tried: Sequence[Mapping[str, Value]],
    *,
    launch: bool,
) -> Captured:
    for number, values in enumerate(tried, start=1):
        one = _as_launched(kernel, args, kwargs, grid, values)
        if _launched(one, launch=launch, is_last=number == len(tried)):
            break
    return one


def _as_launched(
    kernel: Any, args: Any, kwargs: Mapping[str, Any], grid: Any, values: Mapping[str, Value]
) -> Captured:
    by_position = kernel.arg_names[: len(args)]
    _refuse_conflict({**dict(zip(by_position, args, strict=True)), **kwargs}, values)
    named = {n: v for n, v in values.items() if v is not None and n not in by_position}
    named = {**kernel.tuning.untold, **kwargs, **named}
    return Captured(kernel, tuple(args), named, grid, values, kwargs)


def _launched(one: Captured, *, launch: bool, is_last: bool) -> bool:
    """Launch, or only do what the host does before; false where another config may still fit."""
    from triton.runtime.errors import OutOfResources

    from tritune.adopted import Adopted

    if isinstance(one.kernel, Adopted):
        one.kernel.admitted(one.args, one.given, one.grid)  # which may be what makes the config
        if one.kernel.tuning.no_hook(one.config):
            raise UnmadeError
        one.kernel.mark(one.config)
    if not all(one.grid_sizes()):
        return True
    _run_hook(one)  # it may give a descriptor its blocks, which are part of what is compiled
    try:
        if launch:
            one.launch()
    except OutOfResources:
        if is_last:
            raise
        return False
    return True


def _refuse_conflict(passed: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in values:
        if name in passed and passed[name] != values[name] and values[name] is not None:
            raise ConflictError(
                f"the op passes {name}={passed[name]} itself, and the sweep tunes {name}",
                where=contract.call_site(),
                hint=f"leave {name} out of the launch, or out of `space:` and `default=`",
            )


def _run_hook(one: Captured) -> None:
    hook = one.kernel.hook_of(one.config)
    if hook is not None:
        hook(one.for_hook())
        # A later launch, with another config, may give the op's own descriptor other blocks.
        one.args = tuple(map(_own, one.args))
        one.kwargs = {name: _own(arg) for name, arg in one.kwargs.items()}


def _own(arg: Any) -> Any:
    """A descriptor with the blocks that it has now; all else as it is."""
    if not hasattr(arg, "block_shape"):
        return arg
    own = copy.copy(arg)
    own.block_shape = copy.copy(arg.block_shape)
    return own


def is_admitted(captured: Sequence[Captured]) -> bool:
    """Whether the author of a kernel lets these launches of it run the config that they have."""
    return all(one.kernel.admits(one.config, one.args, one.given, one.grid) for one in captured)

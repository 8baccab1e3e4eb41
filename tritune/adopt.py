"""adopt: a plain `triton.autotune` kernel -> the `Adopted` that its launches go through.

Launches of all autotuners come here, whoever made them and whenever: `run` of Triton's class is
replaced, and of every subclass that has one of its own. In production only kernels that the
lockfile names are adopted, in a sweep all of them. What is launched below its autotuner
(`kernel.fn[grid]`) never comes here, and runs as it is.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Autotuner

from tritune import contract as contracts
from tritune import inductor, owning, routing, tuned, undecorated, wrappers
from tritune.adopted import Adopted
from tritune.dispatch import Kernel
from tritune.errors import KernelError
from tritune.routing import Route

logger = logging.getLogger("tritune")
TRACED = ("early_config_prune", "perf_model")
"""What torch.compile asks for the configs of a kernel in place of running it."""
_SLOT = "_tritune"


@dataclass(frozen=True)
class Scope:
    """Whose launches are routed, and what is served to them."""

    lockfile: Path
    locked: frozenset[str] | None = None
    """The kernels of the lockfile; None in a sweep, which may ask for any."""


@dataclass(frozen=True)
class _Seen:
    """What is known of one autotuner; it lies in the autotuner, and goes with it."""

    scope: Scope
    tuner: int
    """Its id: a copy of an autotuner has the slot of the first one."""
    configs: list[Any]
    kernel: Adopted | None


_scope: Scope | None = None
_marked: weakref.WeakSet[Any] = weakref.WeakSet()
_making = threading.RLock()


def begin(scope: Scope) -> None:
    """Route the launches of every autotuner, those to come included."""
    global _scope  # noqa: PLW0603  # one for the process, as the classes that it patches
    with _making:
        if scope == _scope:
            return
        end()
        _route.begin()
        for name in TRACED:
            setattr(Autotuner, name, _as_served(name))
        _scope = scope


def end() -> None:
    """Leave everything as if nothing had ever been routed."""
    global _scope  # noqa: PLW0603
    with _making:
        _scope = None
        _route.end()
        _forget_served()
        wrappers.end()
        for name in TRACED:
            if name in vars(Autotuner):
                delattr(Autotuner, name)
        for tuner in list(_marked):
            vars(tuner).pop(_SLOT, None)
        _marked.clear()
        owning.owners.clear()


def _forget_served() -> None:
    """What is around a kernel that was served may launch what was locked without asking."""
    served = {id(one) for one in list(_marked) if vars(one)[_SLOT].kernel is not None}
    for thing in list(wrappers.that_launched()) if served else ():
        if not isinstance(thing, Autotuner) and id(inside(thing)) in served:
            wrappers.forget_launched(thing)


def is_routing() -> bool:
    """Whether launches may go through a kernel of ours in place of their autotuner."""
    return _scope is not None


def kernel_of(tuner: Any) -> Adopted | None:
    """The kernel that launches of *tuner* go through; None where it runs as it is."""
    scope = _scope
    if scope is None:
        return None
    seen: _Seen | None = vars(tuner).get(_SLOT)
    if seen is None or seen.scope is not scope or seen.tuner != id(tuner):
        return _adopt(tuner, scope, seen)
    if seen.configs is not tuner.configs and seen.configs != tuner.configs:
        return _adopt(tuner, scope, seen)  # its author gave it other configs
    return seen.kernel


def name_of(tuner: Any, function: contracts.Function) -> str:
    """`package.module:qualname`, or by the attribute of its module where that is another one.

    One function may stand under two autotuners, and then only their attributes tell them apart.
    """
    *_, plain = contracts.layers(tuner)
    module = sys.modules.get(getattr(plain, "__module__", ""))
    place, _, qualname = function.name.rpartition(":")
    if plain.__module__.endswith(f".{place}"):  # below a folder without `__init__.py`
        place = plain.__module__
    names = {} if module is None else vars(module)
    held = [name for name, thing in list(names.items()) if _is_around(thing, tuner)]
    return f"{place}:{qualname if qualname in held or not held else held[0]}"


def described(tuner: Any) -> contracts.Function:
    """The function below *tuner*, under the name that tells it from those of other autotuners.

    Raises:
        KernelError: it is no kernel's.
    """
    function = contracts.describe(tuner)
    return replace(function, name=name_of(tuner, function))


def _live() -> Iterator[Any]:
    """Every plain autotuner of this process."""
    for thing in gc.get_objects():
        if issubclass(type(thing), Autotuner) and not issubclass(type(thing), Kernel):
            yield thing


def inside(thing: object) -> Any:
    """The plain autotuner at or below *thing*, under heuristics; None where there is none."""
    found = [one for one in contracts.layers(thing) if isinstance(one, Autotuner)]
    return found[0] if found and not isinstance(found[0], Kernel) else None


def adopted_at(thing: object) -> Adopted | None:
    """The kernel of the autotuner at or below *thing*, where launches are routed."""
    tuner = inside(thing)
    return None if tuner is None else kernel_of(tuner)


def called(name: str) -> Adopted | None:
    """The kernel of this name, wherever its autotuner is held; slow."""
    for tuner in list(_live()):
        with contextlib.suppress(KernelError):  # one that is no kernel's
            if described(tuner).name == name:
                return kernel_of(tuner)
    return None


def tell_late() -> None:
    """Say what launches a locked kernel without asking, as it has asked before the install."""
    for thing in list(wrappers.that_launched()):
        if isinstance(thing, Autotuner):
            continue
        wrappers.note_launched(thing)
        if kernel := adopted_at(thing):
            logger.warning(
                "%s: the %s around it has launched it before tritune.install(), and what it "
                "launched once it launches without asking again: install before the first launch",
                kernel.name,
                type(thing).__name__,
            )


def names_of(functions: Mapping[int, Any]) -> tuple[str, ...]:
    """The kernels over these jit functions, by id; none of those that have no autotuner."""
    found: set[str] = set()
    for tuner in list(_live()):
        if any(id(layer) in functions for layer in contracts.layers(tuner)):
            with contextlib.suppress(KernelError):
                found.add(described(tuner).name)
    return tuple(sorted(found))


def _is_around(thing: object, tuner: Any) -> bool:
    return hasattr(type(thing), "run") and any(one is tuner for one in contracts.layers(thing))


def _adopt(tuner: Any, scope: Scope, seen: _Seen | None) -> Adopted | None:
    with _making:
        now: _Seen | None = vars(tuner).get(_SLOT)
        if now is not None and now is not seen and now.scope is scope:
            return now.kernel  # another thread has made it meanwhile, and may be launching it
        try:
            kernel = _made(tuner, scope)
        except KernelError as error:
            if scope.locked is None:
                raise
            logger.warning("%s", str(error).splitlines()[0])
            kernel = None
        vars(tuner)[_SLOT] = _Seen(scope, id(tuner), tuner.configs, kernel)
        _marked.add(tuner)
        if scope.locked is None:
            wrappers.forget(tuner)
        return kernel


def _made(tuner: Any, scope: Scope) -> Adopted | None:
    function = described(tuner)
    if scope.locked is not None and function.name not in scope.locked:
        return None
    if owning.is_traced(function, tuner):
        return None
    owning.claim(function, tuner)
    tuning = tuned.of_foreign(tuner, function)
    return Adopted(
        tuning, undecorated.contract(function, tuning.default, tuning.key), scope.lockfile
    )


def _routed(kind: type, own: Callable[..., Any]) -> Callable[..., Any]:
    del kind

    @functools.wraps(own)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, Kernel) or routing.is_let_through(self):
            return own(self, *args, **kwargs)
        kernel = kernel_of(self)
        if kernel is None:
            return own(self, *args, **kwargs)
        return kernel.run(*args, **kwargs)

    inductor.keep_out(run)
    return run


_route = Route(_routed, spared=(Kernel,))


def _as_served(name: str) -> property:
    """Of a kernel that is served, what leaves the locked config alone; else its own."""

    def get(tuner: Any) -> Any:
        own = vars(tuner).get(name)
        if "base_fn" not in vars(tuner):  # it is being made
            return own
        if isinstance(tuner, Kernel) or routing.is_let_through(tuner):
            return own
        if _scope is None or _scope.locked is None:
            return own
        inductor.mend_sources()
        kernel = kernel_of(tuner)
        return own if kernel is None else vars(kernel)[name]

    def put(tuner: Any, value: Any) -> None:
        vars(tuner)[name] = value

    return property(get, put)

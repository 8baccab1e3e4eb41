"""device.light: torch's fake tensors and dispatch modes -> the same, without what they import.

They import all of `torch._dynamo`, to read two switches of its config and to be kept out of
torch.compile, and sympy, for sizes that are symbols. That is 0.8 s on a quick machine and 4.3 s on
an H200's host, as much as torch itself, in every process that lowers or measures. Whoever really
wants them still gets them: the first thing that is asked of a stand-in and that it does not have
imports the real module in its place. Only what is written to the stand-in's config is lost.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_DYNAMO = "torch._dynamo"
_CONFIG = f"{_DYNAMO}.config"
_SYMBOLS = "torch.fx.experimental.symbolic_shapes"

_ASKED_FOR_SYMBOLS = ("compute_unbacked_bindings", "free_unbacked_symbols")
_ASKED_ABOUT_BOOLEANS = (
    "expect_true",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "statically_known_true",
)
"""They return a plain boolean as it is."""
_ASKED_ABOUT_INTEGERS = ("has_free_symbols", "has_free_unbacked_symbols", "is_nested_int")


class _StandIn(ModuleType):
    """As much of a module as is asked for here; the module itself, once it is asked for more."""

    def __init__(self, name: str, has: Mapping[str, Any]) -> None:
        super().__init__(name)
        vars(self).update(has)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # who looks through all modules
            raise AttributeError(name)
        _remove(self)
        return getattr(importlib.import_module(self.__name__), name)


def _as_it_is(given: Any, *_: object, **__: object) -> Any:
    """A boolean that is no symbol."""
    return given


def _no_symbols(*_: object, **__: object) -> set[Any]:
    """The symbols in sizes that are all numbers."""
    return set()


def _is_none(*_: object) -> bool:
    """A plain integer is no symbol of any kind."""
    return False


@contextmanager
def modes() -> Iterator[None]:
    """While this holds, torch takes the stand-ins, where the real modules are not there already."""
    import torch

    handed: list[Any] = []

    def disable(function: Any = None, *_: object, **__: object) -> Any:
        if function is None:
            return disable
        handed.append(function)
        return function

    config = _config(str(Path(torch.__file__).parent / "_dynamo"))
    has: dict[str, dict[str, Any]] = {
        _DYNAMO: {"config": config, "disable": disable},
        "sympy": {},
        _SYMBOLS: {
            **dict.fromkeys(_ASKED_FOR_SYMBOLS, _no_symbols),
            **dict.fromkeys(_ASKED_ABOUT_BOOLEANS, _as_it_is),
            **dict.fromkeys(_ASKED_ABOUT_INTEGERS, _is_none),
            "__path__": [],  # an import of names from a module asks for this one first
        },
    }
    made = [_StandIn(name, known) for name, known in has.items() if name not in sys.modules]
    for one in made:
        _put(one)
    try:
        yield
    finally:
        for one in made:
            _remove(one)
        for function in handed:  # torch keeps what it got; let it ask again
            vars(function).pop("__dynamo_disable", None)


def _put(stand_in: _StandIn) -> None:
    import torch

    sys.modules[stand_in.__name__] = stand_in
    if stand_in.__name__ == _DYNAMO:
        sys.modules[_CONFIG] = stand_in.config
        torch._dynamo = stand_in  # noqa: SLF001


def _remove(stand_in: _StandIn) -> None:
    """Make way for the real module."""
    name = stand_in.__name__
    if sys.modules.get(name) is not stand_in:
        return
    del sys.modules[name]
    if name == _DYNAMO:
        import torch

        del sys.modules[_CONFIG], torch._dynamo  # noqa: SLF001


@cache
def _config(folder: str) -> ModuleType:
    """That file of the package, and no other."""
    if _CONFIG in sys.modules:
        return sys.modules[_CONFIG]
    package = ModuleType(_DYNAMO)
    package.__path__ = [folder]
    sys.modules[_DYNAMO] = package
    try:
        return importlib.import_module(_CONFIG)
    finally:
        sys.modules.pop(_DYNAMO, None)
        sys.modules.pop(_CONFIG, None)

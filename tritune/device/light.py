"""device.light: torch's fake tensors and dispatch modes -> the same, without `torch._dynamo`.

They import all of it, to read two switches of its config and to be kept out of torch.compile:
0.8 s on a quick machine and 4.3 s on an H200's host, as much as torch itself, in every process
that lowers or measures. Whoever really wants it still gets it: the first thing that is asked of
the stand-in and that it does not have imports the real one in its place.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"
_CONFIG = f"{_NAME}.config"


class _StandIn(ModuleType):
    """As much of `torch._dynamo` as fake tensors and dispatch modes ask for."""

    def disable(self, function: Callable[..., Any], *_: object, **__: object) -> Any:
        """Outside of torch.compile there is nothing to keep a function out of."""
        return function

    def __getattr__(self, name: str) -> Any:
        _remove(self)
        return getattr(importlib.import_module(_NAME), name)


@contextmanager
def no_dynamo() -> Iterator[None]:
    """While this holds, torch takes the stand-in, unless the real one is there already."""
    import torch

    if _NAME in sys.modules:
        yield
        return
    config = _config(str(Path(torch.__file__).parent / "_dynamo"))
    stand_in = _StandIn(_NAME)
    stand_in.config = config  # type: ignore[attr-defined]
    sys.modules.update({_NAME: stand_in, _CONFIG: config})
    torch._dynamo = stand_in  # noqa: SLF001
    try:
        yield
    finally:
        _remove(stand_in)


def _remove(stand_in: _StandIn) -> None:
    if sys.modules.get(_NAME) is stand_in:
        import torch

        del sys.modules[_NAME], sys.modules[_CONFIG], torch._dynamo  # noqa: SLF001


@cache
def _config(folder: str) -> ModuleType:
    """That file of the package, and no other."""
    package = ModuleType(_NAME)
    package.__path__ = [folder]
    sys.modules[_NAME] = package
    try:
        return importlib.import_module(_CONFIG)
    finally:
        sys.modules.pop(_NAME, None)
        sys.modules.pop(_CONFIG, None)

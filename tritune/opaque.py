"""opaque: an op -> one that torch.compile calls and does not trace.

Dynamo refuses `kernel.config()` and hooks, and specialises a locked kernel on every size until
its recompile limit. A custom op is one node to it: the look-up is made when it runs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from tritune import switches


def make(function: Callable[..., Any], mutates: tuple[str, ...]) -> Callable[..., Any]:
    """*function*, as a `torch.library.custom_op` wherever torch.compile traces its call."""
    import torch

    name = re.sub(r"\W+", "_", f"{function.__module__}_{function.__qualname__}")
    # Inductor writes it into a class, where a name that begins with two of them is another one.
    name = name.lstrip("_")
    custom = torch.library.custom_op(f"tritune::{name}", function, mutates_args=mutates)

    def shapes(*args: Any, **named: Any) -> Any:
        with switches.tracing():
            return function(*args, **named)

    custom.register_fake(shapes)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return custom(*args, **named)
        return function(*args, **named)

    return call

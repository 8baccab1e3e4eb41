"""opaque: an op -> one that torch.compile calls and does not trace.

Dynamo refuses `kernel.config()` and hooks, and specialises a locked kernel on every size until
its recompile limit. A custom op is one node to it: the look-up is made when it runs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from tritune import switches
from tritune.contract import call_site, place_of, quoted, suggestion
from tritune.errors import KernelError, line_of

_HINT = "torch asks for them, as `def {name}(x: torch.Tensor, n: int) -> torch.Tensor:`"


def make(function: Callable[..., Any], mutates: tuple[str, ...]) -> Callable[..., Any]:
    """*function*, as a `torch.library.custom_op` wherever torch.compile traces its call."""
    _check(function)
    for name in mutates:
        if name not in inspect.signature(function).parameters:
            what = f"mutates names `{name}`, which is not an argument of `{function.__name__}`"
            hint = suggestion(name, inspect.signature(function).parameters)
            raise KernelError(what, where=place_of(function), hint=hint)
    import torch

    name = re.sub(r"\W+", "_", f"{function.__module__}_{function.__qualname__}")
    # Inductor writes it into a class, where a name that begins with two of them is another one.
    name = name.lstrip("_")
    try:
        custom = torch.library.custom_op(f"tritune::{name}", function, mutates_args=mutates)
    except ValueError as error:
        raise _refused(function, error) from error

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


def _check(function: Callable[..., Any]) -> None:
    """A function whose parameters and result are all annotated, or a KernelError."""
    if not inspect.isfunction(function):
        what = f"tritune.op got {type(function).__name__}, not a function"
        hint = "it takes the Python function that launches the kernel: tritune.op(matmul)"
        raise KernelError(what, where=call_site(), hint=hint)
    signature = inspect.signature(function)
    bare = [n for n, p in signature.parameters.items() if p.annotation is inspect.Parameter.empty]
    has_result = signature.return_annotation is not inspect.Signature.empty
    if not bare and has_result:
        return
    lacking = [*([quoted(bare)] if bare else []), *([] if has_result else ["its result"])]
    what = f"tritune.op needs annotations, and `{function.__name__}` has none for "
    raise KernelError(
        what + " and ".join(lacking),
        where=place_of(function),
        hint=_HINT.format(name=function.__name__),
    )


def _refused(function: Callable[..., Any], error: ValueError) -> KernelError:
    """What torch says of a signature, without the list of all types that it takes."""
    said = re.sub(r"^ValueError: infer_schema\(func\): ", "", line_of(error))
    said = re.split(r" The valid types are| Got func with", said)[0].rstrip(".")
    hint = "parameters and results are tensors, numbers, texts, dtypes, or lists of these"
    return KernelError(
        f"tritune.op cannot make `{function.__name__}` an op of torch's: {said}",
        where=place_of(function),
        hint="mutates names tensors alone" if "mutable_args" in said else hint,
    )

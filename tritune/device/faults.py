"""device.faults: what an op raised in Triton's interpreter, with no GPU -> whose fault it is.

A kernel that calls libdevice or reads facts of a GPU is no worse for it: nothing was verified, and
nothing is wrong. Where the kernel's own body raises, its config or the kernel is to blame.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tritune import blame
from tritune.device.lowering import brief

INTERPRETER = "triton/runtime/interpreter.py"
LACKS = re.compile(
    r"InterpreterBuilder|`?_semantic`? argument|cannot be interpreted as an integer"
    r"|'(?:int|float|bool)' object has no attribute"
)
"""What Python says where the interpreter lacks a function, or a range that counts in tensors.

What `range` counts in is a number of Python's there, and a tensor to the compiler (`i.to(…)`).
"""
NO_GPU = re.compile(r"NVIDIA|CUDA|\bHIP\b|active drivers|\bGPU", re.IGNORECASE)


class NotInterpretedError(Exception):
    """The interpreter has a stub in place of a function, which returns None."""


def refuse_stubs() -> None:
    """Have the stubs of libdevice say what they are; before a kernel's module imports them."""
    from triton.language.extra import libdevice

    for name, stub in list(vars(libdevice).items()):
        if inspect.isfunction(stub) and stub.__module__ == libdevice.__name__:
            setattr(libdevice, name, _refusing(name))


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotInterpretedError(f"it has no libdevice.{name}")

    return refuse


def root(error: BaseException) -> BaseException:
    """What was raised first: each function that a kernel calls wraps it once more."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def told(error: BaseException) -> str:
    """One line: what was raised first, and where in the user's own code."""
    first = root(error)
    said = str(first) if isinstance(first, NotInterpretedError) else brief(first)
    return f"{said}{blame.told(first) or blame.told(error)}"


def why_unverified(error: BaseException, *, packages: bool = True) -> str:
    """What keeps an op from being verified here; empty where it is wrong itself.

    With *packages* also whatever the host code of an installed package raises.
    """
    first = root(error)
    files = [frame.filename for frame in traceback.extract_tb(first.__traceback__)]
    launches = [at for at, file in enumerate(files) if file.endswith(INTERPRETER)]
    if launches and not _is_of_the_body(first, files[launches[0] :]):
        return f"Triton's interpreter fails: {told(error)}"
    if not launches and not _is_of_the_host(first, files, packages=packages):
        return f"the code around the kernel fails: {told(error)}"
    return ""


def _is_of_the_body(error: BaseException, files: list[str]) -> bool:
    """Whether a kernel's body raised, and not the interpreter that runs it."""
    if isinstance(error, (NotImplementedError, NotInterpretedError)) or LACKS.search(str(error)):
        return False
    # `tl.static_assert` and `tl.device_assert` are functions of the interpreter there.
    inside = files[-1].endswith(INTERPRETER) and not isinstance(error, AssertionError)
    return not inside and not all(map(blame.is_library, files))


def _is_of_the_host(error: BaseException, files: list[str], *, packages: bool) -> bool:
    """Whether the user's own code raised, for any other reason than that no GPU is there."""
    written = [file for file in files if not blame.is_library(file)]
    in_package = packages and bool(written) and blame.is_installed(written[-1])
    asked = bool(files) and "cuda" in Path(files[-1]).parts
    return not (in_package or asked or NO_GPU.search(str(error)))

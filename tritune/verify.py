"""verify: outputs -> right | wrong, by comparison with a reference in higher precision.

Runs in a worker, on whatever device the tensors are. Does not know who made the outputs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tritune.device import light
from tritune.errors import KernelError
from tritune.words import plural

TOLERANCE = {"float64": 1e-10, "float32": 2e-3, "float16": 1e-2, "bfloat16": 6e-2}
"""Largest error by the output's type; fp32 allows for tf32 products, Triton's default for a dot."""
FP8_TOLERANCE = 0.25
DEFAULT_FACTOR = 4.0
"""A config may err this many times as much as the default config does..."""
DEFAULT_CAP = 8.0
"""...up to this many times the tolerance of the type: a broken default excuses nothing."""
CHUNK = 1 << 25
"""Elements compared at a time, so that double-precision copies stay small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The largest error of one output, relative to its reference element plus its scale."""

    error: float
    place: str
    tolerance: float


def tensors(returned: Any) -> tuple[Any, ...]:
    """The tensors in what an op returned, in order."""
    import torch

    if isinstance(returned, torch.Tensor):
        return (returned.detach().resolve_conj(),)
    if isinstance(returned, Mapping):
        returned = [returned[name] for name in sorted(returned)]
    if isinstance(returned, Sequence) and not isinstance(returned, str):
        return tuple(tensor for item in returned for tensor in tensors(item))
    if returned is None:
        return ()
    raise KernelError(
        f"the problem's op returned {type(returned).__name__}",
        hint="return the tensors that it writes: they are compared with the reference",
    )


def difference(outputs: Sequence[Any], references: Sequence[Any]) -> Difference:
    """The largest error over all outputs.

    The error of an element is |out - ref| / (|ref| + rms(ref)): relative where the reference is
    large, and judged by the scale of its output where it is near zero. A NaN or infinity that
    the reference does not have is an infinite error.

    Raises:
        KernelError: the op and its reference return different numbers of tensors, or shapes.
    """
    if len(outputs) != len(references) or not outputs:
        raise KernelError(
            f"the op returns {plural(len(outputs), 'tensor')} and its reference {len(references)}",
            hint="let both return the same tensors, in the same order",
        )
    found = [
        _one(out, ref, i) for i, (out, ref) in enumerate(zip(outputs, references, strict=True))
    ]
    return max(found, key=lambda one: one.error / one.tolerance)


def _one(out: Any, ref: Any, index: int) -> Difference:
    if tuple(out.shape) != tuple(ref.shape):
        raise KernelError(
            f"output {index} has shape {tuple(out.shape)} and its reference {tuple(ref.shape)}",
            hint=f"let `reference` return a tensor of shape {tuple(out.shape)} for it, or the op "
            f"one of {tuple(ref.shape)}: elements are compared one by one",
        )
    if out.is_complex():
        out, ref = (_as_real(tensor) for tensor in (out, ref))
    name = str(out.dtype).removeprefix("torch.")
    tolerance = TOLERANCE.get(name, FP8_TOLERANCE if "float8" in name else 0.0)
    worst, at = _largest(out.reshape(-1), ref.reshape(-1), exact=not out.dtype.is_floating_point)
    place = f"output {index} at {_unravel(at, tuple(out.shape))}"
    return Difference(error=worst, place=place, tolerance=tolerance or 1e-30)


def _as_real(tensor: Any) -> Any:
    import torch

    known = tensor if tensor.is_complex() else tensor.to(torch.complex128)
    return torch.view_as_real(known)


def _largest(out: Any, ref: Any, *, exact: bool) -> tuple[float, int]:
    import torch

    if out.numel() == 0:
        return 0.0, 0
    if exact:
        wrong = (out != ref.to(out.dtype)).nonzero()
        return (float("inf"), int(wrong[0])) if len(wrong) else (0.0, 0)
    squares = sum(float(part.double().square().nan_to_num().sum()) for part in ref.split(CHUNK))
    scale = (squares / ref.numel()) ** 0.5 or 1.0
    worst, at = 0.0, 0
    for start in range(0, out.numel(), CHUNK):
        a = out[start : start + CHUNK].double()
        b = ref[start : start + CHUNK].double()
        error = (a - b).abs() / (b.abs() + scale)
        error = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, error)
        error = error.nan_to_num(nan=float("inf"), posinf=float("inf"))
        value, index = error.max(0)
        if float(value) > worst:
            worst, at = float(value), start + int(index)
    return worst, at


def _unravel(index: int, shape: tuple[int, ...]) -> list[int]:
    place: list[int] = []
    for size in reversed(shape):
        place.insert(0, index % size)
        index //= size
    return place


def allowed(found: Difference, default_error: float | None) -> float:
    """The error that *found* may have, given what the default config itself achieves."""
    if default_error is None:
        return found.tolerance
    cap = found.tolerance * DEFAULT_CAP
    return max(found.tolerance, min(default_error * DEFAULT_FACTOR, cap))


def complaint(found: Difference, limit: float) -> str:
    """One line that says how wrong, and where."""
    return f"largest error {found.error:.2g} in {found.place}, {limit:.2g} allowed"


def digest(outputs: Sequence[Any]) -> str:
    """Eight hex digits of the bits of *outputs*; equal bits, equal digits, on any device.

    A weighted sum over the bytes in wrapping 64-bit integers: integer sums do not depend on the
    order in which a GPU adds, and nothing has to be copied to the host.
    """
    import torch

    total = hashlib.sha256()
    for out in outputs:
        words = out.contiguous().reshape(-1).view(torch.uint8).view(_word(out))
        value = 0
        for start in range(0, words.numel(), CHUNK):
            part = words[start : start + CHUNK].to(torch.int64)
            index = torch.arange(start, start + part.numel(), device=part.device)
            weight = index * 0x9E3779B97F4A7C1 + 0x632BE5AB
            value += int((part * (weight | 1)).sum())
        total.update(f"{tuple(out.shape)} {out.dtype} {value % (1 << 64)}\n".encode())
    return total.hexdigest()[:8]


def _word(out: Any) -> Any:
    import torch

    size = out.numel() * out.element_size()
    return torch.int32 if size % 4 == 0 else torch.int16 if size % 2 == 0 else torch.uint8


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """A context in which every uninitialised tensor is born full of NaN (or 0x7f)."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    empties = {
        aten.empty.memory_format,
        aten.empty_strided.default,
        aten.empty_like.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }

    class Poisoned(TorchDispatchMode):  # type: ignore[misc]
        """Fills what is born empty: a config that leaves a part unwritten must not pass."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            return poison(made) if func in empties else made

    with light.modes(), Poisoned(), contextlib.ExitStack() as stack:
        makers: dict[Any, tuple[str, ...]] = {
            torch: ("empty", "empty_like", "empty_strided"),
            torch.Tensor: ("new_empty", "new_empty_strided"),
        }
        for holder, names in makers.items():
            for name in names:
                maker = _elsewhere(getattr(holder, name))
                stack.enter_context(mock.patch.object(holder, name, maker))
        yield


@contextlib.contextmanager
def keeping(born: list[Any]) -> Iterator[None]:
    """A context in which every new tensor lives on in *born*, as a pointer does not hold it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Keeping(TorchDispatchMode):  # type: ignore[misc]
        """Keeps what each operation gives."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            made = func(*args, **(kwargs or {}))
            born.append(made)
            return made

    with light.modes(), Keeping():
        yield


def _elsewhere(maker: Callable[..., Any]) -> Callable[..., Any]:
    """The same, poisoned where another thread calls: autograd has its own, which no mode is in."""
    here = threading.get_ident()

    @functools.wraps(maker)
    def made(*args: Any, **kwargs: Any) -> Any:
        tensor = maker(*args, **kwargs)
        if threading.get_ident() != here and kwargs.get("out") is None:
            poison(tensor.detach())
        return tensor

    return made


def poison(tensor: Any) -> Any:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.fill_(float("nan"))
    import torch

    return tensor.fill_(True if tensor.dtype is torch.bool else 0x7F)

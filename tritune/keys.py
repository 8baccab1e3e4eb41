"""keys: the arguments of a call -> the text that its winner is looked up by, and its parts.

The one place that knows how a key is written.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tritune.contract import Contract
from tritune.errors import KernelError
from tritune.model import DTYPES, Value
from tritune.words import an

ALIGNMENT = 16
"""Bytes; Triton compiles another binary for a pointer that is not a multiple of it."""

LAST, NONE = -1, -2
"""Of `layout`: no number of a dimension, and neither True nor False."""
UNALIGNED = "(unaligned)"
PART = re.compile(r'(\w+)=((?:"(?:[^"\\]|\\.)*"|\S)*)')
"""A text with a blank in it is quoted, as JSON."""
_WORDS: Mapping[str, Value] = {"none": None, "True": True, "False": False}
_TRITON = {
    "fp16": "f16",
    "fp32": "f32",
    "fp64": "f64",
    "int1": "i1",
    "fp8e4nv": "f8e4m3fn",
    "fp8e5": "f8e5m2",
    "fp8e4b8": "f8e4m3fnuz",
    "fp8e5b16": "f8e5m2fnuz",
}


def text(contract: Contract, bound: Mapping[str, Any]) -> str:
    """`M=64 N=4096 a=f16 b=f16(unaligned)`: what the lockfile has, and a reviewer reads."""
    return joined(parts(contract, bound))


def joined(named: Iterable[tuple[str, str]]) -> str:
    """(M, 64), (a, f16) -> `M=64 a=f16`."""
    return " ".join(f"{name}={value}" for name, value in named)


def split(key: str) -> dict[str, str]:
    """The parts of a key by name, as text."""
    return dict(PART.findall(key))


def word(value: Any) -> str:
    """A plain value as a key has it."""
    if isinstance(value, str):
        return value if is_bare(value) else json.dumps(value)
    return "none" if value is None else str(value)


def value_of(text: str) -> Value:
    """The same back: a part of a key as a problem takes it."""
    if text in _WORDS or is_bare(text):
        return _WORDS.get(text, text)
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, (int, float, str)) else text


def is_bare(text: str) -> bool:
    """Whether a key has a text without quotes."""
    return text.replace(".", "_").isidentifier()


def parts(contract: Contract, bound: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in contract.scalars:
        yield name, _scalar(contract, name, bound[name])
    any_alignment = contract.function.any_alignment
    for name in contract.tensors:
        value = bound[name]
        if contract.like is not None or is_tensor(value):
            known = _tensor(value, aligned=name in any_alignment)
            yield name, known + (_layout_text(value) if contract.layout else "")


def memo(contract: Contract, bound: Mapping[str, Any]) -> tuple[object, ...]:
    """What tells two calls apart, cheaper to make than the text and at least as fine."""
    found: list[object] = []
    for name in contract.scalars:
        value = bound[name]
        if hasattr(value, "data_ptr"):  # by what it is, not by which: a memo must not hold it
            found.append(_facts(value))
        elif isinstance(value, tuple):
            found.append((value.__class__, _scalar(contract, name, value)))
        else:  # 1 == True == 1.0 in a dictionary, yet they are three texts.
            found.append(value if value.__class__ is int else (value.__class__, value))
    for name in contract.tensors:
        value = bound[name]
        found.append(_facts(value) if hasattr(value, "data_ptr") else _other(value))
        if contract.layout:
            found.append(_layout_text(value))
    return tuple(found)


def is_tensor(value: Any) -> bool:
    """A tensor, a descriptor of one, or a tuple that holds one."""
    if isinstance(value, tuple):
        return any(is_tensor(item) for item in value)
    return hasattr(value, "data_ptr") or hasattr(getattr(value, "base", None), "data_ptr")


def is_empty(contract: Contract, bound: Mapping[str, Any]) -> bool:
    """An empty problem (no tokens on this rank) is nothing that a sweep could lock."""
    sizes = [bound[name] for name in contract.key]
    tensors = [bound[name] for name in contract.tensors]
    none = any(size == 0 for size in sizes if isinstance(size, int))
    return none and any(0 in (getattr(tensor, "shape", None) or ()) for tensor in tensors)


def dtype_name(dtype: object) -> str:
    """`torch.float16` and Triton's `fp16` are both `f16`."""
    name = str(dtype).rpartition(".")[2]
    name = DTYPES.get(name) or _TRITON.get(name) or name
    return name.replace("float8_", "f8")


def _facts(value: Any) -> tuple[object, bool]:
    return value.dtype, _pointer(value) % ALIGNMENT == 0


def _pointer(value: Any) -> int:
    if type(value).__name__ == "FakeTensor":  # its data_ptr() warns, or raises
        return int(value.storage_offset() * value.element_size())
    return int(value.data_ptr())


def _other(value: Any) -> object:
    return _tensor(value, aligned=False) if is_tensor(value) else value.__class__


def _tensor(value: Any, *, aligned: bool) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return "(" + ",".join(_tensor(item, aligned=aligned) for item in value) + ")"
    base = value if hasattr(value, "data_ptr") else getattr(value, "base", None)
    if base is None:
        return type(value).__name__
    known = aligned or _pointer(base) % ALIGNMENT == 0
    return dtype_name(base.dtype) + ("" if known else UNALIGNED)


def _layout_text(value: Any) -> str:
    """`(dim0)`: which dimension is the dense one; empty where it is the last, as mostly."""
    base: Any = value if hasattr(value, "stride") else getattr(value, "base", None)
    if not hasattr(base, "stride"):
        return ""
    dense = layout(base.shape, base.stride())
    return {LAST: "", NONE: "(strided)"}.get(dense, f"(dim{dense})")


def layout(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The dimension of stride 1; LAST for the last one, NONE where there is none.

    Equal where a key says the same of two tensors, whatever their dimensions. An empty tensor is
    contiguous to torch, whatever its strides.
    """
    long = [at for at in range(len(shape)) if shape[at] != 1]
    if not long or 0 in shape or strides[long[-1]] == 1:
        return LAST
    dense = [at for at in long if strides[at] == 1]
    return dense[0] if dense else NONE


def _scalar(contract: Contract, name: str, value: Any) -> str:
    value = getattr(value, "value", value)  # a tl.constexpr, or a member of an enumeration
    if value is None or isinstance(value, (str, bool, float)):
        return word(value)
    if hasattr(value, "__index__") and not is_tensor(value):  # int, numpy's integers, torch.SymInt
        return str(operator.index(value))
    return _thing(contract, name, value)


def _thing(contract: Contract, name: str, value: Any) -> str:
    if isinstance(value, tuple) and not is_tensor(value):
        return "(" + ",".join(_scalar(contract, name, item) for item in value) + ")"
    if is_tensor(value):
        return _tensor(value, aligned=name in contract.function.any_alignment)
    if type(value).__name__ == "dtype":
        return dtype_name(value)
    named = getattr(value, "__name__", None)  # a function handed over as a constexpr
    if isinstance(named, str):
        return named
    raise KernelError(
        f"`{name}` of `{contract.function.short}` is {an(type(value).__name__)}, "
        "which cannot be part of a key",
        where=contract.function.where,
        hint="a key holds numbers, text, dtypes and functions",
    )

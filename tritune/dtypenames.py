"""dtypenames: what somebody wrote for an element type -> what torch calls it, if it is a slip.

Torch itself is not imported: `tests/test_dtypenames.py` compares the names with it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from tritune.model import DTYPES

PLAIN = frozenset(
    {
        *("float16", "bfloat16", "float32", "float64"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
        *("float4_e2m1fn_x2", "complex32", "complex64", "complex128"),
    }
)
"""Names of torch's that can mean nothing else."""
WORDS = frozenset(
    {
        *("half", "float", "double", "short", "int", "long", "bool", "bit"),
        *("chalf", "cfloat", "cdouble", "qint8", "qint32", "quint8", "quint2x4", "quint4x2"),
        *("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"),
        *(f"{kind}int{bits}" for kind in ("", "u") for bits in range(1, 8)),
    }
)
"""Other names of torch's: words that an axis may well mean otherwise, and rare ones."""
ALIASES = {
    **{short: name for name, short in DTYPES.items()},
    "fp16": "float16",
    "bfp16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    **dict.fromkeys(("fp8", "fp8e4nv", "float8", "float8_e4m3"), "float8_e4m3fn"),
    "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "int1": "bool",
}
"""What Triton, a key of ours or a person calls it -> torch's name."""
_OTHERS = ("tf32", "fp4", "fp6", "fp12", "fp24", "mxfp4", "mxfp6", "mxfp8", "nvfp4", "e4m3", "e5m2")
"""Formats that torch has no name for, and that a problem function may know."""
_NUMBER = re.compile(r"\d[\d_.,]*([eE][+-]?\d+)?[kKmMgG]?")
"""What somebody took for a number that YAML or we read as a text."""
_CLOSE = 0.8
"""`fp61` and `fp16` are 0.75 alike, as are `int2` and `int8`: the first are the same letters."""


def is_torch(name: str) -> bool:
    return name in PLAIN or name in WORDS


def meant(text: str) -> str:
    """Torch's name for what *text* is a slip of, or another name of; empty where it is neither."""
    name = text.lower().removeprefix("torch.")
    if is_torch(name) or name in ALIASES:
        return ALIASES.get(name, name)
    if name in _OTHERS or not name[:1].isalpha():
        return ""
    known = (*sorted(PLAIN), *ALIASES, *_OTHERS)
    swapped = [one for one in known if sorted(one) == sorted(name)]
    close = (
        swapped
        or _one_digit_off(name, known)
        or difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    )
    near = [one for one in close if abs(len(one) - len(name)) <= 1]
    return ALIASES.get(near[0], near[0]) if near and near[0] not in _OTHERS else ""


def _one_digit_off(name: str, known: Sequence[str]) -> list[str]:
    """`bf16` for `bf17`; nothing where two would do, as `fp16` and `fp12` for `fp17`."""
    floats = re.fullmatch(r"(b?float|b?fp|bf)\d\d", name)
    near = [one for one in known if floats and one[:-2] == floats[1] and len(one) == len(name)]
    close = [one for one in near if one[-2] == name[-2] or one[-1] == name[-1]]
    return close if len(close) == 1 else []


def is_typo(text: str) -> bool:
    """Whether nobody has a type of this name, while one is called almost so."""
    name = text.lower()
    return not is_torch(text) and name not in ALIASES and bool(meant(text))


def told(values: Iterable[object]) -> str:
    """What a reader should know of values that look like dtypes or numbers, and are texts."""
    texts = [value for value in values if isinstance(value, str)]
    names = {text: meant(text) for text in texts if not is_torch(text)}
    said = [f"`{text}` is text; torch calls it `{name}`" for text, name in names.items() if name]
    said += [f"`{text}` is text, and no number" for text in names if _NUMBER.fullmatch(text)]
    return "; ".join(said)

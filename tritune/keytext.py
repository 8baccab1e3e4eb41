"""keytext: the text of `--key` and a kernel -> every mistake in its names and values, at once.

A part that no launch can have would be locked all the same, and never be found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from tritune import dtypenames
from tritune.axisvalues import did_you_mean
from tritune.errors import TableError, of_many
from tritune.fitting import Receiver
from tritune.keys import PART, dtype_name, is_bare

FLAG = "--key"
_GAP = re.compile(r"\{\w*\}")
_MARK = re.compile(r"\((unaligned|strided|dim\d+)\)")
_OTHER_NAMES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""What else torch calls a dtype, and prints of none."""
_WORDS = {"true": "True", "false": "False", "null": "none", "None": "none"}


def check(text: str, receiver: Receiver, where: str = FLAG) -> None:
    """Refuse a key, or a template such as `M={} K=4096 a=f16`, that is none of the kernel's.

    Raises:
        TableError: the one mistake in it.
        ManyMistakesError: all of them.
    """
    found = list(_mistakes(text, receiver, where))
    if found:
        raise of_many(found)


def _mistakes(text: str, receiver: Receiver, where: str) -> Iterator[TableError]:
    known = (*receiver.scalars, *receiver.tensors)
    if rest := " ".join(PART.sub(" ", text).split()):
        hint = f"write NAME=VALUE, as {known[0] if known else 'M'}=..."
        yield TableError(f"`{rest}` is no part of a key", where=where, hint=hint)
    seen: set[str] = set()
    for name, value in PART.findall(text):
        if name in seen:
            yield TableError(f"`{name}` is given twice", where=where)
        seen.add(name)
        if name not in known:
            yield _unknown(name, known, receiver, where)
        elif fault := _fault(name, value, receiver):
            yield TableError(f"`{name}` is `{value}`, {fault[0]}", where=where, hint=fault[1])


def _unknown(name: str, known: Sequence[str], receiver: Receiver, where: str) -> TableError:
    what = f"`{name}` is no part of a key of `{receiver.short}`"
    meant = did_you_mean(name, known)
    meant = f"{meant} " if meant.startswith("did") else ""
    return TableError(what, where=where, hint=f"{meant}it has {', '.join(known)}")


def _fault(name: str, value: str, receiver: Receiver) -> tuple[str, str] | None:
    if _GAP.search(value):  # a part of the table goes there
        return None
    if name in receiver.tensors:
        return _no_tensor(value)
    is_text = is_bare(value) or value.startswith('"')
    if name in receiver.numbers and is_text and value not in {*_WORDS, *_WORDS.values()}:
        return "which is no number", f"`{receiver.short}` is passed one for it"
    return _no_scalar(value)


def _no_tensor(value: str) -> tuple[str, str] | None:
    plain = _MARK.sub("", value)
    if plain == "none" or plain.startswith("("):  # a tuple of tensors
        return None
    name = dtype_name(plain)
    meant = dtypenames.meant(plain)
    meant = _OTHER_NAMES.get(meant, meant)
    if meant and dtype_name(meant) == name:
        return None
    guess = f"did you mean `{dtype_name(meant)}`?" if meant else "as f16, bf16 or f32(unaligned)"
    return "which is no dtype", guess


def _no_scalar(value: str) -> tuple[str, str] | None:
    if not value:
        return "which is no value", "write one behind the `=`"
    if value in _WORDS:
        return "which no key has", f"a key has `{_WORDS[value]}`"
    if value.startswith('"'):
        return None if _is_json(value) else ("which is no text in quotes", "as JSON has it")
    if value.startswith("(") or is_bare(value):
        return None
    try:
        return _no_number(value)
    except ValueError:
        return "which is no number and no name", "other text is quoted, as JSON"


def _no_number(value: str) -> tuple[str, str] | None:
    """`04096` and `1e3` are numbers, and a key has neither of them so."""
    text = str(int(value)) if re.fullmatch(r"[-+]?\d+", value) else str(float(value))
    return None if text == value else ("which no key has", f"a key has `{text}`")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), str)
    except ValueError:
        return False

"""sweepmistakes: a document -> its structure, or each way in which it is not one.

Translates what pydantic says into `expected an integer, got true`, with the place of the
value and what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from tritune.axisvalues import Slip, did_you_mean, near
from tritune.sweepfile import SectionPart, SweepFile, TimingPart
from tritune.yamlscalars import Odd, got
from tritune.yamltext import Document, Loc, inside

_EXPECTED = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "an integer of at least {ge}",
    "literal_error": "{expected}",
}
_NEXT = {
    "list_type": "write it in brackets: [...]",
    "int_type": "write a number",
    "float_type": "write a number",
    "literal_error": "write one of the two",
    "model_type": "write `key: value`",
    "dict_type": "write `key: value`",
    "greater_than": "write a larger number",
    "greater_than_equal": "write a larger number",
    "finite_number": "write a number of seconds",
}
_TEXTS = {
    "constraints": "write a comparison, such as BLOCK_M <= 128",
    "targets": "write a name, such as H200",
}
_EXAMPLES = {
    "kernel": "kernel: path/to/module.py:function",
    "shapes": "shapes: [{M: 4096, dtype: float16}]",
}
_HOLDERS = "x-"


def structure(document: Document) -> SweepFile | None:
    """The file's structure; None where it has mistakes, which the document then holds."""
    if not isinstance(document.value, dict):
        what = f"expected a mapping, got {got(document.value)}"
        document.mistake((), what, "a sweep file begins with `kernel:`")
        return None
    before = len(document.mistakes)
    # A key at the top that only holds what anchors name is no mistake.
    holders = document.holders() | {key for key in document.value if key.startswith(_HOLDERS)}
    ignored = holders - SweepFile.model_fields.keys()
    data = {key: value for key, value in document.value.items() if key not in ignored}
    try:
        return SweepFile.model_validate(data)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            _translate(document, one)
    return None if len(document.mistakes) > before else SweepFile.model_validate(data)


def _translate(document: Document, error: Mapping[str, Any]) -> None:
    loc: Loc = tuple(part for part in error["loc"] if part != "[key]")
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "slips":
        for slip in context["slips"]:
            _slip(document, loc, slip)
    elif kind == "extra_forbidden":
        known = list(_part(loc).model_fields)
        hint = did_you_mean(str(loc[-1]), known)
        document.mistake(loc, f"unknown key `{loc[-1]}`", hint, key=True)
    elif kind == "missing":
        _missing(document, str(loc[-1]))
    elif kind == "too_short":
        document.mistake(loc, "expected at least one item, got an empty list", "add one")
    else:
        expected = _EXPECTED.get(kind, "something else").format(**context).replace("'", "`")
        hint = _hint(document, loc, kind, value)
        document.mistake(loc, f"expected {expected}, got {got(value)}", hint)


def _slip(document: Document, loc: Loc, slip: Slip) -> None:
    document.mistake((*loc, *slip.loc), slip.what, slip.hint, key=slip.at_key)


def _hint(document: Document, loc: Loc, kind: str, value: object) -> str:
    if value is None:
        return "write a value, or remove the key"
    if kind == "string_type":
        quote = f'quote it: "{value.text}"' if isinstance(value, Odd) else "write module:name"
        return _TEXTS.get(str(loc[0]), quote)
    is_below = document.place(loc)[0] > document.place(loc, key=True)[0]
    if kind == "list_type" and isinstance(value, dict) and is_below:
        return "begin the row with `- `"
    return _NEXT.get(kind, "")


def _part(loc: Loc) -> type[BaseModel]:
    """The model whose key `loc` is."""
    if len(loc) == 1:
        return SweepFile
    return TimingPart if loc[0] == "timing" else SectionPart


def _missing(document: Document, name: str) -> None:
    """Say so, unless a misspelt key was said to mean it."""
    unknown = [key for key in document.value if key not in SweepFile.model_fields]
    if name not in {near(key, SweepFile.model_fields) for key in unknown}:
        document.mistake((), f"`{name}` is missing", f"write {_EXAMPLES[name]}")


def missing_kernel(document: Document) -> None:
    """A file has to name a kernel or a problem."""
    if not {"kernel", "problem"} & document.value.keys():
        _missing(document, "kernel")


def place_lines(document: Document, path: str) -> tuple[tuple[str, str], ...]:
    """`path inside` -> `file:line:column`: of a key where there is one, of the item else."""
    known = (loc for loc in document.values if loc and loc[0] in SweepFile.model_fields)
    places = ((loc, document.place(loc, key=loc in document.keys)) for loc in known)
    return tuple((inside(loc), f"{path}:{line}:{column}") for loc, (line, column) in places)

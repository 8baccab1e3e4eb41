"""yamlscalars: a scalar's text -> what YAML 1.2 reads, or that versions of YAML disagree.

And back: how a message names a value that stood in a file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

LARGEST = 2**63 - 1
CORE = "tag:yaml.org,2002:"
MERGE = f"{CORE}merge"
NUMBER_TAG = f"{CORE}float"
NUMBER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?)")


@dataclass(frozen=True, slots=True)
class Odd:
    """A word or number that YAML reads as something its writer rarely means."""

    text: str
    reads_as: str


def looks_like_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


def got(value: object) -> str:
    """A value of the file as a message names it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case Odd(text=text, reads_as=reads_as):
            return f"`{text}`, which YAML reads as {reads_as}"
        case str():
            return f'"{value}" in quotes' if looks_like_number(value) else f"`{value}`"
        case list() | dict():
            return "a list" if isinstance(value, list) else "a mapping"
    return str(value)


def _number(text: str) -> int | float:
    """`1e3` is 1000; `64.0` stays a float, so that it can be refused where an integer belongs."""
    if "x" in text.lower():
        return int(text, 16)
    if not any(mark in text for mark in ".eE"):
        return int(text)
    value = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    whole = math.isfinite(value) and abs(value) <= LARGEST and value.is_integer()
    if not whole or "e" not in text.lower():
        return value
    return int(Decimal(text)) if value else 0  # there are zeros that are none to Decimal


def _odd(text: str) -> Odd:
    if text.lower() in ("on", "yes", "off", "no"):
        return Odd(text, "true" if text.lower() in ("on", "yes") else "false")
    if ":" in text:
        return Odd(text, "a number to base 60")
    if "_" in text:
        return Odd(text, text.replace("_", ""))
    return Odd(text, "an octal number or a decimal one, by its version")


SCALARS: dict[str, Callable[[str], Any]] = {
    f"{CORE}null": lambda _: None,
    f"{CORE}bool": lambda text: text.lower() == "true",
    f"{CORE}int": _number,
    NUMBER_TAG: _number,
    f"{CORE}str": str,
    MERGE: str,
    "!odd": _odd,
}

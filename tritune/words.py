"""words: a number and its noun, a noun alone, or words of a command -> as a sentence has them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

_TYPES = {
    bool: "True or False",
    int: "an integer",
    float: "a number with a point",
    str: "a text",
    type(None): "None",
}


def plural(number: int, noun: str, many: str = "") -> str:
    """A count and its noun: `1 config`, `1,152 configs`, `3 entries`."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def an(noun: str) -> str:
    """A noun with its article: `an int`, `a list`."""
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"  # the types with u are `uint8`


def some(items: Sequence[object], most: int = 3) -> str:
    """The first of several, and how many more there are."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return "; ".join(map(str, items[:most])) + more


def mistyped(value: object, like: object) -> str:
    """What a value of the wrong type is: `the text "64", where an integer is expected`."""
    told = f"the text {json.dumps(value)}" if isinstance(value, str) else repr(value)
    return f"{told}, where {_TYPES.get(type(like), repr(like))} is expected"


def shell(*words: object) -> str:
    """Words of a command, as paths, as one pastes them into a shell: `'my sweeps/scale.yaml'`."""
    return shlex.join(map(str, words))

"""lockfields: a part of a lockfile -> the fields that it has, and which values fit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Field:
    """What stands under one name."""

    what: str
    fits: Callable[[Any], bool]
    required: bool = True


def _is(*kinds: type) -> Callable[[Any], bool]:
    # bool is a subclass of int, but a lockfile tells the two apart.
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool)


def _required(kind: type) -> Field:
    return Field({dict: "an object", str: "text", int: "a whole number"}[kind], _is(kind))


_NUMBER = Field("a number", _is(int, float))
_TEXT = Field("text", _is(str), required=False)
_TEXTS = Field("a list of texts", _is(list), required=False)
_FLAG = Field("true or false", lambda value: isinstance(value, bool), required=False)
DEVICE = {
    "backend": _required(str),
    "arch": Field("a number or text", _is(int, str)),
    **dict.fromkeys(("sms", "shared_bytes", "bus_bits", "memory_mhz"), _required(int)),
    "names": _TEXTS,
    "use": _TEXT,
    "where": _TEXTS,
}
EVIDENCE = {
    "us": _NUMBER,
    **dict.fromkeys(("default_us", "margin"), replace(_NUMBER, required=False)),
    "noise": _NUMBER,
    **dict.fromkeys(("bits", "ir", "triton"), _required(str)),
    **dict.fromkeys(("source", "space", "reach", "hook"), _TEXT),
    "unsettled": _FLAG,
    "unmeasured": _FLAG,
}
ENTRY = {"config": _required(dict), "evidence": _required(dict)}
ENTRY_KINDS = {"config": dict, "evidence": dict}
NESTED = frozenset({dict, list})
NUMBERS = ("us", "default_us", "margin", "noise")
UNSAID = {"default_us": None, "margin": None}
IMPORTED = {name: replace(field, required=False) for name, field in EVIDENCE.items()}
UNKNOWN = {"us": 0.0, "noise": 0.0, "bits": "", "ir": "", "triton": ""}
"""What evidence says of an entry that nobody timed here."""

"""arguments: what a public function is given -> the same, or a KernelError that says its type."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, NoReturn, SupportsIndex

from tritune import launchoptions
from tritune.contract import call_site, rare
from tritune.errors import KernelError
from tritune.model import LAUNCH_OPTIONS, USUAL, Value
from tritune.words import an


def names(what: str, given: Any) -> tuple[str, ...]:
    """Names of arguments, in an order that is the same in every process."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        meant = re.findall(r"\w+", given) if isinstance(given, str) else []
        listed = ", ".join(f'"{name}"' for name in meant) or '"NAME", ...'
        _refuse(f"{what} is {_kind(given)}, not a list of names", f"write {what}=[{listed}]")
    found = tuple(given)
    _check_names(what, found)
    return tuple(sorted(found)) if isinstance(given, (set, frozenset)) else found


def near(given: Any) -> None:
    """The name of one argument."""
    if not isinstance(given, str):
        one = str(given[0]) if isinstance(given, (list, tuple)) and len(given) == 1 else ""
        name = one if one.isidentifier() else "NAME"
        _refuse(f"near is {_kind(given)}, not the name of one argument", f'write near="{name}"')


def path(what: str, given: Any, hint: str) -> None:
    if not isinstance(given, (str, os.PathLike)):
        _refuse(f"{what} is {_kind(given)}, not a path", hint)


def config(what: str, given: Any, hint: str, *, write: str = "write ") -> None:
    """Values by their names; a Config of Triton's is told as it is written here."""
    if not isinstance(given, Mapping):
        told = f"{write}{_written(given)}" if _is_config(given) else hint
        _refuse(f"{what} is {_kind(given)}, not a dict", told)
    _check_names(what, given)


def default(given: Any, hint: str) -> None:
    """A config that some GPU could launch."""
    config("default", given, hint, write="write default=")
    for name, value in given.items():
        if isinstance(value, (list, dict, set)):
            what = f"{name} of default is {_kind(value)}, and a config has one value for it"
            _refuse(what, "what to try goes into `space:` of a sweep file")
    launchable("default", given)


def launchable(what: str, config: Mapping[str, Value]) -> None:
    """Launch options that some launch can have; a sweep rejects the others by itself."""
    for name in (one for one in config if one in LAUNCH_OPTIONS):
        if wrong := _slip(name, config[name]):
            _refuse(f"{what} cannot launch: {name}: {wrong[0]}", wrong[1])


def _slip(name: str, value: Value) -> tuple[str, str] | None:
    if value is None:  # "not said"
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):  # numpy has integers too
        return f"expected an integer, got {value!r}", launchoptions.NUMBER
    return launchoptions.slip(name, index(value))


def _check_names(what: str, given: Iterable[Any]) -> None:
    for name in given:
        if not isinstance(name, str):
            why = f"which is {_kind(name)}, not a name"
            _refuse(f"{what} names {name!r:.60}, {why}", "a name is a text, in quotes")


def _kind(given: Any) -> str:
    if given is None:
        return "None"
    return an("triton.Config" if _is_config(given) else type(given).__name__)


def _is_config(given: Any) -> bool:
    return hasattr(given, "all_kwargs")  # its class would have to be imported


def _written(config: Any) -> str:
    named = {name: getattr(config, name) for name in (*USUAL, *rare([config]))}
    values = {**config.kwargs, **named}
    return "{" + ", ".join(f'"{name}": {value!r}' for name, value in values.items()) + "}"


def _refuse(what: str, hint: str) -> NoReturn:
    raise KernelError(what, where=call_site(), hint=hint)

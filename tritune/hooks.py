"""hooks: the `pre_hook` of a config -> the name that a lockfile has for it, and what it is given.

An entry whose config has a hook says which one, as `module:name@digest`: a config without the
hook that it was measured with gives wrong numbers, in silence. Production compares the names,
which costs no source; the digest of its code is for `tritune check`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from tritune.contract import module_of


def name(hook: Any) -> str:
    """`package.module:qualname`, the same however the module was imported; empty for no hook.

    With `()` behind it where that names no hook, but what makes one: an object, a method of one,
    a partial, a wrapper.
    """
    if hook is None:
        return ""
    plain = code_of(hook)
    made = "" if hook is plain else "()"
    return f"{module_of(_file(plain), plain.__module__)}:{plain.__qualname__}{made}"


def _file(plain: Any) -> str:
    code = getattr(plain, "__code__", None)
    if code is not None:
        return str(code.co_filename)
    return getattr(sys.modules.get(plain.__module__), "__file__", None) or ""


def code_of(hook: Any) -> Any:
    """The function that a hook runs, or its class, where it is an object that can be called."""
    while isinstance(hook, partial):
        hook = hook.func
    plain = inspect.unwrap(getattr(hook, "__func__", hook))
    return plain if hasattr(plain, "__qualname__") else type(plain)


def named(said: str) -> str:
    """The name in what an entry says, which has a digest behind it."""
    return said.partition("@")[0]


def gone(locked: str, today: str) -> str:
    """Why what was locked with one hook is not for a config with another; empty where it is."""
    before, now = named(locked), named(today)
    if not locked or before == now:
        return ""
    instead = f"has `{now}` now" if now else "has none now"
    return f"it was locked with the pre_hook `{before}`, and its config {instead}"


def arguments(
    names: Iterable[str], args: Iterable[Any], kwargs: Mapping[str, Any], grid: Any, live: Any
) -> dict[str, Any]:
    """What Triton gives a hook: what a launch passes by name, its grid, the whole config."""
    named = dict(zip(names, args, strict=False))
    return {**named, **kwargs, "grid": grid, "warmup": False, **live.all_kwargs()}

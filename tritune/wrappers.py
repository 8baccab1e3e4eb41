"""wrappers: an autotuner -> what a package puts around it, to launch without asking it again.

Such a thing asks its autotuner at the first launch of a kind, keeps the binary in a dictionary of
its own, and launches that from then on. In production that is well, as long as what is locked is
installed before; in a sweep every launch has to come through, or nothing can be tried in it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

_forgetting: list[Any] = []
_before: dict[int, set[Any]] = {}
"""The id of a dictionary -> what launches had put there before the install."""


def around(thing: Any) -> Iterator[Any]:
    """What has *thing* as its `fn`, and what is around that; nothing of Triton's own."""
    for holder in _holders(thing):
        if not _is_tritons(type(holder)):
            yield holder
        yield from around(holder)


def that_launched() -> Iterator[Any]:
    """Of all in this process those that hold what a launch has put there: keyed by arguments."""
    kinds: dict[type, bool] = {}
    for thing in gc.get_objects():
        kind = type(thing)
        if kind not in kinds:
            kinds[kind] = _has_run(kind) and not _is_tritons(kind)
        if kinds[kind] and "fn" in _names(thing):
            # In a list, as launches of other threads go on meanwhile.
            keys = [key for held in _memories(thing) for key in list(held)]
            if any(isinstance(key, tuple) for key in keys):
                yield thing


def note_launched(thing: Any) -> None:
    """What *thing* remembers now is from before the install."""
    _before.update({id(held): {*held} for held in _memories(thing)})


def forget_launched(thing: Any) -> None:
    """Take out what launches have put there since the install; a table of its own stays."""
    for held in _memories(thing):
        for key, value in list(held.items()):
            is_launch = isinstance(key, tuple) and _is_of_a_launch(value)
            if is_launch and key not in _before.get(id(held), ()):
                held.pop(key, None)


def forget(tuner: Any) -> None:
    """Let all that is around *tuner* ask it at every launch, until `end`.

    What a launch has put into its dictionaries is taken out before the next one; what was there
    before stays, as that may be no memory of launches.
    """
    for one in around(tuner):
        if not any(one is other for other in _forgetting):
            _forgetting.append(one)
            vars(one)["run"] = _forgetful(one)


def end() -> None:
    """Let all of them remember again."""
    _before.clear()
    while _forgetting:
        vars(_forgetting.pop()).pop("run", None)


def _forgetful(one: Any) -> Any:
    own = one.run
    before = {id(held): {*held} for held in _memories(one)}

    def run(*args: Any, **kwargs: Any) -> Any:
        for held in _memories(one):
            for new in [name for name in held if name not in before.get(id(held), ())]:
                del held[new]
        return own(*args, **kwargs)

    return run


def _holders(thing: Any) -> Iterator[Any]:
    for found in gc.get_referrers(thing):
        # Python keeps the attributes of an object in it, or in a dictionary of which it is known.
        if type(found) is dict:
            owners = gc.get_referrers(found) if found.get("fn") is thing else []
        else:
            owners = [found]
        for owner in owners:
            if _has_run(type(owner)) and _names(owner).get("fn") is thing:
                yield owner


def _has_run(kind: type) -> bool:
    return any("run" in vars(one) for one in kind.__mro__)


def _is_of_a_launch(value: object) -> bool:
    """Whether it is, or holds, what only a launch can have given: a binary, or a config."""
    parts = value if isinstance(value, tuple | list) else (value,)
    return any(_is_tritons(type(part)) for part in parts)


def _is_tritons(kind: type) -> bool:
    return str(vars(kind).get("__module__")).startswith("triton.")


def _names(thing: object) -> dict[str, Any]:
    with contextlib.suppress(Exception):  # somebody's object may answer as it likes
        found = object.__getattribute__(thing, "__dict__")
        if type(found) is dict:
            return found
    return {}


def _memories(thing: Any) -> Iterator[dict[Any, Any]]:
    """The dictionaries that it holds, one by one or one a device."""
    for value in list(_names(thing).values()):
        for held in value if isinstance(value, tuple | list) else (value,):
            if isinstance(held, dict):
                yield held

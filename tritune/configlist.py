"""configlist: a reference to configs in Python -> Table. Runs in a worker.

`module:NAME` is a `triton.Config`, a list of one, or a mapping from keys to them: a list of
several says of none which key it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tritune.configtables import Row, Table, row_of_key
from tritune.errors import TableError, TrituneError
from tritune.load import find, names_in
from tritune.model import Value
from tritune.modules import import_reference
from tritune.subject import plain_config
from tritune.words import an


def read(_: None, reference: str, axis: str) -> Table:
    """The configs that *reference* names.

    Raises:
        TrituneError: there are none such, or they are no configs.
    """
    module, name = import_reference(reference, base="the current folder")
    found: Any = find(module, name, "configs", _holds_configs)
    if found and not _holds_configs(found):
        raise TableError(
            f"expected a triton.Config, or a mapping to them, got {an(type(found).__name__)}",
            where=reference,
            hint=names_in(module, "configs", _holds_configs),
        )
    made = tuple(rows(reference, found, axis))
    if not made:
        hint = "give a triton.Config, or a mapping from sizes or whole keys to them"
        raise TableError("it holds no config", where=reference, hint=hint)
    return Table(path=reference, rows=made)


def rows(reference: str, found: Any, axis: str) -> Iterator[Row]:
    """The configs of a thing that *reference* names, each with what is known of its keys."""
    if isinstance(found, Mapping):
        for key, live in found.items():
            where = f"{reference}[{key!r}]"
            yield row_of_key(where, key, axis, _plain(where, live), hooked=_is_hooked(live))
        return
    listed = list(found) if isinstance(found, (list, tuple)) else [found]
    if len(listed) > 1:
        raise TableError(
            f"a list of {len(listed)} configs does not say which key each is for",
            where=reference,
            hint="give a mapping from keys to configs; to have all of a list tried, put it into "
            "@triton.autotune under @tritune.kernel and leave `space:` out",
        )
    for live in listed:
        values = tuple(_plain(reference, live).items())
        yield Row(where=reference, values=values, hooked=_is_hooked(live))


def _plain(where: str, live: Any) -> dict[str, Value]:
    if not _is_config(live):
        raise TableError(f"expected a triton.Config, got {an(type(live).__name__)}", where=where)
    try:
        return plain_config(live)
    except TrituneError as error:
        raise TableError(error.what, where=where, hint=error.hint) from None


def _is_hooked(live: Any) -> bool:
    return getattr(live, "pre_hook", None) is not None


def _is_config(thing: object) -> bool:
    return type(thing).__name__ == "Config" and hasattr(thing, "all_kwargs")


def _holds_configs(thing: object) -> bool:
    listed = thing.values() if isinstance(thing, Mapping) else thing
    if isinstance(listed, (str, bytes)) or not hasattr(listed, "__iter__"):
        return _is_config(thing)
    return isinstance(thing, (list, tuple, Mapping)) and any(map(_is_config, listed))

"""fitting: a Row of a foreign table and a kernel -> the Config it means, and the keys it is for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tritune.configtables import CACHED, Row, Table
from tritune.errors import NothingFitsError, TableError
from tritune.keys import dtype_name, joined, split
from tritune.model import FIELDS, LAUNCH_OPTIONS, RARE, Config, Value
from tritune.words import mistyped, plural

_QUANTIZED = {"fp8": "f8", "int8": "i8"}
"""How vLLM's name of a quantization begins, and the dtype of a tensor that is quantized so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receiver:
    """The kernel that a table is imported for, as far as a table cares."""

    kernel: str
    default: Config
    key: tuple[str, ...]
    constants: tuple[str, ...]
    """The constexprs that are part of its keys."""
    numbers: tuple[str, ...] = ()
    """Those of *key* that no launch passes a text for, as it may for a constexpr."""
    tensors: tuple[str, ...] = ()
    """The arguments that may be tensors of its keys, in order."""
    all_tensors: bool = False
    """Whether each of *tensors* has to be one."""

    @property
    def short(self) -> str:
        return self.kernel.rpartition(":")[2]

    @property
    def function(self) -> str:
        """Its name as far as a file of Triton's cache has it."""
        return self.short.rpartition(".")[2][:150]

    @property
    def scalars(self) -> tuple[str, ...]:
        return (*self.key, *self.constants)


def config(row: Row, receiver: Receiver, renames: Mapping[str, str]) -> Config:
    """The config of a row under the kernel's names.

    Raises:
        TableError: the kernel cannot run it, with its place in the table.
    """
    own = receiver.default.as_dict()
    values: dict[str, Value] = {}
    for name, value in row.values:
        to = renames.get(name, _own_name(name, row, own))
        if to in values:
            raise TableError(f"two of its names become `{to}`", where=row.where)
        if to and not _is_said_by_triton(to, value, own):
            values[to] = value
            _check_name(name, to, row, receiver)
    missing = [name for name in own if name not in values and name not in RARE]
    if missing:
        raise TableError(
            f"it has no {', '.join(f'`{name}`' for name in missing)}, which `{receiver.short}` "
            "needs",
            where=row.where,
            hint=f"it has {', '.join(name for name, _ in row.values)}; --rename OLD=NEW gives a "
            "name of the table the kernel's",
        )
    values |= {name: RARE[name] for name in own if name not in values}
    for name, value in values.items():
        _check_type(name, value, row, own)
    return Config.of(values)


def _own_name(name: str, row: Row, own: Mapping[str, Value]) -> str:
    """`BLOCK_SIZE_M` is `BLOCK_M` to a kernel that has the one and not the other."""
    plain = name.replace("_SIZE", "")
    named = {other for other, _ in row.values}
    return plain if name not in own and plain in own and plain not in named else name


def _is_said_by_triton(name: str, value: Value, own: Mapping[str, Value]) -> bool:
    """An option that the kernel does not tune, and that is what a launch without it has."""
    return name not in own and name in FIELDS and FIELDS[name] == value


def _check_name(name: str, to: str, row: Row, receiver: Receiver) -> None:
    own = receiver.default.as_dict()
    if to not in own and to not in LAUNCH_OPTIONS:
        raise TableError(
            f"`{to}` is not a tunable of `{receiver.short}`",
            where=row.where,
            hint=f"it has {', '.join(own)}; --rename {name}=NEW gives it another name, "
            f"--rename {name}= leaves it out",
        )


def _check_type(name: str, value: Value, row: Row, own: Mapping[str, Value]) -> None:
    like = own.get(name)
    if name in LAUNCH_OPTIONS and name not in own:
        like = 1
    is_said = value is not None or name not in LAUNCH_OPTIONS
    if like is not None and is_said and type(value) is not type(like):
        hint = f"the kernel's own is {like!r}" if name in own else "write a number"
        if type(like) is int and isinstance(value, str) and value.isdecimal():
            hint = f"write {value} without quotes"
        raise TableError(f"`{name}` is {mistyped(value, like)}", where=row.where, hint=hint)


def fits(row: Row, key: str, receiver: Receiver) -> bool:
    """Whether a key is one that a row is for."""
    parts = split(key)
    named = {**dict(row.parts), **dict(zip(receiver.key, row.ordered, strict=False))}
    if any(parts[name] != value for name, value in named.items() if name in parts):
        return False
    return has_dtypes(row, parts, receiver)


def has_dtypes(row: Row, parts: Mapping[str, str], receiver: Receiver) -> bool:
    """Whether the tensors of a key may be those of a row."""
    if row.dtypes is None:
        return True
    tensors = [value for name, value in parts.items() if name not in receiver.scalars]
    every = iter(row.dtypes)
    # A key may leave out tensors of the call, but not change their order.
    return all(any(one == dtype for dtype in every) for one in map(_dtype, tensors) if one)


def _dtype(text: str) -> str:
    return "" if text == "none" else text.partition("(")[0]


def check_function(table: Table, receiver: Receiver) -> None:
    """Refuse a file of Triton's cache that is of another function."""
    if table.function not in {"", receiver.function}:
        raise NothingFitsError(
            f"its name says that it is of `{table.function}`, and the kernel is `{receiver.short}`",
            where=table.path,
            hint=f"if that is what the kernel was called before, name it "
            f"{receiver.function}{CACHED}",
        )


def check_row(row: Row, receiver: Receiver, names: Iterable[str]) -> None:
    """Refuse a row that would be for every key, or whose key is another kernel's."""
    there = [*names]
    if row.parts and row.parts[0][0] not in there:
        axis = row.parts[0][0]
        what = f"`{axis}` is no part of a key of `{receiver.short}`"
        raise TableError(what, where=row.where, hint=f"--axis NAME: it has {', '.join(there)}")
    check_length(row, receiver)


def check_length(row: Row, receiver: Receiver) -> None:
    """Refuse a row whose key is another kernel's, or was this one's before."""
    if row.ordered and len(row.ordered) != len(receiver.key):
        raise NothingFitsError(
            f"its key has {plural(len(row.ordered), 'value')}, and that of `{receiver.short}` is "
            f"{', '.join(receiver.key) or 'empty'}",
            where=row.where,
        )


def ignored(row: Row, template: str, receiver: Receiver) -> tuple[str, ...]:
    """What a row says besides its size that has no part in the key that `key_of` makes of it."""
    texts = split(template)
    asked = set(re.findall(r"\{(\w+)\}", template))
    kept = {name for name in _known(receiver) if name not in texts}
    said = (pair for pair in row.parts[1:] if pair[0] not in texts)
    return tuple(f"{name}={text}" for name, text in said if name not in kept | asked)


def overruled(row: Row, template: str, receiver: Receiver) -> tuple[tuple[str, str], ...]:
    """What a row says that *template* says otherwise, and what that says."""
    texts = split(template)
    asked = set(re.findall(r"\{(\w+)\}", template))
    return tuple(
        (f"{name}={text}", f"{name}={texts[name]}")
        for name, text in row.parts
        if name in texts and name in _known(receiver) and name not in asked
        if "{" not in texts[name] and not _is_same(text, texts[name], name, receiver)
    )


def _is_same(one: str, other: str, name: str, receiver: Receiver) -> bool:
    return one == other or (name in receiver.tensors and _tensor(one) == _tensor(other))


def other_dtype(row: Row, keys: Iterable[str], receiver: Receiver) -> tuple[str, str] | None:
    """`dtype=fp8_w8a8` and the first key with no such tensor: the table is of other work."""
    said = dict(row.parts).get("dtype", "")
    kind = _QUANTIZED.get(said.partition("_")[0])
    if kind is None:
        return None
    for key in keys:
        tensors = [value for name, value in split(key).items() if name not in receiver.scalars]
        if not any(kind in value for value in tensors):
            return said, key
    return None


def key_of(row: Row, template: str, receiver: Receiver) -> str:
    """The key that a row is for: its own parts, put into a template such as `M={} a=f16 b=f16`.

    The template has been checked.

    Raises:
        TableError: the two do not make a whole key.
    """
    own = {**dict(row.parts), **dict(zip(receiver.key, row.ordered, strict=False))}
    found = {name: value for name, value in own.items() if name in _known(receiver)}
    for name, text in split(template).items():
        found[name] = re.sub(r"\{(\w*)\}", lambda gap: _filled(gap[1], own, row), text)
    tensors = [name for name in receiver.tensors if name in found]
    if receiver.tensors and not tensors:  # without their dtypes no call has such a key
        tensors = list(receiver.tensors)
    needed = [*receiver.scalars, *(receiver.tensors if receiver.all_tensors else tensors)]
    if missing := [name for name in needed if name not in found]:
        hint = f'--key "{" ".join(f"{name}=..." for name in missing)}", or --sweep FILE, whose '
        raise TableError(
            f"a key of `{receiver.short}` also has {', '.join(f'`{name}`' for name in missing)}",
            where=row.where,
            hint=f"{_misnamed(row, receiver)}{hint}problems have all of it",
        )
    for name in tensors:
        found[name] = _tensor(found[name])
    return joined((name, found[name]) for name in needed)


def _misnamed(row: Row, receiver: Receiver) -> str:
    axis = row.parts[0][0] if row.parts else ""
    if not axis or axis in _known(receiver):
        return ""
    return f"--axis NAME: the sizes are of `{axis}`, which is no part of it; or "


def _known(receiver: Receiver) -> Sequence[str]:
    return (*receiver.scalars, *receiver.tensors)


def _filled(name: str, own: Mapping[str, str], row: Row) -> str:
    if name in own:
        return own[name]
    if not name and own:
        return next(iter(own.values()))
    what = f"the table has nothing for `{{{name}}}`"
    raise TableError(what, where=row.where, hint=f"it has {', '.join(own) or 'no key'}")


def _tensor(text: str) -> str:
    """`float16` is `f16` in a key."""
    plain, mark, rest = text.partition("(")
    return f"{dtype_name(plain)}{mark}{rest}"

"""configtables: a table that another tool wrote -> Table: for which keys, which configs.

Two are known: vLLM's, a config for each size of one axis, with more in the file's name; and what
Triton's autotuner keeps on disk, the times of every config for one key. Pure, and knows no kernel.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from tritune import jsonplaces, keys
from tritune.errors import NothingFitsError, TableError
from tritune.model import PLAIN, RARE, Value

_SIZE = re.compile(r"[0-9]{1,18}")
_IN_NAME = re.compile(r"""(?:^|,)(\w+)=((?:\[[^\]]*\]|\([^)]*\)|"(?:[^"\\]|\\.)*"|[^,\[("])*)""")
"""A part of a file's name; brackets and quotes may hold commas."""
_DTYPE = re.compile(r"torch\.\w+")
CACHED = ".autotune.json"
"""How the name of a file in Triton's cache ends, after that of the kernel's function."""
_DEVICE = "device_name"
VERSION = "triton_version"
_TABLE = 'a table is {"64": {"BLOCK_SIZE_M": 64, ...}, "128": ...}'
_TIMES = (
    'a file of Triton\'s autotuner is {"key": [...], "configs_timings": [[config, times], ...]}'
)
_VALUE = "a value is a number, a text, true, false or null"
_UNSAID = {**RARE, "pre_hook": None, "ir_override": None}
"""Fields of a Config of Triton's, with what they are where nobody has set them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One config, and what is known of the keys that it is for."""

    where: str
    parts: tuple[tuple[str, str], ...] = ()
    """Names and values as a key has them; what is not here may be anything."""
    ordered: tuple[str, ...] = ()
    """Values of the kernel's own key, in its order, where the table does not name them."""
    dtypes: tuple[str, ...] | None = None
    """Of the tensors of the call, in order; None where the table does not say."""
    values: tuple[tuple[str, Value], ...]
    hooked: bool = False
    """Something has to run before a launch with it, of which a lockfile holds the name alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What one file, or one list, holds."""

    path: str
    rows: tuple[Row, ...]
    device: str = ""
    """What the file's name calls the device; empty where it does not."""
    triton: str = ""
    function: str = ""
    """What the file's name calls the kernel's function, of a file in Triton's cache."""


def parse_vllm(text: str, path: str, axis: str) -> Table:
    """`{"64": {"BLOCK_SIZE_M": 64, ...}}`, in a file `E=8,N=14336,device_name=NVIDIA_H200.json`.

    Raises:
        TableError: the first mistake, at its line.
    """
    whole = _object(_load(text, path, _TABLE), path, text, (), _TABLE)
    triton = whole.pop(VERSION, "")
    named = dict(_IN_NAME.findall(PurePath(path).name.removesuffix(".json")))
    device = named.pop(_DEVICE, "")
    parts = [(n, str(int(v)) if _SIZE.fullmatch(v) else v) for n, v in named.items()]
    rows = []
    for size, values in whole.items():
        where = jsonplaces.where(path, text, (size,))
        if not _SIZE.fullmatch(size):
            what = f"expected a size of {axis}, got {json.dumps(size)[:40]}"
            raise TableError(what, where=where, hint=_hint(whole))
        found = _values(_object(values, path, text, (size,), _TABLE), path, text, (size,))
        at = ((axis, str(int(size))), *parts)
        rows.append(Row(where=where, parts=at, values=tuple(found.items())))
    if not rows:
        raise TableError("it holds no config", where=path, hint=_TABLE)
    return Table(path=path, rows=tuple(rows), device=device, triton=str(triton))


def _hint(whole: Mapping[str, Any]) -> str:
    if "configs_timings" in whole:
        return "this is a file of Triton's autotuner: --format autotune-cache"
    return _TABLE


def parse_autotune(text: str, path: str) -> Table:
    """`NAME.autotune.json`, as `TRITON_CACHE_AUTOTUNING=1` leaves it: its fastest config.

    Raises:
        TableError: the first mistake, at its line.
    """
    whole = _object(_load(text, path, _TIMES), path, text, (), _TIMES)
    key, timings = whole.get("key"), whole.get("configs_timings")
    if not isinstance(key, list) or not isinstance(timings, list):
        what = 'it has no "key" and "configs_timings", as a file of Triton\'s autotuner has'
        raise TableError(what, where=path, hint="a table of sizes is --format vllm")
    times = [_time(item, path, text, index) for index, item in enumerate(timings)]
    best = min(
        (i for i, us in enumerate(times) if math.isfinite(us)), key=times.__getitem__, default=None
    )
    if best is None:
        raise NothingFitsError("no config of it has a time", where=path)
    at = ("configs_timings", best, 0)
    said = [one for one in key if isinstance(one, str) and _DTYPE.fullmatch(one)]
    own = key[: len(key) - len(said)]
    if [str(one) for one in key[len(own) :]] != said:
        raise TableError(
            f"expected values and then dtypes, got {json.dumps(key)[:60]}",
            where=jsonplaces.where(path, text, ("key",)),
            hint=_TIMES,
        )
    row = Row(
        where=jsonplaces.where(path, text, at),
        ordered=tuple(map(keys.word, own)),
        dtypes=tuple(map(keys.dtype_name, said)),
        values=tuple(_fields(timings[best][0], path, text, at).items()),
    )
    name = PurePath(path).name
    function = name.removesuffix(CACHED) if name.endswith(CACHED) else ""
    return Table(path=path, rows=(row,), function=function)


def _time(item: Any, path: str, text: str, index: int) -> float:
    pair = isinstance(item, list) and len(item) == 2 and isinstance(item[0], dict)
    median = (
        item[1][0] if pair and isinstance(item[1], list) and item[1] else item[1] if pair else None
    )
    if not isinstance(median, (int, float)) or isinstance(median, bool):
        what = f"expected a config and its times, got {json.dumps(item)[:40]}"
        where = jsonplaces.where(path, text, ("configs_timings", index))
        raise TableError(what, where=where, hint=_TIMES)
    try:
        return float(median)
    except OverflowError:  # a whole number of 400 digits
        return math.inf


def _fields(
    config: Mapping[str, Any], path: str, text: str, at: jsonplaces.Path
) -> dict[str, Value]:
    """The meta-parameters and the launch options that somebody has set."""
    inner = config.get("kwargs")
    options = {n: v for n, v in config.items() if n != "kwargs" and v != _UNSAID.get(n, ...)}
    own = _object(inner, path, text, (*at, "kwargs"), _TIMES)
    return _values({**own, **options}, path, text, at)


def _load(text: str, path: str, hint: str) -> Any:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError as error:
        what, where = f"is not JSON: {error.msg.lower()}", f"{path}:{error.lineno}"
        hint = f"copy it again, should it be cut off; {hint}"
        raise TableError(what, where=where, hint=hint) from None
    except (RecursionError, ValueError) as error:
        raise TableError(f"is not JSON: {error}", where=path, hint=hint) from None
    if pair := jsonplaces.doubled(text):
        first, second = pair
        what = f'"{second.path[-1]}" stands twice, first on line {first.line}'
        raise TableError(what, where=f"{path}:{second.line}", hint="leave one of the two out")
    return whole


def _object(value: Any, path: str, text: str, at: jsonplaces.Path, hint: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        what = f"expected an object, got {json.dumps(value)[:40]}"
        raise TableError(what, where=jsonplaces.where(path, text, at), hint=hint)
    return dict(value)


def _values(found: dict[str, Any], path: str, text: str, at: jsonplaces.Path) -> dict[str, Value]:
    for name, one in found.items():
        if type(one) not in PLAIN or (isinstance(one, float) and not math.isfinite(one)):
            what = f"expected a value, got {json.dumps(one)[:40]}"
            raise TableError(what, where=jsonplaces.where(path, text, (*at, name)), hint=_VALUE)
    return found


def row_of_key(
    where: str, key: object, axis: str, values: Mapping[str, Value], *, hooked: bool = False
) -> Row:
    """A row of a mapping in Python: its key is a whole key, or a size of *axis*."""
    if isinstance(key, str) and "=" in key:
        parts = keys.split(key)
    elif isinstance(key, str) and _SIZE.fullmatch(key):  # as JSON has it
        parts = {axis: str(int(key))}
    elif isinstance(key, int) and not isinstance(key, bool):
        parts = {axis: str(key)}
    else:
        what = f"expected a key as `M=64 a=f16`, or a size of {axis}, got {key!r}"
        raise TableError(what, where=where)
    return Row(where=where, parts=tuple(parts.items()), values=tuple(values.items()), hooked=hooked)

"""export: entries of one kernel on one device -> Python source, or tables as vLLM reads them.

Pure. What `tritune import` takes in again as the same configs under the same keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from tritune import hooks
from tritune.axisvalues import did_you_mean
from tritune.errors import TableError
from tritune.keys import split
from tritune.model import FIELDS, LAUNCH_OPTIONS, Config, DeviceIdentity, Entry, LockedKey, Value

Locked = tuple[LockedKey, Entry]
_Made = tuple[Config, str]
"""A config, and the hook that it was measured with."""

_TILES = re.compile(r"(BLOCK|GROUP)_([MNK])")
_SIZE = re.compile(r"0|[1-9][0-9]*")
_VLLM = ("E", "N")
"""The parts of a key that a file of vLLM's is named by."""


def configs_source(kernel: str, device: str, entries: Sequence[Locked]) -> str:
    """A module with `CONFIGS`, each distinct config once, and `BY_KEY`."""
    keys: dict[_Made, list[str]] = {}
    for at, entry in entries:
        keys.setdefault(_made(entry), []).append(at.key)
    numbers = {made: number for number, made in enumerate(keys)}
    listed = [
        line
        for made, won in keys.items()
        for line in (*(f"    # {key}" for key in won), *_listed(*made))
    ]
    by_key = [
        f"    {json.dumps(at.key)}: CONFIGS[{numbers[_made(entry)]}]," for at, entry in entries
    ]
    modules = sorted({hook.partition(":")[0] for _, hook in keys if _is_importable(hook)})
    about = f"What is locked for {kernel} on {device}.".replace("\\", "\\\\").replace('"', "'")
    return "\n".join(
        [
            f'"""{about}"""',
            "",
            "import triton",
            *(["", *(f"import {module}" for module in modules)] if modules else []),
            "",
            "CONFIGS = [",
            *listed,
            "]",
            "",
            "BY_KEY = {",
            *by_key,
            "}",
            "",
        ]
    )


def unwritten(entries: Sequence[Locked]) -> tuple[str, ...]:
    """The hooks that no source can name, and without which a config gives wrong results."""
    return tuple(hook for hook in hooked(entries) if not _is_importable(hook))


def hooked(entries: Sequence[Locked]) -> tuple[str, ...]:
    """All the hooks of these."""
    return tuple(hook for hook in dict.fromkeys(_made(entry)[1] for _, entry in entries) if hook)


def _made(entry: Entry) -> _Made:
    return entry.config, hooks.named(entry.evidence.hook)


def _is_importable(hook: str) -> bool:
    module, _, name = hook.partition(":")
    return all(part.isidentifier() for part in (*module.split("."), *name.split(".")))


def _listed(config: Config, hook: str) -> Iterator[str]:
    if _is_importable(hook):
        yield f"    {_config(config, hook.replace(':', '.'))},"
        return
    if hook:
        yield f"    # FILL IN pre_hook: it was measured with {hook}, which cannot be imported"
    yield f"    {_config(config)},"


def _config(config: Config, hook: str = "") -> str:
    values = dict(_said(config))
    meta = ", ".join(f'"{name}": {value!r}' for name, value in values.items() if name not in FIELDS)
    options = "".join(f", {name}={values[name]!r}" for name in FIELDS if name in values)
    ending = f", pre_hook={hook}" if hook else ""
    return f"triton.Config({{{meta}}}{options}{ending})"


def _said(config: Config) -> Iterator[tuple[str, Value]]:
    """What a config says: None is "not said" for a launch option."""
    for name, value in config.values:
        if value is not None or name not in LAUNCH_OPTIONS:
            yield name, value


def vllm_tables(
    device: DeviceIdentity, entries: Sequence[Locked], axis: str, renames: Mapping[str, str]
) -> dict[str, str]:
    """File name -> table by the sizes of *axis*, one for all that is equal but for those.

    Raises:
        TableError: a key has no such part, or it is no size.
    """
    _check(renames, entries)
    tables: dict[tuple[tuple[str, str], ...], dict[str, Config]] = {}
    for at, entry in entries:
        parts = split(at.key)
        size = parts.pop(axis, None)
        if size is None or not _SIZE.fullmatch(size):
            what = f"`{axis}` is {size!r}, not a size" if size else f"it has no `{axis}`"
            hint = f"--axis NAME says which part the sizes are: {', '.join(split(at.key))}"
            raise TableError(what, where=at.key, hint=hint)
        tables.setdefault(tuple(parts.items()), {})[size] = entry.config
    named = [dict(parts) for parts in tables]
    return {
        f"{_name(parts, named, device)}.json": _table(table, renames)
        for parts, table in zip(named, tables.values(), strict=True)
    }


def _name(
    parts: Mapping[str, str], every: Sequence[Mapping[str, str]], device: DeviceIdentity
) -> str:
    """As vLLM names it where that tells it from the others; else with all of the key."""
    short = {name: parts[name] for name in _VLLM if name in parts}
    alike = [one for one in every if short.items() <= one.items()]
    used = short if len(short) == len(_VLLM) and len(alike) == 1 else parts
    driver = (device.names or (device.name,))[0].replace(" ", "_")
    name = ",".join([*(f"{part}={value}" for part, value in used.items()), f"device_name={driver}"])
    if "/" in name:
        raise TableError("its key has a `/`, which no name of a file can have", where=name)
    return name


def _check(renames: Mapping[str, str], entries: Sequence[Locked]) -> None:
    known = {name for _, entry in entries for name in entry.config}
    for name in renames:
        if name not in known:
            what, hint = f"no config has a `{name}`", did_you_mean(name, sorted(known))
            raise TableError(what, where="--rename", hint=hint)
    told = [new for name in known if (new := _told(name, renames))]
    if twice := sorted(new for new in {*told} if told.count(new) > 1):
        raise TableError(f"two names of a config become `{twice[0]}`", where="--rename")


def _told(name: str, renames: Mapping[str, str]) -> str:
    return renames.get(name, _TILES.sub(r"\1_SIZE_\2", name))


def _table(table: Mapping[str, Config], renames: Mapping[str, str]) -> str:
    # No `triton_version`, as newer tables of vLLM's have: who reads them may take it for a size.
    rows: dict[str, dict[str, Value]] = {
        size: {new: value for name, value in _said(table[size]) if (new := _told(name, renames))}
        for size in sorted(table, key=int)
    }
    return json.dumps(rows, indent=4) + "\n"

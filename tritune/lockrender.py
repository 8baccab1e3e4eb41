"""lockrender: Lock -> lockfile text, the one writer of the format.

Nested kernel -> device -> key, four lines an entry: one entry a line conflicts in most merges
of two sweeps, this layout in almost none, and code hosts run no merge drivers. No clock and no
path, so equal decisions are equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from tritune.locktext import VERSION, natural
from tritune.model import DeviceIdentity, Entry, Evidence, Lock, LockedKey


def render(lock: Lock) -> str:
    """The text of a lockfile; parsing it gives *lock* again."""
    return "{\n" + ",\n".join(_render_parts(lock)) + "\n}\n"


def sort_entries(
    entries: Iterable[tuple[LockedKey, Entry]],
) -> tuple[tuple[LockedKey, Entry], ...]:
    """The order of a lockfile."""
    return tuple(sorted(entries, key=lambda e: (e[0].kernel, e[0].device, natural(e[0].key))))


def _render_parts(lock: Lock) -> Iterator[str]:
    yield f' "tritune": {VERSION}'
    devices = [(device.name, json.dumps(_device(device))) for device in lock.devices]
    yield _render_object(1, "devices", [f"  {json.dumps(n)}: {text}" for n, text in devices])
    if lock.near:
        texts = [f"  {json.dumps(name)}: {json.dumps(list(near))}" for name, near in lock.near]
        yield _render_object(1, "near", texts)
    tree: dict[str, dict[str, list[str]]] = {}
    for at, entry in lock.entries:
        tree.setdefault(at.kernel, {}).setdefault(at.device, []).append(_entry(at.key, entry))
    kernels = [
        _render_object(2, kernel, [_render_object(3, name, keys) for name, keys in found.items()])
        for kernel, found in tree.items()
    ]
    yield _render_object(1, "kernels", kernels)


def _render_object(depth: int, name: str, parts: list[str]) -> str:
    space = " " * depth
    inside = "\n" + ",\n".join(parts) + "\n" + space if parts else ""
    return f"{space}{json.dumps(name)}: {{{inside}}}"


def _device(device: DeviceIdentity) -> dict[str, Any]:
    facts = asdict(device)
    del facts["name"]
    return {name: fact for name, fact in facts.items() if fact or name not in {"use", "where"}}


_OPTIONAL = {"source", "space", "reach", "unsettled", "unmeasured", "hook"}
"""Left out while empty or false."""


def _evidence(evidence: Evidence) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(evidence).items() if value is not None}
    unknown = {"us", "noise", "bits", "ir", "triton"} if evidence.unmeasured else set()
    omitted = _OPTIONAL | unknown
    return {name: value for name, value in facts.items() if value or name not in omitted}


def _entry(key: str, entry: Entry) -> str:
    return (
        f"    {json.dumps(key)}: {{\n"
        f'     "config": {json.dumps(entry.config.as_dict())},\n'
        f'     "evidence": {json.dumps(_evidence(entry.evidence))}\n'
        "    }"
    )

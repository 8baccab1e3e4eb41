"""merge: the two Locks of a merge, and what both came from -> one Lock.

What one side changed is taken. Where both changed an entry, ours is kept whole and marked
unsettled: times of two boards do not rank, so only the next sweep can say which config is the
faster. An entry is never made of two. One silicon is one device, whatever each side calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from tritune.devicelabels import with_device
from tritune.lockrender import sort_entries
from tritune.model import DeviceIdentity, Entry, Lock, LockedKey

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    """The merged lock, and which of its entries both sides changed."""

    lock: Lock
    unsettled: tuple[LockedKey, ...]
    taken: int = 0
    """Entries that are theirs, and were none of ours."""
    removed: int = 0
    """Entries of ours that theirs has removed."""


def merge(base: Lock, ours: Lock, theirs: Lock) -> Merged:
    """The lock that has what either side changed since *base*."""
    devices = ours.devices
    labels: list[dict[str, str]] = []
    for side in (theirs, base):
        devices, named = _relabelled(devices, side.devices)
        labels.append(named)
    both: list[LockedKey] = []

    def settle(at: LockedKey, own: Entry | None, other: Entry | None) -> Entry | None:
        both.append(at)
        # A change is worth more than a removal: what is removed in silence is lost.
        kept = own or other
        return kept and replace(kept, evidence=replace(kept.evidence, unsettled=True))

    mine = dict(ours.entries)
    entries = _three_way(_entries(base, labels[1]), mine, _entries(theirs, labels[0]), settle)
    near = _three_way(dict(base.near), dict(ours.near), dict(theirs.near), _all_of_both)
    return Merged(
        lock=Lock(
            devices=_devices(devices, base, (ours, theirs), _needed(devices, entries)),
            entries=sort_entries(entries.items()),
            near=tuple(sorted(near.items())),
        ),
        unsettled=tuple(sorted(both, key=lambda at: (at.kernel, at.device, at.key))),
        taken=sum(at not in both and mine.get(at) != entry for at, entry in entries.items()),
        removed=len(mine.keys() - entries.keys()),
    )


def _three_way(
    base: Mapping[K, V],
    ours: Mapping[K, V],
    theirs: Mapping[K, V],
    settle: Callable[[K, V | None, V | None], V | None],
) -> dict[K, V]:
    """By key: what one side changed, and where both did what *settle* says."""
    merged: dict[K, V] = {}
    for key in {**ours, **theirs}:
        old, mine, other = base.get(key), ours.get(key), theirs.get(key)
        if other in (mine, old):
            kept = mine
        elif mine == old:
            kept = other
        else:
            kept = settle(key, mine, other)
        if kept is not None:
            merged[key] = kept
    return merged


def _all_of_both(
    _: str, mine: tuple[str, ...] | None, other: tuple[str, ...] | None
) -> tuple[str, ...]:
    """Constraints of a look-up: each one that either side needs has to hold."""
    return tuple(dict.fromkeys((*(mine or ()), *(other or ()))))


def _relabelled(
    devices: tuple[DeviceIdentity, ...], more: Iterable[DeviceIdentity]
) -> tuple[tuple[DeviceIdentity, ...], dict[str, str]]:
    """The devices with *more* among them, and how those are called there."""
    labels = {}
    for device in more:
        devices, labels[device.name] = with_device(devices, device)
    return devices, labels


def _entries(side: Lock, labels: Mapping[str, str]) -> dict[LockedKey, Entry]:
    entries: dict[LockedKey, Entry] = {}
    for at, entry in side.entries:
        # Two labels of one silicon in one file are one device; its first entry stands.
        entries.setdefault(replace(at, device=labels.get(at.device, at.device)), entry)
    return entries


def _needed(devices: Iterable[DeviceIdentity], entries: Iterable[LockedKey]) -> set[str]:
    """The labels that an entry is of, or that another device uses."""
    return {at.device for at in entries} | {device.use for device in devices}


def _devices(
    devices: Iterable[DeviceIdentity], base: Lock, sides: tuple[Lock, Lock], used: set[str]
) -> tuple[DeviceIdentity, ...]:
    """Those that an entry is of, and those that no side has removed."""
    before = {device.silicon(): set(device.names) for device in base.devices}
    ours, theirs = ({one.silicon(): set(one.names) for one in side.devices} for side in sides)
    kept = []
    for device in devices:
        at = device.silicon()
        mine, other, old = ours.get(at), theirs.get(at), before.get(at)
        if device.name not in used and old is not None and (mine is None or other is None):
            continue
        if mine is not None and other is not None:
            names = (mine & other) | ((mine ^ other) - (old or set()))
            device = replace(device, names=tuple(sorted(names)))  # noqa: PLW2901
        kept.append(device)
    return tuple(kept)

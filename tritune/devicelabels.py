"""devicelabels: devices of a lockfile + one more -> the devices, and what the file calls that one.

A label is for people: one silicon has one label, whatever its driver calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tritune.model import DeviceIdentity


def find(devices: Iterable[DeviceIdentity], device: DeviceIdentity) -> DeviceIdentity | None:
    """Which of them is the same silicon.

    A memory clock of 0 is not known: it is in no data sheet, so an entry that was imported where
    no such GPU is has none, and is served to whatever is equal in all else.
    """
    devices = list(devices)
    exact = [known for known in devices if known.silicon() == device.silicon()]
    alike = [known for known in devices if known.silicon()[:-1] == device.silicon()[:-1]]
    unsaid = [known for known in alike if 0 in {known.memory_mhz, device.memory_mhz}]
    return next(iter([*exact, *unsaid]), None)


def named(devices: Iterable[DeviceIdentity], name: str) -> DeviceIdentity | None:
    """Which of them is called *name*, as people, drivers and file names write it."""
    return next((one for one in devices if _plain(name) in _names(one)), None)


def _names(device: DeviceIdentity) -> set[str]:
    return {_plain(name) for name in (device.name, *device.names)}


def _plain(name: str) -> str:
    """`NVIDIA_H200`, `NVIDIA H200` and `h200` are one."""
    return re.sub(r"^(nvidia|amd) (instinct )?|geforce ", "", re.sub(r"[\s_]+", " ", name.lower()))


def with_device(
    devices: tuple[DeviceIdentity, ...], device: DeviceIdentity
) -> tuple[tuple[DeviceIdentity, ...], str]:
    """The devices with *device* among them, and what the lockfile calls it."""
    listed = {known.name: known for known in devices}
    found = find(devices, device)
    known = found or replace(device, name=_label(listed, device), names=())
    names = tuple(sorted({*known.names, *device.names}))
    clock = known.memory_mhz or device.memory_mhz
    listed[known.name] = replace(known, names=names, memory_mhz=clock)
    return tuple(listed[name] for name in sorted(listed)), known.name


def _label(taken: Iterable[str], device: DeviceIdentity) -> str:
    """Its name, told apart from other silicon of that name by as few facts as it takes."""
    facts = (
        f"{device.sms} SMs",
        f"{device.bus_bits} bit",
        f"{device.memory_mhz} MHz",
        f"{device.shared_bytes} B",
        str(device.arch),
        device.backend,
    )
    told = (f"{device.name} ({', '.join(facts[:count])})" for count in range(1, len(facts) + 1))
    return next(label for label in (device.name, *told) if label not in set(taken))

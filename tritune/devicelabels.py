"""devicelabels: devices of a lockfile + one more -> the devices, and what the file calls that one.

A label is for people: one silicon has one label, whatever its driver calls it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tritune.model import DeviceIdentity


def with_device(
    devices: tuple[DeviceIdentity, ...], device: DeviceIdentity
) -> tuple[tuple[DeviceIdentity, ...], str]:
    """The devices with *device* among them, and what the lockfile calls it."""
    listed = {known.name: known for known in devices}
    same = [known for known in devices if known.silicon() == device.silicon()]
    known = same[0] if same else replace(device, name=_label(listed, device), names=())
    names = tuple(sorted({*known.names, *device.names}))
    listed[known.name] = replace(known, names=names)
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

"""silicon: Triton's active driver -> DeviceIdentity | None.

Asked for at the first launch on a device, never at import: asking starts CUDA.
"""

from __future__ import annotations

import sys
from typing import Any

from tritune.model import DeviceIdentity

_known: dict[tuple[object, int], DeviceIdentity | None] = {}
_no_driver: set[object] = set()


def current() -> tuple[object, int]:
    """The active driver and the index of its current device; (None, -1) with no driver."""
    driver = _driver()
    return (None, -1) if driver is None else (driver, driver.get_current_device())


def identity(place: tuple[object, int]) -> DeviceIdentity | None:
    """Which silicon *place*, as `current()` gave it, is."""
    if place not in _known:
        _known[place] = _identity(*place)
    return _known[place]


def identify(index: int) -> DeviceIdentity | None:
    """The silicon of GPU *index* of this machine."""
    return identity((_driver(), index))


def _driver() -> Any:
    # Asked on every launch: what is imported already is not looked for again.
    module = sys.modules.get("triton.runtime.driver")
    active = getattr(getattr(module, "driver", None), "_active", None)
    if active is not None:
        return active
    from triton import knobs
    from triton.runtime.driver import driver

    # A failed look for a driver is slow and is not remembered by Triton. One that is set
    # afterwards (`set_active`) shows in `_active`.
    active = getattr(driver, "_active", None)
    if active is not None:
        return active
    if knobs.runtime.interpret or driver in _no_driver:  # the interpreter launches on no device
        return None
    try:
        return driver.active
    except RuntimeError:  # "0 active drivers"
        _no_driver.add(driver)
        return None


def _identity(driver: Any, index: int) -> DeviceIdentity | None:
    utils: Any = getattr(driver, "utils", None)
    is_device = hasattr(utils, "get_device_properties") and not hasattr(driver, "only_compiles")
    if not is_device:  # no driver, or a stand-in
        return None
    target = driver.get_current_target()
    facts = utils.get_device_properties(index)
    names = _names(index)
    return DeviceIdentity(
        name=names[0] if names else f"{target.backend}:{target.arch}",
        backend=target.backend,
        arch=target.arch,
        sms=facts["multiprocessor_count"],
        shared_bytes=facts["max_shared_mem"],
        bus_bits=facts["mem_bus_width"],
        memory_mhz=facts["mem_clock_rate"] // 1000,
        names=names,
    )


def _names(index: int) -> tuple[str, ...]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ()
    return (torch.cuda.get_device_name(index),)

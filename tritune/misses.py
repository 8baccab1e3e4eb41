"""misses: a call whose key is not locked -> a log line, a line of JSON, or LookupMissError."""

from __future__ import annotations

import json
import threading

from tritune import switches
from tritune.errors import LookupMissError
from tritune.lookup import Asked, Lockfile, Refusal, find, logger
from tritune.model import DeviceIdentity

_said: set[str] = set()
_writing = threading.Lock()


def report(file: Lockfile, device: DeviceIdentity, asked: Asked, why: str) -> None:
    """Say it once a kernel; write it down always; raise where the user wants that."""
    label = file.label(device) or device.name
    if switches.miss_is_error():
        if (error := file.damage(asked.kernel)) is not None:
            raise error
        raise _miss(file, asked, label, why)
    _write(file, label, asked, why)
    with _writing:
        first = asked.kernel not in _said
        _said.add(asked.kernel)
    if first and file.damage(asked.kernel) is None:
        logger.warning(
            "%s: no locked config for %s on %s, so %s: %s",
            asked.kernel,
            asked.text,
            label,
            asked.otherwise,
            why,
        )


def refuse_unlocked(file: Lockfile, asked: Asked, refusal: Refusal) -> None:
    """Where no GPU is here to have entries, a key that none of the lockfile's has is an error.

    Raises:
        LockError: there is no such entry, or the lockfile is damaged.
    """
    if (error := file.damage(asked.kernel)) is not None:
        raise error
    devices = file.document.devices if file.document else ()
    found = [find(file, device, asked, refusal) for device in devices]
    if not any(one.config for one in found):
        why = found[0].why if found else f"there is no {file.path}"
        raise _miss(file, asked, "any GPU", why)


def _miss(file: Lockfile, asked: Asked, device: str, why: str) -> LookupMissError:
    return LookupMissError(
        f"`{asked.kernel}` has no locked config for {asked.text} on {device}: {why}",
        where=str(file.path),
        hint="add it to the sweep file's shapes and sweep again",
    )


def _write(file: Lockfile, label: str, asked: Asked, why: str) -> None:
    if not (path := switches.miss_log()):
        return
    line = {
        "kernel": asked.kernel,
        "device": label,
        "key": asked.text,
        "why": why,
        "lockfile": str(file.path),
    }
    try:
        with _writing, open(path, "a", encoding="utf-8") as log:  # noqa: PTH123  # append
            log.write(json.dumps(line) + "\n")
    except OSError as error:
        switches.say_once(f"TRITUNE_LOG={path}: cannot be written: {error.strerror or error}")


def tell_unlogged() -> None:
    """A look-up has no device, so it is no miss of any lockfile's and no line of the log."""
    if path := switches.miss_log():
        switches.say_once(
            f"TRITUNE_LOG={path}: only misses on a GPU are written to it, and none is used here"
        )

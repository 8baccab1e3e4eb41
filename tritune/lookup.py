"""lookup: lockfile + device + key -> Found.

Exact, else near where the kernel's author allows it, else nothing: the kernel then runs its
default. Nearest is not the default rule, because it serves wrong results: a softmax locked
with BLOCK=1024 at n=1024 would leave a third of n=1536 unwritten.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tritune import locktext, predicate
from tritune.errors import LockError
from tritune.model import Config, DeviceIdentity, Entry

logger = logging.getLogger("tritune")

DEFAULT = "it runs its default"

Refusal = Callable[[Config], str]
"""Why a kernel cannot run a locked config; empty when it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call, as far as a look-up cares."""

    kernel: str
    key: tuple[tuple[str, str], ...]
    """The parts of the key: name and text."""
    near: str | None
    values: Mapping[str, object]
    """What a constraint may name beside the config."""
    otherwise: str = DEFAULT
    """What becomes of it where nothing is locked."""

    @property
    def text(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """`kind` is exact, near or default; `config` is None for the default."""

    kind: str
    config: Config | None = None
    why: str = ""
    """Why it is the default."""


class Lockfile:
    """One lockfile as this process sees it: read once, damaged or not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: LockError | None = None
        self.document = self._read()
        self._sections: dict[str, dict[str, dict[str, Entry]]] = {}
        self._announced = False

    def label(self, device: DeviceIdentity) -> str | None:
        """What the file calls this silicon, whatever its driver calls it."""
        known = self.document.devices if self.document else ()
        return next((d.name for d in known if d.silicon() == device.silicon()), None)

    def section(self, kernel: str) -> dict[str, dict[str, Entry]]:
        """Device label -> key -> entry of one kernel."""
        if kernel not in self._sections:
            self._sections[kernel] = self._section(kernel)
        return self._sections[kernel]

    def near(self, kernel: str) -> tuple[str, ...]:
        return dict(self.document.near).get(kernel, ()) if self.document else ()

    def announce(self, device: DeviceIdentity) -> None:
        """Say once which file and which device's entries this process runs."""
        if self._announced or self.document is None:
            return
        self._announced = True
        label = self.label(device)
        if label is None:
            logger.info("%s: no entries for this GPU, %s", self.path, _silicon(device))
        else:
            logger.info("%s: using the entries of %s", self.path, label)

    def _read(self) -> locktext.Document | None:
        try:
            return locktext.outline(self.path.read_text(encoding="utf-8"), str(self.path))
        except (FileNotFoundError, NotADirectoryError):  # nothing swept yet; inside a zip
            return None
        except (OSError, UnicodeDecodeError) as error:
            self._damaged(LockError(f"cannot be read: {error}", where=str(self.path)))
        except LockError as error:
            self._damaged(error)
        return None

    def _section(self, kernel: str) -> dict[str, dict[str, Entry]]:
        section: dict[str, dict[str, Entry]] = {}
        try:
            for at, entry in self.document.entries(kernel) if self.document else ():
                section.setdefault(at.device, {})[at.key] = entry
        except LockError as error:
            self._damaged(error)
            return {}
        return section

    def _damaged(self, error: LockError) -> None:
        if self.error is None:
            self.error = error
            logger.warning("the lockfile is damaged, so kernels run their defaults: %s", error)


_files: dict[Path, Lockfile] = {}
_reading = threading.Lock()


def lockfile(path: Path) -> Lockfile:
    """The lockfile at *path*, read at most once a process."""
    with _reading:
        if path not in _files:
            _files[path] = Lockfile(path)
        return _files[path]


def find(file: Lockfile, device: DeviceIdentity, asked: Asked, refusal: Refusal) -> Found:
    """The config locked for a call, or why there is none."""
    section = file.section(asked.kernel)
    if file.error is not None:
        return Found(kind="default", why="the lockfile is damaged")
    if not section:
        return Found(kind="default", why=_nothing(file))
    label = file.label(device)
    if label not in section:
        what = f"this GPU is {_silicon(device)}"
        return Found(kind="default", why=f"{what}; locked are {', '.join(sorted(section))}")
    keys = section[label]
    if asked.text in keys:
        return _served("exact", keys[asked.text].config, refusal)
    return _near(keys, asked, file.near(asked.kernel), refusal)


def _served(kind: str, config: Config, refusal: Refusal) -> Found:
    why = refusal(config)
    return Found(kind="default", why=why) if why else Found(kind=kind, config=config)


def _near(
    keys: Mapping[str, Entry], asked: Asked, constraints: tuple[str, ...], refusal: Refusal
) -> Found:
    if asked.near is None:
        return Found(kind="default", why=_has(keys))
    wanted = dict(asked.key)[asked.near]
    locked = _locked_along(keys, asked)
    value = int(wanted) if wanted.isascii() and wanted.isdigit() else 0
    if not locked or not value or not min(locked) <= 2 * value <= 4 * max(locked):
        return Found(kind="default", why=_has(keys))
    nearest = min(locked, key=lambda at: (abs(math.log2(at / value)), at))
    config = keys[locked[nearest]].config
    broken = _broken(constraints, {**asked.values, **config.as_dict()})
    if broken:
        what = f"{asked.near}={nearest} is nearest, but its config breaks {broken}"
        return Found(kind="default", why=what)
    return _served("near", config, refusal)


def _locked_along(keys: Mapping[str, Entry], asked: Asked) -> dict[int, str]:
    """The locked values of the `near` argument where all other parts are equal, and their keys."""
    pattern = " ".join(
        f"{re.escape(name)}=" + (r"([1-9][0-9]{0,18})" if name == asked.near else re.escape(value))
        for name, value in asked.key
    )
    found = (re.fullmatch(pattern, key) for key in keys)
    return {int(match[1]): match[0] for match in found if match}


def _broken(constraints: tuple[str, ...], names: Mapping[str, object]) -> str:
    for constraint in constraints:
        try:
            if not predicate.holds(constraint, names):
                return f"`{constraint}`"
        except predicate.CannotTellError as error:
            return f"`{constraint}` ({error})"
    return ""


def _nothing(file: Lockfile) -> str:
    if file.document is None:
        return f"there is no {file.path}"
    return f"{file.path} has no entry of it"


def _has(keys: Mapping[str, Entry]) -> str:
    some = list(keys)[:3]
    more = f" and {len(keys) - len(some)} more" if len(keys) > len(some) else ""
    return f"locked are {'; '.join(some)}{more}"


def _silicon(device: DeviceIdentity) -> str:
    return (
        f"{device.name} ({device.backend}:{device.arch}, {device.sms} SMs, "
        f"{device.shared_bytes} bytes of shared memory, {device.bus_bits} bits at "
        f"{device.memory_mhz} MHz)"
    )

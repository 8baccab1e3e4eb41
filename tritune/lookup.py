"""lookup: lockfile + device + key -> Found.

Exact, else near where the kernel's author allows it and a sweep has verified it, else nothing:
the kernel then runs its default. Nearest is not the default rule, because it serves wrong
results: a softmax locked with BLOCK=1024 at n=1024 would leave a third of n=1536 unwritten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tritune import devicelabels, lockhints, lockscan, locktext, nearby, predicate
from tritune.errors import LockError, NoLockfileError
from tritune.evidenced import Evidenced
from tritune.keys import joined
from tritune.model import Config, DeviceIdentity, Value

logger = logging.getLogger("tritune")

Keys = Mapping[str, Mapping[str, Value]]
"""Key -> config of one kernel on one device."""
DEFAULT = "it runs its default"
UNTOLD = "its evidence is damaged, so nothing says which pre_hook it was locked with"
Refusal = Callable[[Config, str], str]
"""Why a kernel cannot run a locked config, with the hook of its entry; empty when it can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One call, as far as a look-up cares."""

    kernel: str
    key: tuple[tuple[str, str], ...]
    """The parts of the key: name and text."""
    near: str | None
    values: Mapping[str, object]
    """What a constraint may name beside the config and the device."""
    otherwise: str = DEFAULT
    """What becomes of it where nothing is locked."""

    @property
    def text(self) -> str:
        return joined(self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """`kind` is exact, near or default; `config` is None for the default."""

    kind: str
    config: Config | None = None
    why: str = ""
    """Why it is the default."""


class Lockfile:
    """One lockfile as this process sees it: read once, damaged or not.

    Of evidence only the reach is looked at, by a look-up that `near` decides, and the hook, of a
    kernel that has one: no other launch depends on it, and `tritune check` reads it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: LockError | None = None
        """Of all of it: none of it is served."""
        self._broken: dict[str, LockError] = {}
        self._scan: lockscan.Scan | None = None
        """Where the file is laid out as we write it: all but its head is still to be read."""
        self.document = self._read()
        self._sections: dict[str, lockscan.Configs] = {}
        self._evidence: dict[str, Evidenced] = {}
        self._announced = False

    def label(self, device: DeviceIdentity) -> str | None:
        """What the file calls this silicon, whatever its driver calls it."""
        known = self.document.devices if self.document else ()
        found = devicelabels.find(known, device)
        return found.name if found else None

    def lent(self, label: str | None) -> tuple[str, tuple[str, ...]]:
        """Whose entries the device *label* may use besides, and where; empty where nobody's."""
        known = self.document.devices if self.document else ()
        return next(((one.use, one.where) for one in known if one.name == label), ("", ()))

    @property
    def kernels(self) -> tuple[str, ...]:
        """Those that it has entries of."""
        held = self._scan or self.document
        return tuple(held.kernels) if held else ()

    def section(self, kernel: str) -> lockscan.Configs:
        """Device label -> key -> config of one kernel; read when the kernel is imported."""
        if kernel not in self._sections:
            self._sections[kernel] = self._section(kernel)
        return self._sections[kernel]

    def near(self, kernel: str) -> tuple[str, ...]:
        return dict(self.document.near).get(kernel, ()) if self.document else ()

    def evidence(self, kernel: str) -> Evidenced:
        """What the entries of its section say beside their configs."""
        if kernel not in self._evidence:
            scan = self._scan  # first: another thread may read the whole meanwhile
            self._evidence[kernel] = Evidenced(scan, self.document, kernel)
        return self._evidence[kernel]

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
            return self._outline(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):  # nothing swept yet; inside a zip
            return None
        except OSError as error:
            self._damaged(LockError(f"cannot be read: {error}", where=str(self.path)))
        except LockError as error:
            self._damaged(error)
        return None

    def _outline(self, data: bytes) -> locktext.Document:
        scan = lockscan.scan(data)
        if scan is not None:
            with suppress(LockError):  # which the whole text tells better
                document = locktext.outline(scan.head, str(self.path))
                self._scan = scan
                return document
        return self._whole(data)

    def _whole(self, data: bytes) -> locktext.Document:
        return locktext.outline(lockhints.text_of(data, str(self.path)), str(self.path))

    def _section(self, kernel: str) -> lockscan.Configs:
        scan = self._scan  # another thread may read the whole meanwhile
        found = scan.configs(kernel) if scan else None
        try:
            return self._in_full(kernel) if found is None else found
        except LockError as error:
            # Of this kernel alone: what the others run must not hang on who was imported before.
            self._broken[kernel] = error
            self._say_damaged(error, f"`{kernel}` runs")
            return {}

    def _in_full(self, kernel: str) -> lockscan.Configs:
        if (scan := self._scan) is not None:
            self.document, self._scan = self._whole(scan.data), None
        section: lockscan.Configs = {}
        for at, config in self.document.configs(kernel) if self.document else ():
            section.setdefault(at.device, {})[at.key] = config
        return section

    def _damaged(self, error: LockError) -> None:
        self.error = error
        self._say_damaged(error, "kernels run")

    def _say_damaged(self, error: LockError, so: str) -> None:
        # Its default, or, where nobody decorated it, what its own autotuner finds.
        is_other = isinstance(error, NoLockfileError)
        what = "what is read as a lockfile is none" if is_other else "the lockfile is damaged"
        logger.warning("%s, so %s as if nothing were locked: %s", what, so, error)

    def damage(self, kernel: str) -> LockError | None:
        """Why nothing of it is served to a kernel; None where it is as it should be."""
        return self.error or self._broken.get(kernel)


_files: dict[Path, Lockfile] = {}
_reading = threading.Lock()


def lockfile(path: Path) -> Lockfile:
    """The lockfile at *path*, read at most once a process, or an install."""
    with _reading:
        if path not in _files:
            _files[path] = Lockfile(path)
        return _files[path]


def reread(path: Path) -> Lockfile:
    """The lockfile at *path* as it is now; who holds what was read before keeps that."""
    with _reading:
        _files.pop(path, None)
    return lockfile(path)


def find(file: Lockfile, device: DeviceIdentity, asked: Asked, refusal: Refusal) -> Found:
    """The config locked for a call, or why there is none."""
    facts = {name: getattr(device, name) for name in predicate.FACTS}
    asked = replace(asked, values={**facts, **asked.values})
    section = file.section(asked.kernel)
    if file.damage(asked.kernel) is not None:
        return Found(kind="default", why="the lockfile is damaged")
    if not section:
        return Found(kind="default", why=_nothing(file))
    label = file.label(device)
    use, where = file.lent(label)
    found = _of_device(file, label, asked, refusal)
    if found is not None and (found.config is not None or not use):
        return found
    if use and (broken := _broken(where, asked.values)):
        found = Found(kind="default", why=f"{label} uses the entries of {use} only where {broken}")
    elif use:
        lent = _of_device(file, use, asked, refusal)
        found = lent if lent is not None and lent.config is not None else found
    if found is not None:
        return found
    what = f"this GPU is {_silicon(device)}"
    return Found(kind="default", why=f"{what}; locked are {', '.join(sorted(section))}")


def _of_device(file: Lockfile, label: str | None, asked: Asked, refusal: Refusal) -> Found | None:
    """What one device of the file has for a call; None where it has nothing of this kernel."""
    section = file.section(asked.kernel)
    if label is None or label not in section:
        return None
    keys = section[label]
    if asked.text in keys:
        hook = file.evidence(asked.kernel).hook(label, asked.text)
        return _served("exact", keys[asked.text], hook, refusal)
    return _near(file, label, asked, refusal)


def _served(kind: str, values: Mapping[str, Value], hook: str | None, refusal: Refusal) -> Found:
    config = Config.of(values)
    why = UNTOLD if hook is None else refusal(config, hook)
    return Found(kind="default", why=why) if why else Found(kind=kind, config=config)


def _near(file: Lockfile, label: str, asked: Asked, refusal: Refusal) -> Found:
    keys = file.section(asked.kernel)[label]
    if asked.near is None:
        return Found(kind="default", why=_has(keys))
    wanted = dict(asked.key)[asked.near]
    locked = nearby.along(keys, asked.key, asked.near)
    value = int(wanted) if wanted.isascii() and wanted.isdigit() else 0
    if not locked or not value or not min(locked) <= 2 * value <= 4 * max(locked):
        return Found(kind="default", why=_has(keys))
    at = nearby.nearest(locked, value)
    config, evidence = keys[locked[at]], file.evidence(asked.kernel)
    reach = evidence.reach(label, locked[at])
    if reach and not nearby.within(reach, asked.near, value):
        what = f"{asked.near}={at} would serve it, but its config is verified for {reach} alone"
        return Found(kind="default", why=what)
    broken = _broken(file.near(asked.kernel), {**asked.values, **config})
    if broken:
        what = f"{asked.near}={at} would serve it, but its config breaks {broken}"
        return Found(kind="default", why=what)
    return _served("near", config, evidence.hook(label, locked[at]), refusal)


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


def _has(keys: Keys) -> str:
    some = list(keys)[:3]
    more = f" and {len(keys) - len(some)} more" if len(keys) > len(some) else ""
    return f"locked are {'; '.join(some)}{more}"


def _silicon(device: DeviceIdentity) -> str:
    return (
        f"{device.name} ({device.backend}:{device.arch}, {device.sms} SMs, "
        f"{device.shared_bytes} bytes of shared memory, {device.bus_bits} bits at "
        f"{device.memory_mhz} MHz)"
    )

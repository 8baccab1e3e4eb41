"""locktext: lockfile text -> Lock, the one reader of the format.

JSON, because the standard library reads it in production: a kernel's import reaches this
module. Strict, because a field that is passed over in silence is a typing mistake that runs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritune import jsonplaces, predicate
from tritune.errors import LockError
from tritune.keys import split
from tritune.lockfields import (
    DEVICE,
    ENTRY,
    ENTRY_KINDS,
    EVIDENCE,
    IMPORTED,
    NESTED,
    NUMBERS,
    UNKNOWN,
    UNSAID,
    Field,
)
from tritune.lockhints import NAME_ONE, RESTORE, damaged, refuse_other
from tritune.model import Config, DeviceIdentity, Entry, Evidence, Lock, LockedKey

VERSION = 1

_MARKER = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( .*)?$", re.MULTILINE)
CONSTRAINT = f"write it as `M <= 64`, of parts of the keys or of {', '.join(predicate.FACTS)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A lockfile whose outline is right; its entries are looked at kernel by kernel."""

    path: str
    text: str
    devices: tuple[DeviceIdentity, ...]
    near: tuple[tuple[str, tuple[str, ...]], ...]
    kernels: Mapping[str, Any]

    def entries(self, kernel: str) -> Iterator[tuple[LockedKey, Entry]]:
        """The entries of one kernel, as they stand; `LockError` for the first that is damaged."""
        reader = _Reader(self.path, self.text)
        for at, path, value in self._values(reader, kernel):
            yield at, reader.entry(value, path)

    def configs(self, kernel: str) -> Iterator[tuple[LockedKey, Mapping[str, Any]]]:
        """The same, but what their evidence says is not looked at."""
        reader = _Reader(self.path, self.text)
        for at, path, value in self._values(reader, kernel):
            yield at, reader.config(reader.parts(value, path), path)

    def _values(
        self, reader: _Reader, kernel: str
    ) -> Iterator[tuple[LockedKey, jsonplaces.Path, Any]]:
        found = reader.mapping(self.kernels.get(kernel, {}), ("kernels", kernel))
        for device, held in found.items():
            keys = reader.mapping(held, ("kernels", kernel, device))
            for key, value in keys.items():
                at = LockedKey(kernel=kernel, device=device, key=key)
                yield at, ("kernels", kernel, device, key), value


def parse(text: str, path: str) -> Lock:
    """Every entry of a lockfile, or a LockError that says where it is damaged."""
    document = outline(text, path)
    entries = [item for kernel in document.kernels for item in document.entries(kernel)]
    entries.sort(key=lambda item: (item[0].kernel, item[0].device, natural(item[0].key)))
    for device in document.devices:
        lent = [at.key for at, _ in entries if at.device == device.use]
        if lent:  # else nothing is known of what is lent
            names = {*predicate.FACTS, *(n for key in lent for n in split(key))}
            _Reader(path, text).lends(device.where, ("devices", device.name, "where"), names)
    return Lock(devices=document.devices, entries=tuple(entries), near=document.near)


def outline(text: str, path: str) -> Document:
    """The devices of a lockfile, and its kernels unread."""
    whole = _load(text, path)
    reader = _Reader(path, text)
    top = reader.mapping(whole, ())
    reader.version(top)
    reader.only(top, {"tritune", "devices", "near", "kernels"}, ())
    devices = reader.mapping(top.get("devices", {}), ("devices",))
    near = reader.mapping(top.get("near", {}), ("near",))
    kernels = reader.mapping(top.get("kernels", {}), ("kernels",))
    return Document(
        path=path,
        text=text,
        devices=tuple(reader.device(name, devices) for name in sorted(devices)),
        near=tuple((name, reader.texts(near[name], ("near", name))) for name in sorted(near)),
        kernels=kernels,
    )


def natural(key: str) -> tuple[tuple[int, int, str], ...]:
    """Order in which M=64 comes before M=1024."""
    parts = re.split(r"([0-9]+)", key)
    # Every second part is a number; the text itself settles 064 against 64.
    ranks = tuple(_number(p) if i % 2 else (0, 0, p) for i, p in enumerate(parts))
    return (*ranks, (0, 0, key))


def _number(digits: str) -> tuple[int, int, str]:
    plain = digits.lstrip("0")  # Python makes no number of more than 4,300 of them
    return 1, len(plain), f"{plain} {digits}"


def _load(text: str, path: str) -> Any:
    if text.startswith("\ufeff"):
        raise LockError(
            "starts with a byte-order mark", where=f"{path}:1", hint="save it as plain UTF-8"
        )
    if not text.strip():
        raise LockError("is empty", where=path, hint=RESTORE)
    refuse_other(text, path)
    if marker := _MARKER.search(text):
        line = text.count("\n", 0, marker.start()) + 1
        raise LockError(
            "has the markers of an unfinished merge",
            where=f"{path}:{line}",
            hint="`tritune merge --install`, then `git checkout --merge` this file; or take one "
            "side (`git checkout --ours` or `--theirs`), and `tritune sweep --stale`",
        )
    return _decode(text, path)


def _decode(text: str, path: str) -> Any:
    twice: list[str] = []
    strange: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice.append(pairs[0][0])
        return found

    def finite(text: str) -> float:
        strange.extend([text] * math.isinf(value := float(text)))
        return value

    try:
        whole = json.loads(
            text, object_pairs_hook=unique, parse_float=finite, parse_constant=strange.append
        )
    except json.JSONDecodeError as error:
        raise _broken(error, text, path) from error
    except (RecursionError, ValueError) as error:  # nested too deep; a number of 5,000 digits
        raise damaged(f"is not a lockfile: {error}", path, text) from error
    if strange:
        line = text.count("\n", 0, text.index(strange[0])) + 1
        raise damaged(f"{strange[0]} is no finite number", f"{path}:{line}", text)
    if twice:
        raise _doubled(text, path)
    return whole


def _broken(error: json.JSONDecodeError, text: str, path: str) -> LockError:
    if not text[error.pos :].strip() or error.msg.startswith("Unterminated"):
        what = "is cut off here"
    else:
        what = f"is not JSON: {error.msg.lower()}"
    return damaged(what, f"{path}:{error.lineno}", text)


def _doubled(text: str, path: str) -> LockError:
    pair = jsonplaces.doubled(text)
    assert pair is not None, "json saw a doubled name"  # noqa: S101  # the two readers agree
    first, second = pair
    return LockError(
        f'"{second.path[-1]}" stands twice, first on line {first.line}',
        where=f"{path}:{second.line}",
        hint="a merge kept both sides: delete one of the two and sweep again",
    )


class _Reader:
    """Type checks that know where they are."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        # Whether evidence is right follows from its names and types, and most have the same:
        # of 10,000 entries that saves half of what reading them costs.
        self.usual: dict[tuple[object, ...], tuple[str, ...]] = {}

    def wrong(self, what: str, at: jsonplaces.Path, hint: str = RESTORE) -> LockError:
        return LockError(what, where=jsonplaces.where(self.path, self.text, at), hint=hint)

    def expected(self, what: str, value: object, at: jsonplaces.Path) -> LockError:
        return self.wrong(f"expected {what}, got {json.dumps(value)[:40]}", at)

    def mapping(self, value: Any, at: jsonplaces.Path) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self.expected("an object", value, at)
        return value

    def only(self, value: Mapping[str, Any], known: set[str], at: jsonplaces.Path) -> None:
        for name in value:
            if name not in known:
                raise self.wrong("is not part of a lockfile", (*at, name))

    def version(self, top: Mapping[str, Any]) -> None:
        if "tritune" not in top:
            raise self.wrong('has no "tritune", the version of its format', (), NAME_ONE)
        version = top["tritune"]
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise self.expected("the version of the format", version, ("tritune",))
        if version > VERSION:
            raise self.wrong(
                f"format {version} is newer than this tritune, which reads {VERSION}",
                ("tritune",),
                "upgrade tritune",
            )

    def texts(self, value: Any, at: jsonplaces.Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.expected("a list of texts", value, at)
        return tuple(value)

    def device(self, name: str, devices: Mapping[str, Any]) -> DeviceIdentity:
        at = ("devices", name)
        fields = self.fields(devices[name], at, DEVICE)
        names = self.texts(fields.pop("names", []), (*at, "names"))
        where = self.texts(fields.pop("where", []), (*at, "where"))
        self.lends(where, (*at, "where"))
        if (use := fields.get("use")) and (use == name or use not in devices):
            raise self.expected("another device of this file", use, (*at, "use"))
        return DeviceIdentity(name=name, names=names, where=where, **fields)

    def lends(self, where: Sequence[str], at: jsonplaces.Path, known: Collection[str] = ()) -> None:
        """Refuse what never holds: what is no constraint, or names what is not *known*, if said."""
        for number, text in enumerate(where):
            try:
                names = predicate.names(text)
            except predicate.CannotTellError as error:
                raise self.wrong(f"is no constraint: {error}", (*at, number), CONSTRAINT) from error
            if known and (strange := sorted(names.difference(known))):
                what = f"names `{strange[0]}`, which no key of what it uses has"
                raise self.wrong(what, (*at, number), CONSTRAINT)

    def entry(self, value: Any, at: jsonplaces.Path) -> Entry:
        found = self.parts(value, at)
        config = Config.of(self.config(found, at))
        return Entry(config=config, evidence=self.evidence(found["evidence"], (*at, "evidence")))

    def parts(self, value: Any, at: jsonplaces.Path) -> Mapping[str, Any]:
        kinds = {name: type(inner) for name, inner in self.mapping(value, at).items()}
        return value if kinds == ENTRY_KINDS else self.fields(value, at, ENTRY)

    def config(self, found: Mapping[str, Any], at: jsonplaces.Path) -> Mapping[str, Any]:
        config: Mapping[str, Any] = found["config"]
        if not NESTED.isdisjoint(map(type, config.values())):
            name, item = next(one for one in config.items() if type(one[1]) in NESTED)
            raise self.expected("a value", item, (*at, "config", name))
        return config

    def evidence(self, value: Mapping[str, Any], at: jsonplaces.Path) -> Evidence:
        form = (*value, *map(type, value.values()))
        whole = self.usual.get(form)
        if whole is None:
            imported = value.get("unmeasured") is True
            self.fields(value, at, IMPORTED if imported else EVIDENCE)
            value = {**UNKNOWN, **value} if imported else value
            whole = tuple(name for name in NUMBERS if type(value.get(name)) is int)
            if not imported:
                self.usual[form] = whole
        floats = {name: self.number(value, name, at) for name in whole} if whole else {}
        return Evidence(**{**UNSAID, **value, **floats})

    def number(self, value: Mapping[str, Any], name: str, at: jsonplaces.Path) -> float:
        try:
            return float(value[name])
        except OverflowError:
            raise self.expected("a number", value[name], (*at, name)) from None

    def fields(self, value: Any, at: jsonplaces.Path, known: Mapping[str, Field]) -> dict[str, Any]:
        found = dict(self.mapping(value, at))
        self.only(found, set(known), at)
        for name, field in known.items():
            if name not in found:
                if field.required:
                    raise self.wrong(f'has no "{name}"', at)
            elif not field.fits(found[name]):
                raise self.expected(field.what, found[name], (*at, name))
        return found

"""lockscan: a lockfile's bytes, laid out as we write them -> Scan, whose entries are unread.

What the import of a kernel reads. Of 10,000 entries the JSON alone took 45 ms and the entries
70 more, and a launch needs neither the other kernels nor any evidence. So the file's outline is
found by its indentation, and only the configs of one kernel are decoded: 3 ms, and 25 where all
are its own. Whatever is laid out in any other way (cut off, with the markers of a merge, edited
by hand) is None here: `locktext` then reads all of it, or says where it is damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Configs = dict[str, dict[str, Mapping[str, Any]]]
"""Device label -> key -> config."""
Blocks = Mapping[str, tuple[int, int]]
"""By name, where an object is: from the end of its first line to the end of its last but one."""

_KERNELS, _END = b'\n "kernels": {', b"\n }\n}\n"
_OUTER = {depth: re.compile(rb"\n {0,%d}[^ ]" % depth) for depth in (2, 3)}
"""The lines that are indented by no more; whatever else stands among them shows."""
_ENTRY = re.compile(
    r'\n    "(.*)": \{\n     "config": (\{.*\}),\n     "evidence": \{.*\}\n    \}(,?)(?=\n|\Z)'
)
_NESTED = frozenset({dict, list})
_LINES = 4
"""Of an entry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """A lockfile of which only the outline is known."""

    data: bytes
    head: str
    """Its text with no kernels in it."""
    kernels: Blocks

    def configs(self, kernel: str) -> Configs | None:
        """What is locked for *kernel*; None where that is not laid out as we write it."""
        if kernel not in self.kernels:
            return {}
        found: Configs = {}
        for device, (start, end) in (_blocks(self.data, 3, *self.kernels[kernel]) or {}).items():
            entries = _entries(self.data[start:end].decode("ascii"))
            if entries is None:
                return None
            found[device] = entries
        return found or None

    def mentions(self, kernel: str, word: bytes) -> bool:
        """Whether *word* stands anywhere in the entries of *kernel*."""
        return self.data.find(word, *self.kernels[kernel]) >= 0

    def evidence(self, kernel: str) -> Mapping[tuple[str, str], bytes]:
        """Device label and key -> the evidence, unread, of what `configs` gave."""
        found: dict[tuple[str, str], bytes] = {}
        for device, (start, end) in (_blocks(self.data, 3, *self.kernels[kernel]) or {}).items():
            lines = self.data[start:end].split(b"\n")
            keys = json.loads(b"[" + b",".join(line[4:-3] for line in lines[1::_LINES]) + b"]")
            for key, line in zip(keys, lines[3::_LINES], strict=True):
                found[device, key] = line.removeprefix(b'     "evidence": ')
        return found


def scan(data: bytes) -> Scan | None:
    """The outline of a lockfile, without looking at its entries."""
    start, end = data.find(_KERNELS), len(data) - len(_END)
    if start < 0 or not data.isascii() or not data.endswith(_END):
        return None
    kernels = _blocks(data, 2, start + len(_KERNELS), end)
    if kernels is None:
        return None
    head = (data[:start] + _KERNELS + b"}\n}\n").decode("ascii")
    return Scan(data=data, head=head, kernels=kernels)


def _blocks(data: bytes, depth: int, start: int, end: int) -> Blocks | None:
    """The named objects that fill `data[start:end]`, one after the other."""
    lines = [found.start() for found in _OUTER[depth].finditer(data, start, end)]
    close = b"\n" + b" " * depth + b"}"
    found: dict[str, tuple[int, int]] = {}
    for at, last in zip(lines[::2], lines[1::2], strict=False):
        first = data.find(b"\n", at + 1)
        name = _name(data[at + 1 : first], depth)
        after = end if last == lines[-1] else lines[2 * len(found) + 2]
        comma = b"" if after == end else b","
        if name is None or data[last:after] != close + comma:
            return None
        found[name] = (first, last)
    return found if lines and len(lines) == 2 * len(found) and lines[0] == start else None


def _name(line: bytes, depth: int) -> str | None:
    """The name that a line opens an object of."""
    if not line.startswith(b" " * depth + b'"') or not line.endswith(b": {"):
        return None
    return _text(line[depth:-3].decode("ascii"))


def _text(quoted: str) -> str | None:
    try:
        found = json.loads(quoted)
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def _entries(block: str) -> dict[str, Mapping[str, Any]] | None:
    """Key -> config of the entries that fill *block*."""
    rows = _ENTRY.findall(block)
    if not rows or block.count("\n") != _LINES * len(rows):
        return None
    keys, texts, commas = zip(*rows, strict=True)
    if commas.count(",") != len(rows) - 1 or commas[-1]:
        return None
    try:
        configs = {text: _config(text) for text in set(texts)}
        names = json.loads('["' + '","'.join(keys) + '"]')
    except ValueError:
        return None
    found = {name: configs[text] for name, text in zip(names, texts, strict=False)}
    return found if len(found) == len(rows) == len(names) else None


def _config(text: str) -> Mapping[str, Any]:
    config: Mapping[str, Any] = json.loads(
        text, object_pairs_hook=_unique, parse_constant=_refuse_constant
    )
    if not _NESTED.isdisjoint(map(type, config.values())):
        raise ValueError("a value of a config is plain")
    return config


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON has")

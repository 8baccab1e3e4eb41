"""misslog: what TRITUNE_LOG wrote at run time -> the keys that were missed, and how often.

A server that is killed, or a disk that fills, leaves a line that is cut off: it is left out, and
told. A process writes a key once, so the count is one of processes. The keys of a trace are read
as well: those were launched, missed or not, and each line says how often.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritune.errors import SpecError
from tritune.model import DTYPES, Value

LONG_DTYPES = {short: name for name, short in DTYPES.items()}
"""Element types as a key spells them -> as a sweep file does."""

UNALIGNED = "a tensor of it is unaligned, and a problem cannot ask for that"
"""Why no problem is made of a key."""


def dtypes(parts: Mapping[str, str]) -> list[Value]:
    """The element types that a key names, as a sweep file spells them."""
    return list(dict.fromkeys(LONG_DTYPES[text] for text in parts.values() if text in LONG_DTYPES))


@dataclass(frozen=True, kw_only=True, slots=True)
class MissLog:
    """The misses of a log, in the order of their first line."""

    counts: tuple[tuple[tuple[str, str], int], ...]
    """(kernel, key) -> lines; of a trace, launches."""
    cut: tuple[int, ...] = ()
    """The numbers of lines that are not whole."""
    is_trace: bool = False

    def of(self, kernel: str) -> tuple[tuple[str, int], ...]:
        """The keys of one kernel, and how often each was missed."""
        return tuple((key, number) for (name, key), number in self.counts if name == kernel)

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kernel for (kernel, _), _ in self.counts))


def read(path: Path) -> MissLog:
    """The log at *path*.

    Raises:
        SpecError: it cannot be read, or no line of it is a miss.
    """
    try:
        lines = path.read_bytes().decode(errors="replace").splitlines()
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=str(path)) from None
    misses = {number: _miss(line) for number, line in enumerate(lines, 1) if line.strip()}
    cut = tuple(number for number, miss in misses.items() if miss is None)
    if misses and len(cut) == len(misses):
        raise SpecError(
            "is no log of misses",
            where=f"{path}:{cut[0]}",
            hint="TRITUNE_LOG=FILE, set where the kernels run, writes one",
        )
    counts: Counter[tuple[str, str]] = Counter()
    launches = [launched for _, launched in filter(None, misses.values())]
    for at, launched in filter(None, misses.values()):
        counts[at] += launched or 1
    return MissLog(counts=tuple(counts.items()), cut=cut, is_trace=any(launches))


def _miss(line: str) -> tuple[tuple[str, str], int] | None:
    """The kernel and the key of a line, and its launches; 0 where it is no trace's."""
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"kernel": str(kernel), "key": str(key), "count": int(count)}:
            return (kernel, key), count
        case {"kernel": str(kernel), "key": str(key)}:
            return (kernel, key), 0
    return None

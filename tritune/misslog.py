"""misslog: what TRITUNE_LOG wrote at run time -> the keys that were missed, and how often.

A server that is killed, or a disk that fills, leaves a line that is cut off: it is left out, and
told. A process writes a key once, so the count is one of processes.
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


def dtypes(parts: Mapping[str, str]) -> list[Value]:
    """The element types that a key names, as a sweep file spells them."""
    return list(dict.fromkeys(LONG_DTYPES[text] for text in parts.values() if text in LONG_DTYPES))


@dataclass(frozen=True, kw_only=True, slots=True)
class MissLog:
    """The misses of a log, in the order of their first line."""

    counts: tuple[tuple[tuple[str, str], int], ...]
    """(kernel, key) -> lines."""
    cut: tuple[int, ...] = ()
    """The numbers of lines that are not whole."""

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
    counts = Counter(miss for miss in misses.values() if miss is not None)
    return MissLog(counts=tuple(counts.items()), cut=cut)


def _miss(line: str) -> tuple[str, str] | None:
    try:
        found: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"kernel": str(kernel), "key": str(key)}:
            return kernel, key
    return None

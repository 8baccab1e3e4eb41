"""evidenced: a lockfile that was read -> what look-ups ask of the evidence of its entries.

The reach of an entry that `near` decides on, and the `pre_hook` that one was measured with.
Whether a kernel has any hook is asked of its bytes, once; only then is its evidence read, an
entry at a time. So a damaged line keeps no kernel without hooks from its entry, and no entry
that may have had a hook runs without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tritune.lockscan import Scan
from tritune.locktext import Document

UNREADABLE = "what is damaged in its evidence"
"""A reach that no size is within."""
_HOOK = b"hook"
"""What the entries of a kernel without hooks do not have, however their lines are written."""


class Evidenced:
    """The evidence of the entries of one kernel, which a look-up has found."""

    def __init__(self, scan: Scan | None, document: Document | None, kernel: str) -> None:
        self._scan, self._kernel = scan, kernel
        self._held = document.kernels if document and scan is None else {}

    def reach(self, label: str, key: str) -> str:
        """The sizes that it was verified to serve; empty where its evidence names none."""
        evidence = self._of(label, key)
        return UNREADABLE if evidence is None else str(evidence.get("reach", ""))

    def hook(self, label: str, key: str) -> str | None:
        """The hook that it was measured with, empty for none; None where that is damaged."""
        if not self.has_hooks:
            return ""
        evidence = self._of(label, key)
        return None if evidence is None else str(evidence.get("hook", ""))

    @cached_property
    def has_hooks(self) -> bool:
        return self._scan is None or self._scan.mentions(self._kernel, _HOOK)

    def _of(self, label: str, key: str) -> Mapping[str, Any] | None:
        """None where it is damaged, which is noticed before where all of the file was read."""
        if self._scan is None:
            found: Mapping[str, Any] = self._held[self._kernel][label][key]["evidence"]
            return found
        return _loaded(self._lines.get((label, key), b""))

    @cached_property
    def _lines(self) -> Mapping[tuple[str, str], bytes]:
        return self._scan.evidence(self._kernel) if self._scan else {}


def _loaded(text: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, Mapping) else None

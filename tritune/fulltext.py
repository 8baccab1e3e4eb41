"""fulltext: all that a compiler said -> a file that the one line about it names.

The name is a digest of the text without what changes from run to run (paths, addresses, times),
so a fault that 200 configs share leaves one file, and a second run the same one.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

CHANGES = re.compile(r"(/[\w.+-]+)+/?|0x[0-9a-fA-F]+|\b\d+\.\d+\b|\bpid[ =:]*\d+")
LONGEST = 4_000_000


def keep(folder: Path, text: str) -> str:
    """Write *text* into *folder*; the path, empty where there is nothing to say or no room."""
    if not text.strip():
        return ""
    digest = hashlib.sha256(CHANGES.sub("", text).encode(errors="replace")).hexdigest()[:12]
    path = folder / f"rejected-{digest}.txt"
    with suppress(OSError):  # a full disk must not cost the outcome
        if not path.is_file():
            path.write_text(text[:LONGEST], encoding="utf-8", errors="replace")
        return str(path)
    return ""

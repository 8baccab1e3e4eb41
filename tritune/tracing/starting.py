"""tracing.starting: a folder -> launches of this process and its forks are written there.

Costs neither triton nor torch: the import of Triton is waited for.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from functools import partial
from pathlib import Path

from tritune import installing


def start(folder: str) -> None:
    """Trace every launch from the end of Triton's import on."""
    installing.wait("trace", partial(_begin, folder))


def _begin(folder: str) -> None:
    with contextlib.suppress(OSError):  # told at the first launch
        Path(folder, "imported").touch()
    try:
        from tritune.tracing import wrapping

        wrapping.begin(folder, every=os.environ.get("TRITUNE_TRACE_ALL") == "1")
    except Exception as error:  # noqa: BLE001  # a Triton that is too old is the program's own
        sys.stderr.write(f"tritune trace: process {os.getpid()} is not traced: {error!r}\n")
        return
    atexit.register(wrapping.flush)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=wrapping.forget)

"""pipeline.twice: a sweep with no GPU -> a line where another one of the same file is running.

Nothing goes wrong by it, so neither waits; but both compile the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tritune.journal_file import holder
from tritune.pipeline.job import Job


@contextmanager
def noticed(job: Job) -> Iterator[None]:
    """Hold the file's lock, or say who does; one that measures on a GPU has the journal's."""
    if job.setting.index is not None or job.options.dry_run:
        yield
        return
    descriptor = _opened(job.journal.with_name(f"{job.journal.name}.idle.lock"))
    if descriptor is None:
        yield
        return
    try:
        if (pid := holder(descriptor)) is not None:
            job.observer.say(
                f"another sweep of this file is running (pid {pid or 'unknown'}): "
                "both compile the same"
            )
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int | None:
    """None where it is another user's, say: no reason to stop a sweep that would not wait."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None

"""pipeline.twice: a sweep with no GPU -> a line where another one of the same file is running.

Nothing goes wrong by it, so neither waits; but both compile the same.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tritune.pipeline.job import Job


@contextmanager
def noticed(job: Job) -> Iterator[None]:
    """Hold the file's lock, or say who does; one that measures on a GPU has the journal's."""
    if job.setting.index is not None or job.options.dry_run:
        yield
        return
    path = job.journal.with_name(f"{job.journal.name}.idle.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if holder := _holder(descriptor):
            job.observer.say(
                f"another sweep of this file is running ({holder}): both compile the same"
            )
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    """What holds the lock; empty where it is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"pid {os.pread(descriptor, 20, 0).decode(errors='replace').strip() or 'unknown'}"
    except OSError:  # a file system without locks: nobody can tell
        return ""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return ""

"""cores: this machine -> how many compiles it carries at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_GIB = 1 << 30
_JOB_BYTES = 3 * _GIB // 2


def default_jobs() -> int:
    """How many compiles this machine carries at once: by its cores and its free memory."""
    return max(1, min(len(os.sched_getaffinity(0)), _free_bytes() // _JOB_BYTES))


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    [available] = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return min(available * 1024, _container_bytes())


def _container_bytes() -> int:
    """What a container may take: /proc/meminfo speaks of the whole host."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no such control group, or "max"
        return sys.maxsize

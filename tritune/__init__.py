"""tritune: tune Triton kernels once, lock the winners, and let production run them.

What a kernel module needs, and nothing more: importing it costs neither triton nor torch
nor anything of the command line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritune.installing import install, uninstall
    from tritune.runtime import Problem, kernel, op, override, problem, stats

__all__ = ["Problem", "install", "kernel", "op", "override", "problem", "stats", "uninstall"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tritune' has no attribute {name!r}")
    from tritune import installing, runtime

    parts = {**vars(runtime), **vars(installing)}
    globals().update({public: parts[public] for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("TRITUNE_LOCKFILE"):
    from tritune import installing

    installing.at_import()

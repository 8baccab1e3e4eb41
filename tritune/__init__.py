"""tritune: tune Triton kernels once, lock the winners, and let production run them.

What a kernel module needs, and nothing more: importing it costs neither triton nor torch
nor anything of the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tritune.runtime import Problem, kernel, op, override, problem, stats

__all__ = ["Problem", "kernel", "op", "override", "problem", "stats"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tritune' has no attribute {name!r}")
    from tritune import runtime

    globals().update({public: getattr(runtime, public) for public in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

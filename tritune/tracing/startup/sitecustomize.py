"""sitecustomize: TRITUNE_TRACE -> this process is traced from its first import of Triton.

Python imports it at start-up because `tritune trace` put its folder on PYTHONPATH; the one that
it stands in front of is run after it. A process that never imports Triton pays for nothing.
Any Python 3 of a program may read this, 3.6 too, which is why nothing of a later one is in it.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib costs 5 ms
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))  # noqa: PTH120


class Finder:
    """Lets `import triton` go its way, and has the tracer wait for its end."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        del path, target
        if name != "triton":
            return None
        sys.meta_path.remove(cls)
        _start()
        return importlib.util.find_spec(name)


def _start() -> None:
    sys.path.insert(0, ROOT)  # the tritune that reads what is written, wherever this Python is
    try:
        from tritune.tracing import starting

        starting.start(os.environ["TRITUNE_TRACE"])
    except Exception as error:  # noqa: BLE001  # the program goes on, whatever keeps us out
        sys.stderr.write(f"tritune trace: process {os.getpid()} is not traced: {error!r}\n")
    finally:
        sys.path.remove(ROOT)


def _chain() -> None:
    """Run the `sitecustomize` that would have been found without this one."""
    others = [each for each in sys.path if os.path.abspath(each or ".") != HERE]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def _mark() -> None:
    """Tell that a process got this far, whatever becomes of it."""
    place = os.path.join(os.environ["TRITUNE_TRACE"], "started")  # noqa: PTH118
    with contextlib.suppress(OSError):  # a folder that cannot be written is told at a launch
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o666))


if os.environ.get("TRITUNE_TRACE"):
    _mark()
    sys.meta_path.insert(0, Finder)
_chain()

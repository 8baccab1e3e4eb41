"""pipeline.asking: a function and its arguments -> its answer, from a process of its own.

For what imports the user's module once and is done.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from tritune.pipeline.job import LOAD_LIMIT_S, loaded
from tritune.workers import Worker, stateless

T = TypeVar("T")


def ask(function: Callable[..., T], reference: str, *more: object) -> T:
    """*function(None, reference, ...)*.

    Raises:
        TrituneError: what it raises; or its module prints, exits, hangs or dies instead.
    """
    with TemporaryDirectory(prefix="tritune-") as folder:
        log = Path(folder) / "load.log"
        with Worker(stateless, log=log, setup_limit_s=LOAD_LIMIT_S) as worker:
            answer = worker.call(function, reference, *more, timeout_s=LOAD_LIMIT_S)
    return loaded(answer, reference)

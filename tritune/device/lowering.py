"""device.lowering: a launch -> TTGIR -> a binary and its resources, for any target, with no GPU.

Runs in a worker that never touches a GPU: a stand-in driver names the target, and Triton's
compiler does the rest under the very key that a launch on the real device will look for.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tritune import blame, intercept, launches, places
from tritune.device import fakes, resources, stages
from tritune.device.stages import StandIn, Stopped, Watch, gpu_target
from tritune.errors import TrituneError
from tritune.load import Loaded, load
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Launches,
    Lowered,
    Problem,
    Reason,
    Rejected,
    Target,
    Work,
)

__all__ = ["StandIn", "Stopped", "gpu_target"]

T = TypeVar("T")

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
TELLING = re.compile(r"error|fatal|fail|must|expect", re.IGNORECASE)


class CompilerError(Exception):
    """A compiler refused: in one line here, in full in what it is raised from."""


@dataclass
class Session:
    """What a compiling worker keeps: the loaded kernel, and the watched pipeline."""

    loaded: Loaded
    target: Target
    watch: Watch

    @property
    def ir(self) -> list[str]:
        """Digests of the TTIR of the launches that were lowered last."""
        return self.watch.irs


def open_session(kernel: str | None, problem: str | None, target: Target, cache: str) -> Session:
    """Set a worker up to compile for *target* into the folder *cache*."""
    os.environ["TRITON_CACHE_DIR"] = cache
    import triton

    triton.runtime.driver.set_active(StandIn(gpu_target(target), target))
    session = Session(
        loaded=loaded_for(kernel, problem, target), target=target, watch=stages.watch(target)
    )
    _forget(session)
    return session


def loaded_for(kernel: str | None, problem: str | None, target: Target) -> Loaded:
    """Load a kernel; what is imported with the problem of somebody else's is told of *target*."""
    if problem is None:
        return load(kernel, problem)
    with fakes.importing(target):
        return load(kernel, problem)


def _forget(session: Session) -> None:
    """Drop what this process has compiled, and for which target; the folder stays."""
    step = session.loaded.kernel.fn
    while hasattr(step.fn, "fn"):
        step = step.fn
    step.device_caches.clear()


def facts(
    session: Session, problem: Problem, configs: Sequence[Config]
) -> tuple[Work, tuple[Launches | Rejected, ...]]:
    return launches.facts(session.loaded, problem, configs, session.target)


def lower(session: Session, candidate: Candidate) -> Lowered | Rejected:
    """Take one candidate as far as TTGIR, whatever is in the cache."""
    try:
        return lower_loudly(session, candidate)
    except CompilerError as error:
        return Rejected(candidate=candidate, reason=Reason.COMPILE, detail=str(error))


def lower_loudly(session: Session, candidate: Candidate) -> Lowered:
    """The same, as a call of a pool, whose answer carries what was printed if it fails.

    Raises:
        CompilerError: it cannot be lowered.
    """
    return _told(lambda: _lower(session, candidate))


def compile_(
    session: Session,
    candidate: Candidate,
    key: str,
    ir: str = "",
    also: Sequence[Candidate] = (),
) -> Compiled:
    """Compile one candidate; its binary is in the cache where a launch finds it.

    What the cache has counts only if it was made from the TTIR *ir*, where that is given. Those
    in *also* have equal TTGIR: they get the same binary under their own keys, at no compile.

    Raises:
        CompilerError: it cannot be compiled.
    """
    return _told(lambda: _compile(session, candidate, key, ir, also))


def _captured(session: Session, candidate: Candidate) -> list[intercept.Captured]:
    made = launches.make(session.loaded, candidate.problem, "cpu")
    kernel = session.loaded.kernel
    under, config = candidate.problem.key, candidate.config
    return intercept.capture(kernel, made.run, config, launch=False, key=under)[1]


def _each(
    session: Session, candidate: Candidate, visit: Callable[[intercept.Captured], None]
) -> None:
    for values in (False, True):
        with fakes.world(session.target, values=values):
            try:
                captured = _captured(session, candidate)
            except fakes.reads_values():
                continue
            if not captured and session.loaded.is_foreign and not values:
                continue  # a custom op, which launches nothing on fake tensors
            for one in captured:
                visit(one)
            return


def _lower(session: Session, candidate: Candidate) -> Lowered:
    started = time.perf_counter()
    stops: list[Stopped] = []

    def visit(one: intercept.Captured) -> None:
        try:
            one.warmup()
        except Stopped as stop:
            stops.append(stop)

    session.watch.begin(stop=True)
    with stages.no_cache():
        _each(session, candidate, visit)
    text = "\n".join(f"{stop.text}\n{stop.below}" for stop in stops)
    return Lowered(
        candidate=candidate,
        ir=stages.joined(session.watch.irs),
        ttgir=hashlib.sha256(text.encode()).hexdigest()[:16],
        shared_bound=max((resources.shared_bound(stop.text) for stop in stops), default=0),
        seconds=time.perf_counter() - started,
        work=sum(resources.compile_work(stop.text) for stop in stops),
    )


def _compile(
    session: Session, candidate: Candidate, key: str, ir: str, also: Sequence[Candidate]
) -> Compiled:
    started = time.perf_counter()
    session.watch.begin(stop=False)
    binaries = _binaries(session, candidate)
    if ir and not session.watch.irs and ir != _ir(session, binaries):
        with stages.always():
            binaries = _binaries(session, candidate)
    seconds = time.perf_counter() - started if session.watch.irs else 0.0
    others = [binary for other in also for binary in _binaries(session, other)]
    usage = [resources.registers(binary, session.target) for binary in binaries]
    digests = [hashlib.sha256(resources.code(binary)).hexdigest() for binary in binaries]
    return Compiled(
        candidate=candidate,
        key=key,
        binary=hashlib.sha256("".join(digests).encode()).hexdigest()[:12],
        ir=ir or stages.joined(session.watch.irs),
        registers=max((found[0] for found in usage), default=0),
        stack_bytes=max((found[1] for found in usage), default=0),
        shared_bytes=max((int(binary.metadata.shared) for binary in binaries), default=0),
        tensor_memory=max((resources.tensor_memory(binary) for binary in binaries), default=0),
        threads=max((resources.threads(binary, session.target) for binary in binaries), default=0),
        seconds=seconds,
        entries=frozenset(map(_entry, (*binaries, *others))),
    )


def _entry(binary: Any) -> str:
    """The folder of a binary in the compile cache."""
    return Path(next(iter(binary.metadata_group.values()))).parent.name


def _binaries(session: Session, candidate: Candidate) -> list[Any]:
    binaries: list[Any] = []
    _forget(session)
    _each(session, candidate, lambda one: binaries.append(one.warmup()))
    return binaries


def _ir(session: Session, binaries: Sequence[Any]) -> str:
    return stages.joined([stages.ir_of(binary, session.target) for binary in binaries])


def _told(attempt: Callable[[], T]) -> T:
    """The worker's boundary: a compiler raises anything, and a reader wants one line of it."""
    try:
        return attempt()
    except TrituneError:
        raise
    except Exception as error:
        refuse_no_room(error)
        raise CompilerError(f"{brief(error)}{blame.told_in_kernel(error)}") from error


def refuse_no_room(error: Exception) -> None:
    """Raise where a disk takes no binary: that says nothing against the config.

    Raises:
        EnvironmentFaultError: naming the disk.
    """
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return
    import triton

    where = str(error.filename or triton.knobs.cache.dir)
    hint = f"free some space there, and in {tempfile.gettempdir()}; nothing finished is lost"
    raise places.unwritable(Path(where), error, hint) from error


def brief(error: BaseException) -> str:
    """One line: the error's type and the line of its text that says most."""
    cause = error.__cause__ or error
    while hasattr(cause, "node") and cause.__cause__ is not None:  # in a function that it calls
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    telling = [line for line in lines if TELLING.search(line) and "Repro command" not in line]
    said = (telling or lines or [""])[-1]
    return f"{type(cause).__name__}: {said[:200]}" if said else type(cause).__name__

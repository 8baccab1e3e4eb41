"""device.lowering: a launch -> TTGIR -> a binary and its resources, for any target, with no GPU.

Runs in a worker that never touches a GPU: a stand-in driver names the target, and Triton's
compiler does the rest under the very key that a launch on the real device will look for.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tritune import launches
from tritune.device import fakes, resources
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

T = TypeVar("T")

TELLING = re.compile(r"error|fatal|fail|must|expect", re.IGNORECASE)
ABOVE_LLVM = ("num_stages",)
"""Options whose whole effect is in the TTGIR already."""


class StandIn:
    """Answers what Triton asks a driver before it compiles."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device


class Stopped(Exception):  # noqa: N818  # not an error: where lowering was told to stop
    """Lowering reached TTGIR."""

    def __init__(self, text: str, ir: str, options: str) -> None:
        super().__init__("stopped after TTGIR")
        self.text = text
        self.ir = ir
        self.options = options


@dataclass
class Session:
    """What a compiling worker keeps: the loaded kernel, and whether to stop after TTGIR."""

    loaded: Loaded
    target: Target
    stop: bool = False
    ir: list[str] = field(default_factory=list)


def gpu_target(target: Target) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget(target.backend, target.arch, target.warp_size)


def open_session(kernel: str | None, problem: str | None, target: Target, cache: str) -> Session:
    """Set a worker up to compile for *target* into the folder *cache*."""
    os.environ["TRITON_CACHE_DIR"] = cache
    import triton
    from triton.compiler.compiler import make_backend

    triton.runtime.driver.set_active(StandIn(gpu_target(target)))
    session = Session(loaded=load(kernel, problem), target=target)
    _watch_stages(type(make_backend(gpu_target(target))), session)
    return session


def _watch_stages(backend: Any, session: Session) -> None:
    """Let a compile be stopped after TTGIR, and note its TTIR.

    Wraps `add_stages`, because the hook that Triton has for it changes the compile key.
    """
    add_stages = backend.add_stages

    def add(self: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        add_stages(self, stages, options, *rest)
        make_ttir = stages["ttir"]

        def ttir(module: Any, metadata: Any) -> Any:
            module = make_ttir(module, metadata)
            session.ir.append(ir_digest(module.str_nodebug()))
            return module

        stages["ttir"] = ttir
        if session.stop:
            stages["llir"] = lambda module, _: _stop(module, session.ir[-1], options)

    backend.add_stages = add


def _stop(module: Any, ir: str, options: Any) -> None:
    below = {name: value for name, value in vars(options).items() if name not in ABOVE_LLVM}
    raise Stopped(module.str_nodebug(), ir, repr(sorted(below.items(), key=lambda item: item[0])))


def ir_digest(text: str) -> str:
    """Eight hex digits of a TTIR, the names of its module's functions made canonical."""
    names = dict.fromkeys(re.findall(r"@([\w.$\"-]+)", text))
    for i, name in enumerate(names):
        text = text.replace(f"@{name}", f"@f{i}")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def facts(
    session: Session, problem: Problem, configs: Sequence[Config]
) -> tuple[Work, tuple[Launches | Rejected, ...]]:
    return launches.facts(session.loaded, problem, configs, session.target)


def lower(session: Session, candidate: Candidate) -> Lowered | Rejected:
    """Take one candidate as far as TTGIR."""
    session.stop = True
    return _guarded(candidate, lambda: _lower(session, candidate))


def compile_(session: Session, candidate: Candidate, key: str) -> Compiled | Rejected:
    """Compile one candidate; its binary is in the cache where a launch finds it."""
    session.stop = False
    return _guarded(candidate, lambda: _compile(session, candidate, key))


def _captured(session: Session, candidate: Candidate) -> list[launches.Captured]:
    made = launches.make(session.loaded, candidate.problem, "cpu")
    kernel = session.loaded.kernel
    return launches.capture(kernel, made.run, candidate.config, launch=False)[1]


def _each(
    session: Session, candidate: Candidate, visit: Callable[[launches.Captured], None]
) -> None:
    for values in (False, True):
        with fakes.world(session.target, values=values):
            try:
                captured = _captured(session, candidate)
            except fakes.reads_values():
                continue
            for one in captured:
                visit(one)
            return


def _lower(session: Session, candidate: Candidate) -> Lowered:
    started = time.perf_counter()
    stops: list[Stopped] = []

    def visit(one: launches.Captured) -> None:
        try:
            one.warmup()
        except Stopped as stop:
            stops.append(stop)

    _each(session, candidate, visit)
    text = "\n".join(f"{stop.text}\n{stop.options}" for stop in stops)
    return Lowered(
        candidate=candidate,
        ir=stops[0].ir if stops else "",
        ttgir=hashlib.sha256(text.encode()).hexdigest()[:16],
        shared_bound=max((resources.shared_bound(stop.text) for stop in stops), default=0),
        seconds=time.perf_counter() - started,
    )


def _compile(session: Session, candidate: Candidate, key: str) -> Compiled:
    started = time.perf_counter()
    binaries: list[Any] = []
    session.ir.clear()
    _each(session, candidate, lambda one: binaries.append(one.warmup()))
    step = session.loaded.kernel.fn
    while hasattr(step.fn, "fn"):
        step = step.fn
    step.device_caches.clear()
    usage = [resources.registers(binary, session.target) for binary in binaries]
    digests = [hashlib.sha256(resources.code(binary)).hexdigest() for binary in binaries]
    return Compiled(
        candidate=candidate,
        key=key,
        binary=hashlib.sha256("".join(digests).encode()).hexdigest()[:12],
        ir=session.ir[0] if session.ir else "",
        registers=max((found[0] for found in usage), default=0),
        stack_bytes=max((found[1] for found in usage), default=0),
        shared_bytes=max((int(binary.metadata.shared) for binary in binaries), default=0),
        tensor_memory=max((resources.tensor_memory(binary) for binary in binaries), default=0),
        seconds=time.perf_counter() - started,
    )


def _guarded(candidate: Candidate, attempt: Callable[[], T]) -> T | Rejected:
    """The worker's boundary: whatever a compiler raises is a rejected candidate."""
    from tritune.errors import TrituneError

    try:
        return attempt()
    except TrituneError:
        raise
    except Exception as error:  # noqa: BLE001  # compilers raise anything; its name is in the detail
        return Rejected(candidate=candidate, reason=_reason(error), detail=brief(error))


def _reason(error: Exception) -> Reason:
    text = str(error).lower()
    if "register" in text and ("ptxas" in text or "allocat" in text):
        return Reason.REGISTERS
    return Reason.COMPILE


def brief(error: BaseException) -> str:
    """One line: the error's type and the line of its text that says most."""
    cause = error.__cause__ or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    telling = [
        line for line in lines if re.search(r"error|fatal|fail|must|expect", line, re.IGNORECASE)
    ]
    said = (telling or lines or [""])[-1]
    return f"{type(cause).__name__}: {said[:200]}" if said else type(cause).__name__

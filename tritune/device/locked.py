"""device.locked: a problem and what is locked for it -> what today's code makes of it, with no GPU.

Runs in a worker. One worker looks at every kernel and target in turn, because what it costs to
look at an entry (20 to 200 ms) is little beside starting a process and importing Triton.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tritune import discover, grouping, plan
from tritune.contract import layers
from tritune.device import lowering, wheel
from tritune.load import Loaded
from tritune.model import (
    Candidate,
    Config,
    KernelInfo,
    Launches,
    Lowered,
    Problem,
    Rejected,
    Sweep,
    Target,
)

Reference = tuple[str | None, str | None]
"""A kernel and a problem, as a sweep file names them."""

TRIES = 8
"""Configs that an op is run under until one says what its problem's key is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What today's code makes of one problem on one target."""

    key: str = ""
    """What it is looked up by; empty where the op launches nothing, or where `unknown` says why."""
    ir: str = ""
    """Digest of the TTIR of what is locked for it."""
    broken: str = ""
    """Why what is locked cannot be compiled any more, or does not fit the target."""
    unknown: str = ""
    """Why nothing can be said of it here."""
    makes: bool = False
    """The kernel's author may make configs at a launch that no list has."""
    seconds: float = 0.0
    """What compiling it took, where it was compiled; 0 where its binary was in the cache."""


@dataclass
class Desk:
    """What a worker keeps: one lowering session a backend, and the kernels it loaded."""

    cache: str
    compiles: bool = False
    """It makes binaries; else it stops after the TTIR, which is all that most looks need."""
    to_ttgir: bool = False
    """This look goes on to the TTGIR, which tells what a binary takes at least."""
    sessions: dict[str, lowering.Session] = field(default_factory=dict)
    loaded: dict[Reference, Loaded] = field(default_factory=dict)


def open_desk(cache: str) -> Desk:
    """*cache* is a folder that is empty: what is compiled already is not lowered again."""
    return Desk(cache=cache)


def open_builder() -> Desk:
    """One that compiles into Triton's own cache, where a launch of this user looks."""
    return Desk(cache=own_cache(), compiles=True)


def own_cache(_: Desk | None = None) -> str:
    """The folder of Triton's own compile cache."""
    from triton import knobs

    return str(knobs.cache.dir)


def describe(
    _: Desk, reference: Reference, sweep: Sweep, target: Target
) -> tuple[str, list[KernelInfo]]:
    """Triton's version here, and the kernels of a sweep file."""
    infos = discover.describe(discover.open_op(*reference, target), sweep, target)
    return wheel.version(), list(infos)


def look(
    desk: Desk,
    reference: Reference,
    target: Target,
    problem: Problem,
    configs: Sequence[Config],
    locked: Mapping[str, Config],
    unproven: Collection[str] = (),
) -> Seen:
    """Find the key of *problem* under one of *configs*; lower what is locked under that key.

    What is locked under a key of *unproven* never ran on the target, so it may not fit it.
    """
    session = _session(desk, reference, target)
    key, unknown = _key(session, problem, configs)
    if unknown or key not in locked:
        return Seen(key=key, unknown=unknown)
    kernel = session.loaded.kernel
    if why := kernel.tuning.refusal(locked[key]):
        return Seen(key=key, broken=why)
    if ruling := plan.legal(locked[key], target):  # of a lockfile that was edited
        return Seen(key=key, broken=ruling[1])
    candidate = Candidate(kernel=kernel.name, problem=problem, config=locked[key])
    desk.to_ttgir = key in unproven
    try:
        lowered = lowering.lower(session, candidate)
    finally:
        desk.to_ttgir = False
    match lowered:
        case Lowered() as made if big := grouping.surely_too_big(made, target):
            return Seen(key=key, broken=_told(big))
        case Lowered(ir=ir):
            return Seen(key=key, ir=ir, makes=getattr(kernel, "makes_configs", False))
        case Rejected(detail=detail):
            return Seen(key=key, broken=detail)


def _told(unfit: Rejected) -> str:
    return f"{unfit.reason.value}: {unfit.detail}"


def build(  # one task, each part once
    desk: Desk,
    reference: Reference,
    target: Target,
    problem: Problem,
    configs: Sequence[Config],
    locked: Mapping[str, Config],
) -> Seen:
    """Compile what is locked for *problem*, under the very key that its launch will look for.

    A binary in the cache counts only if it was made from today's TTIR: Triton's key misses the
    edit of a constant that a kernel reaches through a module.
    """
    seen = look(desk, reference, target, problem, configs, locked)
    if not seen.ir:
        return seen
    session = _session(desk, reference, target)
    kernel = session.loaded.kernel
    candidate = Candidate(kernel=kernel.name, problem=problem, config=locked[seen.key])
    try:
        made = lowering.compile_(session, candidate, seen.key, seen.ir)
    except lowering.CompilerError as error:
        return Seen(key=seen.key, broken=str(error))
    if unfit := grouping.unfit(made, target):
        return Seen(key=seen.key, broken=_told(unfit))
    return replace(seen, seconds=made.seconds)


def matching(  # one task, each part once
    desk: Desk,
    reference: Reference,
    target: Target,
    problems: Sequence[Problem],
    configs: Sequence[Config],
    key: str,
) -> tuple[int, str]:
    """Which of *problems* is the first that has *key*; -1 and why, where none has."""
    session = _session(desk, reference, target)
    why = ""
    for index, problem in enumerate(problems):
        try:
            found, said = _key(session, problem, configs)
        except Exception as error:  # noqa: BLE001  # the boundary: a problem function may raise anything
            found, said = "", lowering.brief(error)
        if found == key:
            return index, ""
        why = why or said or f"`{problem}` has the key `{found}`"
    return -1, why


def _key(session: lowering.Session, problem: Problem, configs: Sequence[Config]) -> tuple[str, str]:
    why = ""
    for config in configs[:TRIES]:
        [found] = lowering.facts(session, problem, [config])[1]
        if isinstance(found, Launches):
            return found.key, ""
        why = why or found.detail
    return "", why


def _session(desk: Desk, reference: Reference, target: Target) -> lowering.Session:
    import triton

    backend = target.backend
    if reference not in desk.loaded:
        triton.runtime.driver.set_active(lowering.StandIn(lowering.gpu_target(target), target))
        desk.loaded[reference] = lowering.loaded_for(*reference, target)
    if backend not in desk.sessions:
        desk.sessions[backend] = lowering.open_session(*reference, target, desk.cache)
        if not desk.compiles:
            _stop_after_ttir(desk, desk.sessions[backend])
    session = desk.sessions[backend]
    loaded = desk.loaded[reference]
    if session.target != target or session.loaded != loaded:
        session.target, session.loaded = target, loaded
        triton.runtime.driver.set_active(lowering.StandIn(lowering.gpu_target(target), target))
        for step in layers(loaded.kernel):
            # It holds the target that a kernel was last compiled for.
            getattr(step, "device_caches", {}).clear()
    return session


def _stop_after_ttir(desk: Desk, session: lowering.Session) -> None:
    """The digest is of the TTIR; what comes after it would be half of the time."""
    from triton.compiler.compiler import make_backend

    backend = type(make_backend(lowering.gpu_target(session.target)))
    add_stages = backend.add_stages

    def add(self: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        add_stages(self, stages, options, *rest)
        if not desk.to_ttgir:
            stages["ttgir"] = stop

    def stop(*_: object) -> None:
        raise lowering.Stopped("", session.ir[-1], "")

    backend.add_stages = add

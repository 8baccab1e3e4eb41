"""tracelog: the files that traced processes wrote -> `Trace`: what all of them launched.

A process that was killed leaves a line that is cut off: it is left out, and told. Counts of
processes and of equal keys add up; the facts of a key are those of the first process that has
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritune.errors import SpecError
from tritune.model import Value

OTHERS = ""
"""The key of launches under keys that were too many to be told apart."""

MARKS = ("started", "imported")
"""Files that say how far a process came: the tracer is in it; it has imported Triton."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedLaunch:
    """The launches of one kernel under one key."""

    key: str
    count: int
    timed: int = 0
    """How many of them were timed."""
    total_us: float | None = None
    """On the GPU: the mean of those, times the count; None where none was timed."""
    captured: bool = False
    """Whether some were captured in a CUDA graph, whose replays nobody can count."""
    facts: str = "{}"
    """The arguments and grids of the first one, as JSON."""
    why: str = ""
    """Why the arguments are not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedKernel:
    """One kernel, with the keys that took the most of the GPU first."""

    name: str
    kind: str
    """`autotuned`, `decorated` with tritune's line, or a plain `jit` function."""
    file: str
    line: int
    attribute: str
    """`module:name` of what holds it in its program; empty where nothing does."""
    hops: int
    """How far below that the autotuner stands."""
    params: tuple[str, ...]
    configs: int
    problem: tuple[tuple[str, bool], ...] | None
    """The axes of its problem function, and which may be left out; None where it has none."""
    default: tuple[tuple[str, Value], ...] = ()
    """What it runs with where nothing is locked; only of one with tritune's line."""
    launches: tuple[TracedLaunch, ...]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.launches)

    @property
    def total_us(self) -> float | None:
        known = [each.total_us for each in self.launches if each.total_us is not None]
        return sum(known) if known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedProcess:
    """One process that launched something."""

    pid: int
    rank: str
    program: tuple[str, ...]
    triton: str
    device: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """All of a program, its child processes included."""

    processes: tuple[TracedProcess, ...] = ()
    kernels: tuple[TracedKernel, ...] = ()
    untraced: tuple[tuple[str, str], ...] = ()
    """Kernels whose launches could not be told apart, and why."""
    cut: tuple[str, ...] = ()
    """`file:line` of each line that is not whole."""
    reached: str = "imported"
    """How far any process came that launched nothing: one of MARKS, or empty."""


@dataclass
class _Sum:
    """Launches under one key, summed over processes."""

    count: int = 0
    timed: int = 0
    us: float = 0.0
    captured: bool = False
    fact: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Found:
    """What the files hold, before it is put in order."""

    processes: list[TracedProcess] = field(default_factory=list)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    sums: dict[tuple[str, str], _Sum] = field(default_factory=dict)
    untraced: dict[tuple[str, str], None] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


def read(folder: Path) -> Trace:
    """What the files in *folder* say.

    Raises:
        SpecError: one cannot be read.
    """
    found = _Found()
    for path in sorted(folder.glob("*.jsonl"), key=_begun):
        _read_one(path, found)
    kernels = [_kernel(about, found.sums) for about in found.kernels.values()]
    return Trace(
        processes=tuple(found.processes),
        kernels=tuple(sorted((one for one in kernels if one.launches), key=_weight)),
        untraced=tuple(found.untraced),
        cut=tuple(found.cut),
        reached=next((mark for mark in MARKS[::-1] if (folder / mark).exists()), ""),
    )


def _begun(path: Path) -> tuple[str, str]:
    """Processes in the order in which they began; the clock is in the name."""
    return path.stem.rpartition("-")[2], path.name


def _weight(one: TracedKernel | TracedLaunch) -> tuple[float, int]:
    """Most time first; where no time is known, the most launches."""
    return -(one.total_us or 0.0), -one.count


def _read_one(path: Path, found: _Found) -> None:
    launches: dict[int, dict[str, Any]] = {}
    counts: dict[str, list[Any]] = {}
    for number, line in enumerate(_lines(path), 1):
        match _parsed(line):
            case {"process": int()} as said:
                found.processes.append(_process(said))
            case {"kernel": str(), "launch": int(at)} as said:
                launches[at] = said
            case {"kernel": str(name), "kind": str()} as said:
                found.kernels.setdefault(name, said)
            case {"counts": dict() as said}:
                counts |= said  # of those that have changed
            case {"untraced": str(name), "why": str(why)}:
                found.untraced[name, why] = None
            case _:
                found.cut.append(f"{path.name}:{number}")
    for at, fact in launches.items():
        _add(found.sums, fact, counts.get(str(at), [1, 0, 0.0, False]))


def _lines(path: Path) -> Iterator[str]:
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return (line for line in text.splitlines() if line.strip())


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _process(said: Mapping[str, Any]) -> TracedProcess:
    return TracedProcess(
        pid=said["process"],
        rank=said["rank"],
        program=tuple(said["program"]),
        triton=said["triton"],
        device=said["device"],
    )


def _add(sums: dict[tuple[str, str], _Sum], fact: dict[str, Any], counted: Iterable[Any]) -> None:
    count, timed, us, captured = counted
    into = sums.setdefault((fact["kernel"], fact["key"] or OTHERS), _Sum())
    into.count += count
    into.timed += timed
    into.us += us
    into.captured |= captured
    if not into.fact or ("args" in fact and "args" not in into.fact):
        into.fact = fact


def _kernel(about: Mapping[str, Any], sums: Mapping[tuple[str, str], _Sum]) -> TracedKernel:
    name = about["kernel"]
    own = [_launch(key, one) for (kernel, key), one in sums.items() if kernel == name]
    problem = about["problem"]
    return TracedKernel(
        name=name,
        kind=about["kind"],
        file=about["file"],
        line=about["line"],
        attribute=about["attribute"],
        hops=about["hops"],
        params=tuple(about["params"]),
        configs=about["configs"],
        problem=None if problem is None else tuple((axis, free) for axis, free in problem),
        default=tuple(about.get("default", {}).items()),
        launches=tuple(sorted(own, key=_weight)),
    )


def _launch(key: str, one: _Sum) -> TracedLaunch:
    known = {part: one.fact[part] for part in ("args", "kwargs", "grid") if part in one.fact}
    why = one.fact.get("why", "") or ("" if "args" in known else "its keys are too many")
    return TracedLaunch(
        key=key,
        count=one.count,
        timed=one.timed,
        total_us=one.us / one.timed * one.count if one.timed else None,
        captured=one.captured,
        facts=json.dumps(known),
        why=why,
    )

"""plan: Configs x Problems -> Candidates, and Rejected for numbers that no launch can use.

Knows the rules of a launch that hold without a compiler; blocks that are no power of two are
the compiler's to refuse, since a kernel may use any number it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tritune.model import Candidate, Config, Problem, Reason, Rejected, Target

LARGEST_BLOCK = 1 << 20
"""Elements of a tensor: Triton's own limit (`TRITON_MAX_TENSOR_NUMEL`)."""

LARGEST_MAXNREG = 255
"""Registers that an instruction can name."""

_AMD_ONLY = ("waves_per_eu", "matrix_instr_nonkdim", "kpack")
_HOPPER = 90

Ruling = tuple[Reason, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a sweep will try, and what it cannot."""

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]


def legal(config: Config, target: Target) -> Ruling | None:
    """Why no launch on the target can use these numbers; None where one may."""
    return next(_rulings(config, target), None)


def _rulings(config: Config, target: Target) -> Iterator[Ruling]:
    for name, value in config.values:
        if isinstance(value, int) and not isinstance(value, bool):
            rule = _RULES.get(name)
            if rule:
                yield from rule(value, target)
            elif "BLOCK" in name and value > LARGEST_BLOCK:
                yield Reason.ILLEGAL, f"{name}={value}, {LARGEST_BLOCK} is the most"
            elif "BLOCK" in name and value < 1:
                yield Reason.ILLEGAL, f"{name}={value}, 1 is the least"


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _num_warps(value: int, target: Target) -> Iterator[Ruling]:
    if not _power_of_two(value):
        yield Reason.ILLEGAL, f"num_warps={value} is not a power of two"
    elif value * target.warp_size > target.threads:
        threads = value * target.warp_size
        yield Reason.THREADS, f"{value} warps are {threads} threads, {target.threads} available"


def _num_stages(value: int, target: Target) -> Iterator[Ruling]:
    least = 0 if target.backend == "hip" else 1
    if value < least:
        yield Reason.ILLEGAL, f"num_stages={value}, {least} is the least"


def _num_ctas(value: int, target: Target) -> Iterator[Ruling]:
    if not _power_of_two(value):
        yield Reason.ILLEGAL, f"num_ctas={value} is not a power of two"
    elif value > 1 and not _clusters(target):
        arch = f"{target.backend}:{target.arch}"
        yield Reason.ILLEGAL, f"num_ctas={value}, but {target.name} ({arch}) has no clusters"


def _clusters(target: Target) -> bool:
    return target.backend == "cuda" and isinstance(target.arch, int) and target.arch >= _HOPPER


def _maxnreg(value: int, target: Target) -> Iterator[Ruling]:
    if not 1 <= value <= LARGEST_MAXNREG:
        yield Reason.ILLEGAL, f"maxnreg={value}, it goes from 1 to {LARGEST_MAXNREG}"
    elif target.backend != "cuda":
        yield Reason.ILLEGAL, f"maxnreg is an NVIDIA option, {target.name} is AMD's"


def _amd_only(name: str) -> Callable[[int, Target], Iterator[Ruling]]:
    def rule(_: int, target: Target) -> Iterator[Ruling]:
        if target.backend != "hip":
            yield Reason.ILLEGAL, f"{name} is an AMD option, {target.name} is NVIDIA's"

    return rule


_RULES: dict[str, Callable[[int, Target], Iterator[Ruling]]] = {
    "num_warps": _num_warps,
    "num_stages": _num_stages,
    "num_ctas": _num_ctas,
    "maxnreg": _maxnreg,
    **{name: _amd_only(name) for name in _AMD_ONLY},
}


def plan(
    kernel: str,
    configs: Iterable[Config],
    problems: Sequence[Problem],
    *,
    target: Target,
    default: Config,
    admits: Callable[[Config, Problem], bool],
) -> Plan:
    """By problem, in canonical order, the default first.

    The default is always there, in the space or not and whatever the constraints say: it is
    what a miss runs, so it is what every other config has to beat.
    """
    others = sorted({*configs} - {default}, key=Config.order)
    rulings = {config: legal(config, target) for config in (default, *others)}
    candidates = [
        Candidate(kernel=kernel, problem=problem, config=config)
        for problem in problems
        for config in (default, *others)
        if config == default or admits(config, problem)
    ]
    return Plan(
        candidates=tuple(one for one in candidates if rulings[one.config] is None),
        rejected=tuple(_rejected(candidates, rulings)),
    )


def _rejected(
    candidates: Iterable[Candidate], rulings: Mapping[Config, Ruling | None]
) -> Iterator[Rejected]:
    for candidate in candidates:
        ruling = rulings[candidate.config]
        if ruling is not None:
            yield Rejected(candidate=candidate, reason=ruling[0], detail=ruling[1])

"""grouping: what candidates launch -> groups that launch the same, of which one is measured.

Pure. Before LLVM by equal TTGIR and grids, after it by equal binaries: on an unaligned matmul
288 configs were 72 binaries, and their TTGIR said so in 50 ms a config. A `pre_hook` is part of
a launch: of two equal binaries the one that is launched after another hook takes another time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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

Lead = Callable[[Candidate], bool]
"""Whether a candidate stands for its group whatever the others are: the default, an incumbent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Candidates of one problem that make the very same launches, led by the one to measure."""

    members: tuple[Launches, ...]
    lowered: Lowered

    @property
    def launches(self) -> Launches:
        return self.members[0]

    @property
    def candidate(self) -> Candidate:
        return self.launches.candidate

    @property
    def aliases(self) -> tuple[Config, ...]:
        return tuple(one.candidate.config for one in self.members[1:])


def group(
    found: Sequence[Launches],
    lowered: Mapping[str, Lowered | Rejected],
    *,
    target: Target,
    work: Mapping[Problem, Work],
    lead: Lead,
) -> tuple[tuple[Group, ...], tuple[Rejected, ...]]:
    """Gather equal launches; reject what cannot fit *target*.

    A group is led by the candidate for which *lead* holds, else by the one that asks for the
    fewest resources. Where a whole op is timed, its meta-parameters may change other work too,
    so configs that differ in them are never one group.
    """
    rejected: list[Rejected] = []
    groups: dict[tuple[object, ...], list[tuple[Launches, Lowered]]] = defaultdict(list)
    for one in found:
        if not one.grids:
            continue
        ir = lowered[one.compile_class]
        if isinstance(ir, Rejected):
            rejected.append(replace(ir, candidate=one.candidate))
        elif big := surely_too_big(ir, target):
            rejected.append(replace(big, candidate=one.candidate))
        else:
            apart = _apart(one.candidate, work)
            at = (one.candidate.problem, ir.ttgir, one.grids, one.hooks, apart)
            groups[at].append((one, ir))
    return tuple(_group(members, lead) for members in groups.values()), tuple(rejected)


def _apart(candidate: Candidate, work: Mapping[Problem, Work]) -> Config | None:
    timed = work[candidate.problem].timed
    return candidate.config.meta() if timed == "op" else None


def _group(members: list[tuple[Launches, Lowered]], lead: Lead) -> Group:
    ordered = sorted(members, key=lambda one: _rank(one[0].candidate, lead))
    return Group(members=tuple(one for one, _ in ordered), lowered=ordered[0][1])


def _rank(candidate: Candidate, lead: Lead) -> tuple[bool, tuple[tuple[int, float, str], ...]]:
    return not lead(candidate), candidate.config.order()


def merge(
    compiled: Sequence[Compiled],
    groups: Sequence[Group],
    *,
    work: Mapping[Problem, Work],
    lead: Lead,
) -> tuple[Compiled, ...]:
    """Make one of those whose binaries turned out equal and are launched alike."""
    made = {one.candidate: (one.launches.grids, one.launches.hooks) for one in groups}
    same: dict[tuple[object, ...], list[Compiled]] = defaultdict(list)
    for one in compiled:
        launch = (one.binary, one.shared_bytes, one.threads, made[one.candidate])
        same[one.candidate.problem, launch, _apart(one.candidate, work)].append(one)
    return tuple(_merged(members, lead) for members in same.values())


def _merged(members: list[Compiled], lead: Lead) -> Compiled:
    first, *rest = sorted(members, key=lambda one: _rank(one.candidate, lead))
    more = tuple(config for one in rest for config in (one.candidate.config, *one.aliases))
    return replace(first, aliases=(*first.aliases, *more))


def surely_too_big(made: Lowered, target: Target) -> Rejected | None:
    """Whether its binary cannot fit, before there is one."""
    if made.shared_bound <= target.shared_bytes:
        return None
    return _too_big(made.candidate, made.shared_bound, target, "at least ")


def _too_big(candidate: Candidate, needed: int, target: Target, least: str = "") -> Rejected:
    detail = f"{least}{needed} bytes, {target.shared_bytes} available"
    return Rejected(candidate=candidate, reason=Reason.SHARED, detail=detail)


def unfit(made: Compiled, target: Target) -> Rejected | None:
    """What a binary takes that *target* has not; None where it fits."""
    if made.shared_bytes > target.shared_bytes:
        return _too_big(made.candidate, made.shared_bytes, target)
    if made.tensor_memory > target.tensor_memory:
        detail = f"{made.tensor_memory} columns, {target.tensor_memory} available"
        return Rejected(candidate=made.candidate, reason=Reason.TENSOR_MEMORY, detail=detail)
    if made.threads > target.threads:  # warps that the compiler added, to specialise them
        detail = f"{made.threads} threads, {target.threads} available"
        return Rejected(candidate=made.candidate, reason=Reason.THREADS, detail=detail)
    return None


def longest(groups: Sequence[Group], count: int) -> tuple[str, ...]:
    """The TTGIR of the *count* that will take the longest to compile, the longest first.

    A sweep waits at its end for a long compile that began late.
    """
    work = {one.lowered.ttgir: one.lowered.work for one in groups}
    return tuple(sorted(work, key=lambda ttgir: (-work[ttgir], ttgir))[:count])


def promise(one: Group, target: Target) -> tuple[float, ...]:
    """What to compile first: lower is more promising. It only orders, it rejects nothing.

    A grid that leaves SMs idle comes after one that fills them, a ragged last wave after a full
    one, what leaves room for a second program on an SM before what does not, and of equals the
    deeper pipeline: where it fits, it hides more.
    """
    programs = sum(math.prod(grid) for grid in one.launches.grids)
    waves = programs / max(target.sms, 1)
    idle = math.ceil(waves) / waves - 1 if waves else math.inf
    crowded = 2 * one.lowered.shared_bound > target.shared_bytes_sm > 0
    config = one.candidate.config.as_dict()
    depth, warps = config.get("num_stages"), config.get("num_warps")
    return (
        round(min(idle, 8.0), 1),
        float(crowded),
        -float(depth) if isinstance(depth, int) else 0.0,
        abs(float(warps) - 4) if isinstance(warps, int) else 0.0,
    )

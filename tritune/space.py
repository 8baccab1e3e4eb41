"""space: Sweep -> Configs, lazily; which constraint rules one out; what the kernel must agree to.

Knows nothing of what a chip can launch, and of problems only their axes. What a sweep file
names of a kernel can only be checked once the kernel's module is loaded: `check_against`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tritune import expression
from tritune.axisvalues import did_you_mean, near
from tritune.errors import ManyMistakesError, SpecError, TrituneError
from tritune.model import (
    LAUNCH_OPTIONS,
    Axis,
    Config,
    Constraint,
    KernelInfo,
    Problem,
    Section,
    Sweep,
    Target,
    Value,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """How many configs a constraint removes that none before it did; on one problem, or on all."""

    constraint: Constraint
    problem: Problem | None
    configs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpaceCount:
    """The size of a space, and what its constraints leave of it."""

    configs: int
    removed: tuple[Removed, ...]
    """By constraint, in the order of the file; then by problem."""
    left: tuple[tuple[Problem, int], ...]
    kernel: str = ""

    @property
    def short(self) -> str:
        return self.kernel.rpartition(":")[2]


def configs(sweep: Sweep, target: Target, info: KernelInfo | None = None) -> Iterator[Config]:
    """Every config of the space on a target, each once, constraints not yet applied.

    Without `space:` the kernel's own list is the space; its default gives every tunable that
    the space does not name.
    """
    axes = {axis.name: axis.values for axis in _axes(sweep, target)}
    bases = () if info is None else (info.default,) if sweep.space else info.configs
    seen: set[Config] = set()
    for base in bases or [Config(())]:
        for values in itertools.product(*axes.values()):
            config = Config.of(base.as_dict() | dict(zip(axes, values, strict=True)))
            if config.values and config not in seen:
                seen.add(config)
                yield config


def _axes(sweep: Sweep, target: Target) -> Iterator[Axis]:
    """The axes on a target: a section's replace those of the space, or come after them."""
    axes = {axis.name: axis for axis in sweep.space}
    for section in sections(sweep, target):
        axes |= {axis.name: axis for axis in section.space}
    yield from axes.values()


def beyond(sweep: Sweep, target: Target, config: Config) -> tuple[str, ...]:
    """The values of a config that the axes of the space on a target do not have."""
    mine = config.as_dict()
    axes = (one for one in _axes(sweep, target) if one.name in mine)
    return tuple(f"{one.name}={mine[one.name]}" for one in axes if mine[one.name] not in one.values)


def sections(sweep: Sweep, target: Target) -> tuple[Section, ...]:
    """The sections that speak of a target: its backend's, its architecture's, its own."""
    scopes = (target.backend, f"{target.backend}:{target.arch}", target.name)
    found = {section.scope: section for section in sweep.sections}
    return tuple(found[scope] for scope in scopes if scope in found)


def inside(section: Section) -> str:
    """Its path inside the file."""
    return section.scope if section.scope in ("cuda", "hip") else f"per_target.{section.scope}"


def constraints(sweep: Sweep, target: Target) -> tuple[Constraint, ...]:
    """All that hold on a target, the file's before its sections'."""
    inner = (section.constraints for section in sections(sweep, target))
    return (*sweep.constraints, *itertools.chain.from_iterable(inner))


def holds(constraint: Constraint, values: Mapping[str, Value]) -> bool:
    """Whether a constraint holds; it does where some name of it has no value here.

    A problem may leave out an axis that has a default, and a section may add a tunable.

    Raises:
        SpecError: these values give it no answer.
    """
    if not constraint.names <= values.keys():
        return True
    return _holds(constraint, tuple((name, values[name]) for name in sorted(constraint.names)))


@lru_cache(maxsize=1 << 16)
def _holds(constraint: Constraint, values: tuple[tuple[str, Value], ...]) -> bool:
    try:
        return expression.truth(constraint.text, dict(values))
    except expression.ConstraintError as error:
        given = f" at {Config(values)}" if values else ""
        what = f"`{constraint.text}` has no answer{given}: {error}"
        hint = "write what should hold there too, with `or` before the rest of it"
        raise SpecError(what, where=constraint.where, hint=hint) from None


def admitted(
    sweep: Sweep, target: Target, config: Config, problem: Problem | None = None
) -> Constraint | None:
    """The first constraint that rules a config out; without a problem, on every problem."""
    axes = problem.as_dict() if problem else {}
    values = expression.facts(target) | axes | config.as_dict()
    broken = (one for one in constraints(sweep, target) if not holds(one, values))
    return next(broken, None)


def candidates_per_constraint(
    sweep: Sweep,
    target: Target,
    info: KernelInfo | None = None,
    *,
    problems: Iterable[Problem] | None = None,
) -> SpaceCount:
    """How many configs there are, and how many each constraint removes."""
    every = list(configs(sweep, target, info))
    always = {config: admitted(sweep, target, config) for config in every}
    passed = [config for config in every if always[config] is None]
    counts: Counter[tuple[Constraint, Problem | None]] = Counter()
    counts.update((one, None) for one in always.values() if one is not None)
    left = []
    for problem in sweep.problems if problems is None else problems:
        broken = [admitted(sweep, target, config, problem) for config in passed]
        counts.update((one, problem) for one in broken if one is not None)
        left.append((problem, broken.count(None)))
    order = constraints(sweep, target)
    removed = [
        Removed(constraint=one, problem=problem, configs=count)
        for (one, problem), count in sorted(
            counts.items(), key=lambda item: order.index(item[0][0])
        )
    ]
    return SpaceCount(
        configs=len(every),
        removed=tuple(removed),
        left=tuple(left),
        kernel="" if info is None else info.name,
    )


def check_against(sweep: Sweep, info: KernelInfo) -> None:
    """Refuse a sweep that the kernel cannot run.

    Raises:
        ManyMistakesError: every disagreement, by its place in the file.
    """
    found = [*_space(sweep, info), *_constraints(sweep, info), *_beyond(sweep, info)]
    found += _problems(sweep, info.problem, info.problem_params)
    if found:
        raise ManyMistakesError(sorted(found, key=_position))


def check_axes(sweep: Sweep, problem: str, params: Sequence[tuple[str, bool]]) -> None:
    """Refuse rows that the problem function of these parameters cannot be called with.

    Where only the op can tell which kernels it launches, it is asked before the op is run.

    Raises:
        ManyMistakesError: every disagreement, by its place in the file.
    """
    if found := [*_problems(sweep, problem, params)]:
        raise ManyMistakesError(sorted(found, key=_position))


def _position(error: TrituneError) -> tuple[int, ...]:
    place = re.match(r".*?:(\d+):(\d+)(?=: )", error.where)
    return tuple(map(int, place.groups())) if place else (0, 0)


def _space_paths(sweep: Sweep) -> Iterator[tuple[str, str]]:
    """Every axis of the space and of the sections, with its path inside the file."""
    for axis in sweep.space:
        yield axis.name, f"space.{axis.name}"
    for section in sweep.sections:
        for axis in section.space:
            yield axis.name, f"{inside(section)}.space.{axis.name}"


def _space(sweep: Sweep, info: KernelInfo) -> Iterator[SpecError]:
    known = (*info.tunables, *sorted(LAUNCH_OPTIONS - {*info.tunables}))
    for name, path in _space_paths(sweep):
        # `hip: {waves_per_eu: ...}`: a default that names it would not launch on the other backend.
        if name in known:
            continue
        if name not in info.params:
            what = f"`{name}` is not a parameter of `{info.short}`"
            meant = f"{did_you_mean(name, known)} " if near(name, known) else ""
            hint = f"{meant}it has {', '.join(info.tunables)}"
        elif name not in info.constexprs:
            what = f"`{name}` is a parameter of `{info.short}`, but not a tl.constexpr"
            hint = "annotate it with tl.constexpr, or make it an axis of `shapes`"
        else:
            what = f"`{name}` is not a tunable of `{info.short}`"
            add = "" if info.foreign else "add it to default= of `@tritune.kernel`; "
            hint = f"{add}it has {', '.join(info.tunables)}"
        yield SpecError(what, where=sweep.where(path), hint=hint)


def _beyond(sweep: Sweep, info: KernelInfo) -> Iterator[SpecError]:
    """A config that its author did not list may read or write out of bounds, and be fast."""
    sections = [section.constraints for section in sweep.sections]
    if info.foreign and _adds(sweep, info) and not any((sweep.constraints, *sections)):
        what = f"nothing says which configs are valid beyond the {len(info.configs)} of its author"
        hint = "add `constraints:` that say it, or leave `space:` out to try the author's own list"
        yield SpecError(what, where=sweep.where("space"), hint=hint)


def _adds(sweep: Sweep, info: KernelInfo) -> bool:
    """Whether the space has a config, on whatever target, that is not in the kernel's own list."""
    axes: dict[str, tuple[Value, ...]] = {}
    for axis in (*sweep.space, *(axis for one in sweep.sections for axis in one.space)):
        axes[axis.name] = (*axes.get(axis.name, ()), *axis.values)
    listed = set(info.configs)
    made = (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))
    return any(Config.of(info.default.as_dict() | one) not in listed for one in made)


def _rows(sweep: Sweep) -> Iterator[tuple[str, set[str]]]:
    """Every row of `shapes` and `smoke`, with the axes it has."""
    rows: dict[str, set[str]] = {}
    for path, _ in sweep.lines:
        found = re.fullmatch(r"((?:shapes|smoke)\[\d+\])(?:\.(\w+))?", path)
        if found:
            rows.setdefault(found[1], set()).update([found[2]] if found[2] else [])
    yield from rows.items()


def _problems(
    sweep: Sweep, problem: str, params: Sequence[tuple[str, bool]]
) -> Iterator[SpecError]:
    known = [name for name, _ in params]
    needed = [name for name, has_default in params if not has_default]
    function = problem.rpartition(":")[2]
    for path, axes in _rows(sweep):
        unknown = sorted(axes - set(known))
        for name in unknown:
            what = f"`{name}` is not a parameter of the problem `{function}`"
            where = sweep.where(f"{path}.{name}")
            yield SpecError(what, where=where, hint=did_you_mean(name, known))
        missing = [name for name in needed if name not in axes]
        # A misspelt axis is said once, not also as a missing one.
        if len(missing) > len(unknown):
            what = f"the problem `{function}` needs {', '.join(f'`{name}`' for name in missing)}"
            yield SpecError(what, where=sweep.where(path), hint=f"add {missing[0]}: ...")


def _constraints(sweep: Sweep, info: KernelInfo) -> Iterator[SpecError]:
    axes = {name for name, _ in _space_paths(sweep)}
    axes |= {name for problem in (*sweep.problems, *sweep.smoke) for name in problem.as_dict()}
    known = axes | {*info.tunables, *LAUNCH_OPTIONS, *expression.FACTS}
    inner = [constraint for section in sweep.sections for constraint in section.constraints]
    for constraint in (*sweep.constraints, *inner):
        yield from _unknown(constraint, known)


def _unknown(constraint: Constraint, known: set[str]) -> Iterator[SpecError]:
    for name in sorted(constraint.names - known):
        what = f"`{name}` is no tunable, no axis of the problem, and no fact of the target"
        yield SpecError(what, where=constraint.where, hint=did_you_mean(name, sorted(known)))

"""pipeline.values: a sweep -> refused, where a value is illegal on each target that it is for.

A value that only some of them cannot use is a rejected config there: one space may serve many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tritune import plan, space
from tritune.device import targets
from tritune.errors import SpecError, of_many
from tritune.model import LAUNCH_OPTIONS, Axis, Config, Sweep, Target, Value


def refuse_illegal(sweep: Sweep) -> None:
    """Refuse launch options that none of `targets:` can use; with no targets, nothing is known.

    Raises:
        SpecError: the one there is.
        ManyMistakesError: all of them.
    """
    named = [targets.find(name) for name in sweep.targets]
    found = list(dict.fromkeys(_illegal(sweep, named)))
    if found:
        raise of_many([SpecError(what, where=where, hint=_HINT) for where, what in found])


_HINT = "remove it, or put it into the section of a target that can use it"


def _illegal(sweep: Sweep, named: Iterable[Target]) -> Iterator[tuple[str, str]]:
    """Place and ruling of each value that every target which has it refuses."""
    rulings: dict[tuple[str, int], list[str]] = {}
    for target in named:
        for inside, axis in _axes(sweep, target).items():
            for index, value in enumerate(axis.values):
                rulings.setdefault((inside, index), []).append(_ruling(axis.name, value, target))
    for (inside, index), said in rulings.items():
        if all(said):
            item = f"{inside}[{index}]"
            known = item in dict(sweep.lines)
            yield sweep.where(item if known else inside), said[0]


def _ruling(name: str, value: Value, target: Target) -> str:
    ruling = plan.legal(Config.of({name: value}), target) if name in LAUNCH_OPTIONS else None
    return ruling[1] if ruling else ""


def _axes(sweep: Sweep, target: Target) -> dict[str, Axis]:
    """The axes on a target by their path inside the file; a section's stand in for the space's."""
    axes = {axis.name: (f"space.{axis.name}", axis) for axis in sweep.space}
    for section in space.sections(sweep, target):
        inside = space.inside(section)
        axes |= {axis.name: (f"{inside}.space.{axis.name}", axis) for axis in section.space}
    return dict(axes.values())

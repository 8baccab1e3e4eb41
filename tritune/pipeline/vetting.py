"""pipeline.vetting: configs for keys of a sweep file -> refused or told, where it has them not.

They are of a table that another tool wrote, and are served as soon as they are taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritune import expression, space
from tritune.configtables import Row, Table
from tritune.device import targets
from tritune.errors import SpecError, TableError
from tritune.model import Config, Constraint, DeviceIdentity, Problem, Target
from tritune.pipeline.job import near
from tritune.pipeline.searched import Searched
from tritune.pipeline.swept import Swept, refusals

MOST_NAMED = 4
"""Configs that a refusal names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A key, and a row of the table that is for it."""

    key: str
    problem: Problem
    row: Row
    config: Config


def refuse_unvouched(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match], table: Table
) -> None:
    """Of a kernel that nobody decorated, refuse what nobody says is valid.

    That is a config that neither its author lists nor the space of the sweep file, with its
    constraints, has: it may write out of bounds.

    Raises:
        TableError: there is one.
    """
    sweep, info = swept.sweep, swept.info
    searched = Searched(sweep, targets.of_device(device), info)
    strange = {
        str(one.config): why
        for one in matches
        if (why := searched.unvouched(one.config, one.problem))
    }
    if strange:
        named = [*strange]
        more = f"; and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        raise TableError(
            f"nothing says that `{info.short}` is right with {'; '.join(named[:MOST_NAMED])}{more}:"
            f" {strange[named[0]]}",
            where=table.path,
            hint=f"put it into `space:` of {near(Path(sweep.path).absolute())}, with "
            "`constraints:` that say what is valid; a config that nobody listed may write out of "
            "bounds",
        )


def runnable(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match]
) -> tuple[list[Match], tuple[TableError, ...]]:
    """Those that the device can run, and each row of which some fail at a launch, once.

    As a block whose size is no power of two does, or more shared memory than there is.
    """
    held = {one.key: (one.problem, one.config) for one in matches}
    failing = refusals(swept, device, held)
    wrong: dict[Row, list[Match]] = defaultdict(list)
    for one in matches:
        if one.key in failing:
            wrong[one.row].append(one)
    told = tuple(_cannot(swept, same, failing) for same in wrong.values())
    return [one for one in matches if one.key not in failing], told


def _cannot(swept: Swept, same: Sequence[Match], failing: Mapping[str, str]) -> TableError:
    """What is said of a row: its first key, and how many more."""
    one, more = same[0], len(same) - 1
    at = f"{one.key} and {more} more" if more else one.key
    what = f"`{swept.info.short}` cannot run {one.config} at {at}: {failing[one.key]}"
    return TableError(what, where=one.row.where)


def broken(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match]
) -> Iterator[tuple[str, str]]:
    """Keys whose config constraints of the sweep file rule out, and each such constraint."""
    target = targets.of_device(device)
    for one in matches:
        for constraint in _violated(swept, target, one):
            yield one.key, constraint.text


def _violated(swept: Swept, target: Target, one: Match) -> Iterator[Constraint]:
    values = expression.facts(target) | one.problem.as_dict() | one.config.as_dict()
    is_out = False
    for constraint in space.constraints(swept.sweep, target):
        try:
            if not space.holds(constraint, values):
                is_out = True
                yield constraint
        except SpecError:
            if not is_out:  # else one before it may be there to guard it
                raise


def beyond(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match]
) -> Iterator[tuple[str, str]]:
    """Keys whose config has values that no axis of the space has, and these."""
    target = targets.of_device(device)
    for one in matches:
        values = space.beyond(swept.sweep, target, one.config)
        if values and one.config not in swept.info.configs:
            yield one.key, ", ".join(values)

"""pipeline.vetting: configs for keys of a sweep file -> refused or told, where it has them not.

They are of a table that another tool wrote, and are served as soon as they are taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritune import space
from tritune.configtables import Row, Table
from tritune.device import targets
from tritune.errors import TableError, of_many
from tritune.model import Config, DeviceIdentity, Problem
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


def refuse(swept: Swept, device: DeviceIdentity, matches: Sequence[Match], table: Table) -> None:
    """Refuse what may write out of bounds, and what fails at a launch.

    Raises:
        TrituneError: there are such.
    """
    _refuse_unvouched(swept, device, matches, table)
    _refuse_broken(swept, device, matches)


def _refuse_unvouched(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match], table: Table
) -> None:
    """Of a kernel that nobody decorated, what nobody says is valid.

    That is a config that neither its author lists nor the space of the sweep file, with its
    constraints, has.
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


def _refuse_broken(swept: Swept, device: DeviceIdentity, matches: Sequence[Match]) -> None:
    """What does not compile, as a block whose size is no power of two: each such row, once."""
    by_key = {one.key: one for one in matches}
    held = {key: (one.problem, one.config) for key, one in by_key.items()}
    wrong: dict[Row, TableError] = {}
    for key, why in refusals(swept, device, held).items():
        one = by_key[key]
        what = f"`{swept.info.short}` cannot run {one.config} at {key}: {why}"
        wrong.setdefault(one.row, TableError(what, where=one.row.where))
    if wrong:
        raise of_many(list(wrong.values()))


def broken(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match]
) -> Iterator[tuple[str, str]]:
    """Keys whose config a constraint of the sweep file rules out, and that constraint."""
    target = targets.of_device(device)
    for one in matches:
        if constraint := space.admitted(swept.sweep, target, one.config, one.problem):
            yield one.key, constraint.text


def beyond(
    swept: Swept, device: DeviceIdentity, matches: Sequence[Match]
) -> Iterator[tuple[str, str]]:
    """Keys whose config has values that no axis of the space has, and these."""
    target = targets.of_device(device)
    for one in matches:
        values = space.beyond(swept.sweep, target, one.config)
        if values and one.config not in swept.info.configs:
            yield one.key, ", ".join(values)

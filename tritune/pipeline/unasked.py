"""pipeline.unasked: keys of a kernel, sweep files -> the keys that no shape asks for.

An entry that none asks for is served, and no sweep ever times it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritune import references, spec
from tritune.device import targets
from tritune.errors import TrituneError
from tritune.model import DeviceIdentity, Missed
from tritune.pipeline.job import near
from tritune.pipeline.looking import described, desks
from tritune.pipeline.missed import problems_of
from tritune.pipeline.swept import Swept, keys_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Unasked:
    """The sweep file of a kernel, and the keys that it does not ask for, each with what would."""

    sweep: str
    keys: tuple[Missed, ...]


def files_of(kernel: str, paths: Sequence[Path]) -> tuple[Swept, ...]:
    """The files that tune a kernel; none where one of them cannot be read."""
    try:
        return tuple(swept for path in paths if (swept := _swept(path, kernel)) is not None)
    except TrituneError:  # whose own command tells it
        return ()


def find(tuning: Sequence[Swept], keys: Sequence[str], device: DeviceIdentity) -> Unasked | None:
    """What the files do not ask for; None where there is none, or a key of one cannot be told."""
    if not tuning:
        return None
    try:
        asked = {key for swept in tuning for key in keys_of(swept, device)}
        left = [(key, 1) for key in keys if key not in asked]
        sweep, info = tuning[0].sweep, tuning[0].info
        found = problems_of(sweep, info, targets.of_device(device), left) if left else ()
    except TrituneError:  # whose own command tells it
        return None
    return Unasked(sweep=near(Path(sweep.path).absolute()), keys=found)


def _swept(path: Path, kernel: str) -> Swept | None:
    sweep = spec.read_sweep(path)
    if sweep.kernel is None or references.short(sweep.kernel) != references.short(kernel):
        return None
    with desks() as pool:
        _, infos = described(pool, sweep)
    named = [info for info in infos if info.name == kernel]
    return Swept(sweep=sweep, info=named[0]) if named else None

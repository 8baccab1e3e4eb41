"""pipeline.questions: a sweep file -> what can be said of it without sweeping; writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune import keyed, places, space
from tritune.device import cuda, targets
from tritune.discover import needs_op
from tritune.errors import TrituneError
from tritune.journal import Journal
from tritune.model import KernelInfo, Rejected, Sweep, Target
from tritune.pipeline.job import SweepOptions, describe_kernels, launched, named_target, read
from tritune.pipeline.narrowing import with_problems


def space_counts(path: Path, options: SweepOptions) -> tuple[space.SpaceCount, ...]:
    """How many configs the space of each kernel has, and how many each constraint removes."""
    sweep = read(path, options)
    with TemporaryDirectory() as folder:
        log = Path(folder) / "load.log"
        infos = describe_kernels(sweep, options, log)
        if needs_op(infos):
            infos = launched(sweep, infos, named_target(sweep, options), log)
    infos = with_problems(sweep, infos, options.only)
    return tuple(_counted(sweep, info, options) for info in infos)


def _counted(sweep: Sweep, info: KernelInfo, options: SweepOptions) -> space.SpaceCount:
    space.check_against(sweep, info)
    own, _ = keyed.of_kernel(sweep, info)
    return space.candidates_per_constraint(own, named_target(sweep, options), info)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejections:
    """What is rejected, and every axis that a candidate of the sweep has, rejected or not."""

    outcomes: tuple[Rejected, ...]
    names: frozenset[str]


def rejected(path: Path, options: SweepOptions) -> Rejections:
    """Every rejected candidate in the newest journal of a sweep file, else in its record.

    Only of the last source, device, protocol and Triton of each kernel.
    """
    sweep = read(path, options)
    kept = set(sweep.problems)
    found = tuple(Journal.open(_newest(path, sweep, options), read_only=True).latest())
    out = (one for one in found if isinstance(one, Rejected))
    return Rejections(
        outcomes=tuple(one for one in out if one.candidate.problem in kept),
        names=frozenset({*_axes(sweep), *(n for one in found for n in one.candidate.config)}),
    )


def _axes(sweep: Sweep) -> Iterator[str]:
    """The axes of the file: of its problems, and of its space and sections."""
    yield from (name for problem in sweep.problems for name, _ in problem.axes)
    spaces = (sweep.space, *(section.space for section in sweep.sections))
    yield from (axis.name for axes in spaces for axis in axes)


def _newest(path: Path, sweep: Sweep, options: SweepOptions) -> Path:
    folder = options.journal or places.cache_folder() / "journals"
    named = [options.target] if options.target else [*sweep.targets]
    own = [*folder.glob(places.journal_path(folder, path, "*").name)]
    if options.target:
        own = [one for one in own if one == places.journal_path(folder, path, options.target)]
    if own:
        return max(own, key=lambda one: one.stat().st_mtime)
    records = [places.record_path(path, name) for name in named]
    found = next((record for record in records if record.is_file()), None)
    if found is None:
        raise TrituneError(
            "no journal of this sweep on this machine, and none recorded; a sweep with no GPU "
            "keeps none, and lists what it rejects at its end",
            where=str(path),
            hint="`tritune sweep` on a GPU writes one; --journal DIR reads another machine's",
        )
    return found


def device() -> Target | None:
    """The first GPU of this machine; None where there is none."""
    if not cuda.present():
        return None
    with TemporaryDirectory() as folder:
        identity, _ = cuda.probe(0, Path(folder) / "device.log")
    return targets.of_device(identity)

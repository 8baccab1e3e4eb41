"""pipeline.looking: a kernel, its sweep file, its lockfile -> Findings, by workers with no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune import jsonplaces, lock
from tritune.check import Finding, Status, Today, judge
from tritune.cores import default_jobs
from tritune.device import locked, targets
from tritune.errors import TrituneError
from tritune.model import Entry, KernelInfo, LockedKey, Problem, Sweep, Target
from tritune.pipeline.job import DISCOVER_LIMIT_S, loaded, near
from tritune.pipeline.searched import Searched
from tritune.workers import Answer, Done, Pool, Raised

SOME_TARGET = "H200"
"""Where a file names none: what an op launches is hardly ever another thing elsewhere."""
LOOK_LIMIT_S = 60.0
"""What one problem may take; 0.02 to 0.2 s are usual."""


class Lockfile:
    """A lockfile with the line of every entry."""

    def __init__(self, path: Path) -> None:
        self.shown = near(path.absolute())
        self.lock = lock.read(path)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        self._lines = {place.path: place.line for place in jsonplaces.places(text)} if text else {}

    def line(self, at: LockedKey) -> int:
        return self._lines.get(("kernels", at.kernel, at.device, at.key), 1)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One kernel of one sweep file, and the lockfile that it reads."""

    sweep: Sweep
    info: KernelInfo
    file: Lockfile
    triton: str

    @property
    def reference(self) -> locked.Reference:
        # A file that names only a problem tunes every kernel of it, each under its name.
        return self.sweep.kernel or self.info.name, self.sweep.problem

    def entries(self, label: str) -> dict[str, Entry]:
        every, mine = self.file.lock.entries, (self.info.name, label)
        return {at.key: entry for at, entry in every if (at.kernel, at.device) == mine}

    def finding(self, status: Status, why: str, inside: str, device: str) -> Finding:
        """What stands in no lockfile, at its place in the sweep file."""
        file, line = place(self.sweep, inside)
        return Finding(
            status=status,
            why=why,
            kernel=self.info.name,
            device=device,
            key="",
            sweep=near(Path(self.sweep.path).absolute()),
            problem=None,
            file=file,
            line=line,
        )


def place(sweep: Sweep, inside: str) -> tuple[str, int]:
    """The file and the line of a path inside a sweep file, as near as it is known."""
    at = dict(sweep.lines).get(inside, "").rsplit(":", 2)
    return near(Path(sweep.path).absolute()), int(at[1]) if len(at) == 3 else 1


@contextmanager
def desks() -> Iterator[Pool]:
    """Workers that look at entries; all that they write is gone with them."""
    with TemporaryDirectory(prefix="tritune-") as folder:
        pool = Pool(
            default_jobs(),
            locked.open_desk,
            str(Path(folder) / "cache"),
            log_folder=Path(folder) / "logs",
        )
        with pool:
            yield pool


@contextmanager
def builders(size: int) -> Iterator[Pool]:
    """Workers that compile entries into Triton's own cache."""
    temporary = TemporaryDirectory(prefix="tritune-")
    with temporary as folder, Pool(size, locked.open_builder, log_folder=Path(folder)) as pool:
        yield pool


def described(pool: Pool, sweep: Sweep) -> tuple[str, list[KernelInfo]]:
    """Triton's version here, and the kernels of a sweep file."""
    reference = sweep.kernel, sweep.problem
    target = targets.find(next(iter(sweep.targets), SOME_TARGET))
    task = reference, sweep, target
    [(_, answer)] = pool.run(locked.describe, [task], DISCOVER_LIMIT_S)
    return loaded(answer, sweep.kernel or sweep.problem, sweep.path)


def look(
    pool: Pool, asked: Asked, chips: Mapping[str, Target], faults: list[TrituneError]
) -> list[Finding]:
    """How every problem of a kernel stands on the devices with these labels."""
    asks = [(label, problem) for label in chips for problem in asked.sweep.problems]
    held = {label: asked.entries(label) for label in chips}
    spaces = {label: Searched(asked.sweep, chip, asked.info) for label, chip in chips.items()}
    tasks = [
        (asked.reference, chips[label], problem, *tried(asked, held[label]), unrun(held[label]))
        for label, problem in asks
    ]
    found: dict[int, Finding] = {}
    for index, answer in pool.run(locked.look, tasks, LOOK_LIMIT_S):
        if isinstance(answer, Raised) and answer.error is not None:
            faults.append(answer.error)
            continue
        (label, problem), seen = asks[index], seen_of(answer)
        if seen.key or seen.unknown:  # else the op launches nothing, so nothing is asked for
            at = LockedKey(kernel=asked.info.name, device=label, key=seen.key)
            found[index] = _finding(
                asked, at, held[label].get(seen.key), problem, seen, spaces[label]
            )
    return [found[index] for index in sorted(found)]


def tried(asked: Asked, held: Mapping[str, Entry]) -> tuple[Sequence[object], Mapping[str, object]]:
    configs = {key: entry.config for key, entry in held.items()}
    return tuple(dict.fromkeys((asked.info.default, *configs.values()))), configs


def unrun(held: Mapping[str, Entry]) -> tuple[str, ...]:
    """The keys of what no sweep ever ran on its device."""
    return tuple(key for key, entry in held.items() if entry.evidence.unmeasured)


def seen_of(answer: Answer[locked.Seen]) -> locked.Seen:
    """What was seen, or why nothing was."""
    match answer:
        case Done(value):
            return value
        case _:
            return locked.Seen(unknown=str(answer).splitlines()[0][:200])


def _finding(
    asked: Asked,
    at: LockedKey,
    entry: Entry | None,
    problem: Problem,
    seen: locked.Seen,
    space: Searched,
) -> Finding:
    status, why = judge(entry, _today(asked, entry, problem, seen, space))
    file, line = asked.file.shown, asked.file.line(at)
    if entry is None:
        file, line = place(asked.sweep, "shapes")
    return Finding(
        status=status,
        why=why,
        kernel=at.kernel,
        device=at.device,
        key=at.key,
        sweep=near(Path(asked.sweep.path).absolute()),
        problem=problem,
        file=file,
        line=line,
        broken="" if entry is None else seen.broken,
    )


def _today(
    asked: Asked, entry: Entry | None, problem: Problem, seen: locked.Seen, space: Searched
) -> Today:
    unvouched = ""
    if entry is not None and not seen.makes and (why := space.unvouched(entry.config, problem)):
        unvouched = f"nothing says that the kernel is right with it: {why}"
    return Today(
        triton=asked.triton,
        source=asked.info.source,
        space=space.digest(problem),
        ir=seen.ir,
        broken=seen.broken,
        unvouched=unvouched,
        hook="" if entry is None else asked.info.hook_of(entry.config),
        unknown=seen.unknown,
    )

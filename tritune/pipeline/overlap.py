"""pipeline.overlap: binaries as they come -> screened while the others still compile.

A thread of the parent takes a problem once all of it is compiled, and screens it on the GPU. What
it learns goes into the journal, where the measuring that follows finds it: so nothing is
handed over twice, and a sweep that dies here has lost nothing. Finals never run while compiling.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from tritune import grouping, measure, places
from tritune.device import Device
from tritune.device.cuda import CudaDevice
from tritune.journal import Journal
from tritune.model import Compiled, Entry, Outcome, Problem, Rejected
from tritune.pipeline import measuring
from tritune.pipeline.job import Job
from tritune.pipeline.prepare import Compiling
from tritune.workers import Pool

D = TypeVar("D", bound=Device)

JOIN_S = 60.0

Stop = Callable[[], None]
"""Raises where screening is to end; it is called after every outcome."""
Screen = Callable[[Sequence[Compiled], Stop], None]


class StoppedError(Exception):
    """The rest of the problem is left to the measuring that follows."""


class Screening(Generic[D]):
    """The thread. What is raised in it is raised again where it is handed work, or left."""

    def __init__(self, screen: Screen, device: D) -> None:
        self.device = device
        self.seconds = 0.0
        """For which the device was busy."""
        self._screen = screen
        self._queue: SimpleQueue[tuple[Compiled, ...] | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="screening", daemon=True)
        self.screened: Counter[Problem] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def hand(self, compiled: Sequence[Compiled]) -> None:
        """All binaries of one problem."""
        self._raise_fault()
        if compiled:
            self._queue.put(tuple(compiled))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End after the outcome at hand; at once where the sweep is being given up."""
        self._stopping.set()
        self._queue.put(None)
        if error is not None:
            self.device.close()  # a call that is under way fails
        self._thread.join(JOIN_S)
        if error is None:
            self._raise_fault()

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while (compiled := self._queue.get()) is not None:
                self._stop()
                began = time.monotonic()
                self._screen(compiled, self._stop)
                self.seconds += time.monotonic() - began
                self.screened[compiled[0].candidate.problem] += len(compiled)
        except StoppedError:
            pass
        except BaseException as fault:  # noqa: BLE001  # the thread's boundary: it is raised again
            self._fault = fault

    def _stop(self) -> None:
        if self._stopping.is_set():
            raise StoppedError


@contextmanager
def on_gpu(job: Job, locked: Mapping[str, Entry]) -> Iterator[Screening[CudaDevice] | None]:
    """Screening on the GPU of a job, whose device stays open; None where there is none.

    What the journal knows is not screened again. A sweep that measures anew whatever it knows
    (`--fresh`) would not look there for what is learnt here, and a budget of GPU time begins with
    the measuring: with either, nothing is screened ahead.
    """
    options = job.options
    if job.setting.index is None or options.fresh or options.budget_s is not None:
        yield None
        return
    path = places.journal_path(job.places.journals, Path(job.sweep.path), job.target.name)
    journal = Journal.open(path)
    device = measuring.open_device(job)
    try:
        with journal.hold():
            yield Screening(partial(_screen, job, locked, journal, device), device)
    except BaseException:
        device.close()
        raise
    finally:
        journal.close()


def _screen(
    job: Job,
    locked: Mapping[str, Entry],
    journal: Journal,
    device: Device,
    compiled: Sequence[Compiled],
    stop: Stop,
) -> None:
    known = measuring.known_outcomes(job, journal, job.setting.triton)
    unknown = [
        one for one in compiled if (one.candidate.problem, one.candidate.config) not in known
    ]
    entry = locked.get(compiled[0].key)

    def record(outcome: Outcome) -> None:
        measuring.write(job, journal, [outcome], "")
        stop()

    measure.screen(
        device,
        unknown,
        default=job.info.default,
        incumbent=entry.config if entry else None,
        timing=job.sweep.timing,
        record=record,
        progress=lambda _: stop(),
    )


def compile_all(
    job: Job,
    pool: Pool,
    groups: Sequence[grouping.Group],
    merge: Callable[[Sequence[Compiled]], tuple[Compiled, ...]],
    screening: Screening[CudaDevice] | None = None,
    *,
    lead: grouping.Lead,
    every_key: bool = False,
) -> tuple[tuple[Compiled, ...], tuple[Rejected, ...]]:
    """Compile one of each group; hand each problem over once it is whole, equal binaries merged."""
    work = Compiling(job, groups, lead, every_key=every_key)
    waiting = Counter(one.candidate.problem for one in groups)
    made: dict[Problem, list[Compiled]] = {problem: [] for problem in waiting}
    rejected: list[Rejected] = []
    name = "compiling" if screening is None else "compiling and screening"
    with job.step(name, work.distinct) as said, screening or nullcontext():
        for one, outcome in work.run(pool):
            problem = one.candidate.problem
            if isinstance(outcome, Compiled):
                made[problem].append(outcome)
            else:
                rejected += [replace(outcome, candidate=each.candidate) for each in one.members]
            waiting[problem] -= 1
            if screening is not None and not waiting[problem]:
                screening.hand(merge(made[problem]))
        said.append(work.said())
        if screening is not None and screening.screened:
            count = sum(screening.screened.values())
            said.append(f"{count:,} candidates screened meanwhile")
    return tuple(one for each in made.values() for one in merge(each)), tuple(rejected)

"""pipeline.overlap: binaries as they come -> screened while the others still compile.

A thread of the parent opens the GPU, takes a problem once all of it is compiled, and screens it.
What it learns goes into the journal, where the measuring that follows finds it: so a sweep that
dies here has lost nothing. Only how it ranks them is handed over, as that holds in one process:
windows far apart saw other clocks. Finals never run while compiling.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from tritune import grouping, measure
from tritune.compile import Found
from tritune.device import Device
from tritune.device.cuda import CudaDevice
from tritune.journal import Journal
from tritune.model import Compiled, Config, Entry, Outcome, Problem, Rejected
from tritune.pipeline import measuring
from tritune.pipeline.cases import still_true
from tritune.pipeline.compilerun import Compiling
from tritune.pipeline.job import Job
from tritune.words import plural
from tritune.workers import Pool

D = TypeVar("D", bound=Device)
T = TypeVar("T")

JOIN_S = 60.0

Screen = Callable[[Sequence[Compiled], "Stop"], measure.Screened]


def _nothing() -> None:
    """Nothing to do ahead."""


class StoppedError(Exception):
    """The sweep is being given up."""


class Stop:
    """Whether screening is to end."""

    def __init__(self) -> None:
        self.soon = threading.Event()
        """After the window at hand: the rest of the problem is left to what follows."""
        self.now = threading.Event()

    def is_over(self) -> bool:
        """Whether another window is not to begin."""
        return self.soon.is_set()

    def check(self) -> None:
        """Raise where nothing that comes now can be trusted: its process may be ended already."""
        if self.now.is_set():
            raise StoppedError


class Screening(Generic[D]):
    """The thread. What is raised in it is raised again where it is handed work, or left."""

    def __init__(self, screen: Screen, device: D, begin: Callable[[], None] = _nothing) -> None:
        """*begin* is called before there is anything to screen."""
        self.device = device
        self.seconds = 0.0
        """For which the device was busy."""
        self._begin, self._screen = begin, screen
        self._queue: SimpleQueue[tuple[Compiled, ...] | None] = SimpleQueue()
        self._stop = Stop()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="screening", daemon=True)
        self.found: dict[Problem, measure.Screened] = {}
        """What was screened of each problem, and what the journal held of it before."""

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
        """End after the window at hand; at once where the sweep is being given up."""
        self._stop.soon.set()
        self._queue.put(None)
        if error is not None:
            self._give_up()
            return
        try:
            # However long it takes: what follows asks the same process, which hears one thread.
            self._thread.join()
        except BaseException:
            self._give_up()
            raise
        self._raise_fault()

    def _give_up(self) -> None:
        self._stop.now.set()
        self.device.close()  # a call that is under way fails
        self._thread.join(JOIN_S)

    @property
    def scores_us(self) -> dict[Problem, dict[Config, float]]:
        """How what was screened ranks, problem by problem."""
        return {problem: screened.by_config() for problem, screened in self.found.items()}

    def _raise_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            self._timed(self._begin)
            while (compiled := self._queue.get()) is not None and not self._stop.is_over():
                screened = self._timed(partial(self._screen, compiled, self._stop))
                self.found[compiled[0].candidate.problem] = screened
        except StoppedError:
            pass
        except BaseException as fault:  # noqa: BLE001  # the thread's boundary: it is raised again
            self._fault = fault

    def _timed(self, work: Callable[[], T]) -> T:
        began = time.monotonic()
        result = work()
        self.seconds += time.monotonic() - began
        return result


@contextmanager
def on_gpu(
    job: Job, locked: Mapping[str, Entry], device: CudaDevice | None
) -> Iterator[Screening[CudaDevice] | None]:
    """Screening on the *device* of a job, if it has one; None where nothing is screened ahead.

    What the journal knows is not screened again. A sweep that measures anew whatever it knows
    (`--fresh`) would not look there for what is learnt here, and a budget of GPU time begins with
    the measuring: with either, nothing is screened ahead.
    """
    options = job.options
    if device is None or options.fresh or options.budget_s is not None:
        yield None
        return
    journal = Journal.open(job.journal)
    try:
        with journal.hold():
            # While others compile; but where all is known no GPU is taken at all.
            begin = _nothing if measuring.is_done(job, journal) else device.open
            yield Screening(partial(_screen, job, locked, journal, device), device, begin)
    finally:
        journal.close()


def _screen(
    job: Job,
    locked: Mapping[str, Entry],
    journal: Journal,
    device: Device,
    compiled: Sequence[Compiled],
    stop: Stop,
) -> measure.Screened:
    journalled = measuring.known_outcomes(job, journal, job.setting.triton)
    problem = compiled[0].candidate.problem
    known = still_true(compiled, measuring.of_problem(journalled, problem))
    entry = locked.get(compiled[0].key)

    def record(outcome: Outcome) -> None:
        # An interrupted sweep ends the process, which says nothing against the candidate in it.
        if isinstance(outcome, Rejected):
            stop.check()
        measuring.write(job, journal, [outcome], "")
        stop.check()

    return measure.screen(
        device,
        [one for one in compiled if one.candidate.config not in known],
        default=job.info.default,
        incumbent=entry.config if entry else None,
        timing=job.sweep.timing,
        record=record,
        progress=lambda _: stop.check(),
        so_far=measure.Screened.of(
            [(one, known[config]) for one in compiled if (config := one.candidate.config) in known]
        ),
        is_over=stop.is_over,
    )


def compile_all(
    job: Job,
    pool: Pool,
    groups: Sequence[grouping.Group],
    found: Found,
    screening: Screening[CudaDevice] | None = None,
    *,
    lead: grouping.Lead,
    entries: set[str] | None = None,
) -> tuple[tuple[Compiled, ...], tuple[Rejected, ...]]:
    """Compile one of each group; hand each problem over once it is whole, equal binaries merged."""
    work = Compiling(job, groups, lead, entries=entries)
    merge = partial(grouping.merge, groups=groups, work=found.by_problem, lead=lead)
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
        if screening is not None and screening.found:
            count = sum(len(one.compiled) for one in screening.found.values())
            said.append(f"{plural(count, 'candidate')} screened meanwhile")
    return tuple(one for each in made.values() for one in merge(each)), tuple(rejected)

"""pipeline.racing: the problems of a kernel and its device -> raced, then confirmed, and told."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tritune.device import cuda, guards
from tritune.device.cuda import CudaDevice
from tritune.device.guards import Guard
from tritune.errors import TrituneError
from tritune.journal import FINALS
from tritune.model import Measured, Outcome
from tritune.pipeline.cases import Case
from tritune.pipeline.job import Job
from tritune.pipeline.rounds import Rounds
from tritune.words import plural
from tritune.workers import Worker

SHOWN = 3
"""Problems that a warning names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Race:
    """Problems on their way: raced, or as the journal knows them, and not confirmed yet."""

    cases: Sequence[Case]
    rounds: Rounds | None = None
    """None where the journal knows it all."""
    device: CudaDevice | None = None
    seconds: float = 0.0
    """For which the GPU was held so far."""


def race(
    job: Job,
    cases: Sequence[Case],
    device: CudaDevice,
    write: Callable[[Sequence[Outcome], str], None],
) -> Race:
    """Screen the cases and run their finals; *write* is told outcomes as they are known."""
    began = time.monotonic()
    todo = sum(len(case.compiled) - len(case.known) for case in cases if not case.done)
    with job.step("measuring", todo) as said:
        uuid = device.uuid()
        sensors = guards.sensors(uuid) if uuid else guards.NoSensors("the GPU has no UUID")
        guard = Guard(device.canary, sensors)
        rounds = _rounds(job, write, device, guard)
        said.extend(_before(job, guard, sensors, cases))
        rounds.race(cases)
        said.extend(_after(job, device, guard, rounds, cases))
    device.leave()
    return Race(cases=cases, rounds=rounds, device=device, seconds=time.monotonic() - began)


def confirm(job: Job, running: Race) -> float:
    """Confirm what was raced; the seconds that this took."""
    began = time.monotonic()
    rounds, device = running.rounds, running.device
    if rounds is None or device is None:
        return 0.0
    waiting = sum(case.done == FINALS for case in running.cases)
    with job.step("confirming", waiting) as said:
        count = rounds.confirm(running.cases)
        anew = plural(count, "config")
        said.append(f"{anew} timed anew in a fresh process: these are the figures")
        device.leave()
        said.append(f"{device.compiles() or 'nothing'} compiled while measuring")
    job.warnings.extend((*rounds.warnings, *device.notes))
    return time.monotonic() - began


def process(job: Job) -> Worker:
    """What holds the GPU, for one kernel of an op after the other."""
    return cuda.process(job.places.logs / "device.log")


def open_device(job: Job, worker: Worker) -> CudaDevice:
    identity = job.setting.identity
    if identity is None or job.setting.index is None:
        raise TrituneError("there is no GPU to measure on")
    return CudaDevice(
        index=job.setting.index,
        kernel=job.sweep.kernel,
        problem=job.sweep.problem,
        default=job.info.default,
        identity=identity,
        triton=job.setting.triton,
        timing=job.sweep.timing,
        cache=job.places.binaries,
        worker=worker,
    )


def _rounds(
    job: Job,
    write: Callable[[Sequence[Outcome], str], None],
    device: CudaDevice,
    guard: Guard,
) -> Rounds:
    return Rounds(
        device=device,
        guard=guard,
        default=job.info.default,
        timing=job.sweep.timing,
        write=write,
        advance=job.observer.advance,
        budget_s=job.options.budget_s,
        allow_noisy=job.options.allow_noisy,
    )


def _before(
    job: Job, guard: Guard, sensors: guards.Nvml | guards.NoSensors, cases: Sequence[Case]
) -> list[str]:
    """Of the step, what is known before it begins."""
    if isinstance(sensors, guards.NoSensors):
        job.warnings.append(f"only a canary watches the GPU: {sensors.why}")
    if guard.first.others:
        pids = guards.pids(guard.first.others)
        job.warnings.append(f"another process is on the GPU from the start ({pids})")
    known = sum(len(case.known) for case in cases)
    return [f"{known:,} were in the journal already"] if known else []


def _after(
    job: Job, device: CudaDevice, guard: Guard, rounds: Rounds, cases: Sequence[Case]
) -> list[str]:
    """Of the step, what it did."""
    outcomes = [one for case in cases for one in case.outcomes]
    timed = sum(isinstance(one, Measured) for one in outcomes)
    said = [f"{plural(timed, 'distinct candidate')} timed on {job.target.name}"]
    floors = [one.floor for one in outcomes if isinstance(one, Measured) and one.finals_us]
    if floors:
        said.append(
            f"one binary differs from itself by {statistics.median(floors):.1%}, "
            f"at most {max(floors):.1%}"
        )
    if guard.readings:
        clocks = [one.sm_mhz for one in guard.readings]
        heat = max(one.celsius for one in guard.readings)
        said.append(f"{min(clocks):,} to {max(clocks):,} MHz, up to {heat} °C")
    if device.restarts:
        said.append(
            f"{plural(device.restarts, 'restart')} of the measuring process, which cost "
            f"{device.restart_s:.0f} s"
        )
    if rounds.again:
        said.append(f"measured again {plural(rounds.again, 'time')}, as the GPU was disturbed")
    _say_open(job, rounds, cases)
    return said


def _say_open(job: Job, rounds: Rounds, cases: Sequence[Case]) -> None:
    if not rounds.left_open:
        return
    job.left_open.extend(rounds.left_open)
    named = "; ".join(map(str, rounds.left_open[:SHOWN]))
    more = len(rounds.left_open) - SHOWN
    job.warnings.append(
        f"the budget of {job.options.budget_s:g} s left {len(rounds.left_open)} of {len(cases)} "
        f"problems as they were: {named}{f' and {more} more' if more > 0 else ''}"
    )

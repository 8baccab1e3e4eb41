"""device.guards: the state of a GPU before and after a piece of work -> whether it was disturbed.

Three witnesses. A canary, a fixed piece of work bound by memory: a power cap that lowers the clock
(normal for an H200 under load) changes little of it, another process does. NVML, where it is
there: who else is on the GPU, and why its clock is low. And the samples themselves: two processes
have a GPU by turns of about a millisecond, so a neighbour that came and went between two canaries,
or was there from the start, leaves samples that waited for the end of its turn. That a stranger
is there is no disturbance but when it comes: an idle notebook takes no turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

CANARY = 0.4
"""A canary this much slower, relative, is disturbed.

Sweeps alone on an H200 stayed below it; beside a process that multiplies matrices without a rest
it was 97 % slower in five windows of five.
"""
CANARY_FLOOR = 3.0
"""Or this many times what one binary is from itself."""
EASED = 0.4
"""A canary this much faster than the first: then the first was disturbed."""
CLOCK = 0.6
"""So much of the first clock is left under a power cap; less is a GPU that something slows."""
TURN_US = 500.0
TURN = 0.5
"""A sample longer than its binary's fastest by both, relative, waited for another process's turn.

On an H200 with no one else on it none of 19,322 samples of finals did; 4 by 200 us.
"""
TURNS = 0.003
FEW_TURNS = 2
"""More than this part of the samples, and more than so many, is a disturbance."""

BAD = {
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
"""NVML's reasons for a low clock that are faults of a machine; its software power cap is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Canary:
    """The time of the fixed work, and the clock it ran under."""

    us: float
    mhz: float
    """0 where the clock cannot be told."""
    pid: int = 0
    """The process that did it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What NVML says of a GPU at one moment."""

    sm_mhz: int = 0
    celsius: int = 0
    reasons: tuple[str, ...] = ()
    """Why its clock is low, of those that are faults."""
    processes: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"{self.sm_mhz:,} MHz, {self.celsius} °C"


class Sensors(Protocol):
    """Reads the state of one GPU."""

    def read(self) -> Reading | None:
        """None where it does not answer."""


class NoSensors:
    """Where there is no NVML; `why` is for the reader."""

    def __init__(self, why: str) -> None:
        self.why = why

    def read(self) -> Reading | None:
        return None


class Nvml:
    """NVML, through nvidia-ml-py."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> Reading | None:
        nvml, handle = self._nvml, self._handle
        bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
        return Reading(
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM) or 0,
            celsius=self._ask("nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU) or 0,
            reasons=tuple(words for bit, words in BAD.items() if bits & bit),
            processes=frozenset(
                process.pid
                for process in self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()
            ),
        )

    def _ask(self, name: str, *args: Any) -> Any:
        """None where a driver, a container or a MIG slice does not tell."""
        try:
            return getattr(self._nvml, name)(*args)
        except (self._nvml.NVMLError, AttributeError):
            return None


def sensors(uuid: str) -> Nvml | NoSensors:
    """The sensors of the GPU with this UUID, as `GPU-…`; NVML is given back with this process."""
    try:
        import pynvml
    except ImportError:
        return NoSensors("nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return NoSensors(f"NVML does not answer: {error}")


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """One moment: a canary and a reading."""

    canary: Canary
    reading: Reading | None = None
    own: frozenset[int] = frozenset()
    """Of the processes on the GPU, ours."""

    @property
    def others(self) -> frozenset[int]:
        return (self.reading.processes if self.reading else frozenset()) - self.own


class Guard:
    """Watches a GPU through a sweep: every piece of work is between two looks at it."""

    def __init__(self, canary: Callable[[], Canary], found: Sensors) -> None:
        self._canary, self._sensors = canary, found
        self._own: frozenset[int] = frozenset()
        self._pid = -1
        self.first = self._last = self._look()
        self.readings: list[Reading] = [self.first.reading] if self.first.reading else []

    def look(self) -> str:
        """Begin a piece of work here; what is wrong already, empty where nothing is."""
        self._last = self._look()
        return disturbance(self.first, self._last, self._last)

    def check(self, floor: float = 0.0, series: Sequence[Sequence[float]] = ()) -> str:
        """What disturbed the piece of work that ends here; the next one begins.

        *series* are the samples that it took, of one binary each.
        """
        before, self._last = self._last, self._look()
        if self._last.reading:
            self.readings.append(self._last.reading)
        said = disturbance(self.first, before, self._last, floor), interruption(series)
        return "; ".join(filter(None, said))

    def eased(self) -> bool:
        """Whether the GPU is so much quieter than at first that the start was no standard.

        From here on it is compared with now.
        """
        if slower(self._last.canary, self.first.canary) <= EASED:
            return False
        self.first = self._last
        return True

    @property
    def off(self) -> float:
        """How much slower than at first the GPU was at the last look, relative."""
        return slower(self.first.canary, self._last.canary)

    def _look(self) -> State:
        canary, reading = self._canary(), self._sensors.read()
        if reading is not None and canary.pid in reading.processes:
            self._own = frozenset({canary.pid})
        elif reading is not None and canary.pid != self._pid:
            # In a container the ids are those of the host: ours is one of those that are there
            # when our process is new.
            self._own = reading.processes
        self._pid = canary.pid
        return State(canary=canary, reading=reading, own=self._own)


def slower(first: Canary, now: Canary) -> float:
    """How much longer the fixed work takes than at first, relative; not below 0."""
    return max(0.0, now.us / first.us - 1)


def disturbance(first: State, before: State, after: State, floor: float = 0.0) -> str:
    """What disturbed the GPU between *before* and *after*; empty where nothing did."""
    said: list[str] = []
    if new := after.others - before.others:
        said.append(f"another process came onto the GPU ({pids(new)})")
    if after.reading and after.reading.reasons:
        said.append(f"{' and '.join(after.reading.reasons)} at {after.reading}")
    worst = max(slower(first.canary, before.canary), slower(first.canary, after.canary))
    if worst > max(CANARY, CANARY_FLOOR * floor):
        said.append(f"its fixed test work takes {worst:.0%} longer than at the start")
    if after.canary.mhz < CLOCK * first.canary.mhz:
        said.append(f"its clock fell from {first.canary.mhz:,.0f} to {after.canary.mhz:,.0f} MHz")
    return "; ".join(said)


def interruption(series: Sequence[Sequence[float]]) -> str:
    """Whether samples waited for another process's turn; empty where none did, or few."""
    total = sum(map(len, series))
    waited = sum(map(_waited, filter(None, series)))
    if waited <= max(FEW_TURNS, TURNS * total):
        return ""
    return (
        f"{waited} of {total:,} samples took over {TURN_US / 1000:g} ms longer than the same "
        "config before or after: another process has its turns on the GPU"
    )


def _waited(samples: Sequence[float]) -> int:
    fastest = min(samples)
    return sum(us > fastest + max(TURN_US, TURN * fastest) for us in samples)


def pids(processes: frozenset[int]) -> str:
    """How a line names them."""
    return ", ".join(f"pid {pid}" for pid in sorted(processes))

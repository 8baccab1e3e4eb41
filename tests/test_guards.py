"""Guards: what counts as a disturbed GPU, and what is done about it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fakes import FakeDevice, compiled, config
from tritune.device import guards
from tritune.device.guards import (
    Canary,
    Guard,
    NoSensors,
    Nvml,
    Reading,
    State,
    disturbance,
    interruption,
)
from tritune.errors import EnvironmentFaultError
from tritune.model import (
    Candidate,
    Compiled,
    Measured,
    Outcome,
    Problem,
    Rejected,
    Timing,
    Verified,
)
from tritune.pipeline.cases import Case
from tritune.pipeline.rounds import Rounds

QUIET = Canary(us=200.0, mhz=1700.0)


def state(
    us: float = 200.0,
    mhz: float = 1700.0,
    reasons: Sequence[str] = (),
    others: Sequence[int] = (),
) -> State:
    reading = Reading(
        sm_mhz=1700, celsius=60, reasons=tuple(reasons), processes=frozenset({1, *others})
    )
    return State(canary=Canary(us=us, mhz=mhz), reading=reading, own=frozenset({1}))


def test_a_quiet_gpu_is_not_disturbed() -> None:
    assert disturbance(state(), state(), state(us=203.0)) == ""


def test_a_power_cap_that_lowers_the_clock_is_no_disturbance() -> None:
    assert disturbance(state(), state(), state(us=250.0, mhz=1360.0)) == ""


def test_work_that_takes_longer_is_a_disturbance() -> None:
    assert disturbance(state(), state(), state(us=320.0)) == (
        "its fixed test work takes 60% longer than at the start"
    )


def test_what_the_noise_floor_explains_is_no_disturbance() -> None:
    assert disturbance(state(), state(), state(us=210.0), floor=0.02) == ""


def test_without_a_clock_the_time_itself_is_compared() -> None:
    assert disturbance(state(mhz=0), state(mhz=0), state(us=300.0, mhz=0)) == (
        "its fixed test work takes 50% longer than at the start"
    )


def test_samples_that_waited_for_a_neighbours_turn_are_a_disturbance() -> None:
    quiet = [20.0] * 98
    series = [[*quiet, 2000.0, 55.0], [*quiet, 1900.0, 1300.0], []]

    assert interruption(series) == (
        "3 of 200 samples took over 0.5 ms longer than the same config before or after: another "
        "process has its turns on the GPU"
    )


@pytest.mark.parametrize(
    "series",
    [
        [],
        [[20.0] * 98 + [2000.0] * 2],
        [[20.0] * 90 + [60.0] * 10],
        [[9000.0] * 90 + [9800.0] * 10],
        [[20.0] * 999 + [2000.0], [30.0] * 998 + [2000.0] * 2],
    ],
)
def test_two_late_samples_small_ones_and_the_few_of_many_are_none(
    series: list[list[float]],
) -> None:
    assert interruption(series) == ""


def test_a_disturbance_before_the_work_counts_too() -> None:
    assert disturbance(state(), state(us=300.0), state()) != ""


def test_a_process_that_comes_onto_the_gpu_is_named() -> None:
    assert disturbance(state(), state(others=[7]), state(others=[7, 9, 8])) == (
        "another process came onto the GPU (pid 8, pid 9)"
    )


def test_a_fault_that_slows_the_clock_is_named() -> None:
    assert disturbance(state(), state(), state(reasons=["hardware thermal slowdown"])) == (
        "hardware thermal slowdown at 1,700 MHz, 60 °C"
    )


def test_a_clock_that_falls_far_is_a_disturbance_without_nvml_too() -> None:
    first, now = (State(canary=Canary(us=us, mhz=mhz)) for us, mhz in ((200, 1700), (210, 850)))

    assert disturbance(first, first, now) == "its clock fell from 1,700 to 850 MHz"


class Sensors:
    """NVML that shows the processes of each look."""

    def __init__(self, *looks: set[int]) -> None:
        self._looks = [*looks]

    def read(self) -> Reading:
        return Reading(processes=frozenset(self._looks.pop(0)))


def test_our_own_process_and_its_successor_are_no_strangers() -> None:
    pids = iter([50, 50, 60])
    guard = Guard(
        lambda: Canary(us=1.0, mhz=0.0, pid=next(pids)), Sensors({50, 7}, {50, 7}, {60, 7})
    )

    assert guard.first.others == {7}
    assert (guard.check(), guard.check()) == ("", "")


def test_in_a_container_that_shows_other_ids_a_stranger_is_still_seen() -> None:
    guard = Guard(lambda: Canary(us=1.0, mhz=0.0, pid=2), Sensors({9050}, {9050}, {9050, 9077}))

    assert guard.first.others == set()
    assert guard.check() == ""
    assert guard.check() == "another process came onto the GPU (pid 9077)"


class NVMLError(Exception):
    """As pynvml has it."""


def nvml(**answers: Any) -> ModuleType:
    """A pynvml that answers as given, and else refuses."""
    module = ModuleType("pynvml")

    def refuse(*_: object) -> None:
        raise NVMLError("Not Supported")

    names = (
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetHandleByUUID",
        "nvmlInit",
        "nvmlShutdown",
    )
    for name in names:
        setattr(module, name, answers.get(name, refuse))
    module.NVMLError = NVMLError  # type: ignore[attr-defined]
    module.NVML_CLOCK_SM = 1  # type: ignore[attr-defined]
    module.NVML_TEMPERATURE_GPU = 0  # type: ignore[attr-defined]
    return module


def test_what_nvml_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _: 0x4 | 0x8,
        "nvmlDeviceGetClockInfo": lambda *_: 1755,
        "nvmlDeviceGetTemperature": lambda *_: 51,
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=3)],
    }
    monkeypatch.setitem(sys.modules, "pynvml", nvml(**answers))

    found = guards.sensors("GPU-1")

    assert found.read() == Reading(
        sm_mhz=1755, celsius=51, reasons=("hardware slowdown",), processes=frozenset({3})
    )


def test_what_nvml_does_not_support_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nvml(nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=lambda uuid: uuid)
    monkeypatch.setitem(sys.modules, "pynvml", module)

    found = guards.sensors("GPU-1")

    assert isinstance(found, Nvml)
    assert found.read() == Reading()


def test_without_nvml_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = guards.sensors("GPU-1")
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    silent = guards.sensors("GPU-1")

    assert isinstance(missing, NoSensors)
    assert missing.why == "nvidia-ml-py is not installed"
    assert isinstance(silent, NoSensors)
    assert silent.why == "NVML does not answer: Not Supported"


def by_block(this: Candidate) -> float:
    return 100.0 + 10 * int(str(this.config["BLOCK"]))


class Gpu(FakeDevice):
    """A GPU whose canaries take what they are told, the last one for good."""

    def __init__(self, *us: float) -> None:
        super().__init__(by_block)
        self._us = list(us)
        self.problems: list[Problem] = []

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        if compiled.candidate.config == config(BLOCK=3):
            self.problems.append(compiled.candidate.problem)
        return super().verify(compiled)

    def canary(self) -> Canary:
        return Canary(us=self._us.pop(0) if len(self._us) > 1 else self._us[0], mhz=0.0)


def problem(number: int) -> Problem:
    return Problem.of({"M": number})


def case(number: int = 1, count: int = 3) -> Case:
    binaries = tuple(compiled(problem=problem(number), BLOCK=1 + i) for i in range(count))
    return Case(compiled=binaries, incumbent=None)


class Written(list[tuple[Sequence[Outcome], str]]):
    """What went into the journal."""

    @property
    def stages(self) -> list[str]:
        return [done for _, done in self if done]


def rounds(device: FakeDevice, written: Written | None = None, **changed: Any) -> Rounds:
    sink = Written() if written is None else written
    fields: dict[str, Any] = {
        "device": device,
        "guard": Guard(device.canary, NoSensors("")),
        "default": config(BLOCK=1),
        "timing": Timing(),
        "write": lambda outcomes, done: sink.append((list(outcomes), done)),
        "advance": lambda _: None,
        "sleep": lambda _: None,
    }
    return Rounds(**fields | changed)


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that goes on by a step whenever it is read."""
    times: Iterator[float] = (i * step_s for i in range(10**6))
    return lambda: next(times)


def test_a_disturbed_problem_is_measured_again_and_then_counts() -> None:
    written = Written()
    device = Gpu(100.0, 160.0, 100.0)
    sweep = rounds(device, written)
    one = case()

    sweep.race([one])

    assert (sweep.again, sweep.warnings, one.done) == (1, [], "finals")
    assert written.stages == ["finals"]
    assert len([this for this in device.verified if this == config(BLOCK=2)]) == 2


def test_when_the_start_turns_out_to_have_been_disturbed_all_since_is_measured_again() -> None:
    written = Written()
    device = Gpu(150.0, 150.0, 150.0, 100.0)
    sweep = rounds(device, written)
    cases = [case(number) for number in (1, 2, 3)]

    sweep.race(cases)

    assert sweep.again == 3
    assert [len(set(windows_of(device, one))) for one in cases] == [2, 2, 2]
    assert [one.done for one in cases] == ["finals"] * 3


def windows_of(device: Gpu, one: Case) -> list[int]:
    """The runs in which the first candidate of a problem was verified."""
    return [i for i, seen in enumerate(device.problems) if seen == one.problem]


class Shared(FakeDevice):
    """A GPU on which another process has its turns while some windows are taken; canaries miss it.

    A turn of two milliseconds falls into every tenth sample.
    """

    def __init__(self, busy: range) -> None:
        super().__init__(by_block)
        self._busy = busy
        self._count = 0

    def _answer(self, this: Candidate, rounds: range) -> tuple[float, ...] | Rejected:
        answer = super()._answer(this, rounds)
        assert not isinstance(answer, Rejected)
        if len(self.windows) not in self._busy:
            return answer
        self._count += 1
        return tuple(
            us + 2000 * ((self._count + i) % 10 == 0) for i, us in enumerate(answer, self._count)
        )


def test_a_neighbour_between_two_canaries_has_its_problem_measured_again() -> None:
    alone, shared = case(), case()
    rounds(FakeDevice(by_block)).race([alone])
    sweep = rounds(Shared(range(3, 7)))

    sweep.race([shared])

    assert (sweep.again, sweep.warnings) == (1, [])
    assert shared.outcomes == alone.outcomes


def test_a_neighbour_that_stays_is_refused_though_the_canaries_miss_it() -> None:
    sweep = rounds(Shared(range(10**6)))

    with pytest.raises(EnvironmentFaultError, match="another process has its turns on the GPU"):
        sweep.race([case()])


def test_a_gpu_that_stays_disturbed_is_refused_and_its_problem_not_done() -> None:
    written = Written()
    sweep = rounds(Gpu(100.0, 160.0), written, clock=ticking(1.0))

    with pytest.raises(EnvironmentFaultError) as caught:
        sweep.race([case(), case(2)])

    assert caught.value.exit_code == 3
    assert str(caught.value) == (
        "M=1: the GPU is disturbed, so nothing is locked: its fixed test work takes 60% longer "
        "than at the start\n"
        "hint: sweep again when it is quiet, what is done is kept; or lock as it is with "
        "`--allow-noisy`"
    )
    assert written.stages == []
    assert len(written) == 9


def test_allowed_noise_is_told_and_stands_in_the_outcomes() -> None:
    written = Written()
    sweep = rounds(Gpu(100.0, 160.0), written, clock=ticking(1.0), allow_noisy=True)
    one = case()

    sweep.race([one])

    assert sweep.warnings == [
        "M=1: measured on a disturbed GPU: its fixed test work takes 60% longer than at the start"
    ]
    assert written.stages == []
    assert {outcome.floor for outcome in one.outcomes if isinstance(outcome, Measured)} == {0.6}


def test_a_budget_leaves_the_later_problems_as_they_are() -> None:
    cases = [case(number) for number in range(1, 9)]
    sweep = rounds(Gpu(100.0), clock=ticking(1.0), budget_s=6.0)

    sweep.race(cases)
    sweep.confirm(cases)

    assert 0 < len(sweep.left_open) < 8
    assert [one.problem for one in cases if not one.done] == sweep.left_open
    assert {one.done for one in cases if one.done} == {"confirm"}
    assert all(one.outcomes == () for one in cases if not one.done)


def test_a_budget_of_nothing_measures_nothing() -> None:
    device = Gpu(100.0)

    rounds(device, budget_s=0.0).race([case()])

    assert device.windows == []


def test_all_problems_are_confirmed_in_one_fresh_process() -> None:
    written = Written()
    device = Gpu(100.0)
    sweep = rounds(device, written)
    cases = [case(1), case(2)]

    sweep.race(cases)
    count = sweep.confirm(cases)

    assert (device.renewed, count) == (1, 6)
    assert written.stages == ["finals", "finals", "confirm", "confirm"]
    assert all(
        isinstance(one, Measured) and len(one.confirm_us) == 15
        for each in cases
        for one in each.outcomes
    )


def test_nothing_to_confirm_starts_no_process() -> None:
    device = Gpu(100.0)

    assert rounds(device).confirm([Case(compiled=(compiled(),), incumbent=None)]) == 0
    assert device.renewed == 0

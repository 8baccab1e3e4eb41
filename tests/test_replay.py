"""Sweeping on a recorded GPU: cut off anywhere and resumed, it decides as an undisturbed one."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import (
    H200,
    H200_IDENTITY,
    KERNEL,
    TRITON,
    compiled,
    config,
    entry,
    grid_compiled,
    grid_outcomes,
    grid_problems,
    measured,
    rejected,
)
from replay_device import ReplayDevice
from tritune import choose, lock, lockrender
from tritune.device.guards import Guard, NoSensors
from tritune.journal import Journal
from tritune.model import (
    Compiled,
    Config,
    Lock,
    Measured,
    Outcome,
    Problem,
    Reason,
    Rejected,
    Timing,
)
from tritune.pipeline.cases import Case, resumed, still_true
from tritune.pipeline.rounds import Rounds

TIMING = Timing()
UNDER = {
    "source": "s1",
    "device": H200_IDENTITY,
    "protocol": TIMING.protocol(),
    "triton": TRITON,
}
MANY = 40
"""Binaries of each problem: enough for three chunks of screening."""


class Device(ReplayDevice):
    """Counts what it is asked."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        super().__init__(outcomes, target=H200, triton=TRITON)
        self.windows: list[tuple[Compiled, ...]] = []
        self.renewed = 0

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        self.windows.append(tuple(compiled))
        return super().sample(compiled, rounds, first)

    def renew(self) -> None:
        self.renewed += 1


SPACE = {problem: grid_compiled(problem)[:MANY] for problem in grid_problems()[:3]}
DEFAULT = SPACE[grid_problems()[0]][0].candidate.config


def cases(journal: Journal, space: Mapping[Problem, Sequence[Compiled]]) -> list[Case]:
    known = journal.known(KERNEL, "s1", H200_IDENTITY, TIMING.protocol(), TRITON)
    done = journal.done(KERNEL, "s1", H200_IDENTITY, TIMING.protocol(), TRITON)
    return [
        resumed(
            binaries,
            {this: one for (of, this), one in known.items() if of == problem},
            done=done.get(problem, ""),
            default=DEFAULT,
            incumbent=None,
        )
        for problem, binaries in space.items()
    ]


def sweep(
    path: Path, device: Device, space: Mapping[Problem, Sequence[Compiled]] = SPACE
) -> tuple[str, list[Case]]:
    """The lockfile of a sweep that goes on with what the journal holds."""
    journal = Journal.open(path)
    todo = cases(journal, space)
    rounds = Rounds(
        device=device,
        guard=Guard(device.canary, NoSensors("")),
        default=DEFAULT,
        timing=TIMING,
        write=lambda outcomes, done: journal.record_all(outcomes, **UNDER, done=done),
        advance=lambda _: None,
    )
    rounds.race(todo)
    rounds.confirm(todo)
    journal.close()
    return locked(todo), todo


def locked(done: Sequence[Case]) -> str:
    winners = [
        choose.choose(
            case.outcomes,
            kernel=KERNEL,
            key=case.compiled[0].key,
            default=DEFAULT,
            incumbent=None,
            triton=TRITON,
        )
        for case in done
    ]
    found = [winner for winner in winners if winner is not None]
    return lockrender.render(lock.merge_winners(Lock(), H200_IDENTITY, found))


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.jsonl"


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, str]:
    """The journal of a sweep that nothing interrupts, and its lockfile."""
    path = tmp_path_factory.mktemp("undisturbed") / "sweep.jsonl"
    text, _ = sweep(path, Device(grid_outcomes()))
    return path.read_bytes(), text


@pytest.mark.parametrize("seed", range(20))
def test_cut_off_anywhere_and_resumed_it_locks_the_same_bytes(
    path: Path, undisturbed: tuple[bytes, str], seed: int
) -> None:
    journal, text = undisturbed
    cut = random.Random(seed).randrange(1, len(journal))  # noqa: S311
    path.write_bytes(journal[:cut])

    again, _ = sweep(path, Device(grid_outcomes()))

    assert again == text
    assert max(screenings(path).values()) == 1


def screenings(path: Path) -> Counter[str]:
    """How often each candidate was screened."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return Counter(
        json.dumps([line["problem"], line["config"]])
        for line in lines
        if "us" in line and "finals" not in line
    )


def test_what_is_done_is_not_measured_again(path: Path, undisturbed: tuple[bytes, str]) -> None:
    journal, text = undisturbed
    path.write_bytes(journal)
    device = Device(grid_outcomes())

    again, _ = sweep(path, device)

    assert (again, device.windows, device.renewed) == (text, [], 0)
    assert path.read_bytes() == journal


def test_a_config_more_measures_only_that_and_the_finals_of_its_problem(
    path: Path, undisturbed: tuple[bytes, str]
) -> None:
    path.write_bytes(undisturbed[0])
    [first, *_] = SPACE
    added = grid_compiled(first)[MANY]
    device = Device(grid_outcomes())

    sweep(path, device, {**SPACE, first: (*SPACE[first], added)})

    assert {one.candidate.problem for window in device.windows for one in window} == {first}
    assert added in device.windows[0]
    assert len(device.windows[0]) == 3, "it, a standard, and the best so far"
    assert max(screenings(path).values()) <= 2


def test_a_shape_more_measures_only_that(path: Path, undisturbed: tuple[bytes, str]) -> None:
    path.write_bytes(undisturbed[0])
    added = grid_problems()[3]
    device = Device(grid_outcomes())

    sweep(path, device, {**SPACE, added: grid_compiled(added)[:MANY]})

    assert {one.candidate.problem for window in device.windows for one in window} == {added}


def test_another_binary_under_the_same_config_is_measured(path: Path) -> None:
    one, other = compiled(BLOCK=64), replace(compiled(BLOCK=64), binary="another")

    case = resumed(
        [other], {config(BLOCK=64): measured(BLOCK=64)}, done="", default=DEFAULT, incumbent=None
    )

    assert one.binary != other.binary
    assert case.known == {}


def test_a_new_incumbent_that_was_in_no_final_makes_it_race_again() -> None:
    raced = measured(finals=[10.0] * 30, BLOCK=64)
    screened = measured(BLOCK=128)
    both = [raced.compiled, screened.compiled]
    known: dict[Config, Outcome] = {config(BLOCK=64): raced, config(BLOCK=128): screened}

    def stage(incumbent: Config | None) -> str:
        return resumed(
            both, known, done="finals", default=config(BLOCK=64), incumbent=incumbent
        ).done

    assert (stage(None), stage(config(BLOCK=128))) == ("finals", "")


def test_the_winner_has_samples_of_the_confirmation(undisturbed: tuple[bytes, str]) -> None:
    lines = [json.loads(line) for line in undisturbed[0].splitlines()]

    confirmed = [line for line in lines if "confirm" in line]
    stages = Counter(line["done"] for line in lines if "done" in line)
    assert stages == {"finals": 3, "confirm": 3}
    assert 6 <= len(confirmed) <= 15


def test_what_was_never_recorded_is_said_to_be() -> None:
    device = Device([])

    answer = device.verify(compiled(BLOCK=64))

    assert isinstance(answer, Rejected)
    assert answer.detail == "not in the record"


def test_a_second_name_takes_other_samples() -> None:
    recorded = Measured(compiled=compiled(BLOCK=64), samples_us=(1.0, 2.0, 3.0, 4.0))

    one, other = Device([recorded]).sample([recorded.compiled] * 2, 3, 1)

    assert (one, other) == ((2.0, 3.0, 4.0), (4.0, 1.0, 2.0))


def test_finals_that_are_confirmed_anew_lose_the_old_confirmation() -> None:
    old = replace(measured(finals=[10.0] * 30, BLOCK=64), confirm_us=(9.0,) * 15)
    never = measured(finals=[11.0] * 30, BLOCK=128)

    case = resumed(
        [old.compiled, never.compiled],
        {config(BLOCK=64): old, config(BLOCK=128): never},
        done="confirm",
        default=config(BLOCK=64),
        incumbent=config(BLOCK=128),
    )

    assert (case.done, case.outcomes) == ("finals", (replace(old, confirm_us=()), never))


@pytest.mark.parametrize("reason", list(Reason))
def test_what_memory_or_a_clock_decided_is_measured_again(reason: Reason) -> None:
    out = rejected(reason, BLOCK=64)

    known = still_true([compiled(BLOCK=64)], {config(BLOCK=64): out})

    lasting = {Reason.WRONG, Reason.LAUNCH, Reason.HANG}
    assert known == ({config(BLOCK=64): out} if reason in lasting else {})


def test_of_one_binary_under_two_names_the_last_that_was_written_counts() -> None:
    binary = compiled(BLOCK=64, aliases=[config(BLOCK=65)])
    other = replace(binary, candidate=compiled(BLOCK=65).candidate, aliases=(config(BLOCK=64),))
    early = Measured(compiled=binary, samples_us=(10.0,))
    late = Measured(compiled=other, samples_us=(20.0,))

    known = still_true([binary], {config(BLOCK=64): early, config(BLOCK=65): late})

    assert known == {config(BLOCK=64): replace(late, compiled=binary)}


def test_an_old_confirmation_is_taken_out_of_the_journal_too() -> None:
    stale = replace(measured(11.0, finals=[11.0] * 30, BLOCK=128), confirm_us=(9.0,) * 15)
    others = [measured(us, finals=[us] * 30, BLOCK=block) for us, block in NEAR]
    every = [*others, stale]
    case = resumed(
        [one.compiled for one in every],
        {one.candidate.config: one for one in every},
        done="finals",
        default=config(BLOCK=64),
        incumbent=None,
    )
    device, written = Device(every), []
    rounds = Rounds(
        device=device,
        guard=Guard(device.canary, NoSensors("")),
        default=config(BLOCK=64),
        timing=TIMING,
        write=lambda outcomes, _: written.extend(outcomes),
        advance=lambda _: None,
    )

    rounds.confirm([case])

    assert replace(stale, confirm_us=()) in written
    assert len(written) == len(NEAR) + 1


NEAR = ((10.0, 64), (10.1, 65), (10.2, 66))


class Shifty(Device):
    """A GPU on which a binary takes as long as its process makes it, and the next one may not."""

    def __init__(self, processes_us: Sequence[Mapping[int, float]]) -> None:
        super().__init__([])
        self.processes_us = processes_us  # of each confirming process, the time by its BLOCK
        self.process = -1

    def renew(self) -> None:
        self.process += 1

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        us = self.processes_us[self.process]
        return tuple((us[int(str(one.candidate.config["BLOCK"]))],) * rounds for one in compiled)


def confirmed_in(
    *processes_us: Mapping[int, float],
    incumbent: Config | None = None,
    advance: Callable[[str], None] = lambda _: None,
) -> tuple[Case, list[str], int]:
    """A race that 65 leads by 3 %, confirmed; the stages that were written; how many processes."""
    raced = [measured(us, finals=[us] * 30, BLOCK=block) for us, block in ((10.0, 64), (9.7, 65))]
    case = resumed(
        [one.compiled for one in raced],
        {one.candidate.config: one for one in raced},
        done="finals",
        default=config(BLOCK=64),
        incumbent=incumbent,
    )
    device, stages = Shifty(processes_us), list[str]()
    rounds = Rounds(
        device=device,
        guard=Guard(device.canary, NoSensors("")),
        default=config(BLOCK=64),
        timing=TIMING,
        write=lambda _, stage: stages.append(stage),
        advance=advance,
    )
    rounds.confirm([case])
    return case, stages, device.process + 1


def chosen(case: Case) -> Config:
    found = choose.choose(
        case.outcomes,
        kernel=KERNEL,
        key="",
        default=config(BLOCK=64),
        incumbent=None if case.incumbent is None else entry(case.incumbent),
        triton=TRITON,
    )
    assert found is not None
    return found.config


LEADS, LED = {64: 10.0, 65: 9.7}, {64: 10.0, 65: 9.97}


def test_a_locked_config_goes_only_if_a_third_process_says_so_too() -> None:
    incumbent = config(BLOCK=64)

    stays = confirmed_in(LEADS, LED, incumbent=incumbent)
    goes = confirmed_in(LEADS, LEADS, incumbent=incumbent)

    assert (chosen(stays[0]), *stays[1:]) == (incumbent, ["", "confirm"], 2)
    assert (chosen(goes[0]), *goes[1:]) == (config(BLOCK=65), ["", "confirm"], 2)
    assert goes[0].done == "confirm"


def test_what_changes_no_locked_config_is_confirmed_once() -> None:
    nothing_locked = confirmed_in(LEADS)
    stays = confirmed_in(LED, incumbent=config(BLOCK=64))

    assert (chosen(nothing_locked[0]), *nothing_locked[1:]) == (config(BLOCK=65), ["confirm"], 1)
    assert (chosen(stays[0]), *stays[1:]) == (config(BLOCK=64), ["confirm"], 1)


def test_what_was_locked_since_a_confirmation_goes_only_after_a_third_process_too() -> None:
    nothing_locked, _, _ = confirmed_in(LEADS)
    asked, _, _ = confirmed_in(LEADS, LEADS, incumbent=config(BLOCK=64))

    def stage(before: Case, incumbent: Config) -> str:
        known = {one.candidate.config: one for one in before.outcomes}
        return resumed(
            before.compiled, known, done="confirm", default=config(BLOCK=64), incumbent=incumbent
        ).done

    assert stage(nothing_locked, config(BLOCK=64)) == "finals"
    assert stage(nothing_locked, config(BLOCK=65)) == "confirm"
    assert stage(asked, config(BLOCK=64)) == "confirm"


def test_progress_counts_a_problem_once_that_is_confirmed_twice() -> None:
    said: list[str] = []

    case, *_ = confirmed_in(LEADS, LEADS, incumbent=config(BLOCK=64), advance=said.append)

    assert said == [f"{case.problem}: confirmed"]

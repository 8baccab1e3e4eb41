"""Measuring as a sweep does it: a journal, a GPU that is taken only if needed, what is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import H200, H200_IDENTITY, KERNEL, TRITON, FakeDevice, compiled, config, rejected
from test_views import info
from tritune import places
from tritune.compile import Found
from tritune.errors import EnvironmentFaultError
from tritune.journal import Journal
from tritune.model import (
    Compiled,
    Config,
    Launches,
    Measured,
    Outcome,
    Problem,
    Rejected,
    Sweep,
    Winner,
)
from tritune.pipeline import conclude, measuring, racing
from tritune.pipeline.job import Job, SweepOptions
from tritune.pipeline.overlap import Screening
from tritune.places import Places
from tritune.setting import Setting

DEFAULT = config(BLOCK=1)
PROBLEMS = tuple(Problem.of({"M": number}) for number in (1, 2, 3))


class Gpu(FakeDevice):
    """A GPU with no sensors, as the measuring process shows it."""

    opened = 0
    """How often one was asked for what it is: before finals."""

    def __init__(self, **_: Any) -> None:
        super().__init__(lambda this: 100.0 - int(str(this.config["BLOCK"])), noise=0.001)
        self.notes = ["a note"]
        self.restarts = 2
        self.restart_s = 9.6

    def uuid(self) -> str:
        Gpu.opened += 1
        return ""


class Silent:
    """An observer that nobody watches."""

    def stage(self, name: str, total: int | None) -> None:
        """Say nothing."""

    def advance(self, text: str = "") -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


@pytest.fixture(name="folder", autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(racing, "CudaDevice", Gpu)
    Gpu.opened = 0
    return tmp_path


def job(folder: Path, *, record: Path | None = None, **options: Any) -> Job:
    return Job(
        sweep=Sweep(
            path=str(folder / "sweep.yaml"),
            kernel=KERNEL,
            problem=None,
            targets=(),
            space=(),
            problems=PROBLEMS,
        ),
        options=SweepOptions(**options),
        info=replace(info(), default=DEFAULT, source="s1"),
        setting=Setting(
            target=H200,
            identity=H200_IDENTITY,
            index=0 if record is None else None,
            record=record,
            triton=TRITON,
        ),
        places=Places(journals=folder, binaries=folder, logs=folder, source="5c5c5c5c5c5c"),
        observer=Silent(),
    )


def binaries(*problems: Problem) -> list[Compiled]:
    return [
        compiled(problem=problem, key=str(problem), BLOCK=block)
        for problem in problems or PROBLEMS
        for block in (1, 2, 10)
    ]


def on_gpu(
    this: Job,
    made: Sequence[Compiled],
    out: Sequence[Rejected] = (),
    *,
    screening: Screening[Any] | None = None,
) -> tuple[Outcome, ...]:
    """What is measured of one kernel, after what was screened ahead."""
    with racing.process(this) as worker:
        device = screening.device if screening else racing.open_device(this, worker)
        scores_us = screening.scores_us if screening else {}
        running = measuring.raced(this, made, out, {}, device, scores_us)
        outcomes, _ = measuring.confirmed(this, running)
    return outcomes


def measure(this: Job, found: Sequence[Compiled] | None = None) -> tuple[Outcome, ...]:
    oversize = rejected(problem=PROBLEMS[0], BLOCK=4096)
    return on_gpu(this, binaries() if found is None else found, [oversize])


def said(this: Job) -> dict[str, str]:
    return {step.name: step.text for step in this.steps}


def journal_of(folder: Path) -> Path:
    return places.journal_path(folder, folder / "sweep.yaml", "H200")


def found() -> Found:
    launches = [
        Launches(candidate=one.candidate, key=one.key, grids=((1,),), compile_class=one.binary)
        for one in binaries()
    ]
    return Found(work=(), launches=tuple(launches), rejected=())


def winners(this: Job, outcomes: Sequence[Outcome]) -> tuple[Winner, ...]:
    return conclude.winners(this, outcomes, found(), {}, TRITON)


def test_a_sweep_says_what_it_timed_how_noisy_it_was_and_what_restarts_cost(folder: Path) -> None:
    this = job(folder)

    outcomes = measure(this)

    assert all(isinstance(one, Measured) and one.confirm_us for one in outcomes)
    floors = sorted(one.floor for one in outcomes if isinstance(one, Measured))
    assert said(this) == {
        "measuring": "9 distinct candidates timed on H200 · one binary differs from itself by "
        f"{floors[4]:.1%}, at most {floors[-1]:.1%} · 2 restarts of the measuring process, which "
        "cost 10 s",
        "confirming": "9 configs timed anew in a fresh process: these are the figures · "
        "nothing compiled while measuring",
    }
    assert this.warnings == ["only a canary watches the GPU: the GPU has no UUID", "a note"]


def test_a_second_sweep_takes_no_gpu_and_writes_nothing(folder: Path) -> None:
    first = measure(job(folder))
    before = journal_of(folder).read_bytes()
    this = job(folder)

    again = measure(this)

    assert again == first
    assert Gpu.opened == 1
    assert said(this) == {"measuring": "all 9 distinct candidates are in the journal already"}
    assert journal_of(folder).read_bytes() == before


def test_fresh_measures_it_all_again(folder: Path) -> None:
    measure(job(folder))
    this = job(folder, fresh=True)

    measure(this)

    assert Gpu.opened == 2
    assert said(this)["measuring"].startswith("9 distinct candidates timed on H200 · ")


def test_a_shape_more_leaves_what_is_known(folder: Path) -> None:
    measure(job(folder), binaries(*PROBLEMS[:2]))
    this = job(folder)

    measure(this)

    assert said(this)["measuring"].startswith("6 were in the journal already · 9 distinct ")
    assert said(this)["confirming"].startswith("3 configs timed anew ")


def test_a_budget_says_what_it_left_open_and_that_is_no_failure(folder: Path) -> None:
    this = job(folder, budget_s=0.0)

    outcomes = measure(this)
    report = conclude.report(this, found(), outcomes, (), gpu_s=0.0, not_locked="")

    assert outcomes == ()
    assert report.unsolved == ()
    assert report.warnings[1] == (
        "the budget of 0 s left 3 of 3 problems as they were: M=1; M=2; M=3"
    )


def test_a_journal_that_another_sweep_holds_is_refused_before_the_gpu_is_taken(
    folder: Path,
) -> None:
    with Journal.open(journal_of(folder)).hold(), pytest.raises(EnvironmentFaultError) as caught:
        measure(job(folder))

    assert caught.value.exit_code == 3
    assert "is measuring into this journal" in str(caught.value)
    assert Gpu.opened == 0


def test_a_replay_of_the_journal_decides_the_same(folder: Path) -> None:
    this = job(folder)
    measured = winners(this, measure(this))
    replay = job(folder, record=journal_of(folder))

    outcomes, triton = conclude.from_record(replay, found())

    assert triton == TRITON
    assert winners(replay, outcomes) == measured
    assert [one.config for one in measured] == [config(BLOCK=10)] * 3


def test_a_replay_leaves_out_a_problem_that_was_interrupted(folder: Path) -> None:
    this = job(folder)
    measure(this, binaries(PROBLEMS[0]))
    journal = Journal.open(journal_of(folder))
    under: dict[str, Any] = {
        "source": this.journal_source,
        "device": H200_IDENTITY,
        "protocol": this.sweep.timing.protocol(),
        "triton": TRITON,
    }
    [screened, *_] = binaries(PROBLEMS[1])
    journal.record(Measured(compiled=screened, samples_us=(1.0,)), **under)
    replay = job(folder, record=journal_of(folder))

    outcomes, _ = conclude.from_record(replay, found())

    assert {one.candidate.problem for one in outcomes} == {PROBLEMS[0]}


def test_what_does_not_fit_is_in_the_journal_once(folder: Path) -> None:
    measure(job(folder))
    measure(job(folder, fresh=True), binaries(PROBLEMS[0]))

    lines = journal_of(folder).read_text().splitlines()

    assert sum('"no":"SHARED"' in line for line in lines) == 1


def test_what_was_wrong_is_measured_again_once_the_reference_was_edited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = binaries(PROBLEMS[0])
    wrong = {config(BLOCK=10)}
    monkeypatch.setattr(racing, "CudaDevice", lambda **_: Wrong(wrong))
    before = measure(job(folder), made)
    wrong.clear()
    unchanged = measure(job(folder), made)
    this = job(folder)
    edited = replace(this, info=replace(this.info, problem_source="p2"))

    after = measure(edited, made)

    assert [
        [one.candidate.config for one in outcomes if isinstance(one, Measured)]
        for outcomes in (before, unchanged, after)
    ] == [
        [config(BLOCK=1), config(BLOCK=2)],
        [config(BLOCK=1), config(BLOCK=2)],
        [config(BLOCK=1), config(BLOCK=2), config(BLOCK=10)],
    ]


class Wrong(Gpu):
    """A GPU on which some configs do not agree with the reference."""

    def __init__(self, wrong: set[Config]) -> None:
        super().__init__()
        self._wrong = wrong


def test_a_new_winner_that_stands_for_its_binary_is_not_measured_again(folder: Path) -> None:
    one, two, ten = binaries(PROBLEMS[0])
    alias = config(BLOCK=11)
    first = measure(job(folder), [one, two, replace(ten, aliases=(alias,))])
    led = replace(
        ten, candidate=replace(ten.candidate, config=alias), aliases=(ten.candidate.config,)
    )
    before = journal_of(folder).read_bytes()

    again = measure(job(folder), [one, two, led])

    assert Gpu.opened == 1
    assert journal_of(folder).read_bytes() == before
    assert again == (*first[:2], replace(first[2], compiled=led))


def test_a_report_says_what_winners_gain_over_one_key_of_the_kernels_own_autotuner(
    folder: Path,
) -> None:
    this = job(folder)
    stock = tuple((problem, str(problem), "all of them") for problem in PROBLEMS)
    foreign = replace(this.info, foreign=True, stock_keys=stock)
    this = replace(this, info=foreign)

    outcomes = measure(this)
    report = conclude.report(
        this, found(), outcomes, winners(this, outcomes), gpu_s=0.0, not_locked=""
    )

    [one] = report.shared
    assert (one.key, one.problems) == ("all of them", PROBLEMS)
    assert one.config in {winner.config for winner in report.winners}
    assert len(one.losses) == len(PROBLEMS)

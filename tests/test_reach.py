"""What `near` may serve: each winner is verified at both ends of where it would be served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import projects
from fakes import H200_IDENTITY, KERNEL, TRITON, FakeDevice, config, entry, evidence
from projects import Project
from test_measure_sweep import Silent, journal_of
from test_measure_sweep import job as plain_job
from tritune import expression, keys, lock, pipeline, places
from tritune.device import targets
from tritune.errors import LockError
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Constraint,
    Entry,
    Launches,
    Problem,
    Reason,
    Rejected,
    Verified,
    Winner,
    Work,
)
from tritune.nearby import REACH, along, nearest, within
from tritune.pipeline import SweepOptions, conclude, elsewhere, racing, reach
from tritune.pipeline import job as pipeline_job
from tritune.pipeline.job import Job
from tritune.setting import Setting
from tritune.workers import Done

DEFAULT = config(BLOCK=1)


class Gpu(FakeDevice):
    """A GPU on which a config is right where a function says so; it notes what it was asked."""

    asked: list[int]

    def __init__(self, right: Callable[[int, int], bool], reason: Reason = Reason.WRONG) -> None:
        super().__init__()
        self._right, self._reason = right, reason
        self.asked = []

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        this = compiled.candidate
        size, block = int(str(this.problem.as_dict()["M"])), int(str(this.config["BLOCK"]))
        self.asked.append(size)
        if self._right(size, block):
            return Verified(candidate=this, error=0.0, bits="")
        return Rejected(candidate=this, reason=self._reason, detail="largest error inf")


class Pool:
    """Compilers that say what a launch is looked up by, and compile nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def run(
        self, function: object, tasks: Iterable[tuple[Any, ...]], _: float
    ) -> Iterator[tuple[int, Done[Any]]]:
        for index, task in enumerate(tasks):
            yield index, Done(_facts(*task) if function is elsewhere.lowering.facts else None)


def _facts(problem: Problem, configs: tuple[Config, ...]) -> elsewhere.Facts:
    launches = [
        Launches(
            candidate=Candidate(kernel=KERNEL, problem=problem, config=one),
            key=key_of(problem),
            grids=((1,),),
            compile_class=str(one),
        )
        for one in configs
    ]
    return Work(problem=problem, flops=None, bytes=None, dtype="fp16"), tuple(launches)


def key_of(problem: Problem) -> str:
    axes = problem.as_dict()
    return f"M={axes['M']} N={axes.get('N', 7)} a=f16"


def problem(size: int, **axes: int) -> Problem:
    return Problem.of({"M": size, "N": 7} | axes)


def winner(size: int, block: int = 64, *, change: str = "new", **changed: Any) -> Winner:
    this = problem(size)
    return Winner(
        kernel=KERNEL,
        key=key_of(this),
        problem=this,
        config=config(BLOCK=block),
        evidence=evidence(**changed),
        change=change,
    )


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gpu]:
    monkeypatch.setattr(elsewhere, "compilers", lambda _: Pool())

    def use(right: Callable[[int, int], bool] = lambda *_: True, **more: Any) -> Gpu:
        device = Gpu(right, **more)
        monkeypatch.setattr(elsewhere, "open_device", lambda *_: device)
        return device

    return use


def job(folder: Path, *constraints: str, record: Path | None = None, near: str = "M") -> Job:
    this = plain_job(folder, record=record)
    made = tuple(
        Constraint(text=text, where="", names=expression.names(text)) for text in constraints
    )
    return replace(
        this,
        sweep=replace(this.sweep, constraints=made, problems=(problem(64), problem(1024))),
        info=replace(
            this.info, near=near, problem_params=(("M", False), ("N", False)), default=DEFAULT
        ),
        observer=Silent(),
    )


def reaches(this: Job, *chosen: Winner, held: dict[str, Entry] | None = None) -> list[Any]:
    """From and to which size each is served; None where it is not said."""
    found = [
        one.evidence.reach for one in reach.reached(this, chosen, held or {}, racing.process(this))
    ]
    ends = [REACH.fullmatch(text) for text in found]
    return [(int(end[1]), int(end[3])) if end else None for end in ends]


@pytest.mark.parametrize(
    ("own", "others", "served"),
    [
        (64, [], (32, 128)),
        (1, [], (1, 2)),
        (5, [], (3, 10)),
        (64, [16], (32, 128)),
        (64, [16, 1024], (32, 256)),
        (64, [63, 65], (64, 64)),
    ],
)
def test_an_entry_is_served_from_half_to_twice_its_size_or_to_the_middle_of_a_neighbour(
    own, others, served
):
    assert reach.span(own, others) == served


@given(sizes=st.sets(st.integers(1, 300), min_size=1, max_size=6), value=st.integers(1, 600))
def test_the_size_that_a_look_up_takes_is_one_that_was_verified_to_serve(sizes, value):
    assume(min(sizes) <= 2 * value <= 4 * max(sizes))

    taken = nearest(sizes, value)

    low, high = reach.span(taken, sorted(sizes - {taken}))
    assert value in sizes or low <= value <= high


@given(sizes=st.sets(st.integers(1, 300), min_size=1, max_size=6))
def test_both_ends_of_what_is_verified_are_served(sizes):
    for own in sizes:
        for end in reach.span(own, sorted(sizes - {own})):
            taken = nearest(sizes, end)
            assert end in sizes or taken == own or taken * own == end * end


def test_a_size_is_a_whole_part_of_a_key():
    def sizes(key: str, *others: str) -> dict[int, str]:
        return along([key, *others], keys.split(key).items(), "M")

    others = "N=3 M=8 KM=5", "N=3 M=8 KM=6", "N=3 M=08 KM=5", "M=8 N=3 KM=5"
    assert sizes("N=3 M=64 KM=5", *others) == {64: "N=3 M=64 KM=5", 8: "N=3 M=8 KM=5"}
    assert [sizes(key) for key in ("KM=5", "M=none", "M=0", "M=1.5", "M=-2")] == [{}] * 5


def test_both_ends_of_each_winner_are_verified_and_stand_in_the_lock(tmp_path, gpu):
    device, this = gpu(), job(tmp_path)

    found = reaches(this, winner(64), winner(1024))

    assert found == [(32, 256), (256, 2048)]
    assert device.asked == [32, 256, 2048]
    assert device.left
    assert [(step.name, step.text) for step in this.steps] == [
        ("verifying near", "3 of 3 ends of what near would serve are right")
    ]
    assert this.warnings == []


def test_a_wrong_result_at_an_end_is_said_and_not_served(tmp_path, gpu):
    gpu(lambda size, block: size <= block)
    this = job(tmp_path)

    assert reaches(this, winner(64), winner(1024, block=1024)) == [(32, 64), (256, 1024)]
    assert this.warnings == [
        f"M={size} N=7: near does not serve it at M={end} and thereabouts, where its config is not "
        f"verified: wrong result, largest error inf: BLOCK={size} num_warps=4"
        for size, end in ((64, 256), (1024, 2048))
    ]


def test_a_second_sweep_verifies_nothing_and_says_the_same(tmp_path, gpu):
    first = gpu(lambda size, block: size <= 128)
    before, again = job(tmp_path), job(tmp_path)
    reached = reaches(before, winner(64))
    bytes_before = journal_of(tmp_path).read_bytes()
    second = gpu()

    assert reaches(again, winner(64)) == reached == [(32, 128)]
    assert (first.asked, second.asked) == ([32, 128], [])
    assert again.warnings == before.warnings
    assert journal_of(tmp_path).read_bytes() == bytes_before


def test_fresh_verifies_it_all_again(tmp_path, gpu):
    gpu()
    reaches(job(tmp_path), winner(64))
    device, this = gpu(), job(tmp_path)

    reaches(replace(this, options=replace(this.options, fresh=True)), winner(64))

    assert device.asked == [32, 128]


def test_what_did_not_fit_into_memory_is_not_served_and_asked_again(tmp_path, gpu):
    gpu(lambda size, _: size < 128, reason=Reason.MEMORY)
    assert reaches(job(tmp_path), winner(64)) == [(32, 64)]
    device = gpu()

    assert reaches(job(tmp_path), winner(64)) == [(32, 128)]
    assert device.asked == [128]


def test_where_a_constraint_breaks_nothing_is_served_so_the_last_size_before_is_verified(
    tmp_path, gpu
):
    device = gpu()

    assert reaches(job(tmp_path, "BLOCK < 2 * M", "M <= 100"), winner(64)) == [(33, 100)]
    assert device.asked == [33, 100]


def test_the_default_that_no_constraint_keeps_out_is_served_at_its_own_size_alone(tmp_path, gpu):
    device = gpu()

    assert reaches(job(tmp_path, "BLOCK > M"), winner(64, block=1)) == [(64, 64)]
    assert device.asked == []


def test_a_size_that_the_problem_cannot_be_made_of_is_not_served(tmp_path, gpu, monkeypatch):
    device, this = gpu(), job(tmp_path)
    monkeypatch.setattr("test_reach.key_of", lambda _: "M=64 N=7 a=f16")

    assert reaches(this, winner(64)) == [(64, 64)]
    assert device.asked == []
    assert this.warnings[0] == (
        "M=64 N=7: near does not serve it at M=32 and thereabouts, where its config is not "
        "verified: no problem of that size can be made (its key is M=64 N=7 a=f16): "
        "BLOCK=64 num_warps=4"
    )


def test_a_kernel_without_near_asks_nothing(tmp_path, gpu):
    device, this = gpu(), job(tmp_path)

    assert reaches(replace(this, info=replace(this.info, near=None)), winner(64)) == [None]
    assert device.asked == []


def test_with_no_gpu_the_record_says_it_or_the_lock_stays_as_it_is(tmp_path, gpu):
    gpu()
    reaches(job(tmp_path), winner(64))
    replay = job(tmp_path, record=journal_of(tmp_path))
    held = {key_of(problem(512)): entry(config(BLOCK=64))}

    assert reaches(replay, winner(64)) == [(32, 128)]
    assert reaches(replay, winner(8)) == [None]
    assert reaches(replay, winner(8, change="kept", reach="4 <= M <= 16")) == [(4, 16)]
    # Its neighbour is nearer than what was verified: what it serves is less, and was verified.
    assert reaches(replay, winner(64, reach="32 <= M <= 128"), held=held) == [(32, 128)]


def test_a_sweep_that_changes_nothing_changes_no_byte(tmp_path, gpu):
    gpu(lambda size, _: size != 2048)
    path = tmp_path / "t.lock"
    chosen = [winner(64), winner(1024)]
    texts = []
    for change in ("new", "kept", "kept"):
        this = replace(job(tmp_path), options=replace(job(tmp_path).options, lockfile=path))
        locked = conclude.incumbents(this)
        now = [replace(one, change=change) for one in chosen]
        if locked:
            now = [replace(one, evidence=locked[one.key].evidence) for one in now]
        winners = reach.reached(this, now, locked, racing.process(this))
        lock.update(path, lambda held, won=winners: lock.merge_winners(held, H200_IDENTITY, won))
        texts.append(path.read_text())

    assert '"reach": "32 <= M <= 256"' in texts[0]
    assert '"reach": "256 <= M <= 1024"' in texts[0]
    assert texts[0] == texts[1] == texts[2]


def test_an_entry_that_says_no_reach_is_read_and_written_as_it_was(tmp_path):
    before = lock.merge_winners(
        lock.Lock(), H200_IDENTITY, [winner(64), winner(8, reach="4 <= M <= 9")]
    )
    text = lock.render(before)

    assert text.count("reach") == 1
    assert lock.parse(text, "t.lock") == before


@pytest.mark.parametrize(
    ("said", "is_within"),
    [
        ("4 <= n <= 9", True),
        ("9 <= n <= 9", True),
        ("4 <= n <= 8", False),
        ("10 <= n <= 11", False),
        ("4 <= M <= 9", False),
        ("4 <= n", False),
        ("yes", False),
    ],
)
def test_what_was_verified_of_another_argument_or_cannot_be_read_is_not_served(said, is_within):
    assert within(said, "n", 9) == is_within


def test_a_reach_that_is_no_text_is_an_error_that_names_its_line():
    chosen = [winner(8, reach="4 <= M <= 9")]
    text = lock.render(lock.merge_winners(lock.Lock(), H200_IDENTITY, chosen))

    with pytest.raises(LockError) as caught:
        lock.parse(text.replace('"4 <= M <= 9"', "[4, 9]"), "t.lock")

    assert str(caught.value).startswith(
        f"t.lock:11: kernels.{KERNEL}.H200.M=8 N=7 a=f16.evidence.reach: expected text, got [4, 9]"
    )


def test_an_end_that_the_record_knows_to_be_wrong_is_not_served_though_the_other_is_unknown(
    tmp_path, gpu
):
    gpu(lambda size, _: size < 100)
    reaches(job(tmp_path), winner(64), winner(1024))
    replay = job(tmp_path, record=journal_of(tmp_path))

    # With no neighbour below, 2048 was found wrong and 512 was never asked.
    assert reaches(replay, winner(1024)) == [(1024, 1024)]


def test_a_journal_keeps_what_was_found_apart_from_outcomes(tmp_path):
    path = tmp_path / "a.jsonl"
    journal = Journal.open(path)
    under: dict[str, Any] = {
        "source": "s1",
        "device": H200_IDENTITY,
        "protocol": "p",
        "triton": TRITON,
    }
    at = Candidate(kernel=KERNEL, problem=problem(32), config=DEFAULT)
    journal.record_reach(at, "wrong", **under)
    journal.close()

    read = Journal.open(path, read_only=True)

    assert read.reach(KERNEL, **under) == {(problem(32), DEFAULT): "wrong"}
    assert read.reach(KERNEL, **under | {"source": "s2"}) == {}
    assert read.reach(KERNEL, **under | {"triton": None}) == {(problem(32), DEFAULT): "wrong"}
    assert read.outcomes() == ()


def test_a_narrowed_sweep_writes_the_constraints_of_the_whole_file(tmp_path):
    whole = job(tmp_path, "BLOCK <= M", "BLOCK <= 64 or N > 1", "num_warps == 4")
    narrowed = replace(whole, sweep=replace(whole.sweep, problems=(Problem.of({"M": 64}),)))

    assert narrowed.near_constraints == whole.near_constraints
    assert narrowed.near_constraints == {KERNEL: ("BLOCK <= M", "BLOCK <= 64 or N > 1")}


class Whole(FakeDevice):
    """A GPU for a whole sweep, on which sizes beyond 5000 come out wrong."""

    def __init__(self, **_: object) -> None:
        super().__init__(lambda this: 100.0 - int(str(this.config["BLOCK"])) / 100)
        self.notes: list[str] = []
        self.restarts, self.restart_s = 0, 0.0

    def uuid(self) -> str:
        return ""

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        this = compiled.candidate
        if int(str(this.problem.as_dict()["n"])) > 5000:
            return Rejected(candidate=this, reason=Reason.WRONG, detail="largest error inf")
        return Verified(candidate=this, error=0.0, bits="9c1e04d2")


@pytest.mark.lowering
def test_a_whole_sweep_locks_the_reach_and_a_second_one_changes_no_byte(tmp_path, monkeypatch):
    """All but the GPU is real: the problems, their keys, the compiles, the journal, the lock."""
    project = Project(tmp_path / "project")
    project.edit("ops.py", 'key=["n"]', 'key=["n"], near="n"')
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    place = Setting(
        target=targets.of_device(projects.H200), identity=projects.H200, index=0, triton=TRITON
    )
    monkeypatch.setattr(pipeline_job, "find", lambda *_, **__: place)
    monkeypatch.setattr(racing, "CudaDevice", Whole)
    options = SweepOptions(jobs=1)

    [first] = pipeline.run(project.sweep, options, Silent())
    text = project.lockfile.read_bytes()
    [second] = pipeline.run(project.sweep, options, Silent())

    assert [one.evidence.reach for one in first.winners] == [
        "500 <= n <= 2023",
        "2024 <= n <= 4096",
    ]
    refusal = (
        "n=4096 dtype=float32: near does not serve it at n=8192 and thereabouts, where its config "
        "is not verified: wrong result, largest error inf: BLOCK=512 num_warps=4"
    )
    assert refusal in first.warnings
    assert refusal in second.warnings
    assert "verifying near" in {step.name for step in first.steps}
    assert "verifying near" not in {step.name for step in second.steps}
    assert project.lockfile.read_bytes() == text
    assert [(at.key, e.evidence.reach) for at, e in lock.read(project.lockfile).entries] == [
        ("n=1000 x=f32 y=f32", "500 <= n <= 2023"),
        ("n=4096 x=f32 y=f32", "2024 <= n <= 4096"),
    ]

"""Screening while others compile: what it hands over, and what an interrupt leaves of it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from fakes import PROBLEM, compiled, config
from test_measure_sweep import DEFAULT, PROBLEMS, Gpu, job, journal_of, measure, on_gpu
from tritune.errors import EnvironmentFaultError
from tritune.journal import Journal
from tritune.model import Measured, Problem, Reason, Rejected, Verified
from tritune.pipeline import overlap, racing
from tritune.pipeline.overlap import Screening
from tritune.screening import Screened

OTHER = Problem.of({"M": 1, "N": 4096, "K": 4096, "dtype": "float16"})


class Closable(SimpleNamespace):
    """A device of which only the end matters."""

    closed = False

    def close(self):
        self.closed = True


def test_a_problem_is_screened_while_others_compile():
    seen = []
    arrived = threading.Event()

    def screen(these, stop):
        seen.append(these)
        arrived.set()
        return Screened()

    with Screening(screen, Closable()) as screening:
        screening.hand([compiled()])
        assert arrived.wait(10)
        screening.hand([])

    assert seen == [(compiled(),)]


def test_screening_ends_with_the_compiles_and_leaves_the_rest_to_what_follows():
    begun = threading.Event()
    device = Closable()

    def screen(these, stop):
        begun.set()
        while not stop.is_over():
            time.sleep(0.01)
        return Screened(compiled=these[:1])

    with Screening(screen, device) as screening:
        screening.hand([compiled(), compiled(BLOCK=128)])
        screening.hand([compiled(problem=OTHER)])
        assert begun.wait(10)

    assert screening.found == {PROBLEM: Screened(compiled=(compiled(),))}
    assert not device.closed


def test_measuring_waits_for_the_window_at_hand_however_long_it_takes(monkeypatch):
    monkeypatch.setattr(overlap, "JOIN_S", 0.01)
    begun = threading.Event()

    def screen(these, stop):
        begun.set()
        time.sleep(0.3)
        return Screened(compiled=these)

    with Screening(screen, Closable()) as screening:
        screening.hand([compiled()])
        assert begun.wait(10)

    assert screening.found == {PROBLEM: Screened(compiled=(compiled(),))}


def test_what_is_raised_while_screening_reaches_the_user():
    begun = threading.Event()

    def screen(these, stop):
        begun.set()
        raise EnvironmentFaultError("the GPU does not answer")

    def compiling_meanwhile():
        with Screening(screen, Closable()) as screening:
            screening.hand([compiled()])
            begun.wait(10)

    with pytest.raises(EnvironmentFaultError, match="the GPU does not answer"):
        compiling_meanwhile()


def test_an_interrupted_sweep_gives_the_gpu_back_at_once():
    device, begun = Closable(), threading.Event()

    def screen(these, stop):
        begun.set()
        while not device.closed:
            time.sleep(0.01)
        raise OSError("its connection is gone")

    def interrupted():
        with Screening(screen, device) as screening:
            screening.hand([compiled()])
            begun.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert device.closed


def ahead(this):
    return overlap.on_gpu(this, {}, racing.open_device(this, racing.process(this)))


def test_what_was_screened_while_compiling_is_not_screened_again(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "CudaDevice", Gpu)
    monkeypatch.setattr(Gpu, "opened", 0)
    this = job(tmp_path)
    made = [compiled(problem=PROBLEMS[0], BLOCK=block) for block in (1, 2, 3)]

    with ahead(this) as screening:
        with screening:
            screening.hand(made)
            deadline = time.monotonic() + 10
            while not screening.found and time.monotonic() < deadline:
                time.sleep(0.01)
        first = [rounds for _, rounds in screening.device.windows]
    outcomes = on_gpu(this, made, screening=screening)

    follow = [rounds for _, rounds in screening.device.windows[len(first) :]]
    assert first == [2, 2]
    assert min(follow) >= 5, "only finals are left"
    assert (Gpu.opened, screening.seconds > 0) == (1, True)
    assert [one.candidate for one in outcomes] == [one.candidate for one in made]


def test_the_gpu_is_opened_while_the_first_problem_compiles(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "CudaDevice", Gpu)
    opened = threading.Event()
    monkeypatch.setattr(Gpu, "open", lambda _: opened.set())

    with ahead(job(tmp_path)) as screening, screening:
        assert opened.wait(10)


def test_no_gpu_is_opened_where_the_journal_knows_all(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "CudaDevice", Gpu)
    this = job(tmp_path)
    measure(this)

    with ahead(this) as screening, screening:
        screening.hand([compiled(problem=PROBLEMS[0], key=str(PROBLEMS[0]), BLOCK=1)])

    assert screening.device.opens == 0


@pytest.mark.parametrize("options", [{"fresh": True}, {"budget_s": 60.0}])
def test_nothing_is_screened_ahead_where_it_would_not_count(tmp_path, monkeypatch, options):
    monkeypatch.setattr(racing, "CudaDevice", Gpu)

    with ahead(job(tmp_path, **options)) as screening:
        assert screening is None


class Killed(Gpu):
    """A GPU whose process is ended while it verifies, as an interrupted sweep does."""

    def __init__(self, **how):
        super().__init__(**how)
        self.verifying, self.ended = threading.Event(), threading.Event()

    def verify(self, compiled):
        this = compiled.candidate
        if this.config == DEFAULT:
            return Verified(candidate=this, error=0.0, bits="9c1e04d2")
        self.verifying.set()
        assert self.ended.wait(10)
        return Rejected(candidate=this, reason=Reason.LAUNCH, detail="its process was killed")

    def close(self):
        self.ended.set()


def test_an_interrupted_sweep_rejects_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "CudaDevice", Killed)

    def interrupted():
        with ahead(job(tmp_path)) as screening, screening:
            screening.hand([compiled(problem=PROBLEMS[0], BLOCK=block) for block in (1, 2)])
            assert screening.device.verifying.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert Journal.open(journal_of(tmp_path), read_only=True).outcomes() == ()


class Drifting(Gpu):
    """A GPU whose clock is twice as fast after its first window."""

    def __init__(self, **how):
        super().__init__(**how)
        self._cost_us = lambda this: 90.0 if this.config == BEST else 100.0
        self._clock = lambda number: 1.0 if number < 4 else 0.5


BEST = config(BLOCK=2)


def screened_ahead(this, made):
    """The outcomes of a sweep that screens everything while compiling."""
    with ahead(this) as screening, screening:
        screening.hand(made)
        deadline = time.monotonic() + 10
        while not screening.found and time.monotonic() < deadline:
            time.sleep(0.01)
    return on_gpu(this, made, screening=screening)


def test_a_clock_that_drifts_while_compiling_keeps_the_best_in_the_finals(tmp_path, monkeypatch):
    monkeypatch.setattr(racing, "CudaDevice", Drifting)
    made = [compiled(problem=PROBLEMS[0], BLOCK=block) for block in range(1, 41)]

    outcomes = screened_ahead(job(tmp_path), made)

    timed = [one for one in outcomes if isinstance(one, Measured)]
    raced = [one.candidate.config for one in timed if one.confirm_us]
    fastest = min(timed, key=lambda one: min(one.samples_us))
    assert BEST in raced
    assert fastest.candidate.config != BEST, "its samples alone would have ranked it last"

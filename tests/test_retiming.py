"""`tritune retime`: what is locked, timed again with its rivals in one window."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fakes import FakeDevice, measured
from projects import H200, KERNEL, Project
from test_measure_sweep import Silent
from tritune import choose, lock, places, setting
from tritune.cli import tritune
from tritune.device import targets
from tritune.errors import EnvironmentFaultError
from tritune.journal import Journal
from tritune.model import Candidate, Compiled, Config, Measured
from tritune.paired import Comparison
from tritune.pipeline import SweepOptions, racing, retiming
from tritune.pipeline.job import start
from tritune.setting import Setting

TRITON = "3.9.0"
PLACE = Setting(target=targets.of_device(H200), identity=H200, index=0, triton=TRITON)
WRONG = "largest relative error 0.5 at [0, 0]"
KEYS = ["n=1000 x=f32 y=f32", "n=4096 x=f32 y=f32"]


class Gpu(FakeDevice):
    """A GPU with no sensors, as the measuring process shows it."""

    def __init__(self, cost_us: Callable[[Candidate], float], **more: Any) -> None:
        super().__init__(cost_us, **more)
        self.notes: list[str] = []
        self.restarts = 0
        self.restart_s = 0.0

    def uuid(self) -> str:
        return ""


def block(this: Candidate) -> int:
    return int(str(this.config["BLOCK"]))


@pytest.fixture(scope="session")
def fresh(tmp_path_factory) -> Project:
    """A project whose winners are BLOCK=512, where the default is 256; made once, and copied."""
    project = Project(tmp_path_factory.mktemp("retimed") / "project")
    project.lock()
    held = lock.read(project.lockfile)
    entries = tuple((at, replace(e, config=configured(512))) for at, e in held.entries)
    lock.write(project.lockfile, replace(held, entries=entries))
    return project


def configured(size: int) -> Config:
    return Config.of({"BLOCK": size, "num_warps": 4})


@pytest.fixture
def project(fresh, tmp_path, monkeypatch) -> Project:
    copied = fresh.copy(tmp_path / "project")
    monkeypatch.chdir(copied.folder)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(retiming.setting, "gpu", lambda *_, **__: PLACE)
    return copied


@pytest.fixture
def gpu(monkeypatch) -> Callable[..., Gpu]:
    def use(cost_us: Callable[[Candidate], float], **more: Any) -> Gpu:
        device = Gpu(cost_us, **more)
        monkeypatch.setattr(racing, "CudaDevice", lambda **_: device)
        return device

    return use


def run(*arguments: str) -> Result:
    whole = ("retime", "--jobs", "1", *arguments)
    return CliRunner().invoke(tritune, whole, prog_name="tritune")


def shown(result: Result) -> list[str]:
    """The page without how long it took, and its blanks made one."""
    lines = [" ".join(text.split()) for text in result.stdout.splitlines() if text]
    return [*lines[:-1], lines[-1].rpartition(" · ")[0]]


@pytest.mark.lowering
def test_an_entry_that_the_default_beats_today_is_a_no(project, gpu):
    # At one of the two sizes what is locked is slower by now.
    gpu(lambda this: 110.0 if block(this) == 512 and this.problem.as_dict()["n"] == 4096 else 100.0)
    before = sorted(project.folder.rglob("*"))
    text = project.lockfile.read_bytes()

    result = run()

    assert result.exit_code == 1, result.output
    assert shown(result) == [
        "scale_kernel on H200 locked µs now default now runner-up now loses",
        "n=1000 x=f32 y=f32 10.0 100 100 - 0.0 %",
        "n=4096 x=f32 y=f32 10.0 110 100 - 10.0 % too much",
        "2 entries timed with Triton 3.9.0, 3 % allowed: 1 loses more",
    ]
    assert project.lockfile.read_bytes() == text
    assert sorted(project.folder.rglob("*")) == before
    assert not (project.folder.parent / "cache/journals").exists()


@pytest.mark.lowering
def test_a_loss_within_the_bound_is_told_and_is_no_failure(project, gpu):
    device = gpu(lambda this: 104.0 if block(this) == 512 else 100.0)

    result = run("--max-regression", "5%", "--only", "n > 2000")

    assert result.exit_code == 0, result.output
    assert shown(result)[1:] == [
        "n=4096 x=f32 y=f32 10.0 104 100 - 4.0 %",
        "1 entry timed with Triton 3.9.0, 5 % allowed: none surely loses more, 4.0 % at most",
    ]
    # What counts was timed in fresh processes, as it loses in two; in each in the same windows.
    assert device.renewed == 2
    configs, _ = device.windows[-1]
    assert set(configs) == {configured(512), configured(256)}
    assert device.closed


@pytest.mark.lowering
def test_the_runner_up_of_the_journal_is_timed_too(project, gpu):
    project.edit("sweeps/scale.yaml", "[256, 512]", "[256, 512, 1024]")
    options = SweepOptions()
    [job] = start(project.sweep, options, Silent(), setting=PLACE)
    journal = Journal.open(
        places.journal_path(job.places.journals, Path(job.sweep.path), job.target.name)
    )
    for size, us in ((512, 10.0), (1024, 11.0), (256, 20.0)):
        candidate = Candidate(kernel=KERNEL, problem=job.sweep.problems[1], config=configured(size))
        journal.record(
            Measured(
                compiled=Compiled(candidate=candidate, key=KEYS[1], binary=str(size), ir=""),
                samples_us=(us,) * 3,
            ),
            source=job.journal_source,
            device=H200,
            protocol=job.sweep.timing.protocol(),
            triton="3.6.0",
        )
    journal.close()
    gpu(lambda this: {256: 120.0, 512: 100.0, 1024: 95.0}[block(this)])

    result = run("--json")

    assert result.exit_code == 1, result.output
    first, second = json.loads(result.stdout)["entries"]
    assert (first["runner_up"], first["is_past"], first["loss"]) == (None, False, 0.0)
    assert second["runner_up"] == {"BLOCK": 1024, "num_warps": 4}
    assert (second["kernel"], second["device"], second["key"]) == (KERNEL, "H200", KEYS[1])
    assert second["runner_up_us"] == pytest.approx(95, rel=0.01)
    assert second["default_us"] == pytest.approx(120, rel=0.01)
    assert second["loss"] == pytest.approx(5 / 95, abs=0.005)
    assert second["is_past"]


@pytest.mark.lowering
def test_a_locked_config_that_is_wrong_by_now_is_a_no(project, gpu, monkeypatch):
    gpu(lambda _: 100.0, wrong={configured(512)})

    result = run("--only", "n < 2000")

    assert result.exit_code == 1
    assert shown(result) == [
        f"not timed: scale_kernel on H200: {KEYS[0]}: wrong result: {WRONG}",
        "0 entries timed with Triton 3.9.0, 3 % allowed: 1 does not run, or is wrong",
    ]


@pytest.mark.lowering
def test_an_entry_whose_hook_is_gone_is_a_no_and_is_not_timed_without_it(project, gpu):
    gpu(lambda _: 100.0)
    held = lock.read(project.lockfile)
    [(at, entry), *others] = held.entries
    hooked = replace(entry, evidence=replace(entry.evidence, hook="ops:zero@12345678"))
    lock.write(project.lockfile, replace(held, entries=((at, hooked), *others)))

    result = run()

    assert result.exit_code == 1, result.output
    assert shown(result)[-2:] == [
        (
            f"not timed: scale_kernel on H200: {KEYS[0]}: it was locked with the pre_hook "
            "`ops:zero`, and its config has none now"
        ),
        "1 entry timed with Triton 3.9.0, 3 % allowed: 1 does not run, or is wrong",
    ]


@pytest.mark.lowering
def test_an_op_that_fails_by_now_is_a_no(project, gpu):
    gpu(lambda _: 100.0)
    project.edit("ops.py", "def scale(x):\n", "def scale(x):\n    assert x.numel() < 2000\n")

    result = run()

    assert result.exit_code == 1
    assert shown(result)[-2:] == [
        (
            "not timed: scale_kernel on H200: n=4096 x=f32 y=f32: n=4096 dtype=float32: "
            "AssertionError (ops.py:30)"
        ),
        "1 entry timed with Triton 3.9.0, 3 % allowed: 1 does not run, or is wrong",
    ]


@pytest.mark.lowering
def test_an_entry_that_no_shape_asks_for_is_named(project, gpu):
    gpu(lambda _: 100.0)
    project.edit("sweeps/scale.yaml", "[1000, 4096]", "1000")

    result = run()

    assert result.exit_code == 0
    assert shown(result)[-2:] == [
        "not timed: scale_kernel on H200: n=4096 x=f32 y=f32: no shape asks for it",
        "1 entry timed with Triton 3.9.0, 3 % allowed: none surely loses more, 0.0 % at most",
    ]


@pytest.mark.lowering
def test_where_nothing_is_locked_for_the_gpu_it_cannot_be_answered(project, gpu, monkeypatch):
    other = replace(H200, sms=114)
    place = replace(PLACE, target=targets.of_device(other), identity=other)
    monkeypatch.setattr(retiming.setting, "gpu", lambda *_, **__: place)

    result = run("tritune.lock")

    assert result.exit_code == 3
    assert "error: tritune.lock: nothing is locked for " in result.stderr


def test_with_no_gpu_it_cannot_be_answered(tmp_path, monkeypatch):
    project = Project(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr(setting.cuda, "present", lambda: False)

    result = run()

    assert result.exit_code == 3
    assert result.stderr == (
        "error: no GPU on this machine that torch and Triton can use\n\n"
        "hint: retime measures: run it where the GPU is that the entries are of\n"
    )


@pytest.mark.parametrize("share", ["3", "fast", "-1%", "100%", "nan"])
def test_a_bound_that_is_no_share_is_refused(share):
    result = run("--max-regression", share)

    assert result.exit_code == 2
    assert f"'{share}' is no share of a time: say 3%, or 0.03" in result.stderr


@pytest.mark.parametrize(
    ("excess", "noise", "floor", "past"),
    [
        (0.031, 0.0, 0.0, True),
        (0.029, 0.0, 0.0, False),
        (0.05, 0.04, 0.0, False),
        (0.05, 0.0, 0.03, False),
        (0.05, 0.03, 0.02, True),
    ],
)
def test_a_loss_counts_if_it_is_surely_more_than_what_is_allowed(excess, noise, floor, past):
    lag = Comparison(excess=excess, noise=noise, floor=floor)

    assert lag.is_slower_by(0.03) == past


def test_a_loss_that_one_process_shows_alone_is_none():
    winner, rival = (
        replace(
            measured(us, finals=[us] * 30, BLOCK=block), confirm_us=(us,) * 15, doubted_us=again
        )
        for us, block, again in ((11.0, 64, (10.0,) * 15), (10.0, 128, (10.0,) * 15))
    )

    assert retiming._lag(winner, rival).excess == pytest.approx(0.0)
    assert retiming._lag(replace(winner, doubted_us=()), rival).excess == pytest.approx(0.1)


def test_the_runner_up_is_the_fastest_other_binary_by_the_samples_that_tell_most():
    winner, alias, slow, fast = (
        measured(10.0, BLOCK=64),
        measured(9.0, BLOCK=1, aliases=(Config.of({"BLOCK": 2, "num_warps": 4}),)),
        replace(measured(12.0, BLOCK=128), confirm_us=(12.0,)),
        measured(11.0, BLOCK=32),
    )
    away = [winner.candidate.config, Config.of({"BLOCK": 2, "num_warps": 4})]

    assert choose.runner_up([winner, alias, slow, fast], away) == slow.candidate.config
    assert choose.runner_up([winner, alias, fast], away) == fast.candidate.config
    assert choose.runner_up([winner, alias], away) is None


def test_a_disturbed_gpu_stops_it(project, gpu, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise EnvironmentFaultError("the GPU is disturbed")

    monkeypatch.setattr(racing, "race", stop)
    gpu(lambda _: 100.0)

    assert run().exit_code == 3

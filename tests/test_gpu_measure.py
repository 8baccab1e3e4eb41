"""Sweeps on a GPU of kernels whose faults and differences are planted, so the outcome is known."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import planted
from fakes import measured
from tritune.choose import choose
from tritune.device import cuda, guards
from tritune.device.guards import Guard
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Problem,
    Rejected,
    Timing,
    Winner,
)
from tritune.paired import compare
from tritune.pipeline.cases import Case
from tritune.pipeline.rounds import Rounds
from tritune.standing import gives_way

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.gpu


def own(folder: Path) -> dict[str, str]:
    """The environment of a project with a cache of its own."""
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    return os.environ | {"TRITUNE_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": paths}


def sweep(folder: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The report of a sweep of `ops.py` by `sweep.yaml`, and what it said besides."""
    done = subprocess.run(
        [sys.executable, "-m", "tritune", "sweep", "sweep.yaml", "--json", *options],
        cwd=folder,
        env=own(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [report] = json.loads(done.stdout)["reports"]
    return report, done.stderr


def tell(text: object) -> None:
    """A figure, for `pytest -rP`."""
    sys.stdout.write(f"{text}\n")


def written(folder: Path, ops: str, text: str) -> Path:
    (folder / "ops.py").write_text(ops, encoding="utf-8")
    (folder / "sweep.yaml").write_text(text, encoding="utf-8")
    return folder


def test_every_planted_mistake_is_rejected_for_what_it_is(tmp_path: Path) -> None:
    one_size = planted.MISTAKES_SWEEP.replace(", 8388608", "")
    folder = written(tmp_path, planted.MISTAKES, one_size)

    report, _ = sweep(folder)

    reasons = {
        (one["config"]["BLOCK"], one["config"]["MODE"]): one.get("reason")
        for one in report["outcomes"]
    }
    assert reasons == {
        (64, 0): None,
        (1024, 0): None,
        (64, 1): "crashes at launch",
        (64, 2): "never returns",
        (64, 3): "wrong result",
        (64, 4): "wrong result",
        (64, 5): "wrong result",
    }
    assert [one["config"]["MODE"] for one in report["winners"]] == [0]
    [measuring] = [step["text"] for step in report["steps"] if step["name"] == "measuring"]
    assert "2 restarts of the measuring process, which cost " in measuring
    tell(measuring)


@pytest.fixture(name="swept", scope="module")
def _swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with a kernel that does 2 % more of the same work, and the report of its sweep."""
    folder = tmp_path_factory.mktemp("swept")
    written(folder, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)
    return folder, sweep(folder)[0]


def copied(swept: Path, folder: Path) -> Path:
    """The same project elsewhere, with what was compiled and locked."""
    return shutil.copytree(swept, folder / "project")


def test_a_second_sweep_measures_nothing_and_changes_no_byte(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    folder, first = swept
    before = (folder / "tritune.lock").read_bytes()

    report, _ = sweep(folder)
    anew, _ = sweep(folder, "--fresh")

    [winner] = first["winners"]
    assert winner["config"]["EXTRA"] == 0
    assert 0.015 < winner["evidence"]["margin"] < 0.025
    assert (folder / "tritune.lock").read_bytes() == before
    assert [one["change"] for one in (*report["winners"], *anew["winners"])] == ["kept"] * 2
    steps = {step["name"]: step["text"] for step in report["steps"]}
    assert steps["measuring"] == "all 2 distinct candidates are in the journal already"


NEIGHBOUR = """
import sys, time
import torch

a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
on_s, off_s = map(float, sys.argv[1:])
print("here", flush=True)
while True:
    until = time.monotonic() + on_s
    while time.monotonic() < until:
        for _ in range(50):
            torch.mm(a, a)
        torch.cuda.synchronize()
    time.sleep(off_s)
"""


@contextmanager
def neighbour(on_s: float, off_s: float) -> Iterator[None]:
    """Another process that multiplies matrices on the GPU, and rests."""
    process = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, str(on_s), str(off_s)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "here\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_beside_a_neighbour_that_comes_and_goes_the_winners_are_the_same_or_it_is_refused(
    tmp_path: Path,
) -> None:
    sizes = planted.EXTRA_SWEEP.replace("n: 1048576", "n: [524288, 1048576, 2097152]") % 20
    folder = written(tmp_path, planted.EXTRA % 20, sizes)

    with neighbour(1.0, 1.5):
        done = tritune(folder, "-m", "tritune", "sweep", "sweep.yaml", "--json")

    tell(f"beside a neighbour: exit {done.returncode}; {done.stderr[-600:]}")
    assert done.returncode in (0, 3)
    if done.returncode == 0:
        [report] = json.loads(done.stdout)["reports"]
        tell([step["text"] for step in report["steps"] if step["name"] == "measuring"])
        assert [one["config"]["EXTRA"] for one in report["winners"]] == [0] * 3
    else:
        assert not (folder / "tritune.lock").exists()


KILLS = 5


def test_killed_at_any_moment_and_resumed_it_measures_nothing_twice(tmp_path: Path) -> None:
    space = "space: {EXTRA: [0, 20, 40, 60, 80, 100, 120, 140, 160, 180, 200, 220], num_warps: [4]}"
    sizes = "shapes: [{n: [1048576, 2097152, 4194304, 8388608]}]"
    kernel, *_ = planted.EXTRA_SWEEP.splitlines()
    folder = written(tmp_path, planted.EXTRA % 20, f"{kernel}\n{space}\n{sizes}\n")
    moments = random.Random(0)  # noqa: S311

    for number in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-m", "tritune", "sweep", "sweep.yaml"], cwd=folder, env=own(folder)
        )
        size = sum(map(size_of, journals(folder)))
        until = time.monotonic() + 60
        while sum(map(size_of, journals(folder))) == size and time.monotonic() < until:
            if process.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        process.kill()
        tell(f"kill {number}: exit {process.wait()}, {sum(map(size_of, journals(folder)))} bytes")
    report, _ = sweep(folder)

    [path] = journals(folder)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    times = Counter(
        json.dumps([line["problem"], line["config"]])
        for line in lines
        if "us" in line and "finals" not in line
    )
    assert max(times.values()) == 1
    assert len(times) == 12 * 4
    assert [one["config"]["EXTRA"] for one in report["winners"]] == [0] * 4


def journals(folder: Path) -> list[Path]:
    return list((folder / "cache").glob("journals/*.jsonl"))


def size_of(path: Path) -> int:
    return path.stat().st_size


def test_sweeps_in_a_row_of_our_own_files_agree(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(ROOT / "tests" / "benchmarks" / "bench_stick.py"),
            str(ROOT / "sweeps" / "softmax.yaml"),
            "--only",
            "rows == 32768",
        ],
        env=own(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    tell(done.stdout)
    found = json.loads(done.stdout)
    assert found["entries"] == 3
    assert len(found["changed"]) <= 1, "of so few"
    assert all(min(one["leads"]) > 0.01 for one in found["changed"])


def test_near_serves_no_size_at_which_the_locked_config_is_wrong(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.NEAR, planted.NEAR_SWEEP)

    report, said = sweep(folder)
    before = (folder / "tritune.lock").read_bytes()
    again, _ = sweep(folder)

    assert [one["evidence"]["reach"] for one in report["winners"]] == ["500 <= n <= 1000"]
    assert "n=1000: near does not serve it at n=2000 and thereabouts" in said
    steps = {step["name"]: step["text"] for step in report["steps"]}
    assert steps["verifying near"] == "1 of 2 ends of what near would serve are right"
    assert "verifying near" not in {step["name"] for step in again["steps"]}
    assert (folder / "tritune.lock").read_bytes() == before
    ran = subprocess.run(
        [sys.executable, "ops.py"],
        cwd=folder,
        env=own(folder),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "[1, 1, 1]\n"


def tritune(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command on the project in *folder*, with the cache that `sweep` uses."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=own(folder) | env,
        capture_output=True,
        text=True,
        check=False,
    )


LAUNCH = """
import torch
from triton import knobs

hits = []
knobs.compilation.listener = lambda **said: hits.append(said["cache_hit"])
import ops

ops.op(torch.randn(1048576, device="cuda"))
print(hits)
"""


def test_after_compiling_what_is_locked_a_launch_compiles_nothing(
    tmp_path: Path, swept: tuple[Path, dict[str, Any]]
) -> None:
    folder = copied(swept[0], tmp_path)
    own = {"TRITON_CACHE_DIR": str(folder / "triton")}

    made = tritune(folder, "-m", "tritune", "compile", "--locked", "sweep.yaml", **own)
    launched = tritune(folder, "-c", LAUNCH, **own)

    assert made.returncode == 0, made.stderr
    assert " in tritune.lock: 1 compiled · " in made.stdout
    assert launched.stdout == "[True]\n", launched.stderr


def test_what_is_locked_loses_nothing_on_the_day_and_another_config_what_it_is_slower_by(
    tmp_path: Path, swept: tuple[Path, dict[str, Any]]
) -> None:
    folder = copied(swept[0], tmp_path)
    pyproject = folder / "pyproject.toml"
    pyproject.write_text('[tool.tritune]\nsweeps = ["sweep.yaml"]\n', encoding="utf-8")
    command = ("-m", "tritune", "retime", "--max-regression", "1%", "--json")
    sweep(folder)  # the journal, from which a runner-up is known, is of the sweep file in its place

    fresh = tritune(folder, *command)
    path = folder / "tritune.lock"
    path.write_text(path.read_text().replace('"EXTRA": 0', '"EXTRA": 20'), encoding="utf-8")
    slower = tritune(folder, *command)

    assert (fresh.returncode, slower.returncode) == (0, 1), fresh.stderr + slower.stderr
    [[one], [other]] = [json.loads(done.stdout)["entries"] for done in (fresh, slower)]
    assert one["loss"] == 0
    assert 0.015 < one["default_us"] / one["us"] - 1 < 0.025
    assert other["runner_up"]["EXTRA"] == 0
    assert 0.015 < other["loss"] < 0.025


class Held:
    """A GPU held by this process's own worker, for many races without many starts.

    It is a stranger to a sweep beside it: so what uses it comes last.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = written(folder, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)
        identity, triton = cuda.probe(0, folder / "probe.log")
        self.device = cuda.CudaDevice(
            index=0,
            kernel=f"{folder}/ops.py:extra",
            problem=None,
            default=extra(20).candidate.config,
            identity=identity,
            triton=triton,
            timing=Timing(),
            cache=folder / "binaries",
            worker=cuda.process(folder / "device.log"),
        )
        self.guard = Guard(self.device.canary, guards.sensors(self.device.uuid()))

    def races(self, more: int, times: int) -> list[Winner]:
        """What so many sweeps of EXTRA 0 against the default *more* lock; one confirms them all."""
        default = extra(more).candidate.config
        rounds = Rounds(
            device=self.device,
            guard=self.guard,
            default=default,
            timing=Timing(),
            write=lambda *_: None,
            advance=lambda _: None,
        )
        cases = [Case(compiled=(extra(0), extra(more)), incumbent=None) for _ in range(times)]
        rounds.race(cases)
        rounds.confirm(cases)
        found = [
            choose(
                case.outcomes,
                kernel="ops:extra",
                key="",
                default=default,
                incumbent=None,
                triton="",
            )
            for case in cases
        ]
        return [winner for winner in found if winner is not None]


def extra(more: int) -> Compiled:
    config = Config.of({"EXTRA": more, "num_warps": 4})
    problem = Problem.of({"n": 1048576})
    candidate = Candidate(kernel="ops:extra", problem=problem, config=config)
    return Compiled(candidate=candidate, key="", binary=str(more), ir="")


@pytest.fixture(name="held", scope="module")
def _held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    held = Held(tmp_path_factory.mktemp("held"))
    yield held
    held.device.close()


def test_two_percent_more_work_is_found_ten_times_of_ten(held: Held) -> None:
    winners = held.races(20, 10)

    margins = [one.evidence.margin for one in winners]
    tell(f"2 % more work: margins {margins}")
    assert [one.config["EXTRA"] for one in winners] == [0] * 10
    assert all(margin is not None and 0.015 < margin < 0.025 for margin in margins)


def test_a_third_of_a_percent_is_a_tie_ten_times_of_ten(held: Held) -> None:
    winners = held.races(3, 10)

    tell(f"0.3 % more work: margins {[one.evidence.margin for one in winners]}")
    assert [(one.config["EXTRA"], one.ties) for one in winners] == [(3, 1)] * 10


def test_a_hundred_comparisons_of_a_binary_with_itself_call_one_difference_at_most(
    held: Held,
) -> None:
    finals = [windows(held, 30 * number) for number in range(100)]
    held.device.renew()
    confirmed = [windows(held, 30 * number) for number in range(100)]

    called, apart = 0, 0.0
    for (one, other, third, fourth), (again, another, *_) in zip(finals, confirmed, strict=True):
        # The floor is of two more that are the same, as in a sweep.
        floor = abs(compare(third, fourth).excess)
        pair = [
            measured(samples=us, finals=us, confirm=confirm, floor=floor)
            for us, confirm in ((one, again), (other, another))
        ]
        called += gives_way(*pair) or gives_way(*reversed(pair))
        apart = max(apart, abs(compare(one, other).excess))
    tell(f"A/A: {called} of 100 called, apart by {apart:.2%} at most in one window")
    assert called <= 1


def windows(held: Held, first: int) -> tuple[tuple[float, ...], ...]:
    """Samples of one binary under four names, interleaved."""
    found = held.device.sample([extra(0)] * 4, 30, first)
    assert not any(isinstance(one, Rejected) for one in found)
    return found  # type: ignore[return-value]


def test_a_busy_neighbour_is_seen(held: Held) -> None:
    held.guard.look()
    quiet = [held.device.sample([extra(0), extra(3)], 30, 0) for _ in range(5)]
    before = [held.guard.check(0.0, series) for series in quiet]

    with neighbour(60.0, 0.0):
        held.guard.look()
        busy = [held.device.sample([extra(0), extra(3)], 30, 0) for _ in range(5)]
        canaries = [held.device.canary() for _ in range(5)]
        during = [held.guard.check(0.0, series) for series in busy]

    tell(f"alone: {before}")
    tell(f"beside matmuls: {during}")
    slower = [f"{guards.slower(held.guard.first.canary, one):.0%}" for one in canaries]
    clocks = [f"{one.mhz:.0f}" for one in canaries]
    tell(
        f"canaries slower by {slower}, MHz {clocks}; samples {guards.interruption(sum(busy, ()))!r}"
    )
    assert before == [""] * 5
    assert all(during)

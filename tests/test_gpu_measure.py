"""Sweeps on a GPU of kernels whose faults and differences are planted, so the outcome is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import planted

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.gpu
PATH = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))


def sweep(folder: Path, *options: str, cache: str = "cache") -> tuple[dict[str, Any], str]:
    """The report of a sweep of `ops.py` by `sweep.yaml`, and what it said besides."""
    done = subprocess.run(
        [sys.executable, "-m", "tritune", "sweep", "sweep.yaml", "--json", *options],
        cwd=folder,
        env=os.environ
        | {
            "TRITUNE_CACHE_DIR": str(folder / cache),
            "PYTHONPATH": PATH,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [report] = json.loads(done.stdout)["reports"]
    return report, done.stderr


def written(folder: Path, ops: str, text: str) -> Path:
    (folder / "ops.py").write_text(ops, encoding="utf-8")
    (folder / "sweep.yaml").write_text(text, encoding="utf-8")
    return folder


def test_every_planted_mistake_is_rejected_for_what_it_is(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.MISTAKES, planted.MISTAKES_SWEEP)

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
    assert [one["config"]["MODE"] for one in report["winners"]] == [0, 0]
    [measuring] = [step["text"] for step in report["steps"] if step["name"] == "measuring"]
    assert "4 restarts of the measuring process, which cost " in measuring


def test_two_percent_more_work_is_found(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)

    report, _ = sweep(folder)

    [winner] = report["winners"]
    assert winner["config"]["EXTRA"] == 0
    assert 0.015 < winner["evidence"]["margin"] < 0.025


def test_a_third_of_a_percent_is_a_tie(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.EXTRA % 3, planted.EXTRA_SWEEP % 3)

    report, _ = sweep(folder)

    [winner] = report["winners"]
    assert (winner["config"]["EXTRA"], winner["ties"]) == (3, 1)


def test_a_second_sweep_measures_nothing_and_changes_no_byte(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)
    sweep(folder)
    before = (folder / "tritune.lock").read_bytes()

    report, _ = sweep(folder)
    anew, _ = sweep(folder, "--fresh")

    assert (folder / "tritune.lock").read_bytes() == before
    assert [one["change"] for one in (*report["winners"], *anew["winners"])] == ["kept"] * 2
    steps = {step["name"]: step["text"] for step in report["steps"]}
    assert steps["measuring"] == "all 2 distinct candidates are in the journal already"


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
        env=os.environ | {"PYTHONPATH": PATH},
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
        env=os.environ | {"TRITUNE_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": PATH} | env,
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


def test_after_compiling_what_is_locked_a_launch_compiles_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)
    sweep(folder)
    own = {"TRITON_CACHE_DIR": str(folder / "triton")}

    made = tritune(folder, "-m", "tritune", "compile", "--locked", "sweep.yaml", **own)
    launched = tritune(folder, "-c", LAUNCH, **own)

    assert made.returncode == 0, made.stderr
    assert " in tritune.lock: 1 compiled · " in made.stdout
    assert launched.stdout == "[True]\n", launched.stderr


def test_what_is_locked_loses_nothing_on_the_day_and_another_config_what_it_is_slower_by(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, planted.EXTRA % 20, planted.EXTRA_SWEEP % 20)
    pyproject = folder / "pyproject.toml"
    pyproject.write_text('[tool.tritune]\nsweeps = ["sweep.yaml"]\n', encoding="utf-8")
    sweep(folder)
    command = ("-m", "tritune", "retime", "--max-regression", "1%", "--json")

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

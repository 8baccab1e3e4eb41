"""The kernels of this repository: right in Triton's interpreter, and compiling for their targets.

Each runs in a child process, as TRITON_INTERPRET and a stand-in driver hold for a whole one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritune.device import targets
from tritune.model import Problem
from tritune.space import admitted, configs
from tritune.spec import read_sweep

ROOT = Path(__file__).parents[1]
GROUPS = ("matmul", "splitk", "softmax", "layer_norm_forward", "layer_norm_backward", "attention")
SMALLEST_SHARED = 65536
"""Bytes a program may have on an MI300X, the least of all targets."""


def checks(*words: str, **env: str) -> str:
    """What `kernel_checks.py` printed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(ROOT / "tests" / "kernel_checks.py"), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("group", "results"),
    [
        ("matmul", 27),
        ("splitk", 20),
        ("softmax", 22),
        ("layer_norm_forward", 16),
        ("layer_norm_backward", 17),
        ("attention", 21),
    ],
)
def test_every_config_agrees_with_its_reference(group, results):
    assert checks("cpu", group, TRITON_INTERPRET="1") == f"{group}: {results} right\n"


@pytest.mark.lowering
@pytest.mark.parametrize("target", ["H200", "A100", "MI300X"])
def test_every_default_config_compiles_without_a_gpu_and_fits_any_target(target, tmp_path):
    lines = checks("compile", target, TRITON_CACHE_DIR=str(tmp_path)).splitlines()

    shared = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    assert tuple(shared) == GROUPS
    assert max(shared.values()) <= SMALLEST_SHARED
    assert [line.split(", ")[1] for line in lines] == ["0 of stack"] * len(GROUPS)


@pytest.mark.parametrize("group", GROUPS)
def test_every_problem_of_a_sweep_has_configs_on_every_target(group):
    sweep = read_sweep(ROOT / "sweeps" / f"{group}.yaml")

    for name in sweep.targets:
        target = targets.find(name)
        space = list(configs(sweep, target))
        for problem in (*sweep.problems, *sweep.smoke):
            assert any(admitted(sweep, target, one, problem) is None for one in space), problem


def matmul(*sizes: int) -> Problem:
    return Problem.of(dict(zip("MNK", sizes, strict=True)) | {"dtype": "float16"})


def test_the_matmul_sweep_has_at_most_40_problems_and_those_that_are_compared():
    sweep = read_sweep(ROOT / "sweeps" / "matmul.yaml")

    assert len(sweep.problems) <= 40
    assert {
        matmul(4096, 4096, 4096),
        matmul(64, 4096, 4096),
        matmul(1024, 14336, 4096),
        matmul(1000, 4095, 1023),
    } <= set(sweep.problems)


@pytest.mark.parametrize(
    ("problem", "best"),
    [
        (matmul(64, 4096, 4096), (64, 64, 128, 8, 4, 5)),
        (matmul(4096, 4096, 4096), (128, 256, 64, 8, 8, 3)),
    ],
)
def test_the_matmul_space_holds_the_best_configs_known_on_an_h200(problem, best):
    sweep, target = read_sweep(ROOT / "sweeps" / "matmul.yaml"), targets.find("H200")
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")

    left = [one for one in configs(sweep, target) if admitted(sweep, target, one, problem) is None]

    assert dict(zip(names, best, strict=True)) in [one.as_dict() for one in left]

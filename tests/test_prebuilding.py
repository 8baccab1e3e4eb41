"""`tritune compile --locked`: a later launch of what is locked compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from projects import Project
from tritune import lock, setting
from tritune.cli import tritune

pytestmark = pytest.mark.lowering

LAUNCH = """
import sys
import torch
from tritune.device import fakes, targets
from tritune.device.stages import StandIn, gpu_target

target = targets.find("H200")
import triton
from triton import knobs
triton.runtime.driver.set_active(StandIn(gpu_target(target)))

compiled = []
knobs.compilation.listener = lambda **said: compiled.append(not said["cache_hit"])
import ops
from tritune.model import Config

with fakes.world(target):
    x = torch.empty(int(sys.argv[1]), dtype=torch.float32)
    y = torch.empty_like(x)
    ops.scale_kernel.fn.warmup(x, y, x.numel(), grid=(1,), BLOCK=int(sys.argv[2]), num_warps=4)
print(sum(compiled), len(compiled))
"""
"""A plain process, as production is one: how many compiles were none of the cache's."""


@pytest.fixture
def project(fresh, tmp_path, monkeypatch) -> Project:
    copied = fresh.copy(tmp_path / "project")
    monkeypatch.chdir(copied.folder)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.delenv("TRITUNE_LOCKFILE", raising=False)
    return copied


def run(*arguments: str) -> Result:
    arguments = ("compile", "--locked", "--jobs", "1", *arguments)
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


def said(result: Result) -> list[str]:
    """Without what a run took, and where the cache is."""
    return [text.partition(" · ")[0] for text in result.stdout.splitlines()]


def launches(project: Project, n: int, block: int = 256) -> str:
    """Compiles, of how many binaries asked for, when a plain process launches the kernel."""
    path = os.pathsep.join([str(project.folder), str(Path(__file__).parent.parent)])
    env = {**os.environ, "PYTHONPATH": path}
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LAUNCH, str(n), str(block)],
        env=env,
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_locked_is_compiled_and_a_launch_of_it_compiles_nothing(project):
    first = run("--target", "H200")
    again = run("--target", "H200")

    assert first.exit_code == again.exit_code == 0
    # One of the two sizes is a multiple of 16 and one is not, so they are two binaries.
    assert said(first) == ["2 locked for H200 in tritune.lock: 2 compiled"]
    assert said(again) == ["2 locked for H200 in tritune.lock: 2 in the cache already"]
    assert [launches(project, n) for n in (1000, 4096)] == ["0 1", "0 1"]
    assert launches(project, 4096, block=512) == "1 1"


def test_a_binary_of_a_constant_that_was_edited_since_is_compiled_again(project):
    run("--target", "H200")
    project.edit("helpers.py", "constexpr(2.0)", "constexpr(9.0)")

    result = run("--target", "H200")

    assert said(result) == ["2 locked for H200 in tritune.lock: 2 compiled"]


def test_an_entry_that_no_shape_asks_for_is_counted_and_named(project):
    project.edit("sweeps/scale.yaml", "[1000, 4096]", "1000")

    result = run("--target", "H200")

    assert result.exit_code == 0
    assert said(result) == [
        "tritune.lock:13: orphan: scale_kernel on H200: n=4096 x=f32 y=f32: no shape asks for it",
        "2 locked for H200 in tritune.lock: 1 compiled, 1 orphan",
    ]


def test_a_config_that_the_kernel_cannot_run_any_more_is_a_no(project):
    project.edit("ops.py", "BLOCK: tl.constexpr", "SIZE: tl.constexpr")
    for old in ('"BLOCK": 256', '"BLOCK"'):
        project.edit("ops.py", old, old.replace("BLOCK", "SIZE"))
    project.edit("ops.py", "* BLOCK + tl.arange(0, BLOCK)", "* SIZE + tl.arange(0, SIZE)")
    project.edit("ops.py", "half(BLOCK)", "half(SIZE)")
    project.edit("sweeps/scale.yaml", "BLOCK", "SIZE")

    result = run("--target", "H200")

    assert result.exit_code == 1
    assert said(result) == [
        f"tritune.lock:{line}: failed: scale_kernel on H200: n={n} x=f32 y=f32: its config has "
        "BLOCK, num_warps; the kernel has SIZE, num_warps"
        for line, n in ((9, 1000), (13, 4096))
    ] + ["2 locked for H200 in tritune.lock: 2 failed"]


def test_a_config_that_takes_more_than_the_gpu_has_is_a_no_with_the_limit(project):
    project.take_shared_memory(available=1000, blocks=(1024, 256))

    result = run("--target", "H200")

    big = "x=f32 y=f32: too much shared memory:"
    failed = "failed: scale_kernel on H200"
    assert result.exit_code == 1
    assert said(result) == [
        f"tritune.lock:9: {failed}: n=1000 {big} at least 2048 bytes, 1000 available",
        f"tritune.lock:13: {failed}: n=4096 {big} 1024 bytes, 1000 available",
        "2 locked for H200 in tritune.lock: 2 failed",
    ]


def test_a_gpu_that_nothing_is_locked_for_is_a_no(project):
    result = run("--target", "A100")

    assert result.exit_code == 1
    assert said(result) == ["nothing is locked for A100 in tritune.lock"]


def test_another_lockfile_can_be_named_and_so_can_a_sweep_file(project):
    held = lock.read(project.lockfile)
    other = project.folder / "other.lock"
    lock.write(other, lock.Lock(devices=held.devices, entries=held.entries[:1]))

    result = run("other.lock", "sweeps/scale.yaml", "--target", "H200")

    assert result.exit_code == 0
    assert said(result) == ["1 locked for H200 in other.lock: 1 compiled"]


def test_with_no_gpu_a_target_has_to_be_named(project, monkeypatch):
    monkeypatch.setattr(setting.cuda, "present", lambda: False)

    result = run()

    assert result.exit_code == 3
    assert result.stderr == (
        "error: no GPU on this machine that torch and Triton can use\n\n"
        "hint: name what to compile for: --target H200\n"
    )


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--only", "n > 1"], "--locked compiles what is locked, so --only means nothing"),
        (["--output", "here"], "--locked compiles what is locked, so --output means nothing"),
    ],
)
def test_options_that_mean_nothing_for_it_are_refused(project, arguments, what):
    result = run("--target", "H200", *arguments)

    assert result.exit_code == 2
    assert what in result.stderr


def test_as_json_an_entry_is_one_flat_object(project, tmp_path):
    project.edit("sweeps/scale.yaml", "[1000, 4096]", "1000")

    made = json.loads(run("--target", "H200", "--json").stdout)

    assert (made["target"], made["folder"]) == ("H200", str(tmp_path / "triton"))
    assert made["counts"] == {"compiled": 1, "orphan": 1}
    [compiled, orphan] = made["entries"]
    assert compiled.pop("seconds") > 0
    assert compiled == {
        "kernel": "ops:scale_kernel",
        "device": "H200",
        "key": "n=1000 x=f32 y=f32",
        "file": "tritune.lock",
        "line": 9,
        "fate": "compiled",
        "why": "",
        "problem": {"n": 1000, "dtype": "float32"},
    }
    assert (orphan["fate"], orphan["key"]) == ("orphan", "n=4096 x=f32 y=f32")

"""Kernels that nobody decorated, on a GPU: swept inside their op, locked, and served."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from others import PACKAGE, project
from tritune import lock

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent
OTHERS = ROOT / "tests" / "data" / "others"
SWEEPS = {
    "scale": "problem: problems.py:scale_problem\nshapes: [{M: 512, N: [256, 4096]}]\n",
    "totals": "problem: problems.py:totals_problem\nshapes: [{n: 1048576}]\n",
}
SERVED = """\
import tritune
import torch
from triton.runtime.autotuner import Autotuner

def never(*_, **__):
    raise AssertionError("production benchmarked something")

Autotuner._bench = never
torch.set_default_device("cuda")
import problems

for make, axes in ((problems.scale_problem, {"M": 512, "N": 4096}),
                   (problems.totals_problem, {"n": 1048576})):
    torch.manual_seed(3)
    made = make(**axes)
    result = made.run()
    if made.reference:
        for a, b in zip(result, made.reference()):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)
    else:
        assert result.item() == 1048576 * 1.5, result
print({name: sum(kinds.values()) - kinds["exact"] for name, kinds in tritune.stats().items()})
"""


def python(folder: Path, *args: object, **env: str) -> str:
    outer = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = (ROOT, folder.parent / "site", os.environ.get("PYTHONPATH", ""))
    done = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={
            **outer,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "TRITUNE_CACHE_DIR": str(folder.parent / "cache"),
            **env,
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_tuned_inside_an_op_is_locked_for_each_kernel_and_key_and_served(tmp_path):
    for name, sweep in SWEEPS.items():
        path = project(tmp_path, sweep)
        python(path.parent, "-m", "tritune", "sweep", path.rename(path.with_stem(name)).name)
    lockfile = tmp_path / "mine/tritune.lock"

    said = python(lockfile.parent, "-c", SERVED, TRITUNE_LOCKFILE=str(lockfile))

    entries = [(at.kernel.partition(":")[2], at.key) for at, _ in lock.read(lockfile).entries]
    assert entries == [
        ("scale_backward", "N=256 WIDE=False DY=f32 X=f32 DX=f32 DA=f32 alpha=f32"),
        ("scale_backward", "N=4096 WIDE=True DY=f32 X=f32 DX=f32 DA=f32 alpha=f32"),
        ("scale_forward", "N=256 X=f32 Y=f32 alpha=f32"),
        ("scale_forward", "N=4096 X=f32 Y=f32 alpha=f32"),
        ("total_kernel", "n=524288 x=f32 out=f32"),
        ("total_kernel", "n=1048576 x=f32 out=f32"),
    ]
    assert said == (
        "{'theirs:scale_backward': 0, 'theirs:scale_forward': 0, 'theirs:total_kernel': 0}\n"
    )
    assert (tmp_path / "site/theirs.py").read_text() == PACKAGE


@pytest.mark.skipif(
    importlib.util.find_spec("liger_kernel") is None,
    reason="liger-kernel is not installed: `make test-others`",
)
@pytest.mark.parametrize(("name", "entries"), [("dyt", 4), ("mlp", 8)])
def test_a_public_package_is_tuned_as_it_is_in_the_wheel(name, entries, tmp_path):
    (tmp_path / "mine").mkdir()
    for file in ("liger.py", f"{name}.yaml"):
        (tmp_path / "mine" / file).write_text((OTHERS / file).read_text())

    python(tmp_path / "mine", "-m", "tritune", "sweep", f"{name}.yaml")

    assert len(lock.read(tmp_path / "mine/tritune.lock").entries) == entries

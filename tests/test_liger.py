"""The contract on a public package: ops of liger-kernel, its source as it is in the wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OTHERS = ROOT / "tests" / "data" / "others"

pytestmark = [
    pytest.mark.lowering,
    pytest.mark.skipif(
        importlib.util.find_spec("liger_kernel") is None,
        reason="liger-kernel is not installed: `make test-others`",
    ),
]


def compiled(sweep: str, folder: Path) -> dict[str, dict]:
    """What `tritune compile` says of each kernel, by its name, for an H200 and with no GPU."""
    said = subprocess.run(
        [sys.executable, "-m", "tritune", "compile", str(OTHERS / sweep), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            "TRITUNE_CACHE_DIR": str(folder),
        },
    )
    assert said.returncode == 0, said.stderr
    return {one["kernel"]: one for one in json.loads(said.stdout)["reports"]}


def shared(report: dict, **axes: object) -> list[int]:
    """Bytes of shared memory of every config that fits on the problems with these axes."""
    return [
        one["shared_bytes"]
        for one in report["built"]
        if axes.items() <= one["problem"].items()
        for _ in range(1 + len(one["same_binary"]))
    ]


def too_big(report: dict, **axes: object) -> int:
    return sum(
        one["reason"] == "too much shared memory" and axes.items() <= one["problem"].items()
        for one in report["rejected"]
    )


def test_dynamic_tanh_forward_and_backward_are_intercepted_and_every_config_compiles(tmp_path):
    reports = compiled("dyt.yaml", tmp_path)

    assert reports.keys() == {
        "liger_kernel.ops.dyt:_dyt_fwd_kernel",
        "liger_kernel.ops.dyt:_dyt_bwd_kernel",
    }
    for report in reports.values():
        for n in (1024, 4096):
            assert len(shared(report, N=n)) == 18
        assert report["rejected"] == []


def test_swiglu_on_descriptors_fits_in_other_configs_for_each_dtype(tmp_path):
    forward = compiled("mlp.yaml", tmp_path)["liger_kernel.ops.mlp:_swiglu_kernel_forward"]

    found = {
        dtype: (len(shared(forward, dtype=dtype)), too_big(forward, dtype=dtype))
        for dtype in ("bfloat16", "float32")
    }
    assert found == {"bfloat16": (24, 8), "float32": (8, 24)}

"""The contract on a public package: ops of liger-kernel, its source as it is in the wheel."""

from __future__ import annotations

import pytest

from public import OTHERS, binaries, compiled, counts, needs

pytestmark = needs("liger_kernel")

MLP = f"""\
problem: {OTHERS / "liger.py"}:mlp_problem
targets: [H200]
shapes: [{{S: 128, dim: 128, hidden: 128, dtype: [bfloat16, float32]}}]
"""


@pytest.mark.lowering
def test_dynamic_tanh_forward_and_backward_are_intercepted_and_every_config_compiles(tmp_path):
    reports = compiled(OTHERS / "dyt.yaml", tmp_path, "--only", "N == 4096")

    assert {name: (*counts(one), binaries(one)) for name, one in reports.items()} == {
        # Of 18 each: there is no loop whose stages would make another binary.
        "liger_kernel.ops.dyt:_dyt_fwd_kernel": (18, 18, {}, 9),
        "liger_kernel.ops.dyt:_dyt_bwd_kernel": (18, 18, {}, 9),
    }


def test_swiglu_on_descriptors_fits_in_other_configs_for_each_dtype(tmp_path):
    sweep = tmp_path / "mlp.yaml"
    sweep.write_text(MLP)

    reports = compiled(sweep, tmp_path)

    found = {
        (name.rpartition(":")[2], dtype): counts(one, dtype=dtype)
        for name, one in reports.items()
        for dtype in ("bfloat16", "float32")
    }
    assert found == {
        ("_swiglu_kernel_forward", "bfloat16"): (32, 24, {"too much shared memory": 8}),
        ("_swiglu_kernel_forward", "float32"): (32, 8, {"too much shared memory": 24}),
        ("_swiglu_kernel_backward_dI", "bfloat16"): (32, 32, {}),
        ("_swiglu_kernel_backward_dI", "float32"): (32, 20, {"too much shared memory": 12}),
    }
    built = [one for report in reports.values() for one in report["built"]]
    assert max(one["shared_bytes"] for one in built) <= 232448
    assert min(one["registers"] for one in built) > 0

"""The contract on ops of public packages, their sources as they are in the wheels.

Each is intercepted as it is called, on fake tensors or, where it reads what is in them, on real
ones; of every config of every kernel it is known for an H200 whether it fits.
"""

from __future__ import annotations

import pytest

from public import OTHERS, binaries, compiled, counts, needs

pytestmark = pytest.mark.others

PRUNED, LARGE = "its own prune function leaves it out", "too much shared memory"
OPS = {
    "conv": (
        "fla",
        "D == 1024",
        {"fla.modules.causal_conv1d.ops:causal_conv1d_update_kernel": (24, 24, {}, 24)},
    ),
    "norm": ("fla", "T == 4096", {"fla.modules.norm.l2norm:l2norm_fwd_kernel": (25, 25, {}, 25)}),
    "int8": (
        "torchao",
        "M == 512",
        {
            "torchao.prototype.quantized_training.int8_mm:_scaled_int8_mm_kernel": (25, 25, {}, 25),
        },
    ),
    "split_k": (
        "gemlite",
        "M == 1",
        {
            # Its 22 are templates: all that run are made of them, some to be too large.
            "gemlite.triton_kernels.gemm_splitK_kernels:gemm_splitK_INT_kernel": (
                (38, 10, {PRUNED: 22, LARGE: 6}, 10)
            ),
        },
    ),
    "cce": (
        "cut_cross_entropy",
        "V == 8192",
        {
            "cut_cross_entropy.cce_lse_forward:_cce_lse_forward_kernel": (
                (103, 48, {PRUNED: 55}, 48)
            ),
        },
    ),
    "mixed": (
        "torchao",
        "M == 16",
        {
            # Heuristics set two tunables anew, so that most configs are one with another.
            "torchao.prototype.hqq.kernels:mixed_mm_kernel_max_autotune": (418, 418, {}, 49),
        },
    ),
    "delta": (
        "fla",
        "D == 64",
        {
            "fla.modules.norm.l2norm:l2norm_fwd_kernel": (25, 25, {}, 25),
            "fla.ops.common.chunk_delta_h:chunk_gated_delta_rule_fwd_kernel_h_blockdim64": (
                (12, 12, {}, 12)
            ),
            "fla.ops.common.chunk_o:chunk_fwd_kernel_o": (3, 3, {}, 3),
            "fla.ops.gated_delta_rule.chunk_fwd:chunk_gated_delta_rule_fwd_kkt_solve_kernel": (
                (6, 6, {}, 6)
            ),
            "fla.ops.gated_delta_rule.wy_fast:recompute_w_u_fwd_kernel": (9, 9, {}, 3),
            "fla.ops.utils.cumsum:chunk_local_cumsum_scalar_kernel": (4, 4, {}, 4),
        },
    ),
    "gla": (
        "fla",
        "D == 64",
        {
            "fla.ops.common.chunk_h:chunk_bwd_kernel_dh": ((48, 48, {}, 48)),
            "fla.ops.common.chunk_h:chunk_fwd_kernel_h": ((96, 96, {}, 96)),
            "fla.ops.gla.chunk:chunk_gla_bwd_kernel_dA": ((12, 12, {}, 4)),
            "fla.ops.gla.chunk:chunk_gla_bwd_kernel_dv": ((36, 9, {PRUNED: 27}, 9)),
            "fla.ops.gla.chunk:chunk_gla_bwd_kernel_inter": ((36, 9, {PRUNED: 27}, 3)),
            "fla.ops.gla.chunk:chunk_gla_bwd_kernel_intra": ((12, 12, {}, 12)),
            "fla.ops.gla.chunk:chunk_gla_fwd_A_kernel_intra_sub_inter": ((24, 24, {}, 16)),
            "fla.ops.gla.chunk:chunk_gla_fwd_A_kernel_intra_sub_intra": ((8, 8, {}, 4)),
            "fla.ops.gla.chunk:chunk_gla_fwd_kernel_o": ((36, 36, {}, 12)),
            "fla.ops.utils.cumsum:chunk_local_cumsum_vector_kernel": ((6, 6, {}, 6)),
        },
    ),
    "moe": (
        "liger_kernel",
        "I == 512",
        {
            "liger_kernel.ops.fused_moe_kernels:_fused_down_proj_kernel": (32, 32, {}, 32),
            "liger_kernel.ops.fused_moe_kernels:_fused_up_proj_swiglu_kernel": (32, 32, {}, 32),
            "liger_kernel.ops.fused_moe_kernels:_moe_bwd_dW1_kernel": (16, 16, {}, 16),
            "liger_kernel.ops.fused_moe_kernels:_moe_bwd_dW2_kernel": (16, 16, {}, 16),
            "liger_kernel.ops.fused_moe_kernels:_moe_bwd_dX_expanded_kernel": (
                32,
                30,
                {LARGE: 2},
                30,
            ),
            "liger_kernel.ops.fused_moe_kernels:_moe_bwd_down_proj_kernel": (32, 32, {}, 32),
            # Under two keys: with the weights, and without.
            "liger_kernel.ops.fused_moe_kernels:_token_gather_weighted_sum_kernel": (
                80,
                80,
                {},
                80,
            ),
        },
    ),
    "nms": (
        "conch",
        "N == 256",
        {
            "conch.kernels.vision.nms:_create_iou_mask_kernel": (5, 5, {}, 5),
            "conch.kernels.vision.nms:_nms_suppression_kernel": (7, 7, {}, 7),
        },
    ),
}
"""Sweep file -> its package, one of its problems, and of each kernel what of its configs fits.

That is how many there are, how many fit, why the others do not, and how many binaries they are.
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(package)) for name, (package, _, _) in OPS.items()]
)
def test_every_config_of_every_kernel_of_an_op_is_known_to_fit_or_not(name, tmp_path):
    _, only, expected = OPS[name]

    reports = compiled(OTHERS / f"{name}.yaml", tmp_path, "--only", only)

    assert {kernel: (*counts(one), binaries(one)) for kernel, one in reports.items()} == expected
    for one in reports.values():
        assert all(built["registers"] > 0 for built in one["built"])
        assert all(built["shared_bytes"] <= 232448 for built in one["built"])

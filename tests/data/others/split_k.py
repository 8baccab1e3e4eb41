"""A matmul of gemlite by weights of four bits, whose source is as it is in the archive."""

import torch
from gemlite import DType, GemLiteLinear

import tritune


def split_k_problem(M, N, K, group):
    """Its split-K kernel, which adds to its output by atomics.

    It reads scales unmasked, so its split blocks have to divide K: with a group of 64 its prune
    function makes blocks of at most 64, split by at most 8.
    """
    x = torch.randn(M, K, dtype=torch.float16) / K**0.5
    weight = torch.randint(0, 16, (N, K), dtype=torch.uint8)
    scales = (torch.rand(N * K // group, 1) + 0.5).half()
    zeros = torch.randint(0, 16, (N * K // group, 1)).half()
    layer = GemLiteLinear(
        4,
        group_size=group,
        in_features=K,
        out_features=N,
        input_dtype=DType.FP16,
        output_dtype=DType.FP16,
    )
    layer.pack(weight, scales, zeros, None)

    def run():
        return layer.forward_manual(x, matmul_type="GEMM_SPLITK")

    def reference():
        grouped = weight.double().view(-1, group)
        return x.double() @ ((grouped - zeros.double()) * scales.double()).view(N, K).T

    return tritune.Problem(run, reference=reference)

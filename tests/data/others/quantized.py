"""Matmuls of torchao, whose source is as it is in the wheel."""

import torch
from torchao.prototype.hqq.mixed_mm import triton_mixed_mm
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm_cuda

import tritune


def mixed_problem(M, N, K, group, dtype):
    """By weights of four bits, two in a byte, with a scale and a zero for each group.

    The kernel finds the scales only where its block of K, times its split, is one group. Of the
    blocks in its list 32 is the smallest, and it cuts each to the group: so with groups of 32, in
    bf16 where it never splits, every config is right, and with others only those that fit.
    """
    x = torch.randn(M, K, dtype=dtype) / K**0.5
    weight = torch.randint(0, 16, (K, N), dtype=torch.uint8)
    packed = (weight[0::2] | (weight[1::2] << 4)).contiguous()
    scales = (torch.rand(K // group, N) + 0.5).to(dtype)
    zeros = torch.randint(0, 16, (K // group, N)).to(dtype)

    def run():
        return triton_mixed_mm(
            x, packed, scales, zeros, group_size=group, kernel_type="max_autotune"
        )

    def reference():
        each = [t.double().repeat_interleave(group, dim=0) for t in (scales, zeros)]
        return x.double() @ ((weight.double() - each[1]) * each[0])

    return tritune.Problem(run, reference=reference)


def int8_problem(M, N, K):
    """Eight bits by eight bits, scaled by row and column.

    This is what the package registers with torch for CUDA: it has nothing for a CPU.
    """
    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    b = torch.randint(-128, 128, (N, K), dtype=torch.int8).T
    rows, columns = torch.rand(M) / K, torch.rand(N)

    def reference():
        return (a.double() @ b.double()) * rows.double()[:, None] * columns.double()

    return tritune.Problem(lambda: scaled_int8_mm_cuda(a, b, rows, columns), reference=reference)

"""matmul: A[M, K] @ B[K, N] -> C[M, N], fp16 or bf16, accumulated in fp32.

What a tuner is worth depends on what the kernel lets it reach, so three decisions:
masks are plain comparisons, since a modulo (`offs % M`) hides from the compiler that elements
are contiguous and costs its vector loads; row strides and widths come in units of 16 bytes,
which tells it that rows are aligned without a compile class for each kind of size; and operands
whose rows are not aligned are first copied into rows that are (`kernels/pack.py`).
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritune
from kernels.pack import VECTOR, aligned, pack_operands

# Fits 64 KiB of shared memory, so it runs on every GPU.
DEFAULT = {
    "BLOCK_M": 64,
    "BLOCK_N": 128,
    "BLOCK_K": 32,
    "GROUP_M": 8,
    "num_warps": 4,
    "num_stages": 4,
}


# N stays specialised: whether rows of C are aligned decides how C is stored.
@tritune.kernel(key=["M", "N", "K"], like=["a", "b"], near="M", default=DEFAULT)
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit(do_not_specialize=["M", "K", "a_stride", "a_width", "b_stride", "b_width"])
def matmul_kernel(
    a, b, c, M, N, K, a_stride, a_width, b_stride, b_width,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    # Programs go down GROUP_M rows of tiles before they go right, so that those in flight
    # together share operands in L2.
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = program // (GROUP_M * tiles_n)
    group_rows = min(tiles_m - group * GROUP_M, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    first_m = (group * GROUP_M + within % group_rows) * BLOCK_M
    first_n = within // group_rows * BLOCK_N

    rows = first_m + tl.arange(0, BLOCK_M)
    columns = first_n + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K)
    a_stride, b_stride = a_stride * VECTOR, b_stride * VECTOR
    # Offsets of whole tiles are 64 bits wide and scalar; inside a tile 32 bits do.
    a_tile = a + first_m.to(tl.int64) * a_stride
    a_tile += tl.arange(0, BLOCK_M)[:, None] * a_stride + depths[None, :]
    b_tile = b + depths[:, None] * b_stride + columns[None, :]
    row_inside = (rows < M)[:, None]
    column_inside = (columns < b_width * VECTOR)[None, :]

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            a_inside, b_inside = row_inside, column_inside
        else:
            # A is as wide as its rows are (they may be padded), B as deep as K.
            a_inside = row_inside & (depths < a_width * VECTOR - start)[None, :]
            b_inside = column_inside & (depths < K - start)[:, None]
        left = tl.load(a_tile, mask=a_inside, other=0.0)
        right = tl.load(b_tile, mask=b_inside, other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride

    c_tile = c + first_m.to(tl.int64) * N
    c_tile += tl.arange(0, BLOCK_M)[:, None] * N + columns[None, :]
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(c_tile, accumulator.to(c.dtype.element_ty), mask=inside)


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    M, N = a.shape[0], b.shape[1]
    c = a.new_empty(M, N)
    if c.numel() == 0:
        return c
    a, b = pack_operands(a, b)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    vectors = [size // VECTOR.value for m in (a, b) for size in (m.stride(0), m.shape[1])]
    matmul_kernel[grid](a, b, c, M, N, b.shape[0], *vectors)
    return c


@tritune.problem(matmul_kernel)
def matmul_problem(M, N, K, dtype):
    a, b = torch.randn(M, K, dtype=dtype), torch.randn(K, N, dtype=dtype)
    return tritune.Problem(
        lambda: matmul(a, b),
        reference=lambda: a.double() @ b.double(),
        flops=2 * M * N * K,
        bytes=a.element_size() * (M * K + K * N + M * N),
        # A problem that copies operands first is as fast as both together.
        timed="kernel" if aligned(a) and aligned(b) else "op",
    )

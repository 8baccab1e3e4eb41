"""splitk: A[M, K] @ B[K, N] -> C[M, N] for few rows, K shared out over programs.

With few rows a matmul has too few tiles to fill a GPU; the programs that split K fill it, each
writing a part of the sum, and a second launch adds the parts. Parts go to a workspace whose size
depends on the config, and not through atomics into C: those add in a different order each time.
The second launch depends on the config as well, so the whole op is timed.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritune

# Fits 64 KiB of shared memory, so it runs on every GPU.
DEFAULT = {
    "BLOCK_M": 16,
    "BLOCK_N": 64,
    "BLOCK_K": 64,
    "SPLIT_K": 4,
    "num_warps": 4,
    "num_stages": 4,
}

SUM_BLOCK = tl.constexpr(512)


@tritune.kernel(key=["M", "N", "K"], like=["a", "b"], near="M", default=DEFAULT)
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit(do_not_specialize=["M"])
def splitk_kernel(
    a, b, parts, M, N, K, a_stride, b_stride,
    EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = tl.program_id(0) // tiles_n * BLOCK_M
    first_n = tl.program_id(0) % tiles_n * BLOCK_N
    part = tl.program_id(1)
    depth = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    first_k = part * depth
    last_k = min(first_k + depth, K)

    rows = first_m + tl.arange(0, BLOCK_M)
    columns = first_n + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K)
    # Offsets of whole tiles are 64 bits wide and scalar; inside a tile 32 bits do.
    a_tile = a + first_m.to(tl.int64) * a_stride + first_k
    a_tile += tl.arange(0, BLOCK_M)[:, None] * a_stride + depths[None, :]
    b_tile = b + first_k.to(tl.int64) * b_stride
    b_tile += depths[:, None] * b_stride + columns[None, :]
    row_inside, column_inside = (rows < M)[:, None], (columns < N)[None, :]

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(first_k, last_k, BLOCK_K):
        if EVEN_K:
            a_inside, b_inside = row_inside, column_inside
        else:
            a_inside = row_inside & (depths < last_k - start)[None, :]
            b_inside = column_inside & (depths < last_k - start)[:, None]
        left = tl.load(a_tile, mask=a_inside, other=0.0)
        right = tl.load(b_tile, mask=b_inside, other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride

    tile = parts + (part.to(tl.int64) * M + first_m) * N
    tile += tl.arange(0, BLOCK_M)[:, None] * N + columns[None, :]
    tl.store(tile, accumulator.to(parts.dtype.element_ty), mask=row_inside & column_inside)


@triton.jit
def sum_kernel(parts, c, size, SPLIT_K: tl.constexpr):
    """Adds the parts, each element's in the same order every time."""
    offsets = tl.program_id(0).to(tl.int64) * SUM_BLOCK + tl.arange(0, SUM_BLOCK)
    inside = offsets < size
    total = tl.zeros((SUM_BLOCK,), dtype=tl.float32)
    for _ in tl.static_range(SPLIT_K):
        total += tl.load(parts + offsets, mask=inside, other=0.0)
        parts += size
    tl.store(c + offsets, total.to(c.dtype.element_ty), mask=inside)


def splitk(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = (m if m.stride(1) == 1 else m.contiguous() for m in (a, b))
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)
    if c.numel() == 0:
        return c
    config = splitk_kernel.config(M=M, N=N, K=K, a=a, b=b)
    split = config["SPLIT_K"]
    parts = a.new_empty(split, M, N, dtype=torch.float32) if split > 1 else c[None]
    tiles = triton.cdiv(M, config["BLOCK_M"]) * triton.cdiv(N, config["BLOCK_N"])
    splitk_kernel[(tiles, split)](a, b, parts, M, N, K, a.stride(0), b.stride(0), **config)
    if split > 1:
        sum_kernel[(triton.cdiv(M * N, SUM_BLOCK.value),)](parts, c, M * N, SPLIT_K=split)
    return c


@tritune.problem(splitk_kernel)
def splitk_problem(M, N, K, dtype):
    a, b = torch.randn(M, K, dtype=dtype), torch.randn(K, N, dtype=dtype)
    return tritune.Problem(
        lambda: splitk(a, b),
        reference=lambda: a.double() @ b.double(),
        flops=2 * M * N * K,
        bytes=a.element_size() * (M * K + K * N + M * N),
        timed="op",
    )

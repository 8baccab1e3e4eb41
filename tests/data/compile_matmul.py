"""A row-major fp16 matmul as tutorials write it: rows and columns that wrap, a masked depth."""

# ruff: noqa: PLR0917

import torch
import triton
import triton.language as tl

import tritune

CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (64, 256, 32, 4, 4),
        (128, 128, 32, 4, 4),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (128, 32, 32, 4, 4),
        (64, 32, 32, 5, 2),
        (32, 64, 32, 5, 2),
        (128, 256, 128, 3, 8),
        (256, 128, 128, 3, 8),
        (256, 64, 128, 4, 4),
        (64, 256, 128, 4, 4),
        (128, 128, 128, 4, 4),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (128, 32, 64, 4, 4),
    )
]


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    group = program // in_group
    first = group * GROUP_M
    rows_of_tiles = min(tiles_m - first, GROUP_M)
    tile_m = first + (program % in_group) % rows_of_tiles
    tile_n = (program % in_group) // rows_of_tiles

    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + (rows[:, None] * stride_am + depth[None, :] * stride_ak)
    b_tile = b + (depth[:, None] * stride_bk + columns[None, :] * stride_bn)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        left = tl.load(a_tile, mask=depth[None, :] < K - k * BLOCK_K, other=0.0)
        right = tl.load(b_tile, mask=depth[:, None] < K - k * BLOCK_K, other=0.0)
        total = tl.dot(left, right, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_tile = c + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    tl.store(c_tile, total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


DEFAULT = {
    "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 4, "num_stages": 3,
}  # fmt: skip
KEY = ["M", "N", "K"]

autotuned = triton.autotune(CONFIGS, key=KEY)(matmul_kernel)
grid_kernel = tritune.kernel(key=KEY, like=["a", "b"], default=DEFAULT)(matmul_kernel)
listed_kernel = tritune.kernel(triton.autotune(CONFIGS, key=KEY)(matmul_kernel))


def matmul(kernel, a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, device=a.device, dtype=torch.float16)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c


def problem_of(kernel, M, N, K):
    a, b = (torch.randn(sizes, dtype=torch.float16) for sizes in ((M, K), (K, N)))
    return tritune.Problem(lambda: matmul(kernel, a, b), reference=lambda: a.float() @ b.float())


@tritune.problem(grid_kernel)
def grid_problem(M, N, K):
    return problem_of(grid_kernel, M, N, K)


@tritune.problem(listed_kernel)
def listed_problem(M, N, K):
    return problem_of(listed_kernel, M, N, K)

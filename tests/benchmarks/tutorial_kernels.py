"""tutorial_kernels: what a user of Triton has without tritune, to compare with.

Matmul and attention are the kernels of the tutorials, told anew, under `@triton.autotune` with a
list of configs as it stands in them. The others are our own kernels under `@triton.autotune`
with the 16 configs given here. Each op tunes itself at its first call of a new size.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels import layer_norm, softmax, splitk


def config(num_stages, num_warps, **meta):
    return triton.Config(meta, num_stages=num_stages, num_warps=num_warps)


MATMUL_CONFIGS = [
    config(stages, warps, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP_M=8)
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

ATTENTION_CONFIGS = [
    config(stages, warps, BLOCK_M=m, BLOCK_N=n)
    for m, n, warps in ((64, 32, 4), (64, 64, 4), (128, 32, 4), (128, 64, 4), (128, 128, 8))
    for stages in (2, 3, 4)
]

SPLITK_CONFIGS = [
    config(stages, 4, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, SPLIT_K=split)
    for m, n in ((16, 64), (64, 64))
    for k, stages in ((64, 4), (128, 3))
    for split in (1, 2, 4, 8)
]

SOFTMAX_CONFIGS = [
    config(3, warps, BLOCK=block, ROWS=1, STAGES=1)
    for block in (1024, 4096, 16384, 32768)
    for warps in (4, 8, 16, 32)
]

FORWARD_CONFIGS = [
    config(3, warps, BLOCK=block, ROWS=1)
    for block in (1024, 2048, 4096, 8192)
    for warps in (2, 4, 8, 16)
]

BACKWARD_CONFIGS = [
    config(3, warps, BLOCK=block, ROWS=rows, STAGES=1)
    for block in (1024, 2048, 4096, 8192)
    for rows in (16, 64)
    for warps in (4, 8)
]


@triton.autotune(configs=MATMUL_CONFIGS, key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group_size = GROUP_M * blocks_n
    first = pid // group_size * GROUP_M
    height = min(blocks_m - first, GROUP_M)
    pid_m = first + pid % group_size % height
    pid_n = pid % group_size // height

    # Wrapped around instead of masked, as the tutorial does it.
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = tl.load(a_ptrs, mask=offs_k[None, :] < K - step * BLOCK_K, other=0.0)
        right = tl.load(b_ptrs, mask=offs_k[:, None] < K - step * BLOCK_K, other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * rows[:, None] + stride_cn * columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=inside)


def matmul(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c


@triton.jit
def attention_span(
    acc, l_i, m_i, q, k_ptrs, v_ptrs, qk_scale, offs_m, low, high, length,
    CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    k_ptrs += low * HEAD_DIM
    v_ptrs += low * HEAD_DIM
    for start in range(low, high, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        inside = (offs_n < length)[:, None]
        k = tl.load(k_ptrs, mask=inside, other=0.0) if EDGE else tl.load(k_ptrs)
        qk = tl.dot(q, tl.trans(k)) * qk_scale
        if EDGE:
            seen = offs_n[None, :] < length
            if CAUSAL:
                seen = seen & (offs_m[:, None] >= offs_n[None, :])
            qk = tl.where(seen, qk, -1.0e6)
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs, mask=inside, other=0.0) if EDGE else tl.load(v_ptrs)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_new
        k_ptrs += BLOCK_N * HEAD_DIM
        v_ptrs += BLOCK_N * HEAD_DIM
    return acc, l_i, m_i


@triton.autotune(configs=ATTENTION_CONFIGS, key=["length", "HEAD_DIM", "CAUSAL"])
@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, sm_scale, group, length,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q_offset, kv_offset = head * length * HEAD_DIM, head // group * length * HEAD_DIM
    q_tile = q_offset + offs_m[:, None] * HEAD_DIM + offs_d[None, :]
    kv_tile = kv_offset + offs_n[:, None] * HEAD_DIM + offs_d[None, :]
    inside = (offs_m < length)[:, None]
    q = tl.load(q_ptr + q_tile, mask=inside, other=0.0)
    acc = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    l_i = tl.zeros((BLOCK_M,), dtype=tl.float32) + 1.0
    m_i = tl.zeros((BLOCK_M,), dtype=tl.float32) - float("inf")
    qk_scale = sm_scale * 1.44269504
    full = start_m * BLOCK_M // BLOCK_N * BLOCK_N if CAUSAL else length // BLOCK_N * BLOCK_N
    last = min((start_m + 1) * BLOCK_M, length) if CAUSAL else length
    # The first sum starts at one and is multiplied by exp2(-inf) = 0 in the first block.
    acc, l_i, m_i = attention_span(
        acc, l_i, m_i, q, k_ptr + kv_tile, v_ptr + kv_tile, qk_scale, offs_m, 0, full, length,
        CAUSAL, HEAD_DIM, BLOCK_N, EDGE=False,
    )  # fmt: skip
    acc, l_i, m_i = attention_span(
        acc, l_i, m_i, q, k_ptr + kv_tile, v_ptr + kv_tile, qk_scale, offs_m, full, last, length,
        CAUSAL, HEAD_DIM, BLOCK_N, EDGE=True,
    )  # fmt: skip
    acc = acc / l_i[:, None]
    tl.store(out_ptr + q_tile, acc.to(out_ptr.dtype.element_ty), mask=inside)


def attention(q, k, v, *, causal=False):
    batch, heads, length, head_dim = q.shape
    out = torch.empty_like(q)

    def grid(meta):
        return (triton.cdiv(length, meta["BLOCK_M"]), batch * heads)

    attention_kernel[grid](
        q, k, v, out, 1 / math.sqrt(head_dim), heads // k.shape[1], length,
        HEAD_DIM=head_dim, CAUSAL=causal,
    )  # fmt: skip
    return out


splitk_kernel = triton.autotune(SPLITK_CONFIGS, key=["M", "N", "K"])(splitk.splitk_kernel.fn)
softmax_kernel = triton.autotune(SOFTMAX_CONFIGS, key=["rows", "n"])(softmax.softmax_kernel.fn)
forward_kernel = triton.autotune(FORWARD_CONFIGS, key=["rows", "n"])(
    layer_norm.layer_norm_forward_kernel.fn
)
backward_kernel = triton.autotune(
    BACKWARD_CONFIGS, key=["rows", "n"], reset_to_zero=["dweight", "dbias"]
)(layer_norm.layer_norm_backward_kernel.fn)


def by_rows(rows):
    return lambda meta: (triton.cdiv(rows, meta["ROWS"]),)


def split_matmul(a, b):
    """Its workspace is as large as the largest split: the op cannot know what will be chosen."""
    (M, K), N = a.shape, b.shape[1]
    parts = a.new_empty(8, M, N, dtype=torch.float32)
    c = a.new_empty(M, N)

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (tiles, meta["SPLIT_K"])

    splitk_kernel[grid](a, b, parts, M, N, K, a.stride(0), b.stride(0))
    split = splitk_kernel.best_config.kwargs["SPLIT_K"]
    blocks = triton.cdiv(M * N, splitk.SUM_BLOCK.value)
    splitk.sum_kernel[(blocks,)](parts, c, M * N, SPLIT_K=split)
    return c


def softmax_rows(x):
    y = torch.empty_like(x)
    softmax_kernel[by_rows(x.shape[0])](x, y, *x.shape, x.stride(0))
    return y


def layer_norm_forward(x, weight, bias, eps=layer_norm.EPS):
    rows = x.shape[0]
    y = torch.empty_like(x)
    mean, rstd = x.new_empty(2, rows, dtype=torch.float32)
    forward_kernel[by_rows(rows)](x, y, weight, bias, mean, rstd, *x.shape, eps)
    return y, mean, rstd


def layer_norm_backward(dy, x, weight, mean, rstd):
    dx = torch.empty_like(x)
    dweight, dbias = weight.new_zeros(2, x.shape[1], dtype=torch.float32)
    grid = by_rows(x.shape[0])
    backward_kernel[grid](dy, x, weight, mean, rstd, dx, dweight, dbias, *x.shape)
    return dx, dweight, dbias


OPS = {
    "matmul": matmul,
    "splitk": split_matmul,
    "softmax": softmax_rows,
    "layer_norm_forward": layer_norm_forward,
    "layer_norm_backward": layer_norm_backward,
    "attention": attention,
}
"""By the name of the sweep file, with the parameters of our ops."""

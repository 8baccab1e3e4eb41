"""attention: q, k, v -> softmax(q kᵀ · scale) v, causal or not, without the S x S matrix.

One program takes BLOCK_M queries of one head. Keys that every one of them sees come first, in a
loop with no mask at all; the blocks on the diagonal and the ragged end come after, in a second
one. Fewer heads of k and v than of q are shared out in groups.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

import tritune

LOG2_E = tl.constexpr(1.4426950408889634)

# Fits 64 KiB of shared memory with heads of 128, so it runs on every GPU.
DEFAULT = {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2}


@triton.jit
def _attend(
    accumulator, weight, largest, q, k_head, v_head, scale, rows, first, last, S,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Adds keys *first* to *last* to a running softmax, in base 2."""
    dims = tl.arange(0, HEAD_DIM)
    for start in range(first, last, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        offsets = keys[:, None] * HEAD_DIM + dims[None, :]
        if MASKED:
            k = tl.load(k_head + offsets, mask=(keys < S)[:, None], other=0.0)
        else:
            k = tl.load(k_head + offsets)
        scores = tl.dot(q, k.T)
        if MASKED:
            seen = (keys < S)[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        # Scaled after the maximum: a multiply-add an element, where scaling first costs two.
        higher = tl.maximum(largest, tl.max(scores, axis=1) * scale)
        powers = tl.exp2(scores * scale - higher[:, None])
        fade = tl.exp2(largest - higher)
        weight = weight * fade + tl.sum(powers, axis=1)
        accumulator = accumulator * fade[:, None]
        if MASKED:
            v = tl.load(v_head + offsets, mask=(keys < S)[:, None], other=0.0)
        else:
            v = tl.load(v_head + offsets)
        accumulator = tl.dot(powers.to(v.dtype), v, accumulator)
        largest = higher
    return accumulator, weight, largest


@tritune.kernel(key=["heads", "group", "S"], like=["q"], near="S", default=DEFAULT)
@triton.jit(do_not_specialize=["heads", "group", "S"])
def attention_kernel(
    q, k, v, out, scale, heads, group, S,
    HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # Last block first: with a causal mask it has the most keys, and long work that starts
    # late leaves SMs idle. One head at a time, so that its keys and values stay in L2.
    blocks = tl.cdiv(S, BLOCK_M)
    program = heads * blocks - 1 - tl.program_id(0)
    head = program // blocks
    first_m = program % blocks * BLOCK_M
    rows = first_m + tl.arange(0, BLOCK_M)
    tile = rows[:, None] * HEAD_DIM + tl.arange(0, HEAD_DIM)[None, :]
    q += head.to(tl.int64) * S * HEAD_DIM
    out += head.to(tl.int64) * S * HEAD_DIM
    k += (head // group).to(tl.int64) * S * HEAD_DIM
    v += (head // group).to(tl.int64) * S * HEAD_DIM

    queries = tl.load(q + tile, mask=(rows < S)[:, None], other=0.0)
    accumulator = tl.zeros((BLOCK_M, HEAD_DIM), dtype=tl.float32)
    weight = tl.zeros((BLOCK_M,), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    scale *= LOG2_E
    visible = first_m if CAUSAL else S
    unmasked = visible // BLOCK_N * BLOCK_N
    last = min(first_m + BLOCK_M, S) if CAUSAL else S
    accumulator, weight, largest = _attend(
        accumulator, weight, largest, queries, k, v, scale, rows, 0, unmasked, S,
        HEAD_DIM, CAUSAL, False, BLOCK_N,
    )  # fmt: skip
    accumulator, weight, largest = _attend(
        accumulator, weight, largest, queries, k, v, scale, rows, unmasked, last, S,
        HEAD_DIM, CAUSAL, True, BLOCK_N,
    )  # fmt: skip
    result = accumulator / weight[:, None]
    tl.store(out + tile, result.to(out.dtype.element_ty), mask=(rows < S)[:, None])


def attention(q, k, v, *, causal=False, scale=None):
    """Attention over [batch, heads, S, head_dim]; k and v may have fewer heads than q."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, S, head_dim = q.shape
    out = torch.empty_like(q)
    if out.numel() == 0:
        return out
    scale = 1 / math.sqrt(head_dim) if scale is None else scale

    def grid(meta):
        return (batch * heads * triton.cdiv(S, meta["BLOCK_M"]),)

    attention_kernel[grid](
        q, k, v, out, scale, batch * heads, heads // k.shape[1], S,
        HEAD_DIM=head_dim, CAUSAL=causal,
    )  # fmt: skip
    return out


def attention_reference(q, k, v, *, causal=False, chunk=512):
    """In fp32, a head and some queries at a time: S x S scores of every head fit no memory."""
    heads, S, head_dim = q.shape[-3:]
    k, v = (t.repeat_interleave(heads // t.shape[1], dim=1).flatten(0, 1) for t in (k, v))
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    columns = torch.arange(S, device=q.device)
    for queries, keys, values, target in zip(
        q.flatten(0, 1), k.float(), v.float(), out.flatten(0, 1), strict=True
    ):
        for first in range(0, S, chunk):
            scores = queries[first : first + chunk].float() @ keys.T / math.sqrt(head_dim)
            if causal:
                rows = columns[first : first + chunk, None]
                scores = scores.masked_fill(columns[None] > rows, -math.inf)
            target[first : first + chunk] = torch.softmax(scores, dim=1) @ values
    return out


@tritune.problem(attention_kernel)
def attention_problem(batch, heads, kv_heads, S, head_dim, causal, dtype):
    q = torch.randn(batch, heads, S, head_dim, dtype=dtype)
    k = torch.randn(batch, kv_heads, S, head_dim, dtype=dtype)
    v = torch.randn(batch, kv_heads, S, head_dim, dtype=dtype)
    pairs = S * (S + 1) // 2 if causal else S * S
    return tritune.Problem(
        lambda: attention(q, k, v, causal=causal),
        reference=lambda: attention_reference(q, k, v, causal=causal),
        flops=4 * batch * heads * pairs * head_dim,
        bytes=q.element_size() * (2 * q.numel() + k.numel() + v.numel()),
    )

"""softmax: rows of length n -> their softmax, in fp32 inside whatever the tensors hold.

A row that fits BLOCK is read once. A longer one is read twice: first for its maximum and its
sum, kept apart for each lane of the block so that the loop holds no reduction, then for the
result. So every BLOCK is right for every n, and only its speed is the tuner's business.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritune

LOG2_E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)

DEFAULT = {"BLOCK": 4096, "ROWS": 1, "STAGES": 1, "num_warps": 8}


@tritune.kernel(key=["rows", "n"], like=["x"], near="rows", default=DEFAULT)
@triton.heuristics({"ONE_PASS": lambda args: args["n"] <= args["BLOCK"]})
@triton.jit(do_not_specialize=["rows"])
def softmax_kernel(
    x, y, rows, n, x_stride,
    ONE_PASS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x += row * x_stride + lanes
    y += row * n + lanes
    row_inside = row < rows
    if ONE_PASS:
        inside = row_inside & (lanes < n)
        values = tl.load(x, mask=inside, other=-float("inf")).to(tl.float32)
        # Rows below the last are all -inf; a finite maximum keeps NaN out of their sums.
        largest = tl.maximum(tl.max(values, axis=1), LOWEST)[:, None]
        powers = tl.exp2((values - largest) * LOG2_E)
        result = powers / tl.sum(powers, axis=1)[:, None]
        tl.store(y, result.to(y.dtype.element_ty), mask=inside)
    else:
        lane_max = tl.full((ROWS, BLOCK), LOWEST, dtype=tl.float32)
        lane_sum = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
        # STAGES on the loop itself: `num_stages` prefetches only what a `tl.dot` reads.
        for start in tl.range(0, n, BLOCK, num_stages=STAGES):
            inside = row_inside & (lanes < n - start)
            values = tl.load(x + start, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(lane_max, values)
            lane_sum *= tl.exp2((lane_max - higher) * LOG2_E)
            lane_sum += tl.exp2((values - higher) * LOG2_E)
            lane_max = higher
        largest = tl.max(lane_max, axis=1)[:, None]
        lane_sum *= tl.exp2((lane_max - largest) * LOG2_E)
        scale = 1.0 / tl.sum(lane_sum, axis=1)[:, None]
        for start in tl.range(0, n, BLOCK, num_stages=STAGES):
            inside = row_inside & (lanes < n - start)
            values = tl.load(x + start, mask=inside, other=-float("inf")).to(tl.float32)
            result = tl.exp2((values - largest) * LOG2_E) * scale
            tl.store(y + start, result.to(y.dtype.element_ty), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """The softmax over the last dimension of a matrix."""
    x = x if x.stride(1) == 1 else x.contiguous()
    rows, n = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return y

    def grid(meta):
        return (triton.cdiv(rows, meta["ROWS"]),)

    softmax_kernel[grid](x, y, rows, n, x.stride(0))
    return y


@tritune.problem(softmax_kernel)
def softmax_problem(rows, n, dtype):
    x = torch.randn(rows, n, dtype=dtype)
    return tritune.Problem(
        lambda: softmax(x),
        reference=lambda: torch.softmax(x.double(), dim=1),
        flops=5 * rows * n,
        bytes=2 * x.element_size() * rows * n,
    )

"""layer_norm: (x, weight, bias) -> y, and (dy, x, weight) -> dx, dweight, dbias.

Two tunable kernels behind one `torch.autograd.Function`. Rows that fit BLOCK are read once,
longer ones a block at a time, so every BLOCK is right for every length. The backward adds its
rows' share of dweight and dbias to fp32 buffers through atomics: its launch accumulates, and
what it writes has to start from zero each time it runs.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

import tritune

EPS = 1e-5


@tritune.kernel(key=["rows", "n"], like=["x"], near="rows",
                default={"BLOCK": 4096, "ROWS": 1, "num_warps": 8})  # fmt: skip
@triton.heuristics({"ONE_PASS": lambda args: args["n"] <= args["BLOCK"]})
@triton.jit(do_not_specialize=["rows"])
def layer_norm_forward_kernel(
    x, y, weight, bias, mean, rstd, rows, n, eps,
    ONE_PASS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_inside = (row < rows)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x += row.to(tl.int64)[:, None] * n + lanes
    y += row.to(tl.int64)[:, None] * n + lanes
    weight += lanes
    bias += lanes
    if ONE_PASS:
        inside = row_inside & (lanes < n)
        values = tl.load(x, mask=inside, other=0.0).to(tl.float32)
        center = tl.sum(values, axis=1) / n
        centered = tl.where(lanes < n, values - center[:, None], 0.0)
        scale = 1 / tl.sqrt(tl.sum(centered * centered, axis=1) / n + eps)
        gain = tl.load(weight, mask=lanes < n).to(tl.float32)
        shift = tl.load(bias, mask=lanes < n).to(tl.float32)
        result = centered * scale[:, None] * gain + shift
        tl.store(y, result.to(y.dtype.element_ty), mask=inside)
    else:
        total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
        for start in range(0, n, BLOCK):
            inside = row_inside & (lanes < n - start)
            total += tl.load(x + start, mask=inside, other=0.0).to(tl.float32)
        center = tl.sum(total, axis=1) / n
        total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
        for start in range(0, n, BLOCK):
            inside = row_inside & (lanes < n - start)
            values = tl.load(x + start, mask=inside, other=0.0).to(tl.float32)
            centered = tl.where(lanes < n - start, values - center[:, None], 0.0)
            total += centered * centered
        scale = 1 / tl.sqrt(tl.sum(total, axis=1) / n + eps)
        for start in range(0, n, BLOCK):
            inside = row_inside & (lanes < n - start)
            values = tl.load(x + start, mask=inside, other=0.0).to(tl.float32)
            gain = tl.load(weight + start, mask=lanes < n - start).to(tl.float32)
            shift = tl.load(bias + start, mask=lanes < n - start).to(tl.float32)
            result = (values - center[:, None]) * scale[:, None] * gain + shift
            tl.store(y + start, result.to(y.dtype.element_ty), mask=inside)
    tl.store(mean + row, center, mask=row < rows)
    tl.store(rstd + row, scale, mask=row < rows)


@triton.jit
def _normalised(x, dy, row, start, n, mean, rstd, lanes):
    """A block of a row: x as the forward normalised it, and the gradient of its output."""
    inside = lanes < n - start
    place = tl.cast(row, tl.int64) * n + start + lanes
    values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
    normal = (values - tl.load(mean + row)) * tl.load(rstd + row)
    return tl.where(inside, normal, 0.0), gradient


@tritune.kernel(key=["rows", "n"], like=["x"], near="rows",
                default={"BLOCK": 4096, "ROWS": 16, "STAGES": 1, "num_warps": 8})  # fmt: skip
@triton.heuristics({"ONE_PASS": lambda args: args["n"] <= args["BLOCK"]})
@triton.jit(do_not_specialize=["rows"])
def layer_norm_backward_kernel(
    dy, x, weight, mean, rstd, dx, dweight, dbias, rows, n,
    ONE_PASS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * ROWS
    last = min(first + ROWS, rows)
    lanes = tl.arange(0, BLOCK)
    if ONE_PASS:
        inside = lanes < n
        gain = tl.load(weight + lanes, mask=inside, other=0.0).to(tl.float32)
        weight_sum = tl.zeros((BLOCK,), dtype=tl.float32)
        bias_sum = tl.zeros((BLOCK,), dtype=tl.float32)
        # STAGES on the loop itself: `num_stages` prefetches only what a `tl.dot` reads.
        for row in tl.range(first, last, num_stages=STAGES):
            normal, gradient = _normalised(x, dy, row, 0, n, mean, rstd, lanes)
            pulled = gradient * gain
            along = tl.sum(pulled * normal, axis=0) / n
            level = tl.sum(pulled, axis=0) / n
            result = (pulled - normal * along - level) * tl.load(rstd + row)
            place = dx + tl.cast(row, tl.int64) * n + lanes
            tl.store(place, result.to(dx.dtype.element_ty), mask=inside)
            weight_sum += gradient * normal
            bias_sum += gradient
        tl.atomic_add(dweight + lanes, weight_sum, mask=inside, sem="relaxed")
        tl.atomic_add(dbias + lanes, bias_sum, mask=inside, sem="relaxed")
    else:
        for row in range(first, last):
            along_sum = tl.zeros((BLOCK,), dtype=tl.float32)
            level_sum = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, n, BLOCK):
                normal, gradient = _normalised(x, dy, row, start, n, mean, rstd, lanes)
                gain = tl.load(weight + start + lanes, mask=lanes < n - start, other=0.0)
                along_sum += gradient * gain.to(tl.float32) * normal
                level_sum += gradient * gain.to(tl.float32)
            along, level = tl.sum(along_sum, axis=0) / n, tl.sum(level_sum, axis=0) / n
            for start in range(0, n, BLOCK):
                normal, gradient = _normalised(x, dy, row, start, n, mean, rstd, lanes)
                gain = tl.load(weight + start + lanes, mask=lanes < n - start, other=0.0)
                result = gradient * gain.to(tl.float32) - normal * along - level
                result *= tl.load(rstd + row)
                place = dx + tl.cast(row, tl.int64) * n + start + lanes
                tl.store(place, result.to(dx.dtype.element_ty), mask=lanes < n - start)
        # Columns outside, rows inside: one atomic a column and program, not one a row.
        for start in range(0, n, BLOCK):
            weight_sum = tl.zeros((BLOCK,), dtype=tl.float32)
            bias_sum = tl.zeros((BLOCK,), dtype=tl.float32)
            for row in range(first, last):
                normal, gradient = _normalised(x, dy, row, start, n, mean, rstd, lanes)
                weight_sum += gradient * normal
                bias_sum += gradient
            inside = lanes < n - start
            tl.atomic_add(dweight + start + lanes, weight_sum, mask=inside, sem="relaxed")
            tl.atomic_add(dbias + start + lanes, bias_sum, mask=inside, sem="relaxed")


def layer_norm_forward(x, weight, bias, eps=EPS):
    """(y, mean, rstd) of the rows of a matrix."""
    x = x.contiguous()
    rows, n = x.shape
    y = torch.empty_like(x)
    mean, rstd = x.new_empty(rows, dtype=torch.float32), x.new_empty(rows, dtype=torch.float32)
    if y.numel() == 0:
        return y, mean, rstd

    def grid(meta):
        return (triton.cdiv(rows, meta["ROWS"]),)

    layer_norm_forward_kernel[grid](x, y, weight, bias, mean, rstd, rows, n, eps)
    return y, mean, rstd


def layer_norm_backward(dy, x, weight, mean, rstd):
    """(dx, dweight, dbias), the last two in fp32."""
    dy, x = dy.contiguous(), x.contiguous()
    rows, n = x.shape
    dx = torch.empty_like(x)
    dweight, dbias = weight.new_zeros(2, n, dtype=torch.float32)
    if dx.numel() == 0:
        return dx, dweight, dbias

    def grid(meta):
        return (triton.cdiv(rows, meta["ROWS"]),)

    layer_norm_backward_kernel[grid](dy, x, weight, mean, rstd, dx, dweight, dbias, rows, n)
    return dx, dweight, dbias


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        y, mean, rstd = layer_norm_forward(x, weight, bias)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        dx, dweight, dbias = layer_norm_backward(dy, *ctx.saved_tensors)
        weight = ctx.saved_tensors[1]
        return dx, dweight.to(weight.dtype), dbias.to(weight.dtype)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Layer normalisation over the last dimension, differentiable."""
    rows = x.reshape(-1, x.shape[-1])
    return LayerNorm.apply(rows, weight, bias).reshape(x.shape)


def forward_reference(x, weight, bias, eps=EPS):
    x, weight, bias = x.double(), weight.double(), bias.double()
    mean = x.mean(dim=1)
    rstd = (x.var(dim=1, unbiased=False) + eps).rsqrt()
    return (x - mean[:, None]) * rstd[:, None] * weight + bias, mean, rstd


def backward_reference(dy, x, weight, mean, rstd):
    dy, x, weight, mean, rstd = (t.double() for t in (dy, x, weight, mean, rstd))
    normal = (x - mean[:, None]) * rstd[:, None]
    pulled = dy * weight
    along = (pulled * normal).mean(dim=1, keepdim=True)
    dx = (pulled - normal * along - pulled.mean(dim=1, keepdim=True)) * rstd[:, None]
    return dx, (dy * normal).sum(dim=0), dy.sum(dim=0)


@tritune.problem(layer_norm_forward_kernel)
def layer_norm_forward_problem(rows, n, dtype):
    x = torch.randn(rows, n, dtype=dtype)
    weight, bias = torch.randn(n, dtype=dtype), torch.randn(n, dtype=dtype)
    return tritune.Problem(
        lambda: layer_norm_forward(x, weight, bias),
        reference=lambda: forward_reference(x, weight, bias),
        flops=8 * rows * n,
        bytes=x.element_size() * (2 * rows * n + 2 * n) + 8 * rows,
    )


@tritune.problem(layer_norm_backward_kernel)
def layer_norm_backward_problem(rows, n, dtype):
    x, dy = torch.randn(rows, n, dtype=dtype), torch.randn(rows, n, dtype=dtype)
    weight = torch.randn(n, dtype=dtype)
    mean = x.float().mean(dim=1)
    rstd = (x.float().var(dim=1, unbiased=False) + EPS).rsqrt()
    return tritune.Problem(
        lambda: layer_norm_backward(dy, x, weight, mean, rstd),
        reference=lambda: backward_reference(dy, x, weight, mean, rstd),
        flops=16 * rows * n,
        bytes=x.element_size() * (3 * rows * n + n) + 8 * rows + 8 * n,
    )

"""pack: matrices with unaligned rows -> copies with aligned, zero-padded rows.

Rows that do not start on 16 bytes leave a kernel only loads of single elements: no `cp.async`,
no vectors, and a matmul that waits for memory. One pass over the operands mends that for less
than it costs. Both are copied by one launch, as a launch costs about as much as its copy.
Plain `@triton.jit`: bound by memory, there is nothing to tune.
"""
# ruff: noqa: PLR0917

from __future__ import annotations

import torch
import triton
import triton.language as tl

VECTOR = tl.constexpr(8)
"""Elements of two bytes in 16 bytes."""

ROWS, COLUMNS = tl.constexpr(8), tl.constexpr(512)
"""What one program copies."""


@triton.jit
def _copy(source, target, tile, rows, columns, stride, padded, pairs):
    # Told as pairs, so that a thread takes two elements: with eight, a store would be one of
    # 16 bytes, but each load of single elements would spread a warp over four cache lines.
    width = pairs * 2
    across = tl.cdiv(width, COLUMNS)
    row = tile // across * ROWS + tl.arange(0, ROWS)[:, None]
    column = tile % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    values = tl.load(source + row.to(tl.int64) * stride + column, mask=inside, other=0.0)
    kept = (row < padded) & (column < width)
    tl.store(target + row.to(tl.int64) * width + column, values, mask=kept)


# No size is specialised: a copy gains nothing from it, and every new class is a compile.
@triton.jit(do_not_specialize=[*range(2, 8), *range(10, 15)])
def pack_kernel(
    a, packed_a, a_rows, a_columns, a_stride, a_padded, a_pairs, a_tiles,
    b, packed_b, b_rows, b_columns, b_stride, b_padded, b_pairs,
):  # fmt: skip
    tile = tl.program_id(0)
    if tile < a_tiles:
        _copy(a, packed_a, tile, a_rows, a_columns, a_stride, a_padded, a_pairs)
    else:
        _copy(b, packed_b, tile - a_tiles, b_rows, b_columns, b_stride, b_padded, b_pairs)


def aligned(matrix: torch.Tensor) -> bool:
    """Whether every row starts and ends on 16 bytes, in an allocation that does."""
    stride, inner = matrix.stride()
    parts = (stride, matrix.storage_offset(), matrix.shape[1])
    return inner == 1 and not any(part % VECTOR.value for part in parts)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _padded(matrix: torch.Tensor, rows: int, columns: int) -> tuple[torch.Tensor, tuple[int, ...]]:
    """An empty copy of *matrix* in at least that size, and how the kernel is told of it."""
    columns = _round_up(columns, VECTOR.value)
    sizes = (*matrix.shape, matrix.stride(0), rows, columns // 2)
    return matrix.new_empty(rows, columns), sizes


def _tiles(matrix: torch.Tensor) -> int:
    return triton.cdiv(matrix.shape[0], ROWS.value) * triton.cdiv(matrix.shape[1], COLUMNS.value)


def pack_operands(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of a product with aligned rows; what is aligned already comes back as it is.

    When both are copied, K is padded too, to a multiple that needs no mask in most configs.
    """
    a, b = (m if m.stride(1) == 1 else m.contiguous() for m in (a, b))
    copy_a, copy_b = not aligned(a), not aligned(b)
    if not (copy_a or copy_b):
        return a, b
    depth = _round_up(b.shape[0], 64) if copy_a and copy_b else b.shape[0]
    packed_a, sizes_a = _padded(a, a.shape[0], depth) if copy_a else (a, (0,) * 5)
    packed_b, sizes_b = _padded(b, depth, b.shape[1]) if copy_b else (b, (0,) * 5)
    tiles_a, tiles_b = _tiles(packed_a) * copy_a, _tiles(packed_b) * copy_b
    pack_kernel[(tiles_a + tiles_b,)](
        a, packed_a, *sizes_a, tiles_a,
        b, packed_b, *sizes_b,
    )  # fmt: skip
    return packed_a, packed_b

"""planted: kernels with faults and differences in them, for sweeps whose outcome is known.

`mistakes`: every MODE but 0 goes wrong in a way of its own. `extra`: EXTRA per mille more of the
same work. Written to a folder by the tests that sweep them on a GPU.
"""

MISTAKES = """\
import torch
import triton
import triton.language as tl
import tritune

SPINS = tl.constexpr(200_000_000)


@tritune.kernel(key=["n"], default={"BLOCK": 64, "MODE": 0, "num_warps": 4})
@triton.jit
def mistakes(x, out, n, BLOCK: tl.constexpr, MODE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if MODE == 1:
        value = tl.load(x + at.to(tl.int64) + (1 << 40), mask=at < n)
    if MODE == 2:
        for _ in range(SPINS):
            value += tl.load(x + at, mask=at < n, volatile=True) * 0
    if MODE == 3:
        value = value * 3
    if MODE == 5:
        value = value * float("nan")
    end = n // 2 if MODE == 4 else n
    tl.store(out + at, value * 2, mask=at < end)


def op(x):
    out, n = torch.empty_like(x), x.numel()
    mistakes[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out


@tritune.problem(mistakes)
def problem(n):
    x = torch.randn(n)
    return tritune.Problem(lambda: op(x), reference=lambda: x.double() * 2)
"""
MISTAKES_SWEEP = """\
kernel: ops.py:mistakes
space: {BLOCK: [64, 1024], MODE: [0, 1, 2, 3, 4, 5], num_warps: [4]}
constraints: ["BLOCK == 64 or MODE == 0"]
shapes: [{n: [4194304, 8388608]}]
"""

EXTRA = """\
import torch
import triton
import triton.language as tl
import tritune


@tritune.kernel(key=["n"], default={"EXTRA": %d, "num_warps": 4})
@triton.jit
def extra(x, out, n, EXTRA: tl.constexpr):
    at = tl.program_id(0) * 512 + tl.arange(0, 512)
    value = tl.load(x + at, mask=at < n)
    work = value
    # Eight by eight: another remainder of the unrolled loop is up to a hundredth by itself.
    for _ in range(8 * (1000 + EXTRA)):
        work = work * 0.999 + 0.001
    tl.store(out + at, tl.where(work == 12345.0, work, value), mask=at < n)


def op(x):
    out, n = torch.empty_like(x), x.numel()
    extra[(triton.cdiv(n, 512),)](x, out, n)
    return out


@tritune.problem(extra)
def problem(n):
    x = torch.randn(n)
    return tritune.Problem(lambda: op(x), reference=lambda: x.double())
"""
EXTRA_SWEEP = """\
kernel: ops.py:extra
space: {EXTRA: [0, %d], num_warps: [4]}
shapes: [{n: 1048576}]
"""

NEAR = """\
import torch
import triton
import triton.language as tl
import tritune


@tritune.kernel(key=["n"], near="n", default={"BLOCK": 1024, "num_warps": 4})
@triton.jit
def first(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def op(x):
    out, n = torch.empty_like(x), x.numel()
    first[(1,)](x, out, n)
    return out


@tritune.problem(first)
def problem(n):
    x = torch.randn(n)
    return tritune.Problem(lambda: op(x), reference=lambda: x.double() * 2)


if __name__ == "__main__":
    for n in (1000, 501, 1008):
        op(torch.randn(n, device="cuda"))
    print([tritune.stats()[first.name][kind] for kind in ("exact", "near", "default")])
"""
"""Right up to n = BLOCK; beyond it the rest is never written."""
NEAR_SWEEP = """\
kernel: ops.py:first
space: {BLOCK: [1024], num_warps: [4]}
shapes: [{n: 1000}]
"""

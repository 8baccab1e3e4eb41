"""others: a package with kernels that know nothing of tritune, and a project that uses it.

The package stands for public ones. Its kernels have what breaks naive tools: partial results
whose valid part depends on the config, a prune function, a hook that zeroes, heuristics on both
sides, a backward that autograd runs, one launched by name alone.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 256, 512) for w in (4, 8)],
    key=["N"],
)
@triton.jit
def scale_forward(X, Y, alpha, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + row * N + at, mask=at < N)
    tl.store(Y + row * N + at, x * tl.load(alpha), mask=at < N)


def prune(configs, named, **kwargs):
    return [one for one in configs if one.kwargs["BLOCK"] <= kwargs["N"]]


@triton.heuristics({"WIDE": lambda named: named["N"] > 512})
@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=4) for b in (128, 256, 512)],
    key=["N", "WIDE"],
    reset_to_zero=["DA"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.heuristics({"EVEN": lambda named: named["N"] % named["BLOCK"] == 0})
@triton.jit
def scale_backward(
    DY, X, DX, DA, alpha, M, N: tl.constexpr, WIDE: tl.constexpr, EVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.program_id(0)
    at = column * BLOCK + tl.arange(0, BLOCK)
    da = 0.0
    for row in range(M):
        if EVEN:
            x, dy = tl.load(X + row * N + at), tl.load(DY + row * N + at)
        else:
            x = tl.load(X + row * N + at, mask=at < N, other=0.0)
            dy = tl.load(DY + row * N + at, mask=at < N, other=0.0)
        da += tl.sum(x * dy)
        tl.store(DX + row * N + at, dy * tl.load(alpha), mask=at < N)
    tl.store(DA + column, da)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        y = torch.empty_like(x)
        M, N = x.shape
        scale_forward[lambda meta: (triton.cdiv(N, meta["BLOCK"]), M)](x, y, alpha, N)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, alpha = ctx.saved_tensors
        M, N = x.shape
        dx, da = torch.empty_like(x), torch.zeros(triton.cdiv(N, 128), device=x.device)
        scale_backward[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](
            DY=dy, X=x, DX=dx, DA=da, alpha=alpha, M=M, N=N
        )
        return dx, da.sum().reshape(1)


def zero(named):
    named["out"].zero_()


@triton.autotune(
    [triton.Config({"B": b}, num_warps=4, pre_hook=zero) for b in (64, 128)], key=["n"]
)
@triton.jit
def total_kernel(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


def total(x):
    out, n = torch.empty(1, device=x.device), x.numel()
    total_kernel[lambda meta: (triton.cdiv(n, meta["B"]),)](x, out, n)
    return out


def two_totals(x):
    return total(x) + total(x[: x.numel() // 2])


@torch.library.custom_op("theirs::total", mutates_args=())
def total_op(x: torch.Tensor) -> torch.Tensor:
    return total(x)


@total_op.register_fake
def _(x):
    return torch.empty(1)
"""
PROBLEMS = """
import torch
import tritune

import theirs


def scale_problem(M, N, dtype="float32"):
    x = torch.randn(M, N, dtype=getattr(torch, str(dtype).split(".")[-1]), requires_grad=True)
    alpha = torch.full((1,), 0.5, requires_grad=True)
    dy = torch.randn(M, N)

    def run():
        y = theirs.Scale.apply(x, alpha)
        return (y, *torch.autograd.grad(y, (x, alpha), dy))

    def reference():
        y = x * alpha
        return (y, *torch.autograd.grad(y, (x, alpha), dy))

    return tritune.Problem(run, reference=reference)


def total_problem(n):
    x = torch.ones(n)
    return tritune.Problem(lambda: theirs.total(x))


def totals_problem(n):
    x = torch.ones(n)
    return tritune.Problem(lambda: theirs.two_totals(x))


def custom_problem(n):
    x = torch.ones(n)
    return tritune.Problem(lambda: theirs.total_op(x))


def nothing_problem(n):
    return tritune.Problem(lambda: None)


def passed_problem(n):
    x, out = torch.ones(n), torch.zeros(1)
    return tritune.Problem(lambda: theirs.total_kernel[(1,)](x, out, n, B=64))


torch.library.define("theirs::gpu_only", "(Tensor x) -> Tensor")
torch.library.register_fake("theirs::gpu_only", torch.empty_like)


def gpu_only_problem(n):
    x = torch.ones(n)
    return tritune.Problem(lambda: torch.ops.theirs.gpu_only(x))


def either_problem(n):
    x = torch.ones(n)
    alpha = torch.ones(1)
    large, small = lambda: theirs.total(x), lambda: theirs.Scale.apply(x[None], alpha)
    return tritune.Problem(large if n > 500 else small)
"""


def project(folder: Path, sweep: str, **replaced: str) -> Path:
    """`site/theirs.py`, `mine/problems.py` and `mine/sweep.yaml`; the path of the sweep file."""
    (folder / "mine").mkdir(parents=True, exist_ok=True)
    (folder / "site").mkdir(exist_ok=True)
    package = PACKAGE
    for old, new in replaced.items():
        assert old in package
        package = package.replace(old, new)
    (folder / "site/theirs.py").write_text(package, encoding="utf-8")
    (folder / "mine/problems.py").write_text(PROBLEMS, encoding="utf-8")
    (folder / "mine/sweep.yaml").write_text(sweep, encoding="utf-8")
    return folder / "mine/sweep.yaml"

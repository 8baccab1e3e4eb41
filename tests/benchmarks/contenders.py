"""contenders: a sweep file's name and a problem -> the op run in each way that is compared.

Ours as it is locked, ours by default, the same under `@triton.autotune`, and torch's own, all
on the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # as everyone calls it
import tutorial_kernels

import tritune
from kernels import attention, layer_norm, matmul, softmax, splitk
from tritune.spec import read_sweep

ROOT = Path(__file__).resolve().parents[2]

Axes = Mapping[str, Any]
Run = Callable[[], Any]

LOCKED, DEFAULT, AUTOTUNE, TORCH = "locked", "default", "autotune", "torch"
COLUMNS = (LOCKED, DEFAULT, AUTOTUNE, TORCH)


@dataclass(frozen=True, kw_only=True)
class Op:
    """One op, ours and theirs, with the operands that all take."""

    kernel: Any
    ours: Callable[..., Any]
    theirs: Callable[..., Run]
    """The operands -> what runs torch's op on them."""
    operands: Callable[..., tuple[torch.Tensor, ...]]
    """The axes of a problem -> tensors."""
    options: tuple[str, ...] = ()
    """Axes that the op itself takes too."""
    autotuned: tuple[Axes, ...]
    """The problems that are autotuned as well, by their axes; it costs seconds a problem."""


def layer_norm_gradients(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: Any, rstd: Any
) -> Run:
    """Torch's backward alone: its forward runs here, once."""
    leaves = [t.clone().requires_grad_() for t in (x, weight, torch.zeros_like(weight))]
    y = F.layer_norm(leaves[0], (x.shape[1],), leaves[1], leaves[2])
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def matrices(M: int, N: int, K: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return torch.randn(M, K, dtype=dtype), torch.randn(K, N, dtype=dtype)


def rows_of(rows: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return (torch.randn(rows, n, dtype=dtype),)


def norm_operands(rows: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return (*rows_of(rows, n, dtype), torch.randn(n, dtype=dtype), torch.randn(n, dtype=dtype))


def gradient_operands(rows: int, n: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    x, weight, _ = norm_operands(rows, n, dtype)
    rstd = (x.float().var(dim=1, unbiased=False) + layer_norm.EPS).rsqrt()
    return torch.randn_like(x), x, weight, x.float().mean(dim=1), rstd


def heads(
    batch: int, heads: int, kv_heads: int, S: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, ...]:
    sizes = (heads, kv_heads, kv_heads)
    q, k, v = (torch.randn(batch, size, S, head_dim, dtype=dtype) for size in sizes)
    return q, k, v


def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Run:
    return lambda: F.layer_norm(x, (x.shape[1],), weight, bias)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> Run:
    grouped = q.shape[1] != k.shape[1]
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


OPS = {
    "matmul": Op(
        kernel=matmul.matmul_kernel,
        ours=matmul.matmul,
        theirs=lambda a, b: lambda: torch.mm(a, b),
        operands=matrices,
        autotuned=(
            {"M": 64, "N": 4096, "K": 4096, "dtype": "float16"},
            {"M": 1000, "N": 4095, "K": 1023},
            {"M": 4096, "N": 4096, "K": 4096},
            {"M": 1024, "N": 14336, "K": 4096},
        ),
    ),
    "attention": Op(
        kernel=attention.attention_kernel,
        ours=attention.attention,
        theirs=sdpa,
        operands=heads,
        options=("causal",),
        autotuned=(
            {"batch": 1, "S": 4096, "causal": True},
            {"batch": 1, "S": 16384, "causal": True},
            {"batch": 2, "S": 4096, "causal": False},
        ),
    ),
    "splitk": Op(
        kernel=splitk.splitk_kernel,
        ours=splitk.splitk,
        theirs=lambda a, b: lambda: torch.mm(a, b),
        operands=matrices,
        autotuned=(
            {"M": 1, "N": 4096, "K": 4096, "dtype": "float16"},
            {"M": 16, "N": 4096, "K": 14336},
            {"M": 64, "N": 8192, "K": 28672},
        ),
    ),
    "softmax": Op(
        kernel=softmax.softmax_kernel,
        ours=softmax.softmax,
        theirs=lambda x: lambda: F.softmax(x, dim=1),
        operands=rows_of,
        autotuned=(
            {"rows": 4096, "n": 32000, "dtype": "float16"},
            {"rows": 64, "n": 128256},
            {"rows": 32768, "n": 1024},
        ),
    ),
    "layer_norm_forward": Op(
        kernel=layer_norm.layer_norm_forward_kernel,
        ours=layer_norm.layer_norm_forward,
        theirs=norm,
        operands=norm_operands,
        autotuned=(
            {"rows": 512, "n": 4096},
            {"rows": 16384, "n": 8192},
            {"rows": 32768, "n": 768},
        ),
    ),
    "layer_norm_backward": Op(
        kernel=layer_norm.layer_norm_backward_kernel,
        ours=layer_norm.layer_norm_backward,
        theirs=layer_norm_gradients,
        operands=gradient_operands,
        autotuned=(
            {"rows": 512, "n": 4096},
            {"rows": 16384, "n": 8192},
            {"rows": 32768, "n": 768},
        ),
    ),
}
"""By the name of the sweep file."""


def problems(name: str) -> list[dict[str, Any]]:
    """The problems of a sweep file, those that are autotuned first."""
    sweep = read_sweep(ROOT / "sweeps" / f"{name}.yaml")
    found = [problem.as_dict() for problem in sweep.problems]
    return sorted(found, key=lambda axes: not is_autotuned(name, axes))


def is_autotuned(name: str, axes: Axes) -> bool:
    return any(wanted.items() <= axes.items() for wanted in OPS[name].autotuned)


def contenders(name: str, axes: Axes, device: str, *, autotune: bool) -> dict[str, Run]:
    """The op on one problem in each way, ready to be run."""
    op, values = OPS[name], {**axes, "dtype": getattr(torch, axes["dtype"])}
    options = {each: values.pop(each) for each in op.options}
    torch.manual_seed(0)
    with torch.device(device):
        operands = op.operands(**values)

    def by_default() -> Any:
        with tritune.override(op.kernel, op.kernel.default):
            return op.ours(*operands, **options)

    runs = {
        LOCKED: lambda: op.ours(*operands, **options),
        DEFAULT: by_default,
        TORCH: op.theirs(*operands, **options),
    }
    if autotune:
        tuned = tutorial_kernels.OPS[name]
        runs[AUTOTUNE] = lambda: tuned(*operands, **options)
    return runs


def autotuner(name: str) -> Any:
    """The tutorial's kernel of an op, which knows what it chose last."""
    return getattr(tutorial_kernels, f"{name.removeprefix('layer_norm_')}_kernel")

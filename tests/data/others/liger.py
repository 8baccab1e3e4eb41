"""Ops of liger-kernel, whose source is as it is in the wheel."""

import torch
from liger_kernel.ops import mlp
from liger_kernel.ops.dyt import LigerDyTFunction

import tritune


def dyt_problem(T, N, dtype):
    """Dynamic tanh, forward and backward."""
    x = torch.randn(T, N, dtype=dtype, requires_grad=True)
    alpha = torch.full((1,), 0.5, dtype=dtype, requires_grad=True)
    gamma, beta = (torch.randn(N, dtype=dtype, requires_grad=True) for _ in range(2))
    dy = torch.randn(T, N, dtype=dtype)

    def with_gradients(y):
        return (y, *torch.autograd.grad(y, (x, alpha, gamma, beta), dy))

    def reference():
        a, b, c, d = (t.detach().double().requires_grad_() for t in (x, alpha, gamma, beta))
        y = c * torch.tanh(b * a) + d
        return (y, *torch.autograd.grad(y, (a, b, c, d), dy.double()))

    return tritune.Problem(
        lambda: with_gradients(LigerDyTFunction.apply(x, alpha, gamma, beta)), reference=reference
    )


def mlp_problem(S, dim, hidden, dtype):
    """SwiGLU on host-made descriptors, and one of its backward kernels."""
    x = torch.randn(1, S, dim, dtype=dtype)
    gate, up = (torch.randn(hidden, dim, dtype=dtype) / dim**0.5 for _ in range(2))

    def run():
        activations, _ = mlp.gemm_swiglu(x, gate, up, 1.0, store_preact=True)
        return activations, mlp.swiglu_backward_dI(gate, up, activations)

    def reference():
        x64, gate64, up64 = x.double(), gate.double(), up.double()
        g, u = x64 @ gate64.T, x64 @ up64.T
        forward = torch.cat((torch.nn.functional.silu(g) * u, g, u), dim=-1)
        return forward, g @ gate64 + u @ up64

    return tritune.Problem(run, reference=reference)

"""Ops of liger-kernel, whose source is as it is in the wheel."""

import torch
from liger_kernel.ops import mlp
from liger_kernel.ops.dyt import LigerDyTFunction
from liger_kernel.ops.fused_moe import LigerFusedMoEFunction

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


def moe_problem(T, H, I, E, K, dtype):  # noqa: E741  # the package's own name
    """A mixture of SwiGLU experts, forward and backward: every token goes to K of them."""
    x = torch.randn(T, H, dtype=dtype, requires_grad=True)
    gate_up = (torch.randn(E, 2 * I, H) / H**0.5).to(dtype).requires_grad_()
    down = (torch.randn(E, H, I) / I**0.5).to(dtype).requires_grad_()
    # Experts in turn, so that the shapes inside do not hang on chance.
    chosen = (torch.arange(T)[:, None] + torch.arange(K)).remainder(E).to(torch.int32)
    weights = torch.softmax(torch.randn(T, K), dim=-1).to(dtype).requires_grad_()
    dy = torch.randn(T, H, dtype=dtype)
    inputs = (x, gate_up, down, weights)

    def run():
        y = LigerFusedMoEFunction.apply(x, gate_up, down, chosen, weights)
        return (y, *torch.autograd.grad(y, inputs, dy))

    def reference():
        a, b, c, d = (t.detach().double().requires_grad_() for t in inputs)
        y = torch.zeros_like(a)
        for expert in range(E):
            token, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = (a[token] @ b[expert].T).chunk(2, dim=-1)
            out = (torch.nn.functional.silu(gate) * up) @ c[expert].T
            y = y.index_add(0, token, out * d[token, place][:, None])
        return (y, *torch.autograd.grad(y, (a, b, c, d), dy.double()))

    return tritune.Problem(run, reference=reference)

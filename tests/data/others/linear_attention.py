"""Ops of fla-core, whose source is as it is in the wheel."""

import torch
from fla.modules.causal_conv1d.ops import causal_conv1d_update
from fla.modules.norm.l2norm import l2norm_fwd
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.gla import chunk_gla

import tritune


def gla_problem(B, T, H, D, dtype):
    """Gated linear attention in chunks, forward and backward."""
    q, k, v = (torch.randn(B, T, H, D, dtype=dtype, requires_grad=True) for _ in range(3))
    g = torch.nn.functional.logsigmoid(torch.randn(B, T, H, D)).requires_grad_()
    dy = torch.randn(B, T, H, D, dtype=dtype)
    inputs = (q, k, v, g)

    def run():
        y, _ = chunk_gla(q, k, v, g)
        return (y, *torch.autograd.grad(y, inputs, dy))

    def reference():
        a, b, c, d = (t.detach().double().requires_grad_() for t in inputs)
        state = b.new_zeros(B, H, D, D)
        rows = []
        for t in range(T):
            state = state * d[:, t, :, :, None].exp() + b[:, t, :, :, None] * c[:, t, :, None]
            rows.append((a[:, t, :, None] @ state).squeeze(-2) / D**0.5)
        y = torch.stack(rows, dim=1)
        return (y, *torch.autograd.grad(y, (a, b, c, d), dy.double()))

    return tritune.Problem(run, reference=reference)


def delta_problem(B, T, H, D, dtype):
    """The gated delta rule in chunks."""
    q, k, v = (torch.randn(B, T, H, D, dtype=dtype) for _ in range(3))
    g = torch.nn.functional.logsigmoid(torch.randn(B, T, H))
    beta = torch.rand(B, T, H).to(dtype)

    def run():
        y, _ = chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
        return y

    def reference():
        a, b = (torch.nn.functional.normalize(t.double(), dim=-1) for t in (q, k))
        c, decay, rate = v.double(), g.double().exp(), beta.double()
        state = b.new_zeros(B, H, D, D)
        rows = []
        for t in range(T):
            state = state * decay[:, t, :, None, None]
            known = (b[:, t, :, None] @ state).squeeze(-2)
            change = rate[:, t, :, None] * (c[:, t] - known)
            state = state + b[:, t, :, :, None] * change[:, :, None]
            rows.append((a[:, t, :, None] @ state).squeeze(-2) / D**0.5)
        return torch.stack(rows, dim=1)

    return tritune.Problem(run, reference=reference)


def conv_problem(N, D, W, dtype):
    """One step of a causal convolution, which shifts its state in place."""
    x = torch.randn(N, D, dtype=dtype)
    before = torch.randn(N, D, W, dtype=dtype)
    weight = torch.randn(D, W, dtype=dtype)

    def run():
        state = before.clone()
        y = causal_conv1d_update(x, state, weight=weight, activation="silu")
        return (y[0] if isinstance(y, tuple) else y), state

    def reference():
        state = torch.cat((before[..., 1:], x[..., None]), dim=-1)
        y = (state.double() * weight.double()).sum(-1)
        return torch.nn.functional.silu(y), state

    return tritune.Problem(run, reference=reference)


def norm_problem(T, D, dtype):
    """Every row divided by its length."""
    x = torch.randn(T, D, dtype=dtype)

    def reference():
        rstd = (x.double().square().sum(-1) + 1e-6).rsqrt()
        return x.double() * rstd[:, None], rstd

    return tritune.Problem(lambda: l2norm_fwd(x), reference=reference)

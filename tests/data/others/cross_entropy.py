"""The forward pass of cut-cross-entropy, whose source is as it is in the wheel."""

import os

os.environ["CCE_AUTOTUNE"] = "1"  # read at its import

import torch
from cut_cross_entropy.cce_lse_forward import cce_lse_forward_kernel

import tritune


def lse_problem(B, V, D, dtype):
    """The logarithm of each row's sum of exponentials of logits, and each column's mean logit."""
    e = torch.randn(B, D, dtype=dtype) / D**0.25
    c = torch.randn(V, D, dtype=dtype) / D**0.25

    def reference():
        logits = e.double() @ c.double().T
        return logits.logsumexp(dim=-1), logits.mean(dim=0)

    return tritune.Problem(
        lambda: cce_lse_forward_kernel(e, c, return_logit_avg=True), reference=reference
    )

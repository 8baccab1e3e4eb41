"""The references of the problems of public packages: they compute what the kernels do.

Each op runs small in Triton's interpreter, every kernel in the first config that its author
leaves it. What the interpreter lacks gets a stand-in: libdevice, and a range that counts in
tensors. In bf16 it multiplies bit patterns, so everything here is in fp16 or fp32.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from public import OTHERS, ROOT, needs

pytestmark = pytest.mark.others

PROBLEMS = {
    "dyt": ("liger_kernel", "liger.py:dyt_problem", {"T": 8, "N": 64, "dtype": "float32"}),
    "mlp": (
        "liger_kernel",
        "liger.py:mlp_problem",
        {"S": 64, "dim": 64, "hidden": 128, "dtype": "float32"},
    ),
    "moe": (
        "liger_kernel",
        "liger.py:moe_problem",
        {"T": 16, "H": 64, "I": 32, "E": 4, "K": 2, "dtype": "float32"},
    ),
    "gla": (
        "fla",
        "linear_attention.py:gla_problem",
        {"B": 1, "T": 64, "H": 1, "D": 32, "dtype": "float32"},
    ),
    "delta": (
        "fla",
        "linear_attention.py:delta_problem",
        {"B": 1, "T": 128, "H": 1, "D": 32, "dtype": "float32"},
    ),
    "conv": (
        "fla",
        "linear_attention.py:conv_problem",
        {"N": 3, "D": 40, "W": 4, "dtype": "float32"},
    ),
    "norm": ("fla", "linear_attention.py:norm_problem", {"T": 40, "D": 32, "dtype": "float32"}),
    "int8": ("torchao", "quantized.py:int8_problem", {"M": 32, "N": 64, "K": 64}),
    "mixed": (
        "torchao",
        "quantized.py:mixed_problem",
        {"M": 32, "N": 256, "K": 256, "group": 32, "dtype": "float16"},
    ),
    "split_k": ("gemlite", "split_k.py:split_k_problem", {"M": 4, "N": 64, "K": 256, "group": 64}),
    "cce": (
        "cut_cross_entropy",
        "cross_entropy.py:lse_problem",
        {"B": 128, "V": 256, "D": 64, "dtype": "float32"},
    ),
    "nms": ("conch", "suppression.py:nms_problem", {"N": 40, "threshold": 0.3}),
}
"""Sweep file -> its package, its problem, and a size that takes seconds."""
INTERPRETED = """
import builtins, contextlib, json, sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock
import torch
import triton.language as tl
from triton.runtime import interpreter
from tritune import adopt, discover, intercept, launches, verify
from tritune.device import fakes, targets
from tritune.model import Problem

def number(value):
    return int(value.handle.data.item()) if hasattr(value, "handle") else int(value)

def steps(*ends):
    return map(interpreter.interpreter_semantic.to_tensor, builtins.range(*map(number, ends)))

libdevice = SimpleNamespace(
    tanh=lambda x: 1 - 2 / (tl.exp(2 * x) + 1), log1p=lambda x: tl.log(1 + x)
)
target = targets.find("H200")
adopt.begin(adopt.Scope(Path("tritune.lock"), None))
[loaded, *_] = discover.open_op(None, sys.argv[1], target)
for name, module in list(sys.modules.items()):
    if name == "liger_kernel.ops.dyt":
        module.tanh = libdevice.tanh
    if name == "cut_cross_entropy.tl_utils":
        module.tl_libdevice = libdevice
    if name.startswith("fla.ops."):
        module.range = steps
with contextlib.ExitStack() as stack:
    for name, answer in fakes._cuda_answers(target).items():
        stack.enter_context(mock.patch.object(torch.cuda, name, answer))
    stack.enter_context(fakes._on_cpu())
    made = launches.make(loaded, Problem.of(json.loads(sys.argv[2])), "cpu")
    outputs = verify.tensors(intercept.as_it_comes(made.run))
    found = verify.difference(outputs, verify.tensors(made.reference()))
print(found.error / found.tolerance)
"""


def errs(problem: str, **axes: object) -> float:
    """The largest error of the op against its reference, as a share of what is allowed."""
    said = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(OTHERS / problem), json.dumps(axes)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        },
    )
    assert said.returncode == 0, said.stderr
    return float(said.stdout.split()[-1])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(package)) for name, (package, *_) in PROBLEMS.items()]
)
def test_the_reference_of_a_problem_computes_what_its_kernels_do(name):
    _, problem, axes = PROBLEMS[name]

    assert errs(problem, **axes) < 0.5


@needs("torchao")
@pytest.mark.parametrize("group", [64, 128])
def test_mixed_mm_finds_the_scales_only_where_its_block_of_k_is_one_group(group):
    # In its first config the block is 32 of K: the next one's scales are half a row too far.
    assert not errs(PROBLEMS["mixed"][1], **PROBLEMS["mixed"][2] | {"group": group}) < 8

"""Fake tensors without what torch imports for them: as right as ever, and nothing left over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
PRELUDE = f"""\
import sys, types
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from tritune.device import light

def there():
    real = [sys.modules[name] for name in {HEAVY} if name in sys.modules]
    return [one.__name__ for one in real if type(one) is types.ModuleType]

def fakes():
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_enabled = False
    return mode

def facts(made):
    return tuple(made.shape), made.stride(), made.dtype, str(made.device)

OPS = dict(
    randn=lambda x: torch.randn(64, 48, dtype=torch.float16),
    empty=lambda x: torch.empty_like(x),
    slice=lambda x: x[1:, ::2].contiguous(),
    transpose=lambda x: x.t().clone(),
    matmul=lambda x: x @ x.t(),
    mean=lambda x: x.float().mean(dim=1),
    where=lambda x: torch.where(x > 0, x, 0.0),
    sum=lambda x: (x * 2 + 1).sum(),
    cat=lambda x: torch.cat([x, x]),
)
"""


def python(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRELUDE + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_inputs_are_made_without_the_heavy_modules_and_leave_nothing_behind():
    said = python(
        "with light.modes(), fakes():\n"
        "    x = torch.randn(64, 64, dtype=torch.float16)\n"
        "    y = torch.empty(64, 64)\n"
        "print(there(), [n for n in sys.modules if n.startswith('torch._dynamo')])\n"
        "import torch._dynamo\n"
        "print(type(torch._dynamo).__name__, callable(torch._dynamo.optimize))\n"
    )

    assert said == ["[] []", "module True"]


def test_what_the_stand_ins_lack_comes_from_the_real_module():
    said = python(
        "with light.modes():\n"
        "    from torch.fx.experimental.symbolic_shapes import ShapeEnv\n"
        "    print(ShapeEnv.__module__, callable(torch._dynamo.optimize))\n"
        "    compiled = torch.compile(lambda x: x + 1, backend='eager')\n"
        "    print(compiled(torch.ones(2)).tolist())\n"
        "print(sorted(there()))\n"
    )

    assert said == [
        "torch.fx.experimental.symbolic_shapes True",
        "[2.0, 2.0]",
        str(sorted(HEAVY)),
    ]


@pytest.mark.parametrize("nested", [False, True])
def test_the_facts_of_every_result_are_those_of_torch_alone(nested: bool):  # noqa: FBT001
    inner = "light.modes(), light.modes()" if nested else "light.modes()"

    said = python(
        f"with {inner}, fakes():\n"
        "    light_facts = {n: facts(op(torch.ones(64, 64))) for n, op in OPS.items()}\n"
        "with FakeTensorMode():\n"
        "    plain_facts = {n: facts(op(torch.ones(64, 64))) for n, op in OPS.items()}\n"
        "print(light_facts == plain_facts, len(plain_facts))\n"
    )

    assert said == ["True 9"]

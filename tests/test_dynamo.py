"""What torch.compile makes of a kernel that it traces while a lockfile is installed.

Dynamo makes autotuners of its own: one for the heuristics below an autotuner, one for launch
options that a launch passes, and, once the configs are pruned, one of what is left.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton

import test_adopt
from fakes import evidence
from projects import H200
from test_adopt import _world, benchmarks, config, configs, fill, installed, key, ran
from test_others import DRIVER
from tritune import adopt, lock, owning
from tritune.model import Config, Lock, Problem, Winner

__all__ = ["_world", "benchmarks"]

ROOT = Path(__file__).resolve().parent.parent
OPS = """\
import triton, triton.language as tl, tritune

def listed(*blocks):
    return [triton.Config({"B": block}, num_warps=4) for block in blocks]

@triton.autotune(listed(64, 128), key=["n"])
@triton.jit
def plain(x, y, n, B: tl.constexpr):
    tl.store(y, B)

@triton.autotune(listed(128), key=["n"])
@triton.jit
def single(x, y, n, B: tl.constexpr):
    tl.store(y, B)

@triton.autotune(listed(64, 128), key=[])
@triton.jit
def keyless(x, y, n: tl.constexpr, B: tl.constexpr):
    tl.store(y, B)

def half(configs, named, **kwargs):
    return configs[:1]

@triton.autotune(listed(64, 128), key=["n"], prune_configs_by={"early_config_prune": half})
@triton.jit
def pruned(x, y, n, B: tl.constexpr):
    tl.store(y, B)

@triton.autotune(listed(64, 128), key=["n", "x"])
@triton.jit
def tensor(x, y, n, B: tl.constexpr):
    tl.store(y, B)

def expected(x, y, n, B, **kwargs):
    return n / B

by_model = {"perf_model": expected, "top_k": 1}

@triton.autotune(listed(64, 256, 128), key=["n"], prune_configs_by=by_model)
@triton.jit
def modelled(x, y, n, B: tl.constexpr):
    tl.store(y, B)

@triton.autotune(listed(64, 128), key=["n"])
@triton.heuristics({"TWICE": lambda named: 2 * named["B"]})
@triton.jit
def below(x, y, n, B: tl.constexpr, TWICE: tl.constexpr):
    tl.store(y, B)

@triton.heuristics({"WIDE": lambda named: named["n"] > 8})
@triton.autotune(listed(64, 128), key=["n"])
@triton.jit
def above(x, y, n, WIDE: tl.constexpr, B: tl.constexpr):
    tl.store(y, B)

@triton.autotune(listed(64, 128), key=["n"])
@triton.jit
def warps(x, y, n, B: tl.constexpr, num_warps: tl.constexpr):
    tl.store(y, B)

@tritune.kernel(key=["n"], default={"B": 64})
@triton.jit
def decorated(x, y, n, B: tl.constexpr):
    tl.store(y, B)

@tritune.kernel(key=["n"], default={"B": 64})
@triton.heuristics({"TWICE": lambda named: 2 * named["B"]})
@triton.jit
def heuristic(x, y, n, B: tl.constexpr, TWICE: tl.constexpr):
    tl.store(y, B)

def factory():
    @tritune.kernel(key=["n"], default={"B": 64})
    @triton.jit
    def local(x, y, n, B: tl.constexpr):
        tl.store(y, B)
    return local

local = factory()
"""
TRACED = f"""\
import sys, types
import torch.utils._triton
torch.utils._triton.has_triton = lambda *_: True
import torch, triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
{DRIVER}
import ops, tritune

def op(name, x, n, options):
    y = torch.zeros(1)
    getattr(ops, name)[lambda meta: (meta["B"],)](x, y, n, **options)
    return y

found = []
def show(module, examples):
    for node in module.graph.nodes:
        if "triton" in str(node.target):
            configs = kernel_side_table.id_to_kernel[node.kwargs["kernel_idx"]].configs
            grids = [grid[0] for grid in node.kwargs["grid"]]
            assert grids == [one.kwargs["B"] for one in configs]
            found.append([(one.kwargs["B"], one.num_warps) for one in configs])
    return lambda *arguments: arguments

def traced(name, n, options):
    torch._dynamo.reset()  # the limit of recompilations is no matter of this
    compiled = torch.compile(op, backend=show, fullgraph=True, dynamic=False)
    try:
        compiled(name, torch.ones(8), n, options)
        return str(found.pop())
    except Exception as error:
        return f"{{type(error).__name__}} {{str(error)[:80]}}"

names = sys.argv[1:]
for when in ("hit", "miss"):
    for name in names:
        options = {{"num_warps": 8}} if name == "options" else {{}}
        kernel = "plain" if name == "options" else name
        print(when, name, traced(kernel, 8 if when == "hit" else 9, options))
asked = {{name: (n["exact"], n["default"]) for name, n in tritune.stats().items()}}
twice = asked.pop("ops:plain")
print("asked", {{*asked.values()}}, twice)
"""
EVERY = (
    "plain",
    "tensor",
    "single",
    "keyless",
    "pruned",
    "modelled",
    "below",
    "above",
    "warps",
    "decorated",
    "heuristic",
    "local",
)


def kernel_named(name: str) -> str:
    return "ops:factory.<locals>.local" if name == "local" else f"ops:{name}"


def entry(name: str) -> Winner:
    values: dict[str, object] = {"B": 128}
    if name not in {"decorated", "heuristic", "local"}:
        values |= {"num_warps": 4, "num_stages": 3}
    wide = " WIDE=False" if name == "above" else ""
    return Winner(
        kernel=kernel_named(name),
        key=f"n=8{wide} x=f32 y=f32",
        problem=Problem.of({}),
        config=Config.of(values),
        evidence=evidence(),
    )


def served(tmp_path, locked, code, *words):
    """What a process says that runs *code* over the ops, with these entries locked."""
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    path = tmp_path / "t.lock"
    lock.write(path, lock.merge_winners(Lock(), H200, locked))
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path))),
            "TRITUNE_LOCKFILE": str(path),
            "TRITON_INTERPRET": "0",
        },
    )


def test_torch_compile_takes_what_is_locked_and_on_a_miss_what_it_takes_without_us(tmp_path):
    said = served(tmp_path, list(map(entry, EVERY)), TRACED, *EVERY, "options")

    both, first, second = "[(64, 4), (128, 4)]", "[(64, 4)]", "[(128, 4)]"
    assert said.stdout.splitlines() == [
        *(f"hit {name} {second}" for name in EVERY),
        "hit options [(128, 8)]",
        f"miss plain {both}",
        f"miss tensor {both}",
        f"miss single {second}",
        f"miss keyless {both}",
        f"miss pruned {first}",
        "miss modelled [(256, 4)]",
        f"miss below {both}",
        f"miss above {both}",
        f"miss warps {both}",
        f"miss decorated {first}",
        f"miss heuristic {first}",
        f"miss local {first}",
        "miss options [(64, 8), (128, 8)]",
        "asked {(1, 1)} (2, 2)",
    ], said.stderr


VARYING = f"""\
import sys, types
import torch.utils._triton
torch.utils._triton.has_triton = lambda *_: True
import torch, triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
from triton.runtime.jit import JITFunction
{DRIVER}
import ops, tritune

Driver.get_current_target = lambda self: triton.backends.compiler.GPUTarget("cuda", 90, 32)
traced, ran = [], []
JITFunction.run = lambda self, *args, grid, warmup, **named: ran.append(named["B"])

def show(module, examples):
    for node in module.graph.nodes:
        if "triton" in str(node.target):
            configs = kernel_side_table.id_to_kernel[node.kwargs["kernel_idx"]].configs
            traced.append([one.kwargs["B"] for one in configs])
    return lambda *arguments: [torch.zeros(1) for _ in arguments]

def of_its_size(name, x):
    y = torch.zeros(1)
    getattr(ops, name)[(1,)](x, y, x.shape[0])
    return y

def of_another(name, x):
    y = torch.zeros(1)
    getattr(ops, name)[(1,)](x, y, 8)
    return y

def of_a_tuple(name, x):
    y = torch.zeros(1)
    getattr(ops, name)[(1,)]((x, 3), y, 8)
    return y

def asked(name, x):
    found = getattr(ops, name).config(n=x.shape[0], x=x, y=x)
    ran.append(found["B"])
    return x + 1

def tried(op, name, **options):
    torch._dynamo.reset()
    backend = "eager" if name == "decorated" else show
    compiled = torch.compile(op, backend=backend, **options)
    for size in (8, 8, 9, 10):
        compiled(name, torch.ones(size))
    print(op.__name__, name, options, traced, ran)
    del traced[:], ran[:]

for name in ("plain", "tensor"):
    for op in (of_its_size, of_another):
        tried(op, name, fullgraph=True, dynamic=True)
tried(of_its_size, "plain", fullgraph=True)
tried(of_a_tuple, "plain")
for op in (of_its_size, asked):
    tried(op, "decorated", dynamic=True)
"""


def test_sizes_that_vary_are_traced_as_without_us_or_launched_uncompiled(tmp_path):
    locked = list(map(entry, ("plain", "tensor", "decorated")))
    locked.append(dataclasses.replace(locked[0], key="n=8 x=(f32,int) y=f32"))

    said = served(tmp_path, locked, VARYING)

    both = "{'fullgraph': True, 'dynamic': True}"
    assert said.stdout.splitlines() == [
        f"of_its_size plain {both} [[64, 128]] []",
        f"of_another plain {both} [[128]] []",
        f"of_its_size tensor {both} [[64, 128]] []",
        f"of_another tensor {both} [[128]] []",
        "of_its_size plain {'fullgraph': True} [[128], [64, 128]] []",
        "of_a_tuple plain {} [] [128, 128, 128, 128]",
        "of_its_size decorated {'dynamic': True} [] [128, 128, 64, 64]",
        "asked decorated {'dynamic': True} [] [128, 128, 64, 64]",
    ], said.stderr
    assert said.stderr.count("torch.compile traces it for sizes that vary") == 2


def as_dynamo_makes(kernel, listed):
    return triton.autotune(configs=listed, key=[])(kernel.fn)


@pytest.fixture(name="traced")
def _traced(monkeypatch):
    """Torch has what makes such autotuners."""
    monkeypatch.setitem(sys.modules, owning.TRACER, sys)


class OldTracer:
    """As before torch 2.12: what it makes of a kernel comes without the source of that."""

    def __init__(self, kernel):
        self.kernel, self.sources = kernel, []

    def call_triton_kernel(self, variable, depth):
        assert self.kernel.early_config_prune
        if depth:
            self.call_triton_kernel(SimpleNamespace(kernel_source=None), depth - 1)
        self.sources.append(variable.kernel_source)


@pytest.mark.parametrize("told", ["kernel_source", "source"])
def test_before_torch_2_12_what_dynamo_makes_of_a_kernel_lies_where_that_lies(
    tmp_path, monkeypatch, told
):
    class Tracer(OldTracer):
        call_triton_kernel = OldTracer.call_triton_kernel

    monkeypatch.setitem(sys.modules, owning.TRACER, SimpleNamespace(TritonHOPifier=Tracer))
    kernel = fill(configs(16, 32))
    installed(tmp_path, {key(): config(32)})
    tracer = Tracer(kernel)

    for _ in range(2):
        tracer.call_triton_kernel(SimpleNamespace(**{"kernel_source": None, told: "ops.fill"}), 2)

    assert tracer.sources == ["ops.fill"] * 6


def test_what_dynamo_makes_of_a_served_kernel_is_not_served_again(tmp_path, traced):
    kernel = fill(configs(16, 32))
    installed(tmp_path, {key(): config(32)})
    pruned = kernel.early_config_prune(kernel.configs, {"x": None, "y": None}, n=9, FLAG=1)

    made = as_dynamo_makes(kernel, pruned)

    assert pruned == kernel.configs
    assert (made.early_config_prune, made.perf_model, adopt.kernel_of(made)) == (None, None, None)


@pytest.mark.parametrize("names", [("n",), ()])
def test_a_copy_that_shares_the_list_of_the_first_is_served_with_a_key_or_without(
    tmp_path, benchmarks, names
):
    kernel = fill(configs(16, 32), key=names)
    at = key() if names else "FLAG=1 x=f32 y=i32"
    installed(tmp_path, {at: config(16)})

    again = triton.autotune(kernel.configs, key=list(names))(kernel.fn)

    assert (ran(kernel), ran(copy.copy(kernel)), ran(again), benchmarks()) == (16, 16, 16, 0)


def test_what_a_package_makes_again_is_served_where_nothing_was_traced(
    tmp_path, monkeypatch, benchmarks
):
    monkeypatch.delitem(sys.modules, owning.TRACER, raising=False)
    kernel = fill(configs(16, 32), key=())
    installed(tmp_path, {"FLAG=1 x=f32 y=i32": config(32)})

    again = as_dynamo_makes(kernel, configs(16, 32))

    assert (ran(kernel), ran(again), benchmarks()) == (32, 32, 0)


def test_what_dynamo_has_made_before_the_install_runs_as_it_was_made(
    tmp_path, monkeypatch, benchmarks, traced
):
    # Its grids are those of its own configs: with another one they would be wrong.
    kernel = fill(configs(16, 32), key=())
    monkeypatch.setattr(test_adopt, "filled", kernel, raising=False)
    kernel.base_fn.__qualname__ = "filled"
    made = as_dynamo_makes(kernel, configs(16))
    installed(tmp_path, {"FLAG=1 x=f32 y=i32": config(32)}, kernel="test_adopt:filled")

    assert (ran(made), ran(kernel), benchmarks()) == (16, 32, 0)

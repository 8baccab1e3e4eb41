"""What a kernel module costs to import: no command line, no YAML, no CUDA, no benchmark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import evidence
from projects import H200, STAND_IN
from tritune import lock
from tritune.model import Config, Lock, Problem, Winner

ROOT = Path(__file__).resolve().parent.parent
COMMAND_LINE = {"click", "rich", "yaml", "pydantic", "simpleeval", "filelock", "pynvml"}
OPS = """\
import triton, triton.language as tl, tritune

@tritune.kernel(key=["n"], like=["x"], default=dict(B=64, num_warps=4))
@triton.jit
def add(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)
"""
COMPILED = """\
import torch.utils._triton
torch.utils._triton.has_triton = lambda *_: True
import torch
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
import ops

def op(x):
    n, y = x.numel(), torch.empty_like(x)
    ops.add[lambda m: (triton.cdiv(n, m["B"]),)](x, y, n)
    return y

def show(module, examples):
    for node in module.graph.nodes:
        if "triton" in str(node.target):
            [config] = kernel_side_table.id_to_kernel[node.kwargs["kernel_idx"]].configs
            print(config.kwargs["B"], config.num_warps, *node.kwargs["grid"])
    return lambda *arguments: arguments

compiled = torch.compile(op, backend=show, fullgraph=True, dynamic=False)
for n in (8, 100, 8):
    compiled(torch.ones(n))
"""


@pytest.fixture
def ops(tmp_path):
    """A folder with a kernel module and a lockfile that has its key n=100."""
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    winner = Winner(
        kernel="ops:add",
        key="n=100 x=f32",
        problem=Problem.of({}),
        config=Config.of({"B": 32, "num_warps": 8}),
        evidence=evidence(),
    )
    lock.write(tmp_path / "tritune.lock", lock.merge_winners(Lock(), H200, [winner]))
    return tmp_path


def python(code: str, folder: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(ROOT), str(folder)))
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **env},
    )


def imported(code: str, folder: Path) -> set[str]:
    """The packages that running *code* imports, each by its first name."""
    said = python(code, folder, "-X", "importtime").stderr
    modules = [line.rpartition("|")[2].strip() for line in said.splitlines() if "|" in line]
    return {module.partition(".")[0] for module in modules}


def test_importing_tritune_imports_none_of_what_costs_seconds(tmp_path):
    packages = imported("import tritune; tritune.stats()", tmp_path)

    assert "tritune" in packages
    assert packages & (COMMAND_LINE | {"triton", "torch", "numpy"}) == set()


def test_the_parent_of_a_sweep_imports_neither_torch_nor_triton(tmp_path):
    packages = imported("import tritune.pipeline, tritune.cli.sweep", tmp_path)

    assert "click" in packages
    assert packages & {"triton", "torch", "numpy"} == set()


def test_importing_a_kernel_module_imports_no_command_line(ops):
    packages = imported("import ops", ops)

    assert {"ops", "triton"} <= packages
    assert packages & (COMMAND_LINE | {"torch", "numpy"}) == set()


def test_importing_a_kernel_module_asks_no_driver_and_says_nothing(ops):
    said = python(
        "import ops, triton; print(ops.add.default, triton.runtime.driver._active)",
        ops,
        CUDA_VISIBLE_DEVICES="",
    )

    assert said.stdout == "{'B': 64, 'num_warps': 4} None\n"
    assert "tritune" not in said.stderr


def test_importing_a_kernel_module_survives_a_damaged_lockfile(ops):
    (ops / "tritune.lock").write_text('{"tritune": 1,', encoding="utf-8")

    said = python("import ops; print(ops.add.name)", ops)

    assert (said.returncode, said.stdout) == (0, "ops:add\n")
    assert f"{ops / 'tritune.lock'}:1: is cut off here" in said.stderr


def test_an_unknown_name_of_the_package_is_an_ordinary_attribute_error(tmp_path):
    said = python("import tritune; tritune.kernle", tmp_path)

    assert said.stderr.splitlines()[-1] == (
        "AttributeError: module 'tritune' has no attribute 'kernle'. Did you mean: 'kernel'?"
    )


@pytest.mark.lowering
def test_torch_compile_takes_a_locked_kernel_as_one_graph_with_its_config(ops):
    said = python(STAND_IN + COMPILED, ops)

    assert said.stdout.splitlines() == ["64 4 (1, 1, 1)", "32 8 (4, 1, 1)"], said.stderr

"""The digest of a kernel's source: what changes it and what does not."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tritune.identity import problem_digest, source_digest

HELPERS = """
import triton
import triton.language as tl

GAIN = 2.0
SHIFT = tl.constexpr(3)

class Mode:
    FAST = 1

@triton.jit
def twice(x):
    return x * SHIFT

@triton.jit
def act(x):
    return twice(x)
"""
KERNEL = '''
import triton
import triton.language as tl
import helpers as H
from helpers import act as activate

LIMIT = 7
KIND = tl.float16
UNUSED = 1
exp = tl.exp
OPS = (H.twice, 5)

@triton.constexpr_function
def half(n):
    return n // 2

@triton.jit
def down(x, n: tl.constexpr):
    if n > 0:
        x = down(x, n - 1)
    return x

@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def kernel(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr = LIMIT):
    """Fill."""
    # A comment.
    i = tl.arange(0, half(BLOCK))
    y = activate(tl.load(x + i)).to(KIND) * H.GAIN + H.Mode.FAST
    tl.store(x + i, exp(H.act(down(y, 2))) + OPS[1])
'''
_numbers = itertools.count()


def digest(folder: Path, kernel: str = KERNEL, helpers: str = HELPERS) -> str:
    """Write the two modules, import them, and digest the kernel."""
    number = next(_numbers)
    modules = {f"helpers{number}": helpers, f"kernels{number}": kernel}
    for name, text in modules.items():
        path = folder / f"{name}.py"
        path.write_text(text.replace("helpers", f"helpers{number}"))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    found = source_digest(sys.modules[f"kernels{number}"].kernel)
    for name in modules:
        del sys.modules[name]
    return found


KNOWN = "54e98a061854"


def test_the_digest_is_the_same_under_every_triton_and_python(tmp_path: Path):
    assert digest(tmp_path) == KNOWN


@pytest.mark.parametrize("change", [{"PYTHONHASHSEED": "7"}, {"TRITON_INTERPRET": "1"}])
def test_the_digest_is_the_same_in_every_process_and_in_the_interpreter(
    tmp_path: Path, change: dict[str, str]
):
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "fill.py").write_text(KERNEL)
    code = "import fill, tritune.identity as i; print(i.source_digest(fill.kernel))"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path, **change}

    said = subprocess.check_output([sys.executable, "-c", code], env=environ, text=True)

    assert said == f"{KNOWN}\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# A comment.", ""),
        ('"""Fill."""', '"""Other words."""'),
        ("    i = tl", "\n\n    i  =  tl"),
        ("LIMIT = 7", "\n\n\nLIMIT = 0x7"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("@triton.jit\ndef kernel", "@triton.jit(debug=False)\ndef kernel"),
    ],
)
def test_what_means_the_same_keeps_the_digest(tmp_path: Path, old: str, new: str):
    assert old in KERNEL

    assert digest(tmp_path, KERNEL.replace(old, new)) == KNOWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.arange(0, ", "tl.arange(1, "),
        ("kernel(x, n", "kernel(z, n"),
        ("LIMIT = 7", "LIMIT = 8"),
        ("KIND = tl.float16", "KIND = tl.bfloat16"),
        ("exp = tl.exp", "exp = tl.log"),
        ("OPS = (H.twice, 5)", "OPS = (H.twice, 6)"),
        ("n // 2", "n // 3"),
        ("down(x, n - 1)", "down(x, n - 2)"),
        ("% 2 == 0", "% 4 == 0"),
    ],
)
def test_a_change_of_the_kernel_or_of_what_it_names_changes_the_digest(
    tmp_path: Path, old: str, new: str
):
    assert old in KERNEL

    assert digest(tmp_path, KERNEL.replace(old, new)) != KNOWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("GAIN = 2.0", "GAIN = 2.5"),
        ("SHIFT = tl.constexpr(3)", "SHIFT = tl.constexpr(4)"),
        ("FAST = 1", "FAST = 0"),
        ("return x * SHIFT", "return x + SHIFT"),
        ("return twice(x)", "return twice(x) + 1"),
    ],
)
def test_a_change_in_another_module_changes_the_digest(tmp_path: Path, old: str, new: str):
    assert old in HELPERS

    assert digest(tmp_path, helpers=HELPERS.replace(old, new)) != KNOWN


PROBLEM = """
import functools
import triton

RATE = 2
TABLE = {len: 1}

@triton.jit
def kernel(x):
    x + 1

@functools.cache
def scale(n):
    return n * RATE

class Norm:
    @classmethod
    def apply(cls, x):
        return kernel[(1,)](x)

class Model:
    def forward(self, x):
        return x - 1

model = Model()
half = functools.partial(scale, 2)

def problem(n):
    return (lambda: Norm.apply(scale(n) + half()), lambda: model.forward(n), TABLE)
"""


def problem_of(folder: Path, text: str = PROBLEM) -> str:
    name = f"problems{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return problem_digest(sys.modules[name].problem)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE = 2", "RATE = 3"),
        ("x + 1", "x + 2"),
        ("n * RATE", "n + RATE"),
        ("kernel[(1,)](x)", "kernel[(2,)](x)"),
        ("return x - 1", "return x - 2"),
        ("partial(scale, 2)", "partial(min, 2)"),
        ("scale(n) + half()", "scale(n)"),
        ("TABLE = {len: 1}", "TABLE = {len: 2}"),
    ],
)
def test_a_change_of_what_a_problem_runs_changes_its_digest(tmp_path: Path, old: str, new: str):
    assert old in PROBLEM

    assert problem_of(tmp_path, PROBLEM.replace(old, new)) != problem_of(tmp_path)


def test_the_digest_of_a_problem_is_the_same_in_every_process(tmp_path: Path):
    (tmp_path / "ops.py").write_text(PROBLEM)
    code = "import ops, tritune.identity as i; print(i.problem_digest(ops.problem))"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    said = {
        subprocess.check_output(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            text=True,
        )
        for seed in ("1", "2")
    }

    assert said == {f"{problem_of(tmp_path)}\n"}

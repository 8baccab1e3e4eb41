"""The whole way on a GPU: sweeps of good and of broken configs, and what production then runs.

The sweeps are of kernels that these tests write; the ops of this repository run what
`kernels/tritune.lock` says, each in a process of its own.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tritune import lock
from tritune.model import LAUNCH_OPTIONS, Config, Lock, Problem
from tritune.spec import read_sweep

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent
LOCKFILE = ROOT / "kernels" / "tritune.lock"
GROUPS = tuple(sorted(path.stem for path in (ROOT / "sweeps").glob("*.yaml")))
LIMIT_S = 300

COPY = """\
import torch
import triton
import triton.language as tl
import tritune


@tritune.kernel(key=["n"], default={"KIND": "slow", "num_warps": 4})
@triton.jit
def copy_kernel(x, y, n, FLAW: tl.constexpr, KIND: tl.constexpr):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    value = tl.load(x + at, mask=at < n)
    if FLAW or KIND == "wrong":
        value += 1.0
    if KIND == "broken":
        tl.static_assert(False, "this one is not meant to compile")
    if KIND == "stray":
        y += 1 << 44
    if KIND == "large":
        rows, columns = tl.arange(0, 128), tl.arange(0, 512)
        left = tl.load(x + rows[:, None] * 512 + columns[None, :])
        right = tl.load(x + columns[:, None] * 128 + rows[None, :])
        tl.store(y + rows[:, None] * 128 + rows[None, :], tl.dot(left, right))
        tl.debug_barrier()
    tl.store(y + at, value, mask=at < n)
    if KIND == "slow":
        for _ in range(n // 4096):
            tl.debug_barrier()
            tl.store(y + at, value, mask=at < n)


def copy(x, flaw=False):
    n, y = x.numel(), torch.empty_like(x)
    copy_kernel[(triton.cdiv(n, 1024),)](x, y, n, FLAW=flaw)
    return y


@tritune.problem(copy_kernel)
def copy_problem(n, flaw):
    x = torch.randn(n)
    return tritune.Problem(lambda: copy(x, flaw), reference=lambda: x.double())
"""
CHANGING = """\
import torch
import triton
import triton.language as tl
import tritune


@tritune.kernel(key=["n"], default={"BLOCK": 128, "num_warps": 4})
@triton.jit
def double_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def double(x):
    n = x.numel()
    double_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n)
    return x


@tritune.problem(double_kernel)
def double_problem(n):
    x = torch.randn(n)
    return tritune.Problem(lambda: double(x), reference=lambda: x.double() * 2)


@tritune.kernel(key=["n"], default={"BLOCK": 128, "num_warps": 4})
@triton.jit
def add_up_kernel(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0)))


def add_up(x, total):
    n = x.numel()
    add_up_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, total, n)
    return total


@tritune.problem(add_up_kernel)
def add_up_problem(n):
    x = torch.randint(0, 9, (n,), dtype=torch.int32)
    total = torch.full((1,), 7, dtype=torch.int32)
    wanted = 7 + x.sum(dtype=torch.int64)
    return tritune.Problem(lambda: add_up(x, total), reference=lambda: wanted[None])
"""
SWEEPS = {
    "copy": """\
kernel: copying.py:copy_kernel
space: {KIND: [good, slow, wrong, broken, stray, large]}
shapes: [{n: 1048576, flaw: false}]
""",
    "flawed": """\
kernel: copying.py:copy_kernel
space: {KIND: [good, slow]}
shapes: [{n: 65536, flaw: [true, false]}]
""",
    "double": """\
kernel: changing.py:double_kernel
space: {BLOCK: [128, 1024, 4096]}
shapes: [{n: 1048576}]
""",
    "add_up": """\
kernel: changing.py:add_up_kernel
space: {BLOCK: [128, 1024, 4096]}
shapes: [{n: 1048576}]
""",
}

WATCHED = """\
import json, sys
import torch, triton, triton.testing

def never(*_, **__):
    raise AssertionError("production benchmarked something")

def note(*, fn, compile, **_):
    names = fn.jit_function.arg_names
    constants = {names[path[0]]: value for path, value in compile["constants"].items()}
    simple = {n: v for n, v in constants.items() if isinstance(v, (int, float, str, bool))}
    options = {name: compile[name] for name in ("num_warps", "num_stages", "num_ctas")}
    compiled.append([fn.name, {**simple, **options}])

compiled = []
triton.testing.do_bench = triton.testing.do_bench_cudagraph = never
triton.knobs.runtime.jit_post_compile_hook = note

import tritune

def told(*kernels):
    counts = tritune.stats().items()
    used = {name: {kind: n for kind, n in each.items() if n} for name, each in counts}
    keys = [key for kernel in kernels for (key,) in kernel.cache]
    print(json.dumps({"stats": used, "keys": keys, "compiled": compiled}))

"""
OWN_OP = """\
import importlib
import kernel_checks

module, name, axes = sys.argv[1:]
kernel = getattr(importlib.import_module(module), name)
axes = json.loads(axes) | {"dtype": getattr(torch, json.loads(axes)["dtype"])}
torch.manual_seed(3)
with torch.device("cuda"):
    made = kernel.problem(**axes)
    result, reference = made.run(), made.reference()
kernel_checks.compare(result, reference, axes["dtype"], name)
told(kernel)
"""
CHANGING_OPS = """\
import changing

n = 1048576
x = torch.randn(n, device="cuda")
wanted = x * 2
assert torch.equal(changing.double(x), wanted)
x = torch.randint(0, 9, (n,), dtype=torch.int32, device="cuda")
total = torch.full((1,), 7, dtype=torch.int32, device="cuda")
assert changing.add_up(x, total).item() == 7 + x.sum().item()
told(changing.double_kernel, changing.add_up_kernel)
"""
COPY_OP = """\
import copying

x = torch.randn(1048576, device="cuda")
assert torch.equal(copying.copy(x), x)
told(copying.copy_kernel)
"""


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    theirs = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", folder, theirs)))
    return {**kept, "PYTHONPATH": path, "TRITUNE_CACHE_DIR": str(folder / "cache")}


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def watched(folder: Path, code: str, *words: str) -> dict[str, Any]:
    """What production did: how it came by its configs, and everything it compiled."""
    done = python(folder, "-c", WATCHED + code, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Swept:
    """What a sweep command gave."""

    code: int
    reports: dict[str, Any]
    stderr: str


def sweep(folder: Path, *words: str) -> Swept:
    done = python(folder, "-m", "tritune", "sweep", *words, "--json", "--jobs", "4")
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.stdout, done.stderr
    reports = json.loads(done.stdout)["reports"]
    return Swept(done.returncode, {Path(r["sweep"]).stem: r for r in reports}, done.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweeps")
    (path / "copying.py").write_text(COPY, encoding="utf-8")
    (path / "changing.py").write_text(CHANGING, encoding="utf-8")
    for name, text in SWEEPS.items():
        (path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def swept(folder: Path) -> Swept:
    """One command, so that torch is imported once for all of its sweeps."""
    return sweep(folder, "copy.yaml", "double.yaml", "add_up.yaml")


def rejected(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """KIND -> reason and detail."""
    return {
        each["config"]["KIND"]: (each["reason"], each["detail"])
        for each in report["outcomes"]
        if "reason" in each
    }


def test_a_broken_config_is_a_line_with_its_reason_and_never_ends_the_sweep(swept):
    report = swept.reports["copy"]

    reasons = rejected(report)

    assert {kind: reason for kind, (reason, _) in reasons.items()} == {
        "wrong": "wrong result",
        "broken": "does not compile",
        "stray": "crashes at launch",
        "large": "too much shared memory",
    }
    limit = report["target"]["shared_bytes"]
    assert f"{limit} available" in reasons["large"][1]
    assert "this one is not meant to compile" in reasons["broken"][1]
    assert "illegal memory access" in reasons["stray"][1]
    assert "largest error" in reasons["wrong"][1]
    assert swept.code == 0, swept.stderr


def test_the_good_config_is_locked_over_a_slow_default(swept, folder):
    [winner] = swept.reports["copy"]["winners"]

    assert winner["config"] == {"KIND": "good", "num_warps": 4}
    assert winner["evidence"]["default_us"] > 2 * winner["evidence"]["us"]
    [entry] = entries(folder / "tritune.lock", "copying:copy_kernel").values()
    assert entry.as_dict() == {"KIND": "good", "num_warps": 4}


def test_the_rejected_configs_are_shown_from_the_journal(swept, folder):
    said = python(folder, "-m", "tritune", "show", "rejected", "copy.yaml").stdout

    reasons = ("wrong result", "does not compile", "crashes at launch", "too much shared memory")
    assert [reason for reason in reasons if reason not in said] == []
    assert said.endswith("4 rejected configs\n")


def test_a_kernel_that_changes_its_input_or_accumulates_is_tuned_on_the_same_input_each_time(
    swept,
):
    for name in ("double", "add_up"):
        report = swept.reports[name]
        assert [each for each in report["outcomes"] if "reason" in each] == []
        assert len(report["outcomes"]) == 3
        [winner] = report["winners"]
        assert winner["evidence"]["us"] <= winner["evidence"]["default_us"]


def test_production_runs_what_those_sweeps_locked_and_its_results_are_right(swept, folder):
    changing = watched(folder, CHANGING_OPS)
    copying = watched(folder, COPY_OP)

    assert changing["stats"] == {
        "changing:double_kernel": {"exact": 1},
        "changing:add_up_kernel": {"exact": 1},
    }
    assert copying["stats"] == {"copying:copy_kernel": {"exact": 1}}
    [[name, constants]] = copying["compiled"]
    assert (name, constants["KIND"], constants["num_warps"]) == ("copy_kernel", "good", 4)


def test_a_second_sweep_changes_no_byte_of_the_lockfile(swept, folder):
    before = (folder / "tritune.lock").read_bytes()

    again = sweep(folder, "copy.yaml", "--fresh")

    assert again.code == 0, again.stderr
    assert [winner["change"] for winner in again.reports["copy"]["winners"]] == ["kept"]
    assert (folder / "tritune.lock").read_bytes() == before


def test_a_problem_of_which_every_config_is_rejected_is_exit_1_and_the_others_are_locked(folder):
    answer = sweep(folder, "flawed.yaml", "--lockfile", str(folder / "flawed.lock"))

    report = answer.reports["flawed"]
    assert answer.code == 1, answer.stderr
    assert report["unsolved"] == [{"n": 65536, "flaw": True}]
    assert [winner["problem"] for winner in report["winners"]] == [{"n": 65536, "flaw": False}]
    assert {reason for reason, _ in rejected(report).values()} == {"wrong result"}
    assert len(entries(folder / "flawed.lock", "copying:copy_kernel")) == 1


def entries(path: Path, kernel: str, read: Lock | None = None) -> dict[str, Config]:
    """Key -> config of one kernel, whatever the device."""
    locked = lock.read(path) if read is None else read
    return {at.key: entry.config for at, entry in locked.entries if at.kernel == kernel}


def smallest(group: str) -> tuple[str, Problem]:
    """The kernel of a sweep of this repository, and its least problem."""
    made = read_sweep(ROOT / "sweeps" / f"{group}.yaml")

    def size(problem: Problem) -> int:
        return math.prod(v for v in problem.as_dict().values() if isinstance(v, int) and v)

    return str(made.kernel).rpartition("/")[2], min(made.problems, key=size)


@pytest.fixture(scope="module")
def own_ops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Each op in a new process; all at once, since nearly all of it is an import of torch."""
    if not LOCKFILE.is_file():
        pytest.skip(f"there is no {LOCKFILE}")
    folder = tmp_path_factory.mktemp("ops")

    def production(group: str) -> dict[str, Any]:
        kernel, problem = smallest(group)
        module, _, name = kernel.partition(".py:")
        return watched(folder, OWN_OP, f"kernels.{module}", name, json.dumps(problem.as_dict()))

    with ThreadPoolExecutor(len(GROUPS)) as pool:
        return {group: pool.submit(production, group) for group in GROUPS}


@pytest.mark.parametrize("group", GROUPS)
def test_an_op_runs_its_locked_config_benchmarks_nothing_and_compiles_nothing_else(group, own_ops):
    kernel, _ = smallest(group)
    module, _, name = kernel.partition(".py:")
    locked = entries(LOCKFILE, f"kernels.{module}:{name}")

    done = own_ops[group].result()  # its result was compared with the reference in there

    assert done["stats"] == {f"kernels.{module}:{name}": {"exact": 1}}
    [key] = done["keys"]
    assert key in locked
    [constants] = [constants for compiled, constants in done["compiled"] if compiled == name]
    config = locked[key].as_dict()
    assert {each: constants.get(each) for each in config} == config
    others = [compiled for compiled, _ in done["compiled"] if compiled != name]
    assert set(others) <= {"pack_kernel", "sum_kernel"}
    assert len(others) == len(set(others))


def test_the_lockfile_names_no_launch_option_that_a_compile_does_not_tell():
    """What the test above could not compare."""
    named = {name for _, entry in lock.read(LOCKFILE).entries for name in entry.config}

    assert (named & LAUNCH_OPTIONS) <= {"num_warps", "num_stages", "num_ctas"}

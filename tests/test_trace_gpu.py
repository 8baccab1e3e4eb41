"""`tritune trace` on a GPU: a short training loop is counted and timed, and its sweep file runs.

How much slower the traced loop is, is printed (`pytest -s`), and not asserted: a shared host
decides more of it than the tracer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.gpu
STEPS, WINDOWS = 100, 8
"""Of a loop, as often: the least of several is what a busy host does not make longer."""
EVERY = STEPS * WINDOWS
WARM = 20
TIMED = f"""
if __name__ == "__main__":
    train({WARM})
    took = []
    for window in range({WINDOWS}):
        began = time.perf_counter()
        train({STEPS})
        took.append(time.perf_counter() - began)
    print(min(took))
"""
OPS = """\
import torch, triton, triton.language as tl

@triton.autotune(
    [triton.Config({"B": b}, num_warps=w) for b in (256, 1024) for w in (4, 8)], key=["n"]
)
@triton.jit
def gelu_kernel(x, bias, index, y, n, columns, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    value += tl.load(bias + tl.load(index + at % columns, mask=at < n), mask=at < n)
    tl.store(y + at, value * tl.sigmoid(1.702 * value), mask=at < n)

def gelu(x, bias, index):
    y, n = torch.empty_like(x), x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["B"]),)
    gelu_kernel[grid](x, bias, index, y, n, x.shape[1])
    return y
"""
TRAIN = """\
import time
import torch
from ops import gelu

def train(steps):
    index = torch.arange(256, device="cuda")
    bias = torch.randn(256, device="cuda")
    layer = torch.nn.Linear(256, 256, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
    small = x[:64].clone()
    best = torch.optim.SGD(layer.parameters(), lr=1e-3)
    for step in range(steps):
        h = layer(x)
        loss = (h * gelu(h.detach(), bias, index)).float().mean()
        loss.backward()
        best.step()
        best.zero_grad()
        if step % 10 == 0:
            gelu(small, bias, index)
    torch.cuda.synchronize()
"""
GRAPH = """\
    graph = torch.cuda.CUDAGraph()
    x, bias = torch.randn(64, 256, device="cuda"), torch.randn(256, device="cuda")
    index = torch.arange(256, device="cuda")
    gelu(x, bias, index)
    with torch.cuda.graph(graph):
        y = gelu(x, bias, index)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, gelu(x, bias, index))
"""
DEFAULT = """\
import torch
from ops import gelu

torch.set_default_device("cuda")
gelu(torch.randn(32, 256), torch.randn(256), torch.arange(256))
torch.cuda.synchronize()
"""
FORKS = """\
import os
import torch
from ops import gelu

x, bias = torch.randn(16, 256, device="cuda"), torch.randn(256, device="cuda")
index = torch.arange(256, device="cuda")
for _ in range(5):
    torch.cuda._sleep(10_000_000)
    gelu(x, bias, index)
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
torch.cuda.synchronize()
"""
SWEEP = "traced/gelu_kernel.yaml"
SERVED = """\
import json, tritune
tritune.install("traced/tritune.lock")
import ops, train

def benchmark(*_, **__):
    raise AssertionError("a served launch was benchmarked")

vars(ops.gelu_kernel)["do_bench"] = benchmark
train.train(20)
print(json.dumps(tritune.stats()))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("loop")
    (made / "ops.py").write_text(OPS, encoding="utf-8")
    (made / "train.py").write_text(TRAIN + TIMED + GRAPH, encoding="utf-8")
    return made


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    left = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        words,
        cwd=folder,
        env={**left, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def traced(folder):
    """The report, after the loop has run plain and traced, in turn."""
    program = (sys.executable, "train.py")
    trace = (sys.executable, "-m", "tritune", "trace", "--force", "--", *program)
    seconds = {"plain": [], "traced": []}
    for _ in range(2):
        seconds["plain"].append(float(run(folder, *program).stdout))
        seconds["traced"].append(float(run(folder, *trace).stdout))
    slower = min(seconds["traced"]) / min(seconds["plain"]) - 1
    sys.stdout.write(f"\n{STEPS} steps: {seconds}: the traced loop is {slower:+.1%} slower\n")
    return json.loads((folder / "traced/report.json").read_text(encoding="utf-8"))


def test_every_launch_is_counted_and_every_key_has_a_time(traced):
    [kernel] = traced["kernels"]
    counts = {one["key"]: one["count"] for one in kernel["launches"]}

    assert counts == {
        "n=131072 x=bf16 bias=f32 index=i64 y=bf16": WARM + EVERY,
        "n=16384 x=bf16 bias=f32 index=i64 y=bf16": (WARM + EVERY) // 10,
        "n=16384 x=f32 bias=f32 index=i64 y=f32": 3,
    }
    for one in kernel["launches"]:
        assert 0 < one["timed"] < one["count"]
        assert 1.0 < one["total_us"] / one["count"] < 1000.0


def test_launches_in_a_graph_are_told_and_the_graph_still_runs(traced):
    captured = {one["key"] for one in traced["kernels"][0]["launches"] if one["captured"]}

    assert captured == {"n=16384 x=f32 bias=f32 index=i64 y=f32"}


def test_indices_have_come_from_the_gpu_with_nothing_waited_for(traced):
    facts = [one["facts"]["args"][2] for one in traced["kernels"][0]["launches"]]

    assert [fact["values"] for fact in facts] == [list(range(256))] * 3


def only_launch(folder, name, program):
    """What a trace of this program writes of the only launches that it makes."""
    (folder / f"{name}.py").write_text(program, encoding="utf-8")
    words = ("trace", "--force", "--output", name, "--", sys.executable, f"{name}.py")
    run(folder, sys.executable, "-m", "tritune", *words)
    report = json.loads((folder / name / "report.json").read_text(encoding="utf-8"))
    [launch] = report["kernels"][0]["launches"]
    return launch


def test_indices_come_where_the_program_has_a_default_device(folder):
    launch = only_launch(folder, "default", DEFAULT)

    assert launch["facts"]["args"][2]["values"] == list(range(256))


def test_a_program_that_forks_while_the_gpu_is_at_it_forks_as_before(folder):
    launch = only_launch(folder, "forks", FORKS)

    assert (launch["count"], len(launch["facts"]["args"][2]["values"])) == (5, 256)


def test_its_sweep_file_runs_as_it_is_and_a_served_run_benchmarks_nothing(folder, traced):
    run(folder, sys.executable, "-m", "tritune", "sweep", "--allow-noisy", SWEEP)

    done = run(folder, sys.executable, "-c", SERVED)

    locked = json.loads((folder / "traced/tritune.lock").read_text(encoding="utf-8"))
    [entries] = locked["kernels"]["ops:gelu_kernel"].values()
    assert set(entries) == {one["key"] for one in traced["kernels"][0]["launches"]}
    assert json.loads(done.stdout)["ops:gelu_kernel"]["exact"] == 22


# --- kernels of packages, if they are installed -------------------------------------------

PACKAGES = ("liger_kernel", "fla")
PACKAGED = """\
import time
import torch
from fla.modules.norm.l2norm import L2NormFunction
from liger_kernel.ops.dyt import LigerDyTFunction

def parameter(*sizes):
    return torch.randn(*sizes, device="cuda", dtype=torch.bfloat16).div_(32).requires_grad_()

def train(steps):
    x = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    weights = [parameter(1024, 1024), parameter(1024, 1024), parameter(1024, 128)]
    scales = [parameter(1), parameter(1024), parameter(1024)]
    best = torch.optim.SGD(weights + scales, lr=1e-3)
    for step in range(steps):
        h = x
        for weight in weights[:2]:
            h = LigerDyTFunction.apply(h @ weight, *scales)
        L2NormFunction.apply(h @ weights[2]).float().square().mean().backward()
        best.step()
        best.zero_grad()
    torch.cuda.synchronize()
"""
PACKAGED_SERVED = """\
import json, tritune
tritune.install("traced/tritune.lock")
import train
from triton.runtime.autotuner import Autotuner

def benchmark(*_, **__):
    raise AssertionError("a served launch was benchmarked")

Autotuner._bench = benchmark
train.train(5)
print(json.dumps({name: [kinds["exact"], sum(kinds.values())]
                  for name, kinds in tritune.stats().items()}))
"""


def test_a_loop_over_packages_is_traced_swept_as_it_is_and_served(tmp_path_factory):
    for package in PACKAGES:
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("packaged")
    (folder / "train.py").write_text(PACKAGED + TIMED, encoding="utf-8")
    program = (sys.executable, "train.py")
    trace = (sys.executable, "-m", "tritune", "trace", "--force", "--", *program)
    seconds = {
        "plain": float(run(folder, *program).stdout),
        "traced": float(run(folder, *trace).stdout),
    }
    slower = seconds["traced"] / seconds["plain"] - 1
    sys.stdout.write(f"\n{STEPS} steps: {seconds}: the traced loop is {slower:+.1%} slower\n")
    report = json.loads((folder / "traced/report.json").read_text(encoding="utf-8"))
    dyt, norm = "liger_kernel.ops.dyt", "fla.modules.norm.l2norm"
    a_step = {
        f"{dyt}:_dyt_fwd_kernel": 2,
        f"{dyt}:_dyt_bwd_kernel": 2,
        f"{norm}:l2norm_fwd_kernel": 1,
        f"{norm}:l2norm_bwd_kernel": 1,
    }
    steps = WARM + EVERY
    counts = {one["name"]: one["count"] for one in report["kernels"]}
    assert counts == {name: each * steps for name, each in a_step.items()}

    files = sorted(str(path.relative_to(folder)) for path in folder.glob("traced/*.yaml"))
    run(folder, sys.executable, "-m", "tritune", "sweep", "--allow-noisy", *files)
    done = run(folder, sys.executable, "-c", PACKAGED_SERVED)

    served = json.loads(done.stdout)
    assert served == {name: [5 * each, 5 * each] for name, each in a_step.items()}

"""A locked kernel on a GPU: eager, captured in a CUDA graph, and under torch.compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.gpu
OPS = """\
import torch, triton, triton.language as tl, tritune

@tritune.kernel(key=["n"], like=["x"], default=dict(B=64, num_warps=4))
@triton.jit
def add(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)

def op(x):
    n, y = x.numel(), torch.empty_like(x)
    add[lambda m: (triton.cdiv(n, m["B"]),)](x, y, n)
    return y
"""
LOCKED = """\
import torch
from tritune import lock, runtime
from tritune.model import Config, Evidence, Lock, Problem, Winner

torch.cuda.init()
winner = Winner(
    kernel="ops:add", key="n=1000 x=f32", problem=Problem.of({}),
    config=Config.of({"B": 32, "num_warps": 8}),
    evidence=Evidence(us=1.0, default_us=2.0, margin=0.1, noise=0.0, bits="", ir="", triton=""))
lock.write("tritune.lock", lock.merge_winners(Lock(), runtime.identify(0), [winner]))
import ops
x = torch.rand(1000, device="cuda")
counts = lambda: {kind: n for kind, n in ops.tritune.stats()["ops:add"].items() if n}
"""


def on_gpu(code: str, folder: Path) -> str:
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", LOCKED + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={
            **env,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder), env.get("PYTHONPATH", ""))),
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_eager_launch_runs_the_locked_config(tmp_path):
    said = on_gpu(
        "assert torch.equal(ops.op(x), x + 1)\n"
        "assert torch.equal(ops.op(x[1:]), x[1:] + 1)\n"
        "print(ops.add.cache[('n=1000 x=f32',)].all_kwargs(), counts())",
        tmp_path,
    )

    assert said == (
        "{'B': 32, 'num_warps': 8, 'num_ctas': 1, 'num_stages': 3} {'exact': 1, 'default': 1}\n"
    )


def test_a_launch_is_captured_in_a_graph(tmp_path):
    said = on_gpu(
        "ops.op(x)\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n"
        "    y = ops.op(x)\n"
        "x.fill_(4.0)\n"
        "graph.replay()\n"
        "print(y.sum().item(), counts())",
        tmp_path,
    )

    assert said == "5000.0 {'exact': 2}\n"


def test_torch_compile_takes_the_locked_config_with_no_graph_break(tmp_path):
    said = on_gpu(
        "compiled = torch.compile(ops.op, fullgraph=True, dynamic=False)\n"
        "assert torch.equal(compiled(x), x + 1)\n"
        "print(counts())",
        tmp_path,
    )

    assert said.startswith("{'exact': ")
    assert "default" not in said


def test_launches_that_are_recalled_compute_what_their_first_did(tmp_path):
    said = on_gpu(
        "views = [x, x[1:], x[:16], x[16:32], x[:1], x[:15], x.half(), x.int(), x.double()]\n"
        "streams = [torch.cuda.current_stream(), torch.cuda.Stream()]\n"
        "for _ in range(3):\n"
        "    for stream in streams:\n"
        "        with torch.cuda.stream(stream):\n"
        "            stream.wait_stream(torch.cuda.default_stream())\n"
        "            for view in views:\n"
        "                assert torch.equal(ops.op(view), view + 1), view\n"
        "            torch.cuda.synchronize()\n"
        "calls = []\n"
        "launch = ops.add._launcher.launch\n"
        "ops.add._launcher.launch = lambda *call: calls.append(call) or launch(*call)\n"
        "for view in views:\n"
        "    assert torch.equal(ops.op(view), view + 1), view\n"
        "print(len(calls), sum(counts().values()))",
        tmp_path,
    )

    assert said == "0 63\n"

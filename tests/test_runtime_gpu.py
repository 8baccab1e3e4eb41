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

@triton.autotune([triton.Config(dict(B=b), num_warps=4) for b in (64, 128)], key=["n"])
@triton.heuristics({"WIDE": lambda named: named["B"] > 64})
@triton.jit
def bare(x, y, n, B: tl.constexpr, WIDE: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)

def bare_op(x):
    n, y = x.numel(), torch.empty_like(x)
    bare[lambda m: (triton.cdiv(n, m["B"]),)](x, y, n)
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


def test_dynamic_sizes_run_the_config_of_each_size_under_one_compile(tmp_path):
    said = on_gpu(
        "def plus_one(x: torch.Tensor) -> torch.Tensor:\n"
        "    return ops.op(x)\n"
        "opaque = ops.tritune.op(plus_one)\n"
        "torch._dynamo.config.error_on_recompile = True\n"
        "compiled = torch.compile(lambda x: opaque(x) * 2, fullgraph=True, dynamic=True)\n"
        "for n in (1000, 999, 640, 17, 2048, 1000):\n"
        "    y = torch.rand(n, device='cuda')\n"
        "    assert torch.equal(compiled(y), (y + 1) * 2), n\n"
        "print(counts())",
        tmp_path,
    )

    assert said == "{'exact': 2, 'default': 4}\n"


def test_sizes_that_vary_with_no_word_of_it_are_compiled_where_something_is_locked(tmp_path):
    said = on_gpu(
        "import dataclasses\n"
        "config = Config.of({'B': 128, 'num_warps': 4, 'num_stages': 3})\n"
        "bare = dataclasses.replace(winner, kernel='ops:bare', key='n=1000 x=f32 y=f32',\n"
        "                           config=config)\n"
        "lock.write('bare.lock', lock.merge_winners(Lock(), runtime.identify(0), [bare]))\n"
        "ops.tritune.install('bare.lock')\n"
        "for op, whole in ((ops.bare_op, True), (ops.op, False)):\n"
        "    compiled = torch.compile(op, fullgraph=whole)\n"
        "    for n in (1000, 1000, 999, 640, 17, 1000):\n"
        "        y = torch.rand(n, device='cuda')\n"
        "        assert torch.equal(compiled(y), y + 1), (op, n)\n"
        "stats = ops.tritune.stats()\n"
        "print(stats['ops:bare']['exact'], stats['ops:add']['exact'] > 0)",
        tmp_path,
    )

    assert said == "1 True\n"


def test_two_threads_and_a_backward_pass_run_the_locked_config(tmp_path):
    said = on_gpu(
        "import threading\n"
        "class PlusOne(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        return ops.op(x)\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad):\n"
        "        seen.add(threading.get_ident())\n"
        "        return ops.op(grad.contiguous())\n"
        "seen = set()\n"
        "leaf = x.clone().requires_grad_()\n"
        "PlusOne.apply(leaf).sum().backward()\n"
        "assert torch.equal(leaf.grad, torch.full_like(x, 2.0))\n"
        "assert seen - {threading.get_ident()}, 'autograd used no thread of its own'\n"
        "wrong = []\n"
        "def work():\n"
        "    with torch.cuda.stream(torch.cuda.Stream()):\n"
        "        mine = torch.rand(1000, device='cuda')\n"
        "        wrong.extend(i for i in range(200) if not torch.equal(ops.op(mine), mine + 1))\n"
        "threads = [threading.Thread(target=work) for _ in range(2)]\n"
        "for each in threads: each.start()\n"
        "for each in threads: each.join()\n"
        "print(wrong, counts())",
        tmp_path,
    )

    assert said == "[] {'exact': 402}\n"


def test_a_softmax_between_locked_sizes_is_right(tmp_path):
    said = on_gpu(
        "from kernels.softmax import softmax, softmax_kernel\n"
        "for n in (1024, 1536, 3000, 700):\n"
        "    y = torch.randn(32768, n, device='cuda', dtype=torch.float16)\n"
        "    wanted = torch.softmax(y.double(), dim=1)\n"
        "    assert (softmax(y).double() - wanted).abs().max() < 1e-3, n\n"
        "counted = ops.tritune.stats()['kernels.softmax:softmax_kernel']\n"
        "print(counted['exact'] >= 1, sum(counted.values()))",
        tmp_path,
    )

    assert said == "True 4\n"

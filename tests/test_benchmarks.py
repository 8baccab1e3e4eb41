"""The benchmarks' own logic, with a watch and a driver that need no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from others import project
from projects import STAND_IN

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "tests" / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import bench_dispatch  # noqa: E402  # of the folder above
import bench_others  # noqa: E402
import timing  # noqa: E402

SET_UP = f"import sys\nimport torch\n{STAND_IN}"
DISPATCH = """\
import bench_dispatch

for case in bench_dispatch.CASES:
    us = bench_dispatch.measure(case, "cpu", lambda: None, 2)
    print(*list(bench_dispatch.table(case.name, us))[:2], sep=chr(10))
    print(len(us), min(map(min, us.values())) > 0)
"""
KERNELS = """\
import json, os
from tritune import lock, runtime
from tritune.model import Config, Evidence, Lock, Problem, Winner

winner = Winner(
    kernel="kernels.softmax:softmax_kernel", key="rows=3 n=77 x=f32", problem=Problem.of({}),
    config=Config.of(dict(BLOCK=128, ROWS=2, STAGES=1, num_warps=4)),
    evidence=Evidence(us=1.0, default_us=2.0, margin=0.1, noise=0.0, bits="", ir="", triton=""))
lock.write("one.lock", lock.merge_winners(Lock(), runtime.identify(0), [winner]))
os.environ["TRITUNE_LOCKFILE"] = "one.lock"

import bench_kernels, contenders, timing

class Watch:
    device = "cpu"
    costs = {"locked": 10.0, "default": 20.0, "torch": 5.0, "autotune": 15.0}
    def host_us(self, run): return 1.0
    def sample(self, run, ahead_us): return run
    def read(self, samples):
        each = len(samples) // self.ways
        return [self.costs[name] for name in self.names for _ in range(each)]

def interleaved(watch, runs, rounds):
    watch.names, watch.ways = list(runs), len(runs)
    return timing.interleaved(watch, runs, rounds)

small = {
    "matmul": {"M": 17, "N": 40, "K": 33, "dtype": "float16"},
    "splitk": {"M": 3, "N": 64, "K": 128, "dtype": "float16"},
    "softmax": {"rows": 3, "n": 77, "dtype": "float32"},
    "layer_norm_forward": {"rows": 3, "n": 77, "dtype": "float16"},
    "layer_norm_backward": {"rows": 3, "n": 77, "dtype": "float32"},
    "attention": {"batch": 1, "heads": 2, "kv_heads": 1, "S": 40, "head_dim": 64,
                  "causal": True, "dtype": "float16"},
}
for name in bench_kernels.OPS:
    stock = contenders.autotuner(name)
    stock.configs = stock.configs[:2]
bench_kernels.interleaved = interleaved
bench_kernels.problems = lambda name: [small[name]]
bench_kernels.is_autotuned = lambda name, axes: True
rows = bench_kernels.run(bench_kernels.parse(["--rounds", "3"]), Watch())
print("rows:", json.dumps([[r.kernel, sorted(r.us), sorted(r.wrong)] for r in rows]))
"""


def interpreted(code: str, folder: Path, **env: str) -> list[str]:
    """What *code* prints where kernels run in Triton's interpreter, as if on an H200."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SET_UP + code],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, BENCHMARKS))),
            "TRITON_INTERPRET": "1",
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class FakeWatch:
    """Takes as long as it is told to; says in which order it was asked."""

    device = "cpu"

    def __init__(self, late: int = 0) -> None:
        self.asked: list[float] = []
        self.order: list[object] = []
        self._late = late

    def host_us(self, run: timing.Run) -> float:
        return 20.0

    def sample(self, run: timing.Run, ahead_us: float) -> object:
        self.asked.append(ahead_us)
        if self._late:
            self._late -= 1
            return None
        self.order.append(run())
        return run()

    def read(self, samples: list[float]) -> list[float]:
        return [float(one) for one in samples]


def test_every_way_is_sampled_once_a_round_in_another_order_and_its_first_sample_is_dropped():
    watch = FakeWatch()

    us = timing.interleaved(watch, {"a": lambda: 1.0, "b": lambda: 2.0, "c": lambda: 3.0}, 6)

    assert us == {"a": 1.0, "b": 2.0, "c": 3.0}
    rounds = [watch.order[at : at + 3] for at in range(0, 18, 3)]
    assert rounds == [[1, 2, 3], [3, 2, 1], [2, 3, 1], [1, 3, 2], [3, 1, 2], [2, 1, 3]]


def test_a_sample_in_which_the_gpu_waited_for_the_host_is_taken_again_with_more_time():
    watch = FakeWatch(late=2)

    timing.interleaved(watch, {"a": lambda: 1.0}, 2)

    assert watch.asked == [60.0, 120.0, 240.0, 240.0]


def test_work_that_waits_for_the_gpu_is_refused():
    with pytest.raises(RuntimeError, match="a waits for the GPU on the host"):
        timing.interleaved(FakeWatch(late=99), {"a": lambda: 1.0}, 2)


def test_a_mean_of_ratios_is_geometric():
    assert timing.geometric_mean([0.5, 8.0]) == pytest.approx(2.0)
    assert timing.geometric_mean([]) is None


def test_every_way_to_launch_is_timed_and_the_locked_one_is_found(tmp_path):
    lines = interpreted(DISPATCH, tmp_path)

    assert [line for line in lines if line.endswith("µs a launch  of plain jit")] == [
        "wide_kernel, 13 arguments     µs a launch  of plain jit",
        "narrow_kernel, 3 arguments    µs a launch  of plain jit",
    ]
    assert [line for line in lines if line.startswith("plain jit") and line.endswith("1.00x")]
    assert lines.count("5 True") == 2


SUMMARY = """\
softmax, µs                locked  default  autotune  torch  over default  over autotune  over torch
rows=3 n=77 dtype=float32    10.0     20.0      15.0    5.0         2.00x          1.50x       0.50x
"""


@pytest.mark.lowering
def test_without_a_gpu_a_stand_in_times_the_host_and_says_so(tmp_path):
    code = 'import bench_dispatch; bench_dispatch.main(["--stand-in", "--launches", "2"])'

    lines = interpreted(code, tmp_path, TRITON_INTERPRET="0")

    assert lines[0].startswith("Host cost without a GPU (a stand-in that launches nothing), Triton")
    assert [line.split("  ")[0] for line in lines[2:8]] == [
        "wide_kernel, 13 arguments",
        "plain jit, config by hand",
        "autotune, tuned before",
        "tritune, looked up",
        "tritune, config() and launch",
        "tritune, given **cfg",
    ]


def test_what_a_lockfile_adds_to_an_import_is_told_as_a_difference(tmp_path):
    code = """\
import bench_import
bench_import.ENTRIES = 80
print(*bench_import.table(bench_import.measure(1)), sep=chr(10))
"""

    lines = interpreted(code, tmp_path, TRITON_INTERPRET="0")

    assert [line[:22].strip() for line in lines] == [
        "80 entries",
        "no lockfile",
        "one of 40 kernels",
        "all entries its own",
    ]
    assert lines[1].split()[3::2] == ["+0.00", "+0.00"]


def test_a_ratio_is_of_two_ways_of_one_turn_and_the_median_of_all():
    taken = {bench_dispatch.JIT: [1.0, 10.0, 2.0], "ours": [0.5, 8.0, 1.4]}

    assert bench_dispatch.ratio(taken, "ours") == pytest.approx(0.7)
    assert list(bench_dispatch.table("case", taken))[2] == (
        "ours                              1.40         0.70x"
    )


def test_every_op_runs_in_every_way_and_the_summary_is_of_what_is_locked(tmp_path):
    lines = interpreted(KERNELS, tmp_path)

    ways = ["autotune", "default", "torch"]
    assert json.loads(lines[-1].removeprefix("rows: ")) == [
        ["matmul", ways, []],
        ["attention", ways, []],
        ["splitk", ways, []],
        ["softmax", ["autotune", "default", "locked", "torch"], []],
        ["layer_norm_forward", ways, []],
        ["layer_norm_backward", ways, []],
    ]
    assert SUMMARY in "\n".join(lines)
    assert lines[-2].split()[-3:] == ["2.00x", "1.50x", "0.50x"]
    assert lines.count("not locked on this GPU: 1 of 1 problems") == 5


def test_the_problems_that_are_autotuned_stand_in_the_sweep_files_and_are_few():
    code = """\
import contenders
for name, op in contenders.OPS.items():
    found = [contenders.is_autotuned(name, axes) for axes in contenders.problems(name)]
    print(name, sum(found), len(op.autotuned), found == sorted(found, reverse=True))
"""

    lines = interpreted(code, ROOT)

    assert lines == [
        "matmul 4 4 True",
        "attention 3 3 True",
        "splitk 3 3 True",
        "softmax 3 3 True",
        "layer_norm_forward 3 3 True",
        "layer_norm_backward 3 3 True",
    ]


OTHERS_STEPS = """\
import json, sys
from pathlib import Path
from tritune import lock, runtime
from tritune.model import Config, Evidence, Lock, Problem, Winner

file = Path("mine/sweep.yaml").absolute()
evidence = Evidence(us=1.0, default_us=2.0, margin=0.1, noise=0.0, bits="", ir="", triton="",
                    source="0" * 12)
winners = [
    Winner(kernel=f"theirs:{kernel}", key=key, problem=Problem.of({}), evidence=evidence,
           config=Config.of(dict(BLOCK=256, num_warps=4, num_stages=3)))
    for kernel, key in {
        "scale_forward": "N=256 X=f32 Y=f32 alpha=f32",
        "scale_backward": "N=256 WIDE=False DY=f32 X=f32 DX=f32 DA=f32 alpha=f32",
    }.items() if kernel in sys.argv
]
lock.write(file.parent / "tritune.lock",
           lock.merge_winners(Lock(), runtime.identify(0), winners))

class Watch:
    device = "cpu"
    def host_us(self, run): return 1.0
    def sample(self, run, ahead_us):
        run()
        return run
    def read(self, samples):
        each = len(samples) // 2
        return [30.0] * each + [20.0] * each

import bench_others
for step in sys.argv[1].split(","):
    found = bench_others.own(file, 0, Watch()) if step == "own" else bench_others.served(file, 0)
    print(step, json.dumps(found))
"""


def others_steps(folder: Path, steps: str, *locked: str) -> dict[str, dict]:
    """What the steps of `bench_others` found on a project whose kernels *locked* are served."""
    project(folder, "problem: problems.py:scale_problem\nshapes: [{M: 3, N: 256}]\n")
    code = f"import sys; sys.argv[1:] = {[steps, *locked]!r}\n{OTHERS_STEPS}"
    path = os.pathsep.join(map(str, (ROOT, BENCHMARKS, folder / "site")))
    lines = interpreted(code, folder, PYTHONPATH=path)
    return {name: json.loads(found) for name, _, found in (one.partition(" ") for one in lines)}


KERNELS_OF_SCALE = ("scale_forward", "scale_backward")


def test_each_launch_of_an_op_is_timed_with_its_own_pick_and_with_ours(tmp_path):
    own = others_steps(tmp_path, "own", *KERNELS_OF_SCALE)["own"]

    assert "unpaired" not in own
    assert own["kernels"] == {
        "theirs:scale_forward": {"own": 30.0, "tuned": 20.0, "launches": 1, "same": 0},
        "theirs:scale_backward": {"own": 30.0, "tuned": 20.0, "launches": 1, "same": 0},
    }
    assert max(own["errors"]) < 1e-6


def test_an_op_that_is_served_benchmarks_nothing_and_is_right(tmp_path):
    served = others_steps(tmp_path, "served", *KERNELS_OF_SCALE)["served"]

    assert len(served["errors"]) == 3
    assert max(served["errors"]) < 1e-6
    assert {kernel: kinds["exact"] for kernel, kinds in served["served"].items()} == {
        "theirs:scale_forward": 1,
        "theirs:scale_backward": 1,
    }


def test_an_op_of_which_a_kernel_is_not_locked_is_not_said_to_be_served(tmp_path):
    with pytest.raises(AssertionError, match="production benchmarked something"):
        others_steps(tmp_path, "served", "scale_forward")


def test_a_step_that_fails_is_told_and_the_others_are_done(tmp_path, monkeypatch, capsys):
    def step(name, file, index):
        if (name, index) == ("served", 0):
            raise RuntimeError("out of memory")
        found = {"seconds": 2.5, "errors": [1e-3]}
        pair = {"own": 30.0, "tuned": 20.0, "launches": 1, "same": 0}
        return {**found, "kernels": {"a.b:k": pair}} if name == "own" else found

    counts = {"nominal": 9, "problems": 2, "effective": 7, "rejected": {"too much": 2}}
    monkeypatch.setattr(bench_others, "step", step)
    swept = {"seconds": 9.0, "kernels": {"a.b:k": counts}}
    monkeypatch.setattr(bench_others, "swept", lambda file: swept)
    monkeypatch.setattr(bench_others.importlib.util, "find_spec", lambda name: name)
    arguments = ["--only", "norm", "--folder", str(tmp_path), "--json", str(tmp_path / "out")]

    code = bench_others.main(arguments)

    said = capsys.readouterr().out.splitlines()
    assert code == 1
    assert said == [
        "norm: sweep 9.00 s",
        "norm: own T=4096 D=128 dtype=bfloat16 2.50 s error 1.0e-03 k 1.500",
        "norm: served T=4096 D=128 dtype=bfloat16 failed",
        "out of memory",
        "norm: own T=131072 D=128 dtype=bfloat16 2.50 s error 1.0e-03 k 1.500",
        "norm: served T=131072 D=128 dtype=bfloat16 2.50 s error 1.0e-03",
        "== norm",
        "T=4096 D=128 dtype=bfloat16: first call own 2.50 s, served failed; error nan, NOT RIGHT",
        "T=131072 D=128 dtype=bfloat16: first call own 2.50 s, served 2.50 s; error 1.0e-03, right",
        "kernel" + " " * 47 + "nominal   ran  rejected  own/tuned us (ratio) a problem",
        "k" + " " * 58 + "9     7         2  30.0/20.0 (1.500) · 30.0/20.0 (1.500)",
    ]
    [row] = json.loads((tmp_path / "out").read_text())
    assert row["failed"] == {"served T=4096 D=128 dtype=bfloat16": "out of memory"}

    bench_others.main([*arguments, "--steps", "own"])
    assert (
        "T=4096 D=128 dtype=bfloat16: first call own 2.50 s" in capsys.readouterr().out.splitlines()
    )

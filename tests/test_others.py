"""Kernels of a package that knows nothing of tritune, swept and compiled with no GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from unittest import mock

import pytest
import torch
import triton

from fakes import TRITON, FakeDevice, evidence
from others import PACKAGE, project
from tritune import lock, pipeline
from tritune.device import bench as benches
from tritune.device import fakes, sampling, study, targets
from tritune.device.bench import Bench
from tritune.errors import EnvironmentFaultError, KernelError
from tritune.load import load
from tritune.model import Candidate, Config, Entry, Evidence, Lock, Problem, Verified, Winner
from tritune.pipeline import job as pipeline_job
from tritune.pipeline import prepare, racing
from tritune.pipeline import searched as searching
from tritune.pipeline.job import SweepOptions, start
from tritune.pipeline.searched import Searched
from tritune.setting import Setting
from tritune.space import configs
from tritune.workers import Done, Worker

pytestmark = pytest.mark.lowering

ROOT = Path(__file__).parents[1]
H200 = targets.find("H200")
SCALE = """\
problem: problems.py:scale_problem
targets: [H200]
shapes: [{M: 64, N: [256, 1024]}]
smoke: [{M: 3, N: [256, 600]}]
"""
TOTAL = """\
problem: problems.py:total_problem
targets: [H200]
shapes: [{n: 1000}]
"""
EITHER = """\
problem: problems.py:either_problem
targets: [H200]
shapes: [{n: 1000}]
smoke: [{n: 100}]
"""
"""The op launches one kernel on a large problem, and another one on a small one."""
EVIDENCE = Evidence(
    us=1.0, default_us=2.0, margin=0.1, noise=0.0, bits="", ir="", triton="", source="0" * 12
)
DRIVER = f"""\
facts = dict(multiprocessor_count=132, max_shared_mem=232448, mem_bus_width={H200.bus_bits},
             mem_clock_rate={H200.memory_mhz} * 1000)
class Driver:
    utils = types.SimpleNamespace(get_device_properties=lambda index: facts)
    def get_current_device(self): return 0
    def get_current_target(self): return types.SimpleNamespace(backend="cuda", arch=90)
triton.runtime.driver.set_active(Driver())
"""
KEEPS = 'pre_hook=zero) for b in (64, 128)], key=["n"]'
TRACED = """\
import sys, types
import torch.utils._triton
torch.utils._triton.has_triton = lambda *_: True
import torch, triton
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
import theirs, tritune

DRIVER

def show(module, examples):
    for node in module.graph.nodes:
        if "triton" in str(node.target):
            configs = kernel_side_table.id_to_kernel[node.kwargs["kernel_idx"]].configs
            print([config.kwargs for config in configs], node.kwargs["grid"])
    return lambda *arguments: arguments

def backward(dy, x, alpha):
    M, N = x.shape
    dx, da = torch.empty_like(x), torch.zeros(8)
    theirs.scale_backward[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](
        DY=dy, X=x, DX=dx, DA=da, alpha=alpha, M=M, N=N
    )
    return dx

tritune.install(sys.argv[1])
compiled = torch.compile(backward, backend=show, fullgraph=True, dynamic=False)
for n in (1024, 600):
    compiled(torch.ones(4, n), torch.ones(4, n), torch.ones(1))
"""
SERVED = """\
import sys, tritune
assert "triton" not in sys.modules
import logging; logging.basicConfig(level=logging.INFO, format="%(message)s")
import torch, types, triton, theirs
DRIVER
print(theirs.total(torch.ones(1000)).item(), theirs.total_kernel.best_config.kwargs)
"""

TUNED = "import triton\n\nBEST = triton.Config({{'B': {block}}}, num_warps={warps}, num_stages=7)\n"


def python(*args: object, at: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python where the package of the others is installed."""
    folder = at.parents[1]
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=at.parent,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder / "site"))),
            "TRITUNE_CACHE_DIR": str(folder / "cache"),
            "COLUMNS": "200",
            **env,
        },
    )


def tritune(command: str, at: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return python("-m", "tritune", command, at.name, *args, at=at)


def refused(at: Path) -> str:
    """The error, however it is broken into lines."""
    said = tritune("compile", at)
    assert said.returncode == 2, said.stderr
    return " ".join(said.stderr[said.stderr.index("error:") :].split())


class Silent:
    """An observer of a sweep that nobody watches."""

    def stage(self, name, total): ...
    def advance(self, text=""): ...
    def say(self, text): ...


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """The jobs of a sweep file of the project."""
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def made(sweep: str, **replaced: str):
        path = project(tmp_path, sweep, **replaced)
        return start(path, SweepOptions(), Silent(), setting=lambda chip: Setting(target=chip))

    return made


def locked(job, **config) -> Path:
    """A lockfile of one entry of *job*, as if it had been swept on an H200."""
    winner = Winner(
        kernel=job.info.name,
        key=job.info.keys[0][1][0],
        problem=job.sweep.problems[0],
        config=Config.of(job.info.default.as_dict() | config),
        evidence=EVIDENCE,
    )
    path = Path(job.info.lockfile)
    lock.write(path, lock.merge_winners(Lock(), targets.identity(H200), [winner]))
    return path


# --- what is found ------------------------------------------------------------------------


def test_a_sweep_of_an_op_finds_its_forward_and_its_backward_kernel_and_verifies_both(tmp_path):
    at = project(tmp_path, SCALE)

    said = tritune("sweep", at)

    assert said.returncode == 0, said.stderr
    assert "theirs:scale_forward from" in said.stdout
    assert "theirs:scale_backward from" in said.stdout
    assert "6 results right, 0 wrong" in said.stdout  # 3 blocks on 2 problems
    assert "5 results right, 0 wrong" in said.stdout  # BLOCK=512 at N=256 is pruned
    assert "12 of 12 distinct binaries for H200" in said.stdout
    assert "5 of 5 distinct binaries for H200" in said.stdout
    assert "1 its own prune function leaves it out" in said.stdout
    assert (tmp_path / "site/theirs.py").read_text() == PACKAGE


def test_a_wrong_config_of_somebody_elses_kernel_is_found_in_the_interpreter(tmp_path):
    at = project(tmp_path, SCALE, **{"tl.store(DA + column, da)": "tl.store(DA, da)"})

    said = tritune("sweep", at)

    # What has one block a row is right; 600 columns are 2 blocks of 512.
    assert "1 results right, 4 wrong" in said.stdout


def test_winners_go_beside_the_problem_and_never_into_the_package(jobs, tmp_path):
    backward, forward = jobs(SCALE)

    assert (backward.info.name, forward.info.name) == (
        "theirs:scale_backward",
        "theirs:scale_forward",
    )
    assert forward.info.lockfile == str(tmp_path / "mine/tritune.lock")
    assert backward.info.lockfile == forward.info.lockfile
    assert forward.info.default == Config.of({"BLOCK": 128, "num_warps": 4, "num_stages": 3})


def test_a_key_has_what_outer_heuristics_compute_and_the_dtypes(jobs):
    backward, forward = jobs(SCALE)

    assert [keys for _, keys in backward.info.keys][:2] == [
        ("N=256 WIDE=False DY=f32 X=f32 DX=f32 DA=f32 alpha=f32",),
        ("N=1024 WIDE=True DY=f32 X=f32 DX=f32 DA=f32 alpha=f32",),
    ]
    assert [keys for _, keys in forward.info.keys][:2] == [
        ("N=256 X=f32 Y=f32 alpha=f32",),
        ("N=1024 X=f32 Y=f32 alpha=f32",),
    ]


def test_an_op_that_launches_a_kernel_under_two_keys_has_a_winner_for_each(jobs, tmp_path):
    [job] = jobs(TOTAL.replace("total_problem", "totals_problem"))

    said = tritune("compile", tmp_path / "mine/sweep.yaml", "--json")

    assert list(map(str, job.sweep.problems)) == [
        "n=1000 under `n=1000 x=f32 out=f32`",
        "n=1000 under `n=500 x=f32 out=f32`",
    ]
    assert said.returncode == 0, said.stderr
    for key in ("n=1000 x=f32 out=f32", "n=500 x=f32 out=f32"):
        assert f'"@key": "{key}"' in json.dumps(json.loads(said.stdout))


def test_two_problems_that_are_one_to_the_kernel_are_tuned_on_the_first_and_it_is_said(jobs):
    _, forward = jobs(SCALE.replace("M: 64", "M: [64, 128]"))

    assert list(map(str, forward.sweep.problems)) == ["M=64 N=256", "M=64 N=1024"]
    assert [warning.partition(" are both ")[0] for warning in forward.warnings] == [
        "`M=128 N=256` and `M=64 N=256`",
        "`M=128 N=1024` and `M=64 N=1024`",
    ]
    assert forward.warnings[0].endswith(
        "are both `N=256 X=f32 Y=f32 alpha=f32` to the kernel: tuned on the latter"
    )


def test_what_the_authors_tuner_would_cache_is_known_of_every_problem(jobs):
    _, forward = jobs(SCALE.replace("M: 64", "M: [64, 128], dtype: [float32, float16]"))

    assert {stock for _, _, stock in forward.info.stock_keys} == {
        "N=256 f32 f32 f32",
        "N=256 f16 f16 f32",
        "N=600 f32 f32 f32",
        "N=1024 f32 f32 f32",
        "N=1024 f16 f16 f32",
    }


def test_one_kernel_of_an_op_may_be_named(jobs):
    [job] = jobs(f"kernel: theirs:scale_backward\n{SCALE}")

    assert job.info.name == "theirs:scale_backward"


def test_the_kernels_of_an_op_share_their_binaries_as_each_is_measured_beside_the_others(tmp_path):
    at = project(tmp_path, SCALE)

    compiled = tritune("compile", at, "--output", "out")

    assert compiled.returncode == 0, compiled.stderr
    kernels = json.loads((at.parent / "out/manifest.json").read_text())["kernels"]
    assert list(kernels) == ["theirs:scale_backward", "theirs:scale_forward"]
    [folder] = {*kernels.values()}
    there = sorted(path.name for path in (at.parent / "out" / folder).iterdir())
    [cache] = (tmp_path / "cache/binaries" / folder).iterdir()
    assert [name for name in there if not (cache / name).is_dir()] == []
    named = [path.stem for path in cache.glob("*/*.cubin")]
    assert {*named} == {"scale_backward", "scale_forward"}

    shutil.rmtree(tmp_path / "cache/binaries")
    swept = tritune("sweep", at, "--compiled", "out", "--jobs", "1")

    assert swept.returncode == 0, swept.stderr
    steps = [line for line in swept.stdout.splitlines() if line.startswith("compiling ")]
    assert len(steps) == 2
    assert all(" from the cache" in line and "compiled here" not in line for line in steps)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("zero", "zero", ""),
        (
            "num_warps=4, pre_hook=zero)",
            "num_warps=4)",
            "it was locked with the pre_hook `theirs:zero`, and its config has none now",
        ),
        (
            'named["out"].zero_()',
            'named["out"].fill_(3.0)',
            "the code of its pre_hook `theirs:zero` changed",
        ),
    ],
)
def test_a_check_calls_an_entry_stale_whose_hook_is_gone_or_another(jobs, tmp_path, old, new, why):
    [job] = jobs(TOTAL)
    searched = Searched(job.sweep, job.target, job.info).digest(job.sweep.problems[0])
    path = locked(job)
    held = lock.read(path)
    [(at, entry)] = held.entries
    [signed] = searching.signed(
        job,
        [
            Winner(
                kernel=at.kernel,
                key=at.key,
                problem=job.sweep.problems[0],
                config=entry.config,
                evidence=replace(EVIDENCE, triton=TRITON),
            )
        ],
    )
    lock.write(path, lock.merge_winners(held, targets.identity(H200), [signed]))
    theirs = tmp_path / "site/theirs.py"
    theirs.write_text(theirs.read_text().replace(old, new))

    said = tritune("check", tmp_path / "mine/sweep.yaml")

    assert signed.evidence.space == searched
    assert signed.evidence.hook.startswith("theirs:zero@")
    assert (why in said.stdout, said.returncode) == (True, 1 if why else 0), said.stdout

    if "pre_hook=" in old:
        at = tmp_path / "mine/sweep.yaml"
        built = tritune("compile", at, "--locked", "--target", "H200")
        assert (why in " ".join(built.stdout.split()), built.returncode) == (True, 1), built


def test_an_imported_entry_names_the_hook_of_its_config(tmp_path):
    at = project(tmp_path, TOTAL)
    (at.parent / "tuned.py").write_text('import triton\nALL = triton.Config({"B": 128})\n')

    said = python(
        *("-m", "tritune", "import", "tuned.py:ALL", "--sweep", at.name, "--device", "H200"), at=at
    )

    assert said.returncode == 0, said.stderr
    [(_, entry)] = lock.read(at.parent / "tritune.lock").entries
    assert entry.evidence.hook.startswith("theirs:zero@")


@pytest.fixture
def gpu(jobs, monkeypatch):
    """The kind of GPU that the op's sweep is measured on; what it is used for is in `events`."""

    class Gpu(FakeDevice):
        notes, restarts = (), 0
        events: ClassVar = []
        fault = None
        """What keeps the second kernel from being measured."""

        def __init__(self, *, kernel, **_):
            super().__init__(lambda this: 100.0 - int(str(this.config["BLOCK"])) / 100)
            self._kernel = kernel

        def uuid(self):
            if Gpu.fault and self._kernel == "theirs:scale_forward":
                raise Gpu.fault
            self.events.append(("raced", self._kernel))
            return ""

        def verify(self, compiled):
            self.events.append(("verified", self._kernel))
            return super().verify(compiled)

        def renew(self):
            self.events.append(("confirmed", self._kernel))

    place = Setting(target=H200, identity=targets.identity(H200), index=0, triton=TRITON)
    monkeypatch.setattr(pipeline_job, "find", lambda *_, **__: place)
    monkeypatch.setattr(racing, "CudaDevice", Gpu)
    jobs(SCALE)
    return Gpu


def test_all_kernels_of_an_op_are_raced_before_any_is_confirmed(gpu, tmp_path):
    """For a fresh process is a matter of seconds: one of them confirms all."""
    reports = pipeline.run(tmp_path / "mine/sweep.yaml", SweepOptions(jobs=1), Silent())

    names = [report.kernel.name for report in reports]
    assert names == ["theirs:scale_backward", "theirs:scale_forward"]
    order = [(done, name) for done, name in gpu.events if done != "verified"]
    assert order == [(done, name) for done in ("raced", "confirmed") for name in names]
    assert len(lock.read(tmp_path / "mine/tritune.lock").entries) == 4


@pytest.mark.parametrize(
    ("fault", "locked_at_once"),
    [(EnvironmentFaultError("the GPU does not answer"), 0), (KernelError("it is wrong"), 2)],
)
def test_a_fault_of_a_later_kernel_costs_nothing_of_the_one_before(
    gpu, tmp_path, fault, locked_at_once
):
    gpu.fault = fault
    sweep, lockfile = tmp_path / "mine/sweep.yaml", tmp_path / "mine/tritune.lock"
    with pytest.raises(type(fault), match=fault.what):
        pipeline.run(sweep, SweepOptions(jobs=1), Silent())
    before, first, gpu.fault = len(lock.read(lockfile).entries), [*gpu.events], None
    gpu.events.clear()

    pipeline.run(sweep, SweepOptions(jobs=1), Silent())

    assert before == locked_at_once
    assert ("verified", "theirs:scale_backward") in first
    assert ("verified", "theirs:scale_backward") not in gpu.events
    confirmed = [name for done, name in (*first, *gpu.events) if done == "confirmed"]
    assert confirmed == ["theirs:scale_backward", "theirs:scale_forward"]
    assert len(lock.read(lockfile).entries) == 4


def test_a_custom_op_that_launches_nothing_on_fake_tensors_is_run_on_real_ones(jobs, tmp_path):
    [job] = jobs(TOTAL.replace("total_problem", "custom_problem"))

    said = tritune("compile", tmp_path / "mine/sweep.yaml")

    assert job.info.name == "theirs:total_kernel"
    assert said.returncode == 0, said.stderr
    assert "2 of 2 distinct binaries for H200" in said.stdout


def test_a_list_of_configs_that_depends_on_the_gpu_is_that_of_the_target(jobs):
    asked = 'torch.cuda.is_available() and torch.cuda.get_device_name(0) == "NVIDIA H200"'

    [job] = jobs(TOTAL, **{"(64, 128)]": f"((64, 128, 256) if {asked} else (64,))]"})

    assert [config["B"] for config in job.info.configs] == [64, 128, 256]


def test_configs_that_a_prune_function_makes_for_one_problem_are_left_out_on_the_others(tmp_path):
    listed = 'pre_hook=zero) for b in (64, 128)], key=["n"]'
    makes = """def makes(listed, named, **_):
    block = 256 if named["n"] < 2000 else 512
    return [triton.Config({"B": block}, pre_hook=lambda named: zero(named))]


@triton.autotune("""
    at = project(
        tmp_path,
        TOTAL.replace("n: 1000", "n: [1000, 3000]"),
        **{
            '\n\n@triton.autotune(\n    [triton.Config({"B": b}, num_warps=4, pre': (
                f'\n\n{makes}\n    [triton.Config({{"B": b}}, num_warps=4, pre'
            ),
            listed: f"{listed}, prune_configs_by={{'early_config_prune': makes}}",
        },
    )

    said = tritune("compile", at, "--json")

    assert said.returncode == 0, said.stderr
    [report] = json.loads(said.stdout)["reports"]
    assert [(one["problem"]["n"], one["config"]["B"]) for one in report["built"]] == [
        (1000, 256),
        (3000, 512),
    ]
    assert {one["reason"] for one in report["rejected"]} == {"its own prune function leaves it out"}


ENTRY = """class Entry(triton.KernelInterface):
    def __init__(self, fn):
        self.fn, self.kernel_cache = fn, {}

    def run(self, *args, **kwargs):
        key = tuple(getattr(one, "dtype", one) for one in args)
        if key not in self.kernel_cache:
            self.kernel_cache[key] = self.fn.run(*args, **kwargs)
            self.fn.best_config.kwargs
            return
        self.kernel_cache[key][kwargs["grid"]](*args)


class Own(triton.runtime.Autotuner):
    def run(self, *args, **kwargs):
        raise AssertionError("tuned by itself")


def own(configs, key):
    return lambda fn: Own(fn, fn.arg_names, configs, key, None, None)


@Entry
@own("""


def test_what_remembers_launches_around_an_autotuner_of_another_class_is_tuned_within_an_op(
    tmp_path,
):
    autotune = '@triton.autotune(\n    [triton.Config({"B"'
    at = project(
        tmp_path,
        TOTAL.replace("total_problem", "totals_problem"),
        **{autotune: autotune.replace("@triton.autotune(", ENTRY)},
    )

    said = tritune("sweep", at, "--json")
    compiled = tritune("compile", at)

    assert said.returncode == compiled.returncode == 0, said.stderr + compiled.stderr
    [report] = json.loads(said.stdout)["reports"]
    assert report["kernel"]["name"] == "theirs:total_kernel"
    assert [key for _, keys in report["kernel"]["keys"] for key in keys] == [
        "n=1000 x=f32 out=f32",
        "n=500 x=f32 out=f32",
    ]
    assert "2 of 2 distinct binaries for H200" in compiled.stdout
    assert "4 candidates" in compiled.stdout


@pytest.mark.newest
def test_an_op_that_goes_past_the_autotuner_is_told_so(tmp_path):
    past = {"total_kernel[lambda": "total_kernel.fn[lambda", "(x, out, n)\n": "(x, out, n, B=64)\n"}
    at = project(tmp_path, TOTAL, **past)
    named = project(tmp_path / "named", f"kernel: theirs:total_kernel\n{TOTAL}", **past)

    for each in (at, named):
        assert refused(each) == (
            f"error: {each.parent / 'problems.py'}:total_problem: the op launches "
            "`theirs:total_kernel` past its autotuner (`.fn[grid]`), in a config of its own "
            "hint: what never asks an autotuner can be neither tuned nor served"
        )


def test_launches_that_go_past_the_autotuner_beside_others_are_told(jobs):
    once = "    return total(x) + total(x[: x.numel() // 2])"
    more = f"    total_kernel.fn[(1,)](x, x.new_zeros(1), 8, B=8)\n{once}"

    [job] = jobs(TOTAL.replace("total_problem", "totals_problem"), **{once: more})

    assert job.warnings == [
        "some launches go past its autotuner (`.fn[grid]`), and run as they are"
    ]


LISTED = 'pre_hook=zero) for b in (64, 128)], key=["n"]'
MODELLED = {
    LISTED: 'pre_hook=zero) for b in (64, 128, 256, 512)], key=["n"], prune_configs_by='
    '{"perf_model": lambda n, B, **_: abs(n / 4 - B), "top_k": 1}'
}


def test_what_a_performance_model_leaves_out_is_counted_and_the_default_is_timed_all_the_same(
    tmp_path,
):
    at = project(tmp_path, TOTAL.replace("n: 1000", "n: [1000, 2000]"), **MODELLED)

    said = tritune("compile", at, "--json")

    assert said.returncode == 0, said.stderr
    [report] = json.loads(said.stdout)["reports"]
    assert sorted((one["problem"]["n"], one["config"]["B"]) for one in report["built"]) == [
        (1000, 64),
        (1000, 256),
        (2000, 64),
        (2000, 512),
    ]
    assert [(one["problem"]["n"], one["config"]["B"]) for one in report["rejected"]] == [
        (1000, 128),
        (1000, 512),
        (2000, 128),
        (2000, 256),
    ]
    assert {(one["reason"], one["detail"]) for one in report["rejected"]} == {
        ("its own perf_model leaves it out", "not of the 1 that it foresees to be fastest")
    }
    assert "4 its own perf_model leaves it out" in tritune("compile", at).stdout


@pytest.mark.newest
def test_a_performance_model_that_fails_is_told_with_whose_it_is_and_leaves_out_nothing(tmp_path):
    fails = {
        'prune": prune}': 'prune": prune, "perf_model": no_model, "top_k": 1}',
        "def prune(": "def no_model(**_):\n    raise OSError('no NVML')\n\n\ndef prune(",
    }
    at = project(tmp_path, SCALE.replace("[256, 1024]", "1024"), **fails)

    said = tritune("compile", at)

    assert said.returncode == 0
    assert "warning: scale_backward: its perf_model fails, so it leaves out none " in said.stderr
    assert "perf_model" not in said.stdout


def test_what_a_performance_model_leaves_out_is_tried_where_it_is_locked_or_asked_for(jobs):
    [job] = jobs(TOTAL, **MODELLED)
    [asked] = jobs(
        f"{TOTAL}space: {{B: [64, 128, 256, 512]}}\nconstraints: [B <= 512]\n", **MODELLED
    )
    entry = next(one for one in job.info.configs if one["B"] == 128)
    locked = {"n=1000": Entry(config=entry, evidence=EVIDENCE)}

    def blocks(job, locked=None):
        return [one.config["B"] for one in prepare.plan(job, locked)[0]]

    assert (blocks(job), blocks(job, locked)) == ([64, 256], [64, 128, 256])
    assert blocks(asked) == [64, 128, 256, 512]


def test_what_an_op_reads_back_of_a_kernel_that_no_gpu_has_run_is_the_same_every_time():
    with fakes.world(H200, values=True):
        counted = torch.empty(3, dtype=torch.int32, device="cuda")
        like = torch.empty_like(counted)
        new = counted.new_empty(2)

    # Neither 1 nor a multiple of 16, which a launch would be compiled for.
    assert [one.tolist() for one in (counted, like, new)] == [[7, 7, 7], [7, 7, 7], [7, 7]]


def test_an_op_may_make_the_device_of_its_tensors_the_current_one():
    with fakes.world(H200):
        x = torch.empty(3, device="cuda")
        torch.cuda.set_device(x.device)
        for device in (x.device, x.device.index, torch.cuda.current_device()):
            with torch.cuda.device(device):
                y = torch.empty_like(x)

    assert y.shape == (3,)


def opened(site: str, kernel: str, problem: str) -> Bench:
    sys.path.insert(0, site)
    loaded = load(kernel, problem)
    return Bench(loaded=loaded, device=torch.device("cpu"), cold=False, flush=None)


def studied(bench: Bench, candidate: Candidate) -> dict[str, object]:
    """What a bench learns of an op: the interpreter stands in for a GPU."""
    assert benches.open_problem(bench, candidate) is None
    said = study.study(bench, candidate)
    assert benches.judge(bench, candidate, candidate) is None
    checked = benches.check(bench, candidate)
    with mock.patch.object(sampling, "_ahead_us", return_value=0.0):
        prepared = sampling._kernel_only(bench, candidate.config)
    return {
        "said": said,
        "adds to": bench.adds_to,
        "right": isinstance(checked, Verified),
        "restored": len(prepared.restore),
    }


@pytest.mark.parametrize(
    ("kernel", "problem", "axes", "config", "found"),
    [
        # Its hook zeroes `out` before every launch; the other launch's output is left alone.
        (
            "total_kernel",
            "totals_problem",
            Problem.of({"n": 1000}).under("n=500 x=f32 out=f32"),
            {"B": 64},
            {"said": "", "adds to": ("out",), "right": True, "restored": 1},
        ),
        # It says reset_to_zero, so DX and DA are put back; what the forward kernel wrote is not.
        (
            "scale_backward",
            "scale_problem",
            Problem.of({"M": 3, "N": 600}),
            {"BLOCK": 128},
            {"said": "", "adds to": (), "right": True, "restored": 2},
        ),
    ],
)
def test_of_an_op_with_several_launches_a_bench_puts_back_what_the_tuned_ones_write(
    tmp_path, kernel, problem, axes, config, found
):
    project(tmp_path, "")
    candidate = Candidate(
        kernel=f"theirs:{kernel}",
        problem=axes,
        config=Config.of({**config, "num_warps": 4, "num_stages": 3}),
    )
    reference = f"{tmp_path / 'mine/problems.py'}:{problem}"
    worker = Worker(
        opened,
        str(tmp_path / "site"),
        candidate.kernel,
        reference,
        log=tmp_path / "log",
        env={"TRITON_INTERPRET": "1"},
    )
    with worker:
        answer = worker.call(studied, candidate, timeout_s=60)

    assert isinstance(answer, Done), answer
    assert answer.value == found


def test_a_process_that_goes_from_one_kernel_of_an_op_to_the_next_finds_the_same(tmp_path):
    project(tmp_path, "")
    problem = f"{tmp_path / 'mine/problems.py'}:scale_problem"
    config = Config.of({"BLOCK": 128, "num_warps": 4, "num_stages": 3})
    found = []
    with Worker(opened, log=tmp_path / "log", env={"TRITON_INTERPRET": "1"}) as worker:
        for kernel in ("theirs:scale_backward", "theirs:scale_forward") * 2:
            of = Candidate(kernel=kernel, problem=Problem.of({"M": 3, "N": 600}), config=config)
            worker.turn(opened, str(tmp_path / "site"), kernel, problem)
            found.append(worker.call(studied, of, timeout_s=60))
            assert worker.call(benches.leave, timeout_s=60) == Done(0)

    assert [answer.value["restored"] for answer in found] == [2, 0, 2, 0]
    assert all(answer.value["right"] for answer in found)
    assert worker.started == 1


# --- what is refused ----------------------------------------------------------------------


@pytest.mark.newest
def test_a_kernel_without_a_problem_is_told_how_to_get_one(tmp_path):
    named = SCALE.replace("problem: problems.py:scale_problem", "kernel: theirs:total_kernel")
    at = project(tmp_path, named)

    assert refused(at) == (
        f"error: {tmp_path / 'site/theirs.py'}: `total_kernel` is a Triton kernel without its "
        "tritune line hint: write above its decorators import tritune @tritune.kernel "
        "or name a function that makes its problems: `problem: FILE.py:FUNCTION`"
    )


@pytest.mark.newest
def test_an_op_that_launches_nothing_autotuned_is_an_error(tmp_path):
    at = project(tmp_path, TOTAL.replace("total_problem", "nothing_problem"))

    assert "`nothing_problem` is not the problem of any tunable kernel" in refused(at)


@pytest.mark.newest
def test_an_op_of_kernels_with_no_autotuner_is_told_which_they_are(tmp_path):
    start = PACKAGE.index("@triton.autotune(", PACKAGE.index("def zero("))
    above = PACKAGE[start : PACKAGE.index("@triton.jit\ndef total_kernel")]
    bare = {above: "", "(x, out, n)\n": "(x, out, n, B=64)\n"}
    at = project(tmp_path, TOTAL, **bare)

    assert refused(at) == (
        f"error: {tmp_path / 'mine/problems.py'}:total_problem: the op launches "
        "`theirs:total_kernel`, with no autotuner to put winners into "
        "hint: what can be tuned has `@triton.autotune` or `@tritune.kernel` above it"
    )


@pytest.mark.parametrize("named", ["", "kernel: theirs:scale_forward\n"])
@pytest.mark.newest
def test_axes_that_a_problem_function_does_not_take_are_told_before_the_op_is_run(tmp_path, named):
    rows = "problem: problems.py:scale_problem\nshapes: [{M: 8, N: 8, dtpye: float32}, {M: 8}]\n"
    at = project(tmp_path, f"targets: [H200]\n{named}{rows}")
    line = 3 + bool(named)

    assert refused(at) == (
        f"error: sweep.yaml:{line}:23: shapes[0].dtpye: `dtpye` is not a parameter of the problem "
        "`scale_problem` hint: did you mean `dtype`? "
        f"error: sweep.yaml:{line}:40: shapes[1]: the problem `scale_problem` needs `N` "
        "hint: add N: ..."
    )


@pytest.mark.newest
def test_a_slip_in_a_dtype_is_told_at_its_row(tmp_path):
    at = project(tmp_path, SCALE.replace("N: [256, 1024]", "N: 256, dtype: bf17"))

    assert refused(at) == (
        "error: sweep.yaml:3:33: shapes[0].dtype: `bf17` is no dtype of torch's "
        "hint: did you mean `bfloat16`?"
    )


@pytest.mark.newest
def test_a_problem_function_that_raises_is_told_in_a_line_with_its_place(tmp_path):
    at = project(tmp_path, TOTAL.replace("{n: 1000}", "{n: fp16}"))
    place = (tmp_path / "mine/problems.py").read_text().splitlines().index("def total_problem(n):")

    said = refused(at)

    assert said.startswith(
        f"error: {tmp_path / 'mine/problems.py'}:{place + 2}: the problem n=fp16 cannot be run: "
        "TypeError: "
    )
    assert said.endswith(" hint: `fp16` is text; torch calls it `float16`")
    assert "*" not in said


@pytest.mark.newest
def test_an_operator_that_has_no_code_for_a_cpu_is_told_what_to_call_instead(tmp_path):
    at = project(tmp_path, TOTAL.replace("total_problem", "gpu_only_problem"))
    lines = (tmp_path / "mine/problems.py").read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "ops.theirs.gpu_only(x)" in text)

    checked = tritune("check", at)

    assert checked.returncode == 2
    assert checked.stdout == "0 checked: nothing that could be\n"
    assert " ".join(checked.stderr.split()) == (
        f"error: {tmp_path / 'mine/problems.py'}:{line}: the problem n=1000 cannot be run: "
        "NotImplementedError: Could not run 'theirs::gpu_only' with arguments from the 'CPU' "
        "backend. This could be because the operator doesn't exist for this backend, or was "
        "omitted during the … "
        "hint: launches are found on the CPU, also where there is a GPU: have the problem "
        "function call the Python function that the operator has for CUDA"
    )


@pytest.mark.newest
def test_an_op_that_insists_on_a_gpu_is_told_where_launches_are_found(tmp_path):
    made = "out, n = torch.empty(1, device=x.device), x.numel()"
    at = project(tmp_path, TOTAL, **{made: f'assert x.device.type == "cuda"\n    {made}'})

    assert refused(at).endswith(
        ": the problem n=1000 cannot be run: AssertionError hint: launches are found on the CPU, "
        "also where there is a GPU: `is_cuda` of a tensor is True there and its `device` is the "
        "CPU, and there are no streams"
    )


@pytest.mark.newest
def test_a_named_kernel_that_the_op_does_not_launch_is_an_error(tmp_path):
    at = project(tmp_path, f"kernel: theirs:total_kernel\n{SCALE}")

    assert refused(at) == (
        f"error: {tmp_path / 'mine/problems.py'}:scale_problem: the op launches no "
        "`theirs:total_kernel`, on any problem "
        "hint: leave `kernel:` out to tune every autotuned kernel that it does launch"
    )


@pytest.mark.newest
def test_a_kernel_that_only_a_smoke_problem_launches_is_not_tuned_and_it_is_said_once(tmp_path):
    at = project(tmp_path, EITHER)

    said = tritune("sweep", at, "--dry-run")
    checked = tritune("check", at)

    assert said.returncode == 0, said.stderr
    assert [line for line in said.stdout.splitlines() if " from " in line] == [
        "theirs:total_kernel from sweep.yaml"
    ]
    assert re.sub(r"took .*", "took ...", said.stderr) == (
        "loading the kernel\n"
        "not tuned, as only a smoke problem launches it: `scale_forward`\n"
        "total_kernel: no GPU here, and no recorded times for H200: nothing will be locked\n"
        "loading the kernel: took ...\n"
        "finding the launches\n"
        "2 candidates on 1 problem for H200, writes nothing\n"
        "finding the launches: 1 · took ...\n"
    )
    assert checked.stdout == (
        "sweep.yaml:2: missing: total_kernel on H200: nothing is locked for any of its 1 problem\n"
        "1 checked: 1 missing\n"
        "next: on such a GPU, tritune sweep --stale sweep.yaml\n"
    )


@pytest.mark.newest
def test_a_kernel_that_only_a_smoke_problem_launches_keeps_no_other_from_being_compiled(tmp_path):
    at = project(tmp_path, EITHER.replace("[{n: 1000}]", "[{n: [100, 1000]}]"))

    said = tritune("compile", at, "--only", "n > 500", "--json")

    assert said.returncode == 0, said.stderr
    assert [one["kernel"] for one in json.loads(said.stdout)["reports"]] == ["theirs:total_kernel"]


@pytest.mark.parametrize("command", [("sweep",), ("compile",), ("show", "space")])
@pytest.mark.newest
def test_where_only_a_smoke_problem_launches_what_is_named_that_is_the_error(tmp_path, command):
    at = project(tmp_path, f"kernel: theirs:scale_forward\n{EITHER}")

    said = python("-m", "tritune", *command, at.name, at=at)

    assert said.returncode == 2, said.stderr
    assert " ".join(said.stderr[said.stderr.index("error:") :].split()) == (
        "error: sweep.yaml:4:1: shapes: no problem launches `scale_forward`, only a smoke problem "
        "does hint: a kernel is tuned on the problems of `shapes:` that launch it"
    )


@pytest.mark.newest
def test_of_an_op_with_several_kernels_each_is_named_in_what_is_told_and_has_its_own_count(
    tmp_path,
):
    at = project(tmp_path, SCALE)

    swept = tritune("sweep", at, "--dry-run").stderr
    shown = python("-m", "tritune", "show", "space", at.name, at=at).stdout

    assert re.sub(r"(finding the launches:|took) .*", r"\1 ...", swept) == (
        "loading the kernel\n"
        "scale_backward: no GPU here, and no recorded times for H200: nothing will be locked\n"
        "loading the kernel: took ...\n"
        "scale_backward: finding the launches\n"
        "scale_backward: 5 candidates on 2 problems for H200, writes nothing\n"
        "scale_forward: no GPU here, and no recorded times for H200: nothing will be locked\n"
        "scale_backward: finding the launches: ...\n"
        "scale_forward: finding the launches\n"
        "scale_forward: 12 candidates on 2 problems for H200, writes nothing\n"
        "scale_forward: finding the launches: ...\n"
    )
    assert shown == (
        "sweep.yaml\n"
        "\n"
        "scale_backward             configs\n"
        "the whole space                  3\n"
        "left for all of 2 problems       3\n"
        "\n"
        "scale_forward              configs\n"
        "the whole space                  6\n"
        "left for all of 2 problems       6\n"
    )


@pytest.mark.newest
def test_a_space_beyond_the_authors_list_needs_constraints(tmp_path):
    at = project(tmp_path, f"{TOTAL}space: {{B: [64, 128, 256]}}\n")

    assert refused(at) == (
        "error: sweep.yaml:4:1: space: nothing says which configs are valid beyond the 2 of its "
        "author hint: add `constraints:` that say it, or leave `space:` out to try the author's "
        "own list"
    )


def test_a_space_that_is_within_the_authors_list_needs_no_constraints(jobs):
    [job] = jobs(f"{TOTAL}space: {{B: [64, 128], num_warps: [4]}}\n")

    assert job.info.configs == tuple(configs(job.sweep, H200, job.info))


def test_where_the_authors_first_config_does_not_fit_another_one_is_the_default(tmp_path):
    first = '[triton.Config({"B": b}, num_warps=4, pre_hook=zero) for b in (64, 128)]'
    broken = first.replace("num_warps=4", "num_warps=w").replace(
        "for b in (64, 128)", "for b, w in ((64, 3), (64, 4), (128, 4))"
    )
    at = project(tmp_path, f"{TOTAL}smoke: [{{n: 1000}}]\n", **{first: broken})

    said = tritune("sweep", at)

    assert said.returncode == 0, said.stderr
    assert "num_warps=3 is not a power of two" in said.stdout
    assert (
        "its first config does not fit, so the default is B=64 num_stages=3 num_warps=4"
    ) in " ".join((said.stdout + said.stderr).split())


def test_with_constraints_a_space_may_go_beyond_it_and_the_hook_that_all_share_is_kept(tmp_path):
    more = "space: {B: [64, 128, 256]}\nconstraints: [B <= n]\nsmoke: [{n: 1000}]\n"
    at = project(tmp_path, TOTAL + more)

    said = tritune("sweep", at)

    assert said.returncode == 0, said.stderr
    assert "3 results right, 0 wrong" in said.stdout


@pytest.mark.newest
def test_a_meta_parameter_that_the_op_passes_itself_is_told_with_both_places(tmp_path):
    passed = TOTAL.replace("total_problem", "passed_problem")
    at = project(tmp_path, f"{passed}space: {{B: [64, 128]}}\nconstraints: [B <= n]\n")

    assert refused(at).endswith(
        "the op passes B=64 itself, and the sweep tunes B hint: leave B out of the launch, or out "
        "of `space:` and `default=` (sweep.yaml:4:9: space.B)"
    )


# --- what is locked -----------------------------------------------------------------------


@pytest.mark.newest
def test_check_says_which_entries_of_somebody_elses_kernels_are_stale(tmp_path, jobs):
    [job] = jobs(TOTAL)
    locked(job)

    said = tritune("check", tmp_path / "mine/sweep.yaml")

    assert said.returncode == 1, said.stderr
    assert "stale: total_kernel on H200" in said.stdout
    assert "the kernel's code changed" in said.stdout


def test_check_says_that_each_key_of_an_op_is_fresh(tmp_path, jobs):
    [job] = jobs(TOTAL.replace("total_problem", "totals_problem"))
    [(_, keys)] = job.info.keys
    searched = Searched(job.sweep, job.target, job.info)
    winners = [
        Winner(
            kernel=job.info.name,
            key=key,
            problem=problem,
            config=job.info.default,
            evidence=evidence(
                ir="",
                triton=triton.__version__,
                source=job.info.source,
                space=searched.digest(problem),
            ),
        )
        for key, problem in zip(keys, job.sweep.problems, strict=True)
    ]
    held = lock.merge_winners(Lock(), targets.identity(H200), winners)
    lock.write(Path(job.info.lockfile), held)

    said = tritune("check", tmp_path / "mine/sweep.yaml")

    assert said.returncode == 0, said.stdout + said.stderr
    assert "2 checked: 2 fresh" in said.stdout


@pytest.mark.parametrize(
    ("space", "more", "said"),
    [
        ("", {}, "not of the 2 configs of its author"),
        (
            "space: {B: [64, 256]}\nconstraints: [B <= n, B > 32]\n",
            {},
            "not of the 2 configs of its author, and not admitted by its sweep file",
        ),
        ("space: {B: [64, 512]}\nconstraints: [B <= n]\n", {}, ""),
        ("", {KEEPS: f"{KEEPS}, prune_configs_by={{'early_config_prune': prune}}"}, ""),
    ],
)
@pytest.mark.newest
def test_check_calls_a_config_stale_that_neither_its_author_nor_the_sweep_file_lists(
    tmp_path, space, more, said
):
    at = project(tmp_path, f"{TOTAL}{space}", **more)
    (tmp_path / "mine/best.py").write_text(TUNED.format(block=64, warps=4), encoding="utf-8")
    told = ("-m", "tritune", "import", "best.py:BEST", "--sweep", "wide.yaml", "--device", "H200")
    wide = "space: {B: [64], num_stages: [7]}\nconstraints: [B <= n]\n"
    (at.parent / "wide.yaml").write_text(f"{TOTAL}{wide}", encoding="utf-8")
    taken = python(*told, at=at)
    assert taken.returncode == 0, taken.stderr
    path = tmp_path / "mine/tritune.lock"
    text = path.read_text(encoding="utf-8")
    assert '"B": 64' in text
    text = text.replace('"B": 64', '"B": 512').replace('"num_stages": 7', '"num_stages": 3')
    path.write_text(text, encoding="utf-8")

    result = tritune("check", at)

    stale = (
        "tritune.lock:9: stale: total_kernel on H200: n=1000 x=f32 out=f32: nothing says that the "
        f"kernel is right with it: {said}\n"
        "1 checked: 1 stale\n"
        "next: on such a GPU, tritune sweep --stale sweep.yaml\n"
    )
    fine = (
        "tritune.lock:9: unmeasured: total_kernel on H200: n=1000 x=f32 out=f32: it was imported, "
        "and nobody timed it here\n"
        "1 checked: 1 unmeasured\n"
    )
    assert (result.stdout, result.returncode) == ((stale, 1) if said else (fine, 0))


def test_a_lockfile_in_the_environment_is_served_with_one_import(tmp_path, jobs):
    [job] = jobs(TOTAL)
    path = locked(job, B=128)
    code = SERVED.replace("DRIVER", DRIVER)

    said = python("-c", code, at=path, TRITON_INTERPRET="1", TRITUNE_LOCKFILE=str(path))

    assert said.stdout == "1000.0 {'B': 128}\n", said.stderr
    assert f"theirs: runs what {path} says for H200, which has entries of 1 kernel\n" in said.stderr


@pytest.mark.skipif(triton.__version__ < "3.7", reason="the torch of older ones is another")
def test_torch_compile_is_left_the_locked_config_and_at_a_miss_what_their_prune_leaves(
    tmp_path, jobs
):
    job, _ = jobs(SCALE.replace("[256, 1024]", "[1024]"))
    path = locked(job, BLOCK=256)
    code = TRACED.replace("DRIVER", DRIVER)

    said = python("-c", code, path, at=path)

    assert said.stdout == (
        "[{'BLOCK': 256, 'EVEN': True}] [(4, 1, 1)]\n"
        "[{'BLOCK': 128, 'EVEN': False}, {'BLOCK': 256, 'EVEN': False}, "
        "{'BLOCK': 512, 'EVEN': False}] [(5, 1, 1), (3, 1, 1), (2, 1, 1)]\n"
    ), said.stderr


# --- what another tool found --------------------------------------------------------------


def imported(at: Path, *, block: int = 64, warps: int = 16) -> tuple[int, str]:
    """The exit code and the whole of stderr, once `BEST` is given to the kernel of a sweep file."""
    (at.parent / "best.py").write_text(TUNED.format(block=block, warps=warps), encoding="utf-8")
    told = ("-m", "tritune", "import", "best.py:BEST", "--sweep", at.name, "--device", "H200")
    said = python(*told, at=at)
    return said.returncode, said.stderr


def unlisted(config: str, why: str) -> str:
    return (
        f"error: best.py:BEST: nothing says that `total_kernel` is right with {config}: {why}\n\n"
        "hint: put it into `space:` of sweep.yaml, with `constraints:` that say what is valid; "
        "a config that nobody listed may write out of bounds\n"
    )


def test_a_config_that_the_author_does_not_list_is_not_taken_in(tmp_path, jobs):
    [job] = jobs(TOTAL)
    before = locked(job, B=128).read_bytes()

    code, said = imported(tmp_path / "mine/sweep.yaml")

    why = "not of the 2 configs of its author"
    assert (code, said) == (2, unlisted("B=64 num_stages=7 num_warps=16", why))
    assert Path(job.info.lockfile).read_bytes() == before


def test_of_a_space_with_constraints_what_they_admit_is_taken_in(tmp_path):
    space = "space: {B: [64, 256, 2048], num_warps: [16], num_stages: [7]}\n"
    at = project(tmp_path, f"{TOTAL}{space}constraints: [B <= n]\n")

    taken, (code, said) = imported(at, block=256), imported(at, block=2048)

    why = "not of the 2 configs of its author, and not admitted by its sweep file"
    assert taken[0] == 0
    assert (code, said) == (2, unlisted("B=2048 num_stages=7 num_warps=16", why))


def test_a_config_of_the_authors_list_is_taken_in(tmp_path):
    at = project(tmp_path, TOTAL)

    (tmp_path / "mine/best.py").write_text(
        "import triton\n\nBEST = triton.Config({'B': 128}, num_warps=4)\n", encoding="utf-8"
    )
    told = ("-m", "tritune", "import", "best.py:BEST", "--sweep", at.name, "--device", "H200")

    assert python(*told, at=at).returncode == 0

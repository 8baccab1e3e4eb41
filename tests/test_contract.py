"""The contract with other people's kernels, end to end through the real command line, no GPU.

A command line that loads torch costs seconds, so each of these is one command over many files.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from projects import H200
from test_benchmarks import interpreted
from test_docs import user_lines, written
from tritune import lock
from tritune.device import targets
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    KernelInfo,
    Measured,
    Problem,
)
from tritune.pipeline.job import SweepOptions, describe_kernels
from tritune.places import record_path
from tritune.space import configs
from tritune.spec import read_sweep

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(__file__).parent / "data"
MODULE = (DATA / "contract_kernel.py.txt").read_text(encoding="utf-8")
"""A kernel `k(x, y, n, BLOCK, SHIFT)`, its op and its problem; each test changes a word of it."""
DEFAULT = '{"BLOCK": 128, "SHIFT": 0, "num_warps": 4}'
STAGES = (
    "loading the kernel",
    "verifying in the interpreter",
    "finding the launches",
    "lowering to TTGIR",
    "compiling",
    "reading the recorded times",
)


@dataclass(frozen=True)
class Said:
    """What a command line gave."""

    code: int
    reports: dict[str, Any]
    """By the name of the sweep file, without its folder and its suffix."""
    stderr: str
    """Without progress, which depends on the clock."""


def sweep(folder: Path, *words: str, **env: str) -> Said:
    done = subprocess.run(
        [sys.executable, "-m", "tritune", "sweep", *words, "--json", "--jobs", "1"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TRITUNE_CACHE_DIR": str(folder / ".cache"),
            **env,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines(keepends=True)
    kept = [line for line in lines if line.rstrip("\n").split(":")[0] not in STAGES]
    reports = json.loads(done.stdout)["reports"] if done.stdout else []
    by_name = {Path(report["sweep"]).stem: report for report in reports}
    return Said(done.returncode, by_name, "".join(kept).replace(f"{folder}/", ""))


def file(folder: Path, name: str, text: str = MODULE, *, reference: str = "", **keys: str) -> str:
    """A module *name*.py, with `name.yaml` that sweeps its `k`; the name of the sweep file."""
    path = folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    written = {
        "kernel": f"{reference or path.relative_to(folder)}:k",
        "targets": "[H200]",
        "space": "{BLOCK: [64, 128]}",
        "shapes": "[{n: 1000}]",
    } | keys
    sweep_file = f"{path.stem}.yaml"
    lines = "".join(f"{key}: {value}\n" for key, value in written.items())
    (folder / sweep_file).write_text(lines, encoding="utf-8")
    return sweep_file


def changed(old: str, new: str) -> str:
    assert MODULE.count(old) == 1, old
    return MODULE.replace(old, new)


MISTAKES = """\
error: passes.py:16: the op passes BLOCK=128 itself, and the sweep tunes BLOCK
  hint: leave BLOCK out of the launch, or out of `space:` and `default=` \
(passes.yaml:3:9: space.BLOCK)
error: typo.yaml:3:9: space.BLOK: `BLOK` is not a parameter of `k`
  hint: did you mean `BLOCK`? it has BLOCK, SHIFT, num_warps
error: no_such_key.py:7: key names `m`, which is not an argument of `k`
  hint: it has x, y, n, BLOCK, SHIFT
error: a_config.py:7: default is a triton.Config, not a dict
  hint: write default={"BLOCK": 128, "num_warps": 4, "num_stages": 3}
error: three_warps.py:7: default cannot launch: num_warps: expected a power of two, got 3
  hint: write 2 or 4
error: leaves.py:1: sys.exit(3) at import
  hint: put what a script does under `if __name__ == "__main__":`
error: executed.py:1: ValueError: @jit functions should be defined in a Python file
  hint: a kernel must be in a Python file: Triton reads its source from there
error: amounts.yaml:3:24: space.num_warps[1]: expected an integer, got `on`, which YAML reads as \
true
  hint: write a number
error: amounts.yaml:3:28: space.num_warps[2]: expected an integer, got "4" in quotes
  hint: write 4 without the quotes
error: amounts.yaml:3:50: space.num_stages[1]: expected an integer of at least 0, got -1
  hint: write a positive number
error: amounts.yaml:3:67: space.BLOCK[1]: expected an integer, got 64.0
  hint: write 64
error: no_dtype.yaml:4:10: shapes[0]: the problem `problem` needs `dtype`
  hint: add dtype: ...
"""


def test_each_conflict_with_the_kernel_is_named_with_its_place_before_any_compile(tmp_path):
    launch = "(x, y, n)  # the launch"
    executed = "import triton; exec('@triton.jit\\ndef k(x): pass')\n"
    amounts = '{num_warps: [4, on, "4"], num_stages: [2, -1], BLOCK: [64, 64.0]}'
    files = [
        file(tmp_path, "passes", changed(launch, "(x, y, n, BLOCK=128, num_warps=4)")),
        file(tmp_path, "typo", space="{BLOK: [64]}"),
        file(tmp_path, "no_such_key", changed('key=["n"]', 'key=["m"]')),
        file(tmp_path, "a_config", changed(DEFAULT, 'triton.Config({"BLOCK": 128})')),
        file(tmp_path, "three_warps", changed('"num_warps": 4', '"num_warps": 3')),
        file(tmp_path, "leaves", f"raise SystemExit(3)\n{MODULE}"),
        file(tmp_path, "executed", executed),
        file(tmp_path, "amounts", space=amounts),
        file(tmp_path, "no_dtype", changed("def problem(n)", "def problem(n, dtype)")),
    ]

    said = sweep(tmp_path, *files)

    assert said.stderr.removeprefix(NO_RECORD) == MISTAKES
    assert (said.code, said.reports) == (2, {})


NO_RECORD = "k: no GPU here, and no recorded times for H200: nothing will be locked\n"
PLANNED = "{} candidates on {} for H200, writes nothing\n"
NOISE = """\
import argparse, os
print("hello")
argparse.ArgumentParser().parse_args()
os.chdir("/")
"""


def test_a_module_may_have_an_odd_name_relative_imports_side_effects_and_empty_problems(tmp_path):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "common.py").write_text("TWO = 2\n", encoding="utf-8")
    inside = f"from .common import TWO\n{MODULE}"
    files = [
        file(tmp_path, "my-kern.v2"),
        file(tmp_path, "pkg/ops", inside),
        file(tmp_path, "noisy", f"{NOISE}{MODULE}"),
        file(tmp_path, "preset", changed("SHIFT: tl.constexpr", "SHIFT: tl.constexpr = 7")),
        file(tmp_path, "empty", shapes="[{n: [0, 1000]}]"),
    ]

    said = sweep(tmp_path, *files, "--dry-run")

    one = NO_RECORD + PLANNED.format(2, "1 problem")
    assert said.stderr == one * 4 + NO_RECORD + PLANNED.format(4, "2 problems") + (
        "warning: nothing to time, the op launches nothing: n=0\n"
    )
    assert said.code == 0
    assert {name: report["kernel"]["name"] for name, report in said.reports.items()} == {
        "my-kern.v2": "my-kern.v2:k",
        "ops": "pkg.ops:k",
        "noisy": "noisy:k",
        "preset": "preset:k",
        "empty": "empty:k",
    }
    assert [report["unsolved"] for report in said.reports.values()] == [[]] * 5


def test_a_problem_of_which_no_config_is_legal_is_not_said_to_launch_nothing(tmp_path):
    sweep_file = file(tmp_path, "odd", changed('"num_warps": 4', '"waves_per_eu": 2'))

    said = sweep(tmp_path, sweep_file)

    assert said.stderr == NO_RECORD + PLANNED.format(0, "1 problem")
    assert said.code == 1


def rejected(report: dict[str, Any], *names: str) -> dict[tuple[Any, ...], str]:
    """The values of these tunables -> why that config is out."""
    return {
        tuple(each["config"][name] for name in names): f"{each['reason']}: {each['detail']}"
        for each in report["outcomes"]
        if "reason" in each
    }


def test_each_illegal_number_and_each_wrong_result_has_a_reason_of_its_own(tmp_path):
    illegal = "{num_warps: [4, 8], num_ctas: [1, 2], BLOCK: [64, 96, 2097152]}"
    one_each = "[num_ctas == 1 or num_warps == 4 and BLOCK == 64, num_warps == 4 or BLOCK == 64]"
    files = [
        file(tmp_path, "illegal", space=illegal, constraints=one_each),
        file(tmp_path, "amd", space="{waves_per_eu: [2]}", targets="[H200, MI300X]"),
        file(tmp_path, "wrong", space="{SHIFT: [0, 1]}", smoke="[{n: 100}]"),
    ]

    said = sweep(tmp_path, *files, "--target", "A100", "--budget-compile", "0")

    assert said.code == 0, said.stderr
    assert rejected(said.reports["illegal"], "num_warps", "num_ctas", "BLOCK") == {
        (4, 2, 64): "illegal value: num_ctas=2, but A100 (cuda:80) has no clusters",
        (4, 1, 96): (
            "does not compile: ValueError: arange's range must be a power of 2 (illegal.py:10)"
        ),
        (4, 1, 2097152): "illegal value: BLOCK=2097152, 1048576 is the most",
    }
    assert rejected(said.reports["amd"], "waves_per_eu") == {
        (2,): "illegal value: waves_per_eu is an AMD option, A100 is NVIDIA's"
    }
    [(shift, why)] = rejected(said.reports["wrong"], "SHIFT").items()
    assert shift == (1,)
    assert re.fullmatch(
        r"wrong result in the interpreter: largest error [\d.]+ in output 0 at \[\d+\], "
        r"0\.002 allowed",
        why,
    )


def test_a_module_that_sleeps_is_ended_at_the_time_limit(tmp_path):
    file(tmp_path, "sleeps", "import time\ntime.sleep(60)\nk = None\n")
    short = (
        "from tritune import cli; from tritune.pipeline import job\n"
        "job.LOAD_LIMIT_S = 0.5\n"
        "cli.main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", short, "sweep", "sleeps.yaml", "--dry-run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TRITUNE_CACHE_DIR": str(tmp_path / ".cache")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert re.sub(r"took .*", "took ...", done.stderr) == (
        "loading the kernel\n"
        "loading the kernel: took ...\n"
        f"error: sleeps.yaml: `{tmp_path}/sleeps.py:k` cannot be loaded: no answer after 0.5 s\n"
    )


def told(
    info: KernelInfo, problem: Problem, config: Config, us: float, *, key: str = "told later"
) -> Measured:
    """A config as a GPU would have timed it, with the little noise that one has."""
    finals = tuple(us * (1 + 0.001 * math.sin(i)) for i in range(30))
    return Measured(
        compiled=Compiled(
            candidate=Candidate(kernel=info.name, problem=problem, config=config),
            key=key,
            binary=f"binary of {config}",
            ir="87b314e3",
        ),
        samples_us=finals[:3],
        finals_us=finals,
        bits="9c1e04d2",
    )


def record(path: Path, best: Iterable[tuple[str, int]]) -> None:
    """A recorded journal for a sweep file, in which the config with these values is fastest."""
    made = read_sweep(path)
    [info] = describe_kernels(made, SweepOptions(), path.with_suffix(".log"))
    plain = path.with_suffix(".jsonl")
    journal = Journal.open(plain)
    for problem in made.problems:
        for config in {*configs(made, targets.find("H200"), info), info.default}:
            us = 10.0 if {*best} <= {*config.values} else 20.0
            journal.record(
                told(info, problem, config, us),
                source=f"{info.source}.{info.problem_source}",
                device=H200,
                protocol=made.timing.protocol(),
                triton="3.6.0",
            )
    journal.close()
    kept = record_path(path, "H200")
    kept.parent.mkdir(exist_ok=True)
    kept.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))


PRODUCTION = """\
import torch, tritune, swiglu, swiglu_autotuned, first, second

x, y = torch.randn(14336, dtype=torch.float16), torch.randn(14336, dtype=torch.float16)
wanted = torch.nn.functional.silu(x.double()) * y.double()
for made in (swiglu.swiglu(x, y), swiglu_autotuned.swiglu(x, y)):
    assert torch.allclose(made.double(), wanted, atol=1e-2, rtol=1e-2)
x = torch.randn(1000)
assert torch.equal(first.op(x), x + 1) and torch.equal(second.op(x), x + 1)
assert torch.equal(first.op(x[:0]), x[:0])  # an empty problem is no miss, and runs the default
stats = tritune.stats()
for name in ("swiglu:swiglu_kernel", "swiglu_autotuned:swiglu_kernel"):
    assert stats.pop(name)["exact"] == 1
counts = {name: [kind for kind, n in each.items() if n] for name, each in stats.items()}
print(counts)
print([next(iter(m.k.cache.values())).kwargs["BLOCK"] for m in (first, second)])
"""


@pytest.mark.parametrize("name", ["swiglu", "swiglu_autotuned"])
def test_a_kernel_of_the_readme_is_taken_to_a_locked_one_in_at_most_12_lines(name):
    count = user_lines(name)

    print(f"{name}: {count} lines added or changed")  # noqa: T201  # asked for with `pytest -s`
    assert count <= 12


def test_recorded_journals_are_locked_for_each_kernel_and_production_runs_them(tmp_path):
    made = written(tmp_path)
    kernels, sweeps = tmp_path / "kernels", tmp_path / "sweeps"
    for name, block in (("first", 64), ("second", 256)):
        (kernels / f"{name}.py").write_text(MODULE, encoding="utf-8")
        text = (
            f"kernel: ../kernels/{name}.py:k\ntargets: [H200]\n"
            "space: {BLOCK: [64, 256]}\nshapes: [{n: 1000}]\n"
        )
        (sweeps / f"{name}.yaml").write_text(text, encoding="utf-8")
        record(sweeps / f"{name}.yaml", [("BLOCK", block)])
    record(made["sweeps/swiglu.yaml"], [("BLOCK", 2048), ("num_warps", 8)])
    record(made["sweeps/swiglu_autotuned.yaml"], [("BLOCK", 4096)])
    names = ("swiglu", "swiglu_autotuned", "first", "second")
    files = [f"sweeps/{name}.yaml" for name in names]

    said = sweep(tmp_path, *files, "--budget-compile", "0")
    before = (kernels / "tritune.lock").read_bytes()
    production = interpreted(PRODUCTION, kernels)

    assert said.code == 0, said.stderr
    assert {name: report["locked"] for name, report in said.reports.items()} == dict.fromkeys(
        names, True
    )
    locked = lock.read(kernels / "tritune.lock").entries
    assert [(at.kernel, at.key, entry.config["BLOCK"]) for at, entry in locked] == [
        ("first:k", "n=1000 x=f32 y=f32", 64),
        ("second:k", "n=1000 x=f32 y=f32", 256),
        *(("swiglu:swiglu_kernel", key, 2048) for key in SWIGLU_KEYS),
        *(("swiglu_autotuned:swiglu_kernel", key, 4096) for key in SWIGLU_KEYS),
    ]
    assert {entry.evidence.us for _, entry in locked} == {10.0}
    assert production == [
        "{'first:k': ['exact', 'default'], 'second:k': ['exact']}",
        "[64, 256]",
    ]
    again = sweep(tmp_path, "sweeps/first.yaml", "--budget-compile", "0")
    assert [winner["change"] for winner in again.reports["first"]["winners"]] == ["kept"]
    assert (kernels / "tritune.lock").read_bytes() == before


SWIGLU_KEYS = [
    f"n={n} x={dtype} y={dtype} out={dtype}" for n in (14336, 58720256) for dtype in ("bf16", "f16")
]

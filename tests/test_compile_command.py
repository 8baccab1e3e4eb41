"""`tritune compile`: what it prints, as whole pages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from fakes import H200, KERNEL, PROBLEM, compiled, config, rejected
from tritune import pipeline
from tritune.cli import tritune
from tritune.model import Problem, Step
from tritune.pipeline import CompileReport, SweepOptions
from tritune.pipeline.compiling import Built

OTHER = Problem.of({"M": 128, "N": 4096, "K": 4096, "dtype": "float16"})


PAGE = """\
kernels.matmul:matmul_kernel from sweeps/matmul.yaml
compiling   2 of 2 distinct binaries for H200 · 3.0 s

matmul_kernel for H200             BLOCK warps same shared registers stack threads occupancy
M=64 N=4096 K=4096 f16  and 1 more    64     4    1 48 KiB        64     -     128      25 %
M=64 N=4096 K=4096 f16               128     4    - 48 KiB        64     -     128      25 %

matmul_kernel          BLOCK warps  reason                  limit
M=64 N=4096 K=4096 f16   256     4  too much shared memory  262144 of 232448 bytes

1 rejected config

6 candidates: 2 distinct binaries · 2 same binary as another · 1 too much shared memory · \
in binaries · 4.2 s
"""


def built(problem=PROBLEM, occupancy=0.25, **values):
    aliases = [config(BLOCK=64, num_warps=8)] if values["BLOCK"] == 64 else []
    made = replace(compiled(problem=problem, aliases=aliases, **values), threads=128)
    return Built(compiled=made, occupancy=occupancy)


def report(**changed) -> CompileReport:
    fields = {
        "sweep": "sweeps/matmul.yaml",
        "kernel": KERNEL,
        "target": H200,
        "steps": (Step(name="compiling", text="2 of 2 distinct binaries for H200", seconds=3.0),),
        "built": (built(BLOCK=64), built(problem=OTHER, BLOCK=64), built(BLOCK=128)),
        "rejected": (rejected(BLOCK=256),),
        "unsolved": (),
        "output": "binaries",
        "wall_s": 4.2,
    }
    return CompileReport(**fields | changed)


@pytest.fixture(name="calls")
def _calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").touch()
    calls: list = []

    def fake(path, options, observer, *, output):
        calls.append((str(path), options, output))
        return (report(),)

    monkeypatch.setattr(pipeline, "compile_only", fake)
    monkeypatch.setattr(pipeline, "refuse_wrong", lambda *_: None)
    return calls


def run(*arguments: str):
    return CliRunner().invoke(tritune, ["compile", *arguments])


def test_each_distinct_binary_is_a_line_with_what_it_takes(calls):
    result = run("sweep.yaml", "--output", "binaries")

    assert result.exit_code == 0
    assert result.stdout == PAGE


def test_every_option_reaches_the_pipeline(calls):
    run(
        *[
            "sweep.yaml",
            "--target",
            "A100",
            "--jobs",
            "3",
            "--compile-limit",
            "7.5",
            "--output",
            "here",
        ],
        "--only",
        "M > 1",
    )

    options = SweepOptions(target="A100", only="M > 1", jobs=3, compile_limit_s=7.5)
    assert calls == [("sweep.yaml", options, Path("here"))]


def test_a_problem_of_which_nothing_fits_is_a_no(calls, monkeypatch):
    nothing = report(built=(), unsolved=(PROBLEM,), output="")
    monkeypatch.setattr(pipeline, "compile_only", lambda *_, **__: (nothing,))

    result = run("sweep.yaml")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[-2:] == [
        "1 candidate: 0 distinct binaries · 1 too much shared memory · 4.2 s",
        "nothing compiles and fits: M=64 N=4096 K=4096 dtype=float16",
    ]


def test_as_json_a_binary_is_one_flat_object(calls):
    [made] = json.loads(run("sweep.yaml", "--json").stdout)["reports"]

    assert made["built"][0] == {
        "kernel": KERNEL,
        "problem": PROBLEM.as_dict(),
        "config": {"BLOCK": 64, "num_warps": 4},
        "binary": "binary of BLOCK=64 num_warps=4",
        "registers": 64,
        "stack_bytes": 0,
        "shared_bytes": 49152,
        "tensor_memory": 0,
        "threads": 128,
        "occupancy": 0.25,
        "same_binary": [{"BLOCK": 64, "num_warps": 8}],
    }
    assert made["rejected"][0]["reason"] == "too much shared memory"
    assert made["target"]["name"] == "H200"

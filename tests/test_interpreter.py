"""What a sweep says with no GPU of what Triton's interpreter met on the smoke problems."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from fakes import candidate
from projects import Project
from test_blame import line_of
from test_measure_sweep import Silent, job
from tritune import pipeline
from tritune.answer import Died, TimedOut
from tritune.errors import TrituneError
from tritune.model import Problem, Reason, Report
from tritune.pipeline import smoke, twice
from tritune.pipeline.job import SweepOptions
from tritune.views import terminal

SMOKE = Problem.of({"n": 100, "dtype": "float32"})
LIBDEVICE = "import triton.language as tl\nfrom triton.language.extra import libdevice\n"
PACKAGE = """
import torch

def sms(x):
    if torch.cuda.is_available():
        count = 132
    return count
"""
"""Of somebody else, who has a GPU."""


ROOT = Path(pipeline.__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    made = Project(tmp_path / "project")
    made.edit("ops.py", " + PAIR[0] * half(BLOCK)", "")
    made.edit("sweeps/scale.yaml", "[1000, 4096]", "[1000]")
    made.edit("sweeps/scale.yaml", "shapes:", "smoke: [{n: 100, dtype: float32}]\nshapes:")
    monkeypatch.chdir(made.folder)
    return made


def swept(project: Project) -> Report:
    options = SweepOptions(target="H200", jobs=1, compile_budget_s=0.0)
    return pipeline.run(project.sweep, options, Silent())[0]


def verified(report: Report) -> str:
    return next(s.text for s in report.steps if s.name == "verifying in the interpreter")


def shown(report: Report) -> list[str]:
    """From the table of what failed to its end, and the last line."""
    console = Console(file=io.StringIO(), width=500, no_color=True)
    console.print(terminal.summaries([report], width=500))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    start = lines.index("failed in Triton's interpreter, on the CPU:")
    ends = ("rejected for", "no valid config")
    end = next(at for at, line in enumerate(lines) if line.startswith(ends))
    return [*lines[start:end], lines[-1]]


def test_a_store_without_its_mask_is_told_as_what_it_is_and_where(project):
    project.edit("ops.py", "y + at, value, mask=at < n", "y + at * 10000000, value")

    report = swept(project)

    why = (
        "crashes the interpreter: killed by signal 11 (SIGSEGV), mostly by an access out of "
        "bounds: does a load or a store lack its mask? · smoke problem n=100 dtype=float32"
    )
    assert verified(report) == (
        "2 distinct sets of meta-parameters on 1 smoke problem: 0 results right, 0 wrong "
        "(results, not times), 2 failed"
    )
    assert shown(report) == [
        "failed in Triton's interpreter, on the CPU:",
        f"  BLOCK=256 num_warps=4 · {why}",
        f"  BLOCK=512 num_warps=4 · {why}",
        "next: mend scale_kernel or its problem function, then tritune sweep sweeps/scale.yaml",
    ]
    assert report.unsolved == (SMOKE,)


def test_memory_that_runs_out_is_no_access_out_of_bounds_and_slow_is_not_wrong():
    found = smoke._Interpreted()

    found.add(candidate(), Died(9, None))
    found.add(candidate(), TimedOut(120.0))

    assert [one.detail for one in found.wrong] == [
        "killed by signal 9 (SIGKILL), as when memory runs out"
    ]
    assert list(found.warnings()) == [
        (
            "1 run cannot be verified with no GPU: Triton's interpreter is too slow: "
            "no answer after 120 s"
        )
    ]


@pytest.mark.parametrize(
    ("call", "lacks"),
    [
        ("libdevice.tanh(value)", "it has no libdevice.tanh"),
        (
            'tl.inline_asm_elementwise("", "=r,r", [value], tl.float32, True, 1)',
            "NotImplementedError: inline_asm not supported in interpreter mode",
        ),
    ],
)
def test_what_the_interpreter_cannot_do_rejects_nothing_and_lowering_goes_on(project, call, lacks):
    project.edit("ops.py", "import triton.language as tl\n", LIBDEVICE)
    project.edit("ops.py", "activate(value) * H.GAIN", f"{call} * H.GAIN")

    report = swept(project)

    assert report.warnings == (
        (
            "2 runs cannot be verified with no GPU: Triton's interpreter fails: "
            f"{lacks} (ops.py:{line_of(project, call)})"
        ),
    )
    assert verified(report) == (
        "2 distinct sets of meta-parameters on 1 smoke problem: 0 results right, 0 wrong "
        "(results, not times), 2 cannot be verified with no GPU"
    )
    assert (report.outcomes, report.unsolved) == ((), ())
    assert [step.text for step in report.steps if step.name == "lowering to TTGIR"] == [
        (
            "2 lowered for H200: 0 candidates the same as another, 0 beyond its shared "
            "memory before LLVM"
        )
    ]


def test_a_loop_that_counts_in_numbers_only_in_the_interpreter_rejects_nothing(project):
    loop = "for i in range(n):\n        value += i.to(tl.float32)\n"
    project.edit("ops.py", "    tl.store(y", f"    {loop}    tl.store(y")

    report = swept(project)

    [warning] = report.warnings
    assert warning.startswith("2 runs cannot be verified with no GPU: Triton's interpreter fails: ")
    lines = (line_of(project, "for i in"), line_of(project, "i.to("))  # by Triton's version
    assert warning.endswith(tuple(f"(ops.py:{line})" for line in lines))
    assert (report.outcomes, report.unsolved) == ((), ())


def test_what_a_helper_of_a_kernel_lacks_is_told_as_that(project):
    project.edit("helpers.py", "import triton.language as tl\n", LIBDEVICE)
    project.edit("helpers.py", "return x * 2.0", "return libdevice.tanh(x)")

    [warning] = swept(project).warnings

    place = (
        (project.folder / "helpers.py")
        .read_text()
        .splitlines()
        .index("    return libdevice.tanh(x)")
    )
    assert warning == (
        "2 runs cannot be verified with no GPU: Triton's interpreter fails: "
        f"it has no libdevice.tanh (helpers.py:{place + 1})"
    )


def no_gpu() -> str:
    """What torch says where there is none: a build for the CPU other than one for CUDA."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.cuda.get_device_properties(0)
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "theirs.sms(x)",
            (
                "UnboundLocalError: cannot access local variable 'count' where it is not "
                "associated with a value"
            ),
        ),
        ("torch.cuda.get_device_properties(0)", ""),
    ],
)
def test_an_op_that_asks_for_a_gpu_is_not_the_users_mistake(project, asked, said):
    (project.folder / "site-packages").mkdir()
    project.write("site-packages/theirs.py", PACKAGE)
    here = (
        f"import sys\nsys.path.append({str(project.folder / 'site-packages')!r})\nimport theirs\n"
    )
    project.edit("ops.py", "\nimport torch\n", f"\n{here}import torch\n")
    project.edit("ops.py", "    y = torch", f"    {asked}\n    y = torch")

    report = swept(project)

    assert report.warnings == (
        (
            "2 runs cannot be verified with no GPU: the code around the kernel fails: "
            f"{said or no_gpu()} (ops.py:{line_of(project, asked)})"
        ),
    )
    assert (report.outcomes, report.unsolved) == ((), ())


def test_a_block_that_is_no_power_of_two_is_the_spaces_fault(project):
    project.edit("sweeps/scale.yaml", "[256, 512]", "[1000]")

    report = swept(project)

    assert shown(report) == [
        "failed in Triton's interpreter, on the CPU:",
        (
            "  BLOCK=1000 num_warps=4 · raises in the interpreter: ValueError: arange's range must "
            f"be a power of 2 (ops.py:{line_of(project, 'tl.arange')}) · "
            "smoke problem n=100 dtype=float32"
        ),
        (
            "next: give other values in the space of sweeps/scale.yaml, "
            "then tritune sweep sweeps/scale.yaml"
        ),
    ]


def test_a_block_that_is_no_power_of_two_and_in_no_space_is_its_callers_fault(project):
    project.edit("ops.py", "BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, W: tl.constexpr)")
    project.edit("ops.py", "tl.store(y + at", "tl.arange(0, W)\n    tl.store(y + at")
    project.edit("ops.py", "(x, y, x.numel())", "(x, y, x.numel(), W=x.numel())")

    report = swept(project)

    place = f"ops.py:{line_of(project, 'tl.arange(0, W)')}"
    assert {one.detail for one in report.outcomes} == {
        f"ValueError: arange's range must be a power of 2 ({place})"
    }
    assert shown(report)[-1] == (
        f"next: mend what the caller of scale_kernel passes for {place}, or that line, "
        "then tritune sweep sweeps/scale.yaml"
    )


def test_a_mistake_in_a_kernels_body_is_its_own_whatever_python_calls_it(project):
    project.edit("ops.py", "activate(value) * H.GAIN", "value.gone() * H.GAIN")

    report = swept(project)

    place = f"ops.py:{line_of(project, 'value.gone')}"
    assert {one.detail for one in report.outcomes if one.reason is Reason.INTERPRETED} == {
        f"AttributeError: 'tensor' object has no attribute 'gone' ({place})"
    }
    assert SMOKE in report.unsolved
    assert shown(report)[-1] == (
        "next: mend scale_kernel or its problem function, then tritune sweep sweeps/scale.yaml"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "torch.randn(n, dtype=dtype)",
            "torch.randn(n, dtype=dtype) if n > 100 else {}[n]",
            "the problem function raises on the smoke problem n=100 dtype=float32: KeyError: 100",
        ),
        (
            "lambda: scale(x))",
            "lambda: scale(x), reference=lambda: {}[n])",
            "the reference raises on the smoke problem n=100 dtype=float32: KeyError: 100",
        ),
    ],
)
def test_what_raises_for_every_config_is_one_error_with_its_line(project, old, new, said):
    project.edit("ops.py", old, new)

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == f"{project.folder}/ops.py:{line_of(project, '{}[n]')}: {said}"


def test_a_package_that_raises_in_a_reference_is_an_error_too(project):
    (project.folder / "site-packages").mkdir()
    project.write("site-packages/theirs.py", "def twice(x):\n    return x.gone()\n")
    at = f"import sys\nsys.path.append({str(project.folder / 'site-packages')!r})\nimport theirs\n"
    project.edit("ops.py", "\nimport torch\n", f"\n{at}import torch\n")
    project.edit("ops.py", "scale(x))", "scale(x), reference=lambda: theirs.twice(x))")

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == (
        f"{project.folder}/ops.py:{line_of(project, 'theirs.twice')}: the reference raises on the "
        "smoke problem n=100 dtype=float32: AttributeError: 'Tensor' object has no attribute 'gone'"
    )


def test_a_reference_of_another_shape_is_told_with_its_place_and_what_to_return(project):
    project.edit("ops.py", "lambda: scale(x))", "lambda: scale(x), reference=lambda: x[:5])")

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == (
        f"{project.folder}/ops.py:{line_of(project, '@tritune.problem')}: on the problem n=100 "
        "dtype=float32, output 0 has shape (100,) and its reference (5,)\n"
        "hint: let `reference` return a tensor of shape (100,) for it, or the op one of (5,): "
        "elements are compared one by one"
    )


def test_what_failed_in_the_interpreter_is_told_with_a_mistake_that_ends_the_sweep(project):
    project.edit("sweeps/scale.yaml", "float32", "int32")
    project.edit("ops.py", "activate(value) * H.GAIN", "tl.exp(value) * H.GAIN")
    project.edit(
        "ops.py", "torch.randn(n,", "torch.ones(n, dtype=dtype) if n < 1000 else torch.randn(n,"
    )

    with pytest.raises(TrituneError) as caught:
        swept(project)

    first, second = str(caught.value).splitlines()
    assert first == (
        f"{project.sweep}:7:1: smoke: raises in the interpreter, 2 configs on n=100 dtype=int32: "
        "ValueError: Expected dtype ['fp32', 'fp64'] but got int32 "
        f"(ops.py:{line_of(project, 'tl.exp')})"
    )
    assert second.startswith(
        f"{project.folder}/ops.py:{line_of(project, 'torch.randn')}: "
        "the problem n=1000 dtype=int32 cannot be made: RuntimeError: "
    )


class Heard(Silent):
    """What is said of a sweep."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_two_sweeps_of_a_file_with_no_gpu_know_of_each_other(tmp_path):
    first, second, later, measuring = Heard(), Heard(), Heard(), Heard()
    this = job(tmp_path)
    idle = replace(this, setting=replace(this.setting, index=None))
    on_gpu = replace(this, setting=replace(this.setting, index=0))

    with twice.noticed(replace(idle, observer=first)):
        with twice.noticed(replace(idle, observer=second)):
            pass
        with twice.noticed(replace(on_gpu, observer=measuring)):
            pass
    with twice.noticed(replace(idle, observer=later)):
        pass

    assert second.lines == [
        f"another sweep of this file is running (pid {os.getpid()}): both compile the same"
    ]
    assert first.lines == later.lines == measuring.lines == []


def test_a_sweep_runs_where_nobody_can_tell_whether_another_does(tmp_path):
    heard, this = Heard(), job(tmp_path)
    idle = replace(this, setting=replace(this.setting, index=None), observer=heard)
    idle.journal.with_name(f"{idle.journal.name}.idle.lock").mkdir()  # opens for nobody

    with twice.noticed(idle):
        heard.say("sweeping")

    assert heard.lines == ["sweeping"]


def tritune_(project: Project, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, whose workers come from a server of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tritune", *words],
        cwd=project.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.lowering
def test_what_the_users_programs_interpret_a_sweep_lowers_all_the_same(project):
    words = ("sweep", "sweeps/scale.yaml", "--target", "H200", "--jobs", "1")

    done = tritune_(project, *words, TRITON_INTERPRET="1")

    steps = re.sub(r" · [\d.]+ s\n", "\n", re.sub("  +", "  ", done.stdout)).splitlines()[:5]
    assert done.returncode == 0, done.stderr
    assert steps == [
        "ops:scale_kernel from sweeps/scale.yaml",
        (
            "verifying in the interpreter  2 distinct sets of meta-parameters on 1 smoke problem: "
            "2 results right, 0 wrong (results, not times)"
        ),
        "finding the launches  2 candidates, 2 distinct compiles",
        (
            "lowering to TTGIR  2 lowered for H200: 0 candidates the same as another, "
            "0 beyond its shared memory before LLVM"
        ),
        "compiling  2 of 2 distinct binaries for H200",
    ]


@pytest.fixture
def no_numpy(tmp_path: Path) -> str:
    """A PYTHONPATH on which numpy cannot be imported."""
    (tmp_path / "without").mkdir()
    raising = "raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')\n"
    (tmp_path / "without/numpy.py").write_text(raising, encoding="utf-8")
    return os.pathsep.join((str(tmp_path / "without"), str(ROOT)))


@pytest.mark.lowering
def test_without_numpy_it_is_said_once_that_nothing_is_verified_and_the_sweep_goes_on(
    project, no_numpy
):
    words = ("sweep", "sweeps/scale.yaml", "--target", "H200", "--jobs", "1")

    done = tritune_(project, *words, PYTHONPATH=no_numpy)

    assert (done.returncode, re.findall("(?m)^warning.*", done.stderr)) == (
        0,
        [
            (
                "warning: 2 runs cannot be verified with no GPU: Triton's interpreter needs "
                "numpy, which cannot be imported (pip install 'tritune[interpreter]')"
            )
        ],
    )
    assert "2 of 2 distinct binaries for H200" in done.stdout
    assert "numpy" not in done.stdout


def test_what_torch_says_without_numpy_is_not_said(project, no_numpy):
    done = tritune_(project, "init", "ops.py:scale_kernel", "--output", "new", PYTHONPATH=no_numpy)

    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "",
        (
            "wrote new/scale_kernel.yaml\n"
            "next: fill in what is marked FILL IN in new/scale_kernel.yaml\n"
            "next: tritune show space new/scale_kernel.yaml\n"
        ),
    )


def test_a_program_that_is_to_be_interpreted_is_traced_without_numpy(project, no_numpy):
    words = ("trace", "--", sys.executable, "-c", "print('done')")

    done = tritune_(project, *words, PYTHONPATH=no_numpy, TRITON_INTERPRET="1")

    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == (
        "no process launched a tunable kernel: the tracer ran, but no process that it ran in "
        "imported Triton (python -I, -E and -S, and a child with an environment of its own, keep "
        "it out)\n"
    )

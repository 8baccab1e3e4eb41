"""Compiling with real Triton and no GPU: broken compilers, caches, folders of binaries."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import triton
from click.testing import CliRunner

from tritune import limit, pipeline
from tritune.cli import tritune
from tritune.device import toolchain, wheel
from tritune.device.targets import find
from tritune.errors import EnvironmentFaultError, SpecError
from tritune.model import Reason
from tritune.pipeline import CompileReport, SweepOptions

pytestmark = pytest.mark.lowering

KERNEL = """\
import torch
import triton
import triton.language as tl
import tritune
import helpers as H


@tritune.kernel(key=["n"], default={"BLOCK": 64, "num_warps": 4})
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + H.GAIN, mask=at < n)


@tritune.problem(add)
def add_problem(n):
    x = torch.randn(n)

    def run():
        y = torch.empty_like(x)
        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n)
        return y

    return tritune.Problem(run, reference=lambda: x + 3)


@tritune.kernel(key=["n"], default={"BLOCK": 64, "num_warps": 4})
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


@tritune.problem(double)
def double_problem(n):
    x = torch.randn(n)
    return tritune.Problem(lambda: double[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, n))
"""
SWEEP = """\
kernel: ops.py:{kernel}
targets: [A100]
space: {{BLOCK: {blocks}, num_warps: {warps}}}
shapes: [{{n: 1000}}]
"""
PTXAS = """\
#!/bin/bash
# A ptxas that does to some of its callers what real ones did, by the warps of the kernel.
for each in "$@"; do
  case "$each" in *.ptx) ptx=$each;; --version) exec "{real}" --version;; esac
done
threads=$(grep -o 'reqntid [0-9]*' "$ptx" | cut -d' ' -f2)
case "$threads" in
{cases}
esac
exec "{real}" "$@"
"""
REAL = Path(str(importlib.util.find_spec("triton").origin)).parent / "backends/nvidia/bin/ptxas"  # type: ignore[union-attr]
A100 = find("A100")


class Project:
    """A folder with a kernel module and sweep files, and a compile cache of its own."""

    def __init__(self, folder: Path, set_variable: Callable[[str, str], None]) -> None:
        self.folder = folder
        self.set_variable = set_variable
        self.cache(folder / "cache")
        (folder / "ops.py").write_text(KERNEL, encoding="utf-8")
        self.constant(3)

    def cache(self, folder: Path) -> None:
        self.set_variable("TRITUNE_CACHE_DIR", str(folder))

    def constant(self, gain: int) -> None:
        text = f"import triton.language as tl\nGAIN = tl.constexpr({gain})\n"
        (self.folder / "helpers.py").write_text(text, encoding="utf-8")

    def sweep(self, kernel: str = "add", blocks: str = "[64]", warps: str = "[4]") -> Path:
        path = self.folder / f"{kernel}.yaml"
        text = SWEEP.format(kernel=kernel, blocks=blocks, warps=warps)
        path.write_text(text, encoding="utf-8")
        return path

    def ptxas(self, cases: str) -> Path:
        path = self.folder / "ptxas"
        path.write_text(PTXAS.format(real=REAL, cases=cases), encoding="utf-8")
        path.chmod(0o755)
        self.set_variable("TRITON_PTXAS_PATH", str(path))
        return path

    def compile(
        self, path: Path, *, output: Path | None = None, limit_s: float | None = None, jobs: int = 1
    ) -> CompileReport:
        options = SweepOptions(target="A100", jobs=jobs, compile_limit_s=limit_s)
        [report] = pipeline.compile_only(path, options, Silent(), output=output)
        return report


class Silent:
    """An observer that tells nobody."""

    def stage(self, name: str, total: int | None) -> None: ...
    def advance(self, text: str = "") -> None: ...
    def say(self, text: str) -> None: ...


@pytest.fixture(name="project")
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    return Project(tmp_path, monkeypatch.setenv)


def running(word: str) -> list[str]:
    """The command lines of living processes that have *word* in them."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


def said(report: CompileReport) -> str:
    [step] = [step.text for step in report.steps if step.name == "compiling"]
    return step


def outcomes(report: CompileReport) -> dict[object, tuple[Reason, str]]:
    return {one.candidate.config["num_warps"]: (one.reason, one.detail) for one in report.rejected}


@pytest.mark.newest
def test_compilers_that_crash_hang_run_out_of_memory_or_rant_cost_one_config_each(project, capfd):
    ptxas = project.ptxas(
        '32) for i in $(seq 3000); do echo "ld.param.u64 %rd$i, [oops];" >&2; done\n'
        "    echo \"ptxas fatal   : Register allocation failed with register count of '24'\" >&2\n"
        "    exit 255;;\n"
        "64) kill -ABRT $PPID; sleep 4242;;\n"
        "256) sleep 4243 & wait;;\n"
        "512) kill -KILL $PPID; sleep 4244;;\n"
    )
    sweep = project.sweep(warps="[1, 2, 4, 8, 16, 32]")

    report = project.compile(sweep, limit_s=12, jobs=2)

    assert [one.compiled.candidate.config["num_warps"] for one in report.built] == [4, 32]
    assert outcomes(report) == {
        1: (
            Reason.REGISTERS,
            "PTXASError: ptxas fatal   : Register allocation failed with register count of '24'",
        ),
        2: (Reason.CRASH, "killed by signal 6 (SIGABRT)"),
        8: (Reason.TIMEOUT, "cut off after 12 s; --compile-limit S raises it"),
        16: (Reason.CRASH, "killed by signal 9 (SIGKILL), as when memory runs out"),
    }
    assert said(report) == "6 of 6 distinct binaries for A100, 1 cut off"
    assert [line for word in (str(ptxas), "sleep 424") for line in running(word)] == []
    assert capfd.readouterr().out == ""
    [log] = [one.log for one in report.rejected if one.reason is Reason.REGISTERS]
    text = Path(log).read_text(encoding="utf-8")
    assert Path(log).parent == project.folder / "cache" / "logs"
    assert "[oops];" in text
    assert "%rd3000" in text
    assert "Traceback" in text


def test_one_config_that_takes_a_minute_costs_no_more_than_the_others_have_taught(
    project, monkeypatch
):
    monkeypatch.setattr(limit, "ENOUGH", 6)
    monkeypatch.setattr(limit, "LEAST_S", 1.5)
    monkeypatch.setattr(limit, "FACTOR", 2.0)
    project.ptxas("256) sleep 60;;\n")
    sweep = project.sweep(blocks="{pow2: [16, 1024]}", warps="[4]")
    text = sweep.read_text(encoding="utf-8")
    slow = "constraints: [num_warps == 4 or BLOCK == 64]\n"
    sweep.write_text(text.replace("[4]", "[4, 8]") + slow, encoding="utf-8")
    began = time.monotonic()

    report = project.compile(sweep, jobs=2)

    assert time.monotonic() - began < 40
    [(reason, detail)] = outcomes(report).values()
    assert len(report.built) == 7
    assert reason is Reason.TIMEOUT
    assert detail.endswith("compiles; --compile-limit S raises it")
    assert "the limit learnt from" in detail


def test_a_ptxas_that_compiles_nothing_is_one_fault_with_its_version_and_path(project):
    ptxas = project.ptxas(
        "*) echo \"ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'\" >&2\n"
        "   exit 255;;\n"
    )
    sweep = project.sweep(blocks="[16, 32, 64, 128]", warps="[1, 2, 4, 8]")

    result = CliRunner().invoke(tritune, ["compile", str(sweep), "--jobs", "2"])

    logs = project.folder / "cache" / "logs"
    version = toolchain_version(ptxas)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.endswith(
        f"\nerror: nothing compiles for A100 with ptxas {version} at {ptxas}, not even a kernel of "
        "one line: PTXASError: ptxas fatal   : Value 'sm_80' is not defined for option 'gpu-name'"
        "\n\nhint: is it new enough for A100? see TRITON_PTXAS_PATH and "
        f"TRITON_PTXAS_BLACKWELL_PATH; all that was said is in {logs / 'probe.log'}\n"
    )
    assert "compiling: 3/16" in result.stderr
    assert not list(project.folder.glob("*.lock"))


def toolchain_version(ptxas: Path) -> str:
    text = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    return text.split("release ")[1].split(",")[0]


@pytest.mark.parametrize(
    ("variable", "script", "fault"),
    [
        ("TRITON_PTXAS_PATH", None, "ptxas at {path} does not exist"),
        (
            "TRITON_PTXAS_BLACKWELL_PATH",
            "echo gpu-name not known >&2; exit 255",
            "ptxas at {path} does not tell its version: exit code 255, gpu-name not known",
        ),
        ("TRITON_CUOBJDUMP_PATH", "echo hi", "cuobjdump at {path} does not tell its version: hi"),
    ],
)
def test_a_tool_that_triton_would_pass_over_is_refused(
    tmp_path, monkeypatch, variable, script, fault
):
    path = tmp_path / "tool"
    if script:
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    monkeypatch.setenv(variable, str(path))

    with pytest.raises(EnvironmentFaultError) as caught:
        toolchain.check(A100, launches=False)

    tool = fault.split(maxsplit=1)[0]
    assert str(caught.value) == (
        f"{variable}: {fault.format(path=path)}\n"
        f"hint: Triton would use its own {tool} instead and not say so: correct the path, or unset "
        "the variable"
    )
    toolchain.check(find("MI300X"), launches=False)


def test_a_c_compiler_is_needed_to_launch_and_not_to_compile(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)

    toolchain.check(A100, launches=False)
    with pytest.raises(EnvironmentFaultError, match="no C compiler: CC is not set, and there is"):
        toolchain.check(A100, launches=True)


def test_a_c_compiler_that_cc_names_has_to_be_there(monkeypatch):
    monkeypatch.setenv("CC", "/nonexistent")

    with pytest.raises(EnvironmentFaultError) as caught:
        toolchain.check(A100, launches=True)

    assert str(caught.value) == (
        "no C compiler: CC is /nonexistent, which is no program\n"
        "hint: Triton builds the launcher of a kernel with one: correct CC, or unset it"
    )


def test_where_nothing_compiles_by_the_kernels_own_fault_the_answer_is_no(project):
    text = KERNEL.replace("+ H.GAIN", "+ undefined_name")
    (project.folder / "ops.py").write_text(text, encoding="utf-8")
    sweep = project.sweep(warps="[2, 4, 8, 16]")

    result = CliRunner().invoke(tritune, ["sweep", str(sweep), "--jobs", "2"])

    assert result.exit_code == 1
    assert "no valid config for n=1000: 4 does not compile\n" in result.stdout


def test_a_second_run_compiles_nothing_and_an_edit_only_what_it_changes(project):
    add, double = project.sweep("add"), project.sweep("double")
    first, other = project.compile(add), project.compile(double)

    project.constant(4)
    edited, untouched = project.compile(add), project.compile(double)

    assert said(first) == "1 of 1 distinct binaries for A100"
    assert said(edited) == "1 of 1 distinct binaries for A100"
    assert said(untouched) == "1 of 1 distinct binaries for A100, 1 from the cache"
    assert first.built[0].compiled.binary != edited.built[0].compiled.binary
    assert other.built[0].compiled.binary == untouched.built[0].compiled.binary


def test_a_folder_of_binaries_serves_elsewhere_and_leaves_nothing_to_compile(project):
    made, fewer = project.folder / "made", project.folder / "fewer"
    sweep = project.sweep(warps="[2, 4]")
    both = project.compile(sweep, output=made)
    default = project.compile(project.sweep(), output=fewer)
    project.sweep(warps="[2, 4]")
    project.cache(project.folder / "elsewhere")
    shutil.rmtree(project.folder / "cache")  # its paths must not be needed

    result = CliRunner().invoke(
        tritune, ["sweep", str(sweep), "--compiled", str(made), "--jobs", "1"]
    )

    text = " ".join(result.stdout.split())
    assert "compiling 2 of 2 distinct binaries for A100, 2 from the cache" in text
    counts = [one.steps[-1].text.partition(" in ")[0] for one in (both, default)]
    # What others have compiled before is in the same cache.
    assert counts == ["2 binaries", "1 binary"]
    assert len([*(fewer / source_in(fewer)).iterdir()]) == 1


def test_a_folder_of_binaries_that_does_not_serve_says_why_field_by_field(project, monkeypatch):
    sweep, made = project.sweep(), project.folder / "made"
    project.compile(sweep, output=made)
    source = source_in(made)
    project.constant(5)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")

    with pytest.raises(SpecError) as caught:
        pipeline.run(sweep, SweepOptions(target="A100", compiled=made, jobs=1), Silent())

    assert caught.value.exit_code == 2
    assert caught.value.where == str(made / "manifest.json")
    fields = caught.value.what.partition(": ")[2].split("; ")
    assert fields[0] == "TRITON_DEFAULT_FP_FUSION is not set there, false here"
    assert fields[1].startswith(f"the source of `ops:add` is {source} there, ")
    assert len(fields) == 2


@pytest.mark.parametrize(("value", "added"), [("0", " no-fp-fusion"), ("1", ""), (None, "")])
def test_a_knob_that_changes_code_is_part_of_the_triton_that_evidence_names(
    value, added, monkeypatch
):
    monkeypatch.delenv("TRITON_DEFAULT_FP_FUSION", raising=False)
    if value is not None:
        monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", value)

    assert wheel.version() == triton.__version__ + added


def source_in(folder: Path) -> str:
    [source] = [path.name for path in folder.iterdir() if path.is_dir()]
    return source


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_folder_with_no_manifest_is_named(project, dry_run):
    sweep, empty = project.sweep(), project.folder / "empty"
    empty.mkdir()
    options = SweepOptions(target="A100", compiled=empty, jobs=1, dry_run=dry_run)

    with pytest.raises(SpecError) as caught:
        pipeline.run(sweep, options, Silent())

    assert str(caught.value) == (
        f"{empty}: there is no manifest.json\n"
        "hint: `tritune compile FILE --output DIR` makes such a folder"
    )

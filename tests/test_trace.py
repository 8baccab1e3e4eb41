"""`tritune trace`: a program runs as before, and what it launched is written down.

Programs run in Triton's interpreter; a driver that answers questions stands in for a GPU, and
events that know their time for its clock.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import functools
import gc
import itertools
import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

import test_adopt
import tritune
from others import PACKAGE
from projects import HELPERS, OPS, STAND_IN, SWEEP
from test_adopt import FILL, fill, ran
from test_runtime import FakeDriver, locked
from tritune import adopt, installing, keys, retrace, silicon, tracedraft, tracelog
from tritune.errors import EnvironmentFaultError, SpecError
from tritune.pipeline import tracefiles
from tritune.pipeline import tracing as pipeline
from tritune.pipeline.tracefiles import TraceOptions
from tritune.routing import Route
from tritune.tracelog import TracedKernel, TracedLaunch
from tritune.tracing import clock, facts, recorder, traced, wrapping
from tritune.views import page, traces

ROOT = Path(__file__).parents[1]
TRAIN = """\
import multiprocessing, os, sys
import torch
import standin, theirs

def work(n):
    theirs.total(torch.ones(n))

def train():
    for n in (200, 700):
        x = torch.randn(8, n, requires_grad=True)
        alpha = torch.ones(1, requires_grad=True)
        for _ in range(5):
            theirs.Scale.apply(x, alpha).backward(torch.ones(8, n))

if __name__ == "__main__":
    train()
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=work, args=(77,))
        child.start()
        child.join()
    print("read", sys.stdin.read(), *sys.argv[1:])
    print("to stderr", file=sys.stderr)
    raise SystemExit(7)
"""
KERNELS = ("scale_forward", "scale_backward", "total_kernel")
KILLED = """\
import os, signal, sys, time
import torch
import standin, theirs

theirs.total(torch.ones(64))
time.sleep(1.1)
for _ in range(3):
    theirs.total(torch.ones(64))
theirs.total(torch.ones(65))
os.kill(os.getpid(), signal.SIGKILL)
"""
OURS = """\
import torch
import standin
import ops

for n in (100, 100, 1000):
    ops.scale(torch.randn(n))
ops.scale(torch.randn(100)[1:])
"""


FILL_SCRIPT = """\
import torch, triton, triton.language as tl
import standin

@triton.autotune([triton.Config({"B": b}) for b in (16, 32)], key=["n"])
@triton.jit
def filled(x, n, B: tl.constexpr):
    tl.store(x, n)

def run():
    filled[(1,)](torch.zeros(8), 8)

"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if not name.startswith("TRITUNE")}
    paths = os.pathsep.join(map(str, (ROOT, folder / "site")))
    return {
        **left,
        "PYTHONPATH": paths,
        "PYTHONWARNINGS": "ignore",
        **more,
    }


def tritune_(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tritune", *words],
        cwd=folder,
        env=environment(folder, TRITON_INTERPRET="1" if words[0] == "trace" else "0"),
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def project(folder: Path, **programs: str) -> Path:
    (folder / "site").mkdir()
    files = {"site/theirs.py": PACKAGE, "site/standin.py": STAND_IN}
    for name, text in {**files, **{f"{name}.py": text for name, text in programs.items()}}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def counted(folder: Path) -> dict[tuple[str, str], int]:
    found = tracelog.read(folder / "processes")
    return {(k.name, one.key): one.count for k in found.kernels for one in k.launches}


def backward(n: int, *, wide: bool) -> tuple[str, str]:
    return "theirs:scale_backward", f"N={n} WIDE={wide} DY=f32 X=f32 DX=f32 DA=f32 alpha=f32"


# --- a program, from outside --------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A program traced once: its folder, and how it ended."""
    folder = project(tmp_path_factory.mktemp("trained"), train=TRAIN)
    words = ("trace", "--json", "--", sys.executable, "train.py", "--lr", "3")
    return folder, tritune_(folder, *words, given="from stdin")


def test_a_program_runs_as_before(trained):
    _, done = trained

    assert done.returncode == 7, done.stderr
    assert done.stdout.startswith("read from stdin --lr 3\n{\n")
    assert done.stderr.startswith("to stderr\n3 processes launched 3 kernels 22 times\n")


def test_launches_are_counted_by_kernel_and_key_in_every_process(trained):
    folder, _ = trained

    assert counted(folder / "traced") == {
        ("theirs:scale_forward", "N=200 X=f32 Y=f32 alpha=f32"): 5,
        ("theirs:scale_forward", "N=700 X=f32 Y=f32 alpha=f32"): 5,
        backward(200, wide=False): 5,
        backward(700, wide=True): 5,
        ("theirs:total_kernel", "n=77 x=f32 out=f32"): 2,
    }
    assert len(list((folder / "traced/processes").glob("*.jsonl"))) == 3


def test_the_report_is_json_too_on_stdout_and_in_the_folder(trained):
    folder, done = trained
    text = (folder / "traced/report.json").read_text(encoding="utf-8")

    assert done.stdout.endswith(text)
    report = json.loads(text)
    [kernel] = [one for one in report["kernels"] if one["name"] == "theirs:total_kernel"]
    assert (report["exit_code"], kernel["count"], kernel["sweep"]) == (
        7,
        2,
        "traced/total_kernel.yaml",
    )
    fact = kernel["launches"][0]["facts"]["args"][0]
    assert (fact["dtype"], fact["shape"], fact["stride"]) == ("float32", [77], [1])
    assert report["processes"][0]["program"][1:] == ["train.py", "--lr", "3"]


def test_the_terminal_shows_keys_says_that_nothing_was_timed_and_what_to_do(trained):
    _, done = trained
    lines = done.stderr.splitlines()

    assert "theirs:total_kernel  autotuned, 2 configs" in lines
    assert "n=77 x=f32 out=f32        2       -  -      -" in lines
    assert "no times: nothing ran on a GPU, or too little to time some of it" in lines
    assert lines[2] == "the program ended with exit code 7, and the trace ends there"
    assert lines[-2:] == [
        f"next: tritune sweep {' '.join(f'traced/{name}.yaml' for name in KERNELS)}",
        "then: TRITUNE_LOCKFILE=traced/tritune.lock where it runs",
    ]


def test_where_there_was_no_gpu_the_next_step_names_a_target(trained, tmp_path, monkeypatch):
    folder, _ = trained
    monkeypatch.chdir(tmp_path)
    found = tracelog.read(folder / "traced/processes")
    nowhere = tuple(replace(one, device="") for one in found.processes)

    traced = tracefiles.written(
        replace(found, processes=nowhere), 0, "", TraceOptions(output=Path("traced"))
    )

    files = " ".join(f"traced/{name}.yaml" for name in KERNELS)
    assert page.plain(traces.report(traced)).splitlines()[-3:] == [
        f"next, on a machine with a GPU: tritune sweep {files}",
        f"or here, to compile and time nothing: tritune sweep {files} --target H200",
        "then: TRITUNE_LOCKFILE=traced/tritune.lock where it runs",
    ]


def test_a_sweep_file_says_what_it_is_of(trained):
    folder, _ = trained

    assert (folder / "traced/total_kernel.yaml").read_text(encoding="utf-8") == (
        "# Launches of theirs:total_kernel, as `tritune trace` saw them; of "
        f"{folder}/site/theirs.py.\n"
        "#   1: n=77 x=f32 out=f32: 2 launches\n"
        "problem: traced_total_kernel.py:total_kernel_problem\n"
        "# targets: [H200]  # the GPUs it ships on; needed where a sweep has no GPU\n"
        "shapes: [{launch: [1]}]\n"
        "smoke: [{launch: 1}]\n"
    )


@pytest.mark.lowering
def test_the_sweep_files_run_as_they_are_and_find_the_keys_that_were_traced(trained):
    folder, _ = trained
    files = [f"traced/{name}.yaml" for name in ("scale_backward", "total_kernel")]

    shown = tritune_(folder, "show", "space", "--target", "H200", files[0])
    done = tritune_(folder, "sweep", "--target", "H200", "--json", *files)

    assert (shown.returncode, done.returncode) == (0, 0), shown.stderr + done.stderr
    reports = json.loads(done.stdout)["reports"]
    keys = {
        (one["kernel"]["name"], key)
        for one in reports
        for _, under in one["kernel"]["keys"]
        for key in under
    }
    assert keys == {at for at in counted(folder / "traced") if at[0] != "theirs:scale_forward"}
    assert {each["reason"] for one in reports for each in one["outcomes"]} == {
        "its own prune function leaves it out"
    }


@pytest.mark.lowering
def test_the_sweep_files_compile_for_a_gpu_that_is_not_here(trained):
    folder, _ = trained

    done = tritune_(folder, "compile", "--target", "H200", "traced/scale_forward.yaml")

    assert done.returncode == 0, done.stderr
    assert "compiling              12 of 12 distinct binaries for H200" in done.stdout


def test_with_no_program_a_trace_is_reported_again(trained):
    folder, _ = trained

    done = tritune_(folder, "trace")

    assert done.returncode == 0
    assert done.stderr.startswith("3 processes launched 3 kernels 22 times\n")


def test_a_trace_that_is_there_is_not_replaced(trained):
    folder, _ = trained

    done = tritune_(folder, "trace", "--", sys.executable, "-c", "print('ran')")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: traced: a trace is there already, and nothing was run\n\n"
        "hint: --force replaces it, --output DIR puts this one elsewhere\n"
    )


def reported(folder: Path, *kernels: TracedKernel, force: bool = False) -> list[str]:
    """A trace of these kernels, and what its report says of the files."""
    found = tracelog.Trace(kernels=kernels)
    made = tracefiles.written(found, 0, "", TraceOptions(output=folder, force=force))
    (folder / "report.json").write_text(traces.report_json(made), encoding="utf-8")
    words = ("kept ", "moved ", "removed ")
    return [one for one in page.plain(traces.report(made)).splitlines() if one.startswith(words)]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"report.json"}


def test_a_file_that_somebody_has_edited_is_kept_and_moved_aside_by_force(tmp_path):
    mine = tmp_path / "scale.yaml"
    reported(tmp_path, kernel())
    first = mine.read_bytes()
    mine.write_bytes(b"mine, and no UTF-8: \xff")

    again = reported(tmp_path, kernel())
    forced = reported(tmp_path, kernel(), force=True)
    mine.write_bytes(b"mine again")
    twice = reported(tmp_path, kernel(), force=True)

    assert again == [f"kept {mine}, which was there: --force replaces it"]
    assert forced == [f"moved {mine}, which is not as it was written, to {mine}.old"]
    assert twice == [f"moved {mine}, which is not as it was written, to {mine}.old2"]
    assert mine.read_bytes() == first
    assert (tmp_path / "scale.yaml.old").read_bytes() == b"mine, and no UTF-8: \xff"
    assert (tmp_path / "scale.yaml.old2").read_bytes() == b"mine again"


def test_what_the_last_trace_wrote_and_this_one_does_not_is_removed_by_force_and_nothing_else(
    tmp_path,
):
    reported(tmp_path, kernel(), kernel(name="c:other"))
    edited = tmp_path / "scale.yaml"
    edited.write_text("edited", encoding="utf-8")
    for mine in ("mine.yaml", "tritune.lock"):
        (tmp_path / mine).write_text("mine", encoding="utf-8")

    kept = reported(tmp_path, kernel(name="d:new"))
    forced = reported(tmp_path, kernel(name="d:new"), force=True)

    gone = ", ".join(f"{tmp_path}/{name}" for name in ("other.yaml", "traced_other.py"))
    assert kept == []
    assert forced == [
        f"moved {edited}, which is not as it was written, to {edited}.old",
        f"removed {gone}, {tmp_path}/traced_scale.py, which the last trace wrote",
    ]
    assert names(tmp_path) == {
        *("scale.yaml.old", "new.yaml", "traced_new.py"),
        *("mine.yaml", "tritune.lock"),
    }


def test_a_report_that_is_damaged_or_names_files_elsewhere_removes_nothing(tmp_path):
    folder = tmp_path / "traced"
    folder.mkdir()
    (tmp_path / "mine").write_text("", encoding="utf-8")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    for text in ("{", "[]", json.dumps({"written": {"../mine": empty}})):
        (folder / "report.json").write_text(text, encoding="utf-8")

        assert reported(folder, force=True) == []

    assert (tmp_path / "mine").exists()


def test_a_program_that_is_killed_loses_at_most_what_it_counted_last(tmp_path):
    folder = project(tmp_path, train=KILLED)

    done = tritune_(folder, "trace", "--", sys.executable, "train.py")

    assert done.returncode == 128 + signal.SIGKILL
    assert done.stderr.startswith(
        "1 process launched 1 kernel 3 times\n"
        "the program was ended by SIGKILL, and the trace ends there\n"
    )
    report = json.loads((folder / "traced/report.json").read_text(encoding="utf-8"))
    assert (report["exit_code"], report["signal"]) == (137, "SIGKILL")
    assert counted(folder / "traced") == {
        ("theirs:total_kernel", "n=64 x=f32 out=f32"): 2,
        ("theirs:total_kernel", "n=65 x=f32 out=f32"): 1,
    }
    assert (folder / "traced/total_kernel.yaml").is_file()


def test_a_program_that_does_not_exist_is_an_error_and_costs_no_trace(tmp_path):
    there = tmp_path / "t/processes/1.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text("", encoding="utf-8")

    with pytest.raises(SpecError) as forced:
        pipeline.trace(["./nothing"], TraceOptions(output=tmp_path / "t", force=True))
    with pytest.raises(SpecError) as caught:
        pipeline.trace([str(tmp_path)], TraceOptions(output=tmp_path / "new"))

    hint = "\nhint: name a program as a shell takes it: tritune trace -- python train.py"
    assert str(forced.value) == f"./nothing: it cannot be run: No such file or directory{hint}"
    assert str(caught.value) == f"{tmp_path}: it cannot be run: Permission denied{hint}"
    assert there.exists()
    assert not (tmp_path / "new").exists()


def test_a_script_that_cannot_be_run_by_itself_is_run_by_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "t/processes/1.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text("kept", encoding="utf-8")
    (there.parent / "started").touch()
    script = tmp_path / "my train.py"
    script.write_bytes(b"\x00")
    options = TraceOptions(output=tmp_path / "t", force=True)

    with pytest.raises(SpecError) as plain:
        pipeline.trace(["my train.py"], options)
    script.chmod(0o755)
    with pytest.raises(SpecError) as executable:
        pipeline.trace(["./my train.py"], options)

    assert str(plain.value) == (
        "my train.py: it cannot be run: Permission denied\n"
        "hint: tritune trace -- python 'my train.py'"
    )
    assert str(executable.value) == (
        "./my train.py: it cannot be run: Exec format error\n"
        "hint: tritune trace -- python './my train.py'"
    )
    assert there.read_text(encoding="utf-8") == "kept"
    assert (there.parent / "started").exists()


def test_an_interrupt_before_the_program_begins_costs_no_trace(tmp_path, monkeypatch):
    there = tmp_path / "t/processes/1.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text("kept", encoding="utf-8")
    (there.parent / "started").touch()

    def interrupted(*_: object, **__: object) -> None:
        assert not there.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.trace(["true"], TraceOptions(output=tmp_path / "t", force=True))

    assert there.read_text(encoding="utf-8") == "kept"
    assert sorted(path.name for path in there.parent.iterdir()) == ["1.jsonl", "started"]


def test_a_last_trace_that_cannot_be_put_back_is_one_error_and_lies_aside(tmp_path, monkeypatch):
    there = tmp_path / "t/processes/1.jsonl"
    there.parent.mkdir(parents=True)
    there.write_text("kept", encoding="utf-8")
    replace_ = Path.replace

    def moved(path: Path, target: Path) -> Path:
        if path.parent.name == "old":
            raise OSError(errno.EIO, "Input/output error")
        return replace_(path, target)

    script = tmp_path / "script"
    script.write_bytes(b"\x00")
    script.chmod(0o755)
    monkeypatch.setattr(Path, "replace", moved)
    with pytest.raises(EnvironmentFaultError) as caught:
        pipeline.trace([str(script)], TraceOptions(output=tmp_path / "t", force=True))

    assert str(caught.value) == f"{there.parent}: cannot be written: Input/output error"
    assert (there.parent / "old/1.jsonl").read_text(encoding="utf-8") == "kept"


def test_a_folder_with_no_trace_is_an_error(tmp_path):
    with pytest.raises(SpecError) as caught:
        pipeline.trace([], TraceOptions(output=tmp_path))

    assert str(caught.value) == (
        f"{tmp_path}: there is no trace in it\nhint: tritune trace -- python train.py writes one"
    )


KEPT_OUT = "(python -I, -E and -S, and a child with an environment of its own, keep it out)"


BROKEN_GRAPH = """\
import os
os.environ["TRITON_INTERPRET"] = "0"
import torch, torch.utils._triton
torch.utils._triton.has_triton = lambda *_: True
import triton, triton.language as tl
from triton.runtime.jit import JITFunction
import standin

JITFunction.run = lambda self, *args, grid, warmup, **named: print("ran", named["B"])

@triton.autotune([triton.Config({"B": 16})], key=["n"])
@triton.jit
def filled(x, n, B: tl.constexpr):
    tl.store(x, n)

def op(x):
    filled[(1,)]((x, 3), 8)  # no tuple is an argument to torch.compile: it breaks the graph
    return x + 1

torch.compile(op, backend="eager")(torch.zeros(8))
"""


def test_a_launch_where_torch_compile_breaks_a_graph_is_counted_and_nothing_else(tmp_path):
    folder = project(tmp_path, program=BROKEN_GRAPH)

    done = tritune_(folder, "trace", sys.executable, "program.py")

    assert (done.returncode, done.stdout) == (0, "ran 16\n"), done.stderr
    assert counted(folder / "traced") == {("program:filled", "n=8 x=(f32,int)"): 1}


def test_a_program_that_launches_nothing_says_so(tmp_path):
    done = tritune_(tmp_path, "trace", sys.executable, "-c", "import triton; print('hello')")

    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == "no process launched a tunable kernel\n"


def test_a_program_that_the_tracer_never_started_in_is_told_from_one_that_launches_nothing(
    tmp_path,
):
    child = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', ''], env={})"
    words = {"out": ("-E", "-c", ""), "child": ("-c", child), "out again": ("-I", "-c", "")}

    done = {
        name: tritune_(tmp_path, "trace", "--force", "--", sys.executable, *some)
        for name, some in words.items()
    }
    again = tritune_(tmp_path, "trace")

    never = f"no process launched a tunable kernel: the tracer started in none {KEPT_OUT}\n"
    assert {name: one.stderr for name, one in done.items()} == {
        "out": never,
        "child": (
            "no process launched a tunable kernel: "
            f"the tracer ran, but no process that it ran in imported Triton {KEPT_OUT}\n"
        ),
        "out again": never,
    }
    assert again.stderr == never
    assert json.loads((tmp_path / "traced/report.json").read_bytes())["reached"] is None


def test_a_signal_is_passed_on_and_the_report_still_comes(tmp_path):
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    words = [sys.executable, "-m", "tritune", "trace", "--", sys.executable, "-c", code]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout.readline() == b"up\n"
        running.terminate()
        _, said = running.communicate(timeout=60)

    assert running.returncode == 5
    assert said == (
        b"no process launched a tunable kernel: the tracer ran, "
        b"but no process that it ran in imported Triton " + KEPT_OUT.encode() + b"\n"
        b"the program ended with exit code 5, and the trace ends there\n"
    )


def test_files_that_a_shell_has_opened_for_the_program_are_open_in_it(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"opened")
    os.close(writing)
    code = f"import os; print(os.read({reading}, 9))"

    done = subprocess.run(
        [sys.executable, "-m", "tritune", "trace", "--", sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        pass_fds=[reading],
        capture_output=True,
        check=False,
    )
    os.close(reading)

    assert (done.returncode, done.stdout) == (0, b"b'opened'\n")


def test_a_terminal_that_interrupts_the_program_itself_is_known_wherever_input_is_from(tmp_path):
    """Then an interrupt is not passed on: a program would get it twice, in its own clean-up."""
    code = "from tritune.pipeline import tracing; print(tracing._is_in_front())"
    ours, theirs = pty.openpty()
    ask = functools.partial(
        subprocess.run,
        ["sh", "-c", f"exec {shlex.quote(sys.executable)} -c '{code}' < /dev/null"],
        env=environment(tmp_path),
        stdin=theirs,
        capture_output=True,
        start_new_session=True,
        check=True,
    )

    with_one = ask(preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    without = ask()
    os.close(ours)
    os.close(theirs)

    assert (with_one.stdout, without.stdout) == (b"True\n", b"False\n")


def test_a_sitecustomize_of_the_users_still_runs(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("print('customized')", encoding="utf-8")

    done = tritune_(tmp_path, "trace", "--", sys.executable, "-c", "import sitecustomize as s; s")

    assert "customized" in done.stdout.splitlines()


def test_an_old_python_of_the_programs_can_read_what_starts_the_tracer():
    text = (ROOT / "tritune/tracing/startup/sitecustomize.py").read_text(encoding="utf-8")

    read = ast.parse(text, feature_version=(3, 6))

    assert not [one for one in read.body if "__future__" in ast.unparse(one)]


def test_a_program_whose_triton_is_too_old_runs_and_is_told_not_to_be_traced(tmp_path):
    (tmp_path / "site/triton").mkdir(parents=True)
    (tmp_path / "site/triton/__init__.py").write_text('__version__ = "2.1.0"', encoding="utf-8")
    code = "import os, triton; print(os.getpid(), triton.__version__)"

    done = tritune_(tmp_path, "trace", "--", sys.executable, "-c", code)

    process, version = done.stdout.split()
    assert (done.returncode, version) == (0, "2.1.0")
    why = "ImportError(\"cannot import name 'knobs' from "
    assert done.stderr.startswith(f"tritune trace: process {process} is not traced: {why}")


def test_a_kernel_with_our_line_gets_rows_and_keys_that_a_sweep_takes(tmp_path):
    folder = project(tmp_path, train=OURS, ops=OPS, helpers=HELPERS)

    done = tritune_(folder, "trace", "--", sys.executable, "train.py")

    assert done.returncode == 0, done.stderr
    lines = (folder / "traced/keys.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kernel": "ops:scale_kernel", "key": "n=100 x=f32 y=f32", "count": 2},
        {"kernel": "ops:scale_kernel", "key": "n=1000 x=f32 y=f32", "count": 1},
        {"kernel": "ops:scale_kernel", "key": "n=99 x=f32(unaligned) y=f32", "count": 1},
    ]
    assert (folder / "traced/scale_kernel.yaml").read_text(encoding="utf-8") == (
        "# What ops:scale_kernel was launched on, as `tritune trace` saw it.\n"
        "kernel: ../ops.py:scale_kernel\n"
        "# targets: [H200]  # the GPUs it ships on; needed where a sweep has no GPU\n"
        "# A first guess around what the kernel runs with now: widen it, or narrow it.\n"
        "space:\n"
        "  BLOCK: [128, 256, 512]\n"
        "  num_warps: [2, 4, 8]\n"
        "shapes:\n"
        '  - {"n": 100, "dtype": "float32"}\n'
        '  - {"n": 1000, "dtype": "float32"}\n'
        "# Left out: n=99 x=f32(unaligned) y=f32: "
        "a tensor of it is unaligned, and a problem cannot ask for that\n"
    )
    assert done.stderr.splitlines()[-4:] == [
        (
            "left out of traced/scale_kernel.yaml: n=99 x=f32(unaligned) y=f32: "
            "a tensor of it is unaligned, and a problem cannot ask for that"
        ),
        (
            "the space of traced/scale_kernel.yaml is a guess around the only config that "
            "ops:scale_kernel lists: widen it, or narrow it"
        ),
        "next: tritune sweep traced/scale_kernel.yaml",
        "then: nothing, as the sweep writes the own lockfile of ops:scale_kernel",
    ]
    shown = tritune_(folder, "show", "space", "--target", "H200", "traced/scale_kernel.yaml")
    assert shown.returncode == 0, shown.stderr


def test_a_kernel_with_a_sweep_file_in_the_project_is_swept_by_that(tmp_path):
    folder = project(tmp_path, train=OURS, ops=OPS, helpers=HELPERS)
    (folder / "sweeps").mkdir()
    (folder / "sweeps/my scale.yaml").write_text(SWEEP, encoding="utf-8")
    (folder / "sweeps/broken.yaml").write_text("kernel: [", encoding="utf-8")
    (folder / "older/processes").mkdir(parents=True)
    (folder / "older/scale.yaml").write_text(SWEEP, encoding="utf-8")
    (folder / "pyproject.toml").write_text(
        '[tool.tritune]\nsweeps = ["**/*.yaml"]\n', encoding="utf-8"
    )

    done = tritune_(folder, "trace", "--", sys.executable, "train.py")

    assert done.stderr.splitlines()[-3:] == [
        "no sweep file for ops:scale_kernel: it has sweeps/my scale.yaml",
        "next: tritune sweep 'sweeps/my scale.yaml' --shapes-from traced/keys.jsonl",
        "then: nothing, as the sweep writes the own lockfile of ops:scale_kernel",
    ]
    assert not (folder / "traced/scale_kernel.yaml").exists()


def test_a_kernel_that_the_program_itself_holds_is_warned_of_unless_it_is_guarded(tmp_path):
    code = FILL_SCRIPT + "for _ in range(3):\n    run()\n"
    guarded = FILL_SCRIPT + 'if __name__ == "__main__":\n    run()\n'
    folder = project(tmp_path, train=code, guarded=guarded)

    said = [
        tritune_(folder, "trace", "--output", name, "--", sys.executable, f"{name}.py").stderr
        for name in ("train", "guarded")
    ]

    warning = (
        "train:filled is in the program itself, which a sweep imports and so runs again: "
        'put what it runs under `if __name__ == "__main__":`, '
        "or the kernel into a module of its own and trace it again"
    )
    assert said[0].splitlines()[-3:-2] == [warning]
    assert "in the program itself" not in said[1]
    assert (folder / "train/filled.yaml").read_text(encoding="utf-8").splitlines()[:3] == [
        f"# Launches of train:filled, as `tritune trace` saw them; of {folder}/train.py.",
        (
            "# It is in the program itself, which a sweep imports and so runs again: "
            "put what it runs under"
        ),
        (
            '# `if __name__ == "__main__":`, '
            "or the kernel into a module of its own and trace it again."
        ),
    ]
    assert "a sweep imports" not in (folder / "guarded/filled.yaml").read_text(encoding="utf-8")


def test_a_kernel_of_the_program_that_only_spawned_processes_launch_is_imported_from_it(tmp_path):
    code = FILL_SCRIPT + (
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=run)\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    folder = project(tmp_path, train=code)

    done = tritune_(folder, "trace", "--", sys.executable, "train.py")

    assert done.stderr.startswith("1 process launched 1 kernel 1 time\n")
    assert (folder / "traced/traced_filled.py").read_text(encoding="utf-8").splitlines()[12:14] == [
        'sys.path.append(str(Path(__file__).parent / ".."))  # of train',
        (
            "from train import filled"
            '  # a script: what it runs belongs under `if __name__ == "__main__":`'
        ),
    ]


# --- inside a process ---------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _world(plain_world, monkeypatch):
    monkeypatch.setattr(driver, "_active", FakeDriver())
    test_adopt.timed.calls = 0
    installing.uninstall()  # another test of this process may have left something routed
    before = vars(Autotuner)["run"]
    yield
    installing.uninstall()
    assert vars(Autotuner)["run"] is before


@pytest.fixture
def tracing(tmp_path):
    """A recorder in place, and a function that gives what it counted."""
    made = recorder.Recorder(str(tmp_path))
    route = Route(functools.partial(wrapping.traced, made))
    route.begin()

    def found() -> dict[str, int]:
        made.flush()
        kernels = tracelog.read(tmp_path).kernels
        return {f"{k.name} {one.key}": one.count for k in kernels for one in k.launches}

    yield SimpleNamespace(recorder=made, counts=found, route=route, folder=tmp_path)
    installing.uninstall()
    route.end()


def key(n=8, flag=1, x="f32"):
    return f"{FILL} n={n} FLAG={flag} x={x} y=i32"


def test_equal_launches_are_one_key_and_what_a_winner_depends_on_another(tracing):
    one = fill()

    for n in (8, 8, 9):
        ran(one, n)
    ran(one, dtype=torch.float16)
    ran(one, flag=2)
    y = torch.zeros(1, dtype=torch.int32)
    one[(1,)](torch.zeros(8, 4).t(), y, 8, 1)
    one[(1,)](torch.zeros(33)[1:], y, 8, 1)
    one[(1,)](n=8, y=y, FLAG=1, x=torch.zeros(8))
    one[(1,)](None, y, 8, 1)

    assert tracing.counts() == {
        key(): 3,
        key(9): 1,
        key(x="f16"): 1,
        key(flag=2): 1,
        key(x="f32(dim0)"): 1,
        key(x="f32(unaligned)"): 1,
        f"{FILL} n=8 FLAG=1 y=i32": 1,
    }


def test_tuning_counts_as_the_one_launch_that_it_is(tracing):
    ran(fill())

    assert (tracing.counts(), test_adopt.timed.calls) == ({key(): 1}, 3)


def test_a_launch_through_a_class_of_its_own_counts_once(tracing):
    class Cached(Autotuner):
        def run(self, *args, **kwargs):
            return super().run(*args, **kwargs)

    one = fill(test_adopt.configs(16, 32), kind=Cached)

    assert (ran(one), ran(one)) == (32, 32)
    assert tracing.counts() == {key(): 2}


@pytest.mark.parametrize("first", [True, False])
def test_a_kernel_that_is_served_counts_once_whichever_came_first(tmp_path, tracing, first):
    one = fill()
    path = locked(
        tmp_path / "t.lock", {"n=8 FLAG=1 x=f32 y=i32": test_adopt.config(16)}, kernel=FILL
    )
    if first:
        tracing.route.end()
    tritune.install(path)
    if first:
        tracing.route.begin()

    assert (ran(one), ran(one), ran(one, 9)) == (16, 16, 64)
    assert tracing.counts() == {key(): 2, key(9): 1}
    assert adopt.is_routing()


def test_launches_of_several_threads_are_all_counted(tracing, monkeypatch):
    # The interpreter changes `triton.language` while it runs: one at a time in there.
    interpret, inside = InterpretedFunction.run, threading.Lock()

    def one_at_a_time(self, *args, **kwargs):
        with inside:
            return interpret(self, *args, **kwargs)

    monkeypatch.setattr(InterpretedFunction, "run", one_at_a_time)
    one = fill(test_adopt.configs(16))
    ran(one)

    threads = [threading.Thread(target=lambda: [ran(one) for _ in range(25)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert tracing.counts() == {key(): 101}


def test_with_tritune_off_a_kernel_with_our_line_is_its_autotuner_and_counts_once(
    tracing, monkeypatch
):
    monkeypatch.setenv("TRITUNE", "off")
    ours = tritune.kernel(fill(test_adopt.configs(16)))

    assert (ran(ours), ran(ours)) == (16, 16)
    assert tracing.counts() == {key(): 2}


def test_a_fork_begins_anew(tracing):
    one = fill(test_adopt.configs(16))
    ran(one), ran(one)
    tracing.recorder.flush()

    tracing.recorder.forget()
    ran(one)

    assert tracing.counts() == {key(): 3}
    assert len(list(tracing.folder.glob("*.jsonl"))) == 2


def test_a_fork_frees_nothing_that_its_parent_has_of_the_gpu(tracing, on_gpu):
    one = fill(test_adopt.configs(16), kind=Launched)
    ran(one), ran(one)
    [(_, around, _)] = tracing.recorder.clock._pending
    ours = weakref.ref(around.start)
    del around

    tracing.recorder.forget()
    gc.collect()

    assert ours() is not None
    assert not tracing.recorder.clock._pending


def test_a_launch_that_fails_is_there_and_fails_as_before(tracing):
    with pytest.raises(ValueError, match="Conflicting meta-parameters: B"):
        ran(fill(), B=16)

    assert tracing.counts() == {key(): 1}


def test_what_cannot_be_told_apart_is_named_and_runs(tracing, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(recorder, "Traced", broken)

    assert ran(fill()) == 64
    assert tracelog.read(tracing.folder).untraced == (("filled", "RuntimeError: out of luck"),)


def test_a_folder_that_cannot_be_written_is_said_once_and_the_program_goes_on(tmp_path, caplog):
    made = recorder.Recorder(str(tmp_path / "gone"))
    route = Route(functools.partial(wrapping.traced, made))
    route.begin()
    try:
        assert (ran(fill()), ran(fill(), 9)) == (64, 64)
    finally:
        route.end()

    gone = tmp_path / "gone"
    why = f"[Errno 2] No such file or directory: '{made.file}'"
    assert caplog.messages == [f"tritune trace: cannot write in {gone}: {why}"]


def test_plain_jit_functions_are_counted_where_all_are_asked_for(tmp_path):
    code = (
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def plain(x, B: tl.constexpr):\n"
        "    tl.store(x, B)\n"
        "for _ in range(3):\n"
        "    plain[(1,)](torch.zeros(1), B=4)\n"
    )
    (tmp_path / "train.py").write_text(code, encoding="utf-8")

    done = tritune_(tmp_path, "trace", "--all", "--", sys.executable, "train.py")

    assert counted(tmp_path / "traced") == {("train:plain", "B=4 x=f32"): 3}
    assert (
        "no sweep file for train:plain: it has no autotuner: tritune init says what it lacks"
        in done.stderr.splitlines()
    )


# --- the clock ----------------------------------------------------------------------------


class FakeEvent:
    """Passed when it is told to; 10 µs from start to end."""

    passed = True

    def __init__(self, *, enable_timing: bool = False) -> None:
        self.recorded = 0

    def record(self) -> None:
        self.recorded += 1

    def query(self) -> bool:
        return FakeEvent.passed

    def elapsed_time(self, end: FakeEvent) -> float:
        assert (self.recorded, end.recorded) == (1, 1)
        self.recorded = end.recorded = 0
        return 0.010


@pytest.fixture
def on_gpu(monkeypatch):
    """What the clock asks of torch; launches call Triton's hooks, as on a GPU they do."""
    said = SimpleNamespace(capturing=False)
    monkeypatch.setattr(FakeEvent, "passed", True)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(silicon, "_names", lambda index: ("NVIDIA H100",))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: said.capturing)
    return said


def hooked(launches: int = 1):
    for _ in range(launches):
        knobs.runtime.launch_enter_hook({})
        knobs.runtime.launch_exit_hook({})


def timed(tracing) -> tuple[int, int, float | None]:
    tracing.recorder.flush()
    [one] = tracelog.read(tracing.folder).kernels[0].launches
    return one.count, one.timed, one.total_us


class Launched(Autotuner):
    """Calls the hooks of Triton's launches, which its interpreter does not."""

    def run(self, *args, **kwargs):
        hooked()
        return super().run(*args, **kwargs)


def test_some_launches_are_timed_and_the_total_is_of_all(tracing, on_gpu):
    one = fill(test_adopt.configs(16), kind=Launched)
    for _ in range(100):
        ran(one)

    count, some, total_us = timed(tracing)

    assert (count, total_us) == (100, pytest.approx(1000.0))
    assert 8 < some < 13
    assert not knobs.runtime.launch_enter_hook.calls
    assert not knobs.runtime.launch_exit_hook.calls


def test_a_first_launch_which_may_tune_is_not_timed(tracing, on_gpu):
    ran(fill(test_adopt.configs(16), kind=Launched))

    assert timed(tracing) == (1, 0, None)


def test_nothing_is_waited_for(tracing, on_gpu):
    FakeEvent.passed = False
    one = fill(test_adopt.configs(16), kind=Launched)
    for _ in range(5):
        ran(one)

    assert timed(tracing) == (5, 0, None)
    FakeEvent.passed = True
    assert timed(tracing) == (5, 3, pytest.approx(50.0))


def test_no_event_is_recorded_while_a_graph_is_captured(tracing, on_gpu, monkeypatch):
    one = fill(test_adopt.configs(16), kind=Launched)
    ran(one)
    on_gpu.capturing = True
    monkeypatch.setattr(torch.cuda, "Event", None)

    assert [ran(one) for _ in range(3)] == [16, 16, 16]

    tracing.recorder.flush()
    [launch] = tracelog.read(tracing.folder).kernels[0].launches
    assert (launch.count, launch.timed, launch.captured) == (4, 0, True)


def test_of_several_launches_in_one_the_last_is_timed():
    around = clock._Around(*(SimpleNamespace(record=lambda: None) for _ in range(2)))

    with around.hooked():
        hooked(2)

    assert around.has_ended


# --- files --------------------------------------------------------------------------------


def lines(folder: Path, name: str, *said: object) -> None:
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in said)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


ABOUT = {
    "kernel": "a:k",
    "kind": "autotuned",
    "file": "/src/a.py",
    "line": 3,
    "attribute": "a:k",
    "hops": 0,
    "params": ["x", "n"],
    "configs": 2,
    "problem": None,
}
PROCESS = {"process": 1, "rank": "0", "program": ["python"], "triton": "3.9.0", "device": ""}


def test_ranks_add_up_and_a_line_that_is_cut_off_is_told(tmp_path):
    fact = {"kernel": "a:k", "key": "n=1", "launch": 0, "args": [], "kwargs": {}, "grid": {}}
    lines(tmp_path, "7-1", PROCESS, ABOUT, fact, {"counts": {"0": [10, 2, 8.0, False]}}, '{"cou')
    lines(tmp_path, "8-2", PROCESS, ABOUT, fact, {"counts": {"0": [30, 2, 4.0, True]}})

    found = tracelog.read(tmp_path)

    [launch] = found.kernels[0].launches
    assert (launch.count, launch.timed, launch.total_us, launch.captured) == (40, 4, 120.0, True)
    assert (len(found.processes), found.cut) == (2, ("7-1.jsonl:5",))


def tensor(*shape, stride=None, dtype="float32", storage=0, offset=0, **more):
    steps = stride or [int(torch.tensor(shape[at + 1 :]).prod()) for at in range(len(shape))]
    said = {"is": "tensor", "dtype": dtype, "shape": list(shape), "stride": list(steps)}
    return {**said, "storage": storage, "offset": offset, "align": 0, "room": 0, **more}


def kernel(*args, grid=None, **more) -> TracedKernel:
    facts = {"args": list(args), "kwargs": {}, "grid": grid or {"fixed": [1]}}
    launch = TracedLaunch(key="n=1", count=3, facts=json.dumps(facts))
    about = {
        "name": "a.b:scale",
        "kind": "autotuned",
        "file": "/src/a/b.py",
        "line": 1,
        "attribute": "a.b:scale",
        "hops": 0,
        "params": tuple("xyzuvw"),
        "configs": 2,
        "problem": None,
        "launches": (launch,),
    }
    return TracedKernel(**{**about, **more})


def rebuilt(*args, grid=None, **more) -> tuple[tuple, tuple[int, ...]]:
    """The arguments that a generated module launches with, and the grid for `B=2`."""
    made = kernel(*args, grid=grid, **more)
    text = retrace.module(made, made.launches, "scale", Path("/src/traced"))
    caught = {}

    class Kernel:
        def __getitem__(self, grid):
            caught["grid"] = grid({"B": 2}) if callable(grid) else grid
            return lambda *args: caught.setdefault("args", args)

    code = text.replace("from a.b import scale\n", "").replace("kernel = scale\n", "")
    names = {"kernel": Kernel(), "__file__": "/src/traced/traced_scale.py"}
    before = list(sys.path)
    exec(compile(code, "traced_scale.py", "exec"), names)  # noqa: S102
    sys.path[:] = before
    names["LAUNCHES"][1]()()
    return caught["args"], caught["grid"]


def test_tensors_are_as_they_were_by_shape_stride_dtype_and_alignment():
    (x, y), grid = rebuilt(
        tensor(2, 3, stride=[1, 4], dtype="float16"),
        tensor(5, storage=1, dtype="float8_e5m2", align=3),
        grid={"fixed": [4, 2]},
    )

    assert (x.shape, x.stride(), x.dtype) == ((2, 3), (1, 4), torch.float16)
    assert (y.shape, y.dtype, y.data_ptr() % 16, grid) == ((5,), torch.float8_e5m2, 3, (4, 2))


def test_views_of_one_storage_share_it_again_and_those_far_apart_do_not():
    (x, y, z), _ = rebuilt(
        tensor(4, 8, stride=[24, 1]),
        tensor(4, 8, stride=[24, 1], offset=8),
        tensor(3, offset=1 << 40),
    )

    assert y.data_ptr() - x.data_ptr() == 32
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    assert z.untyped_storage().nbytes() == 12


def test_what_lies_behind_a_view_is_there_if_it_is_not_much_more():
    (x, y), _ = rebuilt(tensor(4, room=10), tensor(4, storage=1, room=10_000))

    assert (x.untyped_storage().nbytes(), y.untyped_storage().nbytes()) == (40, 16)


def test_integers_are_what_was_seen_or_in_its_range_or_zero():
    (x, y, z, u), _ = rebuilt(
        tensor(3, dtype="int32", values=[0, 5, 9]),
        tensor(500, dtype="int64", storage=1, range=[3, 4]),
        tensor(3, dtype="int32", storage=2),
        tensor(500, dtype="uint8", storage=3),
    )

    assert x.tolist() == [0, 5, 9]
    assert set(y.tolist()) == {3, 4}
    assert z.tolist() == [0, 0, 0]
    assert int(u.max()) > 64


def test_an_empty_tensor_and_the_largest_integers_are_made_again():
    (x, y, z), _ = rebuilt(
        tensor(0, room=0),
        tensor(500, dtype="int64", storage=1, range=[5, 2**63 - 1]),
        tensor(500, dtype="int64", storage=2, range=[2**63 - 1, 2**63 - 1]),
    )

    assert (x.shape, x.dtype) == ((0,), torch.float32)
    assert int(y.min()) >= 5
    assert set(z.tolist()) == {2**63 - 2}


def test_arguments_are_told_from_what_a_problem_calls_its_own():
    (x, y, z), _ = rebuilt(
        tensor(1),
        tensor(2, storage=1),
        tensor(3, storage=2),
        params=("held", "copied", "TensorDescriptor"),
    )

    assert [one.numel() for one in (x, y, z)] == [1, 2, 3]


def test_scalars_tuples_dtypes_and_descriptors_are_passed_as_they_were():
    args, _ = rebuilt(
        {"is": "tuple", "items": [{"is": "value", "value": 2}]},
        {"is": "float", "text": "-inf"},
        {"is": "dtype", "text": "torch.bfloat16"},
        {"is": "dtype", "text": "tl.float16"},
        {
            "is": "descriptor",
            "base": tensor(8, 16),
            "shape": [8, 16],
            "stride": [16, 1],
            "block": [4, 8],
        },
        {"is": "value", "value": None},
    )

    assert args[:4] == ((2,), float("-inf"), torch.bfloat16, tl.float16)
    assert (args[4].block_shape, args[4].base.shape, args[5]) == ([4, 8], (8, 16), None)


def test_each_config_launches_on_its_own_grid():
    table = [[{"B": 2, "C": 1}, [8]], [{"B": 4, "C": 1}, [4]], [{"B": 2, "C": 9}, [8]]]

    assert rebuilt(tensor(1), grid={"table": table})[1] == (8,)


def test_why_there_is_no_sweep_file_is_said():
    strange = kernel({"is": "other", "text": "Config"})

    assert tracedraft.why_not(strange) == "it passes a Config, which no file can hold"
    assert tracedraft.why_not(kernel(attribute="")) == (
        "no module holds it, so no other program can import it"
    )
    assert tracedraft.why_not(kernel(name="my-train:k", file="/src/my-train.py")) == (
        "my-train.py is no name that can be imported"
    )
    assert tracedraft.why_not(kernel(grid={"table": []})) == "its grid could not be asked for"
    assert tracedraft.why_not(kernel(kind="decorated", problem=(("causal", False),))) == (
        "its keys do not say all axes of its problems"
    )


def test_of_a_kernel_with_our_line_and_no_sweep_file_the_command_is_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = kernel(kind="decorated", problem=(("causal", False),))

    made = tracefiles.written(
        tracelog.Trace(kernels=(ours,)), 0, "", TraceOptions(output=Path("traced"))
    )

    assert page.plain(traces.report(made)).splitlines()[-2:] == [
        "no sweep file for a.b:scale: its keys do not say all axes of its problems",
        (
            "next, with the kernel's own sweep FILE: "
            "tritune sweep FILE --shapes-from traced/keys.jsonl"
        ),
    ]


OWN = {"name": "ops:own", "kind": "decorated", "file": "/src/ops.py", "configs": 3}


def said_of(folder: Path, *kernels: TracedKernel, **options) -> list[str]:
    """The report of a trace on a GPU, after its tables."""
    ran = tracelog.TracedProcess(
        pid=1, rank="", program=("python",), triton="3.9.0", device="NVIDIA H200"
    )
    found = tracelog.Trace(processes=(ran,), kernels=kernels)

    made = tracefiles.written(found, 0, "", TraceOptions(output=folder, **options))

    return page.plain(traces.report(made)).rpartition("\n\n")[2].splitlines()[1:]


def test_what_a_kernel_with_our_line_locks_is_its_own_and_needs_no_variable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    own = said_of(Path("own"), kernel(problem=(("n", False),), **OWN))
    both = said_of(Path("both"), kernel(), kernel(problem=(("n", False),), **OWN))

    assert own == [
        "next: tritune sweep own/own.yaml",
        "then: nothing, as the sweep writes the own lockfile of ops:own",
    ]
    assert both == [
        "next: tritune sweep both/scale.yaml both/own.yaml",
        (
            'then: tritune.install("both/tritune.lock") where it runs; '
            "TRITUNE_LOCKFILE would turn the own lockfile of ops:own off"
        ),
    ]


def test_paths_in_the_next_steps_are_words_of_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert said_of(Path("my trace"), kernel()) == [
        "next: tritune sweep 'my trace/scale.yaml'",
        "then: TRITUNE_LOCKFILE='my trace/tritune.lock' where it runs",
    ]
    assert said_of(Path("its keys"), kernel(problem=(("causal", False),), **OWN)) == [
        "no sweep file for ops:own: its keys do not say all axes of its problems",
        (
            "next, with the kernel's own sweep FILE: "
            "tritune sweep FILE --shapes-from 'its keys/keys.jsonl'"
        ),
    ]


def test_keys_that_no_row_makes_are_said_a_few_of_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = ["n=1 x=f32", *(f"n={n} x=f32(unaligned)" for n in range(2, 7)), "x=f32"]
    launches = tuple(TracedLaunch(key=key, count=1) for key in keys)

    said = said_of(Path("t"), kernel(problem=(("n", False),), **OWN | {"launches": launches}))
    none = said_of(Path("u"), kernel(problem=(("n", False),), **OWN | {"launches": launches[1:2]}))

    unaligned = "a tensor of it is unaligned, and a problem cannot ask for that"
    assert said[:4] == [
        *(f"left out of t/own.yaml: n={n} x=f32(unaligned): {unaligned}" for n in (2, 3, 4)),
        "left out of t/own.yaml: 3 keys more, listed there",
    ]
    assert (tmp_path / "t/own.yaml").read_text(encoding="utf-8").splitlines()[-1] == (
        "# Left out: x=f32: it does not say `n`"
    )
    assert none[0] == f"no sweep file for ops:own: {unaligned}"


def test_a_kernel_with_our_line_and_no_problem_function_is_told_so():
    assert tracedraft.why_not(kernel(**OWN)) == (
        "it has no problem function: tritune init writes one to fill in"
    )


def test_words_and_folders_that_are_no_utf_8_are_told_and_found_again(tmp_path):
    program = ("python", "caf\udce9")
    ran = tracelog.TracedProcess(pid=1, rank="", program=program, triton="3.9.0", device="")
    named = kernel(file=f"{tmp_path}/caf\udce9/a/b.py")

    made = tracefiles.written(
        tracelog.Trace(processes=(ran,), kernels=(named,)), 0, "", TraceOptions(output=tmp_path)
    )

    text = traces.report_json(made).encode().decode()
    assert json.loads(text)["processes"][0]["program"] == [*program]
    module = (tmp_path / "traced_scale.py").read_text(encoding="utf-8")
    assert 'sys.path.append(str(Path(__file__).parent / "caf\\udce9"))  # of a.b' in module


def test_two_kernels_of_one_name_have_files_of_their_own():
    named = list(
        tracefiles._named([kernel(), kernel(name="c:scale"), kernel(name="d:f.<locals>.g")])
    )

    assert [short for _, short in named] == ["scale", "scale_2", "g"]


def test_the_flush_is_not_put_off_for_longer_than_a_second(tracing, monkeypatch):
    one = fill(test_adopt.configs(16))
    ran(one)
    now = time.monotonic() + 2
    monkeypatch.setattr(recorder.time, "monotonic", lambda: now)

    ran(one)

    [launch] = tracelog.read(tracing.folder).kernels[0].launches
    assert launch.count == 2


def written(folder: Path) -> list[dict[str, list[object]]]:
    """The lines of counts, in their order."""
    [path] = folder.glob("*.jsonl")
    said = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [line["counts"] for line in said if "counts" in line]


def test_counts_are_written_ever_more_seldom_and_those_that_have_changed(tracing, monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(recorder.time, "monotonic", lambda: now)
    monkeypatch.setattr(recorder, "MOST", 0)
    one, idle = fill(test_adopt.configs(16)), 9
    ran(one, idle)
    for _ in range(1000):
        now += 1.0
        ran(one)

    lines = written(tracing.folder)

    assert 200 < len(lines) < 400
    assert [list(line) for line in lines[:2]] == [["0", "1"], ["1"]]
    assert lines[-1]["1"][0] >= 990
    assert tracing.counts() == {key(): 1000, key(idle): 1}


def test_counts_that_a_full_disk_cut_off_are_written_again(tracing, monkeypatch):
    one, opened = fill(test_adopt.configs(16)), Path.open

    @contextlib.contextmanager
    def open_(path: Path, *how, **more):
        with opened(path, *how, **more) as file:

            def write(text: str) -> None:
                file.write(text[:9])
                raise OSError(errno.ENOSPC, "No space left on device")

            yield SimpleNamespace(write=write)

    ran(one), ran(one, 9)
    tracing.recorder.flush()
    ran(one), ran(one, 9)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_)
        tracing.recorder.flush()
    ran(one)

    assert tracing.counts() == {key(): 3, key(9): 2}


def test_a_key_that_two_threads_launch_first_is_one(tracing, monkeypatch):
    class Late(dict):
        """What another thread has put there is not seen at first."""

        def get(self, name, default=None):
            return default

    one = fill(test_adopt.configs(16))
    ran(one, 9)
    traced = vars(one)[recorder.SLOT]
    traced.launches = Late(traced.launches)
    ran(one)
    traced.forms.clear()
    ran(one)

    assert tracing.counts() == {key(9): 1, key(): 2}


def test_the_key_of_launches_under_too_many_keys_is_asked_for_once(tracing, monkeypatch):
    asked, text = [], keys.text
    monkeypatch.setattr(keys, "text", lambda *said: asked.append(said) or text(*said))
    monkeypatch.setattr(traced, "KEYS", 2)
    one = fill(test_adopt.configs(16))

    for n in (1, 2, 3, 4) * 2:
        ran(one, n)

    assert len(asked) == 4
    assert tracing.counts() == {key(1): 2, key(2): 2, f"{FILL} ": 4}


def doubled(x):
    return x * 2


def test_a_jit_function_that_is_passed_is_named_in_the_interpreter_too():
    said = [facts.Facts().of(kind(doubled)) for kind in (InterpretedFunction, JITFunction)]

    assert said == [{"is": "function", "text": "test_trace:doubled"}] * 2


def test_a_dtype_of_tritons_that_is_passed_is_named_as_a_program_names_it():
    names = [
        *("int1", "int8", "int64", "uint32", "float16", "bfloat16", "float32", "float64"),
        *("float8e4nv", "float8e4b8", "float8e4b15", "float8e5", "float8e5b16"),
    ]

    said = [facts.Facts().of(getattr(tl, name))["text"] for name in names]

    assert said == [f"tl.{name}" for name in names]


class SeesFunctions(TorchFunctionMode):
    """As a default device is."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


class SeesOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def test_no_mode_of_the_programs_sees_what_is_asked_of_tensors(tracing):
    def seen(mode, n) -> list[object]:
        with mode:
            one[(1,)](x, y, n, 1)
        return mode.seen

    one = fill(test_adopt.configs(16))
    x, y = torch.zeros(8), torch.zeros(600, dtype=torch.int32)
    one[(1,)](x, y, 8, 1)
    known, new = seen(SeesFunctions(), 8), seen(SeesOperators(), 9)
    tracing.route.end()

    assert (known, new) == (seen(SeesFunctions(), 8), seen(SeesOperators(), 10))
    assert known
    assert new
    facts = [json.loads(each.facts) for each in tracelog.read(tracing.folder).kernels[0].launches]
    assert [each["args"][1]["range"] for each in facts] == [[0, 0], [0, 16]]


def test_what_a_launch_raises_names_nothing_of_ours(tracing, monkeypatch):
    class Cached(Autotuner):
        def run(self, *args, **kwargs):
            return super().run(*args, **kwargs)

    def broken(*_):
        raise RuntimeError("out of luck")

    ways = itertools.product((Autotuner, Cached), (recorder.Traced, broken))
    for kind, known in ways:
        monkeypatch.setattr(recorder, "Traced", known)
        with pytest.raises(ValueError, match="Conflicting meta-parameters: B") as caught:
            ran(fill(test_adopt.configs(16, 32), kind=kind), B=16)

        assert caught.value.__context__ is None


def test_triton_is_as_it_was_after_a_route_has_ended():
    before = vars(Autotuner).copy()
    route = Route(lambda kind, own: functools.partialmethod(own))

    route.begin()
    changed = vars(Autotuner)["run"] is not before["run"]
    route.end()

    assert changed
    assert vars(Autotuner).copy() == before
    assert triton.__version__

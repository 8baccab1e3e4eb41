"""Loading a kernel's module: what it may be called, what it may do, and what is said of it."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritune.load import describe, load
from tritune.model import Config, KernelInfo
from tritune.workers import Done, Raised, Worker

IMPORTS = """\
import triton
import triton.language as tl
import tritune
"""
KERNEL = """
@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))
@triton.jit
def fill(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), n)
"""
PROBLEM = """
@tritune.problem(fill)
def fill_problem(n, dtype="float16"):
    return tritune.Problem(lambda: None)
"""
MODULE = IMPORTS + KERNEL + PROBLEM


def nothing() -> None:
    """Make no state."""


def info(state: object, kernel: str | None, problem: str | None) -> KernelInfo:
    return describe(load(kernel, problem))


def arguments_and_folder(state: object) -> tuple[list[str], str]:
    return sys.argv[1:], str(Path.cwd())


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.chdir(tmp_path)
    with Worker(nothing, log=tmp_path / "log") as worker:
        yield worker


def written(path: Path, text: str = MODULE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def loaded(child: Worker, kernel: str | None, problem: str | None = None) -> KernelInfo:
    answer = child.call(info, kernel, problem, timeout_s=60)
    assert isinstance(answer, Done), answer
    return answer.value


def mistake(child: Worker, kernel: str | None, problem: str | None = None) -> str:
    answer = child.call(info, kernel, problem, timeout_s=60)
    assert isinstance(answer, Raised), answer
    assert answer.error is not None, answer.traceback
    return str(answer.error)


def test_a_kernel_is_described_in_plain_data(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py")

    found = loaded(child, f"{path}:fill")

    assert found == KernelInfo(
        name="ops:fill",
        file=str(path),
        line=5,
        params=("x", "n", "BLOCK"),
        constexprs=("BLOCK",),
        tunables=("BLOCK", "num_warps"),
        default=Config.of({"BLOCK": 64, "num_warps": 4}),
        configs=(Config.of({"BLOCK": 64, "num_warps": 4}),),
        key=("n",),
        near=None,
        lockfile=str(tmp_path / "tritune.lock"),
        problem=f"{path}:fill_problem",
        problem_line=10,
        problem_params=(("n", False), ("dtype", True)),
        source=found.source,
        problem_source=found.problem_source,
    )


def test_a_kernel_may_be_named_by_its_problem_alone(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py")

    assert loaded(child, None, f"{path}:fill_problem").name == "ops:fill"


def test_the_configs_of_an_autotuned_kernel_are_its_own(child: Worker, tmp_path: Path):
    configs = "triton.Config({'BLOCK': 32}, num_warps=2), triton.Config({'BLOCK': 64}, maxnreg=99)"
    over = f'@triton.autotune([{configs}], key=["n"])'
    text = MODULE.replace('(key=["n"], default=dict(BLOCK=64, num_warps=4))', f"\n{over}")

    found = loaded(child, f"{written(tmp_path / 'ops.py', text)}:fill")

    assert [str(config) for config in found.configs] == [
        "BLOCK=32 maxnreg=none num_stages=3 num_warps=2",
        "BLOCK=64 maxnreg=99 num_stages=3 num_warps=4",
    ]


@pytest.mark.parametrize("name", ["my-kern.v2.py", "statistics.py", "pkg/__init__.py"])
def test_a_file_may_have_any_name(child: Worker, tmp_path: Path, name: str):
    path = written(tmp_path / name)

    assert loaded(child, f"{path}:fill").file == str(path)


@pytest.mark.parametrize("name", ["ops.py", "my-ops.v2.py"])
def test_relative_imports_work_in_a_module_by_path(child: Worker, tmp_path: Path, name: str):
    written(tmp_path / "pkg" / "__init__.py", "")
    written(tmp_path / "pkg" / "common.py", IMPORTS + KERNEL)
    path = written(tmp_path / "pkg" / name, f"{IMPORTS}from .common import fill\n{PROBLEM}")

    assert loaded(child, f"{path}:fill").name == "pkg.common:fill"


def test_a_dotted_module_is_found_from_the_current_folder(child: Worker, tmp_path: Path):
    written(tmp_path / "pkg" / "__init__.py", "")
    written(tmp_path / "pkg" / "ops.py")

    assert loaded(child, "pkg.ops:fill").name == "pkg.ops:fill"


def test_a_kernel_may_be_in_a_zip_file(child: Worker, tmp_path: Path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("zpkg/__init__.py", "")
        archive.writestr("zpkg/ops.py", MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "z.zip"))

    found = loaded(child, "zpkg.ops:fill")

    assert (found.name, found.problem) == ("zpkg.ops:fill", "zpkg.ops:fill_problem")


def test_a_module_that_prints_and_changes_the_folder_and_reads_arguments_is_loaded(
    child: Worker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    lines = "print('hello')\nimport argparse, os\nargparse.ArgumentParser().parse_args()\n"
    path = written(tmp_path / "ops.py", f"{lines}os.chdir('/')\n{MODULE}")

    assert loaded(child, f"{path}:fill").name == "ops:fill"
    assert child.call(arguments_and_folder) == Done(([], str(tmp_path)))
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "log").read_text() == "hello\n"


SCRIPT = 'hint: put what a script does under `if __name__ == "__main__":`'
INSTALL = f"hint: is it installed for {sys.executable}?"
PACKAGE = "hint: put an `__init__.py` beside it, which makes its folder a package"
NO_GPU = (
    "hint: use the GPU inside functions only: a sweep also plans and compiles where there is none; "
    "a package that asks for one at its import can be tuned on a machine with a GPU"
)
IN_A_FILE = "hint: a kernel must be in a Python file: Triton reads its source from there"
WHOLE = "hint: import the module in Python to see the whole traceback"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise SystemExit(3)", f"sys.exit(3) at import\n{SCRIPT}"),
        ("import sys; sys.exit()", f"sys.exit() at import\n{SCRIPT}"),
        (
            "import argparse as a; p = a.ArgumentParser(); p.add_argument('x'); p.parse_args()",
            f"sys.exit(2) at import\n{SCRIPT}",
        ),
        ("1 / 0", f"ZeroDivisionError: division by zero\n{WHOLE}"),
        ("def f(:", f"SyntaxError: invalid syntax\n{WHOLE}"),
        ("import none", f"ModuleNotFoundError: No module named 'none'\n{INSTALL}"),
        (
            "from .common import f",
            f"ImportError: attempted relative import with no known parent package\n{PACKAGE}",
        ),
        ("raise RuntimeError('no NVIDIA driver')", f"RuntimeError: no NVIDIA driver\n{NO_GPU}"),
        (
            "import triton; exec('@triton.jit\\ndef k(x): pass')",
            f"ValueError: @jit functions should be defined in a Python file\n{IN_A_FILE}",
        ),
    ],
)
def test_a_module_that_fails_or_exits_is_said_with_its_line(
    child: Worker, tmp_path: Path, line: str, said: str
):
    path = written(tmp_path / "ops.py", f"import os\n{line}\n{MODULE}")

    assert mistake(child, f"{path}:fill") == f"{path}:2: {said}"


def test_a_module_that_is_no_text_is_named_as_a_whole(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py", f"{MODULE}\0")

    with pytest.raises((SyntaxError, ValueError)) as python:  # 3.11.4 changed which
        compile("\0", "", "exec")
    said = f"{python.type.__name__}: source code string cannot contain null bytes"
    assert mistake(child, f"{path}:fill") == f"{path}: {said}\n{WHOLE}"


def test_a_module_that_sleeps_is_ended_at_the_time_limit(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py", "import time\ntime.sleep(60)\n")
    child.call(arguments_and_folder)

    answer = child.call(info, f"{path}:fill", None, timeout_s=0.5)

    assert str(answer) == "no answer after 0.5 s"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ops.py:fil", "ops.py: it has no `fil`\nhint: did you mean `fill`? its tunable kernels: "),
        ("ops.py:", "ops.py: no name after the module\nhint: its tunable kernels: "),
        ("ops.py:fill_problem", "ops.py: `fill_problem` is a function, not a kernel\nhint: its"),
        ("opps.py:fill", "opps.py: no such file\nhint: did you mean `ops.py`?"),
        (
            "ops.ipynb:fill",
            "ops.ipynb: it is not a Python file\nhint: a kernel must be in a Python",
        ),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    child: Worker, tmp_path: Path, name: str, said: str
):
    written(tmp_path / "ops.py")

    assert mistake(child, f"{tmp_path}/{name}").startswith(f"{tmp_path}/{said}")


def test_a_kernel_that_nobody_decorated_is_among_the_tunable_ones(child: Worker, tmp_path: Path):
    above = "@triton.autotune([triton.Config(dict(BLOCK=64))], key=[])"
    tuned = KERNEL.replace('@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))', above)
    written(tmp_path / "theirs.py", IMPORTS + tuned)
    written(tmp_path / "ops.py", "def op_problem(n):\n    pass\n")

    assert mistake(child, "theirs:fil", f"{tmp_path}/ops.py:op_problem") == (
        f"{tmp_path}/theirs.py: it has no `fil`\n"
        "hint: did you mean `fill`? its tunable kernels: `fill`"
    )


def test_a_dotted_module_that_is_not_there_is_said(child: Worker):
    assert mistake(child, "no_pkg.ops:fill") == (
        "no module named `no_pkg`\n"
        "hint: name it from a folder on PYTHONPATH, or give the path of its file"
    )


def test_a_plain_triton_kernel_is_answered_with_the_lines_to_add(child: Worker, tmp_path: Path):
    jit = KERNEL.replace('@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))\n', "")
    path = written(tmp_path / "ops.py", IMPORTS + jit)

    assert mistake(child, f"{path}:fill") == (
        f"{path}: `fill` is a Triton kernel without its tritune line\n"
        "hint: write above its decorators\n"
        "    import tritune\n"
        '    @tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))'
    )


def test_a_kernel_without_a_problem_is_answered_with_the_line_to_add(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py", IMPORTS + KERNEL)

    assert mistake(child, f"{path}:fill") == (
        f"{path}:5: `fill` has no problem function, so there is nothing to run it on\n"
        "hint: mark the function that makes its inputs with `@tritune.problem(fill)`"
    )


def test_a_problem_of_two_kernels_asks_which(child: Worker, tmp_path: Path):
    other = KERNEL.replace("fill", "clear")
    mark = PROBLEM.replace("@tritune", "@tritune.problem(clear)\n@tritune", 1)
    path = written(tmp_path / "ops.py", IMPORTS + KERNEL + other + mark)

    assert mistake(child, None, f"{path}:fill_problem") == (
        f"`{path}:fill_problem` launches several kernels\nhint: name one of `ops:clear`, `ops:fill`"
    )
    assert loaded(child, "ops:clear", f"{path}:fill_problem").name == "ops:clear"


def test_a_function_that_is_no_problem_is_said(child: Worker, tmp_path: Path):
    path = written(tmp_path / "ops.py", f"def f(n):\n    pass\n{IMPORTS}{KERNEL}")

    assert mistake(child, None, f"{path}:f") == (
        f"{path}:1: `f` is not the problem of any tunable kernel\n"
        "hint: mark it with `@tritune.problem(kernel)`, or name the kernel in the sweep file"
    )


def test_of_the_functions_of_a_module_a_few_are_listed_that_it_defines(
    child: Worker, tmp_path: Path
):
    text = "".join(f"def make_{n}(n):\n    pass\n" for n in range(8))
    path = written(
        tmp_path / "ops.py", f"from os.path import join\ndef _own(): pass\n{text}made = len\n"
    )

    few = ", ".join(f"`make_{n}`" for n in range(6))
    listed = f"its functions: {few} and 3 more"
    assert mistake(child, None, "ops:made") == (
        f"{path}: `made` is a builtin_function_or_method, not a problem function\nhint: {listed}"
    )
    assert mistake(child, None, "ops:maek_3") == (
        f"{path}: it has no `maek_3`\nhint: did you mean `make_3`? {listed}"
    )


def test_a_package_hidden_by_another_is_said(child: Worker, tmp_path: Path):
    written(tmp_path / "json" / "__init__.py", "")
    path = written(tmp_path / "json" / "ops.py")

    assert mistake(child, f"{path}:fill") == (
        f"{path}: `import json` finds {Path(json.__file__).parent}/__init__.py\n"
        "hint: rename the package, or uninstall the other one"
    )

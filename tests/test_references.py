"""What is wrong with a reference is told before any import, and nothing else is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from projects import Project
from tritune import references
from tritune.cli import tritune
from tritune.errors import KernelError

CODE = """
import triton
from helpers import other as renamed

@triton.jit
def first(x): pass

@triton.autotune([], key=[])
@triton.jit
def second(x): pass

def problem(n): pass
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    Path("ops.py").write_text(CODE, encoding="utf-8")
    Path("broken.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "ops.py:frist",
            (
                "{0}/ops.py: it has no `frist`\n"
                "hint: did you mean `first`? its Triton kernels: `first`, `second`"
            ),
        ),
        (
            "ops.py",
            "{0}/ops.py: no name after the module\nhint: its Triton kernels: `first`, `second`",
        ),
        ("opps.py:first", "{0}/opps.py: no such file\nhint: did you mean `ops.py`?"),
        (
            "ops.txt/x:first",
            (
                "{0}/ops.txt/x: it is not a Python file\n"
                "hint: a kernel must be in a Python file: Triton reads its source from there"
            ),
        ),
        (
            "nosuch.ops:first",
            (
                "no module named `nosuch`\n"
                "hint: name it from a folder on PYTHONPATH, or give the path of its file"
            ),
        ),
        (
            "broken.py:f",
            (
                "{0}/broken.py:2: SyntaxError: invalid syntax\n"
                "hint: import the module in Python to see the whole traceback"
            ),
        ),
    ],
)
def test_what_cannot_be_right_is_told_without_an_import(tmp_path, reference, said):
    with pytest.raises(KernelError) as caught:
        references.refuse(reference, "Triton kernels")

    assert str(caught.value) == said.format(tmp_path)


def test_of_a_file_with_many_functions_a_few_are_listed(tmp_path):
    text = "".join(f"def make_{n}(n): pass\n" for n in range(8))
    above = "from helpers import other\ndef _own(): pass\n"
    Path("many.py").write_text(above + text, encoding="utf-8")

    with pytest.raises(KernelError) as caught:
        references.refuse("many.py:maek_3", "functions")

    few = ", ".join(f"`make_{n}`" for n in range(6))
    assert str(caught.value) == (
        f"{tmp_path}/many.py: it has no `maek_3`\n"
        f"hint: did you mean `make_3`? its functions: {few} and 3 more"
    )


@pytest.mark.parametrize("name", ["first", "renamed", "renamed.inner", "triton"])
def test_what_the_code_binds_is_left_to_its_import(name):
    references.refuse(f"ops.py:{name}", "Triton kernels")
    references.refuse(f"ops:{name}", "Triton kernels")


@pytest.mark.parametrize(
    "line",
    [
        "from helpers import *",
        "globals()['hidden'] = first",
        "def __getattr__(name): return first",
        "import sys; sys.modules[__name__].hidden = first",
        "def make():\n    global hidden\n    hidden = first",
        "match first:\n    case hidden: pass",
        "match [first]:\n    case [*hidden]: pass",
        "import ops\nops.__dict__['hidden'] = first",
    ],
)
def test_a_name_that_only_running_the_code_can_bind_is_left_to_its_import(line):
    Path("ops.py").write_text(f"{CODE}\n{line}\n", encoding="utf-8")

    references.refuse("ops.py:hidden", "Triton kernels")


WRONG = [
    ("init", "ops.py:scale_kernal"),
    ("init", "ops.py:scale_kernel", "--output", "sweeps/scale.yaml/x"),
    ("compile", "sweeps/scale.yaml", "--target", "H2000"),
    ("compile", "sweeps/scale.yaml", "--only", "Q > 1"),
    ("compile", "sweeps/wrong.yaml", "--target", "H200"),
]


@pytest.mark.parametrize("arguments", WRONG)
def test_a_command_with_wrong_input_starts_no_process(tmp_path, monkeypatch, arguments):
    project = Project(tmp_path / "project")
    text = project.sweep.read_text(encoding="utf-8")
    project.write("sweeps/wrong.yaml", text.replace("scale_kernel", "scale_kernal"))
    monkeypatch.chdir(project.folder)

    def started(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tritune.child.start_server", started)
    monkeypatch.setattr("tritune.child.Child.__init__", started)

    result = CliRunner().invoke(tritune, arguments, prog_name="tritune")

    assert result.exit_code in (2, 3)
    assert "AssertionError" not in result.output


def test_a_wrong_name_in_a_sweep_file_is_told_as_by_the_import(tmp_path):
    project = Project(tmp_path / "project")
    project.edit("sweeps/scale.yaml", "scale_kernel", "scale_kernal")

    done = subprocess.run(
        [sys.executable, "-m", "tritune", "compile", str(project.sweep)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-3:] == [
        f"error: {project.folder}/ops.py: it has no `scale_kernal`",
        "",
        "hint: did you mean `scale_kernel`? its tunable kernels: `scale_kernel`",
    ]


def test_a_file_that_cannot_be_read_is_told_with_its_path(tmp_path, monkeypatch):
    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "ops.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(Path, "read_bytes", refuse)

    with pytest.raises(KernelError) as caught:
        references.refuse(f"{tmp_path}/ops.py:scale", "functions")

    assert str(caught.value) == f"{tmp_path}/ops.py: cannot be read: Permission denied"

"""Whose line is named where the user's own Python raises: the innermost that is no library's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from projects import Project
from test_measure_sweep import Silent
from tritune import blame, errors, pipeline
from tritune.errors import TrituneError
from tritune.model import Reason, Rejected, Report
from tritune.pipeline.job import SweepOptions


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    made = Project(tmp_path / "project")
    made.edit("sweeps/scale.yaml", "[1000, 4096]", "[1000]")
    made.edit("sweeps/scale.yaml", "[256, 512]", "[256]")
    monkeypatch.chdir(made.folder)
    return made


def swept(project: Project) -> Report:
    options = SweepOptions(target="H200", jobs=1, compile_budget_s=0.0)
    return pipeline.run(project.sweep, options, Silent())[0]


def line_of(project: Project, text: str) -> int:
    lines = (project.folder / "ops.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def said(report: Report) -> list[tuple[Reason, str]]:
    return [(one.reason, one.detail) for one in report.outcomes if isinstance(one, Rejected)]


def test_an_op_that_raises_is_told_with_its_line(project):
    project.edit("ops.py", "    y = torch.empty_like(x)\n", "    y = torch.empty_like(x)[5000]\n")

    [(reason, detail)] = said(swept(project))

    assert reason is Reason.LAUNCHES
    assert detail == (
        "IndexError: index 5000 is out of bounds for dimension 0 with size 1000 "
        f"(ops.py:{line_of(project, '[5000]')})"
    )


def test_a_problem_function_that_raises_is_told_with_its_line(project):
    raises = "(_ for _ in ()).throw(ValueError('it must hold:\\n  n % 7 == 0'))"
    project.edit("ops.py", "torch.randn(n, dtype=dtype)", raises)

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == (
        f"{project.folder}/ops.py:{line_of(project, 'must hold')}: the problem n=1000 "
        "dtype=float32 cannot be made: ValueError: it must hold:\n  n % 7 == 0"
    )


@pytest.mark.parametrize(
    ("smoke", "what"),
    [
        ("", "the problem n=14k dtype=float32 cannot be made"),
        (
            "smoke: [{n: 14k, dtype: float32}]\n",
            "the problem function raises on the smoke problem n=14k dtype=float32",
        ),
    ],
)
def test_a_text_for_a_number_is_told_in_a_line_without_all_of_torchs_signatures(
    project, smoke, what
):
    project.edit("sweeps/scale.yaml", "[1000]", "14k")
    project.edit("sweeps/scale.yaml", "shapes:", f"{smoke}shapes:")

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == (
        f"{project.folder}/ops.py:{line_of(project, 'torch.randn')}: {what}: TypeError: randn() "
        "received an invalid combination of arguments - got (str, dtype=torch.dtype)\n"
        "hint: `14k` is text, and no number"
    )


def test_a_dtype_under_another_name_than_torchs_is_said_to_be_one(project):
    project.edit("sweeps/scale.yaml", "dtype: float32", "dtype: fp32")

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert caught.value.what.startswith("the problem n=1000 dtype=fp32 cannot be made: TypeError: ")
    assert caught.value.where == f"{project.folder}/ops.py:{line_of(project, 'torch.randn')}"
    assert caught.value.hint == "`fp32` is text; torch calls it `float32`"


def test_a_reference_that_raises_is_told_with_its_line(project):
    project.edit("ops.py", "lambda: scale(x))", "lambda: scale(x), reference=lambda: x.gone())")
    project.edit("sweeps/scale.yaml", "shapes:", "smoke: [{n: 100, dtype: float32}]\nshapes:")

    with pytest.raises(TrituneError) as caught:
        swept(project)

    assert str(caught.value) == (
        f"{project.folder}/ops.py:{line_of(project, 'x.gone')}: the reference raises on the smoke "
        "problem n=100 dtype=float32: AttributeError: 'Tensor' object has no attribute 'gone'"
    )


def test_an_error_of_no_user_names_no_line():
    try:
        json.loads("{")
    except ValueError as error:
        own = error
    try:
        exec("1 / 0")  # noqa: S102  # code that has no file
    except ZeroDivisionError as error:
        nobody = error.with_traceback(error.__traceback__.tb_next)

    assert blame.line(own) == f"{__file__}:{own.__traceback__.tb_lineno}"
    assert blame.line(nobody) == blame.told(nobody) == ""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("", "ValueError"),
        ("no\nmore", "ValueError: no"),
        (f"{'long ' * 60}", f"ValueError: {' '.join(['long'] * 37)} …"),
        ("/path" * 100, f"ValueError: {('/path' * 100)[:188]} …"),
    ],
)
def test_what_somebody_elses_code_raises_is_one_line_cut_at_a_word_where_there_is_one(said, told):
    assert errors.line_of(ValueError(said)) == told

"""`tritune sweep --shapes-from LOG`: what was missed at run time becomes what is swept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from projects import Project
from test_views import report
from tritune import keys, misslog, places, setting, spec
from tritune.cli import tritune
from tritune.errors import SpecError
from tritune.model import Missed, Problem
from tritune.pipeline.missed import guesses
from tritune.views import page
from tritune.views.misses import missed_text, yaml_row

KERNEL = "ops:scale_kernel"
RECORD = Path(__file__).parent.parent / "sweeps" / "recorded" / "matmul.H200.jsonl.gz"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    made = Project(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(setting.cuda, "present", lambda: False)
    return made


def miss(key: str, kernel: str = KERNEL, **more: str) -> str:
    where = {"device": "H200", "why": "nothing", "lockfile": "tritune.lock"}
    return json.dumps({"kernel": kernel, "key": key, **where, **more})


def log(project: Project, *lines: str) -> None:
    project.write("misses.jsonl", "".join(f"{one}\n" for one in lines))


def run(*arguments: str) -> Result:
    whole = ("sweep", "sweeps/scale.yaml", "--shapes-from", "misses.jsonl", *arguments)
    return CliRunner().invoke(tritune, whole, prog_name="tritune")


def shown(result: Result, first: str = "missed") -> list[str]:
    lines = [text.partition(" · ")[0] for text in result.stdout.splitlines()]
    return lines[lines.index(next(one for one in lines if one.startswith(first))) :]


@pytest.mark.lowering
def test_the_missed_keys_are_the_shapes_and_a_dry_run_shows_them(project):
    log(
        project,
        miss("n=48 x=f32 y=f32"),
        miss("n=4096 x=f32 y=f32"),
        miss("n=48 x=f32 y=f32"),
        miss("n=1 x=f16", kernel="ops:other"),
        miss("n=7 x=bf16 y=bf16"),
    )

    result = run("--dry-run")

    assert result.exit_code == 0, result.output
    assert shown(result) == [
        "missed at run time: 3 keys",
        "  n=48   f32   2 times",
        "  n=4096 f32   1 time",
        "  n=7    bf16  1 time",
        "add to sweeps/scale.yaml, or a check will call their entries orphans:",
        "shapes:",
        "  - {n: 48, dtype: float32}",
        "  - {n: 7, dtype: bfloat16}",
        "nothing locked: a dry run",
    ]
    assert "6 candidates on 3 problems for H200" in result.stderr


def test_of_the_keys_of_a_trace_it_is_said_that_they_were_launched(project):
    kernel, other = {"kernel": KERNEL}, {"kernel": "ops:other", "key": "n=1", "count": 9}
    one, two = {"key": "n=48 x=f32 y=f32", "count": 3}, {"key": "n=4096 x=f32 y=f32", "count": 1}
    log(project, *(json.dumps(each) for each in (kernel | one, kernel | two, other)))

    result = run("--dry-run")

    assert shown(result, "launched")[:3] == [
        "launched in the trace: 2 keys",
        "  n=48   f32  3 launches",
        "  n=4096 f32  1 launch",
    ]

    log(project, json.dumps(other))

    assert (
        run()
        .stdout.splitlines()[-1]
        .startswith(
            "nothing locked: misses.jsonl has no launch of ops:scale_kernel; "
            "it has launches of ops:other · "
        )
    )


def test_the_lines_offered_are_what_the_sweep_file_needs(project):
    log(project, miss("n=48 x=f32 y=f32"))
    [row] = [line for line in run("--dry-run").stdout.splitlines() if line.startswith("  - ")]

    project.edit("sweeps/scale.yaml", "shapes:\n", f"shapes:\n{row}\n")

    assert spec.read_sweep(project.sweep).problems[0] == Problem.of({"n": 48, "dtype": "float32"})


def test_what_no_problem_can_be_is_told_and_left_out(project):
    log(project, miss("n=48 x=f32(unaligned) y=f32"), miss("n=48 x=f32 y=f16"))

    result = run("--dry-run")

    assert result.exit_code == 1
    assert shown(result) == [
        "missed at run time: 2 keys",
        "left out, as no problem has the key:",
        f"  n=48 x=f32(unaligned) y=f32: {misslog.UNALIGNED}",
        "  n=48 x=f32 y=f16: `n=48 dtype=float32` has the key `n=48 x=f32 y=f32`",
        "nothing locked: no problem has a key that misses.jsonl names",
    ]


def test_only_narrows_what_was_missed(project):
    log(project, *(miss(f"n={n} x=f32 y=f32") for n in (48, 7)))

    assert "2 candidates on 1 problem for" in run("--dry-run", "--only", "n > 10").stderr
    refused = run("--dry-run", "--only", "n > 99")
    assert refused.exit_code == 2
    assert refused.stderr.endswith(
        "error: --only n > 99: no problem is left\n\n"
        "hint: there is n=48 dtype=float32; n=7 dtype=float32\n"
    )


@pytest.mark.parametrize(
    ("lines", "code", "held"),
    [
        ([], 0, "it is empty"),
        ([miss("n=1 x=f16", kernel="ops:other")], 1, "it has misses of ops:other"),
        (
            [miss("n=1 x=f16", kernel=f"ops:k{number}") for number in range(5)],
            1,
            "it has misses of ops:k0, ops:k1, ops:k2 and 2 more kernels",
        ),
        (
            [miss("n=1 x=f16", kernel=f"ops:k{number}") for number in range(4)],
            1,
            "it has misses of ops:k0, ops:k1, ops:k2 and 1 more kernel",
        ),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_log_with_no_miss_of_the_kernel_says_what_it_has(project, lines, code, held, recorded):
    log(project, *lines)
    if recorded:  # of which nothing is shown, so nothing is said of it
        path = places.record_path(project.sweep, "H200")
        path.parent.mkdir()
        path.write_bytes(RECORD.read_bytes())

    result = run()

    assert result.exit_code == code, result.output
    assert [text.partition(" · ")[0] for text in result.stdout.splitlines()] == [
        "ops:scale_kernel from sweeps/scale.yaml",
        f"nothing locked: misses.jsonl has no miss of ops:scale_kernel; {held}",
    ]


def test_a_line_that_is_cut_off_is_left_out_and_told(project):
    log(project, miss("n=48 x=f32 y=f32"), miss("n=7 x=f32 y=f32")[:30])

    result = run("--dry-run")

    assert result.exit_code == 0
    assert "warning: misses.jsonl: left out, as they are no whole lines: 2\n" in result.stderr
    assert shown(result)[0] == "missed at run time: 1 key"


@pytest.mark.parametrize(
    "text", ["kernel: ops.py\n", "{}\n", '{"kernel": 1, "key": "n=1"}\n', "\0"]
)
def test_a_file_that_is_no_log_is_an_error_that_says_what_writes_one(tmp_path, text):
    path = tmp_path / "other.jsonl"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SpecError) as caught:
        misslog.read(path)

    assert str(caught.value) == (
        f"{path}:1: is no log of misses\n"
        "hint: TRITUNE_LOG=FILE, set where the kernels run, writes one"
    )


def test_stale_and_a_log_are_two_answers_to_one_question(project):
    log(project, miss("n=48 x=f32 y=f32"))

    result = run("--stale")

    assert result.exit_code == 2
    assert "--stale is of the file's shapes, and --shapes-from of a log's" in result.stderr


def test_text_in_a_key_may_have_blanks():
    assert keys.split('n=1 how="a b=2" x=f16') == {"n": "1", "how": '"a b=2"', "x": "f16"}
    assert keys.split('how=("a b=2",c) x=f16') == {"how": '("a b=2",c)', "x": "f16"}


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text().filter(lambda text: text not in {"none", "True", "False"}),
)  # fmt: skip


@given(values=st.lists(VALUES, max_size=4))
def test_the_parts_of_a_key_are_read_as_they_are_written(values):
    written = {f"a{at}": keys.word(value) for at, value in enumerate(values)}

    parts = keys.split(keys.joined(written.items()))

    assert parts == written
    assert [keys.value_of(text) for text in parts.values()] == values


ROW = {"batch": 2, "heads": 16, "S": 1024, "causal": False, "dtype": "bfloat16"}
OTHER = {"batch": 1, "heads": 32, "S": 512, "causal": True, "dtype": "float16"}


def test_first_is_tried_the_problem_that_has_most_of_the_key():
    first, second, *rest = guesses(
        [Problem.of(ROW), Problem.of(OTHER)], "heads=32 S=77 CAUSAL=True q=f16"
    )

    assert first.problem == Problem.of(OTHER | {"batch": 2, "S": 77})
    assert second.problem == Problem.of(OTHER | {"S": 77})
    assert (first.kept, second.kept) == (("batch",), ("batch",))
    # `heads` of the key may be another count than that of the problem.
    assert Problem.of(ROW | {"S": 77, "causal": True, "dtype": "float16"}) in [
        one.problem for one in rest
    ]


def test_each_type_of_the_key_is_tried_as_the_type():
    found = guesses([Problem.of({"n": 1, "dtype": "float32"})], "n=8 x=f8e4m3fn y=i8")

    assert [one.problem.as_dict() for one in found][:2] == [
        {"n": 8, "dtype": "float8_e4m3fn"},
        {"n": 8, "dtype": "int8"},
    ]


def test_a_value_that_yaml_would_take_for_another_is_quoted():
    made = Problem.of({"a": "no", "b": None, "c": True, "d": 1e-05, "e": "x y", "f": 2.5})

    assert yaml_row(made) == '{a: "no", b: null, c: true, d: 1.0e-05, e: "x y", f: 2.5}'


def test_axes_that_the_key_does_not_say_are_told():
    one = Missed(key="S=7", lines=3, problem=Problem.of({"batch": 1, "S": 7}), kept=("batch",))

    text = missed_text(replace(report(), sweep="sweeps/a.yaml", missed=(one,)))

    assert text is not None
    assert page.plain(text) == (
        "missed at run time: 1 key\n  batch=1 S=7  3 times\nas in the sweep file: batch\n"
        "add to sweeps/a.yaml, or a check will call their entries orphans:\nshapes:\n"
        "  - {batch: 1, S: 7}\n"
    )


def test_a_key_of_attention_finds_its_batch_and_heads(tmp_path, monkeypatch):
    """The kernel's `heads` are those of all batches, so the axis of that name is no good."""
    root = Path(__file__).parent.parent
    path = tmp_path / "misses.jsonl"
    key = "heads=32 group=1 S=333 HEAD_DIM=128 CAUSAL=False q=bf16"
    path.write_text(miss(key, kernel="kernels.attention:attention_kernel") + "\n")
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(setting.cuda, "present", lambda: False)

    result = CliRunner().invoke(
        tritune,
        ["sweep", str(root / "sweeps/attention.yaml"), "--shapes-from", str(path), "--dry-run"],
    )

    assert result.exit_code == 0, result.output
    assert (
        "  - {batch: 2, heads: 16, kv_heads: 16, S: 333, head_dim: 128, causal: false, "
        "dtype: bfloat16}" in result.stdout.splitlines()
    )


def test_a_row_of_which_one_key_is_tuned_is_tried_under_the_missed_one():
    row = Problem.of({"n": 64, "dtype": "float16"}).under("n=64 x=f16")

    first, *_ = guesses([row], "n=128 x=f16")

    assert first.problem == Problem.of({"n": 128, "dtype": "float16"}).under("n=128 x=f16")
    assert yaml_row(first.problem) == "{n: 128, dtype: float16}"

"""What a sweep file may say, and what is said of every mistake in one."""

from __future__ import annotations

import json
import pickle
import string
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tritune import spec, sweepfile, yamltext
from tritune.errors import ManyMistakesError, SpecError, TrituneError
from tritune.model import Axis, Problem, Section, Timing

DATA = Path(__file__).parent / "data"
SWEEPS = Path(__file__).parent.parent / "sweeps"
SCHEMA = Path(spec.__file__).with_name("sweep.schema.json")


def sweep_text(
    *,
    kernel="kernel: pack.ops:op",
    space="space: {BLOCK: [64]}",
    shapes="shapes: [{n: 8}]",
    more="",
):
    return "\n".join(part for part in (kernel, space, shapes, more) if part)


def parsed(**parts):
    return spec.parse_sweep(sweep_text(**parts), path="s.yaml")


def mistakes(text):
    with pytest.raises(TrituneError) as caught:
        spec.parse_sweep(text, path="s.yaml")
    return str(caught.value)


def test_a_sweep_file_becomes_a_sweep():
    sweep = spec.parse_sweep((DATA / "sweep_every_key.yaml").read_text(), path="sweeps/m.yaml")

    assert sweep.kernel == f"{Path.cwd()}/kernels/matmul.py:matmul_kernel"
    assert sweep.problem == "kernels.matmul:matmul_problem"
    assert sweep.targets == ("H200", "MI300X", "cuda:90")
    assert sweep.space == (
        Axis(name="BLOCK_M", values=(32, 64, 128)),
        Axis(name="BLOCK_N", values=(32, 64, 128)),
        Axis(name="USE_TMA", values=(True, False)),
        Axis(name="EPS", values=(1e-5, 0.001)),
        Axis(name="LAYOUT", values=("row", "column")),
        Axis(name="num_warps", values=(4,)),
        Axis(name="num_stages", values=(2, 4, 6)),
        Axis(name="maxnreg", values=(None, 128)),
    )
    assert [section.scope for section in sweep.sections] == ["cuda", "hip", "H200"]
    assert sweep.sections[1] == Section(
        scope="hip",
        space=(Axis(name="num_stages", values=(1, 2)), Axis(name="waves_per_eu", values=(0, 2))),
    )
    [constraint] = sweep.constraints
    assert constraint.where == "sweeps/m.yaml:19:5: constraints[0]"
    assert constraint.names == {"BLOCK_M", "BLOCK_N", "shared_bytes"}
    assert sweep.timing == Timing(
        cache="hot", screen_samples=5, final_rounds=40, compile_limit_s=60.0
    )
    assert sweep.where("space.BLOCK_N") == "sweeps/m.yaml:7:3: space.BLOCK_N"
    assert sweep.where("hip.space.waves_per_eu") == "sweeps/m.yaml:14:35: hip.space.waves_per_eu"
    assert sweep.where("space.BLOCK_X") == "sweeps/m.yaml: space.BLOCK_X"
    assert pickle.loads(pickle.dumps(sweep)) == sweep  # noqa: S301
    assert hash(sweep) == hash(pickle.loads(pickle.dumps(sweep)))  # noqa: S301


def test_a_row_of_shapes_is_the_product_of_its_values_in_written_order():
    sweep = parsed(shapes="shapes: [{M: {pow2: [1, 4]}, dtype: [float16, bfloat16]}, {M: 3}]")

    assert sweep.problems == (
        Problem((("M", 1), ("dtype", "float16"))),
        Problem((("M", 1), ("dtype", "bfloat16"))),
        Problem((("M", 2), ("dtype", "float16"))),
        Problem((("M", 2), ("dtype", "bfloat16"))),
        Problem((("M", 4), ("dtype", "float16"))),
        Problem((("M", 4), ("dtype", "bfloat16"))),
        Problem((("M", 3),)),
    )


def test_only_kernel_or_problem_and_shapes_are_needed():
    sweep = spec.parse_sweep("problem: ops/op.py:all_of_it\nshapes: [{n: 1}]", path="/a/b/s.yaml")

    assert (sweep.kernel, sweep.problem) == (None, "/a/b/ops/op.py:all_of_it")
    assert (sweep.space, sweep.sections, sweep.timing) == ((), (), Timing())


def test_ten_mistakes_are_ten_errors_in_the_order_of_the_file():
    path = DATA / "sweep_ten_mistakes.yaml"

    with pytest.raises(ManyMistakesError) as caught:
        spec.parse_sweep(path.read_text(), path="s.yaml")

    assert len(caught.value.errors) == 10
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "s.yaml:1:9: kernel: expected module:name, got `matmul_kernel`\n"
        "hint: write ../kernels/matmul.py:matmul_kernel or package.module:name\n"
        "s.yaml:2:17: targets[1]: `H20O` is not a known target\n"
        "hint: did you mean `H200`?\n"
        "s.yaml:4:17: space.BLOCK_M[1]: expected an integer, got true\n"
        "hint: write a number\n"
        "s.yaml:5:13: space.BLOCK_N.rnage: unknown key `rnage`\n"
        "hint: did you mean `range`?\n"
        's.yaml:6:18: space.num_warps[1]: expected an integer, got "8" in quotes\n'
        "hint: write 8 without the quotes\n"
        "s.yaml:7:27: space.num_stages.range[1]: expected an integer, got `on`, which YAML"
        " reads as true\n"
        "hint: write a number\n"
        "s.yaml:9:5: constraints[0]: `BLOCK_Q` is no axis of the space or of the problem,"
        " and no fact of the target\n"
        "hint: did you mean `BLOCK_N`?\n"
        "s.yaml:12:20: shapes[1].M.pow2[1]: expected a power of two, got 48\n"
        "hint: write 32 or 64\n"
        "s.yaml:13:5: shapes[2]: the problem dtype=float16 M=16 N=4096 is given twice,"
        " in line 11 and in line 13\n"
        "hint: remove it from one of the two\n"
        "s.yaml:14:17: timing.cache: expected `cold` or `hot`, got `warm`\n"
        "hint: write one of the two"
    )


def test_an_exponent_is_a_number():
    text = "shapes: [{n: 1e3, m: [1.0e3, 1e+3, 2.5e1]}]"

    assert parsed(shapes=text).problems[0].as_dict() == {"n": 1000, "m": 1000}
    assert type(parsed(shapes=text).problems[0].as_dict()["n"]) is int


@pytest.mark.parametrize("zero", ["0e9", "0e99999999999999999999", "1e-99999999999999999999"])
def test_a_zero_with_any_exponent_is_zero(zero):
    assert parsed(shapes=f"shapes: [{{n: {zero}}}]").problems[0].as_dict() == {"n": 0}


def test_booleans_in_disguise_are_refused_as_values_and_as_keys():
    text = sweep_text(space="space: {num_warps: [on], no: [1, 2]}")

    assert mistakes(text) == (
        "s.yaml:2:21: space.num_warps[0]: expected an integer, got `on`, which YAML reads as true\n"
        "hint: write a number\n"
        "s.yaml:2:26: space.no: expected a name, got `no`, which YAML reads as false\n"
        'hint: quote it: "no"'
    )


def test_words_in_quotes_are_text():
    [axis] = parsed(space='space: {MODE: ["on", "off"]}').space

    assert axis.values == ("on", "off")


@pytest.mark.parametrize(
    ("text", "line", "first"),
    [
        ("kernel: a:b\nkernel: a:c\nshapes: [{n: 1}]", 2, 1),
        ("kernel: a:b\nshapes: [{n: 1,\n n: 2}]", 3, 2),
        ("kernel: a:b\nshapes: [{n: 1}]\nhip: {space: {\n A: 1,\n A: 2}}", 5, 4),
    ],
)
def test_a_doubled_key_at_any_depth_names_both_lines(text, line, first):
    message = mistakes(text)

    assert message.startswith(f"s.yaml:{line}:")
    assert f"is given twice, in line {first} and in line {line}\nhint: remove one" in message


def test_anchors_and_merges_work_and_their_holder_is_no_mistake():
    text = (
        "base: &b {BLOCK: [64], num_warps: [4]}\nkernel: a:b\nshapes: [{n: 1}]\n"
        "space: {num_warps: [8], <<: *b}"
    )

    assert spec.parse_sweep(text, path="s.yaml").space == (
        Axis(name="BLOCK", values=(64,)),
        Axis(name="num_warps", values=(8,)),
    )
    assert mistakes(text.replace("<<: *b", "")) == (
        "s.yaml:1:1: base: unknown key `base`\n"
        "hint: known: kernel, problem, targets, space, cuda, hip, per_target, constraints, shapes,"
        " smoke, timing"
    )


def test_a_mistake_under_an_alias_is_said_once():
    text = sweep_text(space="space: {A: &a [1, true], B: *a}", more="hip: {space: {A: *a}}")

    assert mistakes(text) == (
        "s.yaml:2:19: space.A[1]: expected an integer, got true\nhint: write a number"
    )


def test_a_tab_is_named_as_one():
    text = "kernel: a:b\nspace:\n\tBLOCK: [64]"

    assert mistakes(text) == (
        "s.yaml:3:1: a tab, which YAML does not take as space\nhint: use spaces"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "s.yaml: the file is empty\nhint: it needs `kernel` and `shapes`"),
        ("# nothing\n", "s.yaml: the file is empty\nhint: it needs `kernel` and `shapes`"),
        (
            "kernel: a:b\nshapes:\n",
            (
                "s.yaml:2:8: shapes: expected a list, got nothing\n"
                "hint: write a value, or remove the key"
            ),
        ),
        (
            "kernel: a:b\n---\nshapes: []",
            (
                "s.yaml:2:1: a second document begins here\n"
                "hint: a sweep file holds one sweep: split it"
            ),
        ),
        (
            "- kernel: a:b",
            "s.yaml:1:1: expected a mapping, got a list\nhint: a sweep file begins with `kernel:`",
        ),
        (
            "kernel: a:b\nshapes: [{n: 1}",
            (
                "s.yaml:2:16: not YAML: expected ',' or ']', but got '<stream end>'\n"
                "hint: while parsing a flow sequence begun in line 2: look for a bracket, a quote,"
                " a colon or an indent"
            ),
        ),
        ("a: &a [*a]", "s.yaml: nested too deep, or too large\nhint: write the values out"),
        ("a: &a {<<: *a}", "s.yaml: nested too deep, or too large\nhint: write the values out"),
        ("[" * 5000, "s.yaml: nested too deep, or too large\nhint: write the values out"),
        ("a: \x01", "s.yaml:1: a character that YAML does not allow\nhint: remove it"),
    ],
)
def test_a_file_that_is_no_sweep_says_why(text, message):
    assert mistakes(text) == message


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (
            "a b/tritune.lock",
            '{\n "tritune": 1,\n "devices": {},\n "kernels": {',
            (
                "a b/tritune.lock: is a lockfile, not a sweep file\n"
                "hint: name a sweep file; `tritune check --lockfile 'a b/tritune.lock'` checks "
                "this one, and `tritune compile --locked 'a b/tritune.lock'` compiles what it locks"
            ),
        ),
        (
            "ops/add.py",
            "import triton\n",
            (
                "ops/add.py: is a Python file, not a sweep file\n"
                "hint: `tritune init ops/add.py:NAME` writes the first sweep file of a kernel in it"
            ),
        ),
    ],
)
def test_what_was_never_a_sweep_file_is_one_mistake(path, text, message):
    with pytest.raises(SpecError) as caught:
        spec.parse_sweep(text, path=path)
    assert str(caught.value) == message


def test_an_alias_bomb_is_refused_at_once():
    lines = ["a0: &a0 [1, 1]"] + [
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)
    ]

    assert mistakes("\n".join(lines)) == (
        "s.yaml: nested too deep, or too large\nhint: write the values out"
    )


def test_tags_run_nothing():
    text = sweep_text(space="space: {A: !!python/object/apply:os.system [true]}")

    assert mistakes(text) == (
        "s.yaml:2:12: space.A: the tag `!!python/object/apply:os.system` has no meaning here\n"
        "hint: remove it"
    )
    assert mistakes(sweep_text(space="space: {A: !!python/name:os.system 64}")) == (
        "s.yaml:2:12: space.A: the tag `!!python/name:os.system` has no meaning here\n"
        "hint: remove it"
    )


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            '{num_warps: [4, 3, 0, 64, "4", on]}',
            (
                "s.yaml:2:24: space.num_warps[1]: expected a power of two, got 3\n"
                "hint: write 2 or 4\n"
                "s.yaml:2:27: space.num_warps[2]: expected a power of two, got 0\n"
                "hint: the smallest is 1\n"
                "s.yaml:2:30: space.num_warps[3]: expected an integer from 1 to 32, got 64\n"
                "hint: write 32 or less\n"
                's.yaml:2:34: space.num_warps[4]: expected an integer, got "4" in quotes\n'
                "hint: write 4 without the quotes\n"
                "s.yaml:2:39: space.num_warps[5]: expected an integer, got `on`, which YAML"
                " reads as true\nhint: write a number"
            ),
        ),
        (
            "{num_stages: 2, num_ctas: 3}",
            "s.yaml:2:34: space.num_ctas: expected a power of two, got 3\nhint: write 2 or 4",
        ),
        (
            "{num_stages: 2, maxnreg: [null, 0]}",
            (
                "s.yaml:2:40: space.maxnreg[1]: expected an integer from 1 to 255, got 0\n"
                "hint: write 1 or more"
            ),
        ),
        (
            "{num_warps: {range: [1, 4]}}",
            "s.yaml:2:20: space.num_warps: expected a power of two, got 3\nhint: write 2 or 4",
        ),
        (
            "{num_warps: {pow2: [1, 64]}}",
            (
                "s.yaml:2:20: space.num_warps: expected an integer from 1 to 32, got 64\n"
                "hint: write 32 or less"
            ),
        ),
        (
            '{num_warps: "4"}',
            (
                's.yaml:2:20: space.num_warps: expected an integer, got "4" in quotes\n'
                "hint: write 4 without the quotes"
            ),
        ),
        (
            "{num_stages: [2, -1]}",
            (
                "s.yaml:2:25: space.num_stages[1]: expected an integer of at least 0, got -1\n"
                "hint: write a positive number"
            ),
        ),
        (
            "{BLOCK: [64, 96, 2097152, 64.0]}",
            "s.yaml:2:34: space.BLOCK[3]: expected an integer, got 64.0\nhint: write 64",
        ),
        (
            "{num_warps: [null, 4]}",
            (
                "s.yaml:2:21: space.num_warps[0]: expected an integer, got nothing\n"
                "hint: write a number"
            ),
        ),
        (
            "{num_warps: true}",
            "s.yaml:2:20: space.num_warps: expected an integer, got true\nhint: write a number",
        ),
        (
            "{USE_TMA: [true, on]}",
            (
                "s.yaml:2:25: space.USE_TMA[1]: expected true or false, got `on`, which YAML"
                " reads as true\nhint: write true or false"
            ),
        ),
        (
            "{fast: true}",
            (
                "s.yaml:2:15: space.fast: expected a number, got true\n"
                "hint: write a number; a tunable that is true or false has an upper-case name"
            ),
        ),
        (
            "{A: [64, big]}",
            (
                "s.yaml:2:17: space.A[1]: expected an integer, got `big`\n"
                "hint: the values of an axis are of one kind"
            ),
        ),
        (
            "{A: 010}",
            (
                "s.yaml:2:12: space.A: expected a value, got `010`, which YAML reads as an octal"
                ' number or a decimal one, by its version\nhint: write a number, or quote it: "010"'
            ),
        ),
        (
            "{A: 1_024}",
            (
                "s.yaml:2:12: space.A: expected a value, got `1_024`, which YAML reads as 1024\n"
                'hint: write a number, or quote it: "1_024"'
            ),
        ),
        (
            "{A: .nan}",
            "s.yaml:2:12: space.A: expected a number, got nan\nhint: write a finite number",
        ),
        (
            "{A: []}",
            (
                "s.yaml:2:12: space.A: expected at least one value, got an empty list\n"
                "hint: add one, or remove the axis"
            ),
        ),
        (
            "{A: [[1]]}",
            (
                "s.yaml:2:13: space.A[0]: expected a single value, got a list\n"
                "hint: write one value an item"
            ),
        ),
        (
            "{A-B: 1}",
            "s.yaml:2:9: space.A-B: expected a name, got `A-B`\nhint: use letters, digits and _",
        ),
        (
            "{A: {range: [1, 6, 2]}}",
            (
                "s.yaml:2:20: space.A.range: 6 is not reached from 1 in steps of 2\n"
                "hint: end at 5 or at 7"
            ),
        ),
        (
            "{A: {range: [5, 2]}}",
            "s.yaml:2:20: space.A.range: 2 is less than 5\nhint: write the smaller one first",
        ),
        (
            "{A: {range: [1, 9, 0]}}",
            (
                "s.yaml:2:27: space.A.range[2]: expected a step of at least 1, got 0\n"
                "hint: write a number"
            ),
        ),
        (
            "{A: {range: [1, 1e12]}}",
            (
                "s.yaml:2:12: space.A: 1000000000000 values; an axis takes at most 10000\n"
                "hint: take fewer, or a step"
            ),
        ),
        (
            "{A: {pow2: [0, 4]}}",
            "s.yaml:2:20: space.A.pow2[0]: expected a power of two, got 0\nhint: the smallest is 1",
        ),
        (
            "{A: {pow2: [1, 2, 4]}}",
            (
                "s.yaml:2:19: space.A.pow2: expected [first, last], got 3 values\n"
                "hint: write {pow2: [16, 256]}"
            ),
        ),
        (
            "{A: {range: [1, 2], pow2: [1, 2]}}",
            "s.yaml:2:12: space.A: expected one of `range` and `pow2`\nhint: write {range: [2, 5]}",
        ),
        (
            "{num_stages: {range: [-1, 2]}}",
            (
                "s.yaml:2:21: space.num_stages: expected an integer of at least 0, got -1\n"
                "hint: write a positive number"
            ),
        ),
    ],
)
def test_a_value_that_is_none_is_named_with_its_place(space, message):
    assert mistakes(sweep_text(space=f"space: {space}")) == message


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            "[{M: null}]",
            (
                "s.yaml:3:14: shapes[0].M: expected a value, got nothing\n"
                "hint: write the value, or remove the axis"
            ),
        ),
        (
            "[{M: 4}, {M: true}]",
            (
                "s.yaml:3:22: shapes[1].M: expected a number, got true\n"
                "hint: `M` has numbers in other problems"
            ),
        ),
        (
            "[{}]",
            (
                "s.yaml:3:10: shapes[0]: expected at least one axis\n"
                "hint: write {M: 4096, dtype: float16}"
            ),
        ),
        ("[]", "s.yaml:3:9: shapes: expected at least one item, got an empty list\nhint: add one"),
        (
            "{M: 4}",
            "s.yaml:3:9: shapes: expected a list, got a mapping\nhint: write it in brackets: [...]",
        ),
        (
            "\n  M: [1, 2]\n  N: 8",
            "s.yaml:4:3: shapes: expected a list, got a mapping\nhint: begin the row with `- `",
        ),
        (
            "[{M: [4, 4, 8]}, {M: [2, 4, 8]}]",
            (
                "s.yaml:3:26: shapes[1]: the problem M=4 is given twice, in line 3 and in line 3"
                " (and 1 more)\nhint: remove it from one of the two"
            ),
        ),
        (
            "[{A: {range: [1, 200]}, B: {range: [1, 200]}}]",
            (
                "s.yaml:3:10: shapes[0]: 40000 problems; a row makes at most 10000\n"
                "hint: take fewer values"
            ),
        ),
    ],
)
def test_a_problem_that_is_none_is_named_with_its_place(shapes, message):
    assert mistakes(sweep_text(shapes=f"shapes: {shapes}")) == message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "timing: {screen_samples: 0, final_rounds: 2.0, compile_limit_s: -1, cahe: hot}",
            (
                "s.yaml:4:26: timing.screen_samples: expected an integer of at least 1, got 0\n"
                "hint: write a larger number\n"
                "s.yaml:4:43: timing.final_rounds: expected an integer, got 2.0\n"
                "hint: write a number\n"
                "s.yaml:4:65: timing.compile_limit_s: expected a number greater than 0, got -1\n"
                "hint: write a larger number\n"
                "s.yaml:4:69: timing.cahe: unknown key `cahe`\n"
                "hint: did you mean `cache`?"
            ),
        ),
        (
            "per_target: {H20: {space: {A: 1}}, H200: {spcae: {}}}",
            (
                "s.yaml:4:14: per_target.H20: `H20` is not a known target\n"
                "hint: did you mean `H200`?\n"
                "s.yaml:4:43: per_target.H200.spcae: unknown key `spcae`\n"
                "hint: did you mean `space`?"
            ),
        ),
        ("hip: 3", "s.yaml:4:6: hip: expected a mapping, got 3\nhint: write `key: value`"),
        (
            "targets: H200",
            "s.yaml:4:10: targets: expected a list, got `H200`\nhint: write it in brackets: [...]",
        ),
        (
            "targets: [H200, H200]",
            "s.yaml:4:17: targets[1]: `H200` is given twice\nhint: remove one of the two",
        ),
        (
            "smoke: [{n: 1}, {n: 1}]",
            (
                "s.yaml:4:17: smoke[1]: the problem n=1 is given twice, in line 4 and in line 4\n"
                "hint: remove it from one of the two"
            ),
        ),
        (
            "constraints: [BLOCK = 3, BLOCK =< 3&&n>8, BLOCK = ]",
            (
                "s.yaml:4:15: constraints[0]: `BLOCK = 3`: not an expression\n"
                "hint: write `BLOCK == 3`\n"
                "s.yaml:4:26: constraints[1]: `BLOCK =< 3&&n>8`: not an expression\n"
                "hint: write `BLOCK <= 3 and n>8`\n"
                "s.yaml:4:43: constraints[2]: `BLOCK =`: not an expression\n"
                "hint: compare numbers and axes; functions: abs, cdiv, max, min, next_power_of_2"
            ),
        ),
        (
            "smoke: [{n: 1, dtype: float16}]\nconstraints: [dtype == float16, BLOK < 3]",
            (
                "s.yaml:5:15: constraints[0]: `float16` is no axis of the space or of the problem,"
                ' and no fact of the target\nhint: quote it: "float16"\n'
                "s.yaml:5:33: constraints[1]: `BLOK` is no axis of the space or of the problem,"
                " and no fact of the target\nhint: did you mean `BLOCK`?"
            ),
        ),
        (
            "constraints: [BLOCK.x < 3, 7]",
            (
                "s.yaml:4:15: constraints[0]: `BLOCK.x < 3`: an attribute is not allowed\n"
                "hint: compare numbers and axes; functions: abs, cdiv, max, min, next_power_of_2\n"
                "s.yaml:4:28: constraints[1]: expected text, got 7\n"
                "hint: write a comparison, such as BLOCK_M <= 128"
            ),
        ),
    ],
)
def test_every_other_part_is_checked_too(more, message):
    assert mistakes(sweep_text(more=more)) == message


def test_a_name_on_both_sides_is_ambiguous_in_a_constraint():
    text = sweep_text(space="space: {n: [1, 2]}", more="constraints: [n < 3]")

    assert mistakes(text) == (
        "s.yaml:4:15: constraints[0]: `n` is an axis of the space and of the problem\n"
        "hint: rename one of the two"
    )


def test_without_a_space_the_names_of_a_constraint_wait_for_the_kernel():
    [constraint] = parsed(space="", more="constraints: [ANY < n]").constraints

    assert constraint.names == {"ANY", "n"}


def test_a_misspelt_key_is_not_also_a_missing_one():
    assert mistakes("kernal: a:b\nshaps: [{n: 1}]") == (
        "s.yaml:1:1: kernal: unknown key `kernal`\nhint: did you mean `kernel`?\n"
        "s.yaml:2:1: shaps: unknown key `shaps`\nhint: did you mean `shapes`?"
    )
    assert mistakes("space: {A: 1}") == (
        "s.yaml:1:1: `kernel` is missing\nhint: write kernel: path/to/module.py:function\n"
        "s.yaml:1:1: `shapes` is missing\nhint: write shapes: [{M: 4096, dtype: float16}]"
    )


def test_a_file_is_read_and_the_files_it_names_are_looked_for(tmp_path):
    (tmp_path / "ops.py").touch()
    path = tmp_path / "s.yaml"
    path.write_text("kernel: ./ops.py:op\nshapes: [{n: 1}]\n", encoding="utf-8-sig")

    assert spec.read_sweep(path).kernel == f"{tmp_path}/ops.py:op"

    path.write_text("kernel: opps.py:op\nproblem: far/away.py:p\nshapes: [{n: 1}]\n")
    with pytest.raises(ManyMistakesError) as caught:
        spec.read_sweep(path)
    assert str(caught.value) == (
        f"{path}:1:9: kernel: no such file: {tmp_path}/opps.py\nhint: did you mean `ops.py`?\n"
        f"{path}:2:10: problem: no such file: {tmp_path}/far/away.py\n"
        "hint: paths are relative to the sweep file"
    )


def test_a_sweep_file_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "matmul.yaml").write_bytes(b"\xff\xfe\xfa")

    def message(name):
        with pytest.raises(SpecError) as caught:
            spec.read_sweep(tmp_path / name)
        return str(caught.value).replace(str(tmp_path), "")

    assert message("matmull.yaml") == (
        "/matmull.yaml: no such file or directory\nhint: did you mean `/matmul.yaml`?"
    )
    assert message(".") == ": is a directory\nhint: give the path of a sweep file"
    assert message("matmul.yaml") == "/matmul.yaml: not text in UTF-8\nhint: save it as UTF-8"


def test_the_shipped_schema_is_the_one_the_code_makes():
    assert SCHEMA.read_text() == sweepfile.schema(), "python -m tritune.spec > " + str(SCHEMA)


def test_every_key_of_the_schema_is_described():
    schema = json.loads(sweepfile.schema())
    parts = [schema, *schema["$defs"].values()]
    keys = [(name, one) for part in parts for name, one in part["properties"].items()]

    assert [name for name, one in keys if "description" not in one] == []
    assert len(keys) == 11 + 2 + 4


@pytest.mark.parametrize("path", [DATA / "sweep_every_key.yaml", *SWEEPS.glob("*.yaml")], ids=str)
def test_a_sweep_file_is_valid_against_the_schema(path):
    document = yamltext.load(path.read_text(), path=str(path))

    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document.value)
    spec.parse_sweep(path.read_text(), path=str(path))


def test_the_schema_refuses_what_an_editor_should_mark():
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    document = yamltext.load(
        "kernel: a:b\nshapes: [{M: {rnage: [1, 2]}}, {}]\nspace: {num_warps: [true, -1]}\n"
        "targets: [H20]\nspce: 1\ntiming: {cache: warm}",
        path="s.yaml",
    )

    found = {error.json_path for error in validator.iter_errors(document.value)}

    assert found == {
        "$",
        "$.shapes[0].M",
        "$.shapes[1]",
        "$.space.num_warps",
        "$.targets[0]",
        "$.timing.cache",
    }


names = st.text(string.ascii_uppercase, min_size=1, max_size=4)
integers = st.integers(0, 2**40)
axes = st.dictionaries(
    names, st.lists(integers, min_size=1, max_size=4, unique=True), min_size=1, max_size=3
)


@st.composite
def sweeps(draw):
    shapes = draw(st.lists(axes, min_size=1, max_size=2, unique_by=lambda row: tuple(sorted(row))))
    return {
        "kernel": "pack.ops:op",
        "space": draw(axes),
        "shapes": shapes,
        "targets": draw(st.lists(st.sampled_from(["H200", "A100", "MI300X"]), unique=True)),
        "timing": {"final_rounds": draw(st.integers(3, 99))},
    }


@given(sweeps(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_was_written_is_what_is_read(data, flow):
    text = yaml.safe_dump(data, sort_keys=False, default_flow_style=flow)

    sweep = spec.parse_sweep(text, path="s.yaml")

    assert {axis.name: list(axis.values) for axis in sweep.space} == data["space"]
    assert list(sweep.targets) == data["targets"]
    assert sweep.timing.final_rounds == data["timing"]["final_rounds"]
    count = 0
    for row in data["shapes"]:
        size = 1
        for values in row.values():
            size *= len(values)
        count += size
    assert len(sweep.problems) == len(set(sweep.problems)) == count


EVERY_KEY = (DATA / "sweep_every_key.yaml").read_text()
SPLINTERS = st.sampled_from(
    [
        "",
        "\t",
        "on",
        ":",
        "- ",
        "[",
        "{",
        "}",
        "*a",
        "&a ",
        "<<",
        "!!x ",
        "'",
        "1e9999",
        "\n",
        "~",
        "null",
        "0x",
        "\x00",
        "---\n",
        "9" * 5000,
        "true",
        "- -",
        "? ",
        "|",
        "%",
        "@",
        "#",
        ",",
        "é",
    ]
)


@given(st.integers(0, len(EVERY_KEY)), st.integers(0, 12), SPLINTERS | st.text(max_size=4))
@settings(max_examples=400, deadline=None)
def test_a_damaged_file_is_a_sweep_or_a_message_and_never_a_traceback(at, cut, splinter):
    text = EVERY_KEY[:at] + splinter + EVERY_KEY[at + cut :]

    try:
        spec.parse_sweep(text, path="s.yaml")
    except TrituneError as error:
        assert str(error).startswith("s.yaml")  # noqa: PT017


@given(
    st.sampled_from(["kernel", "targets", "space", "hip", "per_target", "constraints", "shapes"])
    | st.sampled_from(["smoke", "timing", "cuda", "problem"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["space", "range", "pow2", "M", "H200"]), inner, max_size=3
            )
        ),
        max_leaves=6,
    ),
)
@settings(max_examples=300, deadline=None)
def test_any_value_under_any_key_is_a_sweep_or_a_message(key, value):
    data = {"kernel": "pack.ops:op", "shapes": [{"n": 1}], key: value}

    try:
        spec.parse_sweep(yaml.safe_dump(data), path="s.yaml")
    except TrituneError as error:
        assert str(error).startswith("s.yaml")  # noqa: PT017

"""Which configs a sweep file means, which it rules out, and what the kernel must agree to."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tritune import expression, space
from tritune.device.targets import find
from tritune.errors import ManyMistakesError, SpecError
from tritune.model import Config, KernelInfo, Problem
from tritune.spec import parse_sweep

H200, MI300X = find("H200"), find("MI300X")

TEXT = """\
kernel: pack.matmul:matmul_kernel
space: {BLOCK_M: [64, 128], num_warps: [4, 8]}
hip: {space: {num_warps: [2], waves_per_eu: [0, 2]}, constraints: [BLOCK_M < 128]}
per_target:
  H200: {space: {num_stages: [3, 4]}}
  "hip:gfx942": {space: {waves_per_eu: [1]}}
constraints:
  - BLOCK_M * num_warps <= 512
  - BLOCK_M <= M
shapes: [{M: 64, dtype: float16}, {M: 128, dtype: float16}]
"""


def sweep_of(text=TEXT):
    return parse_sweep(text, path="s.yaml")


def info(*, default=None, configs=None, **changes):
    default = Config.of(default or {"BLOCK_M": 32, "BLOCK_N": 32, "num_warps": 4})
    values = {
        "name": "pack.matmul:matmul_kernel",
        "file": "/pack/matmul.py",
        "line": 3,
        "params": ("a", "M", "N", "IS_FAST", "BLOCK_M", "BLOCK_N"),
        "constexprs": ("IS_FAST", "BLOCK_M", "BLOCK_N"),
        "tunables": tuple(default),
        "default": default,
        "configs": tuple(map(Config.of, configs)) if configs else (default,),
        "key": ("M", "N"),
        "near": None,
        "lockfile": "/pack/tritune.lock",
        "problem": "pack.matmul:matmul_problem",
        "problem_line": 30,
        "problem_params": (("M", False), ("dtype", False), ("bias", True)),
        "source": "0" * 16,
    }
    return KernelInfo(**(values | changes))


def listed(configs):
    return [str(config) for config in configs]


def test_a_target_s_section_replaces_or_extends_the_axes():
    assert listed(space.configs(sweep_of(), H200)) == [
        "BLOCK_M=64 num_stages=3 num_warps=4",
        "BLOCK_M=64 num_stages=4 num_warps=4",
        "BLOCK_M=64 num_stages=3 num_warps=8",
        "BLOCK_M=64 num_stages=4 num_warps=8",
        "BLOCK_M=128 num_stages=3 num_warps=4",
        "BLOCK_M=128 num_stages=4 num_warps=4",
        "BLOCK_M=128 num_stages=3 num_warps=8",
        "BLOCK_M=128 num_stages=4 num_warps=8",
    ]
    assert listed(space.configs(sweep_of(), MI300X)) == [
        "BLOCK_M=64 num_warps=2 waves_per_eu=1",
        "BLOCK_M=128 num_warps=2 waves_per_eu=1",
    ]


def test_configs_come_lazily():
    wide = ", ".join(f"{name}: {{range: [1, 1000]}}" for name in "ABCDEF")
    sweep = sweep_of(f"kernel: a:b\nspace: {{{wide}}}\nshapes: [{{n: 1}}]")

    assert listed(itertools.islice(space.configs(sweep, H200), 1)) == ["A=1 B=1 C=1 D=1 E=1 F=1"]


def test_the_default_gives_what_the_space_does_not_name():
    sweep = sweep_of("kernel: a:b\nspace: {BLOCK_M: [64]}\nshapes: [{M: 1}]")

    assert listed(space.configs(sweep, H200, info())) == ["BLOCK_M=64 BLOCK_N=32 num_warps=4"]


def test_without_a_space_the_kernel_s_own_list_is_the_space():
    sweep = sweep_of("kernel: a:b\nhip: {space: {num_warps: [1]}}\nshapes: [{M: 1}]")
    own = [{"B": 8, "num_warps": 4}, {"B": 8, "num_warps": 8}, {"B": 8, "num_warps": 4}]

    kernel = info(default=own[0], configs=own)

    assert listed(space.configs(sweep, H200, kernel)) == ["B=8 num_warps=4", "B=8 num_warps=8"]
    assert listed(space.configs(sweep, MI300X, kernel)) == ["B=8 num_warps=1"]
    assert listed(space.configs(sweep, H200)) == []


def test_the_first_constraint_that_rules_a_config_out_is_named():
    sweep = sweep_of()
    small, large = Problem.of({"M": 64}), Problem.of({"M": 128})

    def text(values, problem=None, target=H200):
        broken = space.admitted(sweep, target, Config.of(values), problem)
        return broken.text if broken else None

    assert text({"BLOCK_M": 128, "num_warps": 8}) == "BLOCK_M * num_warps <= 512"
    assert text({"BLOCK_M": 128, "num_warps": 4}) is None
    assert text({"BLOCK_M": 128, "num_warps": 4}, small) == "BLOCK_M <= M"
    assert text({"BLOCK_M": 128, "num_warps": 4}, large) is None
    assert text({"BLOCK_M": 128, "num_warps": 2}, large, MI300X) == "BLOCK_M < 128"


def test_a_constraint_may_name_facts_of_the_target():
    text = "kernel: a:b\nspace: {A: [150000]}\nshapes: [{M: 1}]\nconstraints: [{}]"

    def admits(constraint, target):
        sweep = sweep_of(text.replace("[{}]", f"['{constraint}']"))
        return space.admitted(sweep, target, Config.of({"A": 150000})) is None

    assert [admits("A <= shared_bytes", target) for target in (H200, MI300X)] == [True, False]
    assert [admits('backend == "hip" or A > 1', target) for target in (H200, MI300X)] == [
        True,
        True,
    ]
    assert admits("arch == 90 and sms == 132 and warp_size == 32 and l2_bytes > A", H200)


def test_a_constraint_over_a_name_that_is_not_there_holds():
    sweep = sweep_of(
        "kernel: a:b\nspace: {A: [1]}\nhip: {space: {kpack: [1, 2]}}\nshapes: [{M: 1}]\n"
        "constraints: [kpack > 1]"
    )

    assert space.admitted(sweep, H200, Config.of({"A": 1})) is None
    assert space.admitted(sweep, MI300X, Config.of({"A": 1, "kpack": 1})) == sweep.constraints[0]


def test_a_constraint_with_no_answer_is_a_mistake_with_the_values():
    sweep = sweep_of(
        "kernel: a:b\nspace: {A: [0], maxnreg: [null, 64]}\nshapes: [{M: 1}]\n"
        "constraints: [M % A == 0, maxnreg < 128]"
    )
    zero, given = sweep.constraints

    with pytest.raises(SpecError) as caught:
        space.holds(zero, {"A": 0, "M": 7, "B": 1})
    assert str(caught.value) == (
        "s.yaml:4:15: constraints[0]: `M % A == 0` has no answer at A=0 M=7: division by zero\n"
        "hint: write what should hold there too, with `or` before the rest of it"
    )
    with pytest.raises(SpecError, match="maxnreg < 128` has no answer at maxnreg=none: '<' not"):
        space.holds(given, {"maxnreg": None})


def test_a_constraint_that_names_nothing_has_no_answer_anywhere():
    [one] = sweep_of("kernel: a:b\nshapes: [{M: 1}]\nconstraints: ['1']").constraints

    with pytest.raises(SpecError, match=r"`1` has no answer: it gives 1, neither true nor false"):
        space.holds(one, {"M": 1})


def test_every_constraint_is_counted_and_by_problem_where_it_names_one():
    counted = space.candidates_per_constraint(sweep_of(), H200)

    assert counted.configs == 8
    assert [(one.constraint.text, str(one.problem), one.configs) for one in counted.removed] == [
        ("BLOCK_M * num_warps <= 512", "None", 2),
        ("BLOCK_M <= M", "M=64 dtype=float16", 2),
    ]
    assert [(str(problem), left) for problem, left in counted.left] == [
        ("M=64 dtype=float16", 4),
        ("M=128 dtype=float16", 6),
    ]


def test_what_the_kernel_knows_is_no_mistake():
    space.check_against(sweep_of(TEXT), info())
    space.check_against(sweep_of("kernel: a:b\nshapes: [{M: 1, dtype: x, bias: 1}]"), info())


def test_every_disagreement_with_the_kernel_is_said_at_once():
    sweep = sweep_of(
        "kernel: pack.matmul:matmul_kernel\n"
        "space: {BLOCK_MM: [64], N: [1], IS_FAST: [true]}\n"
        "hip: {space: {waves_per_uu: [1]}}\n"
        "per_target: {H200: {space: {BLOCK_X: [1]}}}\n"
        "shapes:\n"
        "  - {m: 1, dtype: float16}\n"
        "  - {M: 1}\n"
        "  - {M: 1, dtype: float16, far: 1}\n"
    )

    with pytest.raises(ManyMistakesError) as caught:
        space.check_against(sweep, info())

    assert str(caught.value) == (
        "s.yaml:2:9: space.BLOCK_MM: `BLOCK_MM` is not a parameter of `matmul_kernel`\n"
        "hint: did you mean `BLOCK_M`? it has BLOCK_M, BLOCK_N, num_warps\n"
        "s.yaml:2:25: space.N: `N` is a parameter of `matmul_kernel`, but not a tl.constexpr\n"
        "hint: annotate it with tl.constexpr, or make it an axis of `shapes`\n"
        "s.yaml:2:33: space.IS_FAST: `IS_FAST` is not a tunable of `matmul_kernel`\n"
        "hint: add it to default= of `@tritune.kernel`; it has BLOCK_M, BLOCK_N, num_warps\n"
        "s.yaml:3:15: hip.space.waves_per_uu: `waves_per_uu` is not a parameter of"
        " `matmul_kernel`\n"
        "hint: did you mean `waves_per_eu`? it has BLOCK_M, BLOCK_N, num_warps\n"
        "s.yaml:4:29: per_target.H200.space.BLOCK_X: `BLOCK_X` is not a parameter of"
        " `matmul_kernel`\n"
        "hint: did you mean `BLOCK_N`? it has BLOCK_M, BLOCK_N, num_warps\n"
        "s.yaml:6:6: shapes[0].m: `m` is not a parameter of the problem `matmul_problem`\n"
        "hint: did you mean `M`?\n"
        "s.yaml:7:5: shapes[1]: the problem `matmul_problem` needs `dtype`\n"
        "hint: add dtype: ...\n"
        "s.yaml:8:28: shapes[2].far: `far` is not a parameter of the problem `matmul_problem`\n"
        "hint: known: M, dtype, bias"
    )


def test_without_a_space_a_constraint_s_names_are_the_kernel_s():
    sweep = sweep_of(
        "kernel: a:b\nshapes: [{M: 1, dtype: x}]\nconstraints: [BLOK_M <= M, BLOCK_N < sms]"
    )

    with pytest.raises(ManyMistakesError) as caught:
        space.check_against(sweep, info())

    assert str(caught.value) == (
        "s.yaml:3:15: constraints[0]: `BLOK_M` is no tunable, no axis of the problem,"
        " and no fact of the target\nhint: did you mean `BLOCK_M`?"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A.__class__ == 1", "an attribute is not allowed"),
        ("A[0] == 1", "indexing is not allowed"),
        ("(lambda: 1) == 1", "a function is not allowed"),
        ("f'{A}' == '1'", "a formatted string is not allowed"),
        ("(A := 1) == 1", "an assignment is not allowed"),
        ("[a for a in (1, 2)] == 1", "this is not allowed"),
        ("{1: 2} == 1", "this is not allowed"),
        ("(*A,) == 1", "this is not allowed"),
        ("open('x') == 1", "calls something other than abs, cdiv, max, min, next_power_of_2"),
        ("max(A, key=abs) == 1", "calls something other than abs, cdiv, max, min, next_power_of_2"),
        ("A % 2", "not a comparison"),
        ("A <", "not an expression"),
        ("A = 1", "not an expression"),
        ("", "not an expression"),
        ("1if A else 2 == 1", "not an expression"),
        ("A < 1j", "neither a number nor a name"),
        ("A < 1 " + "and A < 1 " * 200, "longer than 1000 characters"),
    ],
)
def test_a_text_that_is_no_constraint_is_refused_before_it_runs(text, why):
    with pytest.raises(expression.ConstraintError) as caught:
        expression.names(text)

    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9 ** 9 ** 9 > A", "an exponent is too large"),
        ("1 << 10 ** 9 > A", "a shift is too large"),
        ("9 ** 99 > A", "a number is too large"),
        ("(10.5 ** 250) ** 2 > A", "a number is too large"),
        ("1 == " + "-" * 900 + "A", "nested too deep"),
        ("'a' * 10 ** 9 == A", "'a' is not a number"),
        ("'%99d' % 1 == 'a'", "'%99d' is not a number"),
        ("(1, 2) * 3 == A", "(1, 2) is not a number"),
        ("next_power_of_2(1e999) == 4", "a number is too large"),
        ("(0 - 4) ** 0.5 == 4", "the root of a negative number"),
        ("cdiv(1, 0) == 1", "division by zero"),
        ("A or 1", "it gives 1, neither true nor false"),
        ("B == 1", "'B' is not defined for expression 'B == 1'"),
    ],
)
def test_a_constraint_without_an_answer_says_why(text, why):
    with pytest.raises(expression.ConstraintError) as caught:
        expression.truth(text, {"A": 0})

    assert str(caught.value) == why


@pytest.mark.parametrize(
    "text",
    [
        "cdiv(A, 2) == 3 and next_power_of_2(A) == 8 and min(A, B) == 5 and max(A, B) == 16",
        "A in (5, 6) and A not in (7, 8) and not A == 6",
        "M is None or M < 3",
        "4 <= A <= 6",
        "next_power_of_2(2.5) == 4",
        "(B < 3 if dtype == 'float32' else B > 3)",
        "abs(-A) == 5 and A // 2 == 2 and A % 2 == 1 and A / 2 == 2.5 and 2 ** A == 32",
        "B & (B - 1) == 0 and 1 << A == 32 and B >> 1 == 8",
    ],
)
def test_the_language_of_constraints(text):
    assert expression.truth(text, {"A": 5, "B": 16, "M": None, "dtype": "float16"})


axis_values = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True)


@given(st.dictionaries(st.sampled_from("ABCD"), axis_values, min_size=1), st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_configs_are_the_product_each_once_and_the_admitted_ones_hold(axes, most):
    rows = "".join(f"  {name}: {values}\n" for name, values in axes.items())
    total = " + ".join(axes)
    sweep = sweep_of(
        f"kernel: a:b\nspace:\n{rows}shapes: [{{n: 1}}]\nconstraints: ['{total} <= {most}']"
    )

    found = list(space.configs(sweep, H200))
    admitted = [one for one in found if space.admitted(sweep, H200, one) is None]

    assert len(found) == len(set(found))
    assert {one.values for one in found} == {
        tuple(sorted(zip(axes, values, strict=True)))
        for values in itertools.product(*axes.values())
    }
    assert all(sum(one.as_dict().values()) <= most for one in admitted)
    counted = space.candidates_per_constraint(sweep, H200)
    assert counted.left == ((Problem.of({"n": 1}), len(admitted)),)

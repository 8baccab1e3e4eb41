"""Which numbers no launch can use, and in which order the others are tried."""

from __future__ import annotations

import pytest

from tritune.device.targets import find
from tritune.model import Candidate, Config, Problem, Reason, Rejected
from tritune.plan import legal, plan

SMALL, LARGE = Problem.of({"n": 8}), Problem.of({"n": 64})


def config(**values):
    return Config.of(values)


def planned(configs, *, problems=(SMALL,), target="H200", default=None, admits=None):
    return plan(
        "pack:op",
        configs,
        problems,
        target=find(target),
        default=default or config(BLOCK=64, num_warps=4),
        admits=admits or (lambda config, problem: True),
    )


@pytest.mark.parametrize(
    ("values", "target", "reason", "detail"),
    [
        ({"num_warps": 3}, "H200", Reason.ILLEGAL, "num_warps=3 is not a power of two"),
        ({"num_warps": 0}, "H200", Reason.ILLEGAL, "num_warps=0 is not a power of two"),
        ({"num_warps": 64}, "H200", Reason.THREADS, "64 warps are 2048 threads, 1024 available"),
        ({"num_warps": 32}, "MI300X", Reason.THREADS, "32 warps are 2048 threads, 1024 available"),
        ({"num_stages": 0}, "H200", Reason.ILLEGAL, "num_stages=0, 1 is the least"),
        ({"num_ctas": 3}, "H200", Reason.ILLEGAL, "num_ctas=3 is not a power of two"),
        (
            {"num_ctas": 2},
            "A100",
            Reason.ILLEGAL,
            "num_ctas=2, but A100 (cuda:80) has no clusters",
        ),
        (
            {"num_ctas": 2},
            "MI300X",
            Reason.ILLEGAL,
            "num_ctas=2, but MI300X (hip:gfx942) has no clusters",
        ),
        ({"maxnreg": 256}, "H200", Reason.ILLEGAL, "maxnreg=256, it goes from 1 to 255"),
        ({"maxnreg": 0}, "H200", Reason.ILLEGAL, "maxnreg=0, it goes from 1 to 255"),
        ({"maxnreg": 64}, "MI300X", Reason.ILLEGAL, "maxnreg is an NVIDIA option, MI300X is AMD's"),
        (
            {"waves_per_eu": 2},
            "H200",
            Reason.ILLEGAL,
            "waves_per_eu is an AMD option, H200 is NVIDIA's",
        ),
        (
            {"matrix_instr_nonkdim": 16},
            "H200",
            Reason.ILLEGAL,
            "matrix_instr_nonkdim is an AMD option, H200 is NVIDIA's",
        ),
        ({"kpack": 1}, "H200", Reason.ILLEGAL, "kpack is an AMD option, H200 is NVIDIA's"),
        ({"BLOCK": 2097152}, "H200", Reason.ILLEGAL, "BLOCK=2097152, 1048576 is the most"),
        ({"BLOCK_N": 0}, "H200", Reason.ILLEGAL, "BLOCK_N=0, 1 is the least"),
    ],
)
def test_numbers_that_no_launch_can_use_are_rejected_with_their_limit(
    values, target, reason, detail
):
    assert legal(config(**values), find(target)) == (reason, detail)


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ({"num_warps": 32, "num_stages": 1, "num_ctas": 2, "maxnreg": 255}, "H200"),
        ({"num_warps": 16, "num_stages": 0, "num_ctas": 1, "waves_per_eu": 0}, "MI300X"),
        ({"maxnreg": None, "waves_per_eu": None, "num_ctas": 1}, "A100"),
        ({"BLOCK": 96, "BLOCK_M": 1 << 20, "USE_TMA": True, "DTYPE": "fp16"}, "H200"),
        ({"GROUP": 1 << 30}, "H200"),
    ],
)
def test_numbers_that_a_launch_may_use_go_to_the_compiler(values, target):
    assert legal(config(**values), find(target)) is None


def test_each_bad_number_has_its_own_reason_and_the_good_config_stays():
    bad = [{"num_warps": warps} for warps in (3, 0, 64)]
    bad += [{"num_ctas": 2}, {"BLOCK": 2097152}, {"waves_per_eu": 2}]
    configs = [config(**({"BLOCK": 128, "num_warps": 4} | values)) for values in ({}, *bad)]

    made = planned(configs, target="A100")

    assert [str(one.config) for one in made.candidates] == [
        "BLOCK=64 num_warps=4",
        "BLOCK=128 num_warps=4",
    ]
    assert {one.detail for one in made.rejected} == {
        "num_warps=3 is not a power of two",
        "num_warps=0 is not a power of two",
        "64 warps are 2048 threads, 1024 available",
        "num_ctas=2, but A100 (cuda:80) has no clusters",
        "BLOCK=2097152, 1048576 is the most",
        "waves_per_eu is an AMD option, A100 is NVIDIA's",
    }


def test_candidates_come_by_problem_the_default_first_then_fewest_resources():
    configs = [
        config(BLOCK=32, num_warps=8),
        config(BLOCK=128, num_warps=2),
        config(BLOCK=64, num_warps=4),
        config(BLOCK=16, num_warps=8),
    ]

    made = planned(configs, problems=(LARGE, SMALL))

    expected = [
        "BLOCK=64 num_warps=4",
        "BLOCK=128 num_warps=2",
        "BLOCK=16 num_warps=8",
        "BLOCK=32 num_warps=8",
    ]
    assert [str(one.config) for one in made.candidates] == expected * 2
    assert [one.problem for one in made.candidates] == [LARGE] * 4 + [SMALL] * 4
    assert planned(reversed(configs), problems=(LARGE, SMALL)) == made


def test_what_a_constraint_rules_out_is_counted_but_the_default_stays():
    configs = [config(BLOCK=size, num_warps=4) for size in (16, 32, 64)]

    made = planned(
        configs,
        problems=(SMALL, LARGE),
        admits=lambda config, problem: config["BLOCK"] <= problem.as_dict()["n"] // 2,
    )

    assert [(str(one.problem), one.config["BLOCK"]) for one in made.candidates] == [
        ("n=8", 64),
        ("n=64", 64),
        ("n=64", 16),
        ("n=64", 32),
    ]
    assert made.rejected == ()


def test_a_default_that_no_launch_can_use_is_an_ordinary_rejection():
    made = planned([config(BLOCK=64, num_warps=4)], default=config(BLOCK=64, num_warps=64))

    rejected = Candidate(kernel="pack:op", problem=SMALL, config=config(BLOCK=64, num_warps=64))
    assert made.rejected == (
        Rejected(
            candidate=rejected,
            reason=Reason.THREADS,
            detail="64 warps are 2048 threads, 1024 available",
        ),
    )
    assert len(made.candidates) == 1

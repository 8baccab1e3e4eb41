"""What problems lose that a kernel's own autotuner takes for one, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fakes import config, measured, rejected
from test_views import info, report, shown
from tritune import choose, sharing
from tritune.model import KernelInfo, Problem, SharedKey
from tritune.views import json_view

A, B, C = config(BLOCK=64), config(BLOCK=128), config(BLOCK=256)
HALF, FULL = (Problem.of({"M": 64, "dtype": dtype}) for dtype in ("bfloat16", "float32"))


def kernel(*keys: tuple[Problem, str, str], several: bool = False) -> KernelInfo:
    under = {problem: tuple(key for of, key, _ in keys if of == problem) for problem, *_ in keys}
    assert several == any(len(one) > 1 for one in under.values())
    return replace(info(), foreign=True, keys=tuple(under.items()), stock_keys=keys)


DESCRIPTORS = kernel((HALF, "M=64 x=bf16", "M=64"), (FULL, "M=64 x=f32", "M=64"))


def test_problems_under_one_key_of_their_autotuner_lose_least_with_the_best_common_config():
    losses = {HALF: {A: 0.0, B: 0.1, C: 0.5}, FULL: {A: 0.4, B: 0.05, C: 0.0}}

    [one] = sharing.shared(DESCRIPTORS, losses)

    assert one == SharedKey(key="M=64", problems=(HALF, FULL), losses=(0.1, 0.05), config=B)
    assert one.loss == pytest.approx((1.1 * 1.05) ** 0.5 - 1)


def test_of_equal_losses_over_all_the_smaller_one_at_worst_decides_and_then_the_order():
    losses = {HALF: {A: 0.21, B: 0.1, C: 0.1}, FULL: {A: 0.0, B: 0.1, C: 0.1}}

    assert sharing.shared(DESCRIPTORS, losses)[0].config == B


def test_where_no_config_runs_on_all_of_them_there_is_none_and_no_loss():
    [one] = sharing.shared(DESCRIPTORS, {HALF: {A: 0.0}, FULL: {B: 0.0}})

    assert (one.config, one.losses, one.loss) == (None, (), 0.0)


def test_problems_that_their_autotuner_tells_apart_share_nothing():
    apart = kernel((HALF, "x=bf16", "bf16"), (FULL, "x=f32", "f32"))

    assert sharing.shared(apart, {HALF: {A: 0.0}, FULL: {A: 0.0}}) == ()


def test_a_problem_without_a_winner_is_no_part_of_it():
    assert sharing.shared(DESCRIPTORS, {HALF: {A: 0.0}}) == ()


def test_a_problem_that_is_one_with_another_here_too_is_named_as_not_timed():
    larger = Problem.of({"M": 128, "dtype": "bfloat16"})
    found = kernel((HALF, "x=bf16", "bf16"), (larger, "x=bf16", "bf16"))

    [one] = sharing.shared(found, {HALF: {A: 0.0, B: 0.2}})

    assert one == SharedKey(
        key="bf16", problems=(HALF,), losses=(0.0,), config=A, untimed=(larger,)
    )


def test_an_op_that_launches_a_kernel_under_two_keys_may_share_one_with_itself():
    found = kernel((HALF, "x=bf16", "M=64"), (HALF, "x=f32", "M=64"), several=True)
    first, second = HALF.under("x=bf16"), HALF.under("x=f32")

    [one] = sharing.shared(found, {first: {A: 0.0}, second: {A: 0.3}})

    assert one.problems == (first, second)


def test_losses_are_against_the_winner_of_each_config_that_ran_in_the_same_window():
    outcomes = [
        measured(10.0, finals=(10.0, 11.0, 12.0), BLOCK=64, aliases=[C]),
        measured(10.0, finals=(11.0, 12.1, 13.2), BLOCK=128),
        measured(30.0, BLOCK=512),
        measured(9.0, BLOCK=1024),
        rejected(BLOCK=2048),
    ]

    found = choose.losses(outcomes, A)

    assert found == {
        A: 0.0,
        C: 0.0,
        B: pytest.approx(0.1),
        config(BLOCK=512): pytest.approx(2.0),
        config(BLOCK=1024): 0.0,  # faster only in another window, and not the winner
    }
    assert choose.losses(outcomes, config(BLOCK=7)) == {}


def test_a_summary_says_what_each_problem_would_lose_and_json_has_it_too():
    [one] = sharing.shared(DESCRIPTORS, {HALF: {A: 0.0, B: 0.1}, FULL: {A: 0.4, B: 0.05}})
    made = report(shared=(one,))

    assert (
        "one key to its own autotuner (`M=64`): with BLOCK=128 num_warps=4 for all "
        "M=64 dtype=bfloat16 +10.0 % · M=64 dtype=float32 +5.0 %, +7.5 % in the mean; "
        "here each has its own\n"
    ) in shown(made)
    [said] = json.loads(json_view.reports_json([made]))["reports"]
    assert said["shared"] == [
        {
            "key": "M=64",
            "problems": [HALF.as_dict(), FULL.as_dict()],
            "losses": [0.1, 0.05],
            "config": B.as_dict(),
            "untimed": [],
        }
    ]


def test_a_summary_says_where_no_config_runs_on_all_and_nothing_of_what_is_one_problem_here():
    apart = SharedKey(key="M=64", problems=(HALF, FULL), losses=(), config=None)
    here = SharedKey(key="bf16", problems=(HALF,), losses=(0.0,), config=A, untimed=(FULL,))

    text = shown(report(shared=(apart, here)))

    assert (
        "one key to its own autotuner (`M=64`): M=64 dtype=bfloat16 · M=64 dtype=float32; "
        "no config runs on all of them, here each has its own\n"
    ) in text
    assert text.count("one key to its own autotuner") == 1

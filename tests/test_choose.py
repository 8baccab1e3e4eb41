"""Choosing: which config is locked, and what is said for it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from fakes import (
    KERNEL,
    KEY,
    PROBLEM,
    TRITON,
    FakeDevice,
    GridDevice,
    compiled,
    config,
    entry,
    evidence,
    grid_compiled,
    grid_problems,
    measured,
    rejected,
)
from simulated import tied
from tritune import standing
from tritune.choose import choose, contenders
from tritune.device import Device
from tritune.measure import measure
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Entry,
    Evidence,
    Measured,
    Outcome,
    Problem,
    Timing,
    Winner,
)

A, B, C = config(BLOCK=64), config(BLOCK=128), config(BLOCK=256)
SLOW = config(BLOCK=512)


def choice(
    *outcomes: Outcome, default: Config = SLOW, incumbent: Entry | None = None
) -> Winner | None:
    return choose(
        outcomes, kernel=KERNEL, key=KEY, default=default, incumbent=incumbent, triton=TRITON
    )


def winner(*outcomes: Outcome, default: Config = SLOW, incumbent: Entry | None = None) -> Winner:
    chosen = choice(*outcomes, default=default, incumbent=incumbent)
    assert chosen is not None
    return chosen


def tuned(
    device: Device,
    binaries: Sequence[Compiled],
    *,
    default: Config = SLOW,
    incumbent: Entry | None = None,
) -> Winner | None:
    """Measure, then choose, as a sweep does."""
    outcomes = measure(
        device,
        binaries,
        default=default,
        incumbent=incumbent.config if incumbent else None,
        timing=Timing(),
        record=lambda _: None,
        progress=lambda _: None,
    )
    return choice(*outcomes, default=default, incumbent=incumbent)


def times(a: float, b: float) -> Callable[[Candidate], float]:
    """What `A`, `B` and the slow default cost."""
    return lambda this: {A: a, B: b, SLOW: 300.0}[this.config]


THREE = [compiled(BLOCK=block) for block in (64, 128, 512)]


def test_the_fastest_is_the_winner_with_its_evidence() -> None:
    chosen = winner(
        measured(55.04, BLOCK=512),
        measured(19.1, finals=[19.14] * 29 + [21.0], bits="00aa00aa", ir="11bb11bb", BLOCK=64),
        measured(19.7, finals=[19.73] * 30, BLOCK=128),
        rejected(BLOCK=1024),
    )

    assert chosen == Winner(
        kernel=KERNEL,
        key=KEY,
        problem=PROBLEM,
        config=A,
        evidence=Evidence(
            us=19.1,
            default_us=55.0,
            margin=0.031,
            noise=0.0,
            bits="00aa00aa",
            ir="11bb11bb",
            triton=TRITON,
        ),
        ties=0,
        change="new",
    )


def test_when_all_are_rejected_there_is_no_winner() -> None:
    assert choice(rejected(BLOCK=64), rejected(BLOCK=128)) is None
    assert choice() is None


def test_a_sole_survivor_has_no_margin() -> None:
    chosen = winner(measured(BLOCK=64), rejected(BLOCK=128))

    assert (chosen.evidence.margin, chosen.evidence.default_us) == (None, None)


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_two_percent_is_found(seed: int) -> None:
    chosen = tuned(FakeDevice(times(100.0, 98.0), noise=0.005, seed=seed), THREE)

    assert chosen is not None
    assert (chosen.config, chosen.ties) == (B, 0)


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_two_percent_is_found_over_the_default(seed: int) -> None:
    device = FakeDevice(times(100.0, 98.0), noise=0.005, seed=seed)

    chosen = tuned(device, THREE, default=A)

    assert chosen is not None
    assert chosen.config == B


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_third_of_a_percent_is_a_tie_that_takes_the_least_resources(seed: int) -> None:
    chosen = tuned(FakeDevice(times(100.3, 100.0), noise=0.002, seed=seed), THREE)

    assert chosen is not None
    assert (chosen.config, chosen.ties) == (A, 1)


def test_among_ties_the_canonical_order_decides_whatever_order_they_come_in() -> None:
    outcomes = [measured(100.0 + block / 1000, BLOCK=block) for block in (256, 64, 128)]

    assert {winner(*outcomes).config, winner(*reversed(outcomes)).config} == {A}


def test_fewer_warps_come_before_smaller_blocks_among_ties() -> None:
    chosen = winner(measured(BLOCK=64, num_warps=8), measured(BLOCK=128, num_warps=4))

    assert chosen.config == config(BLOCK=128, num_warps=4)


@pytest.mark.parametrize(("slower", "least"), [(1.008, A), (1.012, B)])
def test_noise_widens_a_tie_to_one_percent_and_no_more(slower: float, least: Config) -> None:
    noisy = [10 * (slower + off) for off in (-0.09, -0.03, 0.03, 0.09)] * 7

    chosen = winner(measured(finals=noisy, BLOCK=64), measured(finals=[10.0] * 28, BLOCK=128))

    assert chosen.config == least


def test_an_incumbent_keeps_its_place_and_its_evidence_on_a_tie() -> None:
    incumbent = entry(B, us=99.9, default_us=200.0, margin=0.5, noise=0.009)

    chosen = winner(measured(10.0, BLOCK=64), measured(10.09, BLOCK=128), incumbent=incumbent)

    assert (chosen.config, chosen.evidence, chosen.change) == (B, incumbent.evidence, "kept")


def test_an_imported_incumbent_that_stays_is_measured_whatever_its_evidence_says():
    incumbent = entry(B, us=0.0, unmeasured=True)

    chosen = winner(measured(100.0, BLOCK=64), measured(100.5, BLOCK=128), incumbent=incumbent)

    assert (chosen.config, chosen.change) == (B, "changed")
    assert (chosen.evidence.us, chosen.evidence.unmeasured) == (100.0, False)


def test_an_incumbent_beaten_by_more_than_one_percent_is_replaced() -> None:
    chosen = winner(measured(10.0, BLOCK=64), measured(10.11, BLOCK=128), incumbent=entry(B))

    assert (chosen.config, chosen.change) == (A, "changed")


def test_an_incumbent_that_is_beaten_only_within_the_noise_stays() -> None:
    noisy = [9.0, 10.0, 11.0, 10.0, 9.5, 10.5] * 5
    slower = [us * 1.03 for us in noisy[3:] + noisy[:3]]

    chosen = winner(
        measured(finals=noisy, BLOCK=64), measured(finals=slower, BLOCK=128), incumbent=entry(B)
    )

    assert (chosen.config, chosen.change) == (B, "kept")


def test_a_drift_that_both_share_is_no_noise() -> None:
    drift = [10.0 * (1 + i / 30) for i in range(30)]
    slower = [us * 1.02 for us in drift]

    chosen = winner(
        measured(finals=drift, BLOCK=64), measured(finals=slower, BLOCK=128), incumbent=entry(B)
    )

    assert (chosen.config, chosen.change) == (A, "changed")


def test_a_rejected_incumbent_is_replaced() -> None:
    chosen = winner(measured(10.0, BLOCK=64), rejected(BLOCK=128), incumbent=entry(B))

    assert (chosen.config, chosen.change) == (A, "changed")


@pytest.mark.parametrize("changed", [{"ir": "old"}, {"bits": "old"}, {"triton": "3.5.0"}])
def test_an_incumbent_that_is_another_binary_now_stays_with_new_evidence(
    changed: dict[str, str],
) -> None:
    chosen = winner(measured(10.0, BLOCK=64), incumbent=entry(A, **changed))

    assert (chosen.config, chosen.change) == (A, "changed")
    assert chosen.evidence == evidence(us=10.0, default_us=None, margin=None, noise=0.0)


def test_nothing_not_faster_than_the_default_is_locked_over_it() -> None:
    chosen = winner(measured(10.0, BLOCK=64), measured(10.09, BLOCK=512))

    assert chosen.config == SLOW
    assert (chosen.evidence.us, chosen.evidence.margin) == (10.1, 0.0)


def test_what_is_faster_within_the_noise_is_a_tie_and_no_negative_margin() -> None:
    noisy = [9.0, 10.0, 11.0, 10.0, 9.5, 10.5] * 5
    slower = [us * 1.03 for us in noisy[3:] + noisy[:3]]

    chosen = winner(measured(finals=slower, BLOCK=512), measured(finals=noisy, BLOCK=64))

    assert (chosen.config, chosen.evidence.margin, chosen.ties) == (SLOW, 0.0, 1)


def test_nothing_counts_that_is_less_than_twice_what_one_binary_is_from_itself() -> None:
    pair = [measured(finals=[us] * 30, BLOCK=block) for us, block in ((10.0, 64), (10.3, 512))]

    quiet, loud = pair, [replace(one, floor=0.02) for one in pair]

    assert winner(*quiet).config == A
    assert (winner(*loud).config, winner(*loud).evidence.noise) == (SLOW, 0.02)


def confirmed(us: float, again: float, **values: int) -> Measured:
    return replace(measured(finals=[us] * 30, **values), confirm_us=(again,) * 15)


def test_only_the_confirmation_is_evidence() -> None:
    chosen = winner(
        confirmed(10.0, 11.0, BLOCK=64),
        confirmed(10.4, 11.55, BLOCK=128),
        measured(finals=[10.1] * 20, BLOCK=256),
        confirmed(20.0, 22.0, BLOCK=512),
    )

    assert chosen.config == A
    found = chosen.evidence
    assert (found.us, found.default_us, found.margin) == (11.0, 22.0, 0.05)


def test_a_winner_that_loses_its_confirmation_gives_way_to_the_better() -> None:
    chosen = winner(
        confirmed(10.0, 10.6, BLOCK=64),
        confirmed(10.1, 10.3, BLOCK=128),
        confirmed(20.0, 20.0, BLOCK=512),
    )

    assert (chosen.config, chosen.evidence.us) == (B, 10.3)


def test_a_winner_that_is_confirmed_within_one_percent_stays() -> None:
    chosen = winner(
        confirmed(10.0, 10.09, BLOCK=64),
        confirmed(10.2, 10.0, BLOCK=128),
        confirmed(20.0, 20.0, BLOCK=512),
    )

    assert (chosen.config, chosen.ties, chosen.evidence.margin) == (A, 1, 0.0)


def test_a_gain_that_the_confirmation_does_not_show_leaves_the_default() -> None:
    chosen = winner(confirmed(10.0, 10.0, BLOCK=64), confirmed(10.2, 10.05, BLOCK=512))

    assert chosen.config == SLOW


@pytest.mark.parametrize(
    ("raced", "again", "kept"),
    [
        (10.3, 10.32, False),
        (10.15, 10.05, True),
        (10.05, 10.4, True),
        (10.2, 9.9, True),
        # By more than the margin in both, but processes move them apart by as much as that.
        (10.15, 10.35, True),
    ],
)
def test_who_is_locked_gives_way_to_what_is_surely_better_in_every_process(
    raced: float, again: float, *, kept: bool
) -> None:
    outcomes = (
        confirmed(10.0, 10.0, BLOCK=64),
        confirmed(raced, again, BLOCK=128),
        confirmed(20.0, 20.0, BLOCK=512),
    )

    chosen = winner(*outcomes, incumbent=entry(B))

    assert (chosen.config == B) is kept
    assert winner(*outcomes).ties == kept


def test_rivals_that_lead_in_one_process_each_are_ranked_by_both() -> None:
    chosen = winner(
        confirmed(10.0, 10.8, BLOCK=64),
        confirmed(10.3, 10.0, BLOCK=128),
        confirmed(20.0, 20.0, BLOCK=512),
    )

    assert chosen.config == B


def test_a_confirmation_is_of_the_winner_its_two_rivals_the_default_and_the_incumbent() -> None:
    raced = [measured(finals=[10.0 + i / 10] * 30, BLOCK=64 + i) for i in range(6)]
    default = measured(finals=[20.0] * 30, BLOCK=512)
    incumbent = measured(finals=[15.0] * 30, BLOCK=1024)
    others = [measured(30.0, BLOCK=2048), rejected(BLOCK=4096)]

    found = contenders(
        [*raced, default, incumbent, *others], default=SLOW, incumbent=config(BLOCK=1024)
    )

    assert found == (*raced[:3], default, incumbent)


def test_without_finals_there_is_nothing_to_confirm() -> None:
    assert contenders([measured(BLOCK=64)], default=SLOW, incumbent=None) == ()


def test_what_ties_with_the_best_has_to_beat_the_default_too() -> None:
    chosen = winner(
        measured(10.04, BLOCK=64), measured(10.0, BLOCK=128), measured(10.11, BLOCK=512)
    )

    assert chosen.config == B


def test_a_group_is_named_by_the_incumbent_then_the_default_then_the_least() -> None:
    group = measured(10.0, aliases=[A, SLOW], BLOCK=128)

    assert winner(group, incumbent=entry(B)).config == B
    assert winner(group, default=SLOW).config == SLOW
    assert winner(group, default=C).config == A


def test_the_default_is_found_in_the_group_that_holds_it() -> None:
    chosen = winner(measured(10.0, BLOCK=64), measured(20.0, aliases=[SLOW], BLOCK=128))

    assert chosen.evidence.default_us == 20.0


def test_a_runner_up_of_the_finals_counts_before_what_was_only_screened() -> None:
    chosen = winner(
        measured(finals=[10.0] * 10, BLOCK=64),
        measured(finals=[10.4] * 10, BLOCK=128),
        measured(10.1, BLOCK=256),
    )

    assert chosen.evidence.margin == 0.04


def test_who_left_the_finals_early_cannot_win_by_an_early_clock() -> None:
    chosen = winner(
        measured(finals=[10.0] * 10 + [12.0] * 20, BLOCK=128),
        measured(finals=[10.2] * 10, BLOCK=64),
    )

    assert (chosen.config, chosen.evidence.margin) == (B, 0.02)


@pytest.mark.parametrize(
    ("first", "second"), [(0.0, 0.0), (math.inf, math.inf), (math.nan, math.nan), (-1.0, 0.0)]
)
def test_times_that_are_no_times_make_no_winner(first: float, second: float) -> None:
    assert choice(measured(first, BLOCK=64), measured(second, BLOCK=128)) is None
    assert tuned(FakeDevice(times(first, second)), THREE[:2]) is None


@pytest.mark.parametrize("broken", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_time_never_wins(broken: float) -> None:
    chosen = winner(measured(broken, BLOCK=64), measured(1.0, BLOCK=128))
    measured_too = tuned(FakeDevice(times(broken, 1.0)), THREE[:2])

    assert chosen.config == B
    assert measured_too is not None
    assert measured_too.config == B


def test_one_broken_sample_among_good_ones_never_wins() -> None:
    chosen = winner(measured(samples=[1.0, math.nan, 1.0], BLOCK=64), measured(2.0, BLOCK=128))

    assert chosen.config == B


def test_the_wrong_config_never_wins_even_if_it_is_the_fastest() -> None:
    chosen = tuned(FakeDevice(times(100.0, 1.0), wrong={B}), THREE)

    assert chosen is not None
    assert chosen.config == A


@pytest.mark.parametrize("default", [A, SLOW])
def test_twenty_tunings_under_five_percent_noise_agree_on_one_winner(default: Config) -> None:
    incumbent: Entry | None = None
    winners: list[Winner | None] = []
    for seed in range(20):
        device = FakeDevice(times(1.00 * 100, 1.01 * 100), noise=0.05, seed=seed)
        winners.append(tuned(device, THREE, default=default, incumbent=incumbent))
        assert winners[-1] is not None
        incumbent = Entry(config=winners[-1].config, evidence=winners[-1].evidence)

    assert len({one.config for one in winners if one}) == 1
    assert len({one.evidence for one in winners if one}) == 1


def test_equal_outcomes_make_equal_entries_in_any_order() -> None:
    rng = random.Random(1)  # noqa: S311
    outcomes = [
        measured(finals=[round(rng.gauss(100, 1), 2) for _ in range(30)], BLOCK=block)
        for block in range(16)
    ]
    entries = set()
    for _ in range(10):
        rng.shuffle(outcomes)
        entries.add(repr(winner(*outcomes)))

    assert len(entries) == 1


def test_a_ratio_of_minus_nothing_is_written_as_nothing() -> None:
    chosen = winner(measured(1000.1, BLOCK=64), measured(1000.0, BLOCK=128))

    assert str(chosen.evidence.margin) == "0.0"


def test_a_time_has_three_figures() -> None:
    [small, large] = [winner(measured(us, BLOCK=64)).evidence.us for us in (1.2345, 12345.0)]

    assert (small, large) == (1.23, 12300.0)


@pytest.mark.parametrize("problem", grid_problems(), ids=str)
def test_on_the_recorded_grid_the_choice_is_within_two_percent_of_the_best(
    problem: Problem,
) -> None:
    binaries = grid_compiled(problem)
    default = binaries[0].candidate.config
    far = 0
    for seed in range(60):
        device = GridDevice(problem, seed)
        chosen = tuned(device, binaries, default=default)
        assert chosen is not None
        far += device.true_us(chosen.config) > 1.02 * device.best_us()

    assert far == 0


def test_the_recorded_grid_keeps_its_incumbent_when_it_is_tuned_again() -> None:
    problem = grid_problems()[3]
    binaries = grid_compiled(problem)
    default = binaries[0].candidate.config
    first = tuned(GridDevice(problem, 0), binaries, default=default)
    assert first is not None
    locked = Entry(config=first.config, evidence=first.evidence)

    again = [
        tuned(GridDevice(problem, seed), binaries, default=default, incumbent=locked)
        for seed in range(1, 11)
    ]

    assert set(again) == {replace(first, change="kept", ties=one.ties) for one in again if one}


def test_a_third_process_that_agrees_makes_a_lead_sure() -> None:
    locked, better, slow = (
        confirmed(10.2, 10.4, BLOCK=128),
        confirmed(10.0, 10.0, BLOCK=64),
        confirmed(20.0, 20.0, BLOCK=512),
    )
    thrice = [
        replace(one, doubted_us=(us,) * 15)
        for one, us in ((locked, 10.35), (better, 10.0), (slow, 20.0))
    ]

    assert winner(locked, better, slow, incumbent=entry(B)).config == B
    assert winner(*thrice, incumbent=entry(B)).config == A


def test_what_a_process_adds_costs_the_default_no_place_that_it_has_not() -> None:
    outcomes = (confirmed(10.0, 10.0, BLOCK=64), confirmed(10.2, 10.3, BLOCK=128))

    # The default is only the author's guess: it goes by the margin.
    assert winner(*outcomes, confirmed(10.15, 10.35, BLOCK=512)).config == A


def test_ties_of_a_winner_are_all_that_may_be_as_good() -> None:
    outcomes = [
        confirmed(10.0, 10.0, BLOCK=64),
        confirmed(10.12, 10.12, BLOCK=128),
        confirmed(10.4, 10.4, BLOCK=256),
        confirmed(20.0, 20.0, BLOCK=512),
    ]

    assert tied(outcomes, A) == {A, B}
    assert winner(*outcomes).ties == 1


@pytest.mark.parametrize(
    ("samples", "is_one"), [((10.3,) * 6, False), ((10.1, 10.3, 10.5) * 2, True)]
)
def test_what_was_only_screened_is_a_tie_within_the_noise_of_its_few_samples(
    samples: tuple[float, ...], *, is_one: bool
) -> None:
    best = confirmed(10.0, 10.0, BLOCK=64)
    other = replace(measured(10.3, BLOCK=128), samples_us=samples)

    assert (B in tied([best, other, confirmed(20.0, 20.0, BLOCK=512)], A)) is is_one


def test_who_is_no_tie_is_slower_at_a_confidence_of_99_percent() -> None:
    outcomes = [
        confirmed(10.0, 10.0, BLOCK=64),
        confirmed(10.2, 10.4, BLOCK=128),
        confirmed(10.4, 10.4, BLOCK=256),
        confirmed(20.0, 20.0, BLOCK=512),
    ]
    doubts = [standing.doubt_of(outcomes, sure) for sure in (0.95, 0.99)]

    # Slower by 4 % in two processes that moved another by 2 %: surely at 95 %, not at 99 %.
    assert [0.04 - doubt / math.sqrt(2) > 0.015 for doubt in doubts] == [True, False]
    assert tied(outcomes, A) == {A, B, C}

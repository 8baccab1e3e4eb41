"""Measuring: what is sampled, what is dropped, and what a candidate's outcome is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fakes import FakeDevice, compiled, config, measured
from tritune import paired
from tritune.device import Device
from tritune.measure import confirm, finals, measure, screen
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Measured,
    Outcome,
    Reason,
    Rejected,
    Timing,
    Verified,
)

A, B, C = config(BLOCK=64), config(BLOCK=128), config(BLOCK=256)


def run(
    device: Device,
    binaries: Sequence[Compiled],
    *,
    default: Config = A,
    incumbent: Config | None = None,
    timing: Timing | None = None,
    record: Callable[[Outcome], None] = lambda _: None,
) -> dict[Config, Outcome]:
    outcomes = measure(
        device,
        binaries,
        default=default,
        incumbent=incumbent,
        timing=timing or Timing(),
        record=record,
        progress=lambda _: None,
    )
    return {one.candidate.config: outcome for one, outcome in zip(binaries, outcomes, strict=True)}


def blocks(count: int) -> list[Compiled]:
    return [compiled(BLOCK=block) for block in range(1, count + 1)]


def cost(table: Mapping[Config, float]) -> Callable[[Candidate], float]:
    return lambda this: table[this.config]


def by_block(this: Candidate) -> float:
    """1 % slower with every block."""
    block = this.config["BLOCK"]
    assert isinstance(block, int)
    return 100.0 + block


def is_measured(outcome: Outcome) -> Measured:
    assert isinstance(outcome, Measured)
    return outcome


def measured_only(outcomes: Mapping[Config, Outcome]) -> dict[Config, Outcome]:
    return {this: one for this, one in outcomes.items() if isinstance(one, Measured)}


def in_finals(outcomes: Mapping[Config, Outcome]) -> set[Config]:
    return {this for this, outcome in outcomes.items() if is_measured(outcome).finals_us}


def test_every_candidate_gets_one_outcome_in_the_order_they_came() -> None:
    binaries = blocks(40)

    outcomes = measure(
        FakeDevice(by_block),
        binaries,
        default=config(BLOCK=30),
        incumbent=None,
        timing=Timing(),
        record=lambda _: None,
        progress=lambda _: None,
    )

    assert [outcome.candidate for outcome in outcomes] == [one.candidate for one in binaries]


def test_every_outcome_is_recorded_when_screened_and_again_after_the_finals() -> None:
    recorded: list[Outcome] = []
    device = FakeDevice(by_block, wrong={config(BLOCK=3)}, fails={config(BLOCK=5): Reason.HANG})

    outcomes = run(device, blocks(40), default=config(BLOCK=30), record=recorded.append)

    latest = {outcome.candidate.config: outcome for outcome in recorded}
    assert latest == outcomes
    assert len(recorded) == 40 + len(in_finals(measured_only(outcomes)))
    assert not any(isinstance(one, Measured) and one.finals_us for one in recorded[:40])


def test_nothing_to_measure_is_no_outcomes() -> None:
    assert run(FakeDevice(), []) == {}


def test_a_wrong_config_is_never_timed() -> None:
    device = FakeDevice(cost({A: 100.0, B: 1.0}), wrong={B})

    outcomes = run(device, [compiled(BLOCK=64), compiled(BLOCK=128)])

    assert outcomes[B] == Rejected(
        candidate=compiled(BLOCK=128).candidate,
        reason=Reason.WRONG,
        detail="largest relative error 0.5 at [0, 0]",
    )
    assert all(B not in configs for configs, _ in device.windows)


def test_a_result_that_turns_wrong_after_timing_is_rejected() -> None:
    class Late(FakeDevice):
        def verify(self, compiled: Compiled) -> Verified | Rejected:
            self._wrong = {B} if self.windows else set()
            return super().verify(compiled)

    outcomes = run(Late(cost({A: 100.0, B: 99.9})), [compiled(BLOCK=64), compiled(BLOCK=128)])

    assert outcomes[B] == Rejected(
        candidate=compiled(BLOCK=128).candidate,
        reason=Reason.WRONG,
        detail="after timing: largest relative error 0.5 at [0, 0]",
    )
    assert isinstance(outcomes[A], Measured)


def test_a_candidate_that_fails_while_it_is_timed_stops_nobody_else() -> None:
    device = FakeDevice(cost({A: 100.0, B: 90.0, C: 80.0}), fails={B: Reason.HANG})

    outcomes = run(device, [compiled(BLOCK=block) for block in (64, 128, 256)])

    assert outcomes[B] == Rejected(
        candidate=compiled(BLOCK=128).candidate, reason=Reason.HANG, detail="never returns"
    )
    assert in_finals({A: outcomes[A], C: outcomes[C]}) == {A, C}


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (0.0, "0, 0"),
        (-1.0, "-1, -1"),
        (math.nan, "nan, nan"),
        (math.inf, "inf, inf"),
        (-math.inf, "-inf, -inf"),
        (0.004, "0.004, 0.004"),
    ],
)
def test_a_time_that_is_no_time_is_rejected_with_its_samples(us: float, shown: str) -> None:
    outcomes = run(FakeDevice(cost({A: 100.0, B: us})), [compiled(BLOCK=128), compiled(BLOCK=64)])

    assert outcomes[B] == Rejected(
        candidate=compiled(BLOCK=128).candidate,
        reason=Reason.TIMING,
        detail=f"samples in us: {shown}",
    )
    assert isinstance(outcomes[A], Measured)


def test_when_no_time_is_a_time_all_are_rejected() -> None:
    device = FakeDevice(lambda _: math.nan)

    outcomes = run(device, [compiled(BLOCK=64), compiled(BLOCK=128)])

    assert [outcome.reason for outcome in outcomes.values() if isinstance(outcome, Rejected)] == [
        Reason.TIMING,
        Reason.TIMING,
    ]


def test_the_best_so_far_breaking_in_a_later_chunk_stops_nobody_else() -> None:
    class Breaks(FakeDevice):
        def sample(
            self, compiled: Sequence[Compiled], rounds: int, first: int = 0
        ) -> tuple[tuple[float, ...] | Rejected, ...]:
            self._fails = {config(BLOCK=1): Reason.LAUNCH} if len(self.windows) > 1 else {}
            return super().sample(compiled, rounds, first)

    outcomes = run(Breaks(by_block), blocks(20), default=config(BLOCK=2))

    assert isinstance(outcomes.pop(config(BLOCK=1)), Rejected)
    assert all(isinstance(outcome, Measured) for outcome in outcomes.values())


def test_the_first_round_is_a_warm_up_and_no_sample() -> None:
    device = FakeDevice(clock=lambda number: 2.5 if number == 0 else 1.0)

    outcomes = run(device, [compiled(BLOCK=64)])

    assert is_measured(outcomes[A]).samples_us == (100.0, 100.0, 100.0)


def test_one_sample_three_times_slower_is_enough_to_drop_a_candidate() -> None:
    outcomes = run(FakeDevice(by_block), [*blocks(5), compiled(BLOCK=210)])

    assert outcomes[config(BLOCK=210)] == Measured(
        compiled=compiled(BLOCK=210), samples_us=(310.0,), error=0.0004, bits="9c1e04d2"
    )


def test_what_is_half_as_slow_again_after_all_samples_is_in_no_final() -> None:
    outcomes = run(FakeDevice(by_block), [*blocks(5), compiled(BLOCK=60)])

    assert outcomes[config(BLOCK=60)] == Measured(
        compiled=compiled(BLOCK=60),
        samples_us=(160.0, 160.0, 160.0),
        error=0.0004,
        bits="9c1e04d2",
    )


def test_one_disturbed_sample_does_not_drop_the_best() -> None:
    class Disturbed(FakeDevice):
        def sample(
            self, compiled: Sequence[Compiled], rounds: int, first: int = 0
        ) -> tuple[tuple[float, ...] | Rejected, ...]:
            is_later = bool(self.windows)
            answers = super().sample(compiled, rounds, first)
            if is_later:
                return answers
            return tuple(
                (answer[0], 350.0) if one.candidate.config == B else answer
                for one, answer in zip(compiled, answers, strict=True)
                if not isinstance(answer, Rejected)
            )

    device = Disturbed(cost({A: 104.0, B: 100.0}))

    outcomes = run(device, [compiled(BLOCK=64), compiled(BLOCK=128)])

    assert is_measured(outcomes[B]).samples_us == (350.0, 100.0, 100.0)
    assert in_finals(outcomes) == {A, B}


def test_the_finals_are_what_is_within_five_percent_of_the_best() -> None:
    outcomes = run(FakeDevice(by_block), blocks(30), default=config(BLOCK=1))

    assert in_finals(outcomes) == {config(BLOCK=block) for block in range(1, 7)}


def test_the_two_best_besides_the_default_are_in_the_finals_however_slow() -> None:
    binaries = [compiled(BLOCK=block) for block in (1, 30, 60, 90, 300)]

    outcomes = run(FakeDevice(by_block), binaries, default=config(BLOCK=90))

    assert in_finals(outcomes) == {config(BLOCK=block) for block in (1, 30, 90)}


def test_a_noisy_pair_of_one_binary_widens_the_finals() -> None:
    class Apart(FakeDevice):
        def sample(
            self, compiled: Sequence[Compiled], rounds: int, first: int = 0
        ) -> tuple[tuple[float, ...] | Rejected, ...]:
            one, *others = super().sample(compiled, rounds, first)
            if len(others) == 1 and compiled[0] == compiled[1] and not isinstance(one, Rejected):
                one = tuple(us * 1.05 for us in one)
            return (one, *others)

    outcomes = run(Apart(by_block), blocks(30), default=config(BLOCK=1))

    assert in_finals(outcomes) == {config(BLOCK=block) for block in range(1, 17)}


def test_the_default_and_the_incumbent_are_always_in_the_finals() -> None:
    default, incumbent = config(BLOCK=400), config(BLOCK=30)
    binaries = [*blocks(30), compiled(BLOCK=400)]

    outcomes = run(FakeDevice(by_block), binaries, default=default, incumbent=incumbent)

    assert {default, incumbent} < in_finals(outcomes)


def test_the_group_of_the_default_or_the_incumbent_is_in_the_finals_for_it() -> None:
    binaries = [
        compiled(BLOCK=1),
        compiled(BLOCK=60, aliases=[config(BLOCK=61)]),
        compiled(BLOCK=70, aliases=[config(BLOCK=71)]),
    ]

    outcomes = run(
        FakeDevice(by_block), binaries, default=config(BLOCK=61), incumbent=config(BLOCK=71)
    )

    assert in_finals(outcomes) == {config(BLOCK=block) for block in (1, 60, 70)}


def test_at_most_sixteen_are_in_the_finals_and_one_of_them_twice_in_its_window() -> None:
    device = FakeDevice(lambda this: 100.0)

    outcomes = run(device, blocks(100), default=config(BLOCK=50))

    assert len(in_finals(outcomes)) == 16
    assert max(len(configs) for configs, _ in device.windows) == 17


def test_a_clock_that_slows_down_between_chunks_costs_no_late_candidate_its_final() -> None:
    device = FakeDevice(by_block, clock=lambda number: 1.0 + 0.02 * (number // 4))

    outcomes = run(device, blocks(60)[::-1], default=config(BLOCK=60))

    assert in_finals(outcomes) == {config(BLOCK=block) for block in (*range(1, 7), 60)}


def test_the_standard_of_later_chunks_is_a_middling_one_and_stays() -> None:
    device = FakeDevice(lambda this: 1000.0 - int(str(this.config["BLOCK"])))

    run(device, blocks(60), default=config(BLOCK=1))

    chunks = [configs for configs, _ in device.windows[2:8:2]]
    assert [configs[0] for configs in chunks] == [config(BLOCK=8)] * 3
    assert [configs[1] for configs in chunks] == [config(BLOCK=n) for n in (16, 30, 44)]


def test_a_disturbed_sample_of_a_standard_that_is_slow_by_now_makes_no_chunk_look_fast() -> None:
    class Disturbed(FakeDevice):
        def sample(
            self, compiled: Sequence[Compiled], rounds: int, first: int = 0
        ) -> tuple[tuple[float, ...] | Rejected, ...]:
            answers = super().sample(compiled, rounds, first)
            if len(self.windows) != 7:  # the first of the fourth chunk
                return answers
            return tuple(
                (9000.0, 9000.0) if one.candidate.config == config(BLOCK=9) else answer
                for one, answer in zip(compiled, answers, strict=True)
            )

    def us(this: Candidate) -> float:
        block = int(str(this.config["BLOCK"]))
        return 1000.0 + block if block <= 16 else 100.0 + block

    outcomes = run(Disturbed(us), blocks(60), default=config(BLOCK=1))

    assert all(is_measured(outcomes[config(BLOCK=n)]).finals_us for n in range(17, 22))


def test_a_standard_that_breaks_is_replaced() -> None:
    class Breaking(FakeDevice):
        def sample(
            self, compiled: Sequence[Compiled], rounds: int, first: int = 0
        ) -> tuple[tuple[float, ...] | Rejected, ...]:
            if len(self.windows) == 2:
                self._fails = {config(BLOCK=8): Reason.LAUNCH}
            return super().sample(compiled, rounds, first)

    outcomes = run(Breaking(lambda this: 1000.0 - int(str(this.config["BLOCK"]))), blocks(60))

    assert isinstance(outcomes[config(BLOCK=8)], Rejected)
    assert all(is_measured(outcomes[config(BLOCK=n)]).finals_us for n in range(50, 61))


def test_entry_i_of_every_finalist_is_round_i() -> None:
    device = FakeDevice(
        cost({A: 100.0, B: 101.0, C: 103.0}), clock=lambda number: 1.0 + number / 1000
    )

    outcomes = run(device, [compiled(BLOCK=block) for block in (64, 128, 256)])

    finals = {this: is_measured(outcome).finals_us for this, outcome in outcomes.items()}
    assert [len(finals[this]) for this in (A, B, C)] == [10, 10, 10]
    for i in range(10):
        assert finals[B][i] / finals[A][i] == pytest.approx(1.01, abs=2e-4)


def test_the_finals_stop_early_once_one_is_left() -> None:
    device = FakeDevice(cost({A: 150.0, B: 100.0, C: 104.0}), noise=0.002)

    outcomes = run(device, [compiled(BLOCK=block) for block in (64, 128, 256)])

    assert [len(is_measured(outcomes[this]).finals_us) for this in (A, B, C)] == [10, 10, 10]


def test_the_finals_stop_early_when_all_left_tie() -> None:
    device = FakeDevice(noise=0.0005)

    outcomes = run(device, blocks(3), default=config(BLOCK=1))

    assert {len(is_measured(outcome).finals_us) for outcome in outcomes.values()} == {10}


@pytest.mark.parametrize(("us", "most"), [(100.0, 203), (4000.0, 23)])
def test_what_only_other_challengers_leave_open_goes_on_while_that_is_cheap(
    us: float, most: int
) -> None:
    device = FakeDevice(cost({A: 9 * us, B: us, C: 1.009 * us}), noise=0.08)

    outcomes = run(
        device,
        [compiled(BLOCK=block) for block in (64, 128, 256)],
        timing=Timing(final_rounds=23),
    )

    assert [len(is_measured(outcomes[this]).finals_us) for this in (A, B, C)] == [10, most, most]


def test_a_noisy_score_widens_the_finals() -> None:
    quiet, noisy = (
        in_finals(run(FakeDevice(by_block, noise=noise), blocks(30), default=config(BLOCK=1)))
        for noise in (0.001, 0.02)
    )

    assert len(quiet) < 8
    assert len(noisy) > 10


def test_a_leader_not_yet_separated_from_the_default_gets_more_rounds() -> None:
    device = FakeDevice(cost({A: 100.0, B: 97.5}), noise=0.04)

    outcomes = run(device, [compiled(BLOCK=64), compiled(BLOCK=128)])

    rounds = len(is_measured(outcomes[A]).finals_us)
    assert 30 < rounds <= 480
    default, leader = (is_measured(outcomes[this]).finals_us for this in (A, B))
    assert paired.compare(default, leader).is_beaten


def test_more_rounds_of_a_long_kernel_end_where_they_cost_too_much() -> None:
    device = FakeDevice(lambda _: 50_000.0, noise=0.3)

    outcomes = run(device, blocks(2), default=config(BLOCK=1))

    assert {len(is_measured(outcome).finals_us) for outcome in outcomes.values()} == {30}


def test_the_floor_is_how_far_one_binary_is_from_itself() -> None:
    outcomes = run(FakeDevice(by_block, noise=0.01), blocks(4), default=config(BLOCK=1))

    [floor] = {is_measured(outcome).floor for outcome in outcomes.values()}
    assert 0 < floor < 0.01


def test_a_finalist_whose_bits_change_has_none_to_show() -> None:
    class Changing(FakeDevice):
        def verify(self, compiled: Compiled) -> Verified | Rejected:
            answer = super().verify(compiled)
            assert isinstance(answer, Verified)
            return replace(answer, bits=f"{len(self.verified):08x}")

    outcomes = run(Changing(), blocks(2), default=config(BLOCK=1))

    assert {is_measured(outcome).bits for outcome in outcomes.values()} == {"varies"}


def test_what_was_screened_before_is_not_sampled_again_but_races() -> None:
    common: dict[str, Any] = {
        "default": config(BLOCK=1),
        "incumbent": None,
        "timing": Timing(),
        "record": lambda _: None,
        "progress": lambda _: None,
    }
    early, late = blocks(4)[:2], blocks(4)[2:]
    before = screen(FakeDevice(by_block), early, **common)
    device = FakeDevice(by_block)

    both = screen(device, late, so_far=before, **common)
    outcomes = finals(device, both, **common)

    assert device.verified[:2] == [one.candidate.config for one in late]
    assert [one.candidate for one in outcomes] == [one.candidate for one in blocks(4)]
    assert all(is_measured(one).finals_us for one in outcomes)


def confirmed(
    device: Device, contenders: Sequence[Measured], default: Config = A, **changed: Any
) -> list[Outcome]:
    return list(
        confirm(
            device,
            contenders,
            default=default,
            incumbent=None,
            timing=Timing(**changed),
            progress=lambda _: None,
        )
    )


def test_a_confirmation_adds_samples_of_its_own_to_what_was_known() -> None:
    first = measured(99.0, finals=[99.0] * 10, BLOCK=64)
    second = measured(98.0, finals=[98.0] * 10, BLOCK=128)

    outcomes = confirmed(FakeDevice(cost({A: 100.0, B: 102.0})), [first, second])

    assert outcomes == [
        replace(first, confirm_us=(100.0,) * 15),
        replace(second, confirm_us=(102.0,) * 15),
    ]


def test_a_confirmation_goes_on_while_the_default_is_not_separated() -> None:
    contenders = [measured(100.0, BLOCK=64), measured(98.0, BLOCK=128)]

    outcomes = confirmed(FakeDevice(cost({A: 100.0, B: 97.5}), noise=0.04), contenders)

    assert 15 < len(is_measured(outcomes[0]).confirm_us) <= 240


def test_who_fails_in_the_confirmation_is_rejected() -> None:
    contenders = [measured(100.0, BLOCK=64), measured(98.0, BLOCK=128)]

    outcomes = confirmed(FakeDevice(fails={B: Reason.HANG}), contenders)

    assert isinstance(outcomes[0], Measured)
    assert outcomes[1] == Rejected(
        candidate=contenders[1].candidate, reason=Reason.HANG, detail="never returns"
    )


def test_with_no_final_rounds_nothing_is_confirmed() -> None:
    device = FakeDevice()

    assert confirmed(device, [measured(BLOCK=64)], final_rounds=0) == [measured(BLOCK=64)]
    assert device.windows == []


def test_with_no_final_rounds_only_screening_counts() -> None:
    outcomes = run(
        FakeDevice(),
        blocks(2),
        default=config(BLOCK=1),
        timing=Timing(screen_samples=1, final_rounds=0),
    )

    assert {
        (is_measured(outcome).samples_us, is_measured(outcome).finals_us)
        for outcome in outcomes.values()
    } == {((100.0,), ())}


def test_samples_and_errors_are_rounded_as_the_journal_keeps_them() -> None:
    outcomes = run(FakeDevice(lambda _: 19.12345), blocks(1), default=config(BLOCK=1))

    [outcome] = outcomes.values()
    assert is_measured(outcome).samples_us == (19.12, 19.12, 19.12)
    assert set(is_measured(outcome).finals_us) == {19.12}


def test_progress_names_the_stage_the_count_and_the_best_so_far() -> None:
    said: list[str] = []

    measure(
        FakeDevice(by_block),
        blocks(20),
        default=config(BLOCK=1),
        incumbent=None,
        timing=Timing(),
        record=lambda _: None,
        progress=said.append,
    )

    assert said == [
        "screened 16 of 20, best 101 us: BLOCK=1 num_warps=4",
        "screened 20 of 20, best 101 us: BLOCK=1 num_warps=4",
        "finals, 10 rounds, 1 left, best 101 us: BLOCK=1 num_warps=4",
    ]

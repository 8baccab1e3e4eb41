"""Whole sweeps on a simulated GPU whose truth is known: right, cheap, and the same the next time.

A hundred sweeps here; `benchmarks/bench_trust.py` does thousands.
"""

from __future__ import annotations

import pytest

from simulated import Count, Simulated, count, of_grid, of_pair, of_records, sweep

RESAMPLINGS = 40
"""Of four problems, three sweeps each."""


@pytest.fixture(name="grid", scope="module")
def _grid() -> Count:
    return count(of_grid(), range(RESAMPLINGS))


def test_the_choice_is_within_two_percent_of_the_true_best(grid: Count) -> None:
    assert grid.entries == 4 * RESAMPLINGS
    assert grid.far <= 0.01 * grid.entries


def test_a_sweep_takes_a_third_of_the_recorded_samples_at_most(grid: Count) -> None:
    assert grid.sampled <= 1 / 3


def test_a_second_sweep_changes_next_to_nothing_and_only_by_the_margin(grid: Count) -> None:
    assert grid.changed <= 0.02 * grid.entries
    assert all(claim > 0.01 for claim in grid.claims)


def test_sweeps_from_no_lockfile_mostly_agree(grid: Count) -> None:
    assert grid.identical >= 0.75 * grid.entries
    assert grid.tied >= 0.95 * grid.entries


def test_small_problems_bound_by_memory_keep_what_is_locked() -> None:
    found = count(of_records("softmax", "splitk"), range(4), process=(0.003, 0.003))

    assert found.entries == 4 * 28
    assert found.changed <= 0.02 * found.entries
    assert found.identical >= 0.75 * found.entries


@pytest.mark.parametrize("seed", range(10))
def test_two_percent_over_an_incumbent_are_found(seed: int) -> None:
    truth = of_pair(0.02, 0.004)
    slow, fast = truth.us

    [found] = sweep([truth], Simulated([truth], seed, (0.001, 0.001)), [slow], [slow])

    assert found.winner.config == fast


@pytest.mark.parametrize("seed", range(10))
def test_what_only_one_process_shows_moves_no_incumbent(seed: int) -> None:
    class Once(Simulated):
        def renew(self) -> None:
            """The next process finds both equal."""
            super().renew()
            self._truths = {truth.problem: of_pair(0.0, 0.004)}

    truth = of_pair(0.03, 0.004)
    slow, _ = truth.us

    [found] = sweep([truth], Once([truth], seed, (0.0, 0.0)), [slow], [slow])

    assert found.winner.config == slow

"""simulated: recorded problems -> a GPU that is as unsteady as a real one, whose truth is known.

Three things move a sample besides its binary: the scatter that was recorded, a slow clock that all
share, and what each process adds to each binary for as long as it lives (it places the tensors at
addresses of its own). The last is what no number of rounds shows.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakes import (
    H200,
    KERNEL,
    TRITON,
    compiled,
    entry,
    grid_compiled,
    grid_problems,
    grid_samples,
)
from tritune import choose as choosing
from tritune.choose import choose
from tritune.device.guards import Canary, Guard, NoSensors
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Entry,
    Measured,
    Outcome,
    Problem,
    Timing,
    Verified,
    Winner,
)
from tritune.pipeline.cases import Case
from tritune.pipeline.rounds import Rounds

RECORDED = Path(__file__).resolve().parent.parent / "sweeps" / "recorded"
DRIFT = 0.015
"""Standard deviation of the clock."""
MEMORY = 60
"""Rounds after which it has forgotten most of what it was."""
PROCESS = (0.005, 0.01)
"""Between these is the standard deviation of what a process adds to a binary."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A problem: what each of its binaries takes, and how its samples scatter."""

    binaries: tuple[Compiled, ...]
    us: Mapping[Config, float]
    scatter: Mapping[Config, tuple[float, ...]]
    """Samples over `us`."""

    @property
    def problem(self) -> Problem:
        return self.binaries[0].candidate.problem

    def regret(self, config: Config) -> float:
        """How much slower than the best it is."""
        return self.us[config] / min(self.us.values()) - 1


def of_grid() -> tuple[Truth, ...]:
    """Four matmul problems, every config timed on its own."""
    truths = []
    for problem in grid_problems():
        samples = grid_samples(problem)
        us = {config: statistics.median(found) for config, found in samples.items()}
        scatter = {config: _over(found) for config, found in samples.items()}
        truths.append(Truth(binaries=grid_compiled(problem), us=us, scatter=scatter))
    return tuple(truths)


def of_records(*names: str) -> tuple[Truth, ...]:
    """The problems of some recorded sweeps: finalists by their rounds, the rest at 3 % or more."""
    truths = []
    for name in names:
        by_problem: dict[Problem, list[Measured]] = defaultdict(list)
        for one in Journal.open(RECORDED / f"{name}.H200.jsonl.gz", read_only=True).outcomes():
            if isinstance(one, Measured):
                by_problem[one.candidate.problem].append(one)
        truths += [_of_record(timed) for timed in by_problem.values()]
    return tuple(truths)


def _of_record(timed: Sequence[Measured]) -> Truth:
    longest = max(timed, key=lambda one: len(one.finals_us))
    base_us = statistics.median(longest.finals_us)
    us: dict[Config, float] = {}
    scatter: dict[Config, tuple[float, ...]] = {}
    common = tuple(each for one in timed if one.finals_us for each in _over(one.finals_us))
    for one in timed:
        config = one.candidate.config
        pairs = zip(one.finals_us, longest.finals_us, strict=False)
        ratios = [this / other for this, other in pairs]
        screened_us = max(min(one.samples_us), 1.03 * base_us)
        us[config] = base_us * statistics.median(ratios) if ratios else screened_us
        # What disturbs a sample does not last longer where the kernel does.
        slower = us[config] / base_us
        rest = tuple(1 + (each - 1) / slower for each in common)
        scatter[config] = _over(one.finals_us) if ratios else rest
    return Truth(binaries=tuple(one.compiled for one in timed), us=us, scatter=scatter)


def _over(samples: Sequence[float]) -> tuple[float, ...]:
    middle = statistics.median(samples)
    return tuple(us / middle for us in samples)


def of_pair(gain: float, scatter: float) -> Truth:
    """Two binaries, the second one faster by *gain*."""
    binaries = (compiled(BLOCK=64), compiled(BLOCK=128))
    slow, fast = (one.candidate.config for one in binaries)
    normal = statistics.NormalDist(1, scatter)
    spread = tuple(normal.inv_cdf((i + 0.5) / 100) for i in range(100))
    us = {slow: 100.0 * (1 + gain), fast: 100.0}
    return Truth(binaries=binaries, us=us, scatter={slow: spread, fast: spread})


class Simulated:
    """A `Device` on which the *truths* are measured."""

    target = H200
    triton = TRITON

    def __init__(
        self, truths: Sequence[Truth], seed: int, process: tuple[float, float] = PROCESS
    ) -> None:
        self._truths = {truth.problem: truth for truth in truths}
        self._random = random.Random(seed)  # noqa: S311
        self._process = process
        self._clock = 0.0
        self._added: dict[Candidate, float] = {}
        self.samples = 0

    def renew(self) -> None:
        self._added = {}

    def verify(self, compiled: Compiled) -> Verified:
        return Verified(candidate=compiled.candidate, error=0.0, bits="00000000")

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...], ...]:
        truth = self._truths[compiled[0].candidate.problem]
        clocks = [self._tick() for _ in range(rounds)]
        self.samples += rounds * len(compiled)
        answers = []
        for one in compiled:
            config = one.candidate.config
            us = truth.us[config] * self._of_process(one.candidate)
            found = self._random.choices(truth.scatter[config], k=rounds)
            answers.append(tuple(us * a * b for a, b in zip(clocks, found, strict=True)))
        return tuple(answers)

    def _tick(self) -> float:
        kept = math.exp(-1 / MEMORY)
        push = DRIFT * math.sqrt(1 - kept**2)
        self._clock = kept * self._clock + self._random.gauss(0, push)
        return 1 + self._clock

    def _of_process(self, candidate: Candidate) -> float:
        if candidate not in self._added:
            deviation = self._random.uniform(*self._process)
            self._added[candidate] = math.exp(self._random.gauss(0, deviation))
        return self._added[candidate]

    def canary(self) -> Canary:
        return Canary(us=200.0, mhz=1700.0)

    def close(self) -> None:
        """Nothing to give back."""


def tied(outcomes: Sequence[Outcome], winner: Config) -> frozenset[Config]:
    """The configs that may be as good as a winner, as far as these outcomes tell; it included."""
    ran = choosing._ran(outcomes)
    [chosen] = choosing._groups(ran, [winner])
    every = (chosen, *choosing._ties(chosen, ran))
    return frozenset(config for one in every for config in choosing._configs(one))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a sweep found of one problem, and what it locks."""

    truth: Truth
    outcomes: tuple[Outcome, ...]
    default: Config
    winner: Winner

    def keeps(self, config: Config) -> bool:
        """Whether that is as good as the winner, as far as this sweep could tell."""
        return config in tied(self.outcomes, self.winner.config)


def sweep(
    truths: Sequence[Truth],
    device: Simulated,
    defaults: Sequence[Config],
    incumbents: Sequence[Config] | None = None,
) -> tuple[Decision, ...]:
    """Screen, finals, confirmation in another process, choice; each problem has its own default."""
    places = incumbents or (None,) * len(truths)
    cases = [
        Case(compiled=truth.binaries, incumbent=place)
        for truth, place in zip(truths, places, strict=True)
    ]
    rounds = [_rounds(device, default) for default in defaults]
    for one, case in zip(rounds, cases, strict=True):
        one.race([case])
    for one, case in zip(rounds, cases, strict=True):
        one.confirm([case])
    decisions = []
    for truth, case, default, place in zip(truths, cases, defaults, places, strict=True):
        winner = _chosen(case.outcomes, default, entry(place) if place else None)
        outcomes = tuple(case.outcomes)
        decisions.append(Decision(truth=truth, outcomes=outcomes, default=default, winner=winner))
    return tuple(decisions)


def _rounds(device: Simulated, default: Config) -> Rounds:
    return Rounds(
        device=device,
        guard=Guard(device.canary, NoSensors("")),
        default=default,
        timing=Timing(),
        write=lambda *_: None,
        advance=lambda _: None,
    )


def _chosen(outcomes: Sequence[Outcome], default: Config, incumbent: Entry | None) -> Winner:
    found = choose(
        outcomes, kernel=KERNEL, key="", default=default, incumbent=incumbent, triton=TRITON
    )
    assert found is not None
    return found


@dataclass(kw_only=True)
class Count:
    """What some resamplings came to, entry by entry."""

    entries: int = 0
    far: int = 0
    """Whose choice is more than 2 % slower than the true best."""
    worst: float = 0.0
    sampled: float = 0.0
    """The largest part of the recorded samples that a sweep took."""
    changed: int = 0
    """By a second sweep, with the first one's lockfile."""
    gains: tuple[float, ...] = ()
    """The true ones, of what changed."""
    claims: tuple[float, ...] = ()
    """The least lead in a process, of what changed."""
    tied: int = 0
    """Whose winner is as good as the winner of a sweep that began with no lockfile."""
    identical: int = 0

    def add(
        self, first: Sequence[Decision], second: Sequence[Decision], anew: Sequence[Decision]
    ) -> None:
        for one, again, other in zip(first, second, anew, strict=True):
            config, now = one.winner.config, again.winner.config
            regret = one.truth.regret(config)
            self.entries += 1
            self.far += regret > 0.02
            self.worst = max(self.worst, regret)
            self.tied += other.keeps(config)
            self.identical += other.winner.config == config
            if now != config:
                self.changed += 1
                self.gains += (one.truth.us[config] / one.truth.us[now] - 1,)
                self.claims += (_least_lead(again.outcomes, config, now),)

    def __add__(self, other: Count) -> Count:
        return Count(
            entries=self.entries + other.entries,
            far=self.far + other.far,
            worst=max(self.worst, other.worst),
            sampled=max(self.sampled, other.sampled),
            changed=self.changed + other.changed,
            gains=self.gains + other.gains,
            claims=self.claims + other.claims,
            tied=self.tied + other.tied,
            identical=self.identical + other.identical,
        )

    def __str__(self) -> str:
        gains = f" (true gain {statistics.median(self.gains):.1%})" if self.gains else ""
        far, changed, tied, identical = (
            each / self.entries for each in (self.far, self.changed, self.tied, self.identical)
        )
        return (
            f"{self.entries:,} entries: {far:.2%} over 2 % from the best, "
            f"at most {self.worst:.1%}; {self.sampled:.0%} of the samples; "
            f"a second sweep changed {changed:.2%}{gains}; "
            f"from no lockfile {tied:.1%} tied, {identical:.1%} identical"
        )


def _least_lead(outcomes: Sequence[Outcome], slower: Config, faster: Config) -> float:
    found = {one.candidate.config: one for one in outcomes if isinstance(one, Measured)}
    a, b = found[slower], found[faster]
    series = [
        (a.finals_us, b.finals_us),
        (a.confirm_us, b.confirm_us),
        (a.doubted_us, b.doubted_us),
    ]
    leads = [
        statistics.median(x / y for x, y in zip(one, other, strict=False)) - 1
        for one, other in series
        if one and other
    ]
    return min(leads)


def count(
    truths: Sequence[Truth], seeds: Sequence[int], process: tuple[float, float] = PROCESS
) -> Count:
    """Three sweeps for each seed: one, a second with its lockfile, one more with none."""
    found = Count()
    recorded = sum(len(one) for truth in truths for one in truth.scatter.values())
    for seed in seeds:
        picks = random.Random(seed)  # noqa: S311
        defaults = [picks.choice(truth.binaries).candidate.config for truth in truths]
        devices = [Simulated(truths, 3 * seed + i, process) for i in range(3)]
        first = sweep(truths, devices[0], defaults)
        locked = [one.winner.config for one in first]
        second = sweep(truths, devices[1], defaults, locked)
        found.add(first, second, sweep(truths, devices[2], defaults))
        found.sampled = max(found.sampled, devices[0].samples / recorded)
    return found

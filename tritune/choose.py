"""choose: Outcomes -> Winner.

Pure: equal outcomes give equal bytes, in whatever order they come and wherever they were read.
Comparisons are paired, round by round, so that a clock that drifts does so for both sides.

A re-run of an unchanged sweep moves medians by about the noise, so a lead inside it proves
nothing: the incumbent keeps its place, then the default, then the config that takes least.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritune.model import Config, Entry, Evidence, Measured, Outcome, Winner

TIE = 0.005
"""As near as this, relative, is a tie."""
TIE_NOISE = 1.0
"""So is as near as this many times the noise of the comparison."""
TIE_MOST = 0.01
"""But nothing slower by more: the most that the order among ties may cost."""
BEAT = 0.01
"""Only by more than this does a challenger take the place of the incumbent or the default."""
BEAT_NOISE = 2.0
"""And only by more than this many times the noise of the comparison."""
ERROR = 1.86
"""Standard error of a median, in half the distance of the quartiles over the root of the count.

1.253 / 0.674, as normal samples have it; where tails are heavier it errs on the wide side.
"""
FIGURES = 3
"""Figures of a time in the evidence."""
DECIMALS = 3
"""Decimals of a ratio in the evidence."""


def choose(
    outcomes: Sequence[Outcome],
    *,
    kernel: str,
    key: str,
    default: Config,
    incumbent: Entry | None,
    triton: str,
) -> Winner | None:
    """The config to lock for one problem; None where nothing ran right."""
    ran = _ran(outcomes)
    if not ran:
        return None
    holders = ([incumbent.config] if incumbent else []) + [default]
    chosen = _choose([one for one in ran if one.finals_us] or ran, _groups(ran, holders))
    configs = _configs(chosen)
    config = next((holder for holder in holders if holder in configs), configs[0])
    evidence = _evidence(chosen, ran, default, triton)
    change = "changed" if incumbent else "new"
    # What is locked is another binary once its IR, its bits or its Triton differ: then the old
    # numbers are about something that no longer runs, though the config stays.
    if incumbent and config == incumbent.config and _code(evidence) == _code(incumbent.evidence):
        change, evidence = "kept", incumbent.evidence
    return Winner(
        kernel=kernel,
        key=key,
        problem=chosen.candidate.problem,
        config=config,
        evidence=evidence,
        ties=len(_ties(chosen, ran)),
        change=change,
    )


def _choose(field: Sequence[Measured], holders: Sequence[Measured]) -> Measured:
    """The first holder of a place that the best does not beat, else the least of the ties."""
    # Who was eliminated was surely slower than something, and its rounds had other clocks.
    rounds = max(len(one.finals_us) for one in field)
    last = [one for one in field if len(one.finals_us) == rounds]
    best = min(last, key=_median)
    for holder in holders:
        if not _compare(holder, best).is_beaten:
            return holder
    return next(
        one
        for one in last
        if _compare(one, best).is_tie and all(_compare(holder, one).is_beaten for holder in holders)
    )


def _median(measured: Measured) -> float:
    return measured.median_us


@dataclass(frozen=True, kw_only=True, slots=True)
class _Comparison:
    """How much slower one is than the other, relative, and the noise of saying so."""

    excess: float
    noise: float
    """Two standard errors of `excess`: it shrinks with the rounds, and drift is no part of it."""

    @property
    def is_tie(self) -> bool:
        return abs(self.excess) <= min(max(TIE, TIE_NOISE * self.noise), TIE_MOST)

    @property
    def is_beaten(self) -> bool:
        return self.excess > max(BEAT, BEAT_NOISE * self.noise)


def _compare(one: Measured, other: Measured) -> _Comparison:
    """Round by round where both were in the finals (the eliminated up to where they left)."""
    ratios = [ours / theirs for ours, theirs in zip(one.finals_us, other.finals_us, strict=False)]
    if ratios:
        middle = statistics.median(ratios)
        noise = 2 * ERROR * _spread(ratios) / middle / math.sqrt(len(ratios))
        return _Comparison(excess=middle - 1, noise=noise)
    ratio = _screened_us(one) / _screened_us(other)
    return _Comparison(excess=ratio - 1, noise=max(one.noise, other.noise))


def _screened_us(measured: Measured) -> float:
    return statistics.median(measured.samples_us or measured.finals_us)


def _spread(values: Iterable[float]) -> float:
    """Half the distance of the quartiles, as `Measured.noise` has it."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / 2


def _evidence(chosen: Measured, ran: Sequence[Measured], default: Config, triton: str) -> Evidence:
    excesses = [_compare(other, chosen).excess for other in _others(chosen, ran)]
    return Evidence(
        us=_figures(chosen.median_us),
        default_us=next((_figures(one.median_us) for one in _groups(ran, [default])), None),
        margin=_decimals(min(excesses)) if excesses else None,
        noise=_decimals(chosen.noise),
        bits=chosen.bits,
        ir=chosen.compiled.ir,
        triton=triton,
    )


def _others(chosen: Measured, ran: Sequence[Measured]) -> list[Measured]:
    """What it is compared with: finalists, where any other was; they shared its window."""
    others = [one for one in ran if one is not chosen]
    return [one for one in others if one.finals_us] or others


def _ties(chosen: Measured, ran: Sequence[Measured]) -> list[Measured]:
    rounds = len(chosen.finals_us)
    others = [one for one in _others(chosen, ran) if len(one.finals_us) == rounds]
    return [one for one in others if _compare(one, chosen).is_tie]


def _code(evidence: Evidence) -> tuple[str, str, str]:
    return evidence.ir, evidence.bits, evidence.triton


def _figures(us: float) -> float:
    return float(f"{us:.{FIGURES}g}")


def _decimals(ratio: float) -> float:
    # Adding zero makes -0.0, which would be other bytes, 0.0.
    return round(ratio, DECIMALS) + 0.0


def _ran(outcomes: Sequence[Outcome]) -> list[Measured]:
    """What was timed, in canonical order; a time that is no time counts as not timed."""
    measured = [one for one in outcomes if isinstance(one, Measured) and _is_timed(one)]
    return sorted(measured, key=lambda one: _order(_configs(one)[0]))


def _is_timed(measured: Measured) -> bool:
    samples = measured.samples_us + measured.finals_us
    return bool(samples) and all(math.isfinite(us) and us > 0 for us in samples)


def _configs(measured: Measured) -> list[Config]:
    """Every config that is this binary, in canonical order."""
    return sorted((measured.candidate.config, *measured.compiled.aliases), key=_order)


def _order(config: Config) -> tuple[tuple[tuple[int, float, str], ...], str]:
    # `True` and 1 are one number to `order()`, so the text decides between them.
    return config.order(), str(config)


def _groups(ran: Sequence[Measured], configs: Iterable[Config]) -> list[Measured]:
    """The measured binary of each of *configs* that has one."""
    return [one for config in configs for one in ran if config in _configs(one)]

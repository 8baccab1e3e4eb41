"""choose: Outcomes -> Winner.

Pure: equal outcomes give equal bytes, in whatever order they come and wherever they were read.
Comparisons are paired, round by round, so that a clock that drifts does so for both sides.

A re-run of an unchanged sweep moves medians by about the noise, so a lead inside it proves
nothing: the incumbent keeps its place, then the default, then the config that takes least.

The finals propose, the confirmation disposes: where there is one, only its samples are evidence.
But both decide. A process places its tensors at addresses of its own, which moves a kernel that
is bound by memory by half a percent to two against another, alike in every round of that process
and otherwise in the next: no number of rounds shows it. So who holds a place gives way only to
what is better by more than the margin in each of them, and what leads is what leads in all taken
together. A config that is locked is asked about in a third process before it goes, and the lead
has to be sure for what processes add, as the contenders of the problem show it (`standing`).

In simulated second decisions on the softmax and split-K problems of `sweeps/recorded`, with a
binary off by 0.5 % in each process, the confirmation alone changed 7.6 % of the entries, half of
them for a true gain of less than 0.5 %; finals and confirmation 2.9 %, with the third process
0.7 %, with all of it none of 336; at 1 % a process 0.9 % (`tests/benchmarks/bench_trust.py`).
On an H200 2 of 97 changed before the last part, for 1.5 and 2.3 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from tritune.model import Config, Entry, Evidence, Measured, Outcome, Winner
from tritune.paired import BEAT, TIE
from tritune.standing import compared, doubt_of, gives_way, in_finals, together

FIGURES = 3
"""Figures of a time in the evidence."""
DECIMALS = 3
"""Decimals of a ratio in the evidence."""
RIVALS = 2
"""So many of the fastest besides are confirmed with the winner."""


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
    held = _groups(ran, holders)
    locked = _groups(ran, holders[:1]) if incumbent else []
    chosen = _choose(ran, held, locked[0] if locked else None)
    configs = _configs(chosen)
    config = next((holder for holder in holders if holder in configs), configs[0])
    evidence = _evidence(chosen, ran, default, triton)
    change = "changed" if incumbent else "new"
    # What is locked is another binary once its IR, its bits or its Triton differ: then the old
    # numbers are about something that no longer runs, though the config stays. Of an imported
    # one there are no numbers: it stays with those of today.
    still = incumbent is not None and config == incumbent.config
    if incumbent and still and _stands(incumbent.evidence, evidence):
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


def contenders(
    outcomes: Sequence[Outcome], *, default: Config, incumbent: Config | None
) -> tuple[Measured, ...]:
    """Whom a confirmation has to time: the winner so far, its rivals, the default, the incumbent.

    In canonical order; nothing where there were no finals.
    """
    ran = _ran(outcomes)
    raced = sorted((one for one in ran if one.finals_us), key=_raced_us)
    if not raced:
        return ()
    holders = _groups(ran, [incumbent or default, default])
    chosen = _proposed(ran, holders)
    wanted = [chosen, *[one for one in raced if one is not chosen][:RIVALS], *holders]
    return tuple(one for one in ran if any(one is other for other in wanted))


def replaces(outcomes: Sequence[Outcome], *, default: Config, incumbent: Config | None) -> bool:
    """Whether an incumbent that still runs would lose its place."""
    ran = _ran(outcomes)
    held = _groups(ran, [incumbent] if incumbent else [])
    return bool(held) and _choose(ran, [*held, *_groups(ran, [default])], held[0]) is not held[0]


def runner_up(outcomes: Sequence[Outcome], away: Sequence[Config]) -> Config | None:
    """The fastest binary that is none of the configs *away*, by the samples that tell most."""
    others = [one for one in _ran(outcomes) if not {*away} & {*_configs(one)}]
    confirmed = [one for one in others if one.confirm_us]
    field = confirmed or [one for one in others if one.finals_us] or others
    best = min(field, key=lambda one: one.median_us, default=None)
    return best.candidate.config if best else None


def losses(outcomes: Sequence[Outcome], winner: Config) -> dict[Config, float]:
    """How much slower every config that ran is than the winner, relative; not below nothing."""
    ran = _ran(outcomes)
    return {
        config: max(compared(one, chosen).excess, 0.0)
        for chosen in _groups(ran, [winner])[:1]
        for one in ran
        for config in _configs(one)
    }


def _raced_us(measured: Measured) -> float:
    return statistics.median(measured.finals_us)


def _choose(
    ran: Sequence[Measured], holders: Sequence[Measured], incumbent: Measured | None
) -> Measured:
    proposed = _proposed(ran, holders)
    if not proposed.confirm_us:
        return proposed
    confirmed = [one for one in ran if one.confirm_us]
    fastest = min(confirmed, key=lambda one: together(one, proposed).excess)
    best = proposed if together(proposed, fastest).is_tie else fastest
    still = [one for one in holders if one.confirm_us]
    doubt = doubt_of(ran)
    return next(
        (one for one in still if not gives_way(one, best, doubt if one is incumbent else 0.0)),
        best,
    )


def _proposed(ran: Sequence[Measured], holders: Sequence[Measured]) -> Measured:
    """The first holder of a place that the best does not beat, else the least of the ties."""
    field = [one for one in ran if one.finals_us] or list(ran)
    # Who was eliminated was surely slower than something, and its rounds had other clocks.
    rounds = max(len(one.finals_us) for one in field)
    last = [one for one in field if len(one.finals_us) == rounds]
    best = min(last, key=_finals_us)
    for holder in holders:
        if not in_finals(holder, best).is_beaten:
            return holder
    return next(
        one
        for one in last
        if in_finals(one, best).is_tie
        and all(in_finals(holder, one).is_beaten for holder in holders)
    )


def _finals_us(measured: Measured) -> float:
    return statistics.median(measured.finals_us or measured.samples_us)


def _evidence(chosen: Measured, ran: Sequence[Measured], default: Config, triton: str) -> Evidence:
    excesses = [compared(other, chosen).excess for other in _shown(chosen, ran)]
    return Evidence(
        us=_figures(chosen.median_us),
        default_us=next((_figures(one.median_us) for one in _groups(ran, [default])), None),
        # What is faster only within the noise is a tie: no reviewer should wonder at a minus.
        margin=_decimals(max(min(excesses), 0.0)) if excesses else None,
        noise=_decimals(max(chosen.noise, chosen.floor)),
        bits=chosen.bits,
        ir=chosen.compiled.ir,
        triton=triton,
    )


def _others(chosen: Measured, ran: Sequence[Measured]) -> list[Measured]:
    """What it is compared with: finalists, where any other was; they shared its window."""
    others = [one for one in ran if one is not chosen]
    return [one for one in others if one.finals_us] or others


def _shown(chosen: Measured, ran: Sequence[Measured]) -> list[Measured]:
    """Whose lag is evidence: what was confirmed with it, where anything was."""
    others = _others(chosen, ran)
    return [one for one in others if chosen.confirm_us and one.confirm_us] or others


def _ties(chosen: Measured, ran: Sequence[Measured]) -> list[Measured]:
    """Who may be as good, as far as this sweep can tell: the winner of another is among them.

    A default that the other kept was within its margin, or a winner within a tie, by samples
    that are half a tie from these: so it is one for as much more than the margin. And each
    sweep locks who was lucky in it, so who is none has to be slower at a confidence of 99 %; and
    by more than the noise too, where it left before the last comparison, with few samples.
    """
    doubt = doubt_of(ran, 0.99)

    def is_slower(one: Measured) -> bool:
        stayed = one.confirm_us if chosen.confirm_us else one.finals_us
        noise = 0.0 if stayed else in_finals(one, chosen).noise
        return gives_way(one, chosen, doubt, BEAT + TIE + noise)

    return [one for one in ran if one is not chosen and not is_slower(one)]


def _stands(before: Evidence, now: Evidence) -> bool:
    return _code(before) == _code(now) and not before.unmeasured


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

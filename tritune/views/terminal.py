"""terminal: Report -> the summary a sweep ends with.

What was done, a line a winner, what became of the candidates, what was locked and what to
do next. Every time in it is a kernel's time on the target it names; the steps say by what
each was done, and a replayed report says that its times were recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tritune.model import (
    IN_INTERPRETER,
    Measured,
    Problem,
    Rejected,
    Report,
    Step,
    Target,
    Winner,
    Work,
    count,
)
from tritune.views.columns import Column, config_columns, problem_lines
from tritune.views.misses import missed_text
from tritune.views.nextsteps import next_text, shown_path
from tritune.views.page import PLAIN_WIDTH, line, page, table, table_width
from tritune.views.shares import shared_text
from tritune.views.units import (
    NONE,
    format_percent,
    format_ratio,
    format_s,
    format_us,
)
from tritune.words import plural


def summaries(reports: Sequence[Report], *, width: int = PLAIN_WIDTH) -> Group:
    """The summaries of one sweep file's kernels, and once below them what to do next."""
    parts: list[Group | Text | None] = []
    for report in reports:
        parts += [summary(report, width=width), line("")]
    return page(*parts[:-1], next_text(reports))


def summary(report: Report, *, width: int = PLAIN_WIDTH) -> Group:
    """All that a sweep of one kernel has to say, except what to do next."""
    steps = steps_text(report.steps)
    return page(
        line(f"{report.kernel.name} from {shown_path(report.sweep)}", "bold"),
        steps,
        line("") if steps and report.winners else None,
        _winners(report, width) if report.winners else None,
        _replayed(report),
        _counts(report),
        _misfits(report),
        *(_unsolved(report, problem) for problem in report.unsolved),
        shared_text(report),
        missed_text(report),
        _locked(report),
    )


def steps_text(steps: Sequence[Step]) -> Text | None:
    if not steps:
        return None
    wide = max(len(step.name) for step in steps)
    return line("\n".join(_step(step, wide) for step in steps))


def _step(step: Step, wide: int) -> str:
    took = f" · {format_s(step.seconds)}" if step.seconds >= 0.1 else ""
    return f"{step.name.ljust(wide)}   {step.text}{took}"


def _winners(report: Report, width: int) -> Table:
    winners = report.winners
    bounds = {work.problem: roofline_us(work, report.target) for work in report.work}
    name = report.kernel.short
    problems = Column(
        heading=f"{name} on {report.target.name}",
        cells=problem_lines([winner.problem for winner in winners]),
    )
    figures = (
        Column(heading="   µs", cells=tuple(format_us(w.evidence.us) for w in winners)),
        Column(heading="default", cells=tuple(format_us(w.evidence.default_us) for w in winners)),
        Column(heading="faster", cells=tuple(format_ratio(speed_up(w)) for w in winners)),
        Column(
            heading="roofline",
            cells=tuple(_of_roofline(bounds.get(w.problem), w.evidence.us) for w in winners),
        ),
        Column(heading="runner-up", cells=tuple(_runner_up(w) for w in winners)),
    )
    configs = config_columns([winner.config for winner in winners])
    if table_width([problems, *configs, *figures]) > width:
        configs = config_columns([winner.config for winner in winners], compact=True)
    return table([problems], [*configs, *figures])


def roofline_us(work: Work, target: Target) -> float | None:
    """The least time the chip's peaks allow for *work*; None where a figure is missing."""
    flops_per_us = dict(target.peaks_tflops).get(work.dtype, 0.0) * 1e6
    bytes_per_us = target.dram_gbps * 1e3
    bounds = [
        amount / rate
        for amount, rate in ((work.flops, flops_per_us), (work.bytes, bytes_per_us))
        if amount is not None and rate
    ]
    return max(bounds, default=None)


def _of_roofline(bound_us: float | None, us: float) -> str:
    return NONE if bound_us is None or not us else format_percent(bound_us / us)


def speed_up(winner: Winner) -> float | None:
    """The default's time over the winner's; None where the default did not run."""
    evidence = winner.evidence
    return evidence.default_us / evidence.us if evidence.default_us and evidence.us else None


def _runner_up(winner: Winner) -> str:
    if winner.ties:
        return f"tie of {winner.ties + 1}"
    return format_percent(winner.evidence.margin, signed=True)


def _replayed(report: Report) -> Text | None:
    if not report.replayed:
        return None
    return line(
        f"replayed: every time here was recorded on {report.target.name} by an earlier sweep; "
        "nothing was timed on this machine",
        "yellow",
    )


def _misfits(report: Report) -> Text | None:
    """What was rejected, each config once, where no journal of this machine can be asked."""
    if not report.replayed and report.winners:
        return None
    out = [one for one in report.outcomes if isinstance(one, Rejected)]
    interpreted = _rows([one for one in out if one.reason in IN_INTERPRETER], "smoke problem")
    others = _rows([one for one in out if one.reason not in IN_INTERPRETER], "problem")
    parts = [
        *(["failed in Triton's interpreter, on the CPU:", *interpreted] if interpreted else []),
        *([f"rejected for {report.target.name}:", *others] if others else []),
    ]
    return line("\n".join(parts)) if parts else None


def _rows(rejected: Sequence[Rejected], kind: str) -> list[str]:
    """A line for each config and why it is out, with the problem or how many."""
    problems: dict[tuple[str, str], list[Problem]] = {}
    for one in rejected:
        why = f"{one.reason.value}: {one.detail}"
        why += f" · all of it in {one.log}" if one.log else ""
        problems.setdefault((str(one.candidate.config), why), []).append(one.candidate.problem)
    return [f"  {config} · {why} · {_which(on, kind)}" for (config, why), on in problems.items()]


def _which(problems: Sequence[Problem], kind: str) -> str:
    if kind == "smoke problem" and len(problems) == 1:
        return f"{kind} {problems[0]}"
    return plural(len(problems), kind)


def _counts(report: Report) -> Text | None:
    timed = [outcome for outcome in report.outcomes if isinstance(outcome, Measured)]
    same = sum(len(outcome.compiled.aliases) for outcome in timed)
    rejected = _reasons(o for o in report.outcomes if isinstance(o, Rejected))
    if not report.outcomes:
        return None
    if not timed:
        return line(f"{plural(len(report.outcomes), 'candidate')} rejected: {rejected}")
    parts = [
        f"{len(timed):,} {'timed in the record' if report.replayed else 'timed'}",
        f"{same:,} same binary as another" if same else "",
        rejected,
    ]
    total = plural(len(report.outcomes) + same, "candidate")
    return line(f"{total}: {' · '.join(part for part in parts if part)}")


def _reasons(rejected: Iterable[Rejected]) -> str:
    counted = sorted(count(rejected).items(), key=lambda item: (-item[1], item[0].value))
    return " · ".join(f"{number:,} {reason.value}" for reason, number in counted)


def _unsolved(report: Report, problem: Problem) -> Text:
    rejected = [
        outcome
        for outcome in report.outcomes
        if isinstance(outcome, Rejected) and outcome.candidate.problem == problem
    ]
    why = _reasons(rejected) or "no config was tried"
    return line(f"no valid config for {problem}: {why}", "red")


def _locked(report: Report) -> Text:
    took = f"{format_s(report.wall_s)}{f', GPU {format_s(report.gpu_s)}' if report.gpu_s else ''}"
    if not report.locked:
        return line(f"nothing locked: {report.not_locked or 'no winner'} · {took}", "yellow")
    changes = [winner.change for winner in report.winners]
    each = ", ".join(f"{changes.count(kind)} {kind}" for kind in ("new", "changed", "kept"))
    overall = mean_speed_up(report.winners)
    against = f", {format_ratio(overall)} over default" if overall else ""
    file = shown_path(report.lockfile)
    return line(f"locked {len(changes):,} ({each}) in {file}{against} · {took}", "green")


def mean_speed_up(winners: Iterable[Winner]) -> float | None:
    """The geometric mean of the winners' speed-ups."""
    ratios = [ratio for winner in winners if (ratio := speed_up(winner))]
    return math.prod(ratios) ** (1 / len(ratios)) if ratios else None

"""nextsteps: the Reports of a sweep file -> the line that says what to do next."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from tritune.model import IN_INTERPRETER, Outcome, Reason, Rejected, Report
from tritune.views.page import line
from tritune.words import shell

_SPACE = {
    Reason.ILLEGAL,
    Reason.PRUNED,
    Reason.SHARED,
    Reason.TENSOR_MEMORY,
    Reason.THREADS,
    Reason.REGISTERS,
    Reason.MEMORY,
    Reason.TIMEOUT,
}
"""Reasons that other values in `space:` may cure; all else is the kernel's, or its op's."""
_VALUE = re.compile(r"power of (?:2|two)|maximum tensor numel|shapes should have M >=")
"""What Triton says, compiled or interpreted, of a block with a size that it does not take."""
_PLACED_VALUE = re.compile(rf"(?:{_VALUE.pattern}).*\((\S+:\d+)\)$")
"""The same with the line of the kernel that it says it of."""


def next_text(reports: Sequence[Report]) -> Text | None:
    changed = dict.fromkeys(
        shown_path(report.lockfile)
        for report in reports
        if report.locked and any(winner.change != "kept" for winner in report.winners)
    )
    diff = [f"git diff {shell(*changed)}"] if changed else []
    parts = [*diff, *_why_not(reports), *_elsewhere(reports), *_cures(reports)]
    return line(f"next: {' · '.join(dict.fromkeys(parts))}", "dim") if parts else None


def shown_path(path: str) -> str:
    """A path as one would type it here: relative below this folder, else as it is."""
    return os.path.relpath(path) if Path(path).resolve().is_relative_to(Path.cwd()) else path


def _why_not(reports: Sequence[Report]) -> list[str]:
    """Only a sweep on a GPU, or a record of one, leaves a journal that has what it rejected."""
    return [
        f"{'why none' if _is_failed(one) else 'why not another'}: "
        f"tritune show rejected {shell(shown_path(one.sweep))}"
        for one in reports
        if (one.gpu_s or one.replayed) and any(map(_is_journalled, one.outcomes))
    ]


def _is_journalled(outcome: Outcome) -> bool:
    return isinstance(outcome, Rejected) and outcome.reason not in IN_INTERPRETER


def _elsewhere(reports: Sequence[Report]) -> list[str]:
    """How to measure what compiled here on a machine that has the GPU."""
    compiled = [one for one in reports if any(step.name == "compiling" for step in one.steps)]
    idle = [one for one in compiled if not (one.gpu_s or one.replayed or _is_failed(one))]
    return [
        f"tritune compile {sweep} --target {shell(target)} --output DIR, then on such a GPU "
        f"tritune sweep {sweep} --compiled DIR"
        for sweep, target in {shell(shown_path(one.sweep)): one.target.name for one in idle}.items()
    ]


def _is_failed(report: Report) -> bool:
    """No problem has a config left, or none is right on a smoke problem: a GPU changes nothing."""
    lost, asked = set(report.unsolved), {work.problem for work in report.work}
    return bool(lost) and not report.winners and (asked <= lost or not lost <= asked)


def _cures(reports: Sequence[Report]) -> list[str]:
    """One a sweep file, however many kernels its op launches."""
    failed: dict[str, list[Report]] = {}
    for report in filter(_is_failed, reports):
        failed.setdefault(shown_path(report.sweep), []).append(report)
    return [
        f"{_cure(sweep, some)}, then tritune sweep {shell(sweep)}" for sweep, some in failed.items()
    ]


def _cure(sweep: str, reports: Sequence[Report]) -> str:
    broken = [one for one in reports if not _is_of_values(one)]
    cures = [f"give other values in the space of {sweep}"] if len(broken) < len(reports) else []
    cures += dict.fromkeys(filter(None, map(_passed, broken)))
    if plain := [one for one in broken if not _passed(one)]:
        cures.append(_mending(plain))
    return " and ".join(cures)


def _is_of_values(report: Report) -> bool:
    """Whether other values in `space:` may cure all of it."""
    return all(one.reason in _SPACE or _is_of_the_space(one) for one in _lost(report))


def _lost(report: Report) -> list[Rejected]:
    """What was rejected of the problems that nothing solved."""
    out = (one for one in report.outcomes if isinstance(one, Rejected))
    return [one for one in out if one.candidate.problem in {*report.unsolved}]


def _is_of_the_space(one: Rejected) -> bool:
    """Whether a value of a meta-parameter may be what Triton does not take."""
    found = _VALUE.search(one.detail)
    values = [v for v in one.candidate.config.meta().as_dict().values() if type(v) is int]
    if found and found[0].startswith("power of"):
        return any(value & (value - 1) for value in values)
    return bool(found and values)


def _passed(report: Report) -> str:
    """What is to be said of a value that Triton does not take, and the kernel's caller passes."""
    places = [found[1] for one in _lost(report) if (found := _PLACED_VALUE.search(one.detail))]
    if not places:
        return ""
    return f"mend what the caller of {report.kernel.short} passes for {places[0]}, or that line"


def _mending(reports: Sequence[Report]) -> str:
    """What is the reader's to mend: no kernel of an installed package."""
    own = [one.kernel.short for one in reports if not one.kernel.installed]
    if not own:
        return f"mend the problem function {reports[0].kernel.problem.rpartition(':')[2]}"
    return f"mend {', '.join(own)} or {'its' if len(own) == 1 else 'their'} problem function"

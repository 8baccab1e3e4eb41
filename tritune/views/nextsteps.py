"""nextsteps: the Reports of a sweep file -> the line that says what to do next."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from tritune.model import Reason, Rejected, Report
from tritune.views.page import line

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
_VALUE = re.compile(r"power of (2|two)|maximum tensor numel|shapes should have M >=")
"""What Triton says, compiled or interpreted, of a block with a size that it does not take."""


def next_text(reports: Sequence[Report]) -> Text | None:
    changed = dict.fromkeys(
        shown_path(report.lockfile)
        for report in reports
        if report.locked and any(winner.change != "kept" for winner in report.winners)
    )
    diff = [f"git diff {' '.join(changed)}"] if changed else []
    parts = [*diff, *_why_not(reports), *_elsewhere(reports), *_cures(reports)]
    return line(f"next: {' · '.join(dict.fromkeys(parts))}", "dim") if parts else None


def shown_path(path: str) -> str:
    """A path as one would type it here: relative below this folder, else as it is."""
    return os.path.relpath(path) if Path(path).resolve().is_relative_to(Path.cwd()) else path


def _why_not(reports: Sequence[Report]) -> list[str]:
    """Only a sweep on a GPU, or a record of one, leaves a journal to show it from."""
    return [
        f"{'why none' if _is_failed(one) else 'why not another'}: "
        f"tritune show rejected {shown_path(one.sweep)}"
        for one in reports
        if one.gpu_s or one.replayed
    ]


def _elsewhere(reports: Sequence[Report]) -> list[str]:
    """How to measure what compiled here on a machine that has the GPU."""
    compiled = [one for one in reports if any(step.name == "compiling" for step in one.steps)]
    idle = [one for one in compiled if not (one.gpu_s or one.replayed or _is_failed(one))]
    return [
        f"tritune compile {sweep} --target {shlex.quote(target)} --output DIR, then on such a GPU "
        f"tritune sweep {sweep} --compiled DIR"
        for sweep, target in {shown_path(one.sweep): one.target.name for one in idle}.items()
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
    return [f"{_cure(sweep, some)}, then tritune sweep {sweep}" for sweep, some in failed.items()]


def _cure(sweep: str, reports: Sequence[Report]) -> str:
    broken = [one for one in reports if not _is_of_values(one)]
    cures = [_mending(broken)] if broken else []
    if len(broken) < len(reports):
        cures.insert(0, f"give other values in the space of {sweep}")
    return " and ".join(cures)


def _is_of_values(report: Report) -> bool:
    """Whether other values in `space:` may cure all of it."""
    lost = set(report.unsolved)
    out = (one for one in report.outcomes if isinstance(one, Rejected))
    ours = (one for one in out if one.candidate.problem in lost)
    return all(one.reason in _SPACE or _VALUE.search(one.detail) for one in ours)


def _mending(reports: Sequence[Report]) -> str:
    """What is the reader's to mend: no kernel of an installed package."""
    own = [one.kernel.name.rpartition(":")[2] for one in reports if not one.kernel.installed]
    if not own:
        return f"mend the problem function {reports[0].kernel.problem.rpartition(':')[2]}"
    return f"mend {', '.join(own)} or {'its' if len(own) == 1 else 'their'} problem function"

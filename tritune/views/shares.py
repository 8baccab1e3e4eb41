"""shares: what winners gain where a kernel's own autotuner has one key -> lines of a summary."""

from __future__ import annotations

from rich.text import Text

from tritune.model import Report, SharedKey
from tritune.views.page import line
from tritune.views.units import format_percent


def shared_text(report: Report) -> Text | None:
    """A line for every key of its own that stands for several problems with winners here.

    What is one problem here too is said when it is found, before anything is timed.
    """
    rows = [_row(one) for one in report.shared if len(one.problems) > 1]
    return line("\n".join(rows)) if rows else None


def _row(one: SharedKey) -> str:
    head = f"one key to its own autotuner (`{one.key}`): "
    if one.config is None:
        problems = " · ".join(map(str, one.problems))
        return f"{head}{problems}; no config runs on all of them, here each has its own"
    each = " · ".join(
        f"{problem} {format_percent(loss, signed=True)}"
        for problem, loss in zip(one.problems, one.losses, strict=True)
    )
    mean = format_percent(one.loss, signed=True)
    return f"{head}with {one.config} for all {each}, {mean} in the mean; here each has its own"

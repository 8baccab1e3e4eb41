"""misses: what a log of misses named -> the problems of it, and the lines for the sweep file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.text import Text

from tritune.model import Missed, Problem, Report, Value
from tritune.views.columns import problem_lines
from tritune.views.page import line
from tritune.words import plural


def missed_text(report: Report) -> Text | None:
    """The problems with how often each was missed, what has none, and what to add to the file."""
    if not report.missed:
        return None
    lines = [*_problems(report.missed), *_without(report.missed), *_to_add(report)]
    return line("\n".join(lines))


def _problems(missed: Sequence[Missed]) -> list[str]:
    found = [(one, one.problem) for one in missed if one.problem is not None]
    texts = problem_lines([problem for _, problem in found]) if found else ()
    wide = max(map(len, texts), default=0)
    is_traced = any(one.is_traced for one in missed)
    times = ("launch", "launches") if is_traced else ("time",)
    rows = [
        f"  {text.ljust(wide)}  {plural(one.lines, *times)}"
        for text, (one, _) in zip(texts, found, strict=True)
    ]
    kept = dict.fromkeys(name for one in missed for name in one.kept)
    said = [f"as in the sweep file: {', '.join(kept)}"] if kept else []
    head = "launched in the trace" if is_traced else "missed at run time"
    return [f"{head}: {plural(len(missed), 'key')}", *rows, *said]


def _without(missed: Sequence[Missed]) -> list[str]:
    rows = [f"  {one.key}: {one.why}" for one in missed if one.problem is None]
    return ["left out, as no problem has the key:", *rows] if rows else []


def _to_add(report: Report) -> list[str]:
    new = [one.problem for one in report.missed if one.problem is not None and not one.is_listed]
    if not new:
        return []
    head = f"add to {report.sweep}, or a check will call their entries orphans:"
    return [head, "shapes:", *(f"  - {yaml_row(problem)}" for problem in new)]


def yaml_row(problem: Problem) -> str:
    """A problem as a row of `shapes:`."""
    return "{" + ", ".join(f"{name}: {_yaml(value)}" for name, value in problem.written) + "}"


def _yaml(value: Value) -> str:
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _WORDS:
        return value
    text = json.dumps(value)
    # YAML 1.1 takes 1e-05 for text.
    whole, e, exponent = text.partition("e") if isinstance(value, float) else (text, "", "")
    return f"{whole}.0e{exponent}" if e and "." not in whole else text


_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""What YAML would take for something else."""

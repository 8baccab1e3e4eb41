"""binaries: what compiled for a target -> tables of it, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tritune.model import Compiled, Config, Problem
from tritune.views import json_view, tables
from tritune.views.columns import Column, config_columns, problem_lines
from tritune.views.nextsteps import shown_path
from tritune.views.page import line, page, table
from tritune.views.terminal import steps_text
from tritune.views.units import NONE, format_bytes, format_percent, format_s
from tritune.words import plural

if TYPE_CHECKING:
    from tritune.pipeline.compiling import Built, CompileReport


def reports_page(reports: Sequence[CompileReport]) -> Group:
    """Each kernel's binaries with their resources, then what was rejected."""
    parts: list[Group | Table | Text | None] = []
    for report in reports:
        parts += [*_report(report), line("")]
    return page(*parts[:-1])


def _report(report: CompileReport) -> Iterator[Group | Table | Text | None]:
    yield line(f"{report.kernel} from {shown_path(report.sweep)}", "bold")
    yield steps_text(report.steps)
    if report.built:
        yield line("")
        yield _binaries(report)
    if report.rejected:
        yield line("")
        yield tables.rejected_table(report.rejected)
    yield line("")
    yield _counts(report)
    yield from (line(f"nothing compiles and fits: {one}", "red") for one in report.unsolved)


def _binaries(report: CompileReport) -> Table:
    """A line a distinct binary: problems that share one share its line."""
    lines: dict[tuple[str, Config], list[Built]] = {}
    for one in report.built:
        lines.setdefault((one.compiled.binary, one.compiled.candidate.config), []).append(one)
    firsts = [group[0] for group in lines.values()]
    made = [one.compiled for one in firsts]
    same = [len({alias for one in group for alias in one.compiled.aliases}) for group in
            lines.values()]  # fmt: skip
    problems = Column(
        heading=f"{report.kernel.rpartition(':')[2]} for {report.target.name}",
        cells=_problems([[one.compiled.candidate.problem for one in g] for g in lines.values()]),
    )
    figures = (
        Column(heading="same", cells=tuple(str(n) if n else NONE for n in same)),
        Column(heading="shared", cells=tuple(format_bytes(one.shared_bytes) for one in made)),
        Column(heading="registers", cells=tuple(_known(one.registers) for one in made)),
        Column(heading="stack", cells=tuple(_known(one.stack_bytes) for one in made)),
        *_tensor_memory(made),
        Column(heading="threads", cells=tuple(_known(one.threads) for one in made)),
        Column(heading="occupancy", cells=tuple(format_percent(one.occupancy) for one in firsts)),
    )
    configs = config_columns([one.candidate.config for one in made])
    return table([problems], [*configs, *figures])


def _problems(groups: Sequence[Sequence[Problem]]) -> tuple[str, ...]:
    texts = problem_lines([group[0] for group in groups])
    more = (f"  and {len(group) - 1} more" if len(group) > 1 else "" for group in groups)
    return tuple(text + rest for text, rest in zip(texts, more, strict=True))


def _tensor_memory(made: Sequence[Compiled]) -> tuple[Column, ...]:
    if not any(one.tensor_memory for one in made):
        return ()
    cells = tuple(_known(one.tensor_memory) for one in made)
    return (Column(heading="tensor memory", cells=cells),)


def _known(number: int) -> str:
    return f"{number:,}" if number else NONE


def _counts(report: CompileReport) -> Text:
    distinct = len({one.compiled.binary for one in report.built})
    same = sum(len(one.compiled.aliases) for one in report.built)
    reasons = Counter(one.reason.value for one in report.rejected)
    total = len(report.built) + same + len(report.rejected)
    parts = [
        f"{plural(total, 'candidate')}: {plural(distinct, 'distinct binary', 'distinct binaries')}",
        f"{same:,} same binary as another" if same else "",
        *(f"{number:,} {why}" for why, number in sorted(reasons.items(), key=_most)),
        f"in {shown_path(report.output)}" if report.output else "",
        format_s(report.wall_s),
    ]
    return line(" · ".join(part for part in parts if part))


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def reports_json(reports: Iterable[CompileReport]) -> str:
    return json_view.document(reports=[_plain(report) for report in reports])


def _plain(report: CompileReport) -> dict[str, Any]:
    built = [
        {
            **json_view.plain(one.compiled.candidate),
            "binary": one.compiled.binary,
            "registers": one.compiled.registers,
            "stack_bytes": one.compiled.stack_bytes,
            "shared_bytes": one.compiled.shared_bytes,
            "tensor_memory": one.compiled.tensor_memory,
            "threads": one.compiled.threads,
            "occupancy": one.occupancy,
            "same_binary": json_view.plain(one.compiled.aliases),
        }
        for one in report.built
    ]
    return {
        **json_view.plain(report),
        "target": json_view.target_dict(report.target),
        "built": built,
        "rejected": [json_view.rejected_dict(one) for one in report.rejected],
    }

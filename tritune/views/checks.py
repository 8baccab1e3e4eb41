"""checks: findings about lockfiles -> lines for people, for GitHub, or JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group

from tritune.views import json_view
from tritune.views.page import line, page
from tritune.words import shell

if TYPE_CHECKING:
    from pathlib import Path

    from tritune.check import Finding, Status


def findings_page(
    findings: Sequence[Finding],
    failing: Collection[Status],
    files: Sequence[Path] = (),
    lockfile: Path | None = None,
) -> Group:
    """Every entry that fails the check with its place, others by kind, then the counts.

    *files* are the sweep files that were named, and not those of the project; *lockfile* is the
    one that stood in for the kernel's own.
    """
    lines = [
        line(
            f"{one.file}:{one.line}: {one.status.value}: {said}",
            "red" if one.status in failing else "yellow",
        )
        for one, said in _told(findings, failing)
    ]
    failed = [one for one in findings if one.status in failing]
    steps = list(_steps(failed, files, f" --lockfile {shell(lockfile)}" if lockfile else ""))
    hint = f"next: {' · '.join(steps)}"
    return page(*lines, line(_counts(findings, failing)), line(hint, "dim") if steps else None)


def _steps(failed: Sequence[Finding], files: Sequence[Path], into: str) -> Iterator[str]:
    """What mends what failed, by its kind; of what is unknown here that is not known either."""
    if any(one.status.is_due for one in failed):
        yield f"on such a GPU, {shell('tritune', 'sweep', '--stale', *files)}{into}"
    if untimed := [one for one in failed if one.status.is_untimed]:
        what = " and ".join(dict.fromkeys(one.status.value for one in untimed))
        sweeps = dict.fromkeys(one.sweep for one in untimed)
        yield f"on such a GPU, tritune sweep {shell(*sweeps)}{into} times what is {what}"
    if orphans := dict.fromkeys(one.file for one in failed if one.status.is_orphan):
        yield f"delete what is an orphan from {', '.join(orphans)}, or add a shape that asks for it"


def github(findings: Sequence[Finding], failing: Collection[Status]) -> str:
    """Workflow commands that GitHub shows at the lines of a pull request, then the counts."""
    rows = [
        f"::{'error' if one.status in failing else 'warning'} file={_property(one.file)},"
        f"line={one.line},title={one.status.value}::{_data(said)}"
        for one, said in _told(findings, failing)
    ]
    return "\n".join([*rows, _counts(findings, failing)])


def _told(
    findings: Iterable[Finding], failing: Collection[Status]
) -> Iterator[tuple[Finding, str]]:
    """What is not fresh, and what to say of it; one line for all of a kind that do not fail.

    One line also for all that the kernel cannot run for the same reason: it is to be mended once.
    """
    groups: dict[object, list[Finding]] = defaultdict(list)
    for one in findings:
        if one.why:
            is_alone = one.status in failing and not one.broken
            at = (one.file, one.line, one.key, one.device) if is_alone else one.device
            groups[one.status, one.kernel, one.why, at].append(one)
    for first, *more in groups.values():
        key = first.key or (str(first.problem) if first.problem else "")
        key += f" and {len(more):,} more" if more else ""
        kernel = first.kernel.rpartition(":")[2]
        on = f" on {first.device}" if first.device else ""
        yield first, f"{kernel}{on}: {f'{key}: ' if key else ''}{first.why}"


def _counts(findings: Sequence[Finding], failing: Collection[Status]) -> str:
    counts = Counter(one.status for one in findings)
    kinds = sorted(counts, key=lambda kind: (kind not in failing, -counts[kind], kind.value))
    each = " · ".join(f"{counts[kind]:,} {kind.value}" for kind in kinds)
    return f"{len(findings):,} checked: {each or 'nothing that could be'}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def findings_json(findings: Sequence[Finding]) -> str:
    """All of them, the fresh ones too."""
    counts = Counter(one.status.value for one in findings)
    return json_view.document(counts=counts, findings=json_view.plain(tuple(findings)))

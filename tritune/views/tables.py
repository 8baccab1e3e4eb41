"""tables: outcomes, a lockfile, a space, a device -> the tables of `tritune show`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from tritune.model import Entry, Evidence, Lock, LockedKey, Rejected, Target
from tritune.views.columns import Column, config_columns, key_lines, problem_lines
from tritune.views.page import line, page, table
from tritune.views.units import (
    NONE,
    figures,
    format_bytes,
    format_count,
    format_noise,
    format_percent,
    format_ratio,
    format_us,
)
from tritune.words import plural

if TYPE_CHECKING:
    from tritune.space import Removed, SpaceCount


def rejected_table(outcomes: Sequence[Rejected]) -> Group:
    """Each rejected config of each kernel: why, the limit it broke, where its log is."""
    if not outcomes:
        return page(line("no config was rejected"))
    kernels = groupby(outcomes, key=lambda outcome: outcome.candidate.kernel)
    blocks = [part for kernel, rows in kernels for part in _rejected(kernel, list(rows))]
    return page(*blocks, line(plural(len(outcomes), "rejected config")))


def _rejected(kernel: str, rows: Sequence[Rejected]) -> list[Table | Text]:
    candidates = [row.candidate for row in rows]
    problems = Column(
        heading=kernel.rpartition(":")[2],
        cells=problem_lines([candidate.problem for candidate in candidates]),
    )
    configs = config_columns([candidate.config for candidate in candidates])
    said = [
        _text("reason", [row.reason.value for row in rows]),
        _text("limit", [row.detail for row in rows]),
    ]
    if any(row.log for row in rows):
        said.append(_text("log", [row.log for row in rows]))
    return [table([problems], configs, said), line("")]


def _text(heading: str, cells: Sequence[str]) -> Column:
    """A column of words; words need more room between them than figures."""
    return Column(heading=f" {heading}", cells=tuple(f" {cell or NONE}" for cell in cells))


def lock_table(path: str, lock: Lock) -> Group:
    """The entries of a lockfile by kernel and device, each with its evidence."""
    groups = groupby(lock.entries, key=lambda item: (item[0].kernel, item[0].device))
    blocks: list[Table | Text] = []
    for (kernel, device), entries in groups:
        blocks += [line(""), *_locked(kernel, device, list(entries))]
    kernels = len({key.kernel for key, _ in lock.entries})
    devices = len({key.device for key, _ in lock.entries})
    counts = ", ".join(
        (
            plural(len(lock.entries), "entry", "entries"),
            plural(kernels, "kernel"),
            plural(devices, "device"),
        )
    )
    return page(line(f"{path}: {counts}", "bold"), *blocks)


def _locked(
    kernel: str, device: str, entries: Sequence[tuple[LockedKey, Entry]]
) -> tuple[Text, Table]:
    evidence = [entry.evidence for _, entry in entries]
    keys = Column(heading="key", cells=key_lines([key.key for key, _ in entries]))
    configs = config_columns([entry.config for _, entry in entries])
    figures = [*configs, *_evidence(evidence), *_reach(evidence)]
    return line(f"{kernel} on {device}"), table([keys], figures, _marks(evidence))


def _reach(evidence: Sequence[Evidence]) -> tuple[Column, ...]:
    """What near serves each for, where that was verified of any."""
    cells = tuple(one.reach or NONE for one in evidence)
    return (Column(heading="near", cells=cells),) if any(one.reach for one in evidence) else ()


def _marks(evidence: Sequence[Evidence]) -> list[Column]:
    """What no measurement has decided yet; no column where all is decided."""
    cells = [
        " ".join(name for name in ("unmeasured", "unsettled") if getattr(each, name))
        for each in evidence
    ]
    return [Column(heading="", cells=tuple(f" {cell}" for cell in cells))] if any(cells) else []


def _evidence(evidence: Iterable[Evidence]) -> tuple[Column, ...]:
    rows = [
        (
            format_us(each.us or None),
            format_us(each.default_us),
            format_ratio(each.default_us / each.us if each.default_us and each.us else None),
            format_percent(each.margin, signed=True),
            NONE if each.unmeasured else format_noise(each.noise),
            each.triton or NONE,
        )
        for each in evidence
    ]
    headings = ("   µs", "default", "faster", "runner-up", "noise", "triton")
    cells = zip(*rows, strict=True)
    return tuple(
        Column(heading=heading, cells=column)
        for heading, column in zip(headings, cells, strict=True)
    )


def space_tables(name: str, spaces: Sequence[SpaceCount]) -> Group:
    """The space of the file *name*; of its kernels one each, where there are several."""
    if len(spaces) == 1:
        return space_table(name, spaces[0])
    each = (page(line(""), space_table(one.short, one)) for one in spaces)
    return page(line(name, "bold"), *each)


def space_table(name: str, counts: SpaceCount) -> Group:
    """How many configs a space holds, what each constraint removes, what is left."""
    rows = [("the whole space", format_count(counts.configs))]
    for text, group in groupby(counts.removed, key=lambda one: one.constraint.text):
        rows.append((text, _removed(list(group), len(counts.left))))
    rows += _left(counts)
    texts, numbers = zip(*rows, strict=True)
    return page(
        table([Column(heading=name, cells=texts)], [Column(heading="configs", cells=numbers)])
    )


def _removed(group: Sequence[Removed], problems: int) -> str:
    numbers = [-one.configs for one in group]
    everywhere = group[0].problem is None or len(group) == problems
    highest = max(numbers) if everywhere else 0
    lowest = min(numbers)
    return f"{highest:,} to {lowest:,}" if highest != lowest else f"{lowest:,}"


def _left(counts: SpaceCount) -> list[tuple[str, str]]:
    numbers = [number for _, number in counts.left]
    if len(set(numbers)) == 1:
        return [(f"left for all of {plural(len(numbers), 'problem')}", format_count(numbers[0]))]
    lines = problem_lines([problem for problem, _ in counts.left])
    return [(text, format_count(number)) for text, number in zip(lines, numbers, strict=True)]


def device_table(target: Target) -> Group:
    """What a device is and what its limits are; a fact that is not known is left out."""
    facts = (
        ("backend", target.backend),
        ("architecture", str(target.arch)),
        ("multiprocessors", _known(target.sms)),
        ("warp size", _known(target.warp_size)),
        ("shared memory of a program", _bytes(target.shared_bytes)),
        ("shared memory of a multiprocessor", _bytes(target.shared_bytes_sm)),
        ("registers of a multiprocessor", _known(target.registers_sm)),
        ("threads of a program", _known(target.threads)),
        ("tensor memory", f"{target.tensor_memory} columns" if target.tensor_memory else ""),
        ("L2 cache", _bytes(target.l2_bytes)),
        ("memory bandwidth", f"{figures(target.dram_gbps)} GB/s" if target.dram_gbps else ""),
        ("memory bus", f"{target.bus_bits:,} bits" if target.bus_bits else ""),
        ("memory clock", f"{target.memory_mhz:,} MHz" if target.memory_mhz else ""),
        *((f"peak {dtype}", f"{figures(peak)} TFLOP/s") for dtype, peak in target.peaks_tflops),
        ("known as", ", ".join(target.names)),
    )
    known = [(fact, text) for fact, text in facts if text]
    names = Column(heading=target.name, cells=tuple(fact for fact, _ in known))
    return page(table([names, Column(heading="", cells=tuple(text for _, text in known))], []))


def _known(number: int) -> str:
    return format_count(number) if number else ""


def _bytes(count: int) -> str:
    return f"{format_bytes(count)} ({count:,} bytes)" if count else ""

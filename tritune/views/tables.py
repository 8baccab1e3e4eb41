"""tables: outcomes, a lockfile, a space, a device -> the tables of `tritune show`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

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
    format_percent,
    format_ratio,
    format_us,
    plural,
)


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
        Column(heading="reason", cells=tuple(row.reason.value for row in rows)),
        Column(heading="limit", cells=tuple(row.detail or NONE for row in rows)),
    ]
    if any(row.log for row in rows):
        said.append(Column(heading="log", cells=tuple(row.log or NONE for row in rows)))
    return [table([problems], configs, said), line("")]


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
    return line(f"{kernel} on {device}"), table([keys], [*configs, *_evidence(evidence)])


def _evidence(evidence: Iterable[Evidence]) -> tuple[Column, ...]:
    rows = [
        (
            format_us(each.us),
            format_us(each.default_us),
            format_ratio(each.default_us / each.us if each.default_us and each.us else None),
            format_percent(each.margin, signed=True),
            format_percent(each.noise, signed=True).replace("+", "±"),
            each.triton,
        )
        for each in evidence
    ]
    headings = ("   µs", "default", "faster", "runner-up", "noise", "triton")
    cells = zip(*rows, strict=True)
    return tuple(
        Column(heading=heading, cells=column)
        for heading, column in zip(headings, cells, strict=True)
    )


def space_table(name: str, total: int, kept: int, removed: Sequence[tuple[str, int]]) -> Group:
    """How many configs a space holds and how many each constraint removes, in their order."""
    rows = [("configs in the space", total, ""), *((text, -n, "") for text, n in removed)]
    texts = Column(heading=name, cells=(*(text for text, _, _ in rows), "configs left"))
    numbers = Column(heading="", cells=(*(format_count(n) for _, n, _ in rows), f"{kept:,}"))
    return page(table([texts], [numbers]))


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

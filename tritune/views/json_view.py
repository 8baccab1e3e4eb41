"""json_view: nouns -> plain dictionaries, what `--json` prints.

Field names are the nouns' own, enums are their words, and configs and problems are objects,
so `jq '.reports[].winners[].config.BLOCK_M'` works. `version` grows when a field changes
its meaning; a new field does not change it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tritune.model import Config, Lock, Measured, Problem, Rejected, Report, Target

if TYPE_CHECKING:
    from tritune.space import SpaceCount

VERSION = 1


def plain(value: Any) -> Any:
    """A noun, or a tuple of them, as what JSON can hold."""
    match value:
        case Config() | Problem():
            return value.as_dict()
        case Enum():
            return value.value
        case tuple() | list():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(plain(item) for item in value)
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


def flat(entry: Any) -> dict[str, Any]:
    """An entry's place and what became of it, in one flat object."""
    found = plain(entry)
    return {**found.pop("at"), **found}


def reports_json(reports: Iterable[Report]) -> str:
    """Every report of a sweep command."""
    return document(reports=[report_dict(report) for report in reports])


def report_dict(report: Report) -> dict[str, Any]:
    """One report; a measured candidate by its statistics, its samples are in the journal."""
    outcomes = [_outcome(outcome) for outcome in report.outcomes]
    return {**plain(report), "outcomes": outcomes, "target": target_dict(report.target)}


def _outcome(outcome: Measured | Rejected) -> dict[str, Any]:
    if isinstance(outcome, Rejected):
        return rejected_dict(outcome)
    return {
        **plain(outcome.candidate),
        "median_us": outcome.median_us,
        "noise": outcome.noise,
        "samples": len(outcome.finals_us or outcome.samples_us),
        "registers": outcome.compiled.registers,
        "shared_bytes": outcome.compiled.shared_bytes,
        "stack_bytes": outcome.compiled.stack_bytes,
        "same_binary": plain(outcome.compiled.aliases),
    }


def rejected_dict(outcome: Rejected) -> dict[str, Any]:
    """A rejected config with its reason, in one flat object."""
    return {
        **plain(outcome.candidate),
        "reason": outcome.reason.value,
        "detail": outcome.detail,
        "log": outcome.log,
    }


def rejected_json(outcomes: Iterable[Rejected]) -> str:
    return document(rejected=[rejected_dict(outcome) for outcome in outcomes])


def locks_json(locks: Sequence[tuple[str, Lock]]) -> str:
    """Lockfiles with their paths, each with its entries in a list."""
    return document(lockfiles=[{"path": path, **lock_dict(lock)} for path, lock in locks])


def lock_dict(lock: Lock) -> dict[str, Any]:
    """A lockfile; a place and its entry are one object."""
    return {
        "devices": plain(lock.devices),
        "entries": [{**plain(key), **plain(entry)} for key, entry in lock.entries],
        "near": {kernel: list(constraints) for kernel, constraints in lock.near},
    }


def space_json(sweep: str, spaces: Sequence[SpaceCount]) -> str:
    """What is left of each kernel's space, constraint by constraint and problem by problem.

    Beside `spaces` is what is in the first of them: most files have one kernel.
    """
    every = [_space_dict(one) for one in spaces]
    return document(sweep=sweep, **every[0], spaces=every)


def _space_dict(counts: SpaceCount) -> dict[str, Any]:
    left = [{"problem": plain(problem), "configs": number} for problem, number in counts.left]
    return {**plain(counts), "left": left}


def target_dict(target: Target) -> dict[str, Any]:
    return {**plain(target), "peaks_tflops": dict(target.peaks_tflops)}


def device_json(target: Target) -> str:
    return document(device=target_dict(target))


def document(**content: Any) -> str:
    """One JSON document of this program."""
    text = json.dumps({"version": VERSION, **content}, indent=1, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()  # a path may be no UTF-8

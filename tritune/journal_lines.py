"""journal_lines: an outcome <-> the fields of its line in a journal."""

from __future__ import annotations

from typing import Any

from tritune.model import Candidate, Compiled, Config, Measured, Outcome, Problem, Reason, Rejected

PLAIN = ("key", "binary", "ir", "registers", "stack_bytes", "shared_bytes", "threads")
"""Fields of a binary that are written as they are."""


def encode(outcome: Outcome) -> dict[str, Any]:
    """Fields that are empty are left out; seconds to the millisecond."""
    candidate = outcome.candidate
    fields: dict[str, Any] = {
        "problem": candidate.problem.as_dict(),
        "config": candidate.config.as_dict(),
    }
    if isinstance(outcome, Rejected):
        fields |= {"no": outcome.reason.name, "why": outcome.detail, "log": outcome.log}
    else:
        compiled = outcome.compiled
        fields |= {name: getattr(compiled, name) for name in PLAIN}
        fields |= {
            "seconds": round(compiled.seconds, 3),
            "aliases": [config.as_dict() for config in compiled.aliases],
            "us": outcome.samples_us,
            "finals": outcome.finals_us,
            "error": outcome.error,
            "bits": outcome.bits,
            "confirm": outcome.confirm_us,
            "doubted": outcome.doubted_us,
            "floor": round(outcome.floor, 5),
        }
    always = ("problem", "config", "key", "binary", "ir", "us")
    return {name: value for name, value in fields.items() if value or name in always}


def decode(kernel: str, fields: dict[str, Any]) -> Outcome:
    candidate = Candidate(
        kernel=kernel,
        problem=Problem.of(fields["problem"]),
        config=Config.of(fields["config"]),
    )
    if "no" in fields:
        return Rejected(
            candidate=candidate,
            reason=Reason[fields["no"]],
            detail=fields.get("why", ""),
            log=fields.get("log", ""),
        )
    compiled = Compiled(
        candidate=candidate,
        seconds=fields.get("seconds", 0.0),
        aliases=tuple(Config.of(alias) for alias in fields.get("aliases", ())),
        **{name: fields[name] for name in PLAIN if name in fields},
    )
    return Measured(
        compiled=compiled,
        samples_us=tuple(fields["us"]),
        finals_us=tuple(fields.get("finals", ())),
        error=fields.get("error", 0.0),
        bits=fields.get("bits", ""),
        confirm_us=tuple(fields.get("confirm", ())),
        doubted_us=tuple(fields.get("doubted", ())),
        floor=fields.get("floor", 0.0),
    )

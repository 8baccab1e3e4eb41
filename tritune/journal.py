"""journal: outcomes -> lines on disk as they happen -> outcomes, to resume and to replay.

JSON Lines, append only. A line is the format, a device, a context, an outcome, that a problem is
done with a stage, or how a config fared at a size that `near` may serve it at. Devices and
contexts (kernel, source, device, protocol, Triton) are written once, before the first line in
them, and named by a digest of what they say: so two processes may append to one file and agree on
the names without a word. The latest outcome of a candidate counts, and a problem is no longer
done once another outcome of it follows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tritune.journal_file import JournalError, JournalFile
from tritune.journal_lines import decode, encode
from tritune.model import Candidate, Config, DeviceIdentity, Outcome, Problem

FORMAT = 1
FINALS, CONFIRM = "finals", "confirm"
"""The stages that a problem is done with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Context:
    """What outcomes have to share to stand for each other."""

    kernel: str
    source: str
    device: str
    protocol: str
    triton: str


class Journal:
    """Outcomes on disk. Open with `Journal.open`; what another process adds later is not seen."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self._devices: dict[str, DeviceIdentity] = {}
        self._contexts: dict[str, _Context] = {}
        self._outcomes: list[tuple[_Context, Outcome]] = []
        self._done: dict[tuple[_Context, Problem], str] = {}
        self._reach: dict[tuple[_Context, Problem, Config], str] = {}

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Journal:
        """Read a journal, plain or `.gz`, and unless *read_only* (as `.gz` has to be) add to it."""
        journal = cls(JournalFile(path, {"journal": FORMAT}, read_only=read_only))
        try:
            journal._load()
            if not read_only:
                # So that a full disk shows now, and not after the first measurement.
                journal._file.append([])
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        self._file.close()

    def hold(self) -> AbstractContextManager[None]:
        """Keep other sweeps out: two on one journal would measure everything twice.

        Raises:
            EnvironmentFaultError: another process holds it.
        """
        return self._file.hold()

    def record(
        self, outcome: Outcome, *, source: str, device: DeviceIdentity, protocol: str, triton: str
    ) -> None:
        """Write an outcome; it is in the file when this returns."""
        self.record_all([outcome], source=source, device=device, protocol=protocol, triton=triton)

    def record_all(
        self,
        outcomes: Sequence[Outcome],
        *,
        source: str,
        device: DeviceIdentity,
        protocol: str,
        triton: str,
        done: str = "",
    ) -> None:
        """Write outcomes of one problem, which is *done* with a stage by them, in one piece."""
        if not outcomes:
            return
        context, lines = self._context(
            outcomes[0].candidate.kernel, source, device, protocol, triton
        )
        name = _digest(asdict(context))
        lines += [{"in": name, **encode(outcome)} for outcome in outcomes]
        problem = outcomes[0].candidate.problem
        if done:
            lines.append({"done": done, "in": name, "problem": problem.as_dict()})
        self._append(lines, context, device)
        for outcome in outcomes:
            self._add(context, outcome)
        if done:
            self._done[context, problem] = done

    def record_reach(
        self,
        candidate: Candidate,
        why: str,
        *,
        source: str,
        device: DeviceIdentity,
        protocol: str,
        triton: str,
    ) -> None:
        """Write whether a config is right at a size that it would serve; *why* it is not."""
        context, lines = self._context(candidate.kernel, source, device, protocol, triton)
        problem, config = candidate.problem, candidate.config
        line = {"reach": why, "in": _digest(asdict(context)), "problem": problem.as_dict()}
        self._append([*lines, {**line, "config": config.as_dict()}], context, device)
        self._reach[context, problem, config] = why

    def reach(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str, triton: str | None
    ) -> dict[tuple[Problem, Config], str]:
        """What was found at sizes that are not tuned for: why a config is wrong there, or empty."""
        return {
            (problem, config): why
            for (context, problem, config), why in self._reach.items()
            if self._matches(context, kernel, source, device, protocol)
            and triton in (None, context.triton)
        }

    def _context(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str, triton: str
    ) -> tuple[_Context, list[dict[str, Any]]]:
        """A context, and the lines that have to be written before one in it."""
        lines: list[dict[str, Any]] = []
        facts = asdict(replace(device, use="", where=()))
        del facts["use"], facts["where"]  # a lockfile's, and no fact of the silicon
        name = _digest(facts)
        if name not in self._devices:
            lines.append({"device": name, **facts})
        context = _Context(
            kernel=kernel, source=source, device=name, protocol=protocol, triton=triton
        )
        if _digest(asdict(context)) not in self._contexts:
            lines.append({"context": _digest(asdict(context)), **asdict(context)})
        return context, lines

    def _append(
        self, lines: Sequence[dict[str, Any]], context: _Context, device: DeviceIdentity
    ) -> None:
        self._file.append(lines)
        self._devices[context.device] = device
        self._contexts[_digest(asdict(context))] = context

    def _add(self, context: _Context, outcome: Outcome) -> None:
        self._outcomes.append((context, outcome))
        self._done.pop((context, outcome.candidate.problem), None)

    def done(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str, triton: str
    ) -> dict[Problem, str]:
        """The last stage that each problem is done with, of those that are."""
        return {
            problem: stage
            for (context, problem), stage in self._done.items()
            if self._matches(context, kernel, source, device, protocol) and context.triton == triton
        }

    def known(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str, triton: str | None
    ) -> dict[tuple[Problem, Config], Outcome]:
        """The outcomes that hold for this kernel on this silicon; under any Triton where None.

        By the candidate's own config: what it is the binary of besides, its aliases say. The one
        that was written last is at the end.
        """
        found: dict[tuple[Problem, Config], Outcome] = {}
        for context, outcome in self._outcomes:
            ours = self._matches(context, kernel, source, device, protocol)
            if ours and triton in (None, context.triton):
                at = outcome.candidate.problem, outcome.candidate.config
                found.pop(at, None)
                found[at] = outcome
        return found

    def tritons(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str
    ) -> tuple[str, ...]:
        """The versions of Triton with such outcomes, the one used last at the end."""
        found = [
            context.triton
            for context, _ in self._outcomes
            if self._matches(context, kernel, source, device, protocol)
        ]
        return tuple(reversed(dict.fromkeys(reversed(found))))

    def outcomes(self) -> tuple[Outcome, ...]:
        """The latest outcome of every candidate, whatever it was taken under."""
        return tuple({outcome.candidate: outcome for _, outcome in self._outcomes}.values())

    def latest(self) -> tuple[Outcome, ...]:
        """The outcomes of each kernel in the context that it was last swept in."""
        last = {context.kernel: context for context, _ in self._outcomes}
        mine = (one for context, one in self._outcomes if last[context.kernel] == context)
        return tuple({outcome.candidate: outcome for outcome in mine}.values())

    def devices(self) -> tuple[DeviceIdentity, ...]:
        """The silicon in it, in order of first use, each under the name it had first."""
        found: dict[object, DeviceIdentity] = {}
        for device in self._devices.values():
            found.setdefault(device.silicon(), device)
        return tuple(found.values())

    def _matches(
        self, context: _Context, kernel: str, source: str, device: DeviceIdentity, protocol: str
    ) -> bool:
        return (
            (context.kernel, context.source, context.protocol) == (kernel, source, protocol)
        ) and self._devices[context.device].silicon() == device.silicon()

    def _load(self) -> None:
        for index, (number, line) in enumerate(self._file.lines()):
            if line is None or (index == 0 and "journal" not in line):
                raise self._damaged(number)
            try:
                self._take(line)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise self._damaged(number) from error

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"journal": version}:
                self._check_format(version)
            case {"context": name, **fields}:
                self._contexts[name] = _Context(**fields)
            case {"done": stage, "in": name, "problem": axes}:
                self._done[self._contexts[name], Problem.of(axes)] = str(stage)
            case {"reach": why, "in": name, "problem": axes, "config": values}:
                at = self._contexts[name], Problem.of(axes), Config.of(values)
                self._reach[at] = str(why)
            case {"in": name, **fields}:
                context = self._contexts[name]
                self._add(context, decode(context.kernel, fields))
            case {"device": name, **fields}:
                fields["names"] = tuple(fields["names"])
                self._devices[name] = DeviceIdentity(**fields)
            case _:
                raise KeyError(next(iter(line), ""))

    def _check_format(self, version: object) -> None:
        if version != FORMAT:
            raise JournalError(
                f"a journal of format {version}, and this tritune reads format {FORMAT}",
                where=str(self._file.path),
                hint="update tritune, or delete the file to measure again",
            )

    def _damaged(self, number: int) -> JournalError:
        return JournalError(
            "not a line of a journal",
            where=f"{self._file.path}:{number}",
            hint="delete the line, or the file: what it held is measured again",
        )


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]

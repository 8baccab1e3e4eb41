"""journal: every outcome on disk as it happens, to resume from and to replay.

JSON Lines, append only. A line is the format, a device, a context or an outcome. Devices and
contexts (kernel, source, device, protocol, Triton) are written once, before the first outcome
in them, and named by a digest of what they say: so two processes may append to one file and
agree on the names without a word. The latest outcome of a candidate counts.

A line is one write, so `kill -9` costs at most the last one: reading ignores it, and the next
write cuts it off. Nothing is synced; what a power cut takes is measured again.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Measured,
    Outcome,
    Problem,
    Reason,
    Rejected,
)

FORMAT = 1
ELSEWHERE = "put journals elsewhere with `--journal DIR` or TRITUNE_CACHE_DIR"
TAIL = 1 << 16


class JournalError(TrituneError):
    """A journal is damaged, or is none."""


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

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor
        self._devices: dict[str, DeviceIdentity] = {}
        self._contexts: dict[str, _Context] = {}
        self._outcomes: list[tuple[_Context, Outcome]] = []

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Journal:
        """Read a journal, plain or `.gz`, and unless *read_only* (as `.gz` has to be) add to it."""
        if read_only:
            journal = cls(path, None)
            journal._load()
            return journal
        if path.suffix == ".gz":
            raise JournalError(
                "a compressed journal is only read", where=str(path), hint="gunzip it to add to it"
            )
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        journal = cls(path, descriptor)
        try:
            journal._load()
            # So a full disk or a cut last line shows now and not after the first measurement.
            journal._append([])
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def record(
        self, outcome: Outcome, *, source: str, device: DeviceIdentity, protocol: str, triton: str
    ) -> None:
        """Write an outcome; it is in the file when this returns."""
        lines = []
        device_name = _digest(asdict(device))
        if device_name not in self._devices:
            lines.append({"device": device_name, **asdict(device)})
        context = _Context(
            kernel=outcome.candidate.kernel,
            source=source,
            device=device_name,
            protocol=protocol,
            triton=triton,
        )
        name = _digest(asdict(context))
        if name not in self._contexts:
            lines.append({"context": name, **asdict(context)})
        self._append([*lines, {"in": name, **_encode(outcome)}])
        self._devices[device_name] = device
        self._contexts[name] = context
        self._outcomes.append((context, outcome))

    def known(
        self, kernel: str, source: str, device: DeviceIdentity, protocol: str, triton: str | None
    ) -> dict[tuple[Problem, Config], Outcome]:
        """The outcomes that hold for this kernel on this silicon; under any Triton where None.

        By the candidate's own config: what it is the binary of besides, its aliases say.
        """
        return {
            (outcome.candidate.problem, outcome.candidate.config): outcome
            for context, outcome in self._outcomes
            if self._matches(context, kernel, source, device, protocol)
            and triton in (None, context.triton)
        }

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
        lines = [
            (number, text)
            for number, text in enumerate(_read(self._path).split(b"\n"), start=1)
            if text.strip()
        ]
        if lines and _parse(lines[-1][1]) is None:
            del lines[-1]
        for index, (number, text) in enumerate(lines):
            line = _parse(text)
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
            case {"in": name, **fields}:
                context = self._contexts[name]
                self._outcomes.append((context, _decode(context.kernel, fields)))
            case {"device": name, **fields}:
                fields["names"] = tuple(fields["names"])
                self._devices[name] = DeviceIdentity(**fields)
            case _:
                raise KeyError(next(iter(line), ""))

    def _check_format(self, version: object) -> None:
        if version != FORMAT:
            raise JournalError(
                f"a journal of format {version}, and this tritune reads format {FORMAT}",
                where=str(self._path),
                hint="update tritune, or delete the file to measure again",
            )

    def _damaged(self, number: int) -> JournalError:
        return JournalError(
            "not a line of a journal",
            where=f"{self._path}:{number}",
            hint="delete the line, or the file: what it held is measured again",
        )

    def _append(self, lines: list[dict[str, Any]]) -> None:
        if self._descriptor is None:
            raise JournalError("this journal is open to be read only", where=str(self._path))
        with _writing(self._path), _alone(self._descriptor):
            size = _repair(self._descriptor)
            head: list[dict[str, Any]] = [] if size else [{"journal": FORMAT}]
            text = "".join(
                json.dumps(line, separators=(",", ":")) + "\n" for line in [*head, *lines]
            )
            _write(self._descriptor, text.encode())


def _encode(outcome: Outcome) -> dict[str, Any]:
    """Fields that are empty are left out; seconds to the millisecond."""
    candidate = outcome.candidate
    named = {"problem": candidate.problem.as_dict(), "config": candidate.config.as_dict()}
    if isinstance(outcome, Rejected):
        said = {"no": outcome.reason.name, "why": outcome.detail, "log": outcome.log}
        return named | {name: value for name, value in said.items() if value}
    compiled = outcome.compiled
    fields = {
        "key": compiled.key,
        "binary": compiled.binary,
        "ir": compiled.ir,
        "registers": compiled.registers,
        "stack": compiled.stack_bytes,
        "shared": compiled.shared_bytes,
        "s": round(compiled.seconds, 3),
        "aliases": [config.as_dict() for config in compiled.aliases],
        "us": outcome.samples_us,
        "finals": outcome.finals_us,
        "error": outcome.error,
        "bits": outcome.bits,
    }
    return named | {name: value for name, value in fields.items() if value}


def _decode(kernel: str, fields: dict[str, Any]) -> Outcome:
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
        key=fields.get("key", ""),
        binary=fields.get("binary", ""),
        ir=fields.get("ir", ""),
        registers=fields.get("registers", 0),
        stack_bytes=fields.get("stack", 0),
        shared_bytes=fields.get("shared", 0),
        seconds=fields.get("s", 0.0),
        aliases=tuple(Config.of(alias) for alias in fields.get("aliases", ())),
    )
    return Measured(
        compiled=compiled,
        samples_us=tuple(fields.get("us", ())),
        finals_us=tuple(fields.get("finals", ())),
        error=fields.get("error", 0.0),
        bits=fields.get("bits", ""),
    )


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def _parse(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError as error:
        hint = "a sweep on a GPU writes one"
        raise JournalError("no such journal", where=str(path), hint=hint) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        hint = "restore the file"
        raise JournalError(f"damaged gzip file: {error}", where=str(path), hint=hint) from error
    except OSError as error:
        what = f"cannot read the journal: {error.strerror}"
        raise EnvironmentFaultError(what, where=str(path), hint=ELSEWHERE) from error


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn what a disk says into what a user can do."""
    try:
        yield
    except OSError as error:
        cure = "make it writable"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            cure = "free some space"
        what = f"cannot write the journal: {error.strerror}"
        raise EnvironmentFaultError(
            what, where=str(path), hint=f"{cure}, or {ELSEWHERE}"
        ) from error


@contextmanager
def _alone(descriptor: int) -> Iterator[None]:
    """Keep other writers out while a cut line is repaired; where no locks work, go on."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def _repair(descriptor: int) -> int:
    """End the last line, or cut it off where it is garbage; the size of the file then."""
    size, span = os.fstat(descriptor).st_size, TAIL
    tail = os.pread(descriptor, span, max(0, size - span))
    while len(tail) < size and b"\n" not in tail.rstrip(b"\n"):
        span *= 4
        tail = os.pread(descriptor, span, max(0, size - span))
    body = tail.rstrip(b"\n")
    last = body[body.rfind(b"\n") + 1 :]
    if last and _parse(last) is None:
        os.ftruncate(descriptor, size - len(tail) + len(body) - len(last))
    elif last and tail == body:
        _write(descriptor, b"\n")
    return os.fstat(descriptor).st_size


def _write(descriptor: int, text: bytes) -> None:
    """All of it or nothing: what does not fit is taken back."""
    before = os.fstat(descriptor).st_size
    written = os.write(descriptor, text) if text else 0
    if written < len(text):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

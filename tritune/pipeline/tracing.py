"""pipeline.tracing: a program -> run unchanged, and what it launched as a report and sweep files.

The program has this process's own stdin, stdout and stderr. Signals that a terminal sends reach
it by themselves, others are passed on; its exit code is the answer.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tritune import references, tracedraft, tracelog
from tritune.answer import signal_name
from tritune.errors import SpecError
from tritune.places import unwritable, write
from tritune.sweepfile import KNOWN_TARGETS
from tritune.tracelog import Trace, TracedKernel

STARTUP = Path(tracelog.__file__).parent / "tracing" / "startup"
KEYS = "keys.jsonl"
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOptions:
    """What `tritune trace` was told."""

    output: Path
    every: bool = False
    """Plain jit functions too."""
    force: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """What a program launched, and what was written of it."""

    exit_code: int
    signal: str
    """What ended the program, as SIGSEGV; empty where it ended by itself."""
    folder: Path
    trace: Trace
    sweeps: tuple[tuple[str, Path], ...]
    """Kernel -> its sweep file."""
    kept: tuple[Path, ...]
    """Files that were there and are not ours to replace."""
    without: tuple[tuple[str, str], ...]
    """Kernel -> why it has no sweep file."""
    keys: Path | None
    """The keys of kernels with tritune's line, for `--shapes-from`."""


def trace(command: Sequence[str], options: TraceOptions) -> Traced:
    """Run *command* and write down what it launches; with none, say again what was written.

    Raises:
        TrituneError: the folder is in use, or there is no such program.
    """
    logs = options.output / "processes"
    if command:
        _refuse_missing(command[0])
        _empty(logs, force=options.force)
    elif not logs.is_dir():
        raise SpecError("there is no trace in it", where=str(options.output), hint=_USAGE)
    code = _run(command, logs, options) if command else 0
    return _written(tracelog.read(logs), code, options)


_USAGE = "tritune trace -- python train.py writes one"


def _refuse_missing(program: str) -> None:
    """Before the trace that is there goes for one that cannot begin."""
    if shutil.which(program) is None:
        error = errno.EACCES if Path(program).exists() else errno.ENOENT
        raise SpecError(f"it cannot be run: {os.strerror(error)}", where=program)


def _empty(logs: Path, *, force: bool) -> None:
    there = sorted(logs.glob("*.jsonl"))
    if there and not force:
        raise SpecError(
            "a trace is there already, and nothing was run",
            where=str(logs.parent),
            hint="--force replaces it, --output DIR puts this one elsewhere",
        )
    try:
        logs.mkdir(parents=True, exist_ok=True)
        for path in there:
            path.unlink()
    except OSError as error:
        raise unwritable(logs, error) from error


def _run(command: Sequence[str], logs: Path, options: TraceOptions) -> int:
    places = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "TRITUNE_TRACE": str(logs.absolute()),
        "TRITUNE_TRACE_ALL": "1" if options.every else "0",
    }
    sys.stdout.flush()
    try:
        program = subprocess.Popen(list(command), env=env)  # noqa: S603  # the user's own
    except OSError as error:
        what = f"it cannot be run: {error.strerror or error}"
        raise SpecError(what, where=command[0]) from error
    with _signals_to(program):
        return program.wait()


@contextmanager
def _signals_to(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Nothing ends this process before the program: its report is yet to come."""

    def pass_on(number: int, frame: object) -> None:
        del frame
        program.send_signal(number)

    def leave(number: int, frame: object) -> None:
        """A terminal has sent it to the program as well."""
        if not sys.__stdin__ or not sys.__stdin__.isatty():
            pass_on(number, frame)

    handlers = {getattr(signal, n): pass_on for n in _PASSED_ON if hasattr(signal, n)}
    handlers |= {getattr(signal, n): leave for n in ("SIGINT", "SIGQUIT") if hasattr(signal, n)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _written(found: Trace, code: int, options: TraceOptions) -> Traced:
    """Write the sweep files of a trace, their problems, and the keys for `--shapes-from`."""
    folder, target = options.output, _target(found)
    sweeps: list[tuple[str, Path]] = []
    without: list[tuple[str, str]] = []
    texts: dict[Path, str] = {}
    for kernel, short in _named(found.kernels):
        if why := tracedraft.why_not(kernel):
            without.append((kernel.name, why))
            continue
        made = tracedraft.written(kernel, short, target, folder.absolute())
        sweeps.append((kernel.name, folder / f"{short}.yaml"))
        texts[folder / f"{short}.yaml"] = made.sweep
        if made.problem:
            texts[folder / f"traced_{short}.py"] = made.problem
    keys = tracedraft.keys(found.kernels)
    if keys:
        texts[folder / KEYS] = keys
    kept = _write(texts, force=options.force)
    return Traced(
        exit_code=code if code >= 0 else 128 - code,
        signal=signal_name(-code) if code < 0 else "",
        folder=folder,
        trace=found,
        sweeps=tuple(sweeps),
        kept=kept,
        without=tuple(without),
        keys=folder / KEYS if keys else None,
    )


def _named(kernels: Sequence[TracedKernel]) -> Iterator[tuple[TracedKernel, str]]:
    """Each kernel with a name for its files that is its own."""
    taken: set[str] = set()
    for kernel in kernels:
        name = re.sub(r"\W+", "_", references.short(kernel.name)).strip("_")
        short, number = name, 2
        while short in taken:
            short, number = f"{name}_{number}", number + 1
        taken.add(short)
        yield kernel, short


def _target(found: Trace) -> str:
    """The GPU that it ran on, if a sweep file can name it."""
    words = {word for one in found.processes for word in one.device.split()}
    named = sorted(word for word in words & set(KNOWN_TARGETS) if ":" not in word)
    return named[0] if len(named) == 1 else ""


def _write(texts: Mapping[Path, str], *, force: bool) -> tuple[Path, ...]:
    """Write what is not there yet, or all of it; the files that are kept as they are."""
    kept = []
    for path, text in texts.items():
        try:
            if not force and path.is_file() and _text(path) != text:
                kept.append(path)
                continue
        except OSError as error:
            raise unwritable(path, error) from error
        write(path, text)
    return tuple(kept)


def _text(path: Path) -> str:
    # Whoever put his own there need not have written UTF-8.
    return path.read_text(encoding="utf-8", errors="replace")

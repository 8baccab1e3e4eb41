"""pipeline.tracing: a program -> run unchanged, and what it launched as a report and sweep files.

The program has this process's own stdin, stdout and stderr. Signals that a terminal sends reach
it by themselves, others are passed on; its exit code is the answer.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tritune import tracelog
from tritune.answer import signal_name
from tritune.errors import SpecError
from tritune.pipeline.tracefiles import Traced, TraceOptions, written
from tritune.places import unwritable

STARTUP = Path(tracelog.__file__).parent / "tracing" / "startup"
_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")


def trace(command: Sequence[str], options: TraceOptions) -> Traced:
    """Run *command* and write down what it launches; with none, say again what was written.

    Raises:
        TrituneError: the folder is in use, or there is no such program.
    """
    logs = options.output / "processes"
    if command:
        _refuse_missing(command[0])
        _refuse_traced(logs, force=options.force)
    elif not logs.is_dir():
        raise SpecError("there is no trace in it", where=str(options.output), hint=_USAGE)
    code = _run(command, logs, options) if command else 0
    ended = signal_name(-code) if code < 0 else ""
    return written(tracelog.read(logs), code if code >= 0 else 128 - code, ended, options)


_USAGE = "tritune trace -- python train.py writes one"


def _refuse_missing(program: str) -> None:
    """Before the trace that is there goes for one that cannot begin."""
    if shutil.which(program) is None:
        error = errno.EACCES if Path(program).exists() else errno.ENOENT
        raise _cannot_run(program, os.strerror(error))


def _cannot_run(program: str, why: str) -> SpecError:
    is_script = program.endswith(".py") and Path(program).is_file()
    hint = f"tritune trace -- python {shlex.quote(program)}" if is_script else ""
    return SpecError(f"it cannot be run: {why}", where=program, hint=hint)


def _refuse_traced(logs: Path, *, force: bool) -> None:
    if not force and any(logs.glob("*.jsonl")):
        raise SpecError(
            "a trace is there already, and nothing was run",
            where=str(logs.parent),
            hint="--force replaces it, --output DIR puts this one elsewhere",
        )


def _emptied(logs: Path) -> dict[Path, bytes]:
    """Make way for a trace in *logs*, and give what was there of the last one."""
    try:
        logs.mkdir(parents=True, exist_ok=True)
        marks = [logs / mark for mark in tracelog.MARKS if (logs / mark).exists()]
        there = {path: path.read_bytes() for path in (*logs.glob("*.jsonl"), *marks)}
        for path in there:
            path.unlink()
    except OSError as error:
        raise unwritable(logs, error) from error
    return there


def _run(command: Sequence[str], logs: Path, options: TraceOptions) -> int:
    places = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "TRITUNE_TRACE": str(logs.absolute()),
        "TRITUNE_TRACE_ALL": "1" if options.every else "0",
    }
    there = _emptied(logs)
    sys.stdout.flush()
    try:
        program = subprocess.Popen(list(command), env=env)  # noqa: S603  # the user's own
    except OSError as error:  # what cannot be run was found out too late: a script with no `#!`
        for path, content in there.items():
            path.write_bytes(content)
        raise _cannot_run(command[0], error.strerror or str(error)) from error
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

"""pipeline.tracing: a program -> run unchanged, and what it launched as a report and sweep files.

The program has this process's own stdin, stdout and stderr. Signals that a terminal sends reach
it by themselves, others are passed on; its exit code is the answer.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tritune import tracelog
from tritune.answer import signal_name
from tritune.errors import SpecError
from tritune.pipeline.tracefiles import Traced, TraceOptions, written
from tritune.places import unwritable
from tritune.words import shell

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


_AS_A_SHELL = "name a program as a shell takes it: tritune trace -- python train.py"
_USAGE = "tritune trace -- python train.py writes one"


def _refuse_missing(program: str) -> None:
    """Before the trace that is there goes for one that cannot begin."""
    if shutil.which(program) is None:
        error = errno.EACCES if Path(program).exists() else errno.ENOENT
        raise _cannot_run(program, os.strerror(error))


def _cannot_run(program: str, why: str) -> SpecError:
    is_script = program.endswith(".py") and Path(program).is_file()
    hint = f"tritune trace -- python {shell(program)}" if is_script else _AS_A_SHELL
    return SpecError(f"it cannot be run: {why}", where=program, hint=hint)


def _refuse_traced(logs: Path, *, force: bool) -> None:
    if not force and any(logs.glob("*.jsonl")):
        raise SpecError(
            "a trace is there already, and nothing was run",
            where=str(logs.parent),
            hint="--force replaces it, --output DIR puts this one elsewhere",
        )


@contextmanager
def _set_aside(logs: Path) -> Iterator[None]:
    """The last trace makes way for the next, and is back where that does not begin."""
    old = logs / "old"
    with _written(logs):
        old.mkdir(parents=True, exist_ok=True)
    try:
        with _written(logs):
            _move(logs, old)
        yield
    except BaseException:  # an interrupt too
        with _written(logs):
            _move(old, logs)
            old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)  # the program runs, and nothing reads what is left


@contextmanager
def _written(logs: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritable(logs, error) from error


def _move(here: Path, there: Path) -> None:
    """The files of a trace, by renaming: a full disk takes that too."""
    marks = [here / mark for mark in tracelog.MARKS if (here / mark).exists()]
    for path in (*here.glob("*.jsonl"), *marks):
        path.replace(there / path.name)


def _run(command: Sequence[str], logs: Path, options: TraceOptions) -> int:
    places = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(places),
        "TRITUNE_TRACE": str(logs.absolute()),
        "TRITUNE_TRACE_ALL": "1" if options.every else "0",
    }
    sys.stdout.flush()
    with _set_aside(logs):
        program = _started(command, env)
    with _signals_to(program):
        return program.wait()


def _started(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        # What a shell has opened for the program, as `<(...)` does, is the program's.
        return subprocess.Popen(list(command), env=env, close_fds=False)  # noqa: S603  # its own
    except OSError as error:  # what cannot be run is found out late: a script with no `#!`
        raise _cannot_run(command[0], error.strerror or str(error)) from error


@contextmanager
def _signals_to(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Nothing ends this process before the program: its report is yet to come."""

    def pass_on(number: int, frame: object) -> None:
        del frame
        program.send_signal(number)

    def leave(number: int, frame: object) -> None:
        """A terminal has sent it to the program as well."""
        if not _is_in_front():
            pass_on(number, frame)

    handlers = {getattr(signal, n): pass_on for n in _PASSED_ON if hasattr(signal, n)}
    handlers |= {getattr(signal, n): leave for n in ("SIGINT", "SIGQUIT") if hasattr(signal, n)}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_in_front() -> bool:
    """Whether a terminal sends its signals here, and to the program, wherever stdin is from."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)

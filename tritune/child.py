"""child: requests -> Done | Raised, in one process from its start to the death of its group.

`Child` is the parent's end and `serve` the other one, which leads a process group of its
own, prints into its log file, sees no command line and no input, and has a watcher that ends the
group when the parent is gone.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from tritune import blame
from tritune.answer import Done, Raised
from tritune.errors import EnvironmentFaultError, TrituneError

_WARM = ["tritune.device.warm"]  # what the server imports
T = TypeVar("T")
Function: TypeAlias = Callable[..., T]
_INTERPRET = "TRITON_INTERPRET"
_SAFE_PATH = "PYTHONSAFEPATH"
_OWN: Mapping[str, str | None] = {"TRITUNE_MISS": None, "TRITUNE_LOG": None, _INTERPRET: None}
"""What a sweep launches itself, to find out what to lock, is nobody's miss, and is compiled."""


def stateless() -> None:
    """Stand for a state, where what is called needs none."""


class Child:
    """One life of one process, from its start to the death of its group."""

    def __init__(self, env: Mapping[str, str | None], log: Path) -> None:
        merged = {**os.environ, **_OWN, **env}
        whole = {name: value for name, value in merged.items() if value is not None}
        context = _context(whole)
        self.ready = False
        self.connection, there = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=serve, args=(there, log, whole, Path.cwd())
        )
        try:
            with _deaf_to_interrupts(), _compiling():
                self._process.start()
        except (EOFError, ConnectionError) as error:
            raise EnvironmentFaultError(
                f"a worker process cannot be started ({type(error).__name__})",
                hint=f'does `{sys.executable} -c "import torch"` work?',
            ) from error
        finally:
            # Run at exit as well, before multiprocessing waits for children that are still alive.
            self._finalizer = Finalize(self, _kill_group, (self._process,), exitpriority=100)
            there.close()

    @property
    def handles(self) -> tuple[Connection, int]:
        # The sentinel too: a grandchild may hold the connection open after the child's death.
        return self.connection, self._process.sentinel

    def send(
        self, function: Function[object], args: tuple[object, ...], *, makes_state: bool = False
    ) -> None:
        data = pickle.dumps((function, args, makes_state))
        with suppress(OSError):  # it is dead: `handles` tell
            self.connection.send_bytes(data)

    def end(self) -> int:
        """Kill whatever is left of its group; the exit code, negative for a signal."""
        self._process.join(timeout=0.0)
        self._finalizer()
        self._process.join()
        self.connection.close()
        return self._process.exitcode or 0

    def lives(self) -> bool:
        return self._process.is_alive()


def start_server(*, packages: bool = False) -> None:
    """Have the server import what children need, while the caller still reads its input.

    With *packages* also what packages of kernels make torch import.
    """
    # Torch's compiler would start a pool of its own in every worker.
    os.environ.setdefault("TORCH_WARM_POOL", "0")
    _WARM.extend(["tritune.device.warmer"] if packages else [])
    _context({})
    with _deaf_to_interrupts(), _mute(), _compiling():
        forkserver.ensure_running()


@contextmanager
def _mute() -> Iterator[None]:
    """What starts now holds no pipe of the caller: who reads from it would wait for both."""
    kept = []
    for descriptor in (1, 2):
        with suppress(OSError):  # closed already: then nobody reads from it
            kept.append((descriptor, os.dup(descriptor)))
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor, _ in kept:
            os.dup2(nothing, descriptor)
        yield
    finally:
        for descriptor, copy in kept:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(nothing)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What starts now, and all that it forks, inherits this mask.

    Ctrl-C is for the parent, which kills the others, and not for a traceback out of each of them.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _compiling() -> Iterator[None]:
    """What starts now does not interpret, whatever the user's own programs are told to do.

    Nor does it take a `json.py` of the current folder for Python's own.
    """
    said = {name: os.environ.pop(name, None) for name in (_INTERPRET, _SAFE_PATH)}
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]
        os.environ.update({name: value for name, value in said.items() if value is not None})


def _context(env: Mapping[str, str]) -> Any:
    """How a process with this environment is started: forked from a server, if that will do.

    Triton reads `TRITON_INTERPRET` when it is imported, and the server has imported it.
    """
    if _INTERPRET in env:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_WARM)
    return context


def _kill_group(process: BaseProcess) -> None:
    if process.pid is None:
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # No such group: it has not come to `setsid` yet, or it and all of its own are gone.
        if process.exitcode is None:
            process.kill()


def serve(connection: Connection, log: Path, env: dict[str, str], folder: Path) -> None:
    """The child: requests, the first of which makes the state that the others are calls on.

    A later one may make another state in place of it. One that fails ends the child.
    """
    _settle(log, env, folder)
    state: object = None
    while True:
        made, answer = _attempt(connection, state)
        if made:
            state = answer.value if isinstance(answer, Done) else None
            answer = Done(None) if isinstance(answer, Done) else answer
        _reply(connection, answer)
        if made and isinstance(answer, Raised):
            return


def _settle(log: Path, env: dict[str, str], folder: Path) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    _die_with_parent()
    faulthandler.enable(file=2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected: no core files
    with suppress(OSError):  # when memory runs out: this group, and not the sweep
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv[1:] = []


def _stream(descriptor: int) -> TextIOWrapper:
    # By lines: a crash loses what is in a buffer.
    return open(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _die_with_parent() -> None:
    """Fork a watcher that kills this group when the parent is gone.

    A process and not a thread: code that hangs with the interpreter's lock held stops threads.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and os.fork() == 0:
        os.closerange(0, parent.sentinel)
        os.closerange(parent.sentinel + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        wait([parent.sentinel])
        os.killpg(0, signal.SIGKILL)


def _attempt(connection: Connection, state: object) -> tuple[bool, Done[object] | Raised]:
    """Whether it was to make a state, and how it went."""
    try:
        data = connection.recv_bytes()
    except EOFError:
        _leave()
    makes_state = True
    try:
        function, args, makes_state = pickle.loads(data)  # noqa: S301 - from our own parent
        return makes_state, Done(function(*(() if makes_state else (state,)), *args))
    except BaseException as error:  # noqa: BLE001 - the boundary; `sys.exit` is an answer too
        return makes_state, _raised(error)


def _leave() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError


def _raised(error: BaseException) -> Raised:
    story = traceback.TracebackException.from_exception(error)  # survives a broken `__str__`
    ours = error if isinstance(error, TrituneError) else None
    trace = "".join(story.format())
    where = "" if ours else blame.line(error)
    return Raised(type(error).__name__, str(story), trace, ours, where=where)


def _reply(connection: Connection, answer: Done[object] | Raised) -> None:
    for stream in (sys.stdout, sys.stderr):
        # A module may have closed it or put anything in its place, and the disk may be full.
        with suppress(Exception):
            stream.flush()
    try:
        connection.send(answer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        connection.send(_raised(error))

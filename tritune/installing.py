"""installing: a lockfile -> kernels that nobody decorated run what it says, in this process.

Costs neither triton nor torch: where Triton is not imported yet, its import is waited for.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tritune import switches
from tritune.contract import call_site
from tritune.errors import KernelError, LockError

logger = logging.getLogger("tritune")
TRITON = "triton"
_waiting: dict[str, Callable[[], None]] = {}
"""What to begin, by its name, once Triton, and what of ours needs it, is imported."""


def install(lockfile: str | Path | None = None) -> None:
    """Let every autotuned kernel that a lockfile names run what is locked, source untouched.

    The lockfile is TRITUNE_LOCKFILE where that is set, else the one given. A call whose key is
    not locked does what it did without tritune. Launches in other threads may go on meanwhile.
    What was installed before is no longer served. The file is read as it is now; a kernel under
    `@tritune.kernel` keeps what it read when it was imported.

    Raises:
        TrituneError: no lockfile is named, or there is none; with TRITUNE_MISS=error also where
            it is damaged.
    """
    from tritune import arguments  # for a call of it, and nothing that every process pays for

    hint = 'give it one, `tritune.install("tritune.lock")`, or set TRITUNE_LOCKFILE'
    if lockfile is not None:
        arguments.path("lockfile of tritune.install()", lockfile, hint)
    path = switches.lockfile() or lockfile
    if not path:
        raise KernelError("tritune.install() was told no lockfile", where=call_site(), hint=hint)
    where = Path(path).absolute()
    if not where.is_file():
        raise LockError(
            "it is a folder, not a lockfile" if where.is_dir() else "there is no such lockfile",
            where=str(where),
            hint=_several(str(path)) or "a sweep writes it beside the module of its problem",
        )
    uninstall()
    if not switches.off():
        if lockfile and where != Path(lockfile).absolute():
            logger.warning("TRITUNE_LOCKFILE is set, so %s is installed, not %s", where, lockfile)
        _say_damaged(where)
        _wait(where)
        adopt: Any = sys.modules.get("tritune.adopt")
        if adopt is not None and adopt.is_routing():
            adopt.tell_late()


def _several(path: str) -> str:
    """What to do where the path is several of them; empty where it is not."""
    parts = path.split(os.pathsep)
    if len(parts) < 2 or not all(part and Path(part).is_file() for part in parts):
        return ""
    return "one lockfile is installed at a time, and `tritune merge` makes one lockfile of two"


def _say_damaged(path: Path) -> None:
    """What is damaged is said now, and not once its kernels are imported; it costs no Triton."""
    from tritune import lookup

    file = lookup.reread(path)
    for kernel in file.kernels:
        file.section(kernel)
    damages = filter(None, map(file.damage, ("", *file.kernels)))
    if switches.miss_is_error() and (error := next(damages, None)) is not None:
        raise error


def uninstall() -> None:
    """Let all kernels be as if nothing had been installed."""
    _waiting.pop("install", None)
    if not _waiting:
        _leave_imports()
    adopt: Any = sys.modules.get("tritune.adopt")
    if adopt is not None and hasattr(adopt, "end"):
        adopt.end()


def at_import() -> None:
    """Install TRITUNE_LOCKFILE, if it is set; never in the way of the user's program."""
    if switches.lockfile() and not switches.off():
        _wait(Path(switches.lockfile()).absolute())


def resume() -> None:
    """Begin, if Triton was first imported by a module of ours that was not whole yet."""
    if not _waiting or any(map(_is_half, ("dispatch", "tuned", "adopted", "adopt"))):
        return
    begun = list(_waiting.values())
    _waiting.clear()
    for begin in begun:
        begin()


def wait(name: str, begin: Callable[[], None]) -> None:
    """Call *begin* when Triton is imported; now, if it is."""
    _waiting[name] = begin
    if TRITON in sys.modules:
        resume()
    elif not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _wait(path: Path) -> None:
    wait("install", partial(_begin, path))


def _begin(path: Path) -> None:
    from tritune import adopt, lookup

    file = lookup.lockfile(path)
    if file.document is None and file.error is None:
        hint = f"; {several}" if (several := _several(switches.lockfile())) else ""
        logger.warning("%s: there is no such lockfile, so nothing of it is served%s", path, hint)
    adopt.begin(adopt.Scope(path, frozenset(file.kernels)))


def _is_half(name: str) -> bool:
    spec = getattr(sys.modules.get(f"tritune.{name}"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


_asking = threading.local()


class _Finder(MetaPathFinder):
    """Lets `import triton` go its way, and begins at its end."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        # It stays until Triton is there: who only asks for a spec imports nothing.
        if name != TRITON or getattr(_asking, "now", False):
            return None
        _asking.now = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            _asking.now = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _leave_imports() -> None:
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _Finder)]


class _Loader(Loader):
    def __init__(self, own: Loader) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        _leave_imports()
        resume()

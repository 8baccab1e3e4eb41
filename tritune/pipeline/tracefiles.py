"""pipeline.tracefiles: a Trace -> its sweep files, their problems, and the keys, in its folder.

A kernel that a sweep file of the project is of gets none: that file knows its space.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tritune import references, spec, tracedraft
from tritune.errors import TrituneError
from tritune.pipeline.replacing import Replaced, replace
from tritune.sweepfile import KNOWN_TARGETS
from tritune.tracelog import Trace, TracedKernel

KEYS = "keys.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceOptions:
    """What `tritune trace` was told."""

    output: Path
    every: bool = False
    """Plain jit functions too."""
    force: bool = False
    project: tuple[Path, ...] = ()
    """The sweep files of the project that one stands in."""


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
    own_sweeps: tuple[tuple[str, Path], ...]
    """Kernel -> a sweep file of the project that is of it."""
    left_out: tuple[tuple[str, str, str], ...]
    """Kernel, key -> why no row of its sweep file makes it."""
    guessed: tuple[str, ...]
    """Kernels whose sweep file has a guess for its space."""
    run_again: tuple[tuple[str, str], ...]
    """Kernel -> what to do, where its program runs again when a sweep imports it."""
    files: Replaced
    without: tuple[tuple[str, str], ...]
    """Kernel -> why it has no sweep file."""
    keys: Path | None
    """The keys of kernels with tritune's line, for `--shapes-from`."""


def written(found: Trace, code: int, signal: str, options: TraceOptions) -> Traced:
    """Write the files of a trace whose program ended with *code*, or by *signal*."""
    folder, own = options.output, tuple(_own_sweeps(found.kernels, options))
    named = list(_named(found.kernels))
    whys = {kernel.name: _why_not(kernel, own) for kernel, _ in named}
    drafted = [(kernel, short) for kernel, short in named if not whys[kernel.name]]
    kernels = [kernel for kernel, _ in drafted]
    texts = dict(_texts(drafted, found, folder))
    return Traced(
        exit_code=code,
        signal=signal,
        folder=folder,
        trace=found,
        sweeps=tuple((kernel.name, folder / f"{short}.yaml") for kernel, short in drafted),
        own_sweeps=own,
        left_out=tuple((k.name, *left) for k in kernels for left in tracedraft.left_out(k)),
        guessed=tuple(kernel.name for kernel in kernels if tracedraft.is_guessed(kernel)),
        run_again=tuple(_run_again(kernels)),
        files=replace(folder, texts, force=options.force),
        without=tuple((name, why) for name, why in whys.items() if why),
        keys=folder / KEYS if KEYS in texts else None,
    )


def _texts(
    drafted: Sequence[tuple[TracedKernel, str]], found: Trace, folder: Path
) -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    target = _target(found)
    for kernel, short in drafted:
        again = _is_run_again(kernel)
        made = tracedraft.written(kernel, short, target, folder.absolute(), is_run_again=again)
        yield f"{short}.yaml", _encodable(made.sweep)
        if made.problem:
            yield f"traced_{short}.py", _encodable(made.problem)
    if keys := tracedraft.keys(found.kernels):
        yield KEYS, keys


def _encodable(text: str) -> str:
    """Of a path that is no UTF-8, what a string of Python reads as that path."""
    return text.encode(errors="backslashreplace").decode()


def _own_sweeps(
    kernels: Sequence[TracedKernel], options: TraceOptions
) -> Iterator[tuple[str, Path]]:
    """The sweep files of the project that are of a kernel with tritune's line."""
    ours = [kernel for kernel in kernels if kernel.kind == "decorated"]
    for path in options.project if ours else ():
        if (path.parent / "processes").is_dir():
            continue  # of a trace
        try:
            named = spec.read_sweep(path).kernel or ""
        except TrituneError:  # whoever sweeps it is told
            continue
        yield from ((kernel.name, path) for kernel in ours if _is_of(kernel, named))


def _is_of(kernel: TracedKernel, reference: str) -> bool:
    """Whether a sweep file that names *reference* is of a kernel."""
    place, _, name = reference.rpartition(":")
    by_path = Path(place).resolve() == Path(kernel.file).resolve()
    return reference == kernel.name or (by_path and name == kernel.name.rpartition(":")[2])


def _why_not(kernel: TracedKernel, own: Sequence[tuple[str, Path]]) -> str:
    files = [str(path) for name, path in own if name == kernel.name]
    return f"it has {', '.join(files)}" if files else tracedraft.why_not(kernel)


def _run_again(kernels: Sequence[TracedKernel]) -> Iterator[tuple[str, str]]:
    for kernel in kernels:
        if _is_run_again(kernel):
            yield kernel.name, " ".join(tracedraft.RUN_AGAIN)


def _is_run_again(kernel: TracedKernel) -> bool:
    """Whether a kernel is in a program that nothing keeps from running when it is imported."""
    if not kernel.attribute.startswith("__main__:"):
        return False
    try:
        body = ast.parse(Path(kernel.file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # gone, or of another Python
        return True
    tests = [ast.unparse(one.test) for one in body if isinstance(one, ast.If)]
    return not any("__name__" in test and "__main__" in test for test in tests)


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

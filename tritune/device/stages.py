"""device.stages: a compile -> its TTGIR, where it stops, or its binary, made once for equals.

Wraps a backend's `add_stages`; the hook that Triton has for that changes the compile key. The
keys stay Triton's own, so a launch on the real device finds what is made here.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tritune import blame
from tritune.model import Target

ABOVE_LLVM = ("num_stages",)
"""Options whose whole effect is in the TTGIR already."""
Stage = Callable[[Any, dict[str, Any]], Any]


class StandIn:
    """Answers what Triton, and a kernel's author, ask a driver before anything is compiled."""

    only_compiles = True

    def __init__(self, target: Any, chip: Target | None = None) -> None:
        self.target = target
        self.utils = SimpleNamespace()
        if chip is not None:
            facts = {"max_shared_mem": chip.shared_bytes, "multiprocessor_count": chip.sms}
            facts |= {"warpSize": chip.warp_size, "max_num_regs": chip.registers_sm}
            self.utils.get_device_properties = lambda index: facts  # noqa: ARG005  # Triton's own

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")  # where everything is in a world with no GPU


class Stopped(Exception):  # noqa: N818  # not an error: where lowering was told to stop
    """Lowering reached TTGIR."""

    def __init__(self, text: str, *below: str) -> None:
        super().__init__("stopped after TTGIR")
        self.text = text
        self.below = " ".join(below)


@dataclass
class Watch:
    """What is seen of the compiles of one call, and what they share."""

    stop: bool = False
    irs: list[str] = field(default_factory=list)
    """Digests of the TTIR of what was compiled, not found in the cache."""
    made: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    """TTGIR with the options below it, and a stage -> what it made and said."""

    def begin(self, *, stop: bool) -> None:
        self.stop = stop
        self.irs.clear()
        self.made.clear()


def gpu_target(target: Target) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget(target.backend, target.arch, target.warp_size)


def watch(target: Target) -> Watch:
    """Watch every compile for *target* in this process, from now on; its one watch a backend."""
    from triton.compiler import compiler

    backend = type(compiler.make_backend(gpu_target(target)))
    add_stages = backend.add_stages
    watched: Watch = getattr(backend, "tritune_watch", None) or Watch()
    if hasattr(backend, "tritune_watch"):
        return watched
    cut = compiler.filter_traceback

    def note_and_cut(error: BaseException) -> None:
        blame.note_in_kernel(error)
        cut(error)

    def add(self: Any, stages: dict[str, Any], options: Any, *rest: Any) -> None:
        add_stages(self, stages, options, *rest)
        names = list(stages)
        stages["ttir"] = _noting(watched, stages["ttir"])
        below = names[names.index("ttgir") + 1 :]
        state = {"key": ""}
        for name in below:
            stages[name] = _once(watched, name, stages[name], state)
        stages[below[0]] = _first(watched, stages[below[0]], options, state)

    backend.add_stages, backend.tritune_watch = add, watched
    compiler.filter_traceback = note_and_cut
    return watched


def _noting(watched: Watch, make_ttir: Stage) -> Stage:
    def ttir(module: Any, metadata: dict[str, Any]) -> Any:
        module = make_ttir(module, metadata)
        watched.irs.append(ir_digest(module.str_nodebug()))
        return module

    return ttir


def _first(watched: Watch, stage: Stage, options: Any, state: dict[str, str]) -> Stage:
    def run(module: Any, metadata: dict[str, Any]) -> Any:
        text = module.str_nodebug()
        values = {name: value for name, value in vars(options).items() if name not in ABOVE_LLVM}
        below = repr(sorted(values.items(), key=lambda item: item[0]))
        if watched.stop:
            raise Stopped(text, below)
        state["key"] = hashlib.sha256(f"{text}\n{below}".encode()).hexdigest()
        return stage(module, metadata)

    return run


def _once(watched: Watch, name: str, stage: Stage, state: dict[str, str]) -> Stage:
    """Equal TTGIR goes through LLVM and the assembler once; every key gets the result."""

    def run(source: Any, metadata: dict[str, Any]) -> Any:
        key = (state["key"], name)
        if key not in watched.made:
            before = dict(metadata)
            made = stage(source, metadata)
            said = {n: v for n, v in metadata.items() if n not in before or before[n] != v}
            watched.made[key] = (made, said)
        made, said = watched.made[key]
        metadata.update(said)
        return made

    return run


def ir_digest(text: str) -> str:
    """Eight hex digits of a TTIR, the names of its module's functions made canonical."""
    names = dict.fromkeys(re.findall(r"@([\w.$\"-]+)", text))
    for i, name in enumerate(names):
        text = text.replace(f"@{name}", f"@f{i}")
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def joined(irs: list[str]) -> str:
    """One digest for the kernels of all launches."""
    if len(set(irs)) <= 1:
        return irs[0] if irs else ""
    return hashlib.sha256(" ".join(irs).encode()).hexdigest()[:8]


def ir_of(binary: Any, target: Target) -> str:
    """The digest of the TTIR that a binary in the cache was made from; empty if it has none."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import make_backend

    files = [path for name, path in binary.metadata_group.items() if name.endswith(".ttir")]
    if not files or not Path(files[0]).is_file():
        return ""
    context = ir.context()
    ir.load_dialects(context)
    make_backend(gpu_target(target)).load_dialects(context)
    return ir_digest(ir.parse_mlir_module(str(files[0]), context).str_nodebug())


@contextlib.contextmanager
def no_cache() -> Iterator[None]:
    """Compile without looking into Triton's cache or leaving anything in it."""
    from triton import knobs
    from triton.runtime.cache import CacheManager

    class Nowhere(CacheManager):  # type: ignore[misc]
        def get_file(self, filename: str) -> None:
            """Nothing is here."""

        def put(self, data: object, filename: str, binary: bool = True) -> str:  # noqa: ARG002, FBT001, FBT002  # Triton's signature
            return filename

        def get_group(self, filename: str) -> None:
            """Nothing is here."""

        def put_group(self, filename: str, group: dict[str, str]) -> None:
            """Nothing is kept."""

    before = knobs.cache.manager_class
    knobs.cache.manager_class = Nowhere
    try:
        yield
    finally:
        knobs.cache.manager_class = before


@contextlib.contextmanager
def always() -> Iterator[None]:
    """Compile what the cache has as well, and put the result in its place."""
    from triton import knobs

    before = knobs.compilation.always_compile
    knobs.compilation.always_compile = True
    try:
        yield
    finally:
        knobs.compilation.always_compile = before


def count_compiles(name: str) -> Callable[[], int]:
    """From now on count what Triton compiles here of the kernel *name*, not being in its cache."""
    from triton import knobs

    count, before = [0], knobs.compilation.listener

    def listen(*, metadata: dict[str, Any], cache_hit: bool, **what: Any) -> None:
        count[0] += not cache_hit and metadata.get("name") == name
        if before is not None:
            before(metadata=metadata, cache_hit=cache_hit, **what)

    knobs.compilation.listener = listen
    return lambda: count[0]

"""launches: an op and a problem -> the kernel launches inside it, with fake or real tensors.

Runs in a worker. The op runs unmodified: its tunable launches are intercepted and the config
under trial is forced on them. Knows nothing of compiling, timing or choosing.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritune import contract, runtime
from tritune.adopted import Adopted
from tritune.device import fakes
from tritune.errors import KernelError, TrituneError
from tritune.load import Loaded
from tritune.model import (
    KEY,
    Candidate,
    Config,
    Launches,
    Problem,
    Reason,
    Rejected,
    Target,
    Value,
    Work,
)

SEED = 20
"""Every problem is made from this seed, so that its outputs have a digest worth comparing."""


@dataclass
class Captured:
    """One launch of the kernel under trial, ready to be made again."""

    kernel: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grid: Any
    config: Mapping[str, Any]
    given: Mapping[str, Any]
    """What the op itself passes by name."""

    def launch(self) -> None:
        self.kernel.fn.run(*self.args, **self.kwargs, grid=self.grid, warmup=False)

    def warmup(self) -> Any:
        """Compile without a launch."""
        return self.kernel.fn.run(*self.args, **self.kwargs, grid=self.grid, warmup=True)

    def named(self) -> dict[str, Any]:
        """Every argument by name, those that heuristics set included."""
        named = dict(zip(self.kernel.arg_names, self.args, strict=False)) | self.kwargs
        step = self.kernel.fn
        while hasattr(step, "fn"):
            for name, heuristic in getattr(step, "values", {}).items():
                named[name] = heuristic(dict(named))
            step = step.fn
        return named

    def grid_sizes(self) -> tuple[int, ...]:
        grid = self.grid(self.named()) if callable(self.grid) else self.grid
        return tuple(int(size) for size in (grid if isinstance(grid, Sequence) else (grid,)))


class ConflictError(KernelError):
    """The op itself passes a meta-parameter that the sweep tunes."""


def torch_values(problem: Problem) -> dict[str, Any]:
    """The axes of a problem as its function takes them: `float16` becomes `torch.float16`."""
    import torch

    values: dict[str, Any] = {}
    for name, value in problem.axes:
        if name == KEY:
            continue
        dtype = getattr(torch, value, None) if isinstance(value, str) else None
        values[name] = dtype if isinstance(dtype, torch.dtype) else value
    return values


def make(loaded: Loaded, problem: Problem, device: str) -> Any:
    """Call the problem function, seeded, with torch's default device set: a `tritune.Problem`."""
    import torch

    random.seed(SEED)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(SEED)  # noqa: NPY002  # the global generator is what a problem may use
    torch.manual_seed(SEED)
    with torch.device(device):
        made = loaded.problem(**torch_values(problem))
    if not isinstance(made, runtime.Problem):
        raise KernelError(
            f"the problem function returned {type(made).__name__}",
            where=_place(loaded.problem),
            hint="return tritune.Problem(lambda: op(...), reference=lambda: ...)",
        )
    return made


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


class PrunedError(Exception):
    """The kernel's author leaves the config under trial out for what is launched here."""


def capture(
    kernel: Any, run: Callable[[], Any], config: Config, *, launch: bool = True, key: str = ""
) -> tuple[Any, list[Captured]]:
    """Run an op with *config* forced: what it returned, and its launches of *kernel*.

    With a *key* only the launches under it are meant; the others run as those of other kernels.

    Raises:
        ConflictError: a launch passes another value for a tunable than the one under trial.
    """
    forced = config.as_dict()
    captured: list[Captured] = []

    def intercepted(other: Any, args: Any, kwargs: Mapping[str, Any], grid: Any) -> None:
        meant = other is kernel and (not key or other.key_of(other.bind(args, kwargs)) == key)
        tried = [forced] if meant else other.choices(args, kwargs)
        for number, values in enumerate(tried, start=1):
            one = _as_launched(other, args, kwargs, grid, values)
            if meant:
                captured.append(one)
            if _launched(one, launch=launch, is_last=number == len(tried)):
                break

    with runtime.forced(kernel, forced), runtime.intercept(intercepted):
        returned = run()
    return returned, captured


def _as_launched(
    kernel: Any, args: Any, kwargs: Mapping[str, Any], grid: Any, values: Mapping[str, Value]
) -> Captured:
    by_position = kernel.arg_names[: len(args)]
    _refuse_conflict({**dict(zip(by_position, args, strict=True)), **kwargs}, values)
    named = {n: v for n, v in values.items() if v is not None and n not in by_position}
    return Captured(kernel, tuple(args), {**kwargs, **named}, grid, values, kwargs)


def _launched(one: Captured, *, launch: bool, is_last: bool) -> bool:
    """Launch, or only do what the host does before; false where another config may still fit."""
    from triton.runtime.errors import OutOfResources

    if isinstance(one.kernel, Adopted):
        one.kernel.mark(one.config)
    if not all(one.grid_sizes()):
        return True
    _run_hook(one)  # it may give a descriptor its blocks, which are part of what is compiled
    try:
        if launch:
            one.launch()
    except OutOfResources:
        if is_last:
            raise
        return False
    return True


def _refuse_conflict(passed: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name in values:
        if name in passed and passed[name] != values[name] and values[name] is not None:
            raise ConflictError(
                f"the op passes {name}={passed[name]} itself, and the sweep tunes {name}",
                where=contract.call_site(),
                hint=f"leave {name} out of the launch, or out of `space:` and `default=`",
            )


def _run_hook(one: Captured) -> None:
    hook = one.kernel.hook_of(one.config)
    if hook is not None:
        hook(one.named())


def facts(
    loaded: Loaded, problem: Problem, configs: Sequence[Config], target: Target
) -> tuple[Work, tuple[Launches | Rejected, ...]]:
    """What each config launches on *problem*, found with no GPU and no compile."""
    try:
        return _facts(loaded, problem, configs, target, values=False)
    except fakes.reads_values():
        return _facts(loaded, problem, configs, target, values=True)


def _facts(
    loaded: Loaded, problem: Problem, configs: Sequence[Config], target: Target, *, values: bool
) -> tuple[Work, tuple[Launches | Rejected, ...]]:
    found: list[Launches | Rejected] = []
    dtype = ""
    with fakes.world(target, values=values):
        made = make(loaded, problem, "cpu")
        for config in configs:
            candidate = Candidate(kernel=loaded.kernel.name, problem=problem, config=config)
            try:
                one, dtype = _launches(loaded, made, candidate)
            except TrituneError:
                raise
            except fakes.reads_values():
                raise
            except PrunedError:
                why = "for the arguments that it is launched with"
                found.append(Rejected(candidate=candidate, reason=Reason.PRUNED, detail=why))
            except Exception as error:  # noqa: BLE001  # the boundary: an op may raise anything
                detail = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                rejected = Rejected(candidate=candidate, reason=Reason.LAUNCHES, detail=detail)
                found.append(rejected)
            else:
                found.append(one)
    work = Work(problem=problem, flops=made.flops, bytes=made.bytes, dtype=dtype, timed=made.timed)
    return work, tuple(found)


def _launches(loaded: Loaded, made: Any, candidate: Candidate) -> tuple[Launches, str]:
    under = candidate.problem.key
    config = candidate.config
    _, captured = capture(loaded.kernel, made.run, config, launch=False, key=under)
    keys = {one.kernel.key_of(one.named()) for one in captured}
    if len(keys) > 1:
        raise KernelError(
            f"the op launches `{loaded.kernel.__name__}` under {len(keys)} keys: "
            + " · ".join(sorted(keys)),
            hint="make a problem of its own for each",
        )
    if loaded.is_foreign and not all(map(_is_admitted, captured)):
        raise PrunedError
    classes = [compile_key(one) for one in captured]
    dtypes = [key.split("'*")[1].split("'")[0] for key in classes if "'*" in key]
    return (
        Launches(
            candidate=candidate,
            key=keys.pop() if keys else "",
            grids=tuple(sizes for one in captured if all(sizes := one.grid_sizes())),
            compile_class=hashlib.sha256("\n".join(classes).encode()).hexdigest()[:16],
        ),
        dtypes[0] if dtypes else "",
    )


def _is_admitted(one: Captured) -> bool:
    return bool(one.kernel.admits(one.config, one.args, one.given))


def compile_key(one: Captured) -> str:
    """Triton's own key of a launch: signature, specialisation, constants and options.

    Taken through `jit_cache_hook`, which is asked before a compile and may decline it.
    """
    from triton import knobs

    keys: list[str] = []

    def decline(**what: Any) -> bool:
        keys.append(what["key"])
        return True

    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook = decline
    try:
        one.warmup()
    finally:
        knobs.runtime.jit_cache_hook = before
    return keys[0]

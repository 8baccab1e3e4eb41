"""launches: an op and a problem -> the kernel launches inside it, with fake or real tensors.

Runs in a worker. Knows nothing of compiling, timing or choosing.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Sequence
from typing import Any

from tritune import blame, hooks, runtime, verify
from tritune.contract import place_of
from tritune.device import fakes
from tritune.errors import KernelError, TrituneError, line_of
from tritune.intercept import Captured, UnmadeError, capture, is_admitted
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
    Work,
)

SEED = 20
"""Every problem is made from this seed, so that its outputs have a digest worth comparing."""


PRUNED = "for the arguments that it is launched with"


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
            where=place_of(loaded.problem),
            hint="return tritune.Problem(lambda: op(...), reference=lambda: ...)",
        )
    return made


def compared(
    loaded: Loaded, problem: Problem, outputs: Sequence[Any], references: Sequence[Any]
) -> verify.Difference:
    """How far outputs are from their references; what cannot be compared is told with its place."""
    try:
        return verify.difference(outputs, references)
    except KernelError as error:
        what = f"on the problem {problem}, {error.what}"
        raise KernelError(what, where=place_of(loaded.problem), hint=error.hint) from error


class PrunedError(Exception):
    """The kernel's author leaves the config under trial out for what is launched here."""


def facts(
    loaded: Loaded, problem: Problem, configs: Sequence[Config], target: Target
) -> tuple[Work, tuple[Launches | Rejected, ...]]:
    """What each config launches on *problem*, found with no GPU and no compile."""
    try:
        work, found = _facts(loaded, problem, configs, target, values=False)
    except fakes.reads_values():
        return _facts(loaded, problem, configs, target, values=True)
    if loaded.is_foreign and all(isinstance(one, Launches) and not one.key for one in found):
        # It was found to be launched, so this is a custom op, which runs on real tensors only.
        return _facts(loaded, problem, configs, target, values=True)
    return work, found


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
            except (PrunedError, UnmadeError):
                pruned = Rejected(candidate=candidate, reason=Reason.PRUNED, detail=PRUNED)
                found.append(pruned)
            except Exception as error:  # noqa: BLE001  # the boundary: an op may raise anything
                detail = f"{line_of(error)}{blame.told(error)}"
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
    if loaded.is_foreign and not is_admitted(captured):
        raise PrunedError
    classes = [compile_key(one) for one in captured]
    dtypes = [key.split("'*")[1].split("'")[0] for key in classes if "'*" in key]
    return (
        Launches(
            candidate=candidate,
            key=keys.pop() if keys else "",
            grids=tuple(sizes for one in captured if all(sizes := one.grid_sizes())),
            compile_class=hashlib.sha256("\n".join(classes).encode()).hexdigest()[:16],
            hooks=tuple(hooks.name(one.kernel.hook_of(one.config)) for one in captured),
        ),
        dtypes[0] if dtypes else "",
    )


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

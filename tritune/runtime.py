"""runtime: what a kernel module calls. A decorated kernel -> a kernel that runs what is locked.

Standard library only; triton is imported when the first kernel is decorated, torch never.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritune import arguments, installing, silicon, switches
from tritune import contract as contracts
from tritune.contract import call_site as caller
from tritune.errors import EnvironmentFaultError, KernelError
from tritune.model import LOCKFILE, DeviceIdentity, Value
from tritune.switches import intercept, stats

__all__ = [
    "Problem",
    "caller",
    "forced",
    "identify",
    "intercept",
    "kernel",
    "override",
    "problem",
    "stats",
]

_DEFAULT = "say default=dict(BLOCK=128, ..., num_warps=4): its names are the tunables"


@dataclass(frozen=True)
class Problem:
    """One problem, made: the op to run on it, and what is known of the op.

    *run* and *reference* take no arguments and return the result (a tensor, or several in a
    tuple, list or dict). *flops* and *bytes* are the least work that the problem needs.
    """

    run: Callable[[], Any]
    reference: Callable[[], Any] | None = None
    flops: float | None = None
    bytes: float | None = None
    timed: str = "kernel"
    """`kernel`: only the kernel's launches are timed; `op`: all that `run` does."""

    def __post_init__(self) -> None:
        for name, given in (("run", self.run), ("reference", self.reference)):
            if not callable(given) and (name == "run" or given is not None):
                raise KernelError(
                    f"{name} of a Problem is {type(given).__name__}, not a function",
                    where=caller(),
                    hint="write tritune.Problem(lambda: op(...), reference=lambda: ...)",
                )
        if self.timed not in ("kernel", "op"):  # no set: it may have no hash
            raise KernelError(
                f"timed={self.timed!r} of a Problem",
                where=caller(),
                hint='it is "kernel" or "op"',
            )
        for name, amount in (("flops", self.flops), ("bytes", self.bytes)):
            if amount is not None and not _is_amount(amount):
                raise KernelError(
                    f"{name}={amount!r:.60} of a Problem",
                    where=caller(),
                    hint="it is a number of at least 0, or left out",
                )


def kernel(
    decorated: Any = None,
    *,
    key: Iterable[str] | None = None,
    like: Iterable[str] | None = None,
    near: str | None = None,
    default: Mapping[str, Value] | None = None,
    lockfile: str | Path | None = None,
) -> Any:
    """Make a Triton kernel run what its lockfile says.

    *key* names the arguments a config depends on; *like* the tensors whose dtype and alignment
    it depends on (all, if left out); *default* is the config of a call that is not locked, and
    its names are the tunables; *near* names the one argument of *key* for which a locked
    value nearby will do: the next one up, or the nearest. Over `@triton.autotune`, all are taken
    from it if left out.
    """
    key = None if key is None else arguments.names("key", key)
    like = None if like is None else arguments.names("like", like)
    if near is not None:
        arguments.near(near)
    if default is not None:
        arguments.default(default, _DEFAULT)
    if lockfile is not None:
        arguments.path("lockfile", lockfile, f'write lockfile="{LOCKFILE}"')

    def decorate(inner: Any) -> Any:
        from tritune import dispatch, tuned

        installing.resume()
        function = contracts.describe(inner)
        if isinstance(inner, dispatch.Kernel):
            raise KernelError(
                f"`{function.short}` has two @tritune.kernel lines",
                where=function.where,
                hint="keep one",
            )
        stock = tuned.autotuner_of(inner, function)
        if stock is not None:
            tuning = tuned.of_autotuned(stock, default, function)
        elif default is None:
            raise _no_default(function)
        else:
            contracts.check(function, default, key=key or (), like=like, near=near)
            tuning = tuned.of_jit(inner, default)
        names = tuning.key if key is None else key
        contract = contracts.check(function, tuning.default, key=names, like=like, near=near)
        made = dispatch.Kernel(tuning, contract, _lockfile(function, lockfile))
        tuned.decorated.add(made.base_fn)
        return made

    return decorate if decorated is None else decorate(decorated)


def problem(kernel: Any) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Mark the function that makes a problem of *kernel*; its parameters are `shapes:` axes."""
    _check_kernel(kernel, "@tritune.problem")

    def mark(function: Callable[..., Problem]) -> Callable[..., Problem]:
        if not hasattr(inspect.unwrap(function), "__code__"):
            raise KernelError(
                f"@tritune.problem got {type(function).__name__}, not a function",
                where=caller(),
                hint="put it above the function that makes the problem",
            )
        kernel.problem = function
        return function

    return mark


def op(function: Callable[..., Any], *, mutates: Iterable[str] = ()) -> Callable[..., Any]:
    """The same op, opaque to torch.compile: for dynamic sizes, hooks, and `kernel.config()`.

    *function* takes and returns tensors and numbers and says so in its annotations, as
    `torch.library.custom_op` asks; *mutates* names the arguments that it writes to. Outside of
    torch.compile it is called as it is. It has no gradient of its own under torch.compile.
    """
    from tritune import opaque

    return opaque.make(function, arguments.names("mutates", mutates))


@contextmanager
def override(kernel: Any, config: Mapping[str, Value]) -> Iterator[None]:
    """Force *config* on *kernel*, for an experiment: on its launches and its `config()`.

    It holds for the whole process, because autograd runs backward kernels in other threads.
    What torch.compile has traced keeps the config it was traced with, and to trace a kernel while
    its config is forced is a KernelError, which torch wraps in an error of its own; an op made
    with `tritune.op` obeys at every call.
    """
    _check_kernel(kernel, "tritune.override")
    hint = f"it has {', '.join(kernel.tunables)}"
    arguments.config("the config of tritune.override", config, hint)
    kernel.check_config(config, caller())
    arguments.launchable(f"a config of `{kernel.contract.function.short}`", config)
    with forced(kernel, config):
        yield


@contextmanager
def forced(kernel: Any, config: Mapping[str, Value]) -> Iterator[None]:
    """`override` as a sweep has it, for which a number that no launch can use is an outcome."""
    kernel.check_config(config, caller())
    before, kernel.forced_config = kernel.forced_config, dict(config)
    try:
        yield
    finally:
        kernel.forced_config = before


def identify(index: int) -> DeviceIdentity:
    """The silicon of GPU *index*, by the facts that a look-up compares; starts the driver."""
    device = silicon.identify(index)
    if device is None:
        raise EnvironmentFaultError(f"Triton finds no driver for GPU {index}")
    return device


def _lockfile(function: contracts.Function, given: str | Path | None) -> Path:
    if instead := switches.lockfile():
        return Path(instead).absolute()
    return Path(function.file).absolute().parent / (given or LOCKFILE)


def _no_default(function: contracts.Function) -> KernelError:
    return KernelError(
        f"`{function.short}` has no default config",
        where=function.where,
        hint=_DEFAULT,
    )


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)  # numpy's, too
    return is_number and bool(0 <= value < math.inf)


def _check_kernel(kernel: Any, who: str) -> None:
    from tritune import dispatch

    if not isinstance(kernel, dispatch.Kernel):
        hint = "put @tritune.kernel above @triton.jit or @triton.autotune"
        if inspect.isfunction(kernel):  # as `@tritune.problem` alone gets it
            hint = f"name a kernel that has @tritune.kernel above it: {who}(KERNEL)"
        raise KernelError(
            f"{who} got {type(kernel).__name__}, not a kernel", where=caller(), hint=hint
        )

"""discover: an op and its problems -> the kernels under `triton.autotune` that it launches.

Runs in a worker, with no GPU: the op goes as far as its launches. What is found is described as
a kernel that somebody decorated is, with the keys that each problem launches it under.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from tritune import blame, contract, dtypenames, launches, load, runtime, space
from tritune.device import fakes
from tritune.device.stages import StandIn, gpu_target
from tritune.errors import KernelError, TrituneError, line_of
from tritune.load import Loaded
from tritune.model import Config, KernelInfo, Problem, Sweep, Target, Value


@dataclass(frozen=True)
class _Launch:
    kernel: Any
    key: str
    admitted: list[dict[str, Value]]
    """The configs that its author lets the launch run."""
    foreseen: list[dict[str, Value]] | None
    """Those that its author's perf_model leaves of them; None where that leaves out none."""
    stock_key: str
    """What its own autotuner would cache its winner under."""


@dataclass
class _Found:
    """One kernel: where the op launched it, and under what."""

    kernel: Any
    keys: dict[Problem, dict[str, None]] = field(default_factory=dict)
    admitted: list[list[dict[str, Value]]] = field(default_factory=list)
    """The configs that its author lets each launch run."""
    foreseen: dict[tuple[Problem, str], list[dict[str, Value]] | None] = field(default_factory=dict)
    """Of the first launch under each key, as that is the one which its author's tuner times."""
    stock_keys: dict[tuple[Problem, str], str] = field(default_factory=dict)

    def add(self, problem: Problem, launch: _Launch) -> None:
        self.admitted.append(launch.admitted)
        self.keys.setdefault(problem, {})[launch.key] = None
        self.foreseen.setdefault((problem, launch.key), launch.foreseen)
        self.stock_keys.setdefault((problem, launch.key), launch.stock_key)

    def limits(self) -> Iterator[tuple[Problem, str, tuple[Config, ...]]]:
        for (problem, key), left in self.foreseen.items():
            if left is not None:
                yield problem, key, tuple(Config.of(self._whole(config)) for config in left)

    def default(self) -> tuple[Config, bool]:
        """The first config that all launches may run, else the first launch's first; and which."""
        lists = [[self._whole(config) for config in one] for one in self.admitted]
        common = [config for config in lists[0] if all(config in one for one in lists)]
        return Config.of((common or lists[0])[0]), bool(common)

    def _whole(self, config: Mapping[str, Value]) -> dict[str, Value]:
        """With the names that a later launch has brought up."""
        return {name: config.get(name) for name in self.kernel.tunables}


def open_op(kernel: str | None, problem: str | None, target: Target | None) -> tuple[Loaded, ...]:
    """Load an op where what it imports, or asks of a driver, is told of *target*, if any."""
    if problem is None or target is None:
        return load.load_all(kernel, problem)
    import triton

    triton.runtime.driver.set_active(StandIn(gpu_target(target), target))
    with fakes.importing(target):
        return load.load_all(kernel, problem)


def describe(loaded: tuple[Loaded, ...], sweep: Sweep, target: Target) -> tuple[KernelInfo, ...]:
    """The kernels of a sweep file, those that nobody decorated found by running the op."""
    infos = load.describe_all(loaded)
    return discover(loaded, sweep, target) if needs_op(infos) else infos


def needs_op(infos: Sequence[KernelInfo]) -> bool:
    """Whether only the op can tell which kernels these are, or under which keys."""
    return not infos or any(info.foreign for info in infos)


def discover(loaded: tuple[Loaded, ...], sweep: Sweep, target: Target) -> tuple[KernelInfo, ...]:
    """The kernels that nobody decorated among *loaded*; all of the op's, where none is named.

    Raises:
        ManyMistakesError: its rows are not what the problem function takes.
        KernelError: there is nothing to tune.
    """
    [one] = loaded
    space.check_axes(sweep, load.reference(one.problem), load.parameters(one.problem))
    found: dict[str, _Found] = {}
    past: dict[int, Any] = {}
    for problem in (*sweep.problems, *sweep.smoke):
        _watch(one, problem, target, found, past)
    wanted = [found[name] for name in found if one.kernel is None or one.kernel.name == name]
    if not wanted:
        raise _nothing(one, past)
    infos = [_described(one, each, past) for each in wanted]
    return tuple(sorted(infos, key=lambda info: info.name))


def _watch(
    one: Loaded, problem: Problem, target: Target, found: dict[str, _Found], past: dict[int, Any]
) -> None:
    for values in (False, True):
        seen: list[_Launch] = []
        with fakes.world(target, values=values):
            try:
                run = launches.make(one, problem, "cpu").run
                with _noting(past):
                    _launches(run, seen)
            except fakes.reads_values():
                continue
            except TrituneError:
                raise
            except Exception as error:
                raise _failed(one, problem, error) from error
        if not seen and not values:  # a custom op may launch nothing on fake tensors
            continue
        for launch in seen:
            found.setdefault(launch.kernel.name, _Found(launch.kernel)).add(problem, launch)
        return


def _failed(one: Loaded, problem: Problem, error: Exception) -> KernelError:
    """What the problem function or the op raised: mostly for the values of one row."""
    return KernelError(
        f"the problem {problem} cannot be run: {line_of(error)}",
        where=blame.line(error) or contract.place_of(one.problem),
        hint=dtypenames.told(value for _, value in problem.axes) or _no_cpu(error),
    )


def _no_cpu(error: Exception) -> str:
    """What helps where torch has no code of an operator for the CPU, or an op insists on a GPU."""
    if isinstance(error, NotImplementedError) and "Could not run '" in str(error):
        return (
            "launches are found on the CPU, also where there is a GPU: have the problem function "
            "call the Python function that the operator has for CUDA"
        )
    raised = traceback.extract_tb(error.__traceback__)[-1:]
    if any("cuda" in said or "device" in said for one in raised if (said := str(one.line).lower())):
        return (
            "launches are found on the CPU, also where there is a GPU: `is_cuda` of a tensor is "
            "True there and its `device` is the CPU, and there are no streams"
        )
    return ""


def _launches(run: Callable[[], Any], seen: list[_Launch]) -> None:
    from tritune.adopted import Adopted

    def noted(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> None:
        if isinstance(kernel, Adopted):
            admitted = kernel.admitted(args, kwargs, grid)
            kernel.mark(admitted[0])
            key = kernel.key_of(kernel.bind(args, kwargs))
            foreseen = kernel.foreseen(args, kwargs, grid)
            stock_key = kernel.stock_key(args, kwargs)
            seen.append(_Launch(kernel, key, admitted, foreseen, stock_key))

    with runtime.intercept(noted):
        run()


@contextlib.contextmanager
def _noting(past: dict[int, Any]) -> Iterator[None]:
    """Note the functions, by id, that are launched without what stands above them."""
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def noted(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
        past[id(self)] = self
        return run(self, *args, warmup=warmup, **kwargs)

    with mock.patch.object(JITFunction, "run", noted):
        yield


def _described(one: Loaded, each: _Found, past: Mapping[int, Any]) -> KernelInfo:
    keys = tuple((problem, tuple(under)) for problem, under in each.keys.items())
    info = load.describe(Loaded(each.kernel, one.problem))
    default, is_common = each.default()
    note = (
        f"its prune function leaves no config for all problems; {default} is what others are "
        "compared with, so give the problems a reference"
    )
    notes = info.notes if is_common else (*info.notes, note)
    if any(id(layer) in past for layer in contract.layers(each.kernel.stock)):
        notes = (*notes, "some launches go past its autotuner (`.fn[grid]`), and run as they are")
    return replace(
        info,
        keys=keys,
        default=default,
        foreseen=tuple(each.limits()),
        stock_keys=tuple((*at, key) for at, key in each.stock_keys.items() if key),
        notes=notes,
    )


def _nothing(one: Loaded, past: Mapping[int, Any]) -> KernelError:
    """Why there is nothing to tune, where *past* were launched with no autotuner asked."""
    from tritune import adopt

    name = None if one.kernel is None else one.kernel.name
    if went := [each for each in adopt.names_of(past) if name in {None, each}]:
        return KernelError(
            f"the op launches {contract.quoted(went)} past its autotuner (`.fn[grid]`), in a "
            "config of its own",
            where=load.reference(one.problem),
            hint="what never asks an autotuner can be neither tuned nor served",
        )
    if name is None and past:
        bare = sorted({f"{each.fn.__module__}:{each.fn.__qualname__}" for each in past.values()})
        return KernelError(
            f"the op launches {contract.quoted(bare)}, with no autotuner to put winners into",
            where=load.reference(one.problem),
            hint="what can be tuned has `@triton.autotune` or `@tritune.kernel` above it",
        )
    if name is None:
        return load.no_kernel(one.problem)
    return KernelError(
        f"the op launches no `{name}`, on any problem",
        where=load.reference(one.problem),
        hint="leave `kernel:` out to tune every autotuned kernel that it does launch",
    )

"""dispatch: a launch -> the kernel, run with its config.

The only module of production that imports triton; it is imported by `tritune.kernel(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.autotuner import Config as TritonConfig
from triton.runtime.jit import MockTensor

from tritune import contract as contracts
from tritune import hooks, inductor, keys, lookup, misses, recall, silicon, switches
from tritune.contract import Contract, call_site
from tritune.errors import KernelError
from tritune.launcher import Call, Launcher
from tritune.model import Config, Value
from tritune.tuned import Passed, Served, Tuning

MEMO_LIMIT = 4096
"""Keys remembered a kernel; a server that sees endless sizes must not grow for ever."""


class Kernel(inductor.Traced, Autotuner):  # type: ignore[misc]
    """A Triton kernel that runs what its lockfile says.

    An `Autotuner` to whoever asks (Inductor, and libraries that read `best_config`), with a
    `run` that never times anything.
    """

    name: str
    """`package.module:function`, as the lockfile names it."""
    default: dict[str, Value]
    tunables: tuple[str, ...]
    key_names: tuple[str, ...]
    like: tuple[str, ...] | None
    near: str | None
    lockfile: Path
    otherwise = lookup.DEFAULT

    def __init__(self, tuning: Tuning, contract: Contract, lockfile: Path) -> None:
        self._defaults = dict(contract.function.defaults)
        prune = inductor.pruner(self._for_inductor, contract, self._defaults, tuning.stock)
        super().__init__(
            tuning.fn,
            list(contract.function.params),
            list(tuning.configs),
            list(contract.key),
            list(tuning.reset_to_zero),
            list(tuning.restore_value),
            prune_configs_by={"early_config_prune": prune},
        )
        self.tuning, self.contract, self.lockfile = tuning, contract, lockfile
        self.name, self.tunables = contract.function.name, contract.tunables
        self.key_names, self.like, self.near = contract.key, contract.like, contract.near
        self.default = dict(tuning.default)
        self.problem: Callable[..., Any] | None = None
        self.forced_config: dict[str, Value] | None = None
        self.is_off = switches.off()
        self._is_stock = self.is_off and tuning.stock is not None
        self._passed = Passed(contract, self.arg_names)
        self._launcher = Launcher(tuning.fn)
        self._recall = recall.Recall(contract, self.arg_names, self._launcher.jit)
        self._asked = recall.Recall(contract, self.arg_names, None)
        self._check_named = contracts.named_checker(contract)
        self._memo: dict[tuple[object, ...], Served] = {}
        self._given: dict[tuple[tuple[str, Value], ...], Served] = {}
        self._told: set[tuple[tuple[str, Value], ...]] = set()
        self._lives: dict[Config, TritonConfig] = {}
        self._default = self._as_served("default", self.default)
        # Past what `Adopted` makes of it: its author's tuner keeps what it says of its best.
        self.__dict__["best_config"] = self._default.live
        inductor.keep_out(Kernel.run, Kernel.config)
        self._file = None if self.is_off else lookup.lockfile(lockfile)
        if self._file is not None:
            self._file.section(self.name)  # read now, so that what is damaged is said at import

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def key_of(self, bound: Mapping[str, object]) -> str:
        """The key of a call, given its arguments by name."""
        return keys.text(self.contract, {**self._defaults, **bound})

    def config(self, **named: object) -> dict[str, Value]:
        """The config a launch with these arguments runs; pass it on to the launch as `**cfg`."""
        self._check_named(tuple(named))
        if switches.is_tracing():
            return dict(self.default)
        slot = None
        if self.forced_config is None:
            slot = self._asked.slot((), named, tuple(named.values()))
        served = recall.known(slot)
        if served is None:
            served = self._answer({**self._defaults, **named})
            self._tell(served.config)
            if served.kind != "forced":
                recall.keep(slot, served)
        switches.count((self.name, served.kind))
        return dict(served.config)

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config that was passed, or else with the one that is locked."""
        if warmup or self._is_stock or self.forced_config is not None or switches.are_set():
            return self._run_otherwise((args, kwargs), grid, warmup)
        values = (*args, *kwargs.values()) if kwargs else args
        slot = self._recall.slot(args, kwargs, values)
        known = recall.known(slot)
        if known is None:
            return self._first(slot, (args, kwargs), values, grid)
        served, again = known
        if again is None or served.live.pre_hook or not self._launcher.is_ordinary():
            return self._launch(served, (args, kwargs), grid)
        self.best_config = served.live
        if served.count is not None:
            switches.count(served.count)
        return self._launcher.again(again, values, grid)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> list[Any]:
        """Compile what a launch would run; a list of one, as an Autotuner gives a list."""
        mocked = [MockTensor.wrap_dtype(arg) for arg in args]
        return [self.run(*mocked, grid=grid, warmup=True, **kwargs)]

    def choices(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], _: Any = None
    ) -> list[dict[str, Value]]:
        """What a launch with these arguments would run, the first that can; nothing is counted."""
        return [self._passed(args, kwargs) or dict(self._answer(self.bind(args, kwargs)).config)]

    def hook_of(self, config: Mapping[str, Value]) -> Any:
        """The `pre_hook` that belongs to *config*, to be called with every argument by name."""
        if why := self.tuning.no_hook(config):
            what = f"`{self.contract.function.short}` has no pre_hook for this config: {why}"
            raise KernelError(what, where=call_site())
        return self.live(config).pre_hook

    def live(self, config: Mapping[str, Value]) -> TritonConfig:
        """Always the same Config for equal values: Dynamo guards on which one it saw."""
        at = Config.of(config)
        return self._lives.get(at) or self._lives.setdefault(at, self.tuning.live(config))

    def _as_served(self, kind: str, config: Mapping[str, Value]) -> Served:
        return Served(self.name, kind, config, self.live(config), self.tuning.untold)

    def _refusing(self, _: Mapping[str, Any]) -> lookup.Refusal:
        """What says why a locked config cannot be run by the launch with these arguments."""
        return self.tuning.refusal

    def _run_otherwise(self, call: Call, grid: Any, warmup: bool) -> Any:  # noqa: FBT001
        args, kwargs = call
        if switches.is_tracing():
            return None
        if switches.interceptor is not None and not warmup:
            return switches.interceptor(self, args, kwargs, grid)
        if self._is_stock and not self._passed(args, kwargs):
            return self.tuning.stock.run(*args, grid=grid, warmup=warmup, **kwargs)
        if (served := self._decide(args, kwargs, grid)) is None:
            return self._as_without(call, grid, warmup)
        return self._launch(served, call, grid, warmup)

    def _as_without(self, call: Call, grid: Any, warmup: bool) -> Any:  # noqa: FBT001
        """What a miss runs that no config here is for."""
        raise NotImplementedError

    def _first(
        self, slot: recall.Slot | None, call: Call, values: tuple[Any, ...], grid: Any
    ) -> Any:
        """Launch, and remember what came of it."""
        args, kwargs = call
        served = self._decide(args, kwargs, grid)
        if served is None:
            return self._as_without(call, grid, False)  # noqa: FBT003
        binary = self._launch(served, call, grid)
        if slot is None or served.kind == "forced":  # by another thread, since it was asked
            return binary
        again = None
        if served.live.pre_hook is None:
            passed = (*self.arg_names[: len(args)], *kwargs)
            again = self._launcher.remember(binary, (args, served.named(kwargs)), passed, values)
        recall.keep(slot, (served, again))
        return binary

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Served | None:
        """The config that is passed, or else the one that is locked."""
        passed = self._passed(args, kwargs)
        return self._given_of(passed) if passed else self._answer(self.bind(args, kwargs))

    def _given_of(self, passed: dict[str, Value]) -> Served:
        at = tuple(passed.items())
        if (served := self._given.get(at)) is None:
            self.hook_of(passed)
            self._bound_memos()
            served = self._given.setdefault(at, self._as_served("given", passed))
            if at in self._told:
                served.count = None
        return served

    def _tell(self, config: Mapping[str, Value]) -> None:
        """`config()` gives *config*, and counts the launch that it is passed to."""
        at = tuple(self._passed((), config).items())
        self._bound_memos()
        self._told.add(at)
        if at in self._given:
            self._given[at].count = None

    def _bound_memos(self) -> None:
        if max(len(self._given), len(self._told)) >= MEMO_LIMIT:
            for memo in (self._given, self._told, self._recall, self._asked):
                memo.clear()

    def _launch(self, served: Served, call: Call, grid: Any, warmup: bool = False) -> Any:  # noqa: FBT001, FBT002
        args, kwargs = call[0], served.named(call[1])
        if served.count is not None:
            switches.count(served.count)
        live = self.best_config = served.live
        if live.pre_hook is not None and not warmup:
            live.pre_hook(hooks.arguments(self.arg_names, args, kwargs, grid, live))
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs)
        return self._launcher.launch(args, kwargs, grid)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, the signature's defaults included."""
        return {**self._defaults, **dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def check_config(self, config: Mapping[str, Value], where: str) -> None:
        """A whole config of this kernel, or a KernelError."""
        from tritune import forcing  # for experiments, and none of what an import pays for

        forcing.check(self.contract, self.tuning, config, where)

    def _answer(self, bound: Mapping[str, Any]) -> Served:
        forced = self.forced_config  # read once: an override may end in another thread
        if forced is not None:
            return self._as_served("forced", forced)
        if self._file is None:
            return self._default
        place = silicon.current()
        try:
            at: tuple[object, ...] = (*place, keys.memo(self.contract, bound))
            served = self._memo.get(at)
        except KeyError as error:
            what = f"a launch of `{self.contract.function.short}` lacks `{error.args[0]}`"
            raise KernelError(what, where=call_site()) from error
        except TypeError:  # an argument that has no hash; its text has, or it is refused
            at = (*place, self.key_of(bound))
            served = self._memo.get(at)
        return served or self._remember(at, place, bound)

    def _remember(
        self, at: tuple[object, ...], place: tuple[object, int], bound: Mapping[str, Any]
    ) -> Served:
        served = self._look_up(place, bound)
        if len(self._memo) >= MEMO_LIMIT:
            for memo in (self._memo, self.cache, self._lives):
                memo.clear()
        self._memo[at] = served
        self.cache[(self.key_of(bound),)] = served.live
        return served

    def _for_inductor(self, bound: dict[str, Any]) -> TritonConfig | None:
        served = self._answer(bound)
        if served.kind == "forced":
            raise inductor.forced(self.contract)
        switches.count((self.name, served.kind))
        return served.live

    def _look_up(self, place: tuple[object, int], bound: Mapping[str, Any]) -> Served:
        device = silicon.identity(place)
        if device is None:
            misses.tell_unlogged()
        if self._file is None or (device is None and not switches.miss_is_error()):
            return self._default
        asked = lookup.Asked(
            kernel=self.name,
            key=tuple(keys.parts(self.contract, bound)),
            near=self.near,
            otherwise=self.otherwise,
            values={name: bound[name] for name in self.contract.scalars},
        )
        if device is None:
            if not keys.is_empty(self.contract, bound):
                misses.refuse_unlocked(self._file, asked, self._refusing(bound))
            return self._default
        self._file.announce(device)
        found = lookup.find(self._file, device, asked, self._refusing(bound))
        if found.config is not None:
            return self._as_served(found.kind, found.config.as_dict())
        if not keys.is_empty(self.contract, bound):
            misses.report(self._file, device, asked, found.why)
        return self._default

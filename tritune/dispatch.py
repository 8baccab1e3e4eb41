"""dispatch: a launch -> the kernel, run with its config.

The only module of production that imports triton; it is imported by `tritune.kernel(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.autotuner import Config as TritonConfig
from triton.runtime.jit import MockTensor

from tritune import contract as contracts
from tritune import inductor, keys, lookup, misses, silicon, switches
from tritune.contract import Contract, call_site
from tritune.errors import KernelError
from tritune.launcher import Launcher
from tritune.model import LAUNCH_OPTIONS, Config, Value
from tritune.tuned import Served, Tuning

MEMO_LIMIT = 4096
"""Keys remembered a kernel; a server that sees endless sizes must not grow for ever."""

_FACTS = ("arch", "backend", "shared_bytes", "sms")
"""What a constraint may name of the device."""


class Kernel(Autotuner):  # type: ignore[misc]
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
        self._positions = {name: i for i, name in enumerate(self.arg_names)}
        self._tunable = frozenset(self.tunables)
        self._plain_args = min(
            (self._positions[name] for name in self.tunables if name in self._positions),
            default=len(self.arg_names),
        )
        self._launcher = Launcher(tuning.fn)
        self._quick = keys.Quick(contract, self.arg_names)
        self._check_named = contracts.named_checker(contract)
        self._memo: dict[tuple[object, ...], Served] = {}
        self._quick_memo: dict[tuple[object, ...], Served] = {}
        self._given: dict[tuple[tuple[str, Value], ...], Served] = {}
        self._lives: dict[Config, TritonConfig] = {}
        self._default = self._as_served("default", self.default)
        self.best_config = self._default.live
        self._from_config: set[tuple[tuple[str, Value], ...]] = set()
        self._file = None if self.is_off else lookup.lockfile(lockfile)

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
        served = self._answer({**self._defaults, **named})
        switches.count(self.name, served.kind)
        if len(self._from_config) >= MEMO_LIMIT:
            self._from_config.clear()
        self._from_config.add(tuple(self._passed((), served.config).items()))
        return dict(served.config)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config that was passed, or else with the one that is locked."""
        if switches.tracers and switches.is_tracing():
            return None
        if switches.interceptor is not None and not warmup:
            return switches.interceptor(self, args, kwargs, grid)
        passed = self._passed(args, kwargs)
        if passed:
            return self._run_given(passed, args, kwargs, grid, warmup)
        if self.is_off and self.tuning.stock is not None:
            return self.tuning.stock.run(*args, grid=grid, warmup=warmup, **kwargs)
        served = self._quick_answer(args, kwargs)
        switches.count(self.name, served.kind)
        return self._launch(served, args, {**kwargs, **served.options}, grid, warmup)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> list[Any]:
        """Compile what a launch would run; a list of one, as an Autotuner gives a list."""
        mocked = [MockTensor.wrap_dtype(arg) for arg in args]
        return [self.run(*mocked, grid=grid, warmup=True, **kwargs)]

    def choices(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[dict[str, Value]]:
        """What a launch with these arguments would run, the first that can; nothing is counted."""
        return [self._passed(args, kwargs) or dict(self._answer(self.bind(args, kwargs)).config)]

    def hook_of(self, config: Mapping[str, Value]) -> Callable[[dict[str, Any]], object] | None:
        """The `pre_hook` that belongs to *config*, to be called with every argument by name."""
        if why := self.tuning.no_hook(config):
            what = f"`{self.contract.function.short}` has no pre_hook for this config: {why}"
            raise KernelError(what, where=call_site())
        hook: Callable[[dict[str, Any]], object] | None = self._live(config).pre_hook
        return hook

    def _live(self, config: Mapping[str, Value]) -> TritonConfig:
        """Always the same Config for equal values: Dynamo guards on which one it saw."""
        at = Config.of(config)
        return self._lives.get(at) or self._lives.setdefault(at, self.tuning.live(config))

    def _as_served(self, kind: str, config: Mapping[str, Value]) -> Served:
        return Served(kind, config, self._live(config))

    def _run_given(
        self,
        passed: dict[str, Value],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        warmup: bool,  # noqa: FBT001  # as Triton's own run
    ) -> Any:
        """Launch with the config that the caller passes; counted, unless `config()` gave it."""
        at = tuple(passed.items())
        if at not in self._from_config:
            switches.count(self.name, "given")
        served = self._given.get(at)
        if served is None:
            self.hook_of(passed)
            if len(self._given) >= MEMO_LIMIT:
                self._given.clear()
            served = self._given[at] = self._as_served("given", passed)
        if None in passed.values():  # "not said", which not every backend can be told
            kwargs = {n: v for n, v in kwargs.items() if v is not None or n not in LAUNCH_OPTIONS}
        return self._launch(served, args, kwargs, grid, warmup)

    def _launch(
        self,
        served: Served,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        warmup: bool,  # noqa: FBT001
    ) -> Any:
        live = self.best_config = served.live
        if live.pre_hook is not None and not warmup:
            live.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        if warmup:
            return self.fn.run(*args, grid=grid, warmup=True, **kwargs)
        return self._launcher.launch(args, kwargs, grid)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, the signature's defaults included."""
        return {**self._defaults, **dict(zip(self.arg_names, args, strict=False)), **kwargs}

    def refusal(self, config: Config) -> str:
        """Why this kernel cannot run *config*; empty when it can."""
        names = set(config)
        strange = names - {*self.tunables} - LAUNCH_OPTIONS
        missing = {*self.tunables} - names
        if missing or strange:
            return f"its config has {', '.join(config)}; the kernel has {', '.join(self.tunables)}"
        for name, value in config.values:
            like = self.default.get(name)
            # `None` is "not said", and stands for any type.
            if None not in (value, like) and type(value) is not type(like):
                return f"its {name} is {value!r}, where the kernel's is {like!r}"
        return self.tuning.no_hook(config.as_dict())

    def check_config(self, config: Mapping[str, Value], where: str) -> None:
        """A whole config of this kernel, or a KernelError."""
        contracts.check_whole(self.contract, config, where)
        if why := self.refusal(Config.of(config)):
            raise KernelError(why, where=where)

    def _quick_answer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Served:
        """What `_answer` said to these arguments before, where they are of the usual kind."""
        quick = self._quick(args)
        if quick is None or self.forced_config is not None:
            return self._answer(self.bind(args, kwargs))
        at = (silicon.current(), quick)
        try:
            served = self._quick_memo.get(at)
        except TypeError:  # a key argument that has no hash
            return self._answer(self.bind(args, kwargs))
        if served is None:
            served = self._answer(self.bind(args, kwargs))
            if len(self._quick_memo) >= MEMO_LIMIT:
                self._quick_memo.clear()
            if served.kind != "forced":  # by another thread, since it was asked above
                self._quick_memo[at] = served
        return served

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
            self._memo.clear()
            self.cache.clear()
            self._lives.clear()
        self._memo[at] = served
        self.cache[(self.key_of(bound),)] = served.live
        return served

    def _for_inductor(self, bound: dict[str, Any]) -> TritonConfig | None:
        served = self._answer(bound)
        if served.kind == "forced":
            raise inductor.forced(self.contract)
        switches.count(self.name, served.kind)
        return served.live

    def _look_up(self, place: tuple[object, int], bound: Mapping[str, Any]) -> Served:
        device = silicon.identity(place)
        if self._file is None or device is None:
            return self._default
        self._file.announce(device)
        asked = lookup.Asked(
            kernel=self.name,
            key=tuple(keys.parts(self.contract, bound)),
            near=self.near,
            otherwise=self.otherwise,
            values={
                **{name: getattr(device, name) for name in _FACTS},
                **{name: bound[name] for name in self.contract.scalars},
            },
        )
        found = lookup.find(self._file, device, asked, self.refusal)
        if found.config is not None:
            return self._as_served(found.kind, found.config.as_dict())
        if not keys.is_empty(self.contract, bound):
            misses.report(self._file, device, asked, found.why)
        return self._default

    def _passed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        """The config that the caller passes, empty when it passes no part of one."""
        found: dict[str, Value] = {}
        if len(args) <= self._plain_args and self._tunable.isdisjoint(kwargs):
            return found
        for name in self.tunables:
            if name in kwargs:
                found[name] = kwargs[name]
            elif self._positions.get(name, len(args)) < len(args):
                found[name] = args[self._positions[name]]
        if not found:
            return found
        if len(found) != len(self.tunables):
            raise contracts.incomplete(self.contract, found)
        for name in kwargs.keys() & LAUNCH_OPTIONS - found.keys():
            found[name] = kwargs[name]
        return found

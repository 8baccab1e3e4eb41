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

from tritune import inductor, keys, lookup, misses, silicon, switches
from tritune.contract import Contract, call_site
from tritune.errors import KernelError
from tritune.model import LAUNCH_OPTIONS, Config, Value
from tritune.tuned import Tuning

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

    def __init__(self, tuning: Tuning, contract: Contract, lockfile: Path) -> None:
        self._defaults = dict(contract.function.defaults)
        prune = inductor.pruner(
            self._for_inductor, contract.scalars, contract.tensors, self._defaults
        )
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
        self._memo: dict[tuple[object, ...], tuple[str, dict[str, Value]]] = {}
        self._lives: dict[Config, TritonConfig] = {}
        self.best_config = self._live(self.default)
        self._from_config: set[Config] = set()
        self._file = None if self.is_off else lookup.lockfile(lockfile)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def key_of(self, bound: Mapping[str, object]) -> str:
        """The key of a call, given its arguments by name."""
        return keys.text(self.contract, {**self._defaults, **bound})

    def config(self, **named: object) -> dict[str, Value]:
        """The config a launch with these arguments runs; pass it on to the launch as `**cfg`."""
        accepted = {*self.contract.scalars, *self.contract.tensors}
        self._check_named(named, accepted)
        kind, config = self._answer({**self._defaults, **named})
        switches.count(self.name, kind)
        if len(self._from_config) >= MEMO_LIMIT:
            self._from_config.clear()
        self._from_config.add(Config.of(config))
        return dict(config)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch with the config that was passed, or else with the one that is locked."""
        if switches.interceptor is not None and not warmup:
            return switches.interceptor(self, args, kwargs, grid)
        if self.is_off and self.tuning.stock is not None and not self._passed(args, kwargs):
            return self.tuning.stock.run(*args, grid=grid, warmup=warmup, **kwargs)
        kind, config = self._served(args, kwargs)
        if kind:
            switches.count(self.name, kind)
        return self._launch(config, args, kwargs, grid=grid, warmup=warmup)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> list[Any]:
        """Compile what a launch would run; a list of one, as an Autotuner gives a list."""
        mocked = [MockTensor.wrap_dtype(arg) for arg in args]
        return [self.run(*mocked, grid=grid, warmup=True, **kwargs)]

    def serve(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        """The config that a launch with these arguments would run; nothing is counted."""
        return dict(self._served(args, kwargs)[1])

    def hook_of(self, config: Mapping[str, Value]) -> Callable[[dict[str, Any]], object] | None:
        """The `pre_hook` that belongs to *config*, to be called with every argument by name."""
        if why := self.tuning.no_hook(config):
            raise KernelError(
                f"`{self.contract.function.short}` has no pre_hook for this config: {why}",
                where=call_site(),
            )
        hook: Callable[[dict[str, Any]], object] | None = self._live(config).pre_hook
        return hook

    def _live(self, config: Mapping[str, Value]) -> TritonConfig:
        """Always the same Config for equal values: Dynamo guards on which one it saw."""
        at = Config.of(config)
        if at not in self._lives:
            self._lives[at] = self.tuning.live(config)
        return self._lives[at]

    def _served(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[str, dict[str, Value]]:
        """How a launch comes by its config (empty where `config()` counted it), and the config."""
        passed = self._passed(args, kwargs)
        if passed:
            return "" if Config.of(passed) in self._from_config else "given", passed
        return self._answer(self.bind(args, kwargs))

    def _launch(
        self,
        config: Mapping[str, Value],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        grid: Any,
        warmup: bool,
    ) -> Any:
        live = self._live(config)
        self.best_config = live
        chosen = {name: value for name, value in config.items() if value is not None}
        if getattr(live, "ir_override", None) is not None:
            chosen["ir_override"] = live.ir_override
        named = {**kwargs, **chosen}
        if not warmup and (hook := self.hook_of(config)) is not None:
            hook({**dict(zip(self.arg_names, args, strict=False)), **named})
        for name in chosen:  # what the caller passes by position stays there
            if self._positions.get(name, len(args)) < len(args):
                del named[name]
        return self.fn.run(*args, grid=grid, warmup=warmup, **named)

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
        missing = [name for name in self.tunables if name not in config]
        if missing:
            what = f"a config of `{self.contract.function.short}` needs {_listed(missing)} too"
            raise KernelError(what, where=where, hint=f"it has {', '.join(self.tunables)}")
        if why := self.refusal(Config.of(config)):
            raise KernelError(why, where=where)

    def _answer(self, bound: Mapping[str, Any]) -> tuple[str, dict[str, Value]]:
        if self.forced_config is not None:
            return "forced", self.forced_config
        if self._file is None:
            return "default", self.default
        self._check_bound(bound)
        place = silicon.current()
        at: tuple[object, ...] = (*place, keys.memo(self.contract, bound))
        try:
            answer = self._memo.get(at)
        except TypeError:  # an argument that has no hash; its text has, or it is refused
            at = (*place, self.key_of(bound))
            answer = self._memo.get(at)
        if answer is None:
            answer = self._look_up(place, bound)
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
                self.cache.clear()
                self._lives.clear()
            self._memo[at] = answer
            self.cache[(self.key_of(bound),)] = self._live(answer[1])
        return answer

    def _for_inductor(self, bound: dict[str, Any]) -> TritonConfig:
        kind, config = self._answer(bound)
        switches.count(self.name, kind)
        return self._live(config)

    def _look_up(
        self, place: tuple[object, int], bound: Mapping[str, Any]
    ) -> tuple[str, dict[str, Value]]:
        device = silicon.identity(place)
        if self._file is None or device is None:
            return "default", self.default
        self._file.announce(device)
        asked = lookup.Asked(
            kernel=self.name,
            key=tuple(keys.parts(self.contract, bound)),
            near=self.near,
            values={
                **{name: getattr(device, name) for name in _FACTS},
                **{name: bound[name] for name in self.contract.scalars},
            },
        )
        found = lookup.find(self._file, device, asked, self.refusal)
        if found.config is not None:
            return found.kind, found.config.as_dict()
        if not self._is_empty(bound):
            misses.report(self._file, device, asked, found.why)
        return "default", self.default

    def _is_empty(self, bound: Mapping[str, Any]) -> bool:
        """An empty problem (no tokens on this rank) is nothing that a sweep could lock."""
        sizes = [bound[name] for name in self.key_names]
        tensors = [bound[name] for name in self.contract.tensors]
        none = any(size == 0 for size in sizes if isinstance(size, int))
        return none and any(0 in (getattr(tensor, "shape", None) or ()) for tensor in tensors)

    def _passed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        """The config that the caller passes, empty when it passes no part of one."""
        found: dict[str, Value] = {}
        for name in self.tunables:
            if name in kwargs:
                found[name] = kwargs[name]
            elif self._positions.get(name, len(args)) < len(args):
                found[name] = args[self._positions[name]]
        if not found:
            return found
        self._check_partial(found)
        found.update({name: kwargs[name] for name in LAUNCH_OPTIONS & kwargs.keys()})
        return found

    def _check_partial(self, found: Mapping[str, Value]) -> None:
        missing = [name for name in self.tunables if name not in found]
        if missing:
            raise KernelError(
                f"a launch of `{self.contract.function.short}` passes {_listed(found)} "
                f"but not {_listed(missing)}",
                where=call_site(),
                hint="pass the whole of `kernel.config(...)`, or none of it",
            )

    def _check_bound(self, bound: Mapping[str, Any]) -> None:
        for name in (*self.contract.scalars, *self.contract.tensors):
            if name not in bound:
                what = f"a launch of `{self.contract.function.short}` lacks `{name}`"
                raise KernelError(what, where=call_site())

    def _check_named(self, named: Mapping[str, object], accepted: set[str]) -> None:
        short = self.contract.function.short
        strange = [name for name in named if name not in accepted]
        missing = [
            n for n in self.arg_names if n in accepted and n not in {**self._defaults, **named}
        ]
        if strange:
            what = f"`{short}.config()` does not take {_listed(strange)}"
            hint = f"it takes {', '.join(n for n in self.arg_names if n in accepted)}"
            raise KernelError(what, where=call_site(), hint=hint)
        if missing:
            what = f"`{short}.config()` needs {_listed(missing)} too"
            hint = "" if self.like is not None else "name the tensors of the key with like=[...]"
            raise KernelError(what, where=call_site(), hint=hint)


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)

"""tuned: what stands under `@tritune.kernel` -> `Tuning`: its configs, the live one of each.

A `pre_hook` is code, and a lockfile can hold only its name: it belongs to the kernel's own list
of configs, and a locked config is matched back to it. What is for tuning only (`reset_to_zero`,
`restore_value`) is kept for a sweep and never run in production; the autotuner's own hooks and
its pruning never run at all, except that the prune function of a kernel that nobody decorated
says what a launch may run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from triton.runtime.autotuner import Autotuner
from triton.runtime.autotuner import Config as TritonConfig

from tritune import hooks
from tritune.contract import Contract, Function, incomplete, layers, rare
from tritune.errors import KernelError
from tritune.model import FIELDS, LAUNCH_OPTIONS, RARE, USUAL, Config, Value
from tritune.words import an, mistyped

decorated: WeakSet[Any] = WeakSet()
"""The functions below `@tritune.kernel`."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What a kernel is tuned over, as its decorators say."""

    fn: Any
    """What runs: the jit function, with its heuristics."""
    default: Mapping[str, Value]
    configs: tuple[TritonConfig, ...]
    values: tuple[Mapping[str, Value], ...]
    """The configs as plain values, in the same order."""
    key: tuple[str, ...] = ()
    reset_to_zero: tuple[str, ...] = ()
    restore_value: tuple[str, ...] = ()
    stock: Any = None
    """The autotuner itself, for `TRITUNE=off`."""

    @property
    def untold(self) -> Mapping[str, Value]:
        """What Triton's autotuner passes beside the values of a config: only heuristics can tell.

        Every launch through it has a `num_ctas`.
        """
        has_heuristics = self.stock is not None and hasattr(self.fn, "values")
        return {"num_ctas": RARE["num_ctas"]} if has_heuristics else {}

    @property
    def has_one_hook(self) -> bool:
        """Whether all its configs have the same one, or none, which any other config gets too."""
        return len({id(live.pre_hook) for live in self.configs}) == 1

    def live(self, config: Mapping[str, Value]) -> TritonConfig:
        """The kernel's own Config of these values, or a new one with the hook all share.

        A launch option that the kernel's own does not say is put on a copy of it.
        """
        for live, values in zip(self.configs, self.values, strict=True):
            if values.items() <= config.items():
                extra = {n: v for n, v in config.items() if n not in values and _says(n, v)}
                return _extended(live, extra) if extra else live
        return to_triton(config, self.configs[0].pre_hook if self.has_one_hook else None)

    def no_hook(self, config: Mapping[str, Value]) -> str:
        """Why no hook can be given to *config*; empty when its hook is known."""
        if self.has_one_hook or any(v.items() <= config.items() for v in self.values):
            return ""
        return "it is none of the kernel's own configs, and their pre_hooks differ"

    def refusal(self, config: Config, hook: str = "") -> str:
        """Why the kernel cannot run *config*, which was locked with *hook*; empty when it can."""
        names = set(config)
        strange = names - {*self.default} - LAUNCH_OPTIONS
        missing = {*self.default} - names
        if missing or strange:
            return f"its config has {', '.join(config)}; the kernel has {', '.join(self.default)}"
        for name, value in config.values:
            like = self.default.get(name)
            # `None` is "not said", and stands for any type.
            if None not in (value, like) and type(value) is not type(like):
                return f"its {name} is {mistyped(value, like)}"
        if (why := self.no_hook(config.as_dict())) or not hook:
            return why
        return hooks.gone(hook, hooks.name(self.live(config.as_dict()).pre_hook))


class Served:
    """The config of a launch, ready to run."""

    __slots__ = ("config", "count", "kind", "live", "options", "untold")

    def __init__(
        self,
        kernel: str,
        kind: str,
        config: Mapping[str, Value],
        live: TritonConfig,
        untold: Mapping[str, Value],
    ) -> None:
        self.kind, self.config, self.live = kind, config, live
        self.count: tuple[str, str] | None = (kernel, kind)
        """As what a launch is counted; None where `config()` has counted it."""
        self.untold = untold
        options: dict[str, Any] = dict(untold)
        options |= {n: value for n, value in config.items() if value is not None}
        if getattr(live, "ir_override", None) is not None:
            options["ir_override"] = live.ir_override
        self.options = options
        """What the launch is passed; None is "not said", which not every backend can be told."""

    def named(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """What a launch that was called with *kwargs* is passed by name."""
        if self.kind != "given":
            return {**kwargs, **self.options}
        if self.untold:
            kwargs = {**self.untold, **kwargs}
        if None not in self.config.values():
            return kwargs
        return {n: v for n, v in kwargs.items() if v is not None or n not in LAUNCH_OPTIONS}


class Passed:
    """The config that a launch passes among its arguments, empty when it passes no part of one."""

    def __init__(self, contract: Contract, names: Sequence[str]) -> None:
        self._contract = contract
        self._places = {name: names.index(name) for name in contract.tunables if name in names}
        self._tunable = frozenset(contract.tunables)
        self._first = min(self._places.values(), default=len(names))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        if len(args) <= self._first and self._tunable.isdisjoint(kwargs):
            return found
        for name in self._contract.tunables:
            if name in kwargs:
                found[name] = kwargs[name]
            elif self._places.get(name, len(args)) < len(args):
                found[name] = args[self._places[name]]
        if not found:
            return found
        if len(found) != len(self._contract.tunables):
            raise incomplete(self._contract, found)
        for name in kwargs.keys() & LAUNCH_OPTIONS - found.keys():
            found[name] = kwargs[name]
        return found


class PassedToAny(Passed):
    """What the caller passes of a config, all of it or not: that is Triton's to refuse."""

    def __init__(self, contract: Contract, names: Sequence[str]) -> None:
        super().__init__(contract, names)
        self._names = tuple(names)
        # Triton passes `num_ctas` whatever its configs say.
        self._told = dict.fromkeys((*contract.tunables, "num_ctas"))

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Value]:
        by_position = self._names[: len(args)]
        named = {**dict(zip(by_position, args, strict=False)), **kwargs}
        return {name: named[name] for name in self._told if name in named}


def of_jit(fn: Any, default: Mapping[str, Value]) -> Tuning:
    """A kernel under plain `@triton.jit`: its default is its only config."""
    values = dict(default)
    return Tuning(fn=fn, default=values, configs=(to_triton(values),), values=(values,))


def of_autotuned(stock: Any, default: Mapping[str, Value] | None, function: Function) -> Tuning:
    """A kernel under `@triton.autotune`: its configs, key, hooks and prune function."""
    names = _names(stock.configs)
    values = tuple(_values(live, names) for live in stock.configs)
    _check_same_names(stock.configs, function)
    return Tuning(
        fn=stock.fn,
        default=dict(default or values[0]),
        configs=tuple(stock.configs),
        values=values,
        key=tuple(stock.keys or ()),
        reset_to_zero=tuple(stock.reset_to_zero),
        restore_value=tuple(stock.restore_value),
        stock=stock,
    )


def of_foreign(
    stock: Any, function: Function, listed: Iterable[TritonConfig] | None = None
) -> Tuning:
    """A kernel of somebody else's: its configs may say different names; None is "not said".

    They are copied, because a prune function may change the kernel's own in place; *listed* is
    what that has made of the list.
    """
    configs = tuple(map(copied, stock.configs if listed is None else listed))
    extra = dict.fromkeys(name for live in configs for name in live.kwargs if name not in USUAL)
    names = (*extra, *USUAL, *(name for name in rare(configs) if name not in extra))
    values = tuple(_values(live, names) for live in configs)
    for config in values:
        _check_plain(config, function)
    return Tuning(
        fn=stock.fn,
        default=dict(values[0]),
        configs=configs,
        values=values,
        key=tuple(stock.keys or ()),
        reset_to_zero=tuple(stock.reset_to_zero or ()),
        restore_value=tuple(stock.restore_value or ()),
        stock=stock,
    )


def values_of(live: TritonConfig, names: Iterable[str]) -> dict[str, Value]:
    """A live Config as plain values."""
    return _values(live, tuple(names))


def copied(live: TritonConfig) -> TritonConfig:
    """The same config with its hook; a change of one is no change of the other."""
    made = copy.copy(live)
    made.kwargs = dict(live.kwargs)
    return made


def autotuner_of(decorated: object, function: Function) -> Any:
    """The autotuner at the top of *decorated*; None where there is none."""
    if isinstance(decorated, Autotuner):
        return decorated
    if any(isinstance(layer, Autotuner) for layer in layers(decorated)):
        raise KernelError(
            f"`{function.short}` has a decorator between @tritune.kernel and @triton.autotune",
            where=function.where,
            hint="put @triton.heuristics below @triton.autotune",
        )
    return None


def to_triton(
    config: Mapping[str, Value], pre_hook: Callable[..., Any] | None = None
) -> TritonConfig:
    """A Config of Triton's; launch options that it has no field for go among its kwargs."""
    options = {name: value for name, value in config.items() if name in FIELDS}
    kwargs = {name: value for name, value in config.items() if name not in FIELDS}
    return TritonConfig(kwargs, **options, pre_hook=pre_hook)


def _says(name: str, value: Value) -> bool:
    return value is not None and value != RARE.get(name)


def _extended(live: TritonConfig, extra: Mapping[str, Value]) -> TritonConfig:
    made = copy.copy(live)  # with its hook, and whatever else its author gave it
    made.kwargs = {**live.kwargs, **{n: v for n, v in extra.items() if n not in FIELDS}}
    for name in extra.keys() & FIELDS.keys():
        setattr(made, name, extra[name])
    return made


def _names(configs: list[TritonConfig]) -> tuple[str, ...]:
    extra = [name for name in configs[0].kwargs if name not in USUAL]
    return (*extra, *USUAL, *rare(configs))


def _values(live: TritonConfig, names: tuple[str, ...]) -> dict[str, Value]:
    return {
        name: live.kwargs[name] if name in live.kwargs else getattr(live, name, None)
        for name in names
    }


def _check_plain(config: Mapping[str, Value], function: Function) -> None:
    for name, value in config.items():
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise KernelError(
                f"{name} of a config of `{function.short}` is {an(type(value).__name__)}, "
                "which no lockfile can hold",
                where=function.where,
            )


def _check_same_names(configs: list[TritonConfig], function: Function) -> None:
    for live in configs[1:]:
        odd = set(live.kwargs) ^ set(configs[0].kwargs)
        if odd - LAUNCH_OPTIONS:
            raise KernelError(
                f"the configs of `{function.short}` do not all set {', '.join(sorted(odd))}",
                where=function.where,
                hint="give every Config the same names",
            )

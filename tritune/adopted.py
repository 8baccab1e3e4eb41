"""adopted: a kernel that nobody decorated -> one that runs what is locked, and else as before.

A miss does what the kernel would have done without tritune: it goes to its own autotuner.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from triton.runtime.autotuner import Config as TritonConfig

from tritune import hooks, keys, lookup, routing, silicon, switches, tuned, undecorated
from tritune.contract import Contract
from tritune.dispatch import MEMO_LIMIT, Kernel
from tritune.errors import KernelError
from tritune.launcher import Call
from tritune.model import Config, DeviceIdentity, Value
from tritune.pruning import Pruning
from tritune.tuned import PassedToAny, Served, Tuning

_learning = threading.RLock()
_announced: set[tuple[Path, str]] = set()


class Adopted(Kernel):
    """Stands behind a `triton.autotune` of somebody else's, whose source is as it was."""

    otherwise = "Triton autotunes it"

    def __init__(self, tuning: Tuning, contract: Contract, lockfile: Path) -> None:
        self.stock = tuning.stock
        super().__init__(tuning, contract, lockfile)
        self._is_stock = False  # turned off since the install, it is as where nothing is locked
        self._passed = PassedToAny(contract, self.arg_names)
        told = (*undecorated.ignored(contract, tuning.key), *undecorated.unrun(self.stock))
        self.notes: dict[str, None] = dict.fromkeys(told)
        """What a reader should know of it, in order, each once."""
        self._pruning = Pruning(self.stock, self.arg_names, self.notes)
        self._made: list[TritonConfig] = []
        """Configs that its prune function made, and that its list does not have."""
        self._pruned: dict[tuple[object, ...], str] = {}
        """A key that its prune function was asked of -> what it raised; empty where nothing."""
        self._waits = self._pruning.is_there and self._has_unknown()

    def _decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any) -> Served | None:
        """The config that is locked; None where the launch is Triton's own."""
        served = None if self._passed(args, kwargs) else self._served(args, kwargs, grid)
        return None if served is None or served.kind == "default" else served

    def _as_without(self, call: Call, grid: Any, warmup: bool) -> Any:  # noqa: FBT001
        switches.count((self.name, "default"))
        with routing.let_through(self.stock):
            return self.stock.run(*call[0], grid=grid, warmup=warmup, **call[1])

    @property
    def makes_configs(self) -> bool:
        """Whether its prune function may run what its list has not: that is known at a launch."""
        return self._pruning.is_there

    @property
    def best_config(self) -> TritonConfig:
        """Libraries read it after a launch, and size or launch other kernels by it."""
        return self.stock.best_config

    @best_config.setter
    def best_config(self, live: TritonConfig) -> None:
        self.stock.best_config = live

    def mark(self, config: Mapping[str, Value]) -> None:
        """Say that *config* is what a launch ran, for libraries that ask."""
        self.best_config = self.live(config)

    def choices(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any = None
    ) -> list[dict[str, Value]]:
        """What is locked; else what its author would try, in that order."""
        # This may bring up what its key has to be told of.
        admitted = self.admitted(args, kwargs, grid)
        served = self._served(args, kwargs, grid)
        if served is not None and served.kind != "default":
            return [dict(served.config)]
        return admitted

    def admitted(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any = None
    ) -> list[dict[str, Value]]:
        """Those of its own configs that its author's prune function leaves for a launch.

        The function gets the caller's split of arguments and a copy of the list, which it may
        change as it likes. Where it fails, as those that ask a GPU do without one, all are left.
        """
        kept, _ = self._pruning.kept(args, kwargs, grid)
        if kept is None:
            return [dict(values) for values in self.tuning.values]
        self._learn(kept)
        return [tuned.values_of(live, self.tunables) for live in kept]

    def foreseen(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any = None
    ) -> list[dict[str, Value]] | None:
        """What its author's performance model leaves of these; None where it leaves out none.

        It says what may be fast, not what is right, so it limits only what a sweep begins with.
        """
        left = self._pruning.foreseen(args, kwargs, grid) or []
        return [tuned.values_of(live, self.tunables) for live in left] or None

    def stock_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """What Triton's tuner would cache its winner under; empty where it asks no cache.

        That is its author's arguments, and the dtypes of whatever has one: no descriptor has.
        """
        if len(self.stock.configs) < 2 or not routing.ends_in_tritons(type(self.stock)):
            return ""
        named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        named = {name: value for name, value in named.items() if name in self.arg_names}
        own = {name: named[name] for name in self.stock.keys if name in named}
        if held := [name for name, value in own.items() if keys.is_tensor(value)]:
            what = f"its key holds the tensor `{held[0]}`, so Triton tunes anew for each new tensor"
            self.notes[what] = None
            return ""
        dtypes = [keys.dtype_name(v.dtype) for v in named.values() if hasattr(v, "dtype")]
        return " ".join([*(f"{name}={value}" for name, value in own.items()), *dtypes])

    def admits(
        self,
        config: Mapping[str, Value],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        grid: Any = None,
    ) -> bool:
        """A config beyond its own list is for who extends it to answer for."""
        admitted = self.admitted(args, kwargs, grid)
        is_beyond = config not in self.tuning.values and not self._made
        return is_beyond or config in admitted

    def _learn(self, kept: list[TritonConfig]) -> None:
        """Count configs that its prune function has made among its own, with their hooks."""
        with _learning:
            self._learn_alone(kept)

    def _learn_alone(self, kept: list[TritonConfig]) -> None:
        new = [tuned.copied(live) for live in kept if not self._knows(live)]
        if not new:
            return
        listed, notes, forced = list(self.tuning.configs), self.notes, self.forced_config
        made = list(self._made)
        for live in new:
            same = [at for at, own in enumerate(listed) if own.all_kwargs() == live.all_kwargs()]
            if same:  # it has given it a hook, or another one
                listed[same[0]] = live
            else:
                listed.append(live)
                made.append(live)
        function = self.contract.function
        tuning = tuned.of_foreign(self.stock, function, listed)
        contract = undecorated.contract(function, tuning.default, tuning.key)
        # The same kernel with more configs: whoever holds it must see them, and who launches it
        # meanwhile must see all of the old one or all of the new one.
        more = Adopted(tuning, contract, self.lockfile)
        more.notes.update(notes)
        more._made, more.forced_config = made, forced
        self.__dict__.update(vars(more))

    def _knows(self, made: TritonConfig) -> bool:
        """Whether its list has a config, with the hook that its prune function gives it."""
        values, hook = made.all_kwargs(), made.pre_hook
        own = [live.pre_hook for live in self.tuning.configs if live.all_kwargs() == values]
        return any(one is hook or hooks.name(one) == hooks.name(hook) for one in own)

    def _ask_once(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> None:
        """Let the prune function make its configs for a key that is new."""
        at = self._asked_at(self.bind(args, kwargs))
        if at in self._pruned:
            return
        if len(self._pruned) >= MEMO_LIMIT:
            self._pruned.clear()
        kept, failure = self._pruning.kept(args, kwargs, grid)
        if kept:
            self._learn(kept)
        self._pruned[at] = failure

    def _asked_at(self, bound: Mapping[str, Any]) -> tuple[object, ...]:
        unset = dict.fromkeys(self.contract.scalars)  # what only a config that it makes will set
        return keys.memo(self.contract, {**unset, **bound})

    def _has_unknown(self) -> bool:
        """Whether something is locked that its prune function has to make first."""
        if self._file is None:
            return False
        section = self._file.section(self.name)
        if section and self._file.evidence(self.name).has_hooks:
            return True  # it may be what gives a config of the list its hook
        configs = [dict(config) for held in section.values() for config in held.values()]
        own = [dict(values) for values in self.tuning.values]
        return any(config not in own for config in configs)

    def check_config(self, config: Mapping[str, Value], where: str) -> None:
        """Any may be tried: what its prune function makes is known at a launch only."""

    def _refusing(self, bound: Mapping[str, Any]) -> lookup.Refusal:
        refusal = super()._refusing(bound)
        failure = self._pruned.get(self._asked_at(bound), "") if self._waits else ""
        if not failure:
            return refusal

        def refused(config: Config, hook: str) -> str:
            why = refusal(config, hook)
            if why or self._is_own(config.as_dict()):
                return why
            return (
                "its config is not in its author's list, and the early_config_prune that may make "
                f"it fails ({failure})"
            )

        return refused

    def _is_own(self, config: Mapping[str, Value]) -> bool:
        return any(own.items() <= config.items() for own in self.tuning.values)

    def _served(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Served | None:
        try:
            if self._waits:
                self._ask_once(args, kwargs, grid)
            return self._answer(self.bind(args, kwargs))
        except KernelError as error:  # an argument that is missing, or that no key can hold
            if error.what not in self.notes:
                self.notes[error.what] = None
                lookup.logger.warning("%s: %s, so %s", self.name, error.what, self.otherwise)
            return None

    def _look_up(self, place: tuple[object, int], bound: Mapping[str, Any]) -> Served:
        served = super()._look_up(place, bound)
        device = silicon.identity(place)
        if served.kind != "default" and device is not None:
            self._announce(device)
            self._say_beyond(served.config)
        return served

    def _say_beyond(self, config: Mapping[str, Value]) -> None:
        """Say once what a sweep file alone can vouch for, as its author may have dropped it."""
        if self._is_own(config) or (self.lockfile, self.name) in _announced:
            return
        _announced.add((self.lockfile, self.name))
        lookup.logger.info(
            "%s: %s is locked, and is not in its author's list: `space:` of its sweep file has to "
            "have it",
            self.name,
            Config.of(config),
        )

    def _announce(self, device: DeviceIdentity) -> None:
        """Say once a package that it is served, and how many of its kernels the lockfile has."""
        package = self.name.partition(":")[0].partition(".")[0]
        if self._file is None or (self.lockfile, package) in _announced:
            return
        _announced.add((self.lockfile, package))
        label = self._file.label(device) or device.name
        own = [
            name
            for name in self._file.kernels
            if name.partition(":")[0].partition(".")[0] == package
        ]
        count = sum(label in self._file.section(name) for name in own)
        held = "1 kernel" if count == 1 else f"{count} kernels"
        text = "%s: runs what %s says for %s, which has entries of %s"
        lookup.logger.info(text, package, self.lockfile, label, held)

    def _for_inductor(self, bound: dict[str, Any]) -> TritonConfig | None:
        try:
            served = self._answer(bound)
        except KernelError:
            return None
        switches.count((self.name, served.kind))
        return None if served.kind == "default" else served.live

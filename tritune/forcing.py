"""forcing: a kernel and a config that somebody forces on it -> nothing, or a KernelError."""

from __future__ import annotations

from collections.abc import Mapping

from tritune import launchoptions
from tritune.contract import Contract, quoted, suggestion
from tritune.errors import KernelError
from tritune.model import LAUNCH_OPTIONS, Config, Value
from tritune.tuned import Tuning


def check(contract: Contract, tuning: Tuning, config: Mapping[str, Value], where: str) -> None:
    """A whole config of the kernel's."""
    short, known = contract.function.short, (*contract.tunables, *sorted(LAUNCH_OPTIONS))
    if strange := [name for name in config if name not in known]:
        hint = suggestion(strange[0], dict.fromkeys(known))
        raise KernelError(f"a config of `{short}` has no {quoted(strange)}", where=where, hint=hint)
    if missing := [name for name in contract.tunables if name not in config]:
        what = f"a config of `{short}` needs {quoted(missing)} too"
        raise KernelError(what, where=where, hint=f"it has {', '.join(contract.tunables)}")
    if why := tuning.refusal(Config.of(config)):
        what = f"a config does not suit `{short}`: {why}"
        raise KernelError(what, where=where or contract.function.where)


def check_options(contract: Contract, config: Mapping[str, Value], where: str) -> None:
    """Launch options that some launch can have; a sweep rejects the others by itself."""
    for name in (one for one in config if one in LAUNCH_OPTIONS):
        if wrong := _slip(name, config[name]):
            what = f"a config of `{contract.function.short}` cannot launch: {name}: {wrong[0]}"
            raise KernelError(what, where=where, hint=wrong[1])


def _slip(name: str, value: Value) -> tuple[str, str] | None:
    if value is None:  # "not said"
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        return f"expected an integer, got {value!r}", launchoptions.NUMBER
    return launchoptions.slip(name, value)

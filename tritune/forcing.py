"""forcing: a kernel and a config that somebody forces on it -> nothing, or a KernelError."""

from __future__ import annotations

from collections.abc import Mapping

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

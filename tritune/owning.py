"""owning: an autotuner and its name -> whether what is locked under that name is for it."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from triton.runtime.autotuner import Autotuner

from tritune import contract as contracts
from tritune import tuned
from tritune.errors import KernelError

TRACER = "torch._higher_order_ops.triton_kernel_wrap"
"""What makes such autotuners for torch.compile."""
owners: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
"""A name -> the first autotuner that was launched under it."""


def claim(function: contracts.Function, tuner: Any) -> None:
    """Take the name for *tuner*; a copy, as some packages make for each device, shares it.

    Raises:
        KernelError: it is another one's, and what is locked for one kernel is not for another.
    """
    owner = owners.setdefault(function.name, tuner)
    if owner is tuner or (owner.fn is tuner.fn and owner.configs == tuner.configs):
        return
    raise KernelError(
        f"two autotuned kernels are `{function.name}`, and only the first runs what is locked",
        where=function.where,
        hint="what tells kernels apart is the name that their module holds them under: give each "
        "one, as `double = make(2)`, where they come from a function or lie in a dictionary",
    )


def is_traced(function: contracts.Function, tuner: Any) -> bool:
    """Whether torch.compile has made it of a kernel that it traces; then it runs as it is.

    Such a one has what is left of the configs, and grids for these alone. It is asked for the
    configs again: were it served, it would be pruned without end. It has no key, and a list of
    its own; a copy that a package makes for each device shares the list of the first one.
    """
    if tuner.keys or TRACER not in sys.modules:
        return False
    if tuner.base_fn in tuned.decorated:
        return True
    owner = owners.get(function.name) or _at_its_name(function, tuner)
    return (
        owner is not None and owner.base_fn is tuner.base_fn and owner.configs is not tuner.configs
    )


def _at_its_name(function: contracts.Function, tuner: Any) -> Any:
    """The autotuner that its module has under this name; None where there is none."""
    module = sys.modules.get(tuner.base_fn.__module__)
    thing = getattr(module, function.name.rpartition(":")[2], None)
    return next((one for one in contracts.layers(thing) if isinstance(one, Autotuner)), None)

"""undecorated: the signature and the autotuner of a kernel that nobody decorated -> its Contract.

Its source is not ours to correct, so what Triton ignores in it is ignored, and told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tritune.contract import Contract, Function


def contract(function: Function, tunables: Iterable[str], key: Iterable[str]) -> Contract:
    """What identifies a call: more than Triton's own key, which mixes up what needs two configs.

    Besides the arguments of its key these are all constants that are not tuned, and of each
    tensor, or tensor of a descriptor, the dtype, the alignment and which dimension is dense. A
    heuristic may set a tunable anew, as Triton lets it.
    """
    tunables, key = tuple(tunables), tuple(key)
    skipped = {*tunables, *function.computed}
    kept = tuple(name for name in key if name in function.params and name not in skipped)
    skipped |= {*kept}
    return Contract(
        function=function,
        key=kept,
        constants=tuple(name for name in function.constexprs if name not in skipped),
        like=None,
        near=None,
        tunables=tunables,
        layout=True,
    )


def ignored(contract: Contract, key: Iterable[str]) -> Iterator[str]:
    """What its author's key has to no effect, a line each."""
    for name in key:
        if name not in contract.function.params:
            yield f"its key names `{name}`, which is not an argument: Triton ignores it"
        elif name in contract.tunables:
            yield f"its key names `{name}`, which is tunable: it cannot be part of a key"


def unrun(tuner: Any) -> Iterator[str]:
    """What its author gave the tuner itself, for benchmarks alone; a line each."""
    for name in ("pre_hook", "post_hook"):
        if getattr(tuner, f"user_defined_{name}", False):
            yield (
                f"the {name} of its autotuner is for Triton's own benchmarks, and never runs here: "
                "what a launch writes is put back without it"
            )

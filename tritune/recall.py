"""recall: a launch -> where what an equal launch of before came to is remembered, or None.

Two launches are equal where neither the look-up of a config nor Triton's own specialisation
tells them apart. What is compared is at least as fine as both: the names and exact classes of
all that is passed; for a tensor its dtype and whether its pointer is a multiple of 16; for a
number that only Triton specialises on, whether it is 1, whether it is a multiple of 16, and
its width; all else by its value. A launch that passes anything else (a tensor descriptor, a
tuple, another library's number) is never recalled.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import SimpleNamespace
from typing import Any

from triton import knobs
from triton.runtime.driver import driver as drivers

from tritune.contract import Contract
from tritune.keys import LAST, layout

LIMIT = 4096
"""What is remembered of one form of launch; a server that sees endless sizes must not grow."""
FORMS = 256

_TENSORS = frozenset({("torch", "Tensor"), ("torch.nn.parameter", "Parameter")})
"""torch's own classes; torch itself is not imported."""
_VALUES = frozenset({int, float, bool, str, type(None)})
_I32, _I64 = 2**31, 2**63
_PARTS = ("compared", "numbers", "tensors", "classes", "strange")
"""By what the arguments of a launch are told apart; of those in `classes` no more is seen."""
_NO_JIT: Any = SimpleNamespace(debug=None, device_caches=defaultdict(lambda: None))

Slot = tuple[dict[tuple[object, ...], Any], tuple[object, ...]]
"""A dictionary, and the key of a launch in it."""


class Recall:
    """The launches of one kernel; *jit* is None where something else than Triton runs them."""

    def __init__(self, contract: Contract, names: Sequence[str], jit: Any) -> None:
        self._names = tuple(names)
        function = contract.function
        self._plain = frozenset(names) - {*function.constexprs, *function.computed}
        self._key = frozenset(contract.key)
        self._jit = jit or _NO_JIT
        self._layout = contract.layout
        self._places: dict[int, _Place] = {}

    def clear(self) -> None:
        self._places.clear()

    def slot(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], values: tuple[Any, ...]
    ) -> Slot | None:
        """Where a launch is remembered; *values* are all of its arguments, as they were passed."""
        active = drivers._active  # noqa: SLF001  # `active` would look for a driver
        if active is None:
            return None
        jit, device = self._jit, active.get_current_device()
        caches, place = jit.device_caches[device], self._places.get(device)
        if place is None or place.caches is not caches or place.active is not active:
            place = self._places[device] = _Place(active, caches)
        form = (*map(type, values), *kwargs)
        plan = place.plans.get(form) or self._plan(place, form, args, kwargs)
        records = plan.records
        if records is None:
            return None
        found = [plan.compared(values), jit.debug, knobs.runtime.debug]
        for at in plan.numbers:
            n = values[at]
            found.append(n & 15 == 0 if 1 < n < _I32 else None if n == 1 else _number(n))
        for at in plan.tensors:
            tensor = values[at]
            found += (tensor.dtype, tensor.data_ptr() & 15 == 0)
            if self._layout:
                usual = tensor.is_contiguous()
                found.append(LAST if usual else layout(tensor.shape, tensor.stride()))
        return records, tuple(found)

    def _plan(
        self,
        place: _Place,
        form: tuple[object, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Plan:
        names = (*self._names[: len(args)], *kwargs)
        classes = form[: len(args) + len(kwargs)]
        parts: dict[str, list[int]] = {part: [] for part in _PARTS}
        for at, (name, kind) in enumerate(zip_longest(names, classes)):
            parts[self._part(name, kind)].append(at)
        if len(place.plans) >= FORMS:
            place.plans.clear()
        plan = place.plans[form] = _Plan(parts)
        return plan

    def _part(self, name: str | None, kind: Any) -> str:
        is_plain = name in self._plain
        if (kind.__module__, kind.__name__) in _TENSORS and is_plain:
            return "tensors"
        if name is None or kind not in _VALUES:
            return "strange"
        if name in self._key or kind is str or not is_plain:
            return "compared"
        return "numbers" if kind is int else "classes"


def known(slot: Slot | None) -> Any:
    """What is remembered there; None where nothing is."""
    return None if slot is None else slot[0].get(slot[1])


def keep(slot: Slot | None, what: object) -> None:
    if slot is not None:
        if len(slot[0]) >= LIMIT:
            slot[0].clear()
        slot[0][slot[1]] = what


class _Place:
    """A device under a driver, and what was remembered there."""

    __slots__ = ("active", "caches", "plans")

    def __init__(self, active: Any, caches: Any) -> None:
        self.active, self.caches = active, caches
        self.plans: dict[tuple[object, ...], _Plan] = {}


class _Plan:
    """How the launches that pass the same names and classes are told apart."""

    __slots__ = ("compared", "numbers", "records", "tensors")

    def __init__(self, parts: Mapping[str, list[int]]) -> None:
        # A getter of one place gives the value itself, of none it cannot be made.
        places = parts["compared"] or (slice(0),)
        self.compared: Callable[[tuple[Any, ...]], Any] = operator.itemgetter(*places)
        self.numbers, self.tensors = tuple(parts["numbers"]), tuple(parts["tensors"])
        self.records: dict[tuple[object, ...], Any] | None = None if parts["strange"] else {}


def _number(n: int) -> object:
    """What Triton sees of a number that is no usual size."""
    if -_I32 <= n < _I32:
        return n & 15 == 0
    if -_I64 <= n < 2 * _I64:
        return ("u64" if n >= _I64 else "i64", n & 15 == 0)
    return n  # that it is too large

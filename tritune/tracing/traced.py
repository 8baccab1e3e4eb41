"""tracing.traced: a kernel and a launch of it -> the `Launch` that equal ones are counted by.

What is compared is at least as fine as the key that a winner would be locked under, and cheap:
the classes of all that is passed, the values of what is in the key, and of each tensor the
dtype, the alignment and, where it is not contiguous, the strides. `recall` is finer in what
Triton specialises on, which makes no other key, and does not see strides, which do.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tritune import adopt, keys, tuned, undecorated
from tritune import contract as contracts
from tritune.adopted import Adopted
from tritune.contract import Contract, Function
from tritune.dispatch import Kernel
from tritune.tracing import facts

FORMS = 256
"""Ways to pass the arguments that are remembered a kernel."""
KEYS = 4096
"""Keys of a kernel that are told apart; the launches under further ones are counted as one."""
OTHERS = None
"""Their key."""
_TENSORS = frozenset({("torch", "Tensor"), ("torch.nn.parameter", "Parameter")})
_PLAIN = frozenset({int, float, bool, str, type(None)})
_PARTS = ("compared", "tensors", "rest", "strange")
"""What is done with an argument; a launch with a strange one is looked up by its whole key."""


class Launch:
    """Equal launches, counted."""

    __slots__ = ("arriving", "captured", "count", "counter", "due", "fact", "timed", "us")

    def __init__(self, fact: dict[str, Any]) -> None:
        self.fact = fact
        self.counter = itertools.count(1)
        """A count of its own would lose launches between threads."""
        self.count = self.due = 0
        self.timed, self.us, self.captured = 0, 0.0, False
        self.arriving: facts.Arriving | None = None

    def told(self, us: float) -> None:
        """One launch of them took so long on the GPU."""
        self.timed += 1
        self.us += us


class Traced:
    """One kernel, as its launches are told apart."""

    def __init__(self, launched: Any) -> None:
        self.tuner = getattr(launched, "stock", launched) if _is_adopted(launched) else launched
        self.contract, self.configs, self.kind = _known(launched)
        self.name = self.contract.function.name
        self._names = tuple(launched.arg_names)
        self._defaults = dict(self.contract.function.defaults)
        self._forms: dict[tuple[object, ...], _Form] = {}
        self.launches: dict[str | None, Launch] = {}

    def described(self) -> dict[str, Any]:
        """What there is to know of it before any launch."""
        function = self.contract.function
        attribute, hops = _held(self.tuner)
        return {
            "kernel": self.name,
            "kind": self.kind,
            "file": function.file,
            "line": function.line,
            "attribute": attribute,
            "hops": hops,
            "params": list(function.params),
            "configs": len(self.configs),
            "problem": _parameters(getattr(self.tuner, "problem", None)),
        }

    def seen(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Launch, dict[str, Any] | None]:
        """The launches that this one is among; and its facts, if it is the first of them."""
        values = (*args, *kwargs.values())
        form = (*map(type, values), *kwargs)
        plan = self._forms.get(form) or self._form(form, args, kwargs)
        if plan.is_strange:
            return self._first(args, kwargs)
        compared, pointers = [plan.compared(values)], 0
        for at in plan.tensors:
            tensor = values[at]
            pointers |= tensor.data_ptr()
            compared += (tensor.dtype, tensor.is_contiguous() or tensor.stride())
        if pointers & 15:
            compared += [values[at].data_ptr() & 15 for at in plan.tensors]
        known = tuple(compared)
        launch = plan.launches.get(known)
        if launch is not None:
            return launch, None
        launch, fact = self._first(args, kwargs)
        if len(plan.launches) >= KEYS:
            plan.launches.clear()
        plan.launches[known] = launch
        return launch, fact

    def forget(self) -> None:
        """All launches of a parent, in its fork."""
        self._forms.clear()
        self.launches.clear()

    def _form(
        self, form: tuple[object, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> _Form:
        names = (*self._names[: len(args)], *kwargs)
        wanted = {*self.contract.scalars, *self.contract.tensors}
        parts: dict[str, list[int]] = {part: [] for part in _PARTS}
        for at, name in enumerate(names):
            parts[_part(name in wanted, name in self.contract.scalars, form[at])].append(at)
        if len(self._forms) >= FORMS:
            self._forms.clear()
        plan = self._forms[form] = _Form(parts)
        return plan

    def _first(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Launch, dict[str, Any] | None]:
        bound = {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}
        text: str | None = keys.text(self.contract, bound)
        if text not in self.launches and len(self.launches) >= KEYS:
            text = OTHERS
        launch = self.launches.get(text)
        if launch is not None:
            return launch, None
        fact = {"kernel": self.name, "key": text}
        launch = self.launches.setdefault(text, Launch(fact))
        return launch, fact

    def facts(self, launch: Launch, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Add the arguments and the grids of a launch to what is known of it."""
        found = facts.Facts()
        passed = {n: v for n, v in kwargs.items() if n not in {"grid", "warmup"}}
        launch.fact["args"] = [found.of(value) for value in args]
        launch.fact["kwargs"] = {name: found.of(value) for name, value in passed.items()}

        def named(config: Mapping[str, Any]) -> dict[str, Any]:
            meta = dict(zip(self._names, args, strict=False)) | passed | dict(config)
            return _with_heuristics(self.tuner.fn, meta)

        launch.fact["grid"] = facts.grids(kwargs.get("grid"), self.configs, named)
        arriving = facts.Arriving(found.tensors)
        launch.arriving = arriving if arriving.is_on_its_way else None


class _Form:
    """How the launches that pass the same names and classes are told apart."""

    __slots__ = ("compared", "is_strange", "launches", "tensors")

    def __init__(self, parts: Mapping[str, list[int]]) -> None:
        # A getter of one place gives the value itself, of none it cannot be made.
        places = parts["compared"] or (slice(0),)
        self.compared: Callable[[tuple[Any, ...]], Any] = operator.itemgetter(*places)
        self.tensors = tuple(parts["tensors"])
        self.is_strange = bool(parts["strange"])
        self.launches: dict[tuple[object, ...], Launch] = {}


def _part(is_wanted: bool, is_scalar: bool, kind: Any) -> str:  # noqa: FBT001
    """What to do with an argument of this class."""
    if not is_wanted:
        return "rest"
    if (kind.__module__, kind.__name__) in _TENSORS:
        return "tensors"
    if kind in _PLAIN:
        return "compared" if is_scalar else "rest"
    return "strange"


def _known(launched: Any) -> tuple[Contract, list[Mapping[str, Any]], str]:
    """The contract of a kernel, its configs, and who made it tunable."""
    if isinstance(launched, Kernel):
        kind = "autotuned" if _is_adopted(launched) else "decorated"
        contract, tuning = launched.contract, launched.tuning
        return contract, _meta(contract.function, tuning.values), kind
    function = contracts.describe(launched)
    if not hasattr(launched, "configs"):
        return undecorated.contract(function, (), ()), [{}], "jit"
    function = replace(function, name=adopt.name_of(launched, function))
    tuning = tuned.of_foreign(launched, function)
    contract = undecorated.contract(function, tuning.default, tuning.key)
    return contract, _meta(function, tuning.values), "autotuned"


def _meta(function: Function, configs: Any) -> list[Mapping[str, Any]]:
    """The meta-parameters of each config: what a grid may depend on."""
    return [
        {n: v for n, v in config.items() if n in function.params and v is not None}
        for config in configs
    ]


def _is_adopted(launched: Any) -> bool:
    return isinstance(launched, Adopted)


def _with_heuristics(step: Any, named: dict[str, Any]) -> dict[str, Any]:
    while hasattr(step, "fn"):
        for name, heuristic in getattr(step, "values", {}).items():
            named[name] = heuristic(dict(named))
        step = step.fn
    return named


def _held(tuner: Any) -> tuple[str, int]:
    """`module:attribute` of what holds an autotuner, and how many layers below that it stands.

    Empty where no module holds it: then no other program can name it.
    """
    *_, plain = contracts.layers(tuner)
    module = sys.modules.get(getattr(plain, "__module__", ""))
    names = [] if module is None else [getattr(plain, "__qualname__", ""), *vars(module)]
    for name in names:
        try:
            held = operator.attrgetter(name)(module)
        except AttributeError:
            continue
        if hasattr(type(held), "run"):
            for hops, layer in enumerate(contracts.layers(held)):
                if layer is tuner:
                    return f"{plain.__module__}:{name}", hops
    return "", 0


def _parameters(problem: Any) -> list[list[Any]] | None:
    """The axes of a problem function, and whether each may be left out."""
    code = getattr(problem, "__code__", None)
    if code is None:
        return None
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    needed = code.co_argcount - len(problem.__defaults__ or ())
    optional = {*names[needed : code.co_argcount], *(problem.__kwdefaults__ or ())}
    return [[name, name in optional] for name in names]

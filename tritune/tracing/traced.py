"""tracing.traced: a kernel and a launch of it -> the `Launch` that equal ones are counted by.

What is compared is at least as fine as the key that a winner would be locked under, and cheap:
the values of what is in the key, and of each tensor the dtype, the alignment and, where it is
not contiguous, the strides; of what is no tensor, the class. `recall` is finer in what Triton
specialises on, which makes no other key, and does not see strides, which do. (1, 1.0 and True
count as one.)
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
from collections.abc import Callable, Mapping
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
KNOWN = 1 << 15
"""Different arguments that are remembered a form: to find the key of others costs 35 µs."""
Compared = Callable[[tuple[Any, ...], dict[str, Any]], tuple[object, ...]]


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
        self.tuner = launched.stock if isinstance(launched, Adopted) else launched
        self.contract, self.configs, self.kind = _known(launched)
        self.name = self.contract.function.name
        self._names = tuple(launched.arg_names)
        self._defaults = dict(self.contract.function.defaults)
        self.forms: dict[object, Form] = {}
        """By how many are passed by position, and by the names of others."""
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
            "default": _default(self.tuner),
            "problem": _parameters(getattr(self.tuner, "problem", None)),
        }

    def seen(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Launch, dict[str, Any] | None]:
        """The launches that this one is among; and its facts, if it is the first of them."""
        form = (len(args), *kwargs) if kwargs else len(args)
        plan = self.forms.get(form)
        if plan is None:
            if len(self.forms) >= FORMS:
                self.forms.clear()
            plan = self.forms[form] = self._form(args, kwargs)
        launch, fact = self._first(args, kwargs)
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # another form, or no hash
            if len(plan.launches) >= KNOWN:
                plan.launches.clear()
            plan.launches[plan.compared(args, kwargs)] = launch
        return launch, fact

    def forget(self) -> None:
        """All launches of a parent, in its fork."""
        self.forms.clear()
        self.launches.clear()

    def _form(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Form:
        """How launches that pass as many arguments, and these names, are told apart."""
        places = {name: f"a[{at}]" for at, name in enumerate(self._names[: len(args)])}
        places |= {name: f"k[{name!r}]" for name in kwargs}
        passed = {**dict(zip(self._names, args, strict=False)), **kwargs}
        scalars = {*self.contract.scalars}
        parts: list[str] = []
        pointers: list[str] = []
        for name in (*self.contract.scalars, *self.contract.tensors):
            if name not in passed:
                continue
            tensor = _tensor(passed[name], places[name])
            if tensor:
                parts += [f"{tensor}.dtype", f"{tensor}.is_contiguous() or {tensor}.stride()"]
                pointers.append(f"{tensor}.data_ptr()")
            elif isinstance(passed[name], tuple):
                return Form("k['is', 'no', 'name']")  # always asked for by its whole key
            elif name in scalars:
                parts.append(places[name])
            else:
                parts.append(f"{places[name]}.__class__")
        if pointers:
            parts.append(f"({' | '.join(pointers)}) & 15")
        return Form(f"({''.join(f'{part}, ' for part in parts)})")

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
        return launch, fact if launch.fact is fact else None  # another thread was first

    def facts(
        self, launch: Launch, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any
    ) -> None:
        """Add the arguments and the grids of a launch to what is known of it."""
        found = facts.Facts()
        launch.fact["args"] = [found.of(value) for value in args]
        launch.fact["kwargs"] = {name: found.of(value) for name, value in kwargs.items()}

        def named(config: Mapping[str, Any]) -> dict[str, Any]:
            meta = dict(zip(self._names, args, strict=False)) | {**kwargs, **config}
            return contracts.with_heuristics(self.tuner.fn, meta)

        launch.fact["grid"] = facts.grids(grid, self.configs, named)
        arriving = facts.Arriving(found.tensors)
        launch.arriving = arriving if arriving.is_on_its_way else None


class Form:
    """Launches that pass as many arguments, and the same names."""

    __slots__ = ("compared", "launches")

    def __init__(self, compared: str) -> None:
        # Written out, since a loop over arguments costs three times as much. It has places and
        # quoted names in it, and nothing else.
        own: Compared = eval(f"lambda a, k: {compared}")  # noqa: S307
        self.compared = own
        self.launches: dict[tuple[object, ...], Launch] = {}
        if torch := sys.modules.get("torch._C"):
            # Under a mode, as a default device is one, each thing asked of a tensor costs 1.5 µs.
            modes: Any = vars(torch)["_len_torch_function_stack"]
            names = {"modes": modes, "unseen": _unseen(torch, own)}
            self.compared = eval(f"lambda a, k: unseen(a, k) if modes() else {compared}", names)  # noqa: S307


def _unseen(torch: Any, compared: Compared) -> Compared:
    """The same, and no mode of the program's sees what is asked for."""

    def bare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[object, ...]:
        with torch.DisableTorchFunction():
            return compared(args, kwargs)

    return bare


def _tensor(value: Any, place: str) -> str:
    """Where the tensor is, in an argument that is one or describes one; empty in another."""
    for thing, at in ((value, place), (getattr(value, "base", None), f"{place}.base")):
        if hasattr(thing, "data_ptr") and hasattr(thing, "is_contiguous"):
            return at
    return ""


def _known(launched: Any) -> tuple[Contract, list[Mapping[str, Any]], str]:
    """The contract of a kernel, its configs, and who made it tunable."""
    if isinstance(launched, Kernel):
        kind = "autotuned" if isinstance(launched, Adopted) else "decorated"
        contract, tuning = launched.contract, launched.tuning
        return contract, _meta(contract.function, tuning.values), kind
    if not hasattr(launched, "configs"):
        return undecorated.contract(contracts.describe(launched), (), ()), [{}], "jit"
    function = adopt.described(launched)
    tuning = tuned.of_foreign(launched, function)
    contract = undecorated.contract(function, tuning.default, tuning.key)
    return contract, _meta(function, tuning.values), "autotuned"


def _meta(function: Function, configs: Any) -> list[Mapping[str, Any]]:
    """The meta-parameters of each config: what a grid may depend on."""
    return [
        {n: v for n, v in config.items() if n in function.params and v is not None}
        for config in configs
    ]


def _default(tuner: Any) -> dict[str, Any]:
    """What a kernel with tritune's line runs with where nothing is locked."""
    if not isinstance(tuner, Kernel) or isinstance(tuner, Adopted):
        return {}
    default = tuner.tuning.default
    return {name: value for name, value in default.items() if isinstance(value, (int, float, str))}


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
                    return f"{facts.module_of(plain)}:{name}", hops
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

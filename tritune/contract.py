"""contract: a decorated function and what its decorator says -> Contract | KernelError.

Everything here is known when a module is imported; nothing here looks at a lockfile.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tritune.errors import KernelError
from tritune.model import LAUNCH_OPTIONS, RARE, Value

MISSING = inspect.Parameter.empty
_OURS = frozenset({"tritune", "triton", "contextlib"})
NAMED = 256
"""Sets of names remembered a kernel: one for every place that calls its `config()`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Function:
    """What a kernel's signature says."""

    name: str
    """`package.module:qualname`, the same however the module was imported."""
    file: str
    line: int
    params: tuple[str, ...]
    constexprs: tuple[str, ...]
    defaults: tuple[tuple[str, object], ...]
    computed: frozenset[str]
    """Parameters that `@triton.heuristics` sets."""
    any_alignment: frozenset[str]
    """Parameters whose alignment the compiler is told to ignore."""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short(self) -> str:
        return self.name.rpartition(":")[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Contract:
    """What identifies a call of a kernel, and what a config of it holds."""

    function: Function
    key: tuple[str, ...]
    constants: tuple[str, ...]
    """The constexprs that are neither tunable, nor in the key, nor set by a heuristic."""
    like: tuple[str, ...] | None
    """The tensors whose dtype and alignment are in the key; None is every tensor."""
    near: str | None
    tunables: tuple[str, ...]
    layout: bool = False
    """Whether the key says which dimension of a tensor is the dense one, where not the last."""

    @property
    def scalars(self) -> tuple[str, ...]:
        return self.key + self.constants

    @property
    def tensors(self) -> tuple[str, ...]:
        """The arguments that may be tensors of the key."""
        if self.like is not None:
            return self.like
        function = self.function
        other = {*self.scalars, *self.tunables, *function.constexprs, *function.computed}
        return tuple(name for name in self.function.params if name not in other)


def layers(decorated: object) -> Iterator[object]:
    """The decorated object and all that it wraps, down to the Python function."""
    while decorated is not None:
        yield decorated
        if inspect.isfunction(decorated):
            return
        decorated = getattr(decorated, "fn", None)


def with_heuristics(step: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Add to the arguments of a launch those that heuristics at or below *step* set."""
    while hasattr(step, "fn"):
        for name, heuristic in getattr(step, "values", {}).items():
            named[name] = heuristic(dict(named))
        step = step.fn
    return named


def describe(decorated: object) -> Function:
    """Read the signature below *decorated*."""
    *wrappers, plain = layers(decorated)
    if not inspect.isfunction(plain) or not wrappers or not hasattr(decorated, "run"):
        raise _not_a_kernel(decorated)
    parameters = inspect.signature(plain).parameters
    code = plain.__code__
    return Function(
        name=f"{module_of(code.co_filename, plain.__module__)}:{plain.__qualname__}",
        file=code.co_filename,
        line=code.co_firstlineno,
        params=tuple(parameters),
        constexprs=tuple(n for n, p in parameters.items() if "constexpr" in _annotation(p)),
        defaults=tuple((n, p.default) for n, p in parameters.items() if p.default is not MISSING),
        computed=frozenset(name for layer in wrappers for name in getattr(layer, "values", ())),
        any_alignment=frozenset(_any_alignment(wrappers[-1], tuple(parameters))),
    )


def check(
    function: Function,
    default: Mapping[str, Value],
    *,
    key: Iterable[str],
    like: Iterable[str] | None,
    near: str | None,
) -> Contract:
    """The contract of a kernel, or the first mistake in its decorator."""
    key, like = tuple(key), None if like is None else tuple(like)
    _check_default(function, default)
    _check_arguments(function, "key", key)
    _check_arguments(function, "like", like or ())
    for name in key:
        if name in default:
            raise _mistake(function, f"key names `{name}`, which is tunable", "leave it out")
    skipped = {*default, *key, *function.computed}
    key = tuple(name for name in key if name not in function.computed)
    if near is not None and near not in key:
        why = "@triton.heuristics sets" if near in function.computed else "is not in key"
        what = f"near names `{near}`, which {why}"
        raise _mistake(function, what, f"key has {_listed(key)}")
    return Contract(
        function=function,
        key=key,
        constants=tuple(name for name in function.constexprs if name not in skipped),
        like=like,
        near=near,
        tunables=tuple(default),
    )


def check_named(contract: Contract, named: Iterable[str]) -> None:
    """The arguments of `kernel.config(...)`: all parts of the key, and no others."""
    short, given = contract.function.short, set(named)
    parts = {*contract.scalars, *contract.tensors}
    takes = [name for name in contract.function.params if name in parts]
    if strange := [name for name in given if name not in parts]:
        what = f"`{short}.config()` does not take {quoted(sorted(strange))}"
        raise KernelError(what, where=call_site(), hint=f"it takes {_listed(takes)}")
    given |= {name for name, _ in contract.function.defaults}
    if missing := [name for name in takes if name not in given]:
        what = f"`{short}.config()` needs {quoted(missing)} too"
        hint = "" if contract.like is not None else "name the tensors of the key with like=[...]"
        raise KernelError(what, where=call_site(), hint=hint)


def named_checker(contract: Contract) -> Callable[[tuple[str, ...]], None]:
    """`check_named` that asks only once about names that it has accepted."""
    return lru_cache(NAMED)(partial(check_named, contract))


def incomplete(contract: Contract, passed: Iterable[str]) -> KernelError:
    """A launch passes some tunables and not the rest."""
    names = list(passed)
    missing = [name for name in contract.tunables if name not in names]
    return KernelError(
        f"a launch of `{contract.function.short}` passes {quoted(names)} but not {quoted(missing)}",
        where=call_site(),
        hint="pass the whole of `kernel.config(...)`, or none of it",
    )


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def rare(configs: Collection[Any]) -> tuple[str, ...]:
    """The rare launch options that any of these Configs of Triton's says."""
    return tuple(n for n, v in RARE.items() if any(getattr(one, n, v) != v for one in configs))


def place_of(function: Callable[..., Any]) -> str:
    """`file:line` of a function; empty of what has no code of Python's."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def call_site() -> str:
    """`file:line` of the nearest caller that is neither tritune nor triton; empty for a worker."""
    ours = str(Path(__file__).parent)
    frame = sys._getframe(1)  # noqa: SLF001  # inspect.stack() reads every source file on the way
    while frame.f_back is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        # By its module as well: what `dataclass` generates is in no file.
        if not file.startswith(ours) and module.partition(".")[0] not in _OURS:
            break
        frame = frame.f_back
    is_worker = frame.f_globals.get("__name__", "").partition(".")[0] == "multiprocessing"
    return "" if is_worker else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def suggestion(name: str, known: Iterable[str]) -> str:
    """What the user may have meant by *name*."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"it has {_listed(names)}"


def _check_default(function: Function, default: Mapping[str, Value]) -> None:
    for name in default:
        if name in function.computed:
            raise _mistake(
                function,
                f"default names `{name}`, which @triton.heuristics sets",
                "take it out of one of the two",
            )
        if name in function.params and name not in function.constexprs:
            raise _mistake(
                function,
                f"default names `{name}`, which is not a tl.constexpr",
                f"annotate it: `{name}: tl.constexpr`",
            )
        if name not in function.params and name not in LAUNCH_OPTIONS:
            raise _mistake(
                function,
                f"default names `{name}`, which is neither a parameter of "
                f"`{function.short}` nor a launch option",
                suggestion(name, [*function.constexprs, *sorted(LAUNCH_OPTIONS)]),
            )


def _check_arguments(function: Function, what: str, names: tuple[str, ...]) -> None:
    for name in names:
        if name not in function.params:
            raise _mistake(
                function,
                f"{what} names `{name}`, which is not an argument of `{function.short}`",
                suggestion(name, function.params),
            )


def _mistake(function: Function, what: str, hint: str) -> KernelError:
    return KernelError(what, where=function.where, hint=hint)


def _not_a_kernel(decorated: object) -> KernelError:
    if inspect.isfunction(decorated):
        return KernelError(
            f"`{decorated.__qualname__}` is not a Triton kernel",
            where=place_of(decorated),
            hint="put @tritune.kernel above @triton.jit or @triton.autotune",
        )
    return KernelError(
        f"@tritune.kernel got {type(decorated).__name__}, not a Triton kernel",
        where=call_site(),
        hint="put @tritune.kernel above @triton.jit or @triton.autotune",
    )


def module_of(file: str, fallback: str) -> str:
    path = Path(file)
    if not path.is_file():
        return fallback
    own = [] if path.stem == "__init__" else [path.stem]
    return ".".join([*path.parent.relative_to(root(path)).parts, *own])


def root(path: Path) -> Path:
    """The folder that the module in a file is imported from."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _annotation(parameter: inspect.Parameter) -> str:
    # Triton's own rule: text, or the name of a class, that says constexpr.
    note = parameter.annotation
    return note if isinstance(note, str) else getattr(note, "__name__", str(note))


def _any_alignment(innermost: Any, params: tuple[str, ...]) -> Iterator[str]:
    # JITFunction keeps these as attributes, InterpretedFunction in its kwargs.
    kept = getattr(innermost, "kwargs", None) or {}
    for option in ("do_not_specialize", "do_not_specialize_on_alignment"):
        for name in kept.get(option) or getattr(innermost, option, None) or ():
            yield params[name] if isinstance(name, int) else name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"

"""subject: a reference to any Triton kernel -> Subject, what can be said of it as plain data.

Runs in a worker. Unlike `load` it takes what tritune cannot tune yet: a kernel without a problem
function, or without tritune's line, to tell its owner what is missing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard, cast

from tritune import blame, contract, kernelcode
from tritune.contract import Function
from tritune.errors import KernelError
from tritune.load import (
    find,
    is_kernel,
    is_triton,
    load,
    names_in,
    own_configs,
    parameters,
    place,
)
from tritune.model import FIELDS, PLAIN, USUAL, Config, Value
from tritune.modules import import_reference
from tritune.words import an

TUNABLE, AUTOTUNED, JIT = "tunable", "autotuned", "jit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A Triton kernel, whoever wrote it. No torch, no triton in it."""

    name: str
    """`package.module:function`, how a lockfile names it."""
    attribute: str
    """What the module has it under, which its function need not be called."""
    imported: str
    """The module that the reference named, as an import does."""
    file: str
    line: int
    kind: str
    """`tunable` under `@tritune.kernel`, `autotuned` under `@triton.autotune`, else `jit`."""
    is_assigned: bool = False
    """What is around its function is put there by an assignment, not by decorators."""
    params: tuple[str, ...]
    """Those that a launch passes: no heuristic sets them."""
    constexprs: tuple[str, ...]
    """Of these."""
    truths: tuple[str, ...] = ()
    """Constexprs that are true or false, as far as the kernel's code tells."""
    constants: tuple[str, ...] = ()
    """Those of them that are part of its keys."""
    pointers: tuple[str, ...] = ()
    """Arguments that the kernel's code loads from or stores to, as far as it tells."""
    key: tuple[str, ...]
    configs: tuple[Config, ...]
    """Its own list; the default alone where it has none, and nothing for a bare jit function."""
    default: Config
    tensors: tuple[str, ...] = ()
    """The arguments that may be tensors of its keys."""
    like: bool = False
    """Whether its author named those."""
    lockfile: str = ""
    problem: str = ""
    """The name of its problem function, where it has one."""
    problem_params: tuple[tuple[str, bool], ...] = ()
    """Parameters of that function; True where one has a default."""
    odd: tuple[str, ...] = ()
    """Meta-parameters whose values are no numbers, truth values or texts."""

    @property
    def is_installed(self) -> bool:
        """Whether it is of a package that somebody else wrote, whose files are left as they are."""
        return blame.is_installed(self.file)

    @property
    def short(self) -> str:
        return self.attribute.rpartition(".")[2]


def describe(_: None, reference: str) -> Subject:
    """The kernel that *reference* names.

    Raises:
        KernelError: there is none such, or it is no Triton kernel.
    """
    module, name = import_reference(reference)
    found: Any = find(module, name, "Triton kernels", _is_launched)
    if not is_triton(found):
        what = f"`{name}` is {an(type(found).__name__)}, not a Triton kernel"
    elif not _is_launched(found):
        what = f"`{name}` returns a value, so it is what kernels call, and nothing launches it"
    else:
        return of(found, name, module.__name__)
    hint = names_in(module, "Triton kernels", _is_launched)
    raise KernelError(what, where=place(module), hint=hint)


def of(found: Any, name: str, module: str) -> Subject:
    """A Triton kernel that a module has under *name*."""
    function = contract.describe(found)
    tree = _tree(found)
    truths, pointers = kernelcode.truths(tree, function), kernelcode.pointers(tree)
    facts = {
        **_facts(function, name, module),
        "truths": tuple(each for each in function.constexprs if each in truths),
        "pointers": tuple(each for each in function.params if each in pointers),
        "is_assigned": kernelcode.is_assigned(tree),
    }
    return _of_kernel(found, facts) if is_kernel(found) else _of_triton(found, function, facts)


def refusals(
    _: None, kernel: str, problem: str | None, configs: Sequence[tuple[Config, bool]]
) -> tuple[str, ...]:
    """Why a tunable kernel cannot run each of these configs; empty where it can.

    With each comes whether a hook has to run before it, which has to be the kernel's own.
    """
    if problem:
        found: Any = load(kernel, problem).kernel
    else:
        module, name = import_reference(kernel)
        found = find(module, name, "Triton kernels", is_kernel)
    return tuple(
        found.tuning.refusal(config) or (_no_hook(found.tuning, config) if hooked else "")
        for config, hooked in configs
    )


def _no_hook(tuning: Any, config: Config) -> str:
    if tuning.live(config.as_dict()).pre_hook is not None:
        return ""
    return "it has a pre_hook, of which a lockfile holds the name alone; the kernel has none for it"


def _of_kernel(kernel: Any, facts: dict[str, Any]) -> Subject:
    problem = kernel.problem
    return Subject(
        **facts,
        kind=TUNABLE,
        key=tuple(kernel.key_names),
        configs=own_configs(kernel),
        default=Config.of(kernel.default),
        constants=kernel.contract.constants,
        tensors=kernel.contract.tensors,
        like=kernel.like is not None,
        lockfile=str(kernel.lockfile),
        problem=problem.__qualname__ if problem else "",
        problem_params=parameters(problem) if problem else (),
    )


def _of_triton(found: Any, function: Function, facts: dict[str, Any]) -> Subject:
    tuner = _tuner(found)
    if tuner is None:
        return Subject(**facts, kind=JIT, key=(), configs=(), default=Config(()))
    listed = list(_values(getattr(tuner, "configs", ())))
    odd = {name for one in listed for name, value in one.items() if not is_plain(value)}
    plain = [{n: v for n, v in one.items() if n not in odd and is_plain(v)} for one in listed]
    configs = tuple(dict.fromkeys(Config.of(values) for values in plain))
    keys = getattr(tuner, "keys", None) or ()
    return Subject(
        **facts,
        kind=AUTOTUNED,
        key=tuple(key for key in keys if key in function.params and key not in function.computed),
        configs=configs,
        default=configs[0] if configs else Config(()),
        odd=tuple(sorted(odd)),
    )


def _facts(function: Function, attribute: str, module: str) -> dict[str, Any]:
    return {
        "name": function.name,
        "imported": module,
        "attribute": attribute,
        "file": function.file,
        "line": function.line,
        "params": tuple(n for n in function.params if n not in function.computed),
        "constexprs": tuple(n for n in function.constexprs if n not in function.computed),
    }


def _is_launched(found: object) -> bool:
    """Whether it is a Triton kernel, and no function that only other kernels can call."""
    if not is_triton(found):
        return False
    is_bare = not is_kernel(found) and _tuner(found) is None
    return not (is_bare and kernelcode.returns_value(_tree(found)))


def _tuner(found: Any) -> Any:
    return next((one for one in contract.layers(found) if hasattr(one, "configs")), None)


def _tree(found: Any) -> ast.Module:
    *_, plain = contract.layers(found)
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(cast("FunctionType", plain))))
    except (OSError, SyntaxError):  # of what has no file, or is part of a line
        return ast.Module([], [])


def _values(configs: Iterable[Any]) -> Iterator[dict[str, object]]:
    """Each config of a list of Triton's by name; of its options those that any of them says."""
    configs = list(configs)
    spoken = (*USUAL, *contract.rare(configs))
    for one in configs:
        fields = {name: getattr(one, name, FIELDS[name]) for name in spoken}
        yield {**fields, **one.kwargs}


def is_plain(value: object) -> TypeGuard[Value]:
    """Whether a lockfile can hold it."""
    return type(value) in PLAIN


def plain_config(live: Any) -> dict[str, Value]:
    """A Config of Triton's as plain values; what it does not say is left out.

    Raises:
        KernelError: it holds what no lockfile can.
    """
    [values] = _values([live])
    made: dict[str, Value] = {}
    for name, value in values.items():
        if not is_plain(value):
            what = f"`{name}` is {an(type(value).__name__)}, which no lockfile can hold"
            raise KernelError(what, hint="a config holds numbers, truth values and texts")
        made[name] = value
    return made

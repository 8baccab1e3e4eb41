"""load: references to a kernel and a problem -> Loaded; Loaded -> KernelInfo.

Runs in a worker, as whatever touches the user's module does. The parent imports this module to
name its functions, so what imports Triton is imported in them.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from tritune import blame, contract, hooks, switches
from tritune.errors import KernelError
from tritune.identity import hook_digest, problem_digest, source_digest
from tritune.model import LOCKFILE, Config, KernelInfo, Value
from tritune.modules import FILE_HINT, import_reference
from tritune.references import few
from tritune.words import an


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tunable kernel and the function that makes its problems."""

    kernel: Any
    """None where only running the op can tell: `discover`."""
    problem: Callable[..., Any]

    @property
    def is_foreign(self) -> bool:
        """Whether nobody decorated it."""
        from tritune.adopted import Adopted

        return isinstance(self.kernel, Adopted)


def load(kernel: str | None, problem: str | None) -> Loaded:
    """The one kernel that *kernel* refers to, or that the op of *problem* launches."""
    loaded = load_all(kernel, problem)
    if len(loaded) > 1:
        names = ", ".join(f"`{one.kernel.name}`" for one in loaded)
        raise KernelError(f"`{problem}` launches several kernels", hint=f"name one of {names}")
    if loaded[0].kernel is None:
        raise no_kernel(loaded[0].problem)
    return loaded[0]


def load_all(kernel: str | None, problem: str | None) -> tuple[Loaded, ...]:
    """All that are to be tuned. With a *problem*, *kernel* may also be the name of one of its."""
    from tritune import adopt

    if problem is None:
        found = _kernel(kernel or "")
        function = found.problem or _no_problem(found)
        adopt.begin(adopt.Scope(_lockfile(function)))  # its op may launch others besides
        return (Loaded(found, function),)
    function = _problem(problem)
    adopt.begin(adopt.Scope(_lockfile(function)))
    marked = _marked(function)
    if kernel is None:
        return tuple(Loaded(one, function) for one in marked or [None])
    named = [one for one in marked if one.name == kernel]
    return (Loaded(named[0] if named else _kernel_or_called(kernel), function),)


def describe_all(loaded: tuple[Loaded, ...]) -> tuple[KernelInfo, ...]:
    """Each of them that is known."""
    return tuple(describe(one) for one in loaded if one.kernel is not None)


def describe(loaded: Loaded) -> KernelInfo:
    """What the parent, which imports none of it, has to know."""
    kernel, function = loaded.kernel, loaded.kernel.contract.function
    code = inspect.unwrap(loaded.problem).__code__
    return KernelInfo(
        name=kernel.name,
        file=function.file,
        line=function.line,
        params=function.params,
        constexprs=function.constexprs,
        tunables=tuple(kernel.tunables),
        default=Config.of(kernel.default),
        configs=own_configs(kernel),
        hooks=own_hooks(kernel),
        has_one_hook=kernel.tuning.has_one_hook,
        key=tuple(kernel.key_names),
        near=kernel.near,
        lockfile=str(kernel.lockfile),
        problem=reference(loaded.problem),
        problem_line=code.co_firstlineno,
        problem_params=parameters(loaded.problem),
        source=source_digest(kernel),
        problem_source=problem_digest(loaded.problem),
        foreign=loaded.is_foreign,
        installed=blame.is_installed(function.file),
        notes=tuple(getattr(kernel, "notes", ())),
    )


def _lockfile(function: Callable[..., Any]) -> Path:
    """Where winners of kernels that nobody decorated go: beside the problem, not the kernel."""
    beside = Path(function.__code__.co_filename).absolute().parent / LOCKFILE
    return Path(switches.lockfile() or beside).absolute()


def parameters(problem: Callable[..., Any]) -> tuple[tuple[str, bool], ...]:
    """The parameters of a problem function; True where one has a default."""
    found = inspect.signature(problem).parameters
    return tuple((name, one.default is not one.empty) for name, one in found.items())


def own_configs(kernel: Any) -> tuple[Config, ...]:
    """Its own list, told apart by the tunables alone, and each one once."""
    listed: Iterable[Mapping[str, Value]] = kernel.tuning.values
    own = [{name: values.get(name) for name in kernel.tunables} for values in listed]
    return tuple(dict.fromkeys(Config.of(values) for values in own))


def own_hooks(kernel: Any) -> tuple[str, ...]:
    """The hooks of these as a lockfile has them; nothing where none has one."""
    lives = [kernel.tuning.live(config.as_dict()) for config in own_configs(kernel)]
    if all(live.pre_hook is None for live in lives):  # not by truth: one may have a `__len__`
        return ()
    return tuple(
        "" if live.pre_hook is None else f"{hooks.name(live.pre_hook)}@{hook_digest(live.pre_hook)}"
        for live in lives
    )


def reference(function: Callable[..., Any]) -> str:
    """`file:function` of a problem function."""
    file = inspect.unwrap(function).__code__.co_filename
    where = file if Path(file).is_file() else function.__module__
    return f"{where}:{function.__qualname__}"


def _kernel_or_called(reference: str) -> Any:
    """As the reference says; else an autotuned kernel of that name that no attribute holds."""
    try:
        return _kernel(reference)
    except KernelError:
        from tritune import adopt

        if found := adopt.called(reference):
            return found
        raise


def _kernel(reference: str) -> Any:
    from tritune import adopt

    module, name = import_reference(reference)
    found = find(module, name, "tunable kernels", _is_tunable)
    where = place(module)
    if is_kernel(found):
        return _with_source(found, where)
    if adopted := adopt.adopted_at(found):
        return _with_source(adopted, where)
    what = f"`{name}` is {_kind(found)}, not a kernel"
    hint = names_in(module, "tunable kernels", _is_tunable)
    if is_triton(found):
        what, hint = (
            f"`{name}` is a Triton kernel without its tritune line",
            _lines(found, name, module.__name__),
        )
    raise KernelError(what, where=where, hint=hint)


def _lines(found: Any, name: str, module: str) -> str:
    """What its owner has to write for a Triton kernel that cannot be tuned as it is."""
    from tritune import adopt, skeleton, subject  # which need this module, or Triton

    about = subject.of(found, name, module)
    hints = skeleton.hints(about)
    if adopt.inside(found) is not None:
        hints.append("name a function that makes its problems: `problem: FILE.py:FUNCTION`")
    return "\nor ".join(hints)


def _problem(reference: str) -> Callable[..., Any]:
    module, name = import_reference(reference)
    found: Any = find(module, name, "functions", inspect.isfunction)
    if inspect.isfunction(found):
        return found
    raise KernelError(
        f"`{name}` is {_kind(found)}, not a problem function",
        where=place(module),
        hint=names_in(module, "functions", inspect.isfunction),
    )


def is_kernel(thing: object) -> bool:
    """Whether it is what `@tritune.kernel` makes."""
    return hasattr(type(thing), "key_of")


def _is_tunable(thing: object) -> bool:
    """Whether a sweep can tune it, decorated or where an op launches it."""
    from tritune import adopt

    return is_kernel(thing) or (is_triton(thing) and adopt.inside(thing) is not None)


def is_triton(thing: object) -> bool:
    """Whether it is a jit function, or what is wrapped around one."""
    if isinstance(thing, type) or not hasattr(thing, "run"):
        return False
    *wrappers, plain = contract.layers(thing)
    return inspect.isfunction(plain) and bool(wrappers)


def _with_source(kernel: Any, where: str) -> Any:
    *_, plain = contract.layers(kernel)
    try:
        inspect.getsourcelines(plain)  # type: ignore[arg-type]
    except OSError as error:
        name = kernel.name.rpartition(":")[2]
        raise KernelError(f"`{name}` has no source", where=where, hint=FILE_HINT) from error
    return kernel


def _kind(thing: object) -> str:
    return an(type(thing).__name__)


def _marked(function: Callable[..., Any]) -> list[Any]:
    """The kernels that `@tritune.problem` marks it with, wherever they were imported."""
    modules = [vars(module) for module in list(sys.modules.values()) if module is not None]
    things = {id(thing): thing for names in modules for thing in list(names.values())}
    kernels = [thing for thing in things.values() if is_kernel(thing)]
    return sorted((one for one in kernels if one.problem is function), key=lambda one: one.name)


def _no_problem(kernel: Any) -> NoReturn:
    name = kernel.name.rpartition(":")[2]
    raise KernelError(
        f"`{name}` has no problem function, so there is nothing to run it on",
        where=contract.describe(kernel).where,
        hint=f"mark the function that makes its inputs with `@tritune.problem({name})`",
    )


def no_kernel(function: Callable[..., Any]) -> KernelError:
    return KernelError(
        f"`{function.__qualname__}` is not the problem of any tunable kernel",
        where=contract.place_of(function),
        hint="mark it with `@tritune.problem(kernel)`, or name the kernel in the sweep file",
    )


def find(module: ModuleType, name: str, kinds: str, wanted: Callable[[object], bool]) -> object:
    """What *name* stands for in a module; *kinds* are what it was meant to be, in words."""
    found: object = module
    for part in name.split("."):
        if not part or not hasattr(found, part):
            raise KernelError(
                f"it has no `{name}`" if name else "no name after the module",
                where=place(module),
                hint=_suggestion(name, kinds, module, wanted),
            )
        found = getattr(found, part)
    return found


def _suggestion(name: str, kinds: str, module: ModuleType, wanted: Callable[[object], bool]) -> str:
    near = difflib.get_close_matches(name, _names(module, wanted), n=1)
    listed = names_in(module, kinds, wanted)
    return f"did you mean `{near[0]}`? {listed}" if near else listed


def names_in(module: ModuleType, kinds: str, wanted: Callable[[object], bool]) -> str:
    """What a module has of a kind, as a hint says it; of functions, those it defines itself."""
    names = [name for name in _names(module, wanted) if _is_own(module, name)]
    return f"its {kinds}: {few(names)}" if names else f"it has no {kinds}"


def _is_own(module: ModuleType, name: str) -> bool:
    thing = getattr(module, name)
    return not inspect.isfunction(thing) or thing.__module__ == module.__name__


def _names(module: ModuleType, wanted: Callable[[object], bool]) -> list[str]:
    return [name for name, thing in vars(module).items() if wanted(thing)]


def place(module: ModuleType) -> str:
    """Where it is, for messages."""
    return getattr(module, "__file__", None) or module.__name__

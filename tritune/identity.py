"""identity: a kernel, or its problem -> the digest of its code and of all that this reaches.

Triton's own `cache_key` will not do: it changes when a function moves by a line, and does not
when a constant behind a module alias (`H.GAIN`) is edited. This one is of the syntax tree, so
comments, blank lines and docstrings do not count, and it is the same in every process, under
every Triton and Python. It reads attributes only, and imports neither torch nor triton.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial, reduce
from types import FunctionType, MethodType, ModuleType

from tritune import hooks

_LIBRARIES = frozenset({"triton", "torch", "numpy", "tritune"}) | sys.stdlib_module_names
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_WRAPS = ("__wrapped__", "_init_fn")
"""Where functools, and torch's custom ops, hold the function that they stand for."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


def source_digest(kernel: object) -> str:
    """12 hexadecimal digits of *kernel*: a jit function, or what is wrapped around one."""
    return _digest(_unwrapped(kernel), _reached)


def problem_digest(problem: object) -> str:
    """12 hexadecimal digits of a problem function: the op, its reference, every kernel in it."""
    return _digest(problem, _reached_on_the_host)


def hook_digest(hook: Callable[..., object]) -> str:
    """8 hexadecimal digits of a `pre_hook`: its code, what it is given with it, what it reaches."""
    given: list[str] = []
    while isinstance(hook, partial):
        named = [*enumerate(hook.args), *sorted(hook.keywords.items())]
        leaves = [leaf for name, value in named for leaf in _leaves(str(name), value)]
        given += [f"{name}={_given(value)}" for name, value in leaves]
        hook = hook.func
    code = _digest(hooks.code_of(hook), _reached_on_the_host)
    return hashlib.sha256("\n".join([code, *given]).encode()).hexdigest()[:8]


def _given(value: object) -> str:
    is_code = isinstance(value, (partial, MethodType)) or _is_code(value)
    return hook_digest(value) if is_code and callable(value) else _constant(value)


def _digest(root: object, reached: Reached) -> str:
    lines: list[str] = []
    numbers = {root: 0}
    queue = [root]
    for code in queue:  # it grows; a number stands for a function, so recursion is no trouble
        tree = _tree(code)
        lines.append(_dump(tree))
        for name, value in reached(tree, _names(code)):
            if _is_code(value):
                queue += [] if value in numbers else [value]
                lines.append(f"{name}=#{numbers.setdefault(value, len(numbers))}")
            elif text := _constant(value):
                lines.append(f"{name}={text}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


Reached = Callable[[ast.Module, Mapping[str, object]], Iterator[tuple[str, object]]]


def _unwrapped(value: object) -> object:
    """The Python function under jit, heuristics and autotuners; the value of a constexpr."""
    while not isinstance(value, (type, FunctionType)):
        kinds = {_root(kind.__module__) for kind in type(value).__mro__}
        inner = "value" if type(value).__name__ == "constexpr" else "fn"
        if not kinds & {"triton", "tritune"} or not hasattr(value, inner):
            break
        value = getattr(value, inner)
    return value


def _root(module: object) -> str:
    return str(module).partition(".")[0]


def _is_code(value: object) -> bool:
    return isinstance(value, (FunctionType, type)) and _root(value.__module__) not in _LIBRARIES


def _constant(value: object) -> str:
    """How a constant reads; empty for what is none."""
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if isinstance(value, _PLAIN):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (FunctionType, type)):  # a library's: which one, not what is in it
        return f"{value.__module__}.{value.__qualname__}"
    kind = type(value)
    is_dtype = _root(kind.__module__) in {"triton", "torch", "numpy"} and "dtype" in kind.__name__
    return f"dtype {value}" if is_dtype else ""


def _tree(code: object) -> ast.Module:
    try:
        source = textwrap.dedent("".join(inspect.getsourcelines(code)[0]))  # type: ignore[arg-type]
    except (OSError, TypeError):  # made by exec
        source = getattr(code, "__qualname__", "")
    try:
        return ast.parse(source)
    except SyntaxError:  # the line of a lambda may be half of an expression
        return ast.parse(repr(source.strip()))


def _names(code: object) -> Mapping[str, object]:
    """What the names in a function, or in the methods of a class, stand for."""
    if isinstance(code, FunctionType):
        cells = zip(code.__code__.co_freevars, code.__closure__ or (), strict=False)
        closure = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
        return {**code.__globals__, **closure}
    module = sys.modules.get(getattr(code, "__module__", ""))
    return {} if module is None else vars(module)


def _filled(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return False
    return True


def _reached(tree: ast.Module, names: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Each name of the code that is not its own, `H.act` as a whole, and what it stands for."""
    for name in sorted(_outer_names(tree)):
        first, *rest = name.split(".")
        value = names.get(first, builtins)
        value = reduce(_member, rest, value)
        yield from _leaves(name, value)


def _reached_on_the_host(
    tree: ast.Module, names: Mapping[str, object]
) -> Iterator[tuple[str, object]]:
    """Also the class of a method (`Norm.apply`, `model.forward`), and what a wrapper stands for."""
    yield from _reached(tree, names)
    for name in sorted(_outer_names(tree)):
        parts = name.split(".")
        value = names.get(parts[0], builtins)
        for end, part in enumerate([*parts[1:], ""], start=1):
            yield from _behind(".".join(parts[:end]), value)
            value = _member(value, part)


def _behind(name: str, value: object) -> Iterator[tuple[str, object]]:
    kind = value if isinstance(value, type) else type(value)
    if _is_code(kind):
        yield f"type of {name}", kind
    while (inner := _wrapped(value)) is not None:
        value = inner
        yield from _leaves(f"inside {name}", value)


def _wrapped(value: object) -> object:
    if isinstance(value, partial):
        return value.func
    held = {} if isinstance(value, (type, ModuleType)) else getattr(value, "__dict__", {})
    return next((held[name] for name in _WRAPS if name in held), None)


def _member(value: object, name: str) -> object:
    """An attribute of the user's own module or class; `builtins` stands for what is not."""
    if isinstance(value, ModuleType) and _root(value.__name__) not in _LIBRARIES:
        return vars(value).get(name, builtins)
    if isinstance(value, type) and _is_code(value):
        return getattr(value, name, builtins)
    return builtins


def _leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    value = _unwrapped(value)
    if isinstance(value, (tuple, list)):
        yield name, f"{len(value)} items"
        for index, item in enumerate(value):
            yield from _leaves(f"{name}[{index}]", item)
    elif isinstance(value, dict):
        for key in sorted(value, key=_key):
            yield from _leaves(f"{name}[{_key(key)}]", value[key])
    else:
        yield name, value


def _key(key: object) -> str:
    text = repr(key)
    # Where an object is in memory is another place in every process.
    return _constant(key) or type(key).__qualname__ if " at 0x" in text else text


def _outer_names(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    found = {dotted for node in _kept(tree) if (dotted := _dotted(node))}
    return {name for name in found if name.partition(".")[0] not in own}


def _kept(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that count, an attribute as a whole."""
    yield node
    if _dotted(node):
        return
    for _, value in _fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _kept(child)


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (first := _dotted(node.value)):
        return f"{first}.{node.attr}"
    return ""


def _dump(node: object) -> str:
    # Not ast.dump: what it leaves out, and which empty fields there are, changes with Python.
    if isinstance(node, ast.AST):
        fields = ",".join(f"{name}={_dump(value)}" for name, value in _fields(node))
        return f"{type(node).__name__}({fields})"
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    return f"{type(node).__name__} {node!r}"


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """Its fields without the empty ones, docstrings, and decorators that change no value."""
    for name, value in ast.iter_fields(node):
        kept = value
        if name == "body" and isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False):
            kept = value[1:]
        if name == "decorator_list":
            kept = [item for item in value if "heuristics" in ast.unparse(item).partition("(")[0]]
        if name not in {"ctx", "kind", "type_comment"} and kept is not None and kept != []:
            yield name, kept

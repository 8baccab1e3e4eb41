"""references: a reference as it is written -> why it can name nothing, without an import.

Torch takes seconds to import, and the mistakes made first need none of it: a file that is not
there, code that does not parse, a name that the code never binds.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from tritune import kernelcode
from tritune.errors import KernelError
from tritune.modules import BASE, NO_MODULE_HINT, check_file, failure

MOST_LISTED = 6
"""Names that a hint lists."""
_DYNAMIC = frozenset({"__getattr__", "exec", "globals", "locals", "setattr", "vars"})


def refuse(reference: str, kinds: str, base: str = BASE) -> None:
    """Refuse what cannot be right; *kinds* are what it is meant to name, in words.

    A path that is no whole one is relative to *base*.

    Raises:
        KernelError: as the import of the reference would.
    """
    place, _, name = reference.rpartition(":")
    if not place:
        place, name = reference, ""
    if "/" in place or place.endswith((".py", ".ipynb")):
        path = Path(os.path.abspath(place))  # noqa: PTH100  # a link keeps its name
        check_file(path, base)
        _refuse_name(path, name, kinds)
    elif not _is_there(place.partition(".")[0]):
        what = f"no module named `{place.partition('.')[0]}`"
        raise KernelError(what, hint=NO_MODULE_HINT)


def short(reference: str) -> str:
    """What a reference calls its thing, without where it is."""
    return reference.rpartition(":")[2].rpartition(".")[2]


def few(names: Sequence[str]) -> str:
    """Names of a module as a hint lists them, those for others first."""
    listed = sorted(names, key=lambda name: name.startswith("_"))[:MOST_LISTED]
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(f"`{name}`" for name in listed) + more


def _is_there(package: str) -> bool:
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # a name that no module can have
        found = None
    more = [str(Path.cwd()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return found is not None or PathFinder.find_spec(package, more) is not None


def _refuse_name(path: Path, name: str, kinds: str) -> None:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise failure(error, str(path)) from None
    except OSError as error:
        raise KernelError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError:  # bytes that are no code: the import tells it
        return
    first = name.partition(".")[0]
    if first in set(_bound(tree)) or any(map(_is_dynamic, ast.walk(tree))) or _ends(tree):
        return
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    likely = [each.name for each in functions if _is_likely(each, kinds)]
    near = difflib.get_close_matches(name, likely, n=1)
    hint = f"its {kinds}: {few(likely)}" if likely else f"it has no {kinds}"
    raise KernelError(
        f"it has no `{name}`" if name else "no name after the module",
        where=str(path),
        hint=f"did you mean `{near[0]}`? {hint}" if near else hint,
    )


def _bound(tree: ast.AST) -> Iterator[str]:
    """Every name that the code binds, at whatever level."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]


def _is_dynamic(node: ast.AST) -> bool:
    """Whether it may bind names that no reader of the code can see."""
    match node:
        case ast.FunctionDef(name=name) | ast.Name(id=name):
            return name in _DYNAMIC
        case ast.alias(name="*") | ast.Attribute(value=ast.Name(id="sys"), attr="modules"):
            return True
        case ast.Attribute(attr="__dict__"):
            return True
    return False


def _ends(tree: ast.Module) -> bool:
    """Whether its import may end the process, which is then what there is to say."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        for each in ast.walk(node):
            match each:
                case ast.Name(id="SystemExit" | "exit" | "quit" | "_exit"):
                    return True
                case ast.Attribute(attr="exit" | "_exit" | "abort"):
                    return True
    return False


def _is_likely(node: ast.FunctionDef, kinds: str) -> bool:
    """Whether a definition looks like one of what is asked for."""
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    if kinds == "functions":
        return "jit" not in decorators
    is_tuned = (
        kinds != "tunable kernels" or re.search(r"\b(kernel|autotune)\b", decorators) is not None
    )
    return is_tuned and "jit" in decorators and not kernelcode.returns_value(node)

"""modules: a reference -> the module it names and the name in it | KernelError.

`/a/b.py:name` or `package.module:name`. A module by path is imported under the name that its
packages give it, found by walking up `__init__.py`, so relative imports work and it is the
module that an `import` elsewhere gets. Only a file that no `import` could name is loaded from
its path. Runs in a worker: a module may print, exit, change directory or never return.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from tritune import blame
from tritune.contract import root
from tritune.errors import KernelError, TrituneError

FILE_HINT = "a kernel must be in a Python file: Triton reads its source from there"
NO_MODULE_HINT = "name it from a folder on PYTHONPATH, or give the path of its file"
BASE = "the sweep file"
NO_GPU_HINT = (
    "use the GPU inside functions only: a sweep also plans and compiles where there is none; "
    "a package that asks for one at its import can be tuned on a machine with a GPU"
)
_HINTS = (
    (r"@jit functions should be defined in a Python file", FILE_HINT),
    (
        r"CUDA|NVIDIA|HIP|active drivers",
        NO_GPU_HINT,
    ),
    (
        r"relative import with no known parent",
        "put an `__init__.py` beside it, which makes its folder a package",
    ),
    (r"^sys\.exit", 'put what a script does under `if __name__ == "__main__":`'),
    (r"^ModuleNotFoundError", f"is it installed for {sys.executable}?"),
)
_OTHERWISE = "import the module in Python to see the whole traceback"


def import_reference(reference: str, base: str = BASE) -> tuple[ModuleType, str]:
    """Import the module; the name after the colon is empty where there is none.

    A path that is no whole one was relative to *base*.
    """
    place, colon, name = reference.rpartition(":")
    place, name = (place, name) if colon else (reference, "")
    if "/" in place or place.endswith((".py", ".ipynb")):
        path = Path(os.path.abspath(place))  # noqa: PTH100  # a link keeps its name
        return _by_path(path, base), name
    return _by_name(place), name


def _by_name(name: str) -> ModuleType:
    if not name:
        raise KernelError("no module before the colon", hint=NO_MODULE_HINT)
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # as `python -m` would, but behind what is installed
    with _guarded(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise KernelError(
                f"no module named `{error.name}`",
                hint=NO_MODULE_HINT,
            ) from error


def _by_path(path: Path, base: str) -> ModuleType:
    check_file(path, base)
    folder = root(path)
    packages = path.parent.relative_to(folder).parts
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    parts = [*packages, *([] if path.stem == "__init__" else [path.stem])]
    with _guarded(str(path)):
        if all(part.isidentifier() for part in parts):
            spec = importlib.util.find_spec(".".join(parts))
            if spec is not None and _is_of(spec, path):
                return importlib.import_module(spec.name)
            if packages:
                raise _hidden(packages[0], path)
        return _from_file(packages, path)


def check_file(path: Path, base: str = BASE) -> None:
    """Refuse what is no file of Python code; the path is absolute, and was relative to *base*."""
    if path.suffix != ".py":
        raise KernelError("it is not a Python file", where=str(path), hint=FILE_HINT)
    if not path.is_file():
        others = [other.name for other in sorted(path.parent.glob("*.py"))]
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"a path is relative to {base}"
        raise KernelError("no such file", where=str(path), hint=hint)


def _is_of(spec: ModuleSpec, path: Path) -> bool:
    return spec.origin is not None and Path(spec.origin).exists() and path.samefile(spec.origin)


def _hidden(package: str, path: Path) -> KernelError:
    found = sys.modules.get(package)
    return KernelError(
        f"`import {package}` finds {getattr(found, '__file__', 'another one')}",
        where=str(path),
        hint="rename the package, or uninstall the other one",
    )


def _from_file(packages: Sequence[str], path: Path) -> ModuleType:
    """For `my-kern.v2.py`, or a file named as a module of Python or of another package."""
    if packages:
        importlib.import_module(".".join(packages))
    name = ".".join([*packages, re.sub(r"\W", "_", path.stem) + "_"])
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise KernelError("it cannot be imported", where=str(path), hint=FILE_HINT)
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def _guarded(place: str) -> Iterator[None]:
    folder = Path.cwd()
    try:
        yield
    except TrituneError:
        raise
    except (Exception, SystemExit) as error:  # a worker's boundary: the module is the user's
        traceback.print_exception(error)
        raise failure(error, place) from error
    finally:
        os.chdir(folder)


def failure(error: BaseException, place: str) -> KernelError:
    """What a module raised at its import, as its author reads it."""
    story = str(traceback.TracebackException.from_exception(error))  # survives any `__str__`
    said = error.msg if isinstance(error, SyntaxError) else story.partition("\n")[0]
    what = f"{type(error).__name__}: {said}"
    if isinstance(error, SystemExit):
        what = f"sys.exit({'' if error.code is None else repr(error.code)}) at import"
    hints = [hint for pattern, hint in _HINTS if re.search(pattern, what)]
    where = blame.line(error) or place
    if isinstance(error, SyntaxError) and error.filename:  # none of a file with null bytes
        where = f"{error.filename}:{error.lineno}"
    return KernelError(what, where=where, hint=[*hints, _OTHERWISE][0])

"""ahead: sweep files -> whether their modules import packages, without importing anything.

A package of kernels makes torch import its compiler, which takes as long as torch itself. Where
one is coming, that is imported once, in the server that every worker is forked from.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

_REFERENCE = re.compile(r"^(?:problem|kernel)\s*:\s*[\"']?([^\s\"'#:]+)", re.MULTILINE)
_LIGHT = sys.stdlib_module_names | {"torch", "triton", "numpy", "tritune"}


def imports_packages(files: Iterable[Path]) -> bool:
    """A file that is not there, or wrong, imports nothing: who reads it says so."""
    return any(_comes_with(file) for file in files)


def _comes_with(file: Path) -> bool:
    for place in _REFERENCE.findall(_text(file)):
        if not place.endswith(".py"):
            return True
        module = file.parent / place
        if any(name not in _LIGHT and not _is_beside(module, name) for name in _imported(module)):
            return True
    return False


def _imported(module: Path) -> Iterator[str]:
    try:
        tree = ast.parse(_text(module))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def _is_beside(module: Path, name: str) -> bool:
    return module.with_name(f"{name}.py").exists() or module.with_name(name).is_dir()


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""

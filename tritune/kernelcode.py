"""kernelcode: the code of a jit function -> what it tells of its arguments and of its launch.

Only what the code says plainly: whoever needs to be sure runs the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tritune.contract import Function

_ADDRESSED = frozenset({"load", "store", "make_block_ptr", "make_tensor_descriptor"})
"""Calls whose first argument is an address; so is that of `atomic_add` and its like."""

_VALUES = (ast.BinOp, ast.Compare, ast.IfExp, ast.Name, ast.Subscript, ast.Tuple, ast.UnaryOp)


def truths(tree: ast.AST, function: Function) -> set[str]:
    """Those with such a default, or that are asked for as in `if NAME` and never computed with."""
    nodes = [*ast.walk(tree)]
    asked = {
        name for one in nodes if isinstance(one, (ast.If, ast.IfExp)) for name in _bare(one.test)
    }
    computed = {
        name.id
        for one in nodes
        if isinstance(one, (ast.BinOp, ast.Compare))
        for name in ast.iter_child_nodes(one)
        if isinstance(name, ast.Name)
    }
    known = {name for name, value in function.defaults if isinstance(value, bool)}
    return known | (asked - computed)


def _bare(test: ast.expr) -> Iterator[str]:
    """The names that a condition asks for as they are."""
    match test:
        case ast.Name(id=name):
            yield name
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _bare(inner)
        case ast.BoolOp(values=parts):
            for part in parts:
                yield from _bare(part)


def pointers(tree: ast.AST) -> set[str]:
    """The names that addresses begin with, also through what is assigned in between."""
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    found = {name for one in calls if _is_addressed(one) for name in _first(one)}
    begins = dict(_assigned(tree))
    todo = [*found]
    while todo:
        for name in begins.get(todo.pop(), set()) - found:
            found.add(name)
            todo.append(name)
    return found


def _is_addressed(call: ast.Call) -> bool:
    """Whether it is `tl.load(...)` or another one that takes an address."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in _ADDRESSED or name.startswith("atomic_")


def _first(call: ast.Call) -> set[str]:
    arguments = [
        *call.args,
        *(one.value for one in call.keywords if one.arg in {"base", "pointer"}),
    ]
    return {name for name in map(_begin, arguments[:1]) if name}


def _assigned(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Every name that is assigned, with the names that what it is assigned begins with."""
    begins: dict[str, set[str]] = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.Assign) and (name := _begin(one.value)):
            for target in one.targets:
                if isinstance(target, ast.Name):
                    begins.setdefault(target.id, set()).add(name)
    yield from begins.items()


def _begin(address: ast.expr) -> str:
    """The name that a sum begins with, as people write addresses; empty where there is none."""
    match address:
        case ast.Name(id=name):
            return name
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
            return _begin(left)
        case ast.Call() if _is_addressed(address):
            is_made = isinstance(address.func, ast.Attribute) and "make" in address.func.attr
            return next(iter(_first(address)), "") if is_made else ""
    return ""


def returns_value(tree: ast.AST) -> bool:
    """Whether it is called by other kernels only: what a launch runs can return nothing."""
    returned = (one.value for one in ast.walk(tree) if isinstance(one, ast.Return))
    return any(isinstance(one, _VALUES) or _is_computed(one) for one in returned)


def _is_computed(returned: ast.expr | None) -> bool:
    """Of a call of what may be another jit function there is no telling."""
    match returned:
        case ast.Call(func=ast.Attribute(attr=name)):
            return not name.startswith(("store", "atomic_", "debug_", "device_", "static_"))
    return False


def is_assigned(tree: ast.AST) -> bool:
    """Whether no decorator stands above it, so that an assignment has made a kernel of it."""
    defined = next((one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)), None)
    return defined is not None and not defined.decorator_list

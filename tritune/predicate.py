"""predicate: a constraint's text and the values it names -> whether it holds.

The tiny half of a constraint language that production needs: a lockfile is data, so nothing
in it is evaluated as Python. Sweep files are checked elsewhere, with better messages.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

FACTS = ("arch", "backend", "shared_bytes", "sms")
"""What a constraint may name of the device."""
LARGEST_POWER = 64
"""`2 ** 10 ** 9` in a damaged lockfile must not stop a server."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.RShift: operator.rshift,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "abs": abs,
    "cdiv": lambda x, y: -(x // -y),
    "next_power_of_2": lambda n: 1 << (n - 1).bit_length() if n > 0 else 1,
}


_PARTS = (
    *(ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.List, ast.UnaryOp, ast.BinOp, ast.BoolOp),
    *(ast.And, ast.Or, ast.IfExp, ast.Compare, ast.Pow, ast.LShift),
    *(*_BINARY, *_COMPARE, *_UNARY),
)


class CannotTellError(Exception):
    """The constraint names what is not known here, or is not a constraint."""


def names(text: str) -> frozenset[str]:
    """The names in a constraint; `CannotTellError` where it is none, whatever they stand for."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CannotTellError(f"`{text}`") from error
    if isinstance(tree, (ast.BinOp, ast.Tuple, ast.List)):
        raise CannotTellError(f"`{text}` is neither true nor false")
    found, called = set(), {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not _is_part(node):
            raise CannotTellError(f"`{text}`")
        if isinstance(node, ast.Name) and id(node) not in called:
            found.add(node.id)
    return frozenset(found)


def _is_part(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return name in _CALLS
        case _:
            return isinstance(node, _PARTS)


def holds(text: str, names: Mapping[str, Any]) -> bool:
    """Whether the constraint *text* is true of *names*; `CannotTellError` where it has no value."""
    try:
        answer = _value(ast.parse(text.strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise CannotTellError(f"`{text}`: {error}") from error
    if not isinstance(answer, bool):
        raise CannotTellError(f"`{text}` is neither true nor false")
    return answer


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _named(name, names)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_value(item, names) for item in items)
        case ast.UnaryOp(op=op, operand=operand):
            return _operation(_UNARY, op)(_value(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _value(left, names), _value(right, names))
        case _:
            return _condition(node, names)


def _condition(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, names) for value in values)
        case ast.BoolOp(values=values):
            return any(_value(value, names) for value in values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(item, names) for item in (left, *others)]
            pairs = zip(ops, values, values[1:], strict=False)
            return all(_operation(_COMPARE, op)(a, b) for op, a, b in pairs)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
            return _CALLS[name](*(_value(arg, names) for arg in args))
        case _:
            raise CannotTellError(f"`{ast.unparse(node)}` is not part of a constraint")


def _named(name: str, names: Mapping[str, Any]) -> Any:
    if name not in names:
        raise CannotTellError(f"`{name}` is not known at a launch")
    return names[name]


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.Pow, ast.LShift)):
        if not 0 <= right <= LARGEST_POWER:
            raise CannotTellError(f"a power of {right}")
        return left**right if isinstance(op, ast.Pow) else left << right
    return _operation(_BINARY, op)(left, right)


def _operation(table: Mapping[Any, Callable[..., Any]], op: ast.AST) -> Callable[..., Any]:
    if type(op) not in table:
        raise CannotTellError(f"`{type(op).__name__}` is not part of a constraint")
    return table[type(op)]

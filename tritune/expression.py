"""expression: the text of a constraint -> the names it uses; with values -> true or false.

Evaluated by simpleeval after the text was reduced to a small language: numbers, comparison,
`and`, `or`, `not`, `in`, `if else`, and five functions. No attributes, no indexing, no
arithmetic on text, and no number beyond 256 bits, so no constraint can cost time or reach
anything. Knows nothing of sweeps and files.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from simpleeval import EvalWithCompoundTypes, InvalidExpression

from tritune.model import Target, Value

FACTS = ("arch", "backend", "l2_bytes", "shared_bytes", "sms", "warp_size")
"""What a constraint may name of the target, under the names of `Target`'s fields."""

_BITS = 256
_LONGEST = 1000


class ConstraintError(ValueError):
    """The text is no constraint, or cannot be evaluated; the message says why."""

    hint = ""
    """What to write instead, where that is sure."""


def cdiv(a: float, b: float) -> float:
    return -(-a // b)


def next_power_of_2(n: float) -> int:
    return 1 << max(math.ceil(n) - 1, 0).bit_length()


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        what = "nothing" if value is None else f"{value!r}"
        raise ConstraintError(f"{what} is not a number")
    if isinstance(value, int) and value.bit_length() > _BITS:
        raise ConstraintError("a number is too large")
    return value


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers in, a number out."""

    def call(*arguments: Any) -> Any:
        return _number(function(*(_number(argument) for argument in arguments)))

    return call


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > _BITS:
        raise ConstraintError("an exponent is too large")
    if base < 0 and isinstance(exponent, float) and not exponent.is_integer():
        raise ConstraintError("the root of a negative number")
    return base**exponent


def _shift(value: Any, bits: Any) -> Any:
    if abs(bits) > _BITS:
        raise ConstraintError("a shift is too large")
    return value << bits


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": _guarded(abs),
    "cdiv": _guarded(cdiv),
    "max": _guarded(max),
    "min": _guarded(min),
    "next_power_of_2": _guarded(next_power_of_2),
}

_ARITHMETIC: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _guarded(operator.add),
    ast.Sub: _guarded(operator.sub),
    ast.Mult: _guarded(operator.mul),
    ast.Div: _guarded(operator.truediv),
    ast.FloorDiv: _guarded(operator.floordiv),
    ast.Mod: _guarded(operator.mod),
    ast.Pow: _guarded(_power),
    ast.LShift: _guarded(_shift),
    ast.RShift: _guarded(operator.rshift),
    ast.BitAnd: _guarded(operator.and_),
    ast.BitOr: _guarded(operator.or_),
    ast.UAdd: _guarded(operator.pos),
    ast.USub: _guarded(operator.neg),
}
_LOGIC: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_OPERATORS = {**_ARITHMETIC, **_LOGIC}
_SHAPES: tuple[type[ast.AST], ...] = (
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.Compare,
    ast.IfExp,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Call,
    ast.Tuple,
    ast.List,
    *_OPERATORS,
)
_NEVER_TRUTH = (ast.BinOp, ast.Tuple, ast.List)


class _Evaluator(EvalWithCompoundTypes):  # type: ignore[misc]
    """simpleeval with our operators and functions, and nothing of its own."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        super().__init__(operators=_OPERATORS, functions=dict(FUNCTIONS), names=dict(values))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ConstraintError(f"longer than {_LONGEST} characters")
    tree = _tree(text)
    if tree is None:
        error = ConstraintError("not an expression")
        error.hint = _meant(text)
        raise error
    for node in ast.walk(tree):
        _allow(node)
    if isinstance(tree, _NEVER_TRUTH):
        raise ConstraintError("not a comparison")
    return tree


def _tree(text: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # `1if A` warns, with no place, on the terminal
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, Warning, ValueError, RecursionError, MemoryError):
        return None


def _meant(text: str) -> str:
    """How it is written, where it is as in another language."""
    for pattern, instead in _SLIPS:
        text = re.sub(rf"\s*{pattern}\s*", f" {instead} ", text)
    return f"write `{text.strip()}`" if _tree(text) is not None else ""


_SLIPS = (("&&", "and"), (r"\|\|", "or"), ("=<", "<="), ("=>", ">="), ("(?<![=!<>])=(?!=)", "=="))


def unquoted(names: Iterable[str], texts: Collection[Value]) -> str:
    """What to write where a name that nothing has is a text; empty where none is."""
    return next((f'quote it: "{name}"' for name in sorted(names) if name in texts), "")


def _allow(node: ast.AST) -> None:
    if not isinstance(node, _SHAPES):
        raise ConstraintError(f"{_WORDS.get(type(node), 'this')} is not allowed")
    match node:
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return
        case ast.Call():
            raise ConstraintError(f"calls something other than {', '.join(sorted(FUNCTIONS))}")
        case ast.Constant(value=bytes() | complex()):
            raise ConstraintError("neither a number nor a name")


_WORDS: Mapping[type[ast.AST], str] = {
    ast.Attribute: "an attribute",
    ast.Subscript: "indexing",
    ast.Lambda: "a function",
    ast.JoinedStr: "a formatted string",
    ast.NamedExpr: "an assignment",
}


def names(text: str) -> frozenset[str]:
    """The names a constraint uses; a ConstraintError where it is no constraint."""
    tree = _parsed(text)
    calls = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = (
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in calls
    )
    return frozenset(node.id for node in found)


def truth(text: str, values: Mapping[str, Value]) -> bool:
    """Whether it holds; a ConstraintError where these values give it no answer."""
    tree = _parsed(text)
    try:
        answer = _Evaluator(values).eval(text, previously_parsed=tree)
    except ZeroDivisionError:
        raise ConstraintError("division by zero") from None
    except OverflowError:
        raise ConstraintError("a number is too large") from None
    except RecursionError:
        raise ConstraintError("nested too deep") from None
    except (TypeError, ValueError, InvalidExpression) as error:
        raise ConstraintError(str(error)) from None
    if not isinstance(answer, bool):
        raise ConstraintError(f"it gives {answer!r}, neither true nor false")
    return answer


def facts(target: Target) -> dict[str, Value]:
    """The facts of a target that a constraint may name."""
    return {name: getattr(target, name) for name in FACTS}

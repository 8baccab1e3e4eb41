"""axisvalues: what the file says of one axis -> its values, and every mistake in them.

One rule set for tunables and for axes of problems, which differ in three words: a problem
has no launch options, takes no null, and may have truth values under any name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tritune.model import LAUNCH_OPTIONS, Value
from tritune.yamltext import LARGEST, Loc, Odd, got, looks_like_number

MOST_VALUES = 10_000
"""More values than this on one axis is a slip of the pen, not a space."""

_NEEDED = frozenset({"num_warps", "num_stages", "num_ctas"})
_FORMS = ("range", "pow2")
_ONE_ITEM = "write one value an item"


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake below an axis: the way to it from there, what, and what next."""

    loc: Loc
    what: str
    hint: str = ""


@dataclass(slots=True)
class Expansion:
    """The values of one axis; the slips found while they were made."""

    values: tuple[Value, ...] = ()
    slips: list[Slip] = field(default_factory=list)

    def slip(self, loc: Loc, what: str, hint: str = "") -> None:
        self.slips.append(Slip(loc, what, hint))


def near(name: str, known: Iterator[str] | tuple[str, ...] | list[str]) -> str | None:
    """The one of *known* that a writer of *name* probably meant."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def tunable(name: str, raw: Any) -> Expansion:
    """The values of one axis of `space:`."""
    return _expand(name, raw, problem=False)


def problem_axis(name: str, raw: Any) -> Expansion:
    """The values of one axis of one row of `shapes:`."""
    return _expand(name, raw, problem=True)


def _expand(name: str, raw: Any, *, problem: bool) -> Expansion:
    made = Expansion()
    if isinstance(raw, dict):
        made.values = tuple(_form(raw, made))
        # A negative end of a range is refused as the same number in a list is.
        ends = made.values if len(made.values) < 2 else (made.values[0], made.values[-1])
        _check(name, list(ends), (), made, problem=problem)
    elif isinstance(raw, list):
        if not raw:
            made.slip((), "expected at least one value, got an empty list")
        _check(name, raw, (0,), made, problem=problem)
        made.values = () if made.slips else tuple(dict.fromkeys(raw))
    else:
        _check(name, [raw], (), made, problem=problem)
        made.values = () if made.slips else (raw,)
    if len(made.values) > MOST_VALUES:
        made.slip((), f"{len(made.values)} values; an axis takes at most {MOST_VALUES}")
    return made


def _check(name: str, items: list[Any], at: Loc, made: Expansion, *, problem: bool) -> None:
    option = name in LAUNCH_OPTIONS and not problem
    kind = "an integer" if option else _wanted(name, items, problem=problem)
    for index, item in enumerate(items):
        slip = _option_slip(name, item) if option else None
        slip = slip or _slip(item, kind, problem=problem, option=option)
        if slip:
            made.slip((index,) if at else (), *slip)


def _wanted(name: str, items: list[Any], *, problem: bool) -> str:
    """What the values of a list agree on; numbers win, as that is what a slip hides."""
    numbers = [item for item in items if isinstance(item, (int, float)) and item not in (True, False)]
    numbers += [item for item in items if type(item) in (int, float) and item in (0, 1)]
    floats = [item for item in numbers if isinstance(item, float)]
    if "BLOCK" in name or (numbers and all(item.is_integer() for item in floats) and _ints(numbers)):
        return "an integer"
    if numbers or any(isinstance(item, str) and looks_like_number(item) for item in items):
        return "a number"
    if any(isinstance(item, bool) for item in items):
        return "true or false" if problem or name.isupper() else "a number"
    return "text"


def _ints(numbers: list[Any]) -> bool:
    return any(isinstance(item, int) for item in numbers)


def _slip(item: Any, kind: str, *, problem: bool, option: bool) -> tuple[str, str] | None:
    what = f"expected {kind}, got {got(item)}"
    match item:
        case None:
            hint = "write the value, or remove the axis"
            return (f"expected a value, got {got(item)}", hint) if problem else None
        case list() | dict():
            return f"expected a single value, got {got(item)}", _ONE_ITEM
        case Odd(text=text):
            return what, _unquote(text, kind)
        case bool() if kind != "true or false":
            return what, "write a number" if option else _about_truth(kind)
        case bool():
            return None
        case str() if kind != "text":
            return what, f"write {item} without the quotes" if looks_like_number(item) else ""
        case float() | int():
            return _number_slip(item, kind, what)
    return None


def _unquote(text: str, kind: str) -> str:
    if kind == "true or false":
        return "write true or false"
    return f'quote it: "{text}"' if kind == "text" else "write a number"


def _about_truth(kind: str) -> str:
    return "write a number; an axis of true and false has an upper-case name and no numbers"[
        : None if kind == "a number" else len("write a number")
    ]


def _number_slip(item: float, kind: str, what: str) -> tuple[str, str] | None:
    if not math.isfinite(item):
        return f"expected {kind}, got {item}", "write a finite number"
    if abs(item) > LARGEST:
        return f"expected {kind} of at most 64 bits, got {item}", ""
    if kind == "an integer" and isinstance(item, float):
        return what, f"write {int(item)}" if item.is_integer() else ""
    if kind == "true or false":
        return what, "write true or false"
    return None


def _option_slip(name: str, item: Any) -> tuple[str, str] | None:
    if item is None and name in _NEEDED:
        return f"expected an integer, got {got(item)}", "write a number"
    if isinstance(item, int) and not isinstance(item, bool) and item < 0:
        return f"expected an integer of at least 0, got {item}", ""
    return None


def _form(raw: dict[str, Any], made: Expansion) -> Iterator[int]:
    """`{range: [a, b, step]}` or `{pow2: [a, b]}`."""
    for key in [key for key in raw if key not in _FORMS]:
        guess = near(key, _FORMS)
        made.slip((key,), f"unknown key `{key}`", _did_you_mean(guess, _FORMS))
    if made.slips:
        return iter(())
    if len(raw) != 1:
        made.slip((), "expected one of `range` and `pow2`", "write {range: [2, 5]}")
        return iter(())
    form, ends = next(iter(raw.items()))
    most = 3 if form == "range" else 2
    if not isinstance(ends, list) or not 2 <= len(ends) <= most:
        shape = "[first, last] or [first, last, step]" if form == "range" else "[first, last]"
        made.slip((form,), f"expected {shape}, got {_size(ends)}")
        return iter(())
    for index, end in enumerate(ends):
        if type(end) is not int:
            slip = _slip(end, "an integer", problem=True, option=True)
            made.slip((form, index), *(slip or (f"expected an integer, got {got(end)}",)))
    if made.slips:
        return iter(())
    return _range(ends, made) if form == "range" else _powers(ends, made)


def _size(ends: Any) -> str:
    return f"{len(ends)} values" if isinstance(ends, list) else got(ends)


def _did_you_mean(guess: str | None, known: tuple[str, ...] | list[str]) -> str:
    return f"did you mean `{guess}`?" if guess else f"it has {', '.join(known)}"


def _range(ends: list[int], made: Expansion) -> Iterator[int]:
    first, last, step = (*ends, 1)[:3]
    if step < 1:
        made.slip(("range", 2), f"expected a step of at least 1, got {step}")
    elif last < first:
        made.slip(("range",), f"{last} is less than {first}", "write the smaller one first")
    elif (last - first) % step:
        below = last - (last - first) % step
        what = f"{last} is not reached from {first} in steps of {step}"
        made.slip(("range",), what, f"end at {below} or at {below + step}")
    elif (last - first) // step >= MOST_VALUES:
        count = (last - first) // step + 1
        made.slip((), f"{count} values; an axis takes at most {MOST_VALUES}")
    else:
        return iter(range(first, last + 1, step))
    return iter(())


def _powers(ends: list[int], made: Expansion) -> Iterator[int]:
    for index, end in enumerate(ends):
        if end < 1 or end & (end - 1):
            made.slip(("pow2", index), f"expected a power of two, got {end}", _nearest(end))
    first, last = ends
    if last < first and not made.slips:
        made.slip(("pow2",), f"{last} is less than {first}", "write the smaller one first")
    if made.slips or last > LARGEST:
        return iter(())
    return iter([1 << power for power in range(first.bit_length() - 1, last.bit_length())])


def _nearest(end: int) -> str:
    if end < 1:
        return "the smallest is 1"
    below = 1 << (end.bit_length() - 1)
    return f"write {below} or {2 * below}"

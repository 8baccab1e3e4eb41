"""axisvalues: what the file says of one axis -> its values, and every mistake in them.

One rule set for tunables and for axes of problems, which differ in three words: a problem
has no launch options, takes no null, and may have truth values under any name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritune import launchoptions
from tritune.launchoptions import NUMBER, nearest
from tritune.model import LAUNCH_OPTIONS, Value
from tritune.words import plural
from tritune.yamlscalars import LARGEST, Odd, got, looks_like_number
from tritune.yamltext import Loc

MOST_VALUES = 10_000
"""More values than this on one axis is a slip of the pen, not a space."""

_NEEDED = frozenset({"num_warps", "num_stages", "num_ctas"})
_FORMS = ("range", "pow2")
_EXAMPLE = {"range": "write {range: [2, 5]}", "pow2": "write {pow2: [16, 256]}"}
_TRUTH = "write a number; a tunable that is true or false has an upper-case name"
_ONE_KIND = "the values of an axis are of one kind"


@dataclass(frozen=True, slots=True)
class Slip:
    """A mistake below an axis: the way to it from there, what, and what next."""

    loc: Loc
    what: str
    hint: str = ""
    at_key: bool = False


@dataclass(slots=True)
class Expansion:
    """The values of one axis; the slips found while they were made."""

    values: tuple[Value, ...] = ()
    slips: list[Slip] = field(default_factory=list)

    def slip(self, loc: Loc, what: str, hint: str = "", *, at_key: bool = False) -> None:
        self.slips.append(Slip(loc, what, hint, at_key))


def near(name: str, known: Iterable[str]) -> str | None:
    """The one of *known* that a writer of *name* probably meant."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def near_file(path: Path) -> Path | None:
    """The file beside *path*, which is none, that a writer of its name probably meant."""
    with suppress(OSError):  # a name too long, a folder that may not be read
        if path.exists():
            return None
        others = [one for one in sorted(path.parent.iterdir()) if one.suffix == path.suffix]
        by_stem = {one.stem: one for one in others if one.is_file()}
        return by_stem.get(near(path.stem, by_stem) or "")
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    known = tuple(known)
    guess = near(name, known)
    return f"did you mean `{guess}`?" if guess else f"known: {', '.join(known)}"


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
        # What a list may not hold is refused at the place of the whole, and once.
        known = len(made.slips)
        _check(name, list(made.values), (), made, problem=problem)
        del made.slips[known + 1 :]
    elif isinstance(raw, list):
        if not raw:
            what = "expected at least one value, got an empty list"
            made.slip((), what, "add one, or remove the axis")
        _check(name, raw, (0,), made, problem=problem)
        made.values = () if made.slips else tuple(dict.fromkeys(raw))
    else:
        _check(name, [raw], (), made, problem=problem)
        made.values = () if made.slips else (raw,)
    if len(made.values) > MOST_VALUES:
        _too_many(len(made.values), made)
    return made


def _too_many(count: int, made: Expansion) -> None:
    what = f"{count} values; an axis takes at most {MOST_VALUES}"
    made.slip((), what, "take fewer, or a step")


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
    numbers = [item for item in items if type(item) in (int, float)]
    fractions = [item for item in numbers if isinstance(item, float) and not item.is_integer()]
    if name.startswith("BLOCK") or (not fractions and any(type(item) is int for item in numbers)):
        return "an integer"
    if numbers or any(isinstance(item, str) and looks_like_number(item) for item in items):
        return "a number"
    if any(isinstance(item, bool) for item in items):
        return "true or false" if problem or name.isupper() else "a number"
    return "text" if any(isinstance(item, str) for item in items) else "a value"


def _slip(item: Any, kind: str, *, problem: bool, option: bool) -> tuple[str, str] | None:
    if isinstance(item, (list, dict)):
        return f"expected a single value, got {got(item)}", "write one value an item"
    if item is None:
        hint = "write the value, or remove the axis"
        return (f"expected a value, got {got(item)}", hint) if problem else None
    return _scalar_slip(item, kind, option=option)


def _scalar_slip(item: Any, kind: str, *, option: bool) -> tuple[str, str] | None:
    what = f"expected {kind}, got {got(item)}"
    match item:
        case Odd(text=text):
            return what, _written_out(text, kind)
        case bool() if kind != "true or false":
            return what, NUMBER if option or kind == "an integer" else _TRUTH
        case str() if kind != "text":
            fix = f"write {item} without the quotes" if looks_like_number(item) else _ONE_KIND
            return what, fix
        case float() | int() if not isinstance(item, bool):
            return _number_slip(item, kind, what)
    return None


def _written_out(text: str, kind: str) -> str:
    if kind == "true or false":
        return "write true or false"
    quoted = f'quote it: "{text}"'
    return {"text": quoted, "a value": f"{NUMBER}, or {quoted}"}.get(kind, NUMBER)


def _number_slip(item: float, kind: str, what: str) -> tuple[str, str] | None:
    if not math.isfinite(item):
        return f"expected {kind}, got {item}", "write a finite number"
    if abs(item) > LARGEST:
        return f"expected {kind} of at most 64 bits, got {item}", "write a smaller one"
    if kind == "an integer" and isinstance(item, float):
        return what, f"write {round(item)}"
    if kind == "text":
        return what, _ONE_KIND
    return None


def _option_slip(name: str, item: Any) -> tuple[str, str] | None:
    if item is None and name in _NEEDED:
        return f"expected an integer, got {got(item)}", "write a number"
    if not isinstance(item, int) or isinstance(item, bool):
        return None
    return launchoptions.slip(name, item)


def _form(raw: dict[str, Any], made: Expansion) -> Iterator[int]:
    """`{range: [a, b, step]}` or `{pow2: [a, b]}`."""
    for key in [key for key in raw if key not in _FORMS]:
        made.slip((key,), f"unknown key `{key}`", did_you_mean(key, _FORMS), at_key=True)
    if made.slips:
        return iter(())
    if len(raw) != 1:
        made.slip((), "expected one of `range` and `pow2`", _EXAMPLE["range"])
        return iter(())
    form, ends = next(iter(raw.items()))
    most = 3 if form == "range" else 2
    if not isinstance(ends, list) or not 2 <= len(ends) <= most:
        shape = "[first, last] or [first, last, step]" if form == "range" else "[first, last]"
        made.slip((form,), f"expected {shape}, got {_size(ends)}", _EXAMPLE[form])
        return iter(())
    for index, end in enumerate(ends):
        if type(end) is not int:
            slip = _slip(end, "an integer", problem=True, option=True)
            made.slip((form, index), *(slip or (f"expected an integer, got {got(end)}",)))
    if made.slips:
        return iter(())
    return _range(ends, made) if form == "range" else _powers(ends, made)


def _size(ends: Any) -> str:
    return plural(len(ends), "value") if isinstance(ends, list) else got(ends)


def _range(ends: list[int], made: Expansion) -> Iterator[int]:
    first, last, step = (*ends, 1)[:3]
    if step < 1:
        made.slip(("range", 2), f"expected a step of at least 1, got {step}", NUMBER)
    elif last < first:
        made.slip(("range",), f"{last} is less than {first}", "write the smaller one first")
    elif (last - first) % step:
        below = last - (last - first) % step
        what = f"{last} is not reached from {first} in steps of {step}"
        made.slip(("range",), what, f"end at {below} or at {below + step}")
    elif (last - first) // step >= MOST_VALUES:
        _too_many((last - first) // step + 1, made)
    else:
        return iter(range(first, last + 1, step))
    return iter(())


def _powers(ends: list[int], made: Expansion) -> Iterator[int]:
    for index, end in enumerate(ends):
        if end < 1 or end & (end - 1):
            made.slip(("pow2", index), f"expected a power of two, got {end}", nearest(end))
    first, last = ends
    if last < first and not made.slips:
        made.slip(("pow2",), f"{last} is less than {first}", "write the smaller one first")
    if made.slips or last > LARGEST:
        return iter(())
    return iter([1 << power for power in range(first.bit_length() - 1, last.bit_length())])

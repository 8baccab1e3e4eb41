"""draft: Subject -> the text of a first sweep file.

Pure. A gap is an empty value beside `FILL IN`, which the reader of sweep files refuses at its
line: a placeholder that reads as a text would be swept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tritune.model import Value
from tritune.subject import AUTOTUNED, JIT, TUNABLE, Subject
from tritune.words import plural

GAP = "FILL IN"

_LIKE_SIZES = re.compile(r"[A-Z][A-Z0-9]{0,2}|n|[nN]_\w+|\w*(rows|cols|columns|numel|elements|len)")
_LIKE_POINTERS = re.compile(r"(?i)\w*(ptr|stride)\w*")
_LIKE_TILES = re.compile(r"\w*(BLOCK|TILE|CHUNK|GROUP|SPLIT|STAGES)\w*")
_DTYPES = frozenset({"dtype", "out_dtype"})
_Axes = Mapping[str, tuple[Value, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """How the files name each other."""

    kernel: str
    """The kernel, as the sweep file has it."""
    problem: str = ""
    """The skeleton, as the sweep file has it; empty where the kernel has a problem function."""
    sweep: str = ""
    """The sweep file, from the folder one stands in."""


def sweep_text(subject: Subject, places: Places, target: str) -> str:
    """A sweep file that is right once its gaps are filled."""
    head = f"# What to try of `{subject.short}`, and for which problems; {GAP} marks what is open."
    return "\n".join(
        [
            head,
            _kernel(subject, places),
            *([f"problem: {places.problem}"] if places.problem else []),
            *targets(target),
            "",
            *_space(subject),
            "",
            "# A constraint rules configs out before they compile; it may name the problem's axes.",
            "# constraints:",
            "#   - num_warps <= 8",
            "",
            *_shapes(subject),
            "",
            "# Small problems, with sizes that no block divides: Triton's interpreter runs them.",
            "# smoke:",
            f"#   - {{{', '.join(_example(name, subject) for name in axes_of(subject))}}}",
            "",
        ]
    )


def _kernel(subject: Subject, places: Places) -> str:
    if needs_copy(subject):
        return f"kernel:  # {GAP}: your own copy of {places.kernel}, which has no autotuner"
    return f"kernel: {places.kernel}"


def targets(target: str) -> list[str]:
    """The line of a sweep file that says where it ships."""
    if target:
        return [f"targets: [{target}]"]
    return ["# targets: [H200]  # the GPUs it ships on; needed where a sweep has no GPU"]


def _space(subject: Subject) -> Iterator[str]:
    axes = _axis_values(subject)
    if subject.odd:
        names = ", ".join(subject.odd)
        yield f"# Not here: {names}, whose values are no numbers, truth values or texts."
    if subject.is_installed and subject.kind == AUTOTUNED:
        yield from _beyond_list(len(subject.configs), axes)
    elif len(subject.configs) > 1:
        yield from _product(len(subject.configs), axes)
    elif subject.kind == JIT:
        yield "# A first guess, of what its constexprs look like: put in what it can run with."
        if left := passed(subject):
            listed = ", ".join(left)
            yield f"# The caller passes {listed}; put one here, and into default=, to tune it."
        yield from _axes(axes)
    else:
        yield from guessed_space(default_of(subject))


def _beyond_list(listed: int, axes: _Axes) -> Iterator[str]:
    yield f"# Its author's own list of {plural(listed, 'config')} is tried. A `space:` beyond it"
    yield "# needs `constraints:` that say what is valid: a config that nobody listed"
    yield "# may write out of bounds."
    yield from (f"# {text}" for text in _axes(axes))


def _product(listed: int, axes: _Axes) -> Iterator[str]:
    product = math.prod(len(values) for values in axes.values())
    yield f"# The values in its own list of {listed} configs. Their product is"
    if product > listed:
        yield f"# {product:,} configs, wider than the list: see that the kernel is right with"
        yield "# all of them, or leave `space:` out, which tries exactly the list."
    else:
        yield "# that list, which leaving `space:` out tries as well."
    yield from _axes(axes)


def guessed_space(default: Mapping[str, Value]) -> Iterator[str]:
    """The lines of a space around what a kernel runs with now."""
    yield "# A first guess around what the kernel runs with now: widen it, or narrow it."
    yield from _axes({name: _around(name, value) for name, value in default.items()})


def _axes(axes: _Axes) -> Iterator[str]:
    yield "space:"
    for name, values in axes.items():
        yield f"  {name}: [{', '.join(map(_yaml, values))}]"


def _axis_values(subject: Subject) -> dict[str, tuple[Value, ...]]:
    if len(subject.configs) > 1:
        names = _in_order(subject, {name: None for one in subject.configs for name in one})
        listed = [one.as_dict() for one in subject.configs]
        return {n: _sorted({one[n]: None for one in listed if n in one}) for n in names}
    return {name: _around(name, value) for name, value in default_of(subject).items()}


def _in_order(subject: Subject, values: Mapping[str, object]) -> list[str]:
    """Meta-parameters in the order of the signature, then launch options."""
    names = [name for name in subject.params if name in values]
    return [*names, *(name for name in values if name not in names)]


def _sorted(values: dict[Value, None]) -> tuple[Value, ...]:
    numbers = [one for one in values if isinstance(one, (int, float))]
    return (*sorted(numbers), *(one for one in values if one not in numbers))


def _around(name: str, value: Value) -> tuple[Value, ...]:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return (value,)
    if name == "num_stages":
        return tuple(sorted({max(value - 1, 1), value, value + 1}))
    if value & (value - 1):
        return (value,)
    most = 32 if name == "num_warps" else 2 * value
    return tuple(one for one in (value // 2, value, 2 * value) if 1 <= one <= most)


def default_of(subject: Subject) -> dict[str, Value]:
    """Its default; a guess for a bare jit function, which has none."""
    if subject.kind != JIT:
        values = subject.default.as_dict()
        return {name: values[name] for name in _in_order(subject, values)}
    tiles = [name for name in subject.constexprs if _LIKE_TILES.fullmatch(name)]
    guess: dict[str, Value] = {name: 8 if "GROUP" in name else 64 for name in tiles}
    return {**guess, "num_warps": 4}


def passed(subject: Subject) -> list[str]:
    return [name for name in subject.constexprs if name not in default_of(subject)]


def _shapes(subject: Subject) -> Iterator[str]:
    yield "# One row for each group of problems: a row with several values is their product."
    yield "shapes:"
    lead = "  - "
    for name in axes_of(subject):
        known = "float16" if name in _DTYPES else ""
        several = "[true, false]" if name in subject.truths else "[1, 64, 4096]"
        said = "or a list: [float16, bfloat16]" if known else f"{GAP}: one value, or {several}"
        yield f"{lead}{name}: {known}  # {said}" if known else f"{lead}{name}:  # {said}"
        lead = "    "
    if optional := [name for name, has_default in subject.problem_params if has_default]:
        yield f"    # left to their defaults: {', '.join(optional)}"


def axes_of(subject: Subject) -> list[str]:
    """The axes of a problem: what its function needs, else what the kernel's key names."""
    if subject.problem:
        return [name for name, has_default in subject.problem_params if not has_default] or [
            name for name, _ in subject.problem_params
        ][:1]
    return [*key_of(subject), "dtype"]


def key_of(subject: Subject) -> list[str]:
    """Its key; for a bare jit function, the arguments that look like sizes."""
    named = [name for name in subject.key if name != "dtype"]
    if named or subject.kind == TUNABLE:
        return named
    plain = [name for name in subject.params if name not in subject.constexprs]
    plain = [name for name in plain if name not in subject.pointers]
    return [n for n in plain if _LIKE_SIZES.fullmatch(n) and not _LIKE_POINTERS.fullmatch(n)]


def _example(name: str, subject: Subject) -> str:
    if name in _DTYPES:
        return f"{name}: float16"
    return f"{name}: {'true' if name in subject.truths else 100}"


def _yaml(value: Value) -> str:
    return "null" if value is None else json.dumps(value)


def needs_copy(subject: Subject) -> bool:
    """Whether it is in somebody else's file, and there is no autotuner to put winners into."""
    return subject.is_installed and subject.kind == JIT


def decorator(subject: Subject) -> str:
    """The line that a kernel lacks; empty where it has it, or needs none."""
    if subject.kind == TUNABLE or (subject.is_installed and subject.kind == AUTOTUNED):
        return ""
    if subject.kind == AUTOTUNED:
        return "@tritune.kernel"
    default = ", ".join(f"{name}={value!r}" for name, value in default_of(subject).items())
    return f"@tritune.kernel(key={json.dumps(key_of(subject))}, default=dict({default}))"

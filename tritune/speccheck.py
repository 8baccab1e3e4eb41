"""speccheck: a document -> the mistakes between its parts.

What one part alone cannot tell: a target that nobody knows, a name in a constraint that is
no axis, the same problem twice. It looks at the parts that are right by themselves, so one
mistake is never reported as two.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tritune import dtypenames, expression
from tritune.axisvalues import did_you_mean, near, problem_axis
from tritune.model import Value
from tritune.sweepmistakes import missing_kernel
from tritune.yamlscalars import got
from tritune.yamltext import Document, Loc

MOST_PROBLEMS = 10_000

_SECTIONS = ("cuda", "hip")


def cross_check(document: Document, known_targets: Collection[str], base: Path | None) -> None:
    """Add every mistake to the document; with *base*, files which do not exist are some."""
    missing_kernel(document)
    _targets(document, known_targets)
    _constraint_names(document)
    for part in ("shapes", "smoke"):
        _problems_twice(document, part)
    _kinds(document)
    _dtypes(document)
    if base is not None:
        _files(document, base)


def module_file(reference: str, base: Path) -> str | None:
    """The file of a reference by path, absolute; None where its module is dotted."""
    module = reference.rpartition(":")[0]
    if not (module.endswith(".py") or "/" in module):
        return None
    return os.path.abspath(base / module)  # noqa: PTH100  # resolve() would follow links


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _targets(document: Document, known: Collection[str]) -> None:
    seen: dict[str, int] = {}
    for index, name in enumerate(_items(document.value.get("targets"))):
        loc: Loc = ("targets", index)
        if not isinstance(name, str):
            continue
        if name not in known:
            document.mistake(loc, f"`{name}` is not a known target", did_you_mean(name, known))
        elif name in seen:
            document.mistake(loc, f"`{name}` is given twice", "remove one of the two")
        seen[name] = index
    for name in _mapping(document.value.get("per_target")):
        if name not in known:
            hint = did_you_mean(name, known)
            document.mistake(
                ("per_target", name), f"`{name}` is not a known target", hint, key=True
            )


def _section_locs(document: Document) -> Iterator[Loc]:
    yield from ((name,) for name in _SECTIONS)
    yield from (("per_target", name) for name in _mapping(document.value.get("per_target")))


def _part(document: Document, loc: Loc) -> dict[str, Any]:
    value = document.value
    for key in loc:
        value = _mapping(value).get(str(key))
    return _mapping(value)


def _rows(document: Document, part: str) -> Iterator[tuple[Loc, dict[str, Any]]]:
    for index, row in enumerate(_items(document.value.get(part))):
        yield (part, index), _mapping(row)


def _constraint_names(document: Document) -> None:
    sections = list(_section_locs(document))
    space = {name for loc in [(), *sections] for name in _part(document, (*loc, "space"))}
    rows = itertools.chain(_rows(document, "shapes"), _rows(document, "smoke"))
    problem = {name for _, row in rows for name in row}
    for loc in [(), *sections]:
        texts = _part(document, loc).get("constraints")
        for index, text in enumerate(_items(texts)):
            _names(document, (*loc, "constraints", index), text, space, problem)


def _names(document: Document, loc: Loc, text: Any, space: set[str], problem: set[str]) -> None:
    try:
        names = expression.names(text) if isinstance(text, str) else frozenset()
    except expression.ConstraintError:
        return
    known = space | problem | set(expression.FACTS)
    for name in sorted(names):
        if name in space and name in problem:
            what = f"`{name}` is an axis of the space and of the problem"
            document.mistake(loc, what, "rename one of the two")
        elif name not in known and "space" in document.value:
            what = f"`{name}` is no axis of the space or of the problem, and no fact of the target"
            quoted = expression.unquoted([name], _all_texts(document))
            hint = quoted or did_you_mean(name, sorted(known))
            document.mistake(loc, what, hint)


def _all_texts(document: Document) -> set[str]:
    """Every text that is a value of an axis."""
    rows = [row for part in ("shapes", "smoke") for _, row in _rows(document, part)]
    spaces = [_part(document, (*loc, "space")) for loc in [(), *_section_locs(document)]]
    return {text for axes in (*rows, *spaces) for raw in axes.values() for text in _texts(raw)}


def _problems_twice(document: Document, part: str) -> None:
    seen: dict[frozenset[tuple[str, Value]], int] = {}
    for loc, row in _rows(document, part):
        line = document.place(loc)[0]
        axes = {name: problem_axis(name, raw) for name, raw in row.items()}
        count = math.prod(len(made.values) for made in axes.values())
        if any(made.slips for made in axes.values()):
            continue
        if count > MOST_PROBLEMS:
            what = f"{count} problems; a row makes at most {MOST_PROBLEMS}"
            document.mistake(loc, what, "take fewer values")
            continue
        values = itertools.product(*(made.values for made in axes.values()))
        problems = [frozenset(zip(axes, one, strict=True)) for one in values]
        twice = [problem for problem in problems if problem in seen]
        if twice:
            _twice(document, loc, [dict(problem) for problem in twice], list(axes), seen[twice[0]])
        seen |= {problem: line for problem in problems if problem not in seen}


def _twice(
    document: Document, loc: Loc, problems: list[dict[str, Value]], names: list[str], first: int
) -> None:
    text = " ".join(f"{name}={problems[0][name]}" for name in names)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    line = document.place(loc)[0]
    what = f"the problem {text} is given twice, in line {first} and in line {line}{more}"
    document.mistake(loc, what, "remove it from one of the two")


def _kinds(document: Document) -> None:
    """A truth value on an axis that has numbers elsewhere is a slip of the pen."""
    rows = [*_rows(document, "shapes"), *_rows(document, "smoke")]
    numbers = {
        name for _, row in rows for name, raw in row.items() if _has(raw, (int, float, dict))
    }
    for loc, row in rows:
        for name, raw in row.items():
            if name in numbers and not _has(raw, (int, float, dict)):
                for index, item in enumerate(raw if isinstance(raw, list) else [raw]):
                    at = (*loc, name, index) if isinstance(raw, list) else (*loc, name)
                    if isinstance(item, (bool, str)):
                        hint = f"`{name}` has numbers in other problems"
                        document.mistake(at, f"expected a number, got {got(item)}", hint)


def _dtypes(document: Document) -> None:
    """A slip in the name of a dtype, which torch would only say of a text that it is none.

    An axis is one of dtypes by its name, or where a value of it can be nothing else. A text that
    is near to none of their names is left alone: the problem function may know what it means.
    """
    rows = [*_rows(document, "shapes"), *_rows(document, "smoke")]
    sure = {n for _, row in rows for n, raw in row.items() if {*_texts(raw)} & dtypenames.PLAIN}
    for loc, row in rows:
        for name, raw in row.items():
            for index, text in enumerate(_texts(raw)):
                slip = dtypenames.is_typo(text)
                if name in sure:
                    slip = not dtypenames.is_torch(text) and bool(dtypenames.meant(text))
                if slip and (name in sure or name.endswith("dtype")):
                    at = (*loc, name, index) if isinstance(raw, list) else (*loc, name)
                    hint = f"did you mean `{dtypenames.meant(text)}`?"
                    document.mistake(at, f"`{text}` is no dtype of torch's", hint)


def _texts(raw: Any) -> list[str]:
    """As they stand, an empty one for what is no text, so that places stay right."""
    items = raw if isinstance(raw, list) else [raw]
    return [item if isinstance(item, str) else "" for item in items]


def _has(raw: Any, kinds: tuple[type, ...]) -> bool:
    items = raw if isinstance(raw, list) else [raw]
    return any(isinstance(item, kinds) and not isinstance(item, bool) for item in items)


def _files(document: Document, base: Path) -> None:
    for key in ("kernel", "problem"):
        reference = document.value.get(key)
        file = module_file(reference, base) if isinstance(reference, str) else None
        if file and not Path(file).is_file():
            document.mistake((key,), f"no such file: {file}", _nearest_file(Path(file)))


def _nearest_file(file: Path) -> str:
    beside = sorted(one.name for one in file.parent.glob("*.py"))
    guess = near(file.name, beside)
    return f"did you mean `{guess}`?" if guess else "paths are relative to the sweep file"

"""yamltext: YAML text -> plain data and the place of every value.

Data only: scalars are what YAML 1.2 says, and the words and numbers on which YAML's
versions disagree (`on`, `010`, `1_000`) come out as `Odd`, which nothing accepts, so that
none of them quietly means something else. Knows nothing of sweeps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from tritune.errors import SpecError
from tritune.yamlscalars import (
    CORE,
    MERGE,
    NUMBER,
    NUMBER_TAG,
    SCALARS,
    Odd,
    got,
    looks_like_number,
)

Loc = tuple[str | int, ...]
"""A way into a document: keys and indices."""


_MOST_NODES = 100_000
_DEEPEST = 32
_COLLECTIONS = (f"{CORE}map", f"{CORE}seq")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Mistake:
    """One mistake in a file. Equal ones (an alias used twice) are reported once."""

    line: int
    column: int
    inside: str = field(compare=False)
    what: str
    hint: str = field(default="", compare=False)

    def error(self, path: str) -> SpecError:
        place = f"{path}:{self.line}:{self.column}"
        where = f"{place}: {self.inside}" if self.inside else place
        return SpecError(self.what, where=where, hint=self.hint)


@dataclass(kw_only=True, slots=True)
class Document:
    """The data of a file, and where it stands. Filled while it is read, then left alone."""

    value: Any = None
    values: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    nodes: dict[Loc, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, loc: Loc, *, key: bool = False) -> tuple[int, int]:
        """Line and column of a value (or of its key), of the nearest thing around it else."""
        table = self.keys if key else self.values
        while loc and loc not in table:
            loc, table = loc[:-1], self.values
        return table.get(loc, (1, 1))

    def mistake(self, loc: Loc, what: str, hint: str = "", *, key: bool = False) -> None:
        line, column = self.place(loc, key=key)
        found = Mistake(line=line, column=column, inside=inside(loc), what=what, hint=hint)
        self.mistakes.append(found)

    def holders(self) -> frozenset[str | int]:
        """Keys at the top below which something is used again through an alias."""
        counts = Counter(self.nodes.values())
        return frozenset(loc[0] for loc, node in self.nodes.items() if loc and counts[node] > 1)


def inside(loc: Loc) -> str:
    """`space.BLOCK_M[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return text.removeprefix(".")


class _Loader(yaml.SafeLoader):
    """Composes only; its implicit tags are those of YAML 1.2 and `!odd`."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own shape


for _tag, _pattern, _first in (
    (f"{CORE}null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (f"{CORE}bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("!odd", r"(?i:on|off|yes|no)", list("oOyYnN")),
    ("!odd", r"[-+]?0\d+|[-+]?\d[\d_]*(:[0-5]?\d)+", list("-+0123456789")),
    ("!odd", r"[-+]?\d*_[\d_]*(\.[\d_]*)?", list("-+0123456789")),
    (NUMBER_TAG, r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    (NUMBER_TAG, NUMBER.pattern, list("-+.0123456789")),
    (MERGE, r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), _first)


def load(text: str, *, path: str) -> Document:
    """Read one document; a text that is not YAML raises, every other mistake is kept in it."""
    node = _compose(text, path)
    if node is None:
        raise SpecError("the file is empty", where=path, hint="it needs `kernel` and `shapes`")
    document = Document()
    try:
        document.value = _Reader(document).read(node, ())
    except RecursionError:
        raise _too_much(path) from None
    return document


def _compose(text: str, path: str) -> Any:
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what, where = "a character that YAML does not allow", f"{path}:{line}"
        raise SpecError(what, where=where, hint="remove it") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, path) from None
    except RecursionError:
        raise _too_much(path) from None


def _too_much(path: str) -> SpecError:
    return SpecError("nested too deep, or too large", where=path, hint="write the values out")


def _syntax(error: yaml.MarkedYAMLError, text: str, path: str) -> SpecError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    where = f"{path}:{line + 1}:{column + 1}"
    lines = text.splitlines()
    row = lines[line] if line < len(lines) else ""
    if "\t" in row[: len(row) - len(row.lstrip())] or row[column : column + 1] == "\t":
        return SpecError("a tab, which YAML does not take as space", where=where, hint="use spaces")
    if "single document" in (error.context or ""):
        hint = "a sweep file holds one sweep: split it"
        return SpecError("a second document begins here", where=where, hint=hint)
    begun = (
        f"{error.context} begun in line {error.context_mark.line + 1}: "
        if error.context_mark
        else ""
    )
    hint = f"{begun}look for a bracket, a quote, a colon or an indent"
    return SpecError(f"not YAML: {error.problem or error.context}", where=where, hint=hint)


@dataclass(slots=True)
class _Reader:
    document: Document
    count: int = 0

    def read(self, node: yaml.Node, loc: Loc) -> Any:
        self.spend(loc)
        mark = node.start_mark
        self.document.values[loc] = (mark.line + 1, mark.column + 1)
        self.document.nodes[loc] = id(node)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            self.tag(node, loc)
        match node:
            case yaml.MappingNode():
                return self.mapping(node, loc)
            case yaml.SequenceNode():
                return [self.read(item, (*loc, i)) for i, item in enumerate(node.value)]
        return self.scalar(node, loc)

    def spend(self, loc: Loc) -> None:
        """Aliases of aliases may stand for more values than any memory holds."""
        self.count += 1
        if self.count > _MOST_NODES or len(loc) > _DEEPEST:
            raise RecursionError

    def scalar(self, node: yaml.Node, loc: Loc) -> Any:
        try:
            return SCALARS[node.tag](node.value)
        except KeyError:
            self.tag(node, loc)
            return SCALARS[NUMBER_TAG](node.value) if looks_like_number(node.value) else node.value
        except ValueError:
            self.document.mistake(loc, f"`{node.value[:40]}` cannot be read", "write a number")
        return str(node.value)

    def tag(self, node: yaml.Node, loc: Loc) -> None:
        tag = node.tag.replace(CORE, "!!")
        self.document.mistake(loc, f"the tag `{tag}` has no meaning here", "remove it")

    def mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        self.spend(loc)
        own: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: dict[str, Any] = {}
        # What is merged is read first, so that the place of a key is that of its own value.
        for key_node, value_node in sorted(node.value, key=lambda item: item[0].tag != MERGE):
            name = self.key(key_node, loc, lines)
            if name is None:
                continue
            if key_node.tag == MERGE:
                merged = self.merge(value_node, loc)
            else:
                own[name] = self.read(value_node, (*loc, name))
        return merged | own

    def key(self, node: yaml.Node, loc: Loc, lines: dict[str, int]) -> str | None:
        """The key's name; None, and a mistake, where it is none or is there already."""
        scalar = isinstance(node, yaml.ScalarNode)
        value = _key_value(node)
        name = str(node.value) if scalar else inside(loc)
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        at = (*loc, name) if scalar else loc
        if name not in lines or not scalar:
            self.document.keys[at] = (line, column)
        if not isinstance(value, str):
            what = f"expected a name, got {got(value)}"
            self.add(line, column, at, what, f'quote it: "{name}"' if scalar else "")
            return None
        if name in lines:
            what = f"`{name}` is given twice, in line {lines[name]} and in line {line}"
            self.add(line, column, at, what, "remove one of the two")
            return None
        lines[name] = line
        return name

    def add(self, line: int, column: int, loc: Loc, what: str, hint: str) -> None:
        found = Mistake(line=line, column=column, inside=inside(loc), what=what, hint=hint)
        self.document.mistakes.append(found)

    def merge(self, node: yaml.Node, loc: Loc) -> dict[str, Any]:
        """What `<<` brings in: of several mappings the first one that has a key gives it."""
        merged: dict[str, Any] = {}
        for source in reversed(list(_sources(node))):
            if isinstance(source, yaml.MappingNode):
                merged |= self.mapping(source, loc)
                self.document.nodes[(*loc, "<<", self.count)] = id(source)
            else:
                mark = source.start_mark
                what = "`<<` takes a mapping or a list of mappings"
                self.add(mark.line + 1, mark.column + 1, (*loc, "<<"), what, "")
        return merged


def _key_value(node: yaml.Node) -> Any:
    try:
        return SCALARS.get(node.tag, str)(node.value)
    except (TypeError, ValueError):
        return Odd(str(node.value)[:40], "a number")


def _sources(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    else:
        yield node

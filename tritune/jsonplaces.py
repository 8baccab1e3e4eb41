"""jsonplaces: JSON text -> the line of every value, and of every name given twice.

`json` reports lines only for broken syntax. This second, slower reading happens only once a
file is known to be wrong.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = re.compile(r"[ \t\r\n]*")

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A value of the text: how it is reached, and the line it (or its name) stands on."""

    path: Path
    line: int


def places(text: str) -> tuple[Place, ...]:
    """Every value, in the order of the text; a doubled name gives two places of one path."""
    return tuple(_Reader(text).value(0, (), 1))


def where(file: str, text: str, path: Path) -> str:
    """`file:line: path` of the value at *path*, with the line of the nearest that holds it."""
    lines = {place.path: place.line for place in places(text)}
    line = next(lines[path[:d]] for d in range(len(path), -1, -1) if path[:d] in lines)
    return f"{file}:{line}: {'.'.join(map(str, path))}" if path else f"{file}:{line}"


def doubled(text: str) -> tuple[Place, Place] | None:
    """The first name that stands twice in one object, with both its places."""
    seen: dict[Path, Place] = {}
    for place in places(text):
        if place.path in seen:
            return seen[place.path], place
        seen[place.path] = place
    return None


class _Reader:
    """Walks text that `json` has already found to be well-formed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self._newlines = [at for at, letter in enumerate(text) if letter == "\n"]
        self._decoder = json.JSONDecoder()

    def value(self, start: int, path: Path, line: int) -> Iterator[Place]:
        start = self._space(start)
        yield Place(path=path, line=self._line(start) if not path else line)
        if self.text[start] == "{":
            yield from self._object(start + 1, path)
        elif self.text[start] == "[":
            yield from self._array(start + 1, path)
        else:
            self.end = self._decoder.raw_decode(self.text, start)[1]

    def _object(self, at: int, path: Path) -> Iterator[Place]:
        at = self._space(at)
        while self.text[at] != "}":
            line = self._line(at)
            name, at = self._decoder.raw_decode(self.text, at)
            at = self._space(at) + 1  # the colon
            yield from self.value(at, (*path, name), line)
            at = self._comma(self.end)
        self.end = at + 1

    def _array(self, at: int, path: Path) -> Iterator[Place]:
        at, index = self._space(at), 0
        while self.text[at] != "]":
            yield from self.value(at, (*path, index), self._line(at))
            at, index = self._comma(self.end), index + 1
        self.end = at + 1

    def _comma(self, at: int) -> int:
        at = self._space(at)
        return self._space(at + 1) if self.text[at] == "," else at

    def _space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _line(self, at: int) -> int:
        return bisect_left(self._newlines, at) + 1

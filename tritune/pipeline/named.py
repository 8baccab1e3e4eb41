"""pipeline.named: who is told of a sweep -> who is told of one kernel of several in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tritune.pipeline.job import Observer


@dataclass(frozen=True, slots=True)
class Named:
    """An observer that puts the kernel's name before what it is told."""

    of_all: Observer
    name: str

    def stage(self, name: str, total: int | None) -> None:
        self.of_all.stage(f"{self.name}: {name}", total)

    def advance(self, text: str = "") -> None:
        self.of_all.advance(text)

    def say(self, text: str) -> None:
        lead = f"{self.name}: "
        self.of_all.say(lead + text.removeprefix(lead))

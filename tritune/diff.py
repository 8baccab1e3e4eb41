"""diff: two Locks -> the Changes from one to the other.

Whatever a sweep writes anew shows here: another config, or the same config measured anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritune.lockrender import sort_entries
from tritune.model import Config, Entry, Lock, LockedKey, Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One tunable whose value is another; None also where a side does not have it."""

    name: str
    old: Value
    new: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One entry that is not what it was."""

    at: LockedKey
    old: Entry | None
    new: Entry | None

    @property
    def kind(self) -> str:
        if self.old is None:
            return "added"
        return "removed" if self.new is None else "changed"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the config that differ, where both sides have one."""
        if self.old is None or self.new is None:
            return ()
        return tuple(_parts(self.old.config, self.new.config))

    @property
    def faster(self) -> float | None:
        """How many times faster it is than before; None where a side was not timed."""
        if self.old is None or self.new is None:
            return None
        old, new = self.old.evidence.us, self.new.evidence.us
        return old / new if old and new else None

    @property
    def noise(self) -> float | None:
        """The larger noise of the two sides."""
        if self.old is None or self.new is None:
            return None
        return max(self.old.evidence.noise, self.new.evidence.noise)

    @property
    def bits(self) -> bool | None:
        """Whether the result has other bits; None where a side does not know its own."""
        if self.old is None or self.new is None:
            return None
        old, new = self.old.evidence.bits, self.new.evidence.bits
        return old != new if old and new else None


def diff(old: Lock, new: Lock) -> tuple[Change, ...]:
    """Every entry that differs, in the order of a lockfile."""
    before, after = dict(old.entries), dict(new.entries)
    there = {at: after.get(at) or before[at] for at in before.keys() | after.keys()}
    changes = (
        Change(at=at, old=before.get(at), new=after.get(at))
        for at, _ in sort_entries(there.items())
    )
    return tuple(change for change in changes if change.old != change.new)


def _parts(old: Config, new: Config) -> Iterator[Part]:
    before, after = old.as_dict(), new.as_dict()
    for name in sorted(before.keys() | after.keys()):
        if (name in before) != (name in after) or before.get(name) != after.get(name):
            yield Part(name=name, old=before.get(name), new=after.get(name))

"""nearby: the locked sizes of one argument, and another size -> which of them serves it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable

from tritune.keys import joined

REACH = re.compile(r"([0-9]{1,19}) <= (\w+) <= ([0-9]{1,19})")
"""What the evidence of an entry says of its reach."""


def nearest(sizes: Collection[int], value: int) -> int:
    """Which of the locked sizes serves *value*: the next one up, if it is at most twice that.

    Else the nearest by ratio. The tiles of a smaller size cut a larger one badly.
    """
    above = min((size for size in sizes if size > value), default=None)
    if above is not None and above <= 2 * value:
        return above
    return min(sizes, key=lambda size: (abs(math.log2(size / value)), size))


def within(reach: str, near: str, value: int) -> bool:
    """Whether a size of the `near` argument is one that an entry was verified to serve.

    What was verified along another argument, before the kernel's author named this one, is not.
    """
    ends = REACH.fullmatch(reach)
    return ends is not None and ends[2] == near and int(ends[1]) <= value <= int(ends[3])


def along(keys: Iterable[str], key: Iterable[tuple[str, str]], near: str) -> dict[int, str]:
    """The locked values of the `near` argument where all other parts are equal, and their keys."""
    pattern = joined((n, r"([1-9][0-9]{0,18})" if n == near else re.escape(v)) for n, v in key)
    found = (re.fullmatch(pattern, key) for key in keys)
    return {int(match[1]): match[0] for match in found if match and match.lastindex}

"""sharing: what configs lose on problems -> what problems lose that must share a config.

A kernel's own autotuner caches one winner under the arguments that its author names and the
dtypes of its tensors. Problems that it takes for one may have a key each here, and a winner.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tritune.model import Config, KernelInfo, Problem, SharedKey

Losses = Mapping[Problem, Mapping[Config, float]]
"""Problem -> how much slower than its winner every config is that ran there."""


def shared(info: KernelInfo, losses: Losses) -> tuple[SharedKey, ...]:
    """Where its own autotuner has one key for several problems."""
    groups: dict[str, dict[str, list[Problem]]] = defaultdict(lambda: defaultdict(list))
    for problem, key, stock in info.stock_keys:
        groups[stock][key].append(problem)
    return tuple(_shared(info, losses, groups))


def _shared(
    info: KernelInfo, losses: Losses, groups: Mapping[str, Mapping[str, list[Problem]]]
) -> Iterator[SharedKey]:
    several = info.several
    for stock, under in groups.items():
        firsts = [one[0].under(key) if one[0] in several else one[0] for key, one in under.items()]
        timed = tuple(problem for problem in firsts if problem in losses)
        untimed = tuple(problem for one in under.values() for problem in one[1:])
        if len(timed) + len(untimed) < 2 or not timed:
            continue
        config = _best(losses, timed)
        lost = () if config is None else tuple(losses[problem][config] for problem in timed)
        yield SharedKey(key=stock, problems=timed, losses=lost, config=config, untimed=untimed)


def _best(losses: Losses, problems: tuple[Problem, ...]) -> Config | None:
    """The config that loses least over all, then at worst, then by the canonical order."""
    first, *others = (losses[problem] for problem in problems)
    common = [config for config in first if all(config in one for one in others)]

    def rank(config: Config) -> tuple[float, float, object, str]:
        lost = [losses[problem][config] for problem in problems]
        product = math.prod(1 + each for each in lost)
        return round(product, 9), max(lost), config.order(), str(config)

    return min(common, key=rank, default=None)

"""pipeline.searched: a sweep, its kernel and a target -> the digest of what is searched there.

It stands in an entry's evidence, so that an entry is stale once the space it won in is another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from tritune import space
from tritune.model import Config, KernelInfo, Problem, Sweep, Target, Winner
from tritune.pipeline.job import Job


class Searched:
    """The configs that a sweep tries on one target, problem by problem."""

    def __init__(self, sweep: Sweep, target: Target, info: KernelInfo) -> None:
        self._sweep, self._target, self._default = sweep, target, info.default
        self._configs = tuple(space.configs(sweep, target, info))

    def digest(self, problem: Problem) -> str:
        """Eight hex digits of the configs that are admitted on *problem*; the default always is."""
        texts = {str(config) for config in self._configs if self._admitted(config, problem)}
        whole = "\n".join(sorted(texts | {str(self._default)}))
        return hashlib.sha256(whole.encode()).hexdigest()[:8]

    def _admitted(self, config: Config, problem: Problem) -> bool:
        return space.admitted(self._sweep, self._target, config, problem) is None


def signed(job: Job, chosen: Sequence[Winner]) -> tuple[Winner, ...]:
    """The winners with what they were made from in their evidence: source, space and hook."""
    searched = Searched(job.sweep, job.target, job.info)
    return tuple(
        replace(
            winner,
            evidence=replace(
                winner.evidence,
                source=job.info.source,
                space=searched.digest(winner.problem),
                hook=job.info.hook_of(winner.config),
            ),
        )
        for winner in chosen
    )

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
        self._sweep, self._target, self._info = sweep, target, info
        self._configs = tuple(space.configs(sweep, target, info))

    def digest(self, problem: Problem) -> str:
        """Eight hex digits of the configs that are admitted on *problem*; the default always is."""
        texts = {str(config) for config in self._configs if self._admitted(config, problem)}
        whole = "\n".join(sorted(texts | {str(self._info.default)}))
        return hashlib.sha256(whole.encode()).hexdigest()[:8]

    def unvouched(self, config: Config, problem: Problem) -> str:
        """Why nobody says that a config is valid on *problem*; empty where somebody does.

        Of a kernel that nobody decorated, its author lists what is, or the sweep file's space,
        with its constraints, has it: anything else may write out of bounds.
        """
        info = self._info
        is_listed = config in info.configs
        if not info.foreign or is_listed or self._has(config, problem):
            return ""
        is_of_space = ", and not admitted by its sweep file" if self._sweep.space else ""
        return f"not of the {len(info.configs)} configs of its author{is_of_space}"

    def _has(self, config: Config, problem: Problem) -> bool:
        return config in self._configs and self._admitted(config, problem)

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

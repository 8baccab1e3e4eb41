"""pipeline.compilerun: a job and its groups -> the outcome of each compile, as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tritune import compile as compiling
from tritune import grouping
from tritune.device.probe import toolchain_fault
from tritune.grouping import Group
from tritune.limit import Limit
from tritune.model import Compiled, Reason, Rejected
from tritune.pipeline.job import Job
from tritune.workers import Pool

FIRST_FEW = 3
"""So many failed compiles, and none that did not fail, are looked into at once."""
TOOLCHAIN = {Reason.COMPILE, Reason.CRASH, Reason.TIMEOUT, Reason.REGISTERS}


class Compiling:
    """One run of compiles: in the best order, watched for what stops every compile."""

    def __init__(
        self,
        job: Job,
        groups: Sequence[Group],
        lead: grouping.Lead,
        *,
        entries: set[str] | None = None,
    ) -> None:
        """With *entries* every key gets its binary, and what the cache calls it is added."""
        self._job = job
        place = {problem: n for n, problem in enumerate(job.sweep.problems)}
        # Half of the processes; the others begin with what looks best.
        long = grouping.longest(groups, job.jobs // 2)
        self._groups = sorted(
            groups,
            key=lambda one: (
                long.index(ttgir) if (ttgir := one.lowered.ttgir) in long else len(long),
                # A problem can be measured once all of it is compiled.
                place[one.candidate.problem] if job.setting.index is not None else 0,
                not lead(one.candidate),
                grouping.promise(one, job.target),
                one.candidate.config.order(),
            ),
        )
        self._entries = entries
        self.distinct = len({one.lowered.ttgir for one in groups})
        self._limit = Limit(
            job.options.compile_limit_s or job.sweep.timing.compile_limit_s,
            learns=job.options.compile_limit_s is None,
        )
        self._done: dict[str, Compiled | Rejected] = {}
        self._probed = False

    def run(self, pool: Pool) -> Iterator[tuple[Group, Compiled | Rejected]]:
        """Each group's outcome, as it comes.

        Raises:
            EnvironmentFaultError: nothing compiles here at all.
        """
        for one, outcome in compiling.compile_groups(
            pool,
            self._groups,
            target=self._job.target,
            limit=self._limit,
            logs=self._job.places.logs,
            budget_s=self._budget_s,
            entries=self._entries,
        ):
            if one.lowered.ttgir not in self._done:
                self._done[one.lowered.ttgir] = outcome
                self._job.observer.advance(str(one.candidate.config))
                self._refuse_broken_toolchain()
            yield one, outcome
        self._refuse_broken_toolchain(at_the_end=True)

    @property
    def _budget_s(self) -> float | None:
        job = self._job
        idle = job.setting.index is None and self._entries is None
        return job.options.compile_budget_s if idle else None

    def _refuse_broken_toolchain(self, *, at_the_end: bool = False) -> None:
        """When the first few all fail, ask whether anything would compile."""
        failed = [one for one in self._done.values() if isinstance(one, Rejected)]
        ours = any(one.reason in TOOLCHAIN for one in failed)
        few = len(failed) < FIRST_FEW and not at_the_end
        if self._probed or few or not ours or len(failed) < len(self._done):
            return
        self._probed = True
        if fault := toolchain_fault(self._job.target, self._job.places.logs / "probe.log"):
            raise fault

    def said(self) -> str:
        """What was done, for a reader."""
        made = [one for one in self._done.values() if isinstance(one, Compiled)]
        cached = sum(not one.seconds for one in made)
        late = sum(
            isinstance(one, Rejected) and one.reason is Reason.TIMEOUT
            for one in self._done.values()
        )
        left = len(self._done) < self.distinct and self._budget_s is not None
        cut = f" within the {self._budget_s:.0f} s that were allowed" if left else ""
        whole = f"{len(self._done):,} of {self.distinct:,} distinct binaries"
        parts = [
            f"{whole} for {self._job.target.name}{cut}",
            f"{cached:,} from the cache" if cached else "",
            f"{late:,} cut off" if late else "",
            self._not_in_folder(len(made) - cached),
        ]
        return ", ".join(part for part in parts if part)

    def _not_in_folder(self, compiled: int) -> str:
        folder = self._job.options.compiled
        return f"{compiled:,} not in {folder} and compiled here" if folder and compiled else ""

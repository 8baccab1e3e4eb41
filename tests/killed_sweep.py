"""killed_sweep: a folder -> a sweep in it, a process of its own that may be killed at any moment.

Its GPU is a recorded one that takes its time. Prints `measuring` once it has begun to.

    python killed_sweep.py FOLDER
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fakes import H200, H200_IDENTITY, KERNEL, TRITON, grid_compiled, grid_outcomes, grid_problems
from replay_device import ReplayDevice
from test_measure_sweep import on_gpu
from test_views import info
from tritune.compile import Found
from tritune.model import Compiled, Launches, Rejected, Sweep
from tritune.pipeline import conclude, racing
from tritune.pipeline.job import Job, SweepOptions
from tritune.places import Places
from tritune.setting import Setting

WINDOW_S = 0.01
"""What a window of samples takes."""
MANY = 40
"""Binaries of each problem: three chunks of screening."""
PROBLEMS = grid_problems()[:3]
BINARIES = [one for problem in PROBLEMS for one in grid_compiled(problem)[:MANY]]


class Gpu(ReplayDevice):
    """The recorded GPU, as the measuring process shows it."""

    def __init__(self, **_: Any) -> None:
        super().__init__(grid_outcomes(), target=H200, triton=TRITON)
        self.notes: list[str] = []
        self.restarts = 0

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        time.sleep(WINDOW_S)
        return super().sample(compiled, rounds, first)

    def uuid(self) -> str:
        return ""

    def compiles(self) -> int:
        return 0

    def leave(self) -> None:
        """Nothing to leave."""


class Told:
    """An observer that says when measuring begins."""

    def stage(self, name: str, total: int | None) -> None:
        if name == "measuring":
            sys.stdout.write("measuring\n")
            sys.stdout.flush()

    def advance(self, text: str = "") -> None:
        """Say nothing."""

    def say(self, text: str) -> None:
        """Say nothing."""


def main(folder: Path) -> None:
    """Measure, choose and lock, as `tritune sweep` does once all is compiled."""
    racing.CudaDevice = Gpu  # type: ignore[misc, assignment]
    default = BINARIES[0].candidate.config
    job = Job(
        sweep=Sweep(
            path=str(folder / "sweep.yaml"),
            kernel=KERNEL,
            problem=None,
            targets=(),
            space=(),
            problems=PROBLEMS,
        ),
        options=SweepOptions(lockfile=folder / "tritune.lock"),
        info=replace(info(), default=default, source="s1"),
        setting=Setting(target=H200, identity=H200_IDENTITY, index=0, triton=TRITON),
        places=Places(journals=folder, binaries=folder, logs=folder, source="5c5c5c5c5c5c"),
        observer=Told(),
    )
    launches = [
        Launches(candidate=one.candidate, key=one.key, grids=((1,),), compile_class=one.binary)
        for one in BINARIES
    ]
    found = Found(work=(), launches=tuple(launches), rejected=())
    outcomes = on_gpu(job, BINARIES)
    chosen = conclude.winners(job, outcomes, found, {}, TRITON)
    conclude.write_lock(job, H200_IDENTITY, chosen)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

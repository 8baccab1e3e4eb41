"""device.cuda: a GPU of this machine -> the `Device` contract, through a worker that may die.

The worker forks from a process that has imported torch and never touched CUDA. A candidate that
kills it, hangs it or poisons its context costs that candidate and one restart.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from tritune.device import answers, bench, canary, sampling, study, targets, wheel
from tritune.device.guards import Canary
from tritune.errors import EnvironmentFaultError
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Problem,
    Rejected,
    Target,
    Timing,
    Verified,
)
from tritune.workers import Answer, Done, Worker, stateless

T = TypeVar("T")

OPEN_LIMIT_S = 120.0
"""Making a problem, or its reference."""
CALL_LIMIT_S = 20.0
"""One checked run, or a window of samples besides what its kernels are known to take: a kernel
that spins is cut off when this is over."""
STUDY_LIMIT_S = 60.0
"""The first runs of a problem: an op may compile what it calls besides."""
SLACK = 3.0
"""A window may take so many times what the checked runs of its candidates took."""
WARM_UP_S = 0.4
SILENT = "the GPU does not answer"


def _identify(_: None, index: int) -> tuple[DeviceIdentity, str]:
    return bench.identify(index), wheel.version()


def _present(_: None) -> int:
    import torch

    return int(torch.cuda.device_count()) if torch.cuda.is_available() else 0


def present() -> bool:
    """Whether this machine may have a GPU at all; costs no torch."""
    if Path("/dev/kfd").exists():
        return True
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Path("/dev/nvidiactl").exists()
    try:
        said = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "GPU" in said.stdout


def probe(index: int, log: Path) -> tuple[DeviceIdentity, str]:
    """The silicon of GPU *index*, and the Triton version that will compile for it.

    Raises:
        EnvironmentFaultError: there is no such GPU, or its driver does not answer.
    """
    with Worker(stateless, log=log) as worker:
        count = answers.value(worker.call(_present, timeout_s=60), SILENT)
        if index >= count:
            raise EnvironmentFaultError(
                f"there is no GPU {index}",
                hint=f"this machine shows {count} to torch; look at CUDA_VISIBLE_DEVICES",
            )
        return answers.value(worker.call(_identify, index, timeout_s=120), SILENT)


def process(log: Path) -> Worker:
    """What holds a GPU for one kernel after the other, each with a `CudaDevice` of its own."""
    return Worker(stateless, log=log)


class CudaDevice:
    """A `Device`: one GPU of this machine, held by one worker process at a time."""

    _warm: bool
    """Whether the process is this kernel's, and ready."""

    def __init__(  # noqa: PLR0913  # what a worker needs to know, each part once
        self,
        *,
        index: int,
        kernel: str | None,
        problem: str | None,
        default: Config,
        identity: DeviceIdentity,
        triton: str,
        timing: Timing,
        cache: Path,
        worker: Worker,
    ) -> None:
        self.target: Target = targets.of_device(identity)
        self.triton = triton
        self.restarts = 0
        self.restart_s = 0.0
        """What restarts cost, with what was lost in calls that had to be cut off."""
        self.notes: list[str] = []
        """What a reader should know of the problems, a line each."""
        self._default = default
        self._refused: dict[Problem, Rejected] = {}
        """Problems that cannot be made at all."""
        self._broken: dict[Problem, Rejected] = {}
        """Problems on which the default cannot run."""
        self._took_s: dict[Candidate, float] = {}
        self._compiled = 0
        self._forget()
        self._worker = worker
        self._used = 0
        """Number of the process that this kernel was in last."""
        self._arguments = (kernel, problem, index, str(cache), timing)

    def open(self) -> None:
        """Have the process ready: opening a GPU takes it 2 to 3 s, and an import may take more."""
        if self._warm:
            return
        began = time.monotonic()
        self._worker.turn(bench.open_bench, *self._arguments)
        answers.value(self._worker.call(canary.warm_up, WARM_UP_S, timeout_s=60), SILENT)
        self._warm, self._used = True, self._worker.started
        if self.restarts:
            self.restart_s += time.monotonic() - began

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        candidate = compiled.candidate
        refused = self._open(candidate) or self._judge(candidate)
        if refused is not None:
            return refused
        began = time.monotonic()
        answer = self._ask(candidate, bench.check, limit_s=CALL_LIMIT_S)
        self._took_s[candidate] = time.monotonic() - began
        return answer

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        candidates = [one.candidate for one in compiled]
        refused = self._open(candidates[0])
        if refused is not None and len(candidates) == 1:
            return (refused,)
        if refused is None:
            known_s = sum(self._took_s.get(one, 1.0) for one in candidates)
            limit_s = CALL_LIMIT_S + SLACK * rounds * known_s
            answer = self._call(sampling.sample, candidates, rounds, first, limit_s=limit_s)
            found = self._samples(answer, candidates)
            if found is not None:
                return found
        # Any of them could be to blame: each is tried once more, alone.
        alone = {one: self.sample([one], rounds, first)[0] for one in dict.fromkeys(compiled)}
        return tuple(alone[one] for one in compiled)

    def canary(self) -> Canary:
        return answers.value(self._call(canary.canary, limit_s=CALL_LIMIT_S), SILENT)

    def uuid(self) -> str:
        """The GPU as NVML names it."""
        return answers.value(self._call(bench.uuid, limit_s=CALL_LIMIT_S), SILENT)

    def compiles(self) -> int:
        """How often a launch did not find its binary; what a process that died did is not known."""
        if not self._warm:
            return self._compiled
        now = answers.value(self._call(bench.compiles, limit_s=CALL_LIMIT_S), SILENT)
        return self._compiled + now

    def renew(self) -> None:
        self.leave()
        if self._used == self._worker.started:
            self._worker.close()

    def leave(self) -> None:
        """Let another kernel have the process; the next call takes it back.

        All is measured by then: a process that fails in this is ended, and not the sweep.
        """
        if self._warm:
            answer = self._call(bench.leave, limit_s=CALL_LIMIT_S)
            self._compiled += answer.value if isinstance(answer, Done) else 0
        self._forget()

    def _start_anew(self) -> None:
        self._worker.close()
        self._forget()

    def close(self) -> None:
        self._worker.close()

    def _forget(self) -> None:
        self._opened: Problem | None = None
        self._studied = self._judged = self._warm = False

    def _open(self, candidate: Candidate) -> Rejected | None:
        """Have its problem made and studied; why it is out, if that fails."""
        problem = candidate.problem
        if problem in self._refused:
            return replace(self._refused[problem], candidate=candidate)
        if self._opened != problem:
            self._opened, self._studied, self._judged = None, False, False
            made = self._ask(candidate, bench.open_problem, limit_s=OPEN_LIMIT_S)
            if made is not None:
                self._refused[problem] = made
                return made
            self._opened = problem
        return None if self._studied else self._study(candidate)

    def _study(self, candidate: Candidate) -> Rejected | None:
        """Find out what the op writes, on the default; on the candidate where that cannot run."""
        problem = candidate.problem
        default = replace(candidate, config=self._default)
        guinea = candidate if problem in self._broken else default
        said = self._ask(guinea, study.study, limit_s=STUDY_LIMIT_S)
        if isinstance(said, Rejected):
            if guinea == default:
                self._broken[problem] = said
            return said if guinea == candidate else self._open(candidate)
        self._studied = True
        note = f"{problem}: {said}"
        if said and note not in self.notes:
            self.notes.append(note)
        return None

    def _judge(self, candidate: Candidate) -> Rejected | None:
        """Have its problem's reference made; why it is out, if there is none."""
        if self._judged:
            return None
        broken = self._broken.get(candidate.problem)
        if broken is not None and not self._ask(candidate, bench.has_reference, limit_s=60):
            detail = f"the default, which would be its reference, is out: {broken.detail}"
            return replace(broken, candidate=candidate, detail=detail)
        default = replace(candidate, config=self._default)
        runs = default if broken is None else None
        answer = self._ask(default, bench.judge, runs, limit_s=OPEN_LIMIT_S)
        if answer is not None:
            self._refused[candidate.problem] = answer
            return replace(answer, candidate=candidate)
        self._judged = True
        return None

    def _samples(
        self, answer: Answer[tuple[tuple[float, ...] | Rejected, ...]], candidates: list[Candidate]
    ) -> tuple[tuple[float, ...] | Rejected, ...] | None:
        """What a window answers; None where one of several spoilt it for the others."""
        distinct = len(set(candidates))
        if isinstance(answer, Done):
            if not any(map(answers.is_poisoned, answer.value)):
                return answer.value
            self._restart()
            return answer.value if distinct == 1 else None
        if distinct > 1:
            return None
        rejected = answers.rejected(answer, candidates[0])
        return (rejected,) * len(candidates)

    def _ask(
        self, candidate: Candidate, function: Callable[..., T], *args: object, limit_s: float
    ) -> T | Rejected:
        """A call about one candidate: what goes wrong in it is its rejection."""
        answer = self._call(function, candidate, *args, limit_s=limit_s)
        if not isinstance(answer, Done):
            return answers.rejected(answer, candidate)
        if answers.is_poisoned(answer.value):
            self._restart()
        return answer.value

    def _call(self, function: Callable[..., T], *args: object, limit_s: float) -> Answer[T]:
        self.open()
        began = time.monotonic()
        answer = self._worker.call(function, *args, timeout_s=limit_s)
        if not isinstance(answer, Done):
            self.restart_s += time.monotonic() - began
            self._restart()
        return answer

    def _restart(self) -> None:
        self.restarts += 1
        self._start_anew()

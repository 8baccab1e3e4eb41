"""device.cuda: a GPU of this machine -> the `Device` contract, through a worker that may die.

The worker forks from a process that has imported torch and never touched CUDA. A candidate that
kills it, hangs it or poisons its context costs that candidate and one restart.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tritune.device import bench, sampling, targets
from tritune.errors import EnvironmentFaultError, TrituneError
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Reason,
    Rejected,
    Target,
    Timing,
    Verified,
)
from tritune.workers import Answer, Died, Done, Raised, TimedOut, Worker

T = TypeVar("T")

VERIFY_LIMIT_S = 120.0
"""Making a problem with its reference, or one checked run: anything longer hangs."""
SAMPLE_LIMIT_S = 180.0
WARM_UP_S = 0.4


def _stateless() -> None:
    """Stand for a state: probing needs no kernel."""


def _identify(_: None, index: int) -> tuple[DeviceIdentity, str]:
    import triton

    return bench.identify(index), str(triton.__version__)


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
    with Worker(_stateless, log=log) as worker:
        count = _value(worker.call(_present, timeout_s=60), "the GPU does not answer")
        if index >= count:
            raise EnvironmentFaultError(
                f"there is no GPU {index}",
                hint=f"this machine shows {count} to torch; look at CUDA_VISIBLE_DEVICES",
            )
        return _value(worker.call(_identify, index, timeout_s=120), "the GPU does not answer")


def _value(answer: Answer[T], what: str) -> T:
    match answer:
        case Done(value):
            return value
        case Raised(error=TrituneError() as error):
            raise error
        case Raised(message=message, type_name=kind):
            hint = _cure(message)
            raise EnvironmentFaultError(f"{what}: {kind}: {message}", hint=hint)
        case TimedOut(seconds=seconds):
            raise EnvironmentFaultError(f"{what} within {seconds:.0f} s")
        case _:
            raise EnvironmentFaultError(f"{what}: its process {answer}")


def _cure(message: str) -> str:
    if "C compiler" in message:
        return "Triton builds its launcher with a C compiler: install one, or set CC"
    return "does `nvidia-smi` work, and does torch see the GPU?"


class CudaDevice:
    """A `Device`: one GPU of this machine, held by one worker process."""

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
        log: Path,
    ) -> None:
        self.target: Target = targets.of_device(identity)
        self.triton = triton
        self.restarts = 0
        self._default = default
        self._warm = False
        self._worker = Worker(
            bench.open_bench,
            kernel,
            problem,
            index,
            str(cache),
            timing,
            log=log,
        )

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        answer = self._call(bench.check, compiled.candidate, self._default, limit_s=VERIFY_LIMIT_S)
        return self._outcome(answer, compiled.candidate)

    def sample(
        self, compiled: Sequence[Compiled], rounds: int
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        candidates = [one.candidate for one in compiled]
        answer = self._call(
            sampling.sample, candidates, rounds, self._default, limit_s=SAMPLE_LIMIT_S
        )
        if isinstance(answer, Done):
            if any(self._poisoned(found) for found in answer.value):
                self._restart()
            return answer.value
        if len(candidates) > 1:
            # Any of them could be to blame: each is tried once more, alone.
            return tuple(self.sample([one], rounds)[0] for one in compiled)
        return (self._outcome(answer, candidates[0]),)

    def close(self) -> None:
        self._worker.close()

    def _call(self, function: Callable[..., T], *args: object, limit_s: float) -> Answer[T]:
        if not self._warm:
            _value(
                self._worker.call(bench.warm_up, WARM_UP_S, timeout_s=60), "the GPU does not answer"
            )
            self._warm = True
        answer = self._worker.call(function, *args, timeout_s=limit_s)
        if not isinstance(answer, Done):
            self._restart()
        return answer

    def _outcome(self, answer: Answer[T], candidate: Candidate) -> T | Rejected:
        match answer:
            case Done(value):
                if self._poisoned(value):
                    self._restart()
                return value
            case TimedOut(seconds=seconds):
                return Rejected(
                    candidate=candidate, reason=Reason.HANG, detail=f"cut off after {seconds:.0f} s"
                )
            case Died():
                return Rejected(
                    candidate=candidate, reason=Reason.LAUNCH, detail=f"its process {answer}"
                )
            case Raised(error=TrituneError() as error):
                raise error
            case Raised(type_name=kind, message=message):
                return Rejected(
                    candidate=candidate, reason=Reason.LAUNCH, detail=f"{kind}: {message}"[:200]
                )

    @staticmethod
    def _poisoned(value: object) -> bool:
        return isinstance(value, Rejected) and value.detail in bench.STICKY

    def _restart(self) -> None:
        self.restarts += 1
        self._worker.close()

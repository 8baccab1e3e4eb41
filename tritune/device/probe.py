"""device.probe: can this machine compile for a target at all? -> the fault, or nothing.

When every config fails, a kernel of three lines tells a broken toolchain from a broken kernel.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune.device.lowering import StandIn, brief, gpu_target
from tritune.errors import EnvironmentFaultError
from tritune.model import Target
from tritune.workers import Done, Worker

LIMIT_S = 120.0
HINTS = {
    "ptxas": "is ptxas new enough for it? see TRITON_PTXAS_PATH, TRITON_PTXAS_BLACKWELL_PATH",
    "compiler": "Triton builds its launcher with a C compiler: install one, or set CC",
}


def _stateless() -> None:
    """Stand for a state: a probe needs none."""


def _compile_trivial(_: None, target: Target) -> str:
    """What went wrong when a trivial kernel was compiled for *target*; empty when nothing did."""
    with TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        import triton

        from tritune.device.trivial import trivial

        triton.runtime.driver.set_active(StandIn(gpu_target(target)))
        try:
            trivial.warmup(triton.runtime.jit.MockTensor("fp32"), grid=(1,))
        except Exception as error:  # noqa: BLE001  # the boundary: whatever a toolchain raises is the answer
            return brief(error)
    return ""


def toolchain_fault(target: Target, log: Path) -> EnvironmentFaultError | None:
    """The fault that keeps every kernel from compiling for *target*, if there is one."""
    with Worker(_stateless, log=log) as worker:
        answer = worker.call(_compile_trivial, target, timeout_s=LIMIT_S)
    said = answer.value if isinstance(answer, Done) else f"the compiler {answer}"
    if not said:
        return None
    hint = next((cure for word, cure in HINTS.items() if word in said.lower()), f"see {log}")
    return EnvironmentFaultError(
        f"nothing compiles for {target.name} on this machine: {said}", hint=hint
    )

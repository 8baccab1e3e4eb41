"""device.probe: can this machine compile for a target at all? -> the fault, or nothing.

When every config fails, a kernel of three lines tells a broken toolchain from a broken kernel.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from tritune.device.lowering import brief
from tritune.device.stages import StandIn, gpu_target
from tritune.errors import EnvironmentFaultError
from tritune.model import Target
from tritune.workers import Done, Worker, stateless

LIMIT_S = 120.0


def _assembler(_: None, target: Target) -> str:
    """The assembler that Triton uses for *target*, with its version and path."""
    if target.backend != "cuda":
        return "Triton's own LLVM"
    from triton.backends.nvidia.compiler import get_ptxas

    tool = get_ptxas(target.arch)
    return f"ptxas {tool.version} at {tool.path}"


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
    with Worker(stateless, log=log) as worker:
        answer = worker.call(_compile_trivial, target, timeout_s=LIMIT_S)
        said = answer.value if isinstance(answer, Done) else f"the compiler {answer}"
        if not said:
            return None
        tool = worker.call(_assembler, target, timeout_s=LIMIT_S)
    name = tool.value if isinstance(tool, Done) else "the assembler"
    return EnvironmentFaultError(
        f"nothing compiles for {target.name} with {name}, not even a kernel of one line: {said}",
        hint=f"is it new enough for {target.name}? see TRITON_PTXAS_PATH and "
        f"TRITON_PTXAS_BLACKWELL_PATH; all that was said is in {log}",
    )

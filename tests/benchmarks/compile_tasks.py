"""compile_tasks: what the compiling processes of `bench_compile` do, with what it cost them."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
SHAPES = ((4096, 4096, 4096), (1000, 4095, 1023))
"""M, N and K, one of each compile class: aligned to 16, and not."""


def cpu_s() -> float:
    """CPU-seconds of this process and of the assemblers that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def counted(state: Any, function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """A call of tritune's own, and the CPU-seconds it took."""
    before = cpu_s()
    value = function(state, *args)
    return value, cpu_s() - before


def open_plain(cache: str) -> Any:
    """The kernel alone, and a driver that names an H200: Triton as it comes, and no GPU."""
    os.environ["TRITON_CACHE_DIR"] = cache
    sys.path.insert(0, str(DATA))
    import compile_matmul
    import triton

    from tritune.device import stages, targets

    target = stages.gpu_target(targets.find("H200"))
    triton.runtime.driver.set_active(stages.StandIn(target))
    return compile_matmul.matmul_kernel


def whole_pipeline(kernel: Any, shape: tuple[int, int, int], config: dict[str, int]) -> float:
    """Compile one config from source to binary; the CPU-seconds it took."""
    from triton.runtime.jit import MockTensor

    before = cpu_s()
    M, N, K = shape
    tensors = [MockTensor("fp16") for _ in range(3)]
    kernel.warmup(*tensors, M, N, K, K, 1, N, 1, N, 1, grid=(1,), **config)
    return cpu_s() - before

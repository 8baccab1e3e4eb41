"""device.resources: a binary or a TTGIR -> the resources it takes, with no launch."""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tritune.model import Target

MEMDESC = re.compile(r"!ttg\.memdesc<([0-9x]+)x(?:!tt\.)?([a-zA-Z][a-zA-Z0-9]*)")
BITS = re.compile(r"(\d+)")
TENSOR = re.compile(r"tensor<((?:\d+x)+)")
WIDTH = re.compile(r'"ttg\.(num-warps|threads-per-warp)" = (\d+)')
LOAD_WORK = 32.0
"""A load that is still one in TTGIR is compiled element by element: so many instructions each."""


def tensor_memory(binary: Any) -> int:
    return int(getattr(binary.metadata, "tmem_size", 0) or 0)


def code(binary: Any) -> bytes:
    code = binary.asm.get("cubin") or binary.asm.get("hsaco") or b""
    return code if isinstance(code, bytes) else str(code).encode()


def threads(binary: Any, target: Target) -> int:
    return int(binary.metadata.num_warps) * target.warp_size


def registers(binary: Any, target: Target) -> tuple[int, int]:
    """Registers a thread and bytes of stack, with no launch; (0, 0) where no tool can tell."""
    if target.backend != "cuda":
        text = binary.asm.get("amdgcn", "")
        found = [
            re.search(rf"\.{name}:\s+(\d+)", text)
            for name in ("vgpr_count", "private_segment_fixed_size")
        ]
        return (int(found[0][1]) if found[0] else 0, int(found[1][1]) if found[1] else 0)
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.is_file():  # a distribution's own Triton may come without it
        return (0, 0)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(code(binary))
        cubin.flush()
        said = subprocess.run(  # noqa: S603  # the wheel's own tool on our own file
            [tool, "-res-usage", cubin.name], capture_output=True, text=True, check=False
        ).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", said)
    return (int(usage[1]), int(usage[2])) if usage else (0, 0)


def compile_work(ttgir: str) -> float:
    """How much there is to compile: about the instructions of a thread.

    It only orders. Of 32 matmul binaries it ranks those of either alignment as their compiles
    took, from 0.2 to 2.7 s.
    """
    threads = math.prod(int(width) for _, width in WIDTH.findall(ttgir)) or 1
    work = 0.0
    for line in ttgir.splitlines():
        if " = " in line and (shapes := TENSOR.findall(line)):
            elements = math.prod(int(length) for length in shapes[-1].split("x") if length)
            weight = LOAD_WORK if " = tt.load " in line else 1.0
            work += weight * max(elements / threads, 1.0)
    return work


def shared_bound(ttgir: str) -> int:
    """Bytes of shared memory that the binary of *ttgir* takes at least.

    The peak of live allocations in the order of the text; LLVM adds scratch space to it, never
    less. On 288 matmul configs it caught all 50 that exceed an H200, and it was never above the
    true size in 72 attention configs, where the plain sum is.
    """
    live: dict[str, int] = {}
    peak = 0
    for line in ttgir.splitlines():
        if "ttg.local_alloc" in line and (name := line.strip().split(" ")[0]).startswith("%"):
            live[name] = _bytes(line.rsplit("->", 1)[-1])
            peak = max(peak, sum(live.values()))
        elif "ttg.local_dealloc" in line:
            live.pop(line.split("ttg.local_dealloc", 1)[1].split()[0].rstrip(":"), None)
    return peak


def _bytes(type_text: str) -> int:
    found = MEMDESC.search(type_text)
    if not found:
        return 0
    size = 1
    for length in found[1].split("x"):
        size *= int(length)
    bits = BITS.search(found[2])
    return size * (max(int(bits[1]), 8) if bits else 64) // 8

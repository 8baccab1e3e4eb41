"""device.occupancy: the resources of a binary, and a target -> programs an SM holds at once.

NVIDIA's own arithmetic (registers go to whole warps in steps of 256, shared memory to programs
in steps of 128 bytes and 1 KiB more than they ask for) and AMD's (registers of a wave in steps
of 8, of the 512 that each of four SIMDs has for a thread). 0 is "does not fit".
"""

from __future__ import annotations

from tritune.model import Compiled, Target

WARP_STEP = 256
SHARED_STEP = 128
SHARED_OWN = 1024
"""Bytes of shared memory that CUDA keeps for itself in every program, from sm_80 on."""
SIMDS = 4
"""Register files of an SM, or of a CU: a warp lives in one of them."""
VGPR_STEP = 8


def programs(target: Target, *, registers: int, shared_bytes: int, threads: int) -> int:
    """How many programs of so many threads an SM of *target* holds at once.

    *registers* are those of a thread; 0 is "not known", and limits nothing.
    """
    if not threads or threads > target.threads or shared_bytes > target.shared_bytes:
        return 0
    warps = -(-threads // target.warp_size)
    limits = [
        target.programs_sm,
        target.threads_sm // (warps * target.warp_size),
        _warps_by_registers(target, registers) // warps,
    ]
    if shared_bytes and target.shared_bytes_sm:
        limits.append(target.shared_bytes_sm // _shared(target, shared_bytes))
    return min(limits)


def _warps_by_registers(target: Target, registers: int) -> int:
    most = target.threads_sm // target.warp_size
    if not registers:
        return most
    if target.backend == "hip":
        in_simd = target.registers_sm // SIMDS // target.warp_size // _up(registers, VGPR_STEP)
    else:
        in_simd = target.registers_sm // SIMDS // _up(registers * target.warp_size, WARP_STEP)
    return min(most, SIMDS * in_simd)


def _shared(target: Target, asked: int) -> int:
    return asked if target.backend == "hip" else _up(asked + SHARED_OWN, SHARED_STEP)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def of(compiled: Compiled, target: Target) -> float:
    """The share of an SM's threads that a binary can keep busy; 0 where it does not fit."""
    held = programs(
        target,
        registers=compiled.registers,
        shared_bytes=compiled.shared_bytes,
        threads=compiled.threads,
    )
    return held * compiled.threads / target.threads_sm

"""device.targets: a product's name -> the facts that limit and identify it.

The table holds what the makers' data sheets and programming guides say; on a real device what
its driver says wins. Peaks are dense, TFLOP/s, with fp32 accumulation; bandwidths are GB/s.
"""

from __future__ import annotations

import difflib
from dataclasses import replace

from tritune.errors import SpecError
from tritune.model import DeviceIdentity, Target

_MIB = 1 << 20


def _hopper(name: str, *, bus_bits: int, dram_gbps: float, l2_mib: int, driver: str) -> Target:
    return Target(
        name=name,
        backend="cuda",
        arch=90,
        warp_size=32,
        sms=132,
        shared_bytes=232448,
        shared_bytes_sm=233472,
        l2_bytes=l2_mib * _MIB,
        dram_gbps=dram_gbps,
        bus_bits=bus_bits,
        peaks_tflops=(
            ("bf16", 989.4),
            ("fp16", 989.4),
            ("fp32", 66.9),
            ("fp64", 66.9),
            ("fp8", 1978.9),
        ),
        names=(driver,),
    )


def _small_shared(  # noqa: PLR0913  # one row of a table
    name: str,
    *,
    arch: int,
    sms: int,
    l2_mib: int,
    dram_gbps: float,
    bus_bits: int,
    fp16: float,
    fp8: float,
    fp32: float,
    driver: str,
) -> Target:
    return Target(
        name=name,
        backend="cuda",
        arch=arch,
        warp_size=32,
        sms=sms,
        shared_bytes=101376,
        shared_bytes_sm=102400,
        threads_sm=1536,
        programs_sm=24,
        l2_bytes=l2_mib * _MIB,
        dram_gbps=dram_gbps,
        bus_bits=bus_bits,
        peaks_tflops=(("bf16", fp16), ("fp16", fp16), ("fp32", fp32), ("fp8", fp8)),
        names=(driver,),
    )


def _amd(  # noqa: PLR0913  # one row of a table
    name: str,
    *,
    arch: str,
    sms: int,
    shared_bytes: int,
    dram_gbps: float,
    fp16: float,
    fp8: float,
    fp32: float,
) -> Target:
    return Target(
        name=name,
        backend="hip",
        arch=arch,
        warp_size=64,
        sms=sms,
        shared_bytes=shared_bytes,
        shared_bytes_sm=shared_bytes,
        registers_sm=131072,
        l2_bytes=256 * _MIB,
        dram_gbps=dram_gbps,
        bus_bits=8192,
        peaks_tflops=(("bf16", fp16), ("fp16", fp16), ("fp32", fp32), ("fp8", fp8)),
        names=(f"AMD Instinct {name}",),
    )


TARGETS = (
    Target(
        name="A100",
        backend="cuda",
        arch=80,
        warp_size=32,
        sms=108,
        shared_bytes=166912,
        shared_bytes_sm=167936,
        l2_bytes=40 * _MIB,
        dram_gbps=2039,
        bus_bits=5120,
        peaks_tflops=(("bf16", 312), ("fp16", 312), ("fp32", 19.5), ("fp64", 19.5)),
        names=("NVIDIA A100-SXM4-80GB",),
    ),
    _hopper("H100", bus_bits=5120, dram_gbps=3350, l2_mib=50, driver="NVIDIA H100 80GB HBM3"),
    _hopper("H200", bus_bits=6016, dram_gbps=4800, l2_mib=60, driver="NVIDIA H200"),
    _small_shared(
        "L40S",
        arch=89,
        sms=142,
        l2_mib=96,
        dram_gbps=864,
        bus_bits=384,
        fp16=362,
        fp8=733,
        fp32=91.6,
        driver="NVIDIA L40S",
    ),
    _small_shared(
        "RTX 4090",
        arch=89,
        sms=128,
        l2_mib=72,
        dram_gbps=1008,
        bus_bits=384,
        fp16=165.2,
        fp8=330.3,
        fp32=82.6,
        driver="NVIDIA GeForce RTX 4090",
    ),
    Target(
        name="B200",
        backend="cuda",
        arch=100,
        warp_size=32,
        sms=148,
        shared_bytes=232448,
        shared_bytes_sm=233472,
        tensor_memory=512,
        l2_bytes=126 * _MIB,
        dram_gbps=7700,
        bus_bits=8192,
        peaks_tflops=(("bf16", 2250), ("fp16", 2250), ("fp32", 75), ("fp8", 4500)),
        names=("NVIDIA B200",),
    ),
    _small_shared(
        "RTX 5090",
        arch=120,
        sms=170,
        l2_mib=96,
        dram_gbps=1792,
        bus_bits=512,
        fp16=209.5,
        fp8=419,
        fp32=104.8,
        driver="NVIDIA GeForce RTX 5090",
    ),
    _amd(
        "MI300X",
        arch="gfx942",
        sms=304,
        shared_bytes=65536,
        dram_gbps=5300,
        fp16=1307.4,
        fp8=2614.9,
        fp32=163.4,
    ),
    _amd(
        "MI355X",
        arch="gfx950",
        sms=256,
        shared_bytes=163840,
        dram_gbps=8000,
        fp16=2516.6,
        fp8=5033.2,
        fp32=157.3,
    ),
)

NAMES = tuple(target.name for target in TARGETS)


def find(name: str) -> Target:
    """The target called *name*: a product (`H200`), or a backend and arch (`cuda:90`).

    Raises:
        SpecError: nothing in the table is called so.
    """
    by_arch = {f"{target.backend}:{target.arch}": target for target in reversed(TARGETS)}
    known = {target.name.lower(): target for target in TARGETS} | by_arch
    target = known.get(name.lower())
    if target is None:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        meant = f"did you mean {known[near[0]].name}? " if near else ""
        raise SpecError(
            f"`{name}` is not a target",
            hint=f"{meant}known: {', '.join([*NAMES, *sorted(by_arch)])}",
        )
    return target


def of_device(identity: DeviceIdentity) -> Target:
    """The target that a device is: a row of the table where the silicon matches, else its own."""
    for row in TARGETS:
        facts = (row.backend, row.arch, row.sms, row.shared_bytes, row.bus_bits)
        if facts == identity.silicon()[:5]:
            return replace(row, memory_mhz=identity.memory_mhz, names=identity.names)
    kin = next((row for row in TARGETS if row.arch == identity.arch), None)
    own = Target(
        name=identity.name.removeprefix("NVIDIA ").removeprefix("AMD Instinct "),
        backend=identity.backend,
        arch=identity.arch,
        warp_size=64 if identity.backend == "hip" else 32,
        sms=identity.sms,
        shared_bytes=identity.shared_bytes,
        bus_bits=identity.bus_bits,
        memory_mhz=identity.memory_mhz,
        names=identity.names,
    )
    if kin is None:
        return own
    # What follows from the architecture alone; what a chip has of it, its driver has said.
    return replace(
        own,
        shared_bytes_sm=kin.shared_bytes_sm,
        registers_sm=kin.registers_sm,
        threads_sm=kin.threads_sm,
        programs_sm=kin.programs_sm,
        tensor_memory=kin.tensor_memory,
    )


def identity(target: Target) -> DeviceIdentity:
    """The facts by which a lockfile knows this target."""
    return DeviceIdentity(
        name=target.name,
        backend=target.backend,
        arch=target.arch,
        sms=target.sms,
        shared_bytes=target.shared_bytes,
        bus_bits=target.bus_bits,
        memory_mhz=target.memory_mhz,
        names=target.names,
    )

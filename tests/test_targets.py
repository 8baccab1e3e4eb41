"""The table of targets, and how many programs an SM of one holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import compiled
from tritune.device import occupancy, targets
from tritune.model import DeviceIdentity

H100, A100, L40S, RTX5090 = (targets.find(name) for name in ("H100", "A100", "L40S", "RTX 5090"))
MI300X = targets.find("MI300X")


@pytest.mark.parametrize(
    ("target", "registers", "shared_bytes", "threads", "programs"),
    [
        # As NVIDIA's occupancy calculator has them.
        (H100, 32, 0, 256, 8),
        (H100, 128, 0, 128, 4),
        (H100, 128, 49152, 128, 4),
        (H100, 168, 0, 384, 1),
        (H100, 255, 0, 256, 1),
        (H100, 32, 232448, 128, 1),
        (H100, 32, 115712, 128, 2),
        (H100, 32, 115713, 128, 1),
        (H100, 16, 0, 32, 32),
        (A100, 32, 49152, 128, 3),
        (A100, 96, 0, 256, 2),
        (L40S, 32, 0, 1024, 1),
        (L40S, 40, 0, 256, 6),
        (RTX5090, 32, 0, 32, 24),
    ],
)
def test_an_sm_holds_as_many_programs_as_nvidia_says(
    target, registers, shared_bytes, threads, programs
):
    held = occupancy.programs(
        target, registers=registers, shared_bytes=shared_bytes, threads=threads
    )

    assert held == programs


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "programs"),
    [
        (64, 0, 256, 8),
        (128, 0, 256, 4),
        (129, 0, 256, 3),
        (512, 0, 256, 1),
        (64, 32768, 256, 2),
        (64, 65536, 256, 1),
    ],
)
def test_a_cu_holds_as_many_programs_as_its_registers_and_lds_allow(
    registers, shared_bytes, threads, programs
):
    held = occupancy.programs(
        MI300X, registers=registers, shared_bytes=shared_bytes, threads=threads
    )

    assert held == programs


def test_what_does_not_fit_holds_no_program():
    assert occupancy.programs(H100, registers=32, shared_bytes=232449, threads=128) == 0
    assert occupancy.programs(H100, registers=32, shared_bytes=0, threads=2048) == 0
    assert occupancy.programs(H100, registers=32, shared_bytes=0, threads=0) == 0


def test_registers_that_no_tool_tells_limit_nothing():
    assert occupancy.programs(H100, registers=0, shared_bytes=0, threads=256) == 8


def test_occupancy_is_the_share_of_an_sms_threads():
    one = replace(compiled(), registers=128, shared_bytes=49152, threads=128)

    assert occupancy.of(one, H100) == 0.25


def test_every_target_is_found_by_its_name_and_says_what_limits_it():
    for name in targets.NAMES:
        one = targets.find(name)
        assert one.name == name
        assert min(one.sms, one.shared_bytes, one.registers_sm, one.l2_bytes, one.bus_bits) > 0
        assert one.shared_bytes <= one.shared_bytes_sm
        assert one.threads <= one.threads_sm
        assert dict(one.peaks_tflops)["fp16"] > 0
        assert one.dram_gbps > 0
    assert targets.NAMES == (
        "A100",
        "H100",
        "H200",
        "L40S",
        "RTX 4090",
        "B200",
        "RTX 5090",
        "MI300X",
        "MI355X",
    )
    assert targets.find("cuda:90").arch == 90
    assert targets.find("hip:gfx942").name == "MI300X"


def identity(**changed):
    facts = {
        "name": "NVIDIA GeForce RTX 4080",
        "backend": "cuda",
        "arch": 89,
        "sms": 76,
        "shared_bytes": 101376,
        "bus_bits": 256,
        "memory_mhz": 11201,
        "names": ("NVIDIA GeForce RTX 4080",),
    }
    return DeviceIdentity(**facts | changed)


def test_a_product_that_is_not_in_the_table_is_what_its_driver_says():
    own = targets.of_device(identity())

    assert (own.name, own.sms, own.shared_bytes, own.bus_bits) == (
        "GeForce RTX 4080",
        76,
        101376,
        256,
    )
    assert (own.threads_sm, own.shared_bytes_sm) == (1536, 102400)
    assert (own.l2_bytes, own.dram_gbps, own.peaks_tflops) == (0, 0.0, ())


def test_what_the_driver_says_wins_over_the_table():
    h200 = targets.find("H200")
    there = replace(targets.identity(h200), memory_mhz=3201, names=("NVIDIA H200 of another sort",))

    found = targets.of_device(there)

    assert (found.name, found.memory_mhz, found.names) == ("H200", 3201, there.names)
    assert targets.of_device(replace(there, sms=66, name="NVIDIA H200 MIG 3g")).sms == 66


def test_an_architecture_that_is_not_in_the_table_has_only_what_its_driver_says():
    own = targets.of_device(identity(arch=70, name="Tesla V100"))

    assert (own.name, own.arch, own.shared_bytes_sm, own.threads_sm) == ("Tesla V100", 70, 0, 2048)

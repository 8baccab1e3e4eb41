"""The launch path of production: a stand-in driver, and binaries that only note a launch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from tritune.device.lowering import StandIn
from tritune.launcher import Launcher

FACTOR = tl.constexpr(3)


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)


@triton.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})
@triton.jit
def even(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x, n)


@pytest.fixture(name="compiled")
def _compiled(monkeypatch):
    """Every compile, as the specialisation that it was for; its binary notes its launches."""
    made: list[SimpleNamespace] = []

    def compile_(self, key, signature, device, *rest, **named):
        binary = SimpleNamespace(key=key, launches=[], function=7, packed_metadata=(1,))
        binary.launch_metadata = lambda grid, stream, *args: "metadata"
        binary.run = lambda *args: binary.launches.append(args)
        self.used_global_vals = {("FACTOR", 0): (globals()["FACTOR"], globals())}
        self.device_caches[device][0][key] = binary
        made.append(binary)
        return binary

    monkeypatch.setattr(JITFunction, "_do_compile", compile_)
    before = getattr(driver, "_active", None)
    driver.set_active(StandIn(GPUTarget("cuda", 90, 32)))
    yield made
    driver._active = before
    for kernel in (scale, even.fn):
        kernel.device_caches.clear()


def tensors(offset=0):
    return torch.zeros(64 + offset)[offset:], torch.zeros(64)


def test_a_second_launch_runs_the_binary_of_the_first_with_its_own_arguments(compiled):
    launcher = Launcher(scale)
    x, y = tensors()

    launcher.launch((x, y, 64), {"BLOCK": 16, "num_warps": 4}, (4,))
    launcher.launch(
        (y, x, 48), {"BLOCK": 16, "num_warps": 4}, lambda meta: (48 // meta["BLOCK"], 2)
    )

    [binary] = compiled
    first, second = binary.launches
    assert first[:3] == (4, 1, 1)
    assert second[:3] == (3, 2, 1)
    assert second[4:6] == (7, (1,))
    assert second[-4:] == (y, x, 48, 16)


@pytest.mark.parametrize(
    ("args", "options"),
    [
        pytest.param((*tensors(offset=1), 64), {}, id="an unaligned pointer"),
        pytest.param((*tensors(), 1), {}, id="a size of one"),
        pytest.param((*tensors(), 63), {}, id="a size that is no multiple of 16"),
        pytest.param((torch.zeros(64).half(), torch.zeros(64), 64), {}, id="another dtype"),
        pytest.param((*tensors(), 64), {"BLOCK": 32}, id="another block"),
        pytest.param((*tensors(), 64), {"num_warps": 8}, id="other warps"),
    ],
)
def test_what_triton_specialises_on_gets_a_binary_of_its_own(compiled, args, options):
    launcher = Launcher(scale)
    usual = {"BLOCK": 16, "num_warps": 4}
    launcher.launch((*tensors(), 64), usual, (4,))

    for _ in range(2):
        launcher.launch(args, usual | options, (4,))

    assert [len(binary.launches) for binary in compiled] == [1, 2]


def test_heuristics_are_asked_on_every_launch(compiled):
    launcher = Launcher(even)
    x, _ = tensors()

    for n in (64, 60, 64, 60):
        launcher.launch((x, n), {"BLOCK": 16}, (1,))

    assert [(len(b.launches), b.launches[0][-2]) for b in compiled] == [(2, True), (2, False)]


def test_launch_hooks_are_called_with_metadata_and_empty_chains_are_not(compiled):
    launcher, x_y = Launcher(scale), tensors()
    seen = []
    for _ in range(2):
        launcher.launch((*x_y, 64), {"BLOCK": 16}, (4,))
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        launcher.launch((*x_y, 64), {"BLOCK": 16}, (4,))
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)

    plain, hooked = compiled[0].launches[1:]
    assert plain[6:9] == (None, None, None)
    assert hooked[6] == "metadata"
    assert hooked[7] is knobs.runtime.launch_enter_hook
    assert hooked[8] is None


def test_a_global_that_changed_after_the_compile_is_an_error(compiled, monkeypatch):
    launcher, x_y = Launcher(scale), tensors()
    for _ in range(2):
        launcher.launch((*x_y, 64), {"BLOCK": 16}, (4,))
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(5))

    with pytest.raises(RuntimeError, match="Global variable FACTOR has changed"):
        launcher.launch((*x_y, 64), {"BLOCK": 16}, (4,))


def test_hooks_before_a_run_see_every_launch(compiled, monkeypatch):
    seen = []
    monkeypatch.setattr(scale, "pre_run_hooks", [lambda *args, **named: seen.append(args[2])])
    launcher = Launcher(scale)

    for n in (64, 48):
        launcher.launch((*tensors(), n), {"BLOCK": 16}, (4,))

    assert seen == [64, 48]

"""projects: a small project on disk with a kernel, a sweep file and a lockfile that is fresh."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tritune import lock, spec
from tritune.device import locked, targets
from tritune.journal import Journal
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Entry,
    Evidence,
    Lock,
    LockedKey,
    Measured,
)
from tritune.pipeline.looking import described, desks
from tritune.pipeline.searched import Searched
from tritune.workers import Done

H200 = DeviceIdentity(
    name="H200",
    backend="cuda",
    arch=90,
    sms=132,
    shared_bytes=232448,
    bus_bits=6016,
    memory_mhz=3201,
    names=("NVIDIA H200",),
)
STAND_IN = """\
import types, triton

class Driver:
    utils = types.SimpleNamespace(get_device_properties=lambda index: dict(
        multiprocessor_count=132, max_shared_mem=232448, mem_bus_width=6016,
        mem_clock_rate=3201000))
    def get_current_device(self): return 0
    def get_current_target(self): return types.SimpleNamespace(backend="cuda", arch=90)
    def get_benchmarker(self): return benchmark

def benchmark(run, quantiles=None):
    run()
    return 1.0, 1.0, 1.0

triton.runtime.driver.set_active(Driver())
"""
"""Code of a process that takes itself to be on an H200, and times nothing."""
KERNEL = "ops:scale_kernel"
HELPERS = """
import triton
import triton.language as tl

GAIN = tl.constexpr(2.0)


@triton.jit
def twice(x):
    return x * 2.0


@triton.jit
def act(x):
    return twice(x) + 1.0
"""
OPS = '''
import torch
import triton
import triton.language as tl

import helpers as H
import tritune
from helpers import act as activate

SHIFT = tl.constexpr(3.0)
PAIR = tl.constexpr((5.0, 7.0))


@triton.constexpr_function
def half(n):
    return n // 2


@tritune.kernel(key=["n"], default={"BLOCK": 256, "num_warps": 4})
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr):
    """Scale."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    value = activate(value) * H.GAIN + SHIFT + PAIR[0] * half(BLOCK)
    tl.store(y + at, value, mask=at < n)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


@tritune.problem(scale_kernel)
def scale_problem(n, dtype):
    x = torch.randn(n, dtype=dtype)
    return tritune.Problem(lambda: scale(x))
'''
SWEEP = """
kernel: ../ops.py:scale_kernel
targets: [H200]
space:
  BLOCK: [256, 512]
  num_warps: [4]
shapes:
  - {n: [1000, 4096], dtype: float32}
"""
EVIDENCE = Evidence(
    us=10.0, default_us=20.0, margin=0.05, noise=0.003, bits="9c1e04d2", ir="", triton=""
)


class Project:
    """`sweeps/scale.yaml`, `ops.py`, `helpers.py`, a pyproject, and `tritune.lock`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sweeps").mkdir(parents=True)
        self.write("helpers.py", HELPERS)
        self.write("ops.py", OPS)
        self.write("sweeps/scale.yaml", SWEEP)
        self.write("pyproject.toml", '[tool.tritune]\nsweeps = ["sweeps/*.yaml"]\n')

    @property
    def sweep(self) -> Path:
        return self.folder / "sweeps/scale.yaml"

    @property
    def lockfile(self) -> Path:
        return self.folder / "tritune.lock"

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def take_shared_memory(self, available: int, blocks: Sequence[int] = ()) -> None:
        """The kernel takes 1024 bytes at BLOCK=256, and at 1024 2048 that its TTGIR tells of.

        The GPU has *available*; *blocks* are locked for the two problems, as imported.
        """
        dot = "value += tl.sum(tl.dot(tile, tl.trans(tile)))\n    tl.store(y"
        tile = "tile = tl.reshape(value, (BLOCK // 16, 16)).to(tl.float16)"
        self.edit("ops.py", "tl.store(y", f"{tile}\n    {dot}")
        imported = replace(EVIDENCE, us=0.0, default_us=None, margin=None, unmeasured=True)
        entries = [
            (
                LockedKey(kernel=KERNEL, device="H200", key=f"n={n} x=f32 y=f32"),
                Entry(config=Config.of({"BLOCK": block, "num_warps": 4}), evidence=imported),
            )
            for n, block in zip((1000, 4096), blocks, strict=False)
        ]
        device = replace(H200, shared_bytes=available)
        lock.write(self.lockfile, Lock(devices=(device,), entries=tuple(entries)))

    def lock(self) -> None:
        """Lock the default config of every problem, as a sweep of today's code would."""
        lock.write(self.lockfile, self.locked())

    def copy(self, folder: Path) -> Project:
        """The same project elsewhere."""
        copied = Project(folder)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return copied

    def record(self, path: Path, times_us: Mapping[int, float], triton: str) -> None:
        """A journal with a time for each block size, on every problem."""
        sweep = spec.read_sweep(self.sweep)
        with desks() as pool:
            _, [info] = described(pool, sweep)
        journal = Journal.open(path)
        for problem in sweep.problems:
            for block, us in times_us.items():
                config = Config.of({"BLOCK": block, "num_warps": 4})
                candidate = Candidate(kernel=KERNEL, problem=problem, config=config)
                compiled = Compiled(candidate=candidate, key="", binary=str(block), ir="00000000")
                journal.record(
                    Measured(compiled=compiled, samples_us=(us,) * 5, finals_us=(us,) * 30),
                    source=f"{info.source}.{info.problem_source}",
                    device=H200,
                    protocol=sweep.timing.protocol(),
                    triton=triton,
                )
        journal.close()

    def locked(self) -> Lock:
        sweep, chip = spec.read_sweep(self.sweep), targets.of_device(H200)
        reference = (sweep.kernel, sweep.problem)
        entries = []
        with desks() as pool:
            triton, [info] = described(pool, sweep)
            searched = Searched(sweep, chip, info)
            for problem in sweep.problems:
                config, held = info.default, {}
                for _ in range(2):  # the key, then what is under it
                    task = (reference, chip, problem, (config,), held)
                    [(_, answer)] = pool.run(locked.look, [task], 60.0)
                    assert isinstance(answer, Done), answer
                    held = {answer.value.key: config}
                evidence = replace(
                    EVIDENCE,
                    ir=answer.value.ir,
                    triton=triton,
                    source=info.source,
                    space=searched.digest(problem),
                )
                at = LockedKey(kernel=info.name, device="H200", key=answer.value.key)
                entries.append((at, Entry(config=config, evidence=evidence)))
        return Lock(devices=(H200,), entries=tuple(entries))

    def edit_evidence(self, **facts: object) -> None:
        """Give every entry other evidence."""
        held = lock.read(self.lockfile)
        entries = tuple(
            (at, replace(entry, evidence=replace(entry.evidence, **facts)))
            for at, entry in held.entries
        )
        lock.write(self.lockfile, replace(held, entries=entries))

"""fakes: nouns with defaults, and devices that need no hardware."""

from __future__ import annotations

import functools
import gzip
import json
import math
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tritune.device.guards import Canary
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Entry,
    Evidence,
    Measured,
    Outcome,
    Problem,
    Reason,
    Rejected,
    Target,
    Verified,
)

KERNEL = "kernels.matmul:matmul_kernel"
KEY = "M=64 N=4096 K=4096 a=f16 b=f16"
PROBLEM = Problem.of({"M": 64, "N": 4096, "K": 4096, "dtype": "float16"})
TRITON = "3.6.0"
GRID = Path(__file__).parent / "data" / "grid_h200_matmul.json.gz"

H200 = Target(
    name="H200",
    backend="cuda",
    arch=90,
    warp_size=32,
    sms=132,
    shared_bytes=232448,
    shared_bytes_sm=233472,
    l2_bytes=62914560,
    dram_gbps=4800.0,
    bus_bits=6144,
    memory_mhz=3201,
    peaks_tflops=(("fp16", 989.0), ("bf16", 989.0)),
    names=("NVIDIA H200",),
)
H200_IDENTITY = DeviceIdentity(
    name="H200",
    backend="cuda",
    arch=90,
    sms=132,
    shared_bytes=232448,
    bus_bits=6144,
    memory_mhz=3201,
    names=("NVIDIA H200",),
)


def config(**values: Any) -> Config:
    return Config.of({"BLOCK": 64, "num_warps": 4} | values)


def candidate(*, kernel: str = KERNEL, problem: Problem = PROBLEM, **values: Any) -> Candidate:
    return Candidate(kernel=kernel, problem=problem, config=config(**values))


def compiled(
    *,
    problem: Problem = PROBLEM,
    key: str = KEY,
    ir: str = "87b314e3",
    aliases: Sequence[Config] = (),
    **values: Any,
) -> Compiled:
    this = candidate(problem=problem, **values)
    return Compiled(
        candidate=this,
        key=key,
        binary=f"binary of {this.config}",
        ir=ir,
        registers=64,
        shared_bytes=49152,
        aliases=tuple(aliases),
    )


def measured(
    us: float = 10.0,
    *,
    samples: Sequence[float] | None = None,
    finals: Sequence[float] = (),
    confirm: Sequence[float] = (),
    floor: float = 0.0,
    bits: str = "9c1e04d2",
    ir: str = "87b314e3",
    aliases: Sequence[Config] = (),
    **values: Any,
) -> Measured:
    """Three screening samples of *us*, or *samples*; no finals unless given."""
    return Measured(
        compiled=compiled(ir=ir, aliases=aliases, **values),
        samples_us=tuple((us,) * 3 if samples is None else samples),
        finals_us=tuple(finals),
        confirm_us=tuple(confirm),
        floor=floor,
        bits=bits,
    )


def rejected(
    reason: Reason = Reason.SHARED,
    detail: str = "262144 of 232448 bytes",
    log: str = "",
    **values: Any,
) -> Rejected:
    return Rejected(candidate=candidate(**values), reason=reason, detail=detail, log=log)


def evidence(**changed: Any) -> Evidence:
    fields: dict[str, Any] = {
        "us": 10.0,
        "default_us": 20.0,
        "margin": 0.031,
        "noise": 0.003,
        "bits": "9c1e04d2",
        "ir": "87b314e3",
        "triton": TRITON,
    }
    return Evidence(**fields | changed)


def entry(this: Config, **changed: Any) -> Entry:
    return Entry(config=this, evidence=evidence(**changed))


class FakeDevice:
    """A GPU on which a candidate costs what a function says, give or take seeded noise."""

    target = H200
    triton = TRITON

    def __init__(
        self,
        cost_us: Callable[[Candidate], float] = lambda _: 100.0,
        *,
        wrong: Collection[Config] = (),
        fails: Mapping[Config, Reason] | None = None,
        noise: float = 0.0,
        seed: int = 0,
        clock: Callable[[int], float] = lambda _: 1.0,
    ) -> None:
        """*noise* is a standard deviation, relative; *clock* stretches the n-th round of all."""
        self._cost_us = cost_us
        self._wrong = wrong
        self._fails = fails or {}
        self._noise = noise
        self._random = random.Random(seed)  # noqa: S311
        self._clock = clock
        self._rounds = 0
        self.verified: list[Config] = []
        self.windows: list[tuple[tuple[Config, ...], int]] = []
        """Each window's configs and rounds."""
        self.closed = False
        self.renewed = 0
        self.opens = 0
        self.left = False

    def compiles(self) -> int:
        """Nothing is ever compiled here."""
        return 0

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        this = compiled.candidate
        self.verified.append(this.config)
        if this.config in self._wrong:
            detail = "largest relative error 0.5 at [0, 0]"
            return Rejected(candidate=this, reason=Reason.WRONG, detail=detail)
        return Verified(candidate=this, error=0.0004, bits="9c1e04d2")

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        self.windows.append((tuple(one.candidate.config for one in compiled), rounds))
        first, self._rounds = self._rounds, self._rounds + rounds  # as time goes by, on any device
        return tuple(self._answer(one.candidate, range(first, first + rounds)) for one in compiled)

    def _answer(self, this: Candidate, rounds: range) -> tuple[float, ...] | Rejected:
        if this.config in self._fails:
            reason = self._fails[this.config]
            return Rejected(candidate=this, reason=reason, detail=reason.value)
        return tuple(
            self._cost_us(this) * self._clock(number) * self._random.gauss(1, self._noise)
            for number in rounds
        )

    def canary(self) -> Canary:
        """An undisturbed GPU."""
        return Canary(us=200.0, mhz=1700.0)

    def renew(self) -> None:
        self.renewed += 1

    def open(self) -> None:
        self.opens += 1

    def leave(self) -> None:
        self.left = True

    def close(self) -> None:
        self.closed = True


@functools.cache
def grid() -> dict[str, Any]:
    """One fp16 matmul kernel, 288 configs on each of four problems, timed on an H200."""
    loaded: dict[str, Any] = json.loads(gzip.decompress(GRID.read_bytes()))
    return loaded


def grid_problems() -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(_grid_problem(row) for row in grid()["rows"]))


def grid_compiled(problem: Problem) -> tuple[Compiled, ...]:
    """What of the grid fits the device, one for each distinct binary."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in grid()["rows"]:
        if _grid_problem(row) == problem and "samples_us" in row:
            groups.setdefault(row["binary"], []).append(row)
    return tuple(_grid_binary(problem, rows) for rows in groups.values())


def grid_rejected(problem: Problem) -> tuple[Rejected, ...]:
    """What of the grid takes more shared memory than the device has."""
    return tuple(
        Rejected(
            candidate=Candidate(kernel=KERNEL, problem=problem, config=_grid_config(row)),
            reason=Reason.SHARED,
            detail=f"{row['shared']} of {H200.shared_bytes} bytes",
        )
        for row in grid()["rows"]
        if _grid_problem(row) == problem and "samples_us" not in row
    )


def grid_samples(problem: Problem) -> dict[Config, tuple[float, ...]]:
    """Every recorded sample of each binary, by the config that stands for it."""
    rows = {
        _grid_config(row): row.get("samples_us", ())
        for row in grid()["rows"]
        if _grid_problem(row) == problem
    }
    return {
        one.candidate.config: tuple(
            us for this in (one.candidate.config, *one.aliases) for us in rows[this]
        )
        for one in grid_compiled(problem)
    }


def grid_outcomes() -> tuple[Outcome, ...]:
    """The grid as a journal would hold it: its samples were taken one config at a time."""
    outcomes: list[Outcome] = []
    for problem in grid_problems():
        samples = grid_samples(problem)
        outcomes += [
            Measured(compiled=one, samples_us=samples[one.candidate.config])
            for one in grid_compiled(problem)
        ]
        outcomes += grid_rejected(problem)
    return tuple(outcomes)


def _grid_problem(row: Mapping[str, Any]) -> Problem:
    return Problem.of({name: row[name] for name in ("M", "N", "K")} | {"dtype": "float16"})


def _grid_config(row: Mapping[str, Any]) -> Config:
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages")
    return Config.of({name: row[name] for name in names})


def _grid_binary(problem: Problem, rows: Sequence[dict[str, Any]]) -> Compiled:
    first, *others = rows
    sizes = " ".join(f"{name}={first[name]}" for name in ("M", "N", "K"))
    return Compiled(
        candidate=Candidate(kernel=KERNEL, problem=problem, config=_grid_config(first)),
        key=f"{sizes} a=f16 b=f16",
        binary=first["binary"],
        ir=first["binary"][:8],
        registers=first["regs"],
        stack_bytes=first["stack"],
        shared_bytes=first["shared"],
        seconds=first["compile_s"],
        aliases=tuple(_grid_config(row) for row in others),
    )


class GridDevice:
    """An H200 that answers with samples drawn from those recorded on a real one."""

    target = H200
    triton = TRITON

    def __init__(self, problem: Problem, seed: int = 0) -> None:
        self._samples = grid_samples(problem)
        self._random = random.Random(seed)  # noqa: S311

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        return Verified(candidate=compiled.candidate, error=0.0, bits="00000000")

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        return tuple(
            tuple(self._random.choices(self._samples[one.candidate.config], k=rounds))
            for one in compiled
        )

    def true_us(self, this: Config) -> float:
        return statistics.median(self._samples[this])

    def best_us(self) -> float:
        return min(map(self.true_us, self._samples), default=math.inf)

    def canary(self) -> Canary:
        return Canary(us=200.0, mhz=1700.0)

    def renew(self) -> None:
        """Nothing to forget."""

    def close(self) -> None:
        """Nothing to give back."""

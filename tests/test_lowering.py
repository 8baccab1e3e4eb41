"""Lowering and compiling with real Triton for GPUs that are not here: counts, bounds, keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from fakes import grid
from tritune import compile as compiling
from tritune import grouping, space
from tritune.device import lowering, targets
from tritune.limit import Limit
from tritune.model import Candidate, Compiled, Config, Problem, Reason, Rejected, Sweep
from tritune.spec import read_sweep
from tritune.workers import Done, Pool

pytestmark = pytest.mark.lowering

ROOT = Path(__file__).parents[1]
GRID = ROOT / "tests" / "data" / "compile_matmul.yaml"
ALIGNED = Problem.of({"M": 4096, "N": 4096, "K": 4096})
UNALIGNED = Problem.of({"M": 1000, "N": 4095, "K": 1023})
H200, MI300X = targets.find("H200"), targets.find("MI300X")
NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")

HEURISTIC = """\
import torch
import triton
import triton.language as tl
import tritune


@tritune.kernel(key=["n"], default={"BLOCK": 64, "num_warps": 4})
@triton.heuristics({"REAL": lambda named: min(named["BLOCK"], 128)})
@triton.jit
def fill(x, n, BLOCK: tl.constexpr, REAL: tl.constexpr):
    at = tl.program_id(0) * REAL + tl.arange(0, REAL)
    tl.store(x + at, 1.0, mask=at < n)


@tritune.problem(fill)
def fill_problem(n):
    x = torch.empty(n)
    return tritune.Problem(lambda: fill[lambda meta: (triton.cdiv(n, meta["REAL"]),)](x, n))
"""


class Compilers:
    """Two compiling processes for one kernel and target, and what a sweep does with them."""

    def __init__(self, sweep: Sweep, name: str, target, folder: Path, size: int = 2) -> None:
        self.name, self.target, self.folder = name, target, folder
        self.pool = Pool(
            size,
            lowering.open_session,
            sweep.kernel,
            sweep.problem,
            target,
            str(folder / "cache"),
            log_folder=folder,
        )

    def groups(self, problem: Problem, configs) -> tuple:
        candidates = [Candidate(kernel=self.name, problem=problem, config=one) for one in configs]
        self.found = compiling.find_launches(self.pool, candidates, lambda _: None)
        assert self.found.rejected == ()
        self.lowered = compiling.lower(self.pool, self.found.launches, self.folder, lambda _: None)
        return grouping.group(
            self.found.launches,
            self.lowered,
            target=self.target,
            work=self.found.by_problem,
            lead=lambda _: False,
        )

    def compile(self, groups, *, entries: set[str] | None = None) -> list[Compiled | Rejected]:
        run = compiling.compile_groups(
            self.pool,
            groups,
            target=self.target,
            limit=Limit(120.0),
            logs=self.folder,
            entries=entries,
        )
        return [outcome for _, outcome in run]


@pytest.fixture(name="matmul", scope="module")
def _matmul(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compilers]:
    folder = tmp_path_factory.mktemp("matmul")
    compilers = Compilers(read_sweep(GRID), "compile_matmul:matmul_kernel", H200, folder)
    with compilers.pool:
        yield compilers


def recorded(problem: Problem) -> dict[tuple[int, ...], int]:
    """Bytes of shared memory that each config of the grid took on an H200."""
    sizes = problem.as_dict()
    return {
        tuple(row[name] for name in NAMES): row["shared"]
        for row in grid()["rows"]
        if all(row[name] == size for name, size in sizes.items())
    }


def short(config: Config) -> tuple[object, ...]:
    return tuple(config[name] for name in NAMES)


def test_288_configs_of_an_unaligned_matmul_are_72_distinct_ttgir(matmul):
    configs = list(space.configs(read_sweep(GRID), H200))

    groups, rejected = matmul.groups(UNALIGNED, configs)

    assert (len(configs), len(groups), rejected) == (288, 72, ())
    assert {one.compile_class for one in matmul.found.launches} == matmul.lowered.keys()
    assert len(matmul.lowered) == 288
    for one in groups:
        same = (one.candidate.config, *one.aliases)
        assert [config["num_stages"] for config in same] == [2, 3, 4, 5]
        assert len({short(config)[:4] for config in same}) == 1


def test_a_bound_before_llvm_rejects_all_that_exceed_the_gpu_and_nothing_that_fits(matmul):
    """Of the aligned grid, all 50 that took too much, and as many of those that came nearest."""
    needed = recorded(ALIGNED)
    configs = sorted(space.configs(read_sweep(GRID), H200), key=lambda one: -needed[short(one)])
    oversize = [one for one in configs if needed[short(one)] > H200.shared_bytes]

    groups, rejected = matmul.groups(ALIGNED, configs[: 2 * len(oversize)])

    assert len(oversize) == 50
    assert {one.candidate.config for one in rejected} == set(oversize)
    assert {one.reason for one in rejected} == {Reason.SHARED}
    assert len(groups) == 50


def test_a_bound_is_never_above_what_a_binary_takes(matmul):
    configs = [
        one
        for one in space.configs(read_sweep(GRID), H200)
        if one["BLOCK_M"] == 64 and one["BLOCK_N"] == 64 and one["num_warps"] == 4
    ]
    groups, _ = matmul.groups(ALIGNED, configs[::3])

    made = matmul.compile(groups)

    bounds = {one.candidate.config: one.lowered.shared_bound for one in groups}
    assert len(made) == len(groups) == 4
    for one in made:
        assert isinstance(one, Compiled)
        assert 0 < bounds[one.candidate.config] <= one.shared_bytes <= H200.shared_bytes
        assert one.registers > 0
        assert (one.threads, one.tensor_memory) == (128, 0)


def test_a_bound_is_never_above_what_attention_takes(tmp_path):
    """Its two loops hold their tiles one after the other: a plain sum would be too much."""
    sweep = read_sweep(ROOT / "sweeps" / "attention.yaml")
    problem = sweep.problems[0]
    compilers = Compilers(sweep, "kernels.attention:attention_kernel", H200, tmp_path)
    values = {"BLOCK_M": 64, "num_warps": 4}
    configs = [
        Config.of(values | {"BLOCK_N": n, "num_stages": stages}) for n, stages in ((32, 2), (64, 3))
    ]

    with compilers.pool:
        groups, rejected = compilers.groups(problem, configs)
        made = compilers.compile(groups)

    assert rejected == ()
    for one, outcome in zip(groups, sorted(made, key=lambda it: it.candidate.config.order()),
                            strict=True):  # fmt: skip
        assert 0 < one.lowered.shared_bound <= outcome.shared_bytes


def test_configs_of_one_ttgir_are_compiled_once_and_each_of_their_keys_is_found(matmul, tmp_path):
    configs = [
        Config.of(
            {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
            | {"num_stages": stages}
        )
        for stages in (2, 3, 4)
    ]
    groups, _ = matmul.groups(UNALIGNED, configs)
    entries: set[str] = set()

    [one] = matmul.compile(groups, entries=entries)
    again = [
        matmul.pool.run(
            lowering.compile_, [(launches.candidate, "", groups[0].lowered.ir, ())], 60.0
        )
        for launches in groups[0].members
    ]

    assert isinstance(one, Compiled)
    assert [config["num_stages"] for config in one.aliases] == [3, 4]
    for calls in again:
        [(_, answer)] = calls
        assert isinstance(answer, Done)
        assert (answer.value.seconds, answer.value.binary) == (0.0, one.binary)


def test_what_the_cache_holds_of_another_ttir_is_compiled_anew(matmul):
    config = Config.of(
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 8, "num_stages": 2}
    )
    [one], _ = matmul.groups(UNALIGNED, [config])
    candidate, ir = one.candidate, one.lowered.ir
    call = partial(matmul.pool.run, lowering.compile_)

    answers = [
        answer.value.seconds > 0
        for digest in (ir, ir, "00000000")
        for _, answer in call([(candidate, "", digest, ())], 60.0)
    ]

    assert answers == [True, False, True]


def test_configs_whose_effective_meta_parameters_are_equal_are_one_group(tmp_path):
    """A heuristic cuts BLOCK down to what the kernel really uses."""
    module, sweep = tmp_path / "ops.py", tmp_path / "fill.yaml"
    module.write_text(HEURISTIC, encoding="utf-8")
    sweep.write_text(
        "kernel: ops.py:fill\nspace: {BLOCK: [64, 128, 256, 512]}\nshapes: [{n: 1000}]\n",
        encoding="utf-8",
    )
    configs = [Config.of({"BLOCK": 64 << i, "num_warps": 4}) for i in range(4)]
    compilers = Compilers(read_sweep(sweep), "ops:fill", H200, tmp_path, size=1)

    with compilers.pool:
        groups, _ = compilers.groups(Problem.of({"n": 1000}), configs)

    assert [[one["BLOCK"] for one in (g.candidate.config, *g.aliases)] for g in groups] == [
        [64],
        [128, 256, 512],
    ]


def test_an_amd_gpu_is_lowered_grouped_and_compiled_for(tmp_path):
    compilers = Compilers(
        read_sweep(GRID), "compile_matmul:matmul_kernel", MI300X, tmp_path, size=1
    )
    values = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4}
    configs = [Config.of(values | {"num_stages": stages}) for stages in (2, 3)]
    big = Config.of(
        values | {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "num_stages": 2, "num_warps": 8}
    )

    with compilers.pool:
        groups, rejected = compilers.groups(ALIGNED, [*configs, big])
        made = compilers.compile(groups[:1])

    [one] = made
    assert [each.candidate.config for each in rejected] == [big]
    assert isinstance(one, Compiled)
    assert one.threads == 256
    assert 0 < one.registers <= 512
    assert groups[0].lowered.shared_bound <= one.shared_bytes <= MI300X.shared_bytes
    assert one.binary

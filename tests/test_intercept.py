"""An op whose launches are caught: which of them run the config under trial, and with what."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from test_adopt import _world, benchmarks, config, configs, fill, ran, sweeping, timed
from tritune import intercept, runtime
from tritune.device import sampling
from tritune.device.bench import Bench
from tritune.load import Loaded
from tritune.model import Config, Problem

__all__ = ["_world", "benchmarks", "sweeping"]

KEYS = {n: f"n={n} FLAG=1 x=f32 y=i32" for n in (8, 9)}


def two_keys(kernel):
    """An op that launches a kernel under two keys, and shows which config each launch had."""
    ys = [torch.zeros(1, dtype=torch.int32) for _ in KEYS]

    def op():
        for n, y in zip(KEYS, ys, strict=True):
            kernel[(1,)](torch.zeros(8), y, n, 1)
        return [y.item() for y in ys]

    return op


@pytest.mark.parametrize(("n", "blocks"), [(8, [64, 16]), (9, [16, 64])])
def test_a_config_is_tried_under_its_own_key_alone_as_it_may_be_wrong_under_another(
    sweeping, n, blocks
):
    kernel = fill()
    behind = sweeping(kernel)

    ran, captured = intercept.capture(behind, two_keys(kernel), Config.of(config(64)), key=KEYS[n])

    assert (ran, len(captured)) == (blocks, 1)


def test_a_whole_op_is_timed_with_the_config_under_its_own_key_alone(sweeping):
    kernel, ran = fill(), []
    op = two_keys(kernel)
    bench = Bench(
        loaded=Loaded(sweeping(kernel), op), device=torch.device("cpu"), cold=False, flush=None
    )
    bench.problem = Problem.of({"n": 8}).under(KEYS[9])
    bench.made = runtime.Problem(lambda: ran.append(op()), timed="op")

    sampling._prepare(bench, Config.of(config(64))).run()

    assert ran
    assert all(blocks == [16, 64] for blocks in ran)


def test_where_a_whole_op_is_timed_triton_benchmarks_none_of_its_other_kernels(
    sweeping, benchmarks
):
    @triton.autotune(configs(128, 256), key=["n"], do_bench=timed)
    @triton.jit
    def other(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.store(y, B)

    tried = fill()
    bench = Bench(
        loaded=Loaded(sweeping(tried), two_keys), device=torch.device("cpu"), cold=False, flush=None
    )
    bench.problem, seen = Problem.of({"n": 8}), []
    bench.made = runtime.Problem(lambda: seen.append((ran(tried), ran(other))), timed="op")

    sampling._prepare(bench, Config.of(config(64))).run()

    assert ({*seen}, benchmarks()) == ({(64, 128)}, 0)


def blocks(named):
    named["x"].block_shape[0] = named["B"]


def test_a_launch_keeps_the_blocks_of_a_descriptor_that_a_later_one_gives_others(sweeping):
    @triton.autotune(configs(16, 32, hook=blocks), key=["n"], do_bench=timed)
    @triton.jit
    def described(x, y, n, B: tl.constexpr):
        tl.store(y, B)

    x, y = TensorDescriptor(torch.zeros(64, 4), [64, 4], [4, 1], [1, 4]), torch.zeros(1)

    def op():
        for n in (8, 9):
            described[(1,)](x, y, n)

    _, [one] = intercept.capture(
        sweeping(described), op, Config.of(config(32)), key="n=8 x=f32 y=f32"
    )

    assert (one.args[0].block_shape, x.block_shape) == ([32, 4], [16, 4])
    assert one.args[0].base is x.base


def test_a_grid_finds_the_arguments_that_a_launch_leaves_to_their_defaults(sweeping):
    @triton.autotune(configs(16, 32), key=["n"], do_bench=timed)
    @triton.jit
    def halved(x, y, n, B: tl.constexpr, PARTS: tl.constexpr = 2):
        tl.store(y, B)

    y = torch.zeros(1)

    def op():
        halved[lambda named: (2 * named["PARTS"],)](torch.zeros(8), y, 8)

    _, [one] = intercept.capture(sweeping(halved), op, Config.of(config(32)))

    assert (one.grid_sizes(), y.item()) == ((4,), 32.0)
    assert "PARTS" not in one.for_hook(), "nor has it for a hook of Triton's own"


def test_a_config_may_set_an_argument_that_is_no_constexpr(sweeping):
    @triton.autotune(
        [triton.Config({"B": 16, "parts": parts}) for parts in (1, 2)], key=["n"], do_bench=timed
    )
    @triton.jit
    def split(x, y, n, parts, B: tl.constexpr):
        tl.store(y, B * parts)

    y = torch.zeros(1)

    def op():
        split[(1,)](torch.zeros(8), y, 8)

    behind = sweeping(split)
    _, [one] = intercept.capture(behind, op, Config.of(config(16, parts=2)))

    assert (y.item(), behind.key_of(one.named())) == (32.0, "n=8 x=f32 y=f32")

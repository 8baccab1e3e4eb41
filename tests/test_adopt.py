"""A kernel that nobody decorated: what it runs with once a lockfile is installed.

The kernels stand for those of public packages. They run in Triton's interpreter; a driver that
only answers questions stands in for a GPU.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver
from triton.runtime.interpreter import InterpretedFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import tritune
from fakes import evidence
from test_runtime import H100, FakeDriver, jitted, locked
from tritune import (
    adopt,
    adopted,
    contract,
    installing,
    intercept,
    lock,
    lookup,
    routing,
    tuned,
)
from tritune.errors import KernelError, LockError
from tritune.model import Config, Lock, Problem, Winner

HERE = "test_adopt"


@pytest.fixture(autouse=True)
def _world(plain_world, monkeypatch):
    """The interpreter on an H100, none of the user's settings, and nothing installed after."""
    monkeypatch.setattr(adopted, "_announced", set())
    monkeypatch.setattr(driver, "_active", FakeDriver())
    installing.uninstall()  # what a test before may have left
    before = vars(Autotuner)["run"]
    yield
    installing.uninstall()
    assert vars(Autotuner)["run"] is before


def timed(call, quantiles):
    """A benchmark that runs each config once and likes the last one best."""
    call()
    timed.calls += 1
    return [1.0 / timed.calls] * 3


timed.calls = 0


@pytest.fixture
def benchmarks():
    timed.calls = 0
    return lambda: timed.calls


def zeroed(named):
    named["y"].zero_()


def configs(*blocks, hook=None):
    return [triton.Config({"B": block}, num_warps=4, pre_hook=hook) for block in blocks]


def fill(listed=None, key=("n",), kind=None, **says):
    """Writes its block size to `y[0]`, so that a test sees which config it ran with."""

    @triton.jit
    def filled(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.store(y, B)

    if kind is not None:
        says.setdefault("reset_to_zero", None)
        says.setdefault("restore_value", None)
        return kind(filled, filled.arg_names, listed, list(key), do_bench=timed, **says)
    return triton.autotune(listed or configs(16, 32, 64), list(key), do_bench=timed, **says)(filled)


FILL = f"{HERE}:fill.<locals>.filled"


def ran(kernel, n=8, dtype=torch.float32, flag=1, **meta):
    x, y = torch.zeros(4, 8, dtype=dtype), torch.zeros(1, dtype=torch.int32)
    kernel[(1,)](x, y, n, flag, **meta)
    return y.item()


def key(n=8, flag=1, x="f32", y="i32"):
    return f"n={n} FLAG={flag} x={x} y={y}"


def config(block, warps=4, stages=3, **more):
    return {"B": block, "num_warps": warps, "num_stages": stages, **more}


def installed(tmp_path, entries, kernel=FILL, hook=""):
    path = locked(tmp_path / "t.lock", entries, kernel=kernel, hook=hook)
    tritune.install(path)
    return path


# --- serving ------------------------------------------------------------------------------


def test_a_locked_key_runs_its_config_and_nothing_is_benchmarked(tmp_path, benchmarks):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})

    assert (ran(kernel), benchmarks()) == (32, 0)
    assert kernel.best_config in kernel.configs
    assert kernel.best_config.kwargs == {"B": 32}
    assert (kernel.cache, kernel.keys, len(kernel.configs)) == ({}, ["n"], 3)
    assert tritune.stats()[FILL]["exact"] >= 1


def test_a_kernel_made_after_the_install_is_served_too(tmp_path, benchmarks):
    installed(tmp_path, {key(): config(32)})

    assert (ran(fill()), benchmarks()) == (32, 0)


def test_a_second_install_replaces_the_first(tmp_path, benchmarks):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    other = locked(tmp_path / "other.lock", {key(9): config(16)}, kernel=FILL)

    tritune.install(other)

    assert (ran(kernel, 9), benchmarks()) == (16, 0)
    assert (ran(kernel), benchmarks()) == (64, 3)


def test_a_lockfile_that_is_installed_again_is_read_as_it_is_now(tmp_path, benchmarks):
    kernel = fill()
    path = installed(tmp_path, {key(): config(32)})
    assert ran(kernel) == 32
    locked(path, {key(): config(16)}, kernel=FILL)
    assert ran(kernel) == 32

    tritune.uninstall()
    tritune.install(path)

    assert (ran(kernel), benchmarks()) == (16, 0)


def test_a_kernel_with_our_line_keeps_what_it_read_when_it_was_imported(tmp_path):
    entries = {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}
    path = locked(tmp_path / "t.lock", entries)
    kernel = jitted(path)
    locked(path, {"n=9 FLAG=True x=f32": {"B": 64, "num_warps": 8}})

    tritune.install(path)

    later = jitted(path)
    asked = {"FLAG": True, "x": torch.zeros(8)}
    assert [kernel.config(n=n, **asked)["B"] for n in (8, 9)] == [64, 16]
    assert [later.config(n=n, **asked)["B"] for n in (8, 9)] == [16, 64]


def test_a_miss_is_autotuned_by_triton_as_before_and_said_once(tmp_path, benchmarks, caplog):
    kernel = fill()
    path = installed(tmp_path, {key(): config(32)})

    assert (ran(kernel, 9), ran(kernel, 9), benchmarks()) == (64, 64, 3)
    assert ran(kernel, 10) == 64
    assert caplog.messages == [
        f"{FILL}: no locked config for {key(9)} on H100, so Triton autotunes it: locked are {key()}"
    ]
    assert kernel.cache.keys() == {
        (9, "torch.float32", "torch.int32"),
        (10, "torch.float32", "torch.int32"),
    }
    assert path.exists()


def test_uninstalling_leaves_the_kernel_as_it_was(tmp_path, benchmarks):
    kernel, before = fill(), vars(Autotuner).copy()
    installed(tmp_path, {key(): config(32)})
    ran(kernel)

    tritune.uninstall()

    assert (ran(kernel), benchmarks()) == (64, 3)
    assert vars(Autotuner).copy() == before
    assert not [name for name in vars(kernel) if "tritune" in name]


def test_a_kernel_that_the_lockfile_does_not_name_is_left_alone(tmp_path, benchmarks, caplog):
    kernel = fill()
    installed(tmp_path, {key(): config(32)}, kernel="elsewhere:filled")

    assert (ran(kernel), benchmarks(), caplog.messages) == (64, 3, [])


def winner(kernel, at=None, block=32):
    return Winner(
        kernel=kernel,
        key=at or key(),
        problem=Problem.of({}),
        config=Config.of(config(block)),
        evidence=evidence(),
    )


def test_how_many_kernels_of_a_package_a_lockfile_has_is_said_once(tmp_path, caplog):
    kernel, path = fill(), tmp_path / "t.lock"
    ours = [winner(FILL), winner(FILL, key(9)), winner(f"{HERE}:gone")]
    held = lock.merge_winners(Lock(), H100, [*ours, winner("elsewhere:filled")])
    elsewhere = dataclasses.replace(H100, name="other", arch=80)
    lock.write(path, lock.merge_winners(held, elsewhere, [winner(f"{HERE}:of_another_device")]))
    tritune.install(path)
    caplog.set_level(logging.INFO, logger="tritune")

    ran(kernel), ran(kernel, 9)

    assert [line for line in caplog.messages if "run" in line] == [
        f"{HERE}: runs what {path} says for H100, which has entries of 2 kernels"
    ]


def test_a_miss_can_be_an_error(tmp_path, monkeypatch):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    monkeypatch.setenv("TRITUNE_MISS", "error")

    with pytest.raises(LockError, match="has no locked config for n=9"):
        ran(kernel, 9)


def test_with_tritune_off_nothing_is_routed(tmp_path, monkeypatch, benchmarks):
    monkeypatch.setenv("TRITUNE", "off")
    kernel = fill()
    installed(tmp_path, {key(): config(32)})

    assert (ran(kernel), benchmarks()) == (64, 3)


def test_turned_off_after_the_install_a_kernel_is_tritons_own(tmp_path, monkeypatch, benchmarks):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    monkeypatch.setenv("TRITUNE", "off")

    assert (ran(kernel), benchmarks()) == (64, 3)


def test_what_is_launched_below_the_autotuner_runs_as_it_is(tmp_path):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})

    assert ran(kernel.fn, B=128) == 128


def test_a_meta_parameter_given_twice_is_refused_by_triton_as_before(tmp_path):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})

    with pytest.raises(ValueError, match="Conflicting meta-parameters: B"):
        ran(kernel, B=16)


def test_a_kernel_with_one_config_is_served_and_may_have_no_key(tmp_path, benchmarks):
    kernel = fill(configs(16), key=())
    installed(tmp_path, {"FLAG=1 x=f32 y=i32": config(16)})

    assert (ran(kernel), benchmarks()) == (16, 0)
    assert tritune.stats()[FILL]["exact"] >= 1


def test_arguments_may_all_be_passed_by_name(tmp_path, benchmarks):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    y = torch.zeros(1, dtype=torch.int32)

    kernel[(1,)](n=8, y=y, FLAG=1, x=torch.zeros(8))

    assert (y.item(), benchmarks()) == (32, 0)


def test_the_key_knows_the_dtype_the_constants_and_which_dimension_is_dense(tmp_path):
    kernel = fill()
    installed(
        tmp_path,
        {key(): config(16), key(x="f16"): config(32), key(x="f32(dim0)"): config(64)},
    )
    y = torch.zeros(1, dtype=torch.int32)

    assert ran(kernel) == 16
    assert ran(kernel, dtype=torch.float16) == 32
    kernel[(1,)](torch.zeros(8, 4).t(), y, 8, 1)
    assert y.item() == 64


def test_the_key_knows_the_dtype_behind_a_descriptor(sweeping):
    behind = sweeping(fill())

    found = [
        behind.key_of(
            {"x": TensorDescriptor.from_tensor(base, [8, 8]), "n": 8, "FLAG": 1, "y": None}
        )
        for base in (torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.bfloat16))
    ]

    assert found == ["n=8 FLAG=1 x=f32", "n=8 FLAG=1 x=bf16"]


def test_the_key_ignores_an_alignment_that_the_compiler_is_told_to_ignore(sweeping):
    @triton.autotune(configs(16, 32), key=["n"])
    @triton.jit(do_not_specialize=["x"])
    def loose(x, y, n, B: tl.constexpr):
        tl.store(y, B)

    odd = torch.zeros(9)[1:]

    assert sweeping(loose).key_of({"x": odd, "y": odd, "n": 8}) == "n=8 x=f32 y=f32(unaligned)"


def test_constants_that_are_tuples_or_dtypes_are_part_of_a_key(sweeping):
    behind = sweeping(fill())

    found = [behind.key_of({"x": None, "n": 8, "FLAG": f, "y": None}) for f in ((1, 2), tl.float16)]

    assert found == ["n=8 FLAG=(1,2)", "n=8 FLAG=f16"]


def test_a_tensor_named_in_the_key_counts_by_its_dtype_and_is_not_kept_alive(tmp_path):
    kernel = fill(key=("n", "x"))
    installed(tmp_path, {"n=8 x=f32 FLAG=1 y=i32": config(32)})

    assert (ran(kernel), ran(kernel)) == (32, 32)
    behind = adopt.kernel_of(kernel)
    assert not [at for at in behind._memo if any(isinstance(part, torch.Tensor) for part in at)]
    assert len(behind._memo) == 1


def in_threads(work, count=8):
    """Call `work(0)`, `work(1)`… at once, each in a thread of its own."""
    at_once, results = threading.Barrier(count), [None] * count

    def begin(number):
        at_once.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results


def slowly(monkeypatch, module, name):
    """Let a function of *module* take long enough for every thread to come to it."""
    own, calls = getattr(module, name), []

    def slow(*args, **kwargs):
        calls.append(args)
        time.sleep(0.05)
        return own(*args, **kwargs)

    monkeypatch.setattr(module, name, slow)
    return calls


def test_launches_of_several_threads_are_served(tmp_path, benchmarks, monkeypatch):
    # The interpreter changes `triton.language` while it runs: one at a time in there.
    interpret, inside = InterpretedFunction.run, threading.Lock()

    def one_at_a_time(self, *args, **kwargs):
        with inside:
            return interpret(self, *args, **kwargs)

    monkeypatch.setattr(InterpretedFunction, "run", one_at_a_time)
    kernel = fill()
    installed(tmp_path, {key(n): config(16 if n % 2 else 32) for n in range(8)})

    found = in_threads(lambda number: [ran(kernel, (number + n) % 8) for n in range(40)])

    assert found == [[16 if (number + n) % 2 else 32 for n in range(40)] for number in range(8)]
    assert benchmarks() == 0


def test_threads_that_launch_a_kernel_first_at_once_have_one_of_it(tmp_path, monkeypatch):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    made = slowly(monkeypatch, adopt, "_made")

    found = in_threads(lambda _: adopt.kernel_of(kernel))

    assert len(made) == 1
    assert {id(one) for one in found} == {id(adopt.kernel_of(kernel))}


def test_threads_that_ask_for_a_lockfile_first_at_once_have_one_of_it(tmp_path, monkeypatch):
    path = locked(tmp_path / "t.lock", {key(): config(32)}, kernel=FILL)
    read = slowly(monkeypatch, lookup, "Lockfile")

    found = in_threads(lambda _: lookup.lockfile(path))

    assert (len(read), len({id(one) for one in found})) == (1, 1)


def test_configs_that_a_prune_function_makes_in_several_threads_are_all_known(
    sweeping, monkeypatch
):
    def prune(listed, named, **kwargs):
        return configs(64 * 2 ** kwargs["n"])

    behind = sweeping(fill(configs(16), prune_configs_by={"early_config_prune": prune}))
    slowly(monkeypatch, tuned, "of_foreign")

    in_threads(lambda n: behind.admitted((), {"n": n, "FLAG": 1, "x": None, "y": None}), 4)

    assert sorted(values["B"] for values in behind.tuning.values) == [16, 64, 128, 256, 512]


# --- hooks --------------------------------------------------------------------------------


def test_the_hook_of_the_locked_config_runs_on_every_launch(tmp_path):
    @triton.autotune(configs(32, 64, hook=zeroed), key=["n"], do_bench=timed)
    @triton.jit
    def total(x, y, n, B: tl.constexpr):
        at = tl.program_id(0) * B + tl.arange(0, B)
        tl.atomic_add(y + at * 0, tl.load(x + at, mask=at < n, other=0.0))

    name = f"{HERE}:test_the_hook_of_the_locked_config_runs_on_every_launch.<locals>.total"
    installed(tmp_path, {"n=100 x=f32 y=f32": config(64)}, kernel=name)
    x, y = torch.ones(100), torch.full((1,), 7.0)

    for _ in range(2):
        total[lambda meta: (triton.cdiv(100, meta["B"]),)](x, y, 100)
        assert y.item() == 100


def test_an_entry_whose_hook_is_gone_is_a_miss_that_says_so(tmp_path, caplog, benchmarks):
    kernel = fill([*configs(16, hook=zeroed), *configs(32)])
    installed(tmp_path, {key(): config(128)})

    assert (ran(kernel), benchmarks()) == (32, 2)
    [line] = caplog.messages
    assert line == (
        f"{FILL}: no locked config for {key()} on H100, so Triton autotunes it: "
        "it is none of the kernel's own configs, and their pre_hooks differ"
    )


def test_what_is_for_tuning_only_never_runs_when_served(tmp_path):
    called = []
    kernel = fill(
        pre_hook=lambda *_, **__: called.append("pre"),
        post_hook=lambda *_, **__: called.append("post"),
        reset_to_zero=["y"],
        restore_value=["x"],
        prune_configs_by={"early_config_prune": lambda *_, **__: called.append("prune")},
    )
    installed(tmp_path, {key(): config(32)})

    assert (ran(kernel), called) == (32, [])


@pytest.mark.parametrize(
    ("top_k", "left"), [(0.5, [64]), (0.9, [64, 32]), (0.1, [64]), (2, [64, 32]), (3, [16, 32, 64])]
)
def test_torch_compile_finds_the_locked_config_and_a_model_only_where_none_is(
    tmp_path, top_k, left
):
    kernel = fill(prune_configs_by={"perf_model": lambda B=0, **_: -B, "top_k": top_k})
    path = installed(tmp_path, {key(): config(32)})
    named = {"x": torch.zeros(4, 8), "y": torch.zeros(1, dtype=torch.int32)}

    [found] = kernel.early_config_prune(kernel.configs, named, n=8, FLAG=1)
    missed = kernel.early_config_prune(kernel.configs, named, n=9, FLAG=1)

    assert (found, kernel.perf_model) == (kernel.configs[1], None)
    assert [one.kwargs["B"] for one in missed] == left
    tritune.uninstall()
    assert kernel.perf_model() == 0
    assert path.exists()


# --- heuristics ---------------------------------------------------------------------------


def under_heuristics(inner, outer):
    @triton.heuristics(outer)
    @triton.autotune(configs(16, 32), key=["n", "W"], do_bench=timed)
    @triton.heuristics(inner)
    @triton.jit
    def both(x, y, n, W: tl.constexpr, REAL: tl.constexpr, B: tl.constexpr):
        tl.store(y, W * 1000 + REAL)

    return both


def test_heuristics_above_are_arguments_and_those_below_see_the_config(tmp_path, benchmarks):
    kernel = under_heuristics(
        {"REAL": lambda named: named["B"] + 1}, {"W": lambda named: named["n"] // 4}
    )
    name = f"{HERE}:under_heuristics.<locals>.both"
    installed(tmp_path, {"n=8 W=2 x=f32 y=i32": config(32)}, kernel=name)
    y = torch.zeros(1, dtype=torch.int32)

    kernel[(1,)](torch.zeros(8), y, 8)

    assert (y.item(), benchmarks()) == (2033, 0)


def test_an_optional_argument_that_is_left_out_is_another_key(tmp_path):
    @triton.autotune(configs(16, 32), key=["n"], do_bench=timed, restore_value=["acc"])
    @triton.heuristics({"HAS": lambda named: named["acc"] is not None})
    @triton.jit
    def optional(acc, y, n, HAS: tl.constexpr, B: tl.constexpr):
        tl.store(y, B)

    name = f"{HERE}:test_an_optional_argument_that_is_left_out_is_another_key.<locals>.optional"
    entries = {"n=8 y=i32": config(16), "n=8 acc=f32 y=i32": config(32)}
    installed(tmp_path, entries, kernel=name)
    y = torch.zeros(1, dtype=torch.int32)

    found = []
    for acc in (None, torch.zeros(8)):
        optional[(1,)](acc, y, 8)
        found.append(y.item())

    assert found == [16, 32]


# --- who is who ---------------------------------------------------------------------------


class Caching(Autotuner):
    """An autotuner of a package's own, with a `run` of its own."""

    def run(self, *args, **kwargs):
        self.asked = getattr(self, "asked", 0) + 1
        return super().run(*args, **kwargs)


def test_a_subclass_with_its_own_run_is_served_and_its_miss_is_its_own(tmp_path, benchmarks):
    kernel = fill(configs(16, 32), kind=Caching)
    installed(tmp_path, {key(): config(32)})

    assert (ran(kernel), getattr(kernel, "asked", 0), benchmarks()) == (32, 0, 0)
    assert (ran(kernel, 9), kernel.asked, benchmarks()) == (32, 1, 2)


def test_a_subclass_that_is_defined_later_is_served_too(tmp_path):
    installed(tmp_path, {key(): config(32)})

    class Later(Autotuner):
        def run(self, *args, **kwargs):
            raise AssertionError

    assert ran(fill(configs(16, 32), kind=Later)) == 32


def test_a_copy_of_an_autotuner_is_the_same_kernel(tmp_path):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    ran(kernel)

    assert ran(copy.copy(kernel)) == 32


def test_what_a_copy_runs_is_said_of_the_copy_alone(tmp_path):
    kernel = fill()
    installed(tmp_path, {key(): config(32), key(9): config(16)})
    ran(kernel)
    again = copy.copy(kernel)

    ran(again, 9)

    assert (again.best_config.kwargs, kernel.best_config.kwargs) == ({"B": 16}, {"B": 32})


def test_a_kernel_that_is_not_launched_yet_has_the_best_config_that_it_had(tmp_path):
    kernel, tuned_before = fill(), fill(configs(16, 64))
    ran(tuned_before)
    installed(tmp_path, {key(): config(32)})

    assert adopt.kernel_of(kernel) is not None
    assert not hasattr(kernel, "best_config")
    installed(tmp_path, {key(): config(16)})
    assert adopt.kernel_of(tuned_before) is not None
    assert tuned_before.best_config.kwargs == {"B": 64}


def test_what_a_launch_reads_as_best_is_not_changed_by_a_kernel_that_is_made_meanwhile(tmp_path):
    said = []

    class Telling(Autotuner):
        def __setattr__(self, name, value):
            said.extend([value.kwargs] if name == "best_config" else [])
            super().__setattr__(name, value)

    kernel = fill(kind=Telling, listed=configs(16, 32))
    installed(tmp_path, {key(): config(32)})
    adopt.kernel_of(kernel)
    ran(kernel)

    assert said == [{"B": 32}]


def test_a_run_that_somebody_puts_in_place_of_ours_is_kept_and_routed(tmp_path, benchmarks):
    kernel, launched = fill(), []
    path = installed(tmp_path, {key(): config(32)})
    ours = Autotuner.run

    def theirs(self, *args, **kwargs):
        launched.append(self)
        return ours(self, *args, **kwargs)

    Autotuner.run = theirs
    try:
        assert (ran(kernel), launched) == (32, [kernel])
        tritune.uninstall()
        assert (Autotuner.run, ran(kernel), benchmarks()) == (theirs, 64, 3)
        tritune.install(path)
        assert (ran(kernel), benchmarks()) == (32, 3)
        tritune.uninstall()
        assert (Autotuner.run, len(launched)) == (theirs, 2)
    finally:
        Autotuner.run = ours.__wrapped__


def test_configs_that_are_replaced_at_run_time_are_followed(tmp_path, benchmarks):
    kernel = fill()
    installed(tmp_path, {key(): config(32)})
    ran(kernel)

    kernel.configs = configs(64, hook=zeroed) + configs(128)

    assert (ran(kernel), benchmarks()) == (128, 2)  # 32 has no hook of its own now: a miss


@triton.jit
def _shared(x, y, n, B: tl.constexpr):
    tl.store(y, B)


first_of_two = triton.autotune(configs(16, 32), key=["n"], do_bench=timed)(_shared)
second_of_two = triton.autotune(configs(16, 64), key=["n"], do_bench=timed)(_shared)


def test_two_autotuners_over_one_function_are_told_apart_by_their_attributes():
    found = {adopt.name_of(one, contract.describe(one)) for one in (first_of_two, second_of_two)}

    assert found == {f"{HERE}:first_of_two", f"{HERE}:second_of_two"}


def test_two_kernels_of_one_name_are_told_and_the_second_is_left_alone(
    tmp_path, caplog, benchmarks
):
    first, second = fill(configs(16, 32)), fill(configs(16, 64))
    installed(tmp_path, {key(): config(16)})

    assert (ran(first), ran(second), benchmarks()) == (16, 64, 2)
    [line] = caplog.messages
    assert line == (
        f"{contract.describe(second).where}: two autotuned kernels are `{FILL}`, and only the "
        "first runs what is locked"
    )


def test_in_a_sweep_two_kernels_of_one_name_are_an_error_that_says_what_to_do(sweeping):
    first, second = fill(configs(16, 32)), fill(configs(16, 64))
    sweeping(first)

    with pytest.raises(KernelError) as caught:
        sweeping(second)

    assert str(caught.value) == (
        f"{contract.describe(second).where}: two autotuned kernels are `{FILL}`, and only the "
        "first runs what is locked\n"
        "hint: what tells kernels apart is the name that their module holds them under: give each "
        "one, as `double = make(2)`, where they come from a function or lie in a dictionary"
    )


def test_configs_may_set_different_names(tmp_path):
    @triton.jit
    def uneven(x, y, n, B: tl.constexpr = 8, C: tl.constexpr = 1):
        tl.store(y, B + C)

    listed = [triton.Config({"B": 16}), triton.Config({"C": 2}, num_stages=2)]
    kernel = triton.autotune(listed, key=["n"], do_bench=timed)(uneven)
    name = f"{HERE}:test_configs_may_set_different_names.<locals>.uneven"
    entry = {"B": None, "C": 2, "num_warps": 4, "num_stages": 2}
    installed(tmp_path, {"n=8 x=f32 y=i32": entry}, kernel=name)
    y = torch.zeros(1, dtype=torch.int32)

    kernel[(1,)](torch.zeros(8), y, 8)

    assert y.item() == 10


# --- in a sweep ---------------------------------------------------------------------------


@pytest.fixture
def sweeping(tmp_path):
    adopt.begin(adopt.Scope(tmp_path / "tritune.lock"))
    return adopt.kernel_of


def test_a_prune_function_gets_a_copy_and_the_callers_split_of_arguments(sweeping):
    seen = []

    def prune(listed, named, **kwargs):
        seen.append((sorted(named), sorted(kwargs)))
        for each in listed:
            each.kwargs["B"] *= 2
        return listed[:1]

    kernel = fill(prune_configs_by={"early_config_prune": prune})
    behind = sweeping(kernel)

    found = behind.admitted((torch.zeros(8),), {"n": 8, "y": None, "FLAG": 1})

    assert seen == [(["x"], ["FLAG", "grid", "n", "warmup", "y"])]
    assert found == [config(32)]
    assert [live.kwargs["B"] for live in kernel.configs] == [16, 32, 64]


def made_by_prune(*, default=True):
    """A kernel whose prune function makes configs, with a name and a hook that no other has."""

    def prune(listed, named, **kwargs):
        if kwargs["n"] < 4:
            return listed[:1]
        return [triton.Config({"B": 128, "DEPTH": 2}, num_warps=8, pre_hook=zeroed)]

    @triton.jit
    def makes(x, y, n, B: tl.constexpr, DEPTH: tl.constexpr = 1):
        tl.atomic_add(y, B * DEPTH)

    @triton.jit
    def needs(x, y, n, B: tl.constexpr, DEPTH: tl.constexpr):
        tl.atomic_add(y, B * DEPTH)

    return triton.autotune(
        configs(16), key=["n"], do_bench=timed, prune_configs_by={"early_config_prune": prune}
    )(makes if default else needs)


MADE = f"{HERE}:made_by_prune.<locals>.makes"


def test_configs_that_a_prune_function_makes_are_tried_with_their_hooks(sweeping):
    behind = sweeping(made_by_prune())
    named = {"x": torch.zeros(8), "y": torch.zeros(1, dtype=torch.int32)}
    made = config(128, warps=8, DEPTH=2)

    assert behind.admitted((), {**named, "n": 8}) == [made]
    assert behind.admitted((), {**named, "n": 2}) == [config(16, DEPTH=None)]
    assert behind.hook_of(made) is zeroed
    assert not behind.admits(made, (), {**named, "n": 2})
    assert not behind.admits(config(64, DEPTH=None), (), {**named, "n": 2})


def test_what_a_prune_function_brings_up_is_known_before_a_locked_config_is_asked_for(
    sweeping, caplog
):
    behind = sweeping(made_by_prune(default=False))
    named = {"x": torch.zeros(8), "y": torch.zeros(1, dtype=torch.int32), "n": 8}

    assert behind.choices((), named) == [config(128, warps=8, DEPTH=2)]
    assert "lacks `DEPTH`" not in caplog.text


@pytest.mark.parametrize("default", [True, False])
def test_a_config_that_a_prune_function_makes_is_served_with_its_hook(
    tmp_path, benchmarks, default
):
    kernel = made_by_prune(default=default)
    entry = config(128, warps=8, DEPTH=2)
    name = MADE if default else MADE.replace("makes", "needs")
    installed(tmp_path, {"n=8 x=f32 y=i32": entry}, kernel=name)
    y = torch.full((1,), 7, dtype=torch.int32)

    for _ in range(2):
        kernel[(1,)](torch.zeros(8), y, n=8)
        assert y.item() == 256

    assert benchmarks() == 0
    assert kernel.best_config.pre_hook is zeroed


def test_what_asks_it_for_its_configs_gets_those_that_its_prune_function_makes(tmp_path):
    kernel = made_by_prune(default=False)
    installed(tmp_path, {"n=9 x=f32 y=i32": config(32)}, kernel=MADE.replace("makes", "needs"))
    named = {"x": torch.zeros(8), "y": torch.zeros(1, dtype=torch.int32)}

    [found] = kernel.early_config_prune(kernel.configs, named, n=8)

    assert found.kwargs == {"B": 128, "DEPTH": 2}


def hooked_by_prune(anew):
    """A kernel whose prune function gives configs of the list a hook, in place or in new ones."""

    def prune(listed, named, **kwargs):
        if anew:
            return [listed[0], *configs(32, hook=lambda given: given["y"].zero_())]
        listed[1].pre_hook = zeroed
        return listed

    @triton.autotune(
        configs(16, 32), ["n"], do_bench=timed, prune_configs_by={"early_config_prune": prune}
    )
    @triton.jit
    def adds(x, y, n, B: tl.constexpr):
        tl.atomic_add(y, B)

    return adds


ADDS = f"{HERE}:hooked_by_prune.<locals>.adds"


@pytest.mark.parametrize("anew", [False, True])
def test_a_hook_that_a_prune_function_gives_a_config_of_the_list_is_run_in_a_sweep(sweeping, anew):
    kernel = hooked_by_prune(anew)
    behind = sweeping(kernel)
    y = torch.full((1,), 7, dtype=torch.int32)

    def op():
        kernel[(1,)](torch.zeros(8), y, n=8)
        return y.item()

    found = [intercept.capture(behind, op, Config.of(config(block)))[0] for block in (32, 16, 32)]

    assert found == [32, 48, 32]
    assert len(behind.tuning.configs) == 2
    assert behind.admits(config(64), (torch.zeros(8), y), {"n": 8}), "as who extends it says"


@pytest.mark.parametrize("anew", [False, True])
def test_a_hook_that_a_prune_function_gives_a_config_of_the_list_is_run_when_served(
    tmp_path, benchmarks, anew
):
    kernel = hooked_by_prune(anew)
    hook = f"{HERE}:hooked_by_prune.<locals>.prune.<locals>.<lambda>" if anew else f"{HERE}:zeroed"
    installed(tmp_path, {"n=8 x=f32 y=i32": config(32)}, kernel=ADDS, hook=f"{hook}@1234")
    y = torch.full((1,), 7, dtype=torch.int32)

    for _ in range(2):
        kernel[(1,)](torch.zeros(8), y, n=8)
        assert y.item() == 32

    assert benchmarks() == 0


def test_where_the_prune_function_fails_every_config_is_tried_and_it_is_said(sweeping):
    def prune(listed, named, **kwargs):
        raise RuntimeError("0 active drivers")

    behind = sweeping(fill(prune_configs_by={"early_config_prune": prune}))

    assert len(behind.admitted((), {})) == 3
    assert list(behind.notes) == [
        "its early_config_prune fails, so all configs are tried (RuntimeError: 0 active drivers)"
    ]


def modelled(top_k=2, model=None, prune=None, listed=None):
    """A kernel whose perf_model thinks the largest block the fastest, unless told otherwise."""

    def expects(B, **_):
        return -B

    by = {"perf_model": model or expects, "top_k": top_k}
    by |= {"early_config_prune": prune} if prune else {}
    return fill(listed or configs(16, 32, 64, 128), prune_configs_by=by)


def tensors():
    return (torch.zeros(4, 8), torch.zeros(1, dtype=torch.int32))


@pytest.mark.parametrize(
    ("top_k", "left"),
    [(1, [128]), (2, [128, 64]), (3, [128, 64, 32]), (0.5, [128, 64]), (0.75, [128, 64, 32])],
)
def test_a_performance_model_leaves_so_many_or_such_a_share_the_fastest_first(
    sweeping, top_k, left
):
    behind = sweeping(modelled(top_k))

    assert behind.foreseen(tensors(), {"n": 8, "FLAG": 1}) == [config(block) for block in left]
    assert behind.admitted(tensors(), {"n": 8, "FLAG": 1}) == list(map(config, (16, 32, 64, 128)))


@pytest.mark.parametrize("top_k", [2, 0.5, 4, 1.0])
def test_a_performance_model_leaves_what_tritons_own_tuner_would_have_timed(
    sweeping, benchmarks, top_k
):
    kernel = modelled(top_k, prune=lambda listed, named, **_: listed[:3])
    left = sweeping(kernel).foreseen(tensors(), {"n": 8, "FLAG": 1})

    with routing.let_through(kernel):
        ran(kernel)

    timings = kernel.configs_timings if benchmarks() else kernel.cache.values()
    assert left == [config(live.kwargs["B"]) for live in timings]


def test_a_performance_model_gets_all_arguments_by_name_and_what_the_prune_function_left(sweeping):
    seen = []

    def model(**named):
        seen.append((named["B"], sorted(named)))
        return named["B"]

    def prune(listed, named, **kwargs):
        for each in listed:
            each.kwargs["B"] *= 2
        return listed[1:]

    kernel = modelled(2, model, prune)
    left = sweeping(kernel).foreseen(tensors(), {"n": 8, "FLAG": 1})

    assert left == [config(64), config(128)]
    names = ["B", "FLAG", "grid", "n", "num_ctas", "num_stages", "num_warps", "warmup", "x", "y"]
    names = sorted({*names, *kernel.configs[0].all_kwargs()})
    assert seen == [(64, names), (128, names), (256, names)]
    assert [live.kwargs["B"] for live in kernel.configs] == [16, 32, 64, 128]
    assert not hasattr(kernel, "nargs")


def test_where_the_performance_model_fails_nothing_is_left_out_and_it_is_said(sweeping):
    def model(**_):
        raise OSError("no NVML here")

    behind = sweeping(modelled(2, model))

    assert behind.foreseen(tensors(), {"n": 8, "FLAG": 1}) is None
    assert list(behind.notes) == [
        "its perf_model fails, so it leaves out none (OSError: no NVML here)"
    ]


@pytest.mark.parametrize(
    ("top_k", "said"),
    [
        (2.5, "its perf_model fails, so it leaves out none (TypeError: Error while pruning"),
        (0, "its perf_model with its top_k leaves no config, so it is not obeyed"),
    ],
)
def test_a_top_k_that_triton_refuses_or_that_leaves_nothing_leaves_out_nothing(
    sweeping, top_k, said
):
    behind = sweeping(modelled(top_k))

    assert behind.foreseen(tensors(), {"n": 8, "FLAG": 1}) is None
    [note] = behind.notes
    assert note.startswith(said)


def test_what_triton_would_cache_a_winner_under_lumps_descriptors_of_all_dtypes(sweeping):
    behind = sweeping(fill())
    half, full = (
        TensorDescriptor.from_tensor(torch.zeros(16, 16, dtype=dtype), [8, 8])
        for dtype in (torch.bfloat16, torch.float32)
    )
    y = torch.zeros(1, dtype=torch.int32)

    cached = [behind.stock_key((each, y), {"n": 8, "FLAG": 1}) for each in (half, full)]
    own = [behind.key_of({"x": each, "y": y, "n": 8, "FLAG": 1}) for each in (half, full)]

    assert cached == ["n=8 i32", "n=8 i32"]
    assert len({*own}) == 2
    assert behind.stock_key(tensors(), {"n": 9, "FLAG": 2}) == "n=9 f32 i32"


def test_what_triton_would_cache_tells_apart_what_its_own_cache_does(sweeping, benchmarks):
    kernel = fill()
    behind = sweeping(kernel)
    launches = [(8, torch.float32, 1), (8, torch.float32, 2), (9, torch.float32, 1)]
    launches += [(8, torch.float16, 1)]
    cached = []
    for n, dtype, flag in launches:
        x, y = torch.zeros(4, 8, dtype=dtype), torch.zeros(1, dtype=torch.int32)
        cached.append(behind.stock_key((x, y, n, flag), {}))
        with routing.let_through(kernel):
            ran(kernel, n, dtype, flag)

    assert len({*cached}) == len(kernel.cache) == 3


def test_of_a_kernel_with_one_config_triton_asks_no_cache(sweeping):
    one = sweeping(fill(configs(16)))
    assert one.stock_key(tensors(), {"n": 8, "FLAG": 1}) == ""


def test_a_tensor_in_the_authors_key_is_told(sweeping):
    behind = sweeping(fill(key=("n", "x")))

    assert behind.stock_key(tensors(), {"n": 8, "FLAG": 1}) == ""
    assert list(behind.notes) == [
        "its key holds the tensor `x`, so Triton tunes anew for each new tensor"
    ]


def test_a_kernel_without_a_performance_model_foresees_nothing(sweeping):
    assert sweeping(fill()).foreseen(tensors(), {"n": 8, "FLAG": 1}) is None


def test_a_performance_model_is_never_asked_in_production(tmp_path, benchmarks):
    def model(**_):
        raise AssertionError

    kernel = modelled(2, model)
    installed(tmp_path, {key(): config(16)})

    assert (ran(kernel), benchmarks()) == (16, 0)


def test_what_the_authors_key_has_to_no_effect_is_said(sweeping, monkeypatch):
    kernel = fill()
    kernel.keys = ["n", "B", "m"]  # as older versions of Triton let it pass

    behind = sweeping(kernel)

    assert behind.key_of({"x": torch.zeros(8), "y": None, "n": 8, "FLAG": 1}) == "n=8 FLAG=1 x=f32"
    assert list(behind.notes) == [
        "its key names `B`, which is tunable: it cannot be part of a key",
        "its key names `m`, which is not an argument: Triton ignores it",
    ]


def test_a_config_with_what_no_lockfile_can_hold_is_told(sweeping):
    kernel = fill([triton.Config({"B": 16}), triton.Config({"B": tl.float16})])

    with pytest.raises(KernelError, match="which no lockfile can hold"):
        sweeping(kernel)


def test_a_kernel_below_a_folder_without_an_init_file_has_the_whole_name_of_its_module():
    kernel = fill()
    *_, plain = contract.layers(kernel)
    plain.__module__ = f"vendor.parts.{HERE}"

    name = adopt.name_of(kernel, contract.describe(kernel))

    assert name == f"vendor.parts.{HERE}:fill.<locals>.filled"


# --- installing ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ((), "tritune.install() was told no lockfile"),
        ((3,), "lockfile of tritune.install() is an int, not a path"),
        ((["a.lock"],), "lockfile of tritune.install() is a list, not a path"),
    ],
)
def test_to_install_what_is_no_path_is_an_error(given, what, monkeypatch):
    if given:  # said though another one is installed
        monkeypatch.setenv("TRITUNE_LOCKFILE", __file__)
    with pytest.raises(KernelError) as caught:
        tritune.install(*given)

    assert caught.value.what == what
    assert caught.value.hint == (
        'give it one, `tritune.install("tritune.lock")`, or set TRITUNE_LOCKFILE'
    )


def test_to_install_a_lockfile_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(LockError) as caught:
        tritune.install(tmp_path / "none.lock")

    assert str(caught.value) == (
        f"{tmp_path / 'none.lock'}: there is no such lockfile\n"
        "hint: a sweep writes it beside the module of its problem"
    )


def test_to_install_a_folder_is_an_error(tmp_path):
    with pytest.raises(LockError) as caught:
        tritune.install(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}: it is a folder, not a lockfile\n"
        "hint: a sweep writes it beside the module of its problem"
    )


SEVERAL = "one lockfile is installed at a time, and `tritune merge` makes one lockfile of two"


def test_of_two_lockfiles_that_of_the_environment_is_installed_and_it_is_said(
    tmp_path, monkeypatch, caplog
):
    kernel = fill()
    first = locked(tmp_path / "first.lock", {key(): config(32)}, kernel=FILL)
    other = locked(tmp_path / "other.lock", {key(): config(16)}, kernel=FILL)
    monkeypatch.setenv("TRITUNE_LOCKFILE", str(first))

    tritune.install(first)
    tritune.install()
    assert caplog.messages == []
    tritune.install(other)

    assert ran(kernel) == 32
    assert caplog.messages == [f"TRITUNE_LOCKFILE is set, so {first} is installed, not {other}"]


def test_several_lockfiles_in_the_environment_are_told_to_be_merged(
    tmp_path, monkeypatch, caplog, benchmarks
):
    both = [str(locked(tmp_path / name, {key(): config(32)}, kernel=FILL)) for name in ("a", "b")]
    monkeypatch.setenv("TRITUNE_LOCKFILE", os.pathsep.join(both))

    with pytest.raises(LockError) as caught:
        tritune.install()
    installing.at_import()

    assert caught.value.hint == SEVERAL
    assert caplog.messages == [
        f"{os.pathsep.join(both)}: there is no such lockfile, so nothing of it is served; {SEVERAL}"
    ]
    assert (ran(fill()), benchmarks()) == (64, 3)


def test_a_damaged_lockfile_is_said_and_kernels_run_as_before(tmp_path, caplog, benchmarks):
    path = tmp_path / "t.lock"
    path.write_text('{"tritune": 1,', encoding="utf-8")

    tritune.install(path)

    assert (ran(fill()), benchmarks()) == (64, 3)
    assert caplog.messages == [
        (
            "the lockfile is damaged, so kernels run as if nothing were locked: "
            f"{path}:1: is cut off here\n"
            "hint: restore it from git, or delete the file and sweep again"
        )
    ]


RESTORE = "hint: restore it from git, or delete the file and sweep again"


@pytest.mark.parametrize(
    ("name", "data", "what", "told"),
    [
        (
            "t.lock",
            b'{"tritune": 1, "\xff',
            "the lockfile is damaged",
            f"is not UTF-8 at byte 16\n{RESTORE}",
        ),
        (
            "t.yaml",
            b"kernel: ops.py:f\n",
            "what is read as a lockfile is none",
            (
                "is no lockfile but a sweep file, by its name\n"
                "hint: name a lockfile, such as kernels/tritune.lock"
            ),
        ),
    ],
)
def test_what_cannot_be_read_is_told_as_every_command_tells_it(
    tmp_path, caplog, name, data, what, told
):
    path = tmp_path / name
    path.write_bytes(data)

    tritune.install(path)

    with pytest.raises(LockError) as caught:
        lock.read(path)
    assert str(caught.value) == f"{path}: {told}"
    assert caplog.messages == [f"{what}, so kernels run as if nothing were locked: {path}: {told}"]


DAMAGED = """
import logging, sys
logging.basicConfig(format="%(levelname)s %(message)s")
import tritune
from tritune.errors import LockError
try:
    tritune.install("t.lock")
except LockError as error:
    print(type(error).__name__, error)
print("triton" in sys.modules)
"""


@pytest.mark.parametrize("miss", ["default", "error"])
def test_a_damaged_lockfile_is_said_when_it_is_installed_and_triton_is_not_imported(tmp_path, miss):
    (tmp_path / "t.lock").write_text('{"tritune": 1,', encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-c", DAMAGED],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITUNE_MISS": miss},
        capture_output=True,
        text=True,
        check=True,
    )

    what = f"{tmp_path}/t.lock:1: is cut off here"
    hint = "hint: restore it from git, or delete the file and sweep again"
    raised = f"LockError {what}\n{hint}\n" if miss == "error" else ""
    assert done.stdout == f"{raised}False\n"
    assert done.stderr == (
        "WARNING the lockfile is damaged, so kernels run as if nothing were locked: "
        f"{what}\n{hint}\n"
    )


def test_a_lockfile_of_the_environment_that_is_not_there_stops_nothing(
    tmp_path, monkeypatch, caplog, benchmarks
):
    monkeypatch.setenv("TRITUNE_LOCKFILE", str(tmp_path / "none.lock"))

    installing.at_import()

    assert (ran(fill()), benchmarks()) == (64, 3)
    assert caplog.messages == [
        f"{tmp_path / 'none.lock'}: there is no such lockfile, so nothing of it is served"
    ]


def test_who_only_asks_where_triton_is_does_not_undo_what_was_installed(tmp_path):
    path = locked(tmp_path / "t.lock", {key(): config(32)}, kernel=FILL)
    code = (
        "import importlib.util, tritune\n"
        f"tritune.install({str(path)!r})\n"
        "assert importlib.util.find_spec('triton') is not None\n"
        "import triton\n"
        "from tritune import routing\n"
        "print(bool(routing._runs))\n"
    )

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "True\n"

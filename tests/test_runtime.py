"""A decorated kernel: what it runs with, with a lockfile and without.

The kernels run in Triton's interpreter; where a GPU matters, a driver that only answers
questions stands in for one.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import threading
from pathlib import Path
from types import MethodType, SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.driver import driver

import tritune
from fakes import evidence
from tritune import expression, lock, predicate, runtime, switches
from tritune.errors import KernelError, LockError, LookupMissError
from tritune.model import Config, DeviceIdentity, Entry, Evidence, Lock, LockedKey, Problem, Winner

HERE = str(Path(__file__).resolve())
H100 = DeviceIdentity(
    name="H100",
    backend="cuda",
    arch=90,
    sms=132,
    shared_bytes=232448,
    bus_bits=5120,
    memory_mhz=2619,
    names=("NVIDIA H100 80GB HBM3",),
)


@pytest.fixture(autouse=True)
def _world(plain_world, monkeypatch):
    monkeypatch.setattr(driver, "_active", None)


class FakeDriver:
    """Answers what a look-up asks a driver."""

    def __init__(self, device: DeviceIdentity = H100) -> None:
        self.device = device
        self.utils = self
        self.asked = 0

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self):
        return SimpleNamespace(backend=self.device.backend, arch=self.device.arch, warp_size=32)

    def get_device_properties(self, index: int) -> dict[str, int]:
        self.asked += 1
        return {
            "multiprocessor_count": self.device.sms,
            "max_shared_mem": self.device.shared_bytes,
            "mem_bus_width": self.device.bus_bits,
            "mem_clock_rate": self.device.memory_mhz * 1000,
        }


@pytest.fixture
def gpu(monkeypatch):
    """A machine with an H100, or with another device: `gpu(device)`."""

    def use(device: DeviceIdentity = H100) -> FakeDriver:
        fake = FakeDriver(device)
        monkeypatch.setattr(driver, "_active", fake)
        return fake

    return use


def locked(
    path,
    entries,
    *,
    device=H100,
    near=(),
    kernel="test_runtime:jitted.<locals>.fill",
    reach="",
    hook="",
):
    """Write a lockfile of one kernel: key -> config."""
    winners = [
        Winner(
            kernel=kernel,
            key=key,
            problem=Problem.of({}),
            config=Config.of(config),
            evidence=evidence(reach=reach, hook=hook),
        )
        for key, config in entries.items()
    ]
    lock.write(path, lock.merge_winners(Lock(), device, winners, {kernel: near}))
    return path


def jitted(lockfile=None, **says):
    """A kernel that writes its block size, so that a test sees which config it ran with."""

    @triton.jit
    def fill(x, n, FLAG: tl.constexpr, B: tl.constexpr):
        offsets = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(x + offsets, tl.full((B,), B, tl.float32), mask=offsets < n)

    plain = {"key": ["n"], "like": ["x"], "default": {"B": 16, "num_warps": 4}}
    return tritune.kernel(**{**plain, **says}, lockfile=lockfile)(fill)


def ran(kernel, n=8, *, flag=True, **meta) -> int:
    """Launch on n numbers; the block size it ran with."""
    x = torch.zeros(n)
    kernel[lambda m: (triton.cdiv(n, m["B"]),)](x, n, flag, **meta)
    return int(x[0]) if n else 0


def counted(kernel) -> dict[str, int]:
    counts = tritune.stats().get(kernel.name, {})
    return {kind: number for kind, number in counts.items() if number}


@pytest.fixture(autouse=True)
def _nothing_counted(monkeypatch):
    monkeypatch.setattr("tritune.switches._running", {})
    monkeypatch.setattr("tritune.switches._ended", {})
    monkeypatch.setattr("tritune.switches._mine", switches._OfThread())


def clear(arguments):
    arguments["y"].zero_()


def double(arguments):
    arguments["y"].fill_(100.0)


def autotuned(hooks=(clear, clear), lockfile=None, **says):
    """A kernel that adds into y, and relies on a hook of its config to empty it first."""

    @triton.autotune(
        configs=[
            triton.Config({"B": block}, num_warps=warps, pre_hook=hook)
            for block, warps, hook in zip((32, 64), (4, 8), hooks, strict=True)
        ],
        key=["n"],
        reset_to_zero=["y"],
    )
    @triton.jit
    def total(x, y, n, B: tl.constexpr):
        offsets = tl.program_id(0) * B + tl.arange(0, B)
        tl.atomic_add(y + offsets * 0, tl.load(x + offsets, mask=offsets < n, other=0.0))

    return tritune.kernel(total) if lockfile is None and not says else tritune.kernel(
        lockfile=lockfile, **says
    )(total)  # fmt: skip


def sums(kernel, **meta) -> float:
    x, y = torch.ones(100), torch.full((1,), 7.0)
    kernel[lambda m: (triton.cdiv(100, m["B"]),)](x, y, 100, **meta)
    return y.item()


# --- a launch -----------------------------------------------------------------------------


def test_with_no_lockfile_a_kernel_runs_its_default(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    assert ran(kernel) == 16
    assert counted(kernel) == {"default": 1}


def test_a_locked_key_runs_its_config_on_the_device_it_was_locked_for(tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))

    assert (ran(kernel), ran(kernel), ran(kernel, 9)) == (64, 64, 16)
    assert counted(kernel) == {"exact": 2, "default": 1}
    assert kernel.best_config.kwargs == {"B": 16}


def test_what_was_imported_where_no_such_gpu_is_runs_on_it(tmp_path, gpu):
    unseen = dataclasses.replace(H100, memory_mhz=0)
    path = locked(tmp_path / "tritune.lock", {}, device=unseen)
    at = LockedKey(kernel="test_runtime:jitted.<locals>.fill", device="", key="n=8 FLAG=True x=f32")
    evidence = Evidence(
        us=0.0, default_us=None, margin=None, noise=0.0, bits="", ir="", triton="", unmeasured=True
    )
    imported = [(at, Entry(config=Config.of({"B": 64, "num_warps": 4}), evidence=evidence))]
    lock.update(path, lambda held: lock.merge_imported(held, unseen, imported, {}, force=False)[0])
    kernel = jitted(path)
    gpu(H100)

    assert ran(kernel) == 64
    assert counted(kernel) == {"exact": 1}
    gpu(dataclasses.replace(H100, sms=114))
    assert ran(kernel) == 16


def test_config_and_launch_are_the_same_config_and_one_look_up(tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))

    config = kernel.config(n=8, x=torch.zeros(8), FLAG=True)

    assert config == {"B": 64, "num_warps": 8}
    assert ran(kernel, **config) == 64
    assert counted(kernel) == {"exact": 1}


def test_a_launch_with_every_tunable_runs_as_given(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    assert ran(kernel, B=32, num_warps=2) == 32
    assert counted(kernel) == {"given": 1}


def test_tunables_may_be_passed_by_position(tmp_path):
    kernel = jitted(tmp_path / "none.lock", default={"B": 16})
    x = torch.zeros(8)

    kernel[(1,)](x, 8, 1, 32)

    assert x[0] == 32


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"num_warps": 8}, "passes `num_warps` but not `B`"),
        ({"B": 8}, "passes `B` but not `num_warps`"),
    ],
)
def test_a_launch_with_some_tunables_names_the_rest_and_the_line(meta, message, tmp_path):
    kernel = jitted(tmp_path / "none.lock")
    line = inspect.getsourcelines(ran)[1] + 3

    with pytest.raises(KernelError) as caught:
        ran(kernel, **meta)
    assert str(caught.value) == (
        f"{HERE}:{line}: a launch of `jitted.<locals>.fill` {message}\n"
        "hint: pass the whole of `kernel.config(...)`, or none of it"
    )


def test_a_launch_option_that_is_no_tunable_is_the_callers_own(tmp_path):
    kernel = jitted(tmp_path / "none.lock", default={"B": 16})

    assert ran(kernel, num_warps=2) == 16


def test_a_launch_option_that_says_nothing_is_not_passed_on(tmp_path, monkeypatch):
    kernel = jitted(tmp_path / "none.lock", default={"B": 16, "maxnreg": None})
    passed = []
    monkeypatch.setattr(kernel.fn, "run", lambda *_, grid, warmup, **meta: passed.append(meta))

    ran(kernel)
    ran(kernel, **kernel.config(n=8, x=torch.zeros(8), FLAG=True))

    assert passed == [{"B": 16}, {"B": 16}]


def test_an_empty_problem_is_no_miss(tmp_path, gpu, monkeypatch):
    gpu()
    monkeypatch.setenv("TRITUNE_MISS", "error")
    kernel = jitted(tmp_path / "none.lock")

    assert kernel.config(n=0, x=torch.zeros(0), FLAG=True) == {"B": 16, "num_warps": 4}


def test_warmup_compiles_what_a_launch_would_run(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    assert kernel.warmup(torch.float32, 8, FLAG=True, grid=(1,)) == [
        None
    ]  # the interpreter's answer


def test_many_threads_get_one_answer(tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(kernel.config(n=8, x=torch.zeros(8), FLAG=True)["B"])
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [64] * 8
    assert counted(kernel) == {"exact": 8}


def test_an_endless_stream_of_sizes_does_not_grow_the_memo(tmp_path, monkeypatch):
    monkeypatch.setattr("tritune.dispatch.MEMO_LIMIT", 4)
    kernel = jitted(tmp_path / "none.lock")

    for n in range(1, 20):
        kernel.config(n=n, x=torch.zeros(n), FLAG=True)

    assert len(kernel._memo) <= 4
    assert len(kernel.cache) <= 4


# --- the key ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"n": 8, "x": torch.zeros(8), "FLAG": True}, "n=8 FLAG=True x=f32"),
        ({"n": 8, "x": torch.zeros(8)[1:], "FLAG": 1}, "n=8 FLAG=1 x=f32(unaligned)"),
        ({"n": 8, "x": None, "FLAG": None}, "n=8 FLAG=none x=none"),
        (
            {"n": 8, "x": torch.zeros(8, dtype=torch.bfloat16), "FLAG": "relu"},
            "n=8 FLAG=relu x=bf16",
        ),
        (
            {"n": 8, "x": torch.zeros(8, dtype=torch.float8_e4m3fn), "FLAG": "a b"},
            'n=8 FLAG="a b" x=f8e4m3fn',
        ),
        (
            {"n": 8, "x": torch.zeros(8, dtype=torch.bool), "FLAG": tl.float16},
            "n=8 FLAG=f16 x=i1",
        ),
        (
            {"n": 8, "x": (torch.zeros(8), torch.zeros(8, dtype=torch.int32)), "FLAG": 0.5},
            "n=8 FLAG=0.5 x=(f32,i32)",
        ),
    ],
)
def test_a_key_reads_like_the_call(arguments, key, tmp_path):
    assert jitted(tmp_path / "none.lock").key_of(arguments) == key


def test_without_like_every_tensor_is_in_the_key(tmp_path):
    kernel = jitted(tmp_path / "none.lock", like=None)

    assert kernel.key_of({"n": 8, "x": torch.zeros(8), "FLAG": 1}) == "n=8 FLAG=1 x=f32"


@pytest.mark.parametrize(
    ("said", "true", "one"), [("True", True, 1), ("(2,True)", (2, True), (2, 1))]
)
def test_one_and_true_are_two_keys(tmp_path, gpu, said, true, one):
    gpu()
    entries = {f"n=8 FLAG={said} x=f32": {"B": 64, "num_warps": 8}}
    kernel = jitted(locked(tmp_path / "t.lock", entries))

    assert (ran(kernel, flag=true), ran(kernel, flag=one)) == (64, 16)


def test_a_key_that_holds_a_list_is_refused(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    with pytest.raises(KernelError) as caught:
        kernel.config(n=[8], x=None, FLAG=1)
    assert caught.value.what == (
        "`n` of `jitted.<locals>.fill` is a list, which cannot be part of a key"
    )


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            {"n": 8, "FLAG": True},
            "`jitted.<locals>.fill.config()` needs `x` too",
        ),
        (
            {"n": 8, "FLAG": True, "x": None, "m": 3},
            "`jitted.<locals>.fill.config()` does not take `m`\nhint: it takes x, n, FLAG",
        ),
    ],
)
def test_config_takes_exactly_the_parts_of_the_key(named, message, tmp_path):
    kernel = jitted(tmp_path / "none.lock")
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        kernel.config(**named)
    assert str(caught.value) == f"{HERE}:{line}: {message}"


def test_names_that_config_took_once_are_not_checked_again(tmp_path, monkeypatch):
    kernel, x = jitted(tmp_path / "none.lock"), torch.zeros(8)
    checker = kernel._check_named

    found = [kernel.config(n=n, x=x, FLAG=True) for n in (8, 9)]
    for _ in range(2):
        with pytest.raises(KernelError):
            kernel.config(n=8)

    assert found == [{"B": 16, "num_warps": 4}] * 2
    assert checker.cache_info()[:2] == (1, 3)


def test_a_kernel_is_named_by_its_file_however_it_was_imported(tmp_path, monkeypatch):
    package = tmp_path / "shop" / "ops"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "scale.py").write_text(
        "import triton, triton.language as tl, tritune\n"
        "@tritune.kernel(default={'B': 16})\n"
        "@triton.jit\n"
        "def scale(x, B: tl.constexpr):\n"
        "    pass\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(package))

    import scale

    assert scale.scale.name == "shop.ops.scale:scale"
    assert scale.scale.lockfile == package / "tritune.lock"


# --- forcing and intercepting --------------------------------------------------------------


def test_override_holds_for_launches_and_config_and_then_ends(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    with tritune.override(kernel, {"B": 128, "num_warps": 1}):
        assert ran(kernel) == 128
        assert kernel.config(n=8, x=None, FLAG=True) == {"B": 128, "num_warps": 1}
    assert ran(kernel) == 16
    assert counted(kernel) == {"forced": 2, "default": 1}


def test_override_holds_in_other_threads(tmp_path):
    kernel, found = jitted(tmp_path / "none.lock"), []

    with tritune.override(kernel, {"B": 128, "num_warps": 1}):
        thread = threading.Thread(target=lambda: found.append(ran(kernel)))
        thread.start()
        thread.join()

    assert found == [128]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"B": 8},
            "a config of `jitted.<locals>.fill` needs `num_warps` too\nhint: it has B, num_warps",
        ),
        (
            {"B": 8, "num_warps": 4, "C": 1},
            (
                "a config of `jitted.<locals>.fill` has no `C`\n"
                "hint: it has B, num_warps, kpack, matrix_instr_nonkdim, maxnreg, num_ctas, "
                "num_stages, waves_per_eu"
            ),
        ),
        (
            {"BB": 8},
            "a config of `jitted.<locals>.fill` has no `BB`\nhint: did you mean `B`?",
        ),
        (
            {"B": 8, "num_warps": 3},
            (
                "a config of `jitted.<locals>.fill` cannot launch: num_warps: "
                "expected a power of two, got 3\nhint: write 2 or 4"
            ),
        ),
        (
            {"B": 8, "num_warps": 64},
            (
                "a config of `jitted.<locals>.fill` cannot launch: num_warps: "
                "expected an integer from 1 to 32, got 64\nhint: write 32 or less"
            ),
        ),
        (
            {"B": 8, "num_warps": 4, "num_stages": "3"},
            (
                "a config of `jitted.<locals>.fill` cannot launch: num_stages: "
                "expected an integer, got '3'\nhint: write a number"
            ),
        ),
        (
            {"B": "8", "num_warps": 4},
            (
                "a config does not suit `jitted.<locals>.fill`: "
                'its B is the text "8", where an integer is expected'
            ),
        ),
        (
            triton.Config({"B": 8}, num_warps=2, maxnreg=64),
            (
                "the config of tritune.override is a triton.Config, not a dict\n"
                'hint: write {"B": 8, "num_warps": 2, "num_stages": 3, "maxnreg": 64}'
            ),
        ),
        ([8], "the config of tritune.override is a list, not a dict\nhint: it has B, num_warps"),
        (
            {3: 8},
            (
                "the config of tritune.override names 3, which is an int, not a name\n"
                "hint: a name is a text, in quotes"
            ),
        ),
    ],
)
def test_override_wants_a_whole_config(config, message, tmp_path):
    kernel = jitted(tmp_path / "none.lock")
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.override(kernel, config).__enter__()
    assert str(caught.value) == f"{HERE}:{line}: {message}"


def test_a_sweep_may_try_what_no_launch_can_have_and_says_so_itself(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    with runtime.forced(kernel, {"B": 8, "num_warps": 3}):
        assert kernel.config(n=8, x=None, FLAG=True) == {"B": 8, "num_warps": 3}


def test_an_interceptor_gets_the_call_as_it_was_made(tmp_path):
    kernel, calls = jitted(tmp_path / "none.lock"), []
    x = torch.zeros(8)

    with runtime.intercept(lambda *call: calls.append(call)):
        kernel[(1,)](x, 8, FLAG=True)

    assert calls == [(kernel, (x, 8), {"FLAG": True}, (1,))]
    assert counted(kernel) == {}


def test_an_override_that_starts_during_a_launch_is_not_remembered(tmp_path, gpu, monkeypatch):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))
    bind = kernel.bind

    def bind_as_another_thread_overrides(*call):
        kernel.forced_config = {"B": 128, "num_warps": 1}
        return bind(*call)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "bind", bind_as_another_thread_overrides)
        during = ran(kernel)
    kernel.forced_config = None

    assert (during, ran(kernel)) == (128, 64)


def test_an_override_that_starts_while_a_config_is_looked_up_is_not_remembered(
    tmp_path, gpu, monkeypatch
):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))
    named = {"n": 8, "x": torch.zeros(8), "FLAG": True}
    answer = kernel._answer

    def answer_as_another_thread_overrides(bound):
        kernel.forced_config = {"B": 128, "num_warps": 1}
        return answer(bound)

    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_answer", answer_as_another_thread_overrides)
        during = kernel.config(**named)
    kernel.forced_config = None

    assert (during["B"], kernel.config(**named)["B"]) == (128, 64)


def test_a_forced_config_is_never_compiled_into_what_torch_traces(tmp_path):
    kernel = jitted(tmp_path / "none.lock")
    named = {"x": torch.zeros(8), "n": 8, "FLAG": True}

    forced = tritune.override(kernel, {"B": 128, "num_warps": 1})
    with forced, pytest.raises(KernelError) as caught:
        kernel.early_config_prune(kernel.configs, named)
    [config] = kernel.early_config_prune(kernel.configs, named)

    assert str(caught.value) == (
        f"{kernel.contract.function.where}: torch.compile traces `jitted.<locals>.fill` inside "
        "`tritune.override`, which would be compiled in\n"
        "hint: call the op uncompiled, or make it opaque with `tritune.op`"
    )
    assert config.kwargs == {"B": 16}


def test_the_counts_of_a_thread_that_ended_are_added_up_and_it_is_forgotten(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    def ask_twice():
        for n in (8, 9):
            kernel.config(n=n, x=torch.zeros(n), FLAG=True)

    threads = [threading.Thread(target=ask_twice) for _ in range(8)]
    ran(kernel)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counted(kernel) == {"default": 17}
    assert switches._ended == {(kernel.name, "default"): 16}
    assert list(switches._running.values()) == [{(kernel.name, "default"): 1}]


# --- over autotune ------------------------------------------------------------------------


def test_the_first_config_of_an_autotuned_kernel_is_its_default():
    kernel = autotuned()

    assert kernel.default == {"B": 32, "num_warps": 4, "num_stages": 3}
    assert kernel.tunables == ("B", "num_warps", "num_stages")
    assert (kernel.key_names, kernel.keys) == (("n",), ["n"])
    assert kernel.tuning.reset_to_zero == ("y",)


def test_a_hook_of_a_config_runs_at_every_launch_and_a_reset_for_tuning_never():
    kernel, bare = autotuned(), autotuned(hooks=(None, None))

    assert (sums(kernel), sums(kernel)) == (100.0, 100.0)
    assert sums(bare) == 107.0


def test_a_locked_config_gets_the_hook_of_the_list_it_came_from(tmp_path, gpu):
    gpu()
    name = "test_runtime:autotuned.<locals>.total"
    config = {"B": 64, "num_warps": 8, "num_stages": 3}
    file = locked(tmp_path / "t.lock", {"n=100 x=f32 y=f32": config}, kernel=name)
    kernel = autotuned((clear, double), file)

    assert sums(kernel) == 200.0
    assert kernel.best_config is kernel.configs[1]


def test_a_config_of_none_of_the_list_gets_the_hook_they_all_share(tmp_path, gpu):
    gpu()
    name = "test_runtime:autotuned.<locals>.total"
    config = {"B": 128, "num_warps": 8, "num_stages": 3}
    file = locked(tmp_path / "t.lock", {"n=100 x=f32 y=f32": config}, kernel=name)

    assert sums(autotuned(lockfile=file)) == 100.0


def test_a_config_whose_hook_is_unknown_is_a_miss_that_says_so(tmp_path, gpu, caplog):
    gpu()
    name = "test_runtime:autotuned.<locals>.total"
    config = {"B": 128, "num_warps": 8, "num_stages": 3}
    file = locked(tmp_path / "t.lock", {"n=100 x=f32 y=f32": config}, kernel=name)
    kernel = autotuned((clear, double), file)

    assert sums(kernel) == 100.0
    assert caplog.messages == [
        (
            f"{name}: no locked config for n=100 x=f32 y=f32 on H100, so it runs its default: "
            "it is none of the kernel's own configs, and their pre_hooks differ"
        )
    ]


def test_a_config_given_without_its_hook_is_refused():
    kernel = autotuned((clear, double))

    with pytest.raises(KernelError) as caught:
        sums(kernel, B=128, num_warps=4, num_stages=3)
    assert caught.value.what == (
        "`autotuned.<locals>.total` has no pre_hook for this config: "
        "it is none of the kernel's own configs, and their pre_hooks differ"
    )


def test_a_locked_launch_option_that_the_list_does_not_say_goes_with_the_hook_of_its_config():
    kernel = autotuned(hooks=(clear, double))
    plain = {"B": 64, "num_warps": 8, "num_stages": 3}

    live = kernel.tuning.live({**plain, "maxnreg": 128, "num_ctas": 2, "waves_per_eu": 1})
    own = kernel.tuning.live({**plain, "maxnreg": None, "num_ctas": 1})

    assert live.all_kwargs() == {**plain, "maxnreg": 128, "num_ctas": 2, "waves_per_eu": 1}
    assert live.pre_hook is double
    assert own is kernel.configs[1]
    assert own.all_kwargs() == {**plain, "num_ctas": 1}


def test_to_triton_and_inductor_it_is_an_autotuner_with_one_config_to_try(tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))

    [config] = kernel.early_config_prune(kernel.configs, {"x": torch.zeros(8), "n": 8}, FLAG=True)

    assert isinstance(kernel, Autotuner)
    assert config.all_kwargs() == {"B": 64, "num_warps": 8, "num_ctas": 1, "num_stages": 3}
    assert kernel.early_config_prune([], {"x": torch.zeros(8), "n": 8, "FLAG": True}) == [config]


def test_turned_off_an_autotuned_kernel_is_tritons_own(monkeypatch):
    monkeypatch.setenv("TRITUNE", "off")
    kernel = autotuned()
    ran_stock = []
    monkeypatch.setattr(kernel.tuning.stock, "run", lambda *args, **_: ran_stock.append(args[2]))

    sums(kernel)

    assert ran_stock == [100]


def test_turned_off_no_lockfile_is_read(tmp_path, gpu, monkeypatch):
    gpu()
    monkeypatch.setenv("TRITUNE", "off")
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}}))

    assert ran(kernel) == 16


def test_what_a_heuristic_sets_is_neither_key_nor_tunable(tmp_path):
    @triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["B"] == 0})
    @triton.jit
    def fill(x, n, EVEN: tl.constexpr, B: tl.constexpr):
        offsets = tl.arange(0, B)
        tl.store(x + offsets, tl.full((B,), 7.0, tl.float32), mask=(offsets < n) & EVEN)

    kernel = tritune.kernel(key=["n"], default={"B": 16}, lockfile=tmp_path / "no.lock")(fill)
    x = torch.zeros(16)
    kernel[(1,)](x, 16)

    assert x.sum() == 7 * 16
    assert kernel.key_of({"x": x, "n": 16}) == "n=16 x=f32"


# --- decorating ---------------------------------------------------------------------------


def mistakes():
    def bare(x, n, B: tl.constexpr):
        pass

    @triton.jit
    def one(x, n, B: tl.constexpr):
        pass

    @triton.heuristics({"B": lambda _: 16})
    @triton.jit
    def computed(x, n, B: tl.constexpr):
        pass

    @triton.heuristics({"C": lambda _: 16})
    @triton.autotune(configs=[triton.Config({"B": 16})], key=["n"])
    @triton.jit
    def above(x, n, B: tl.constexpr, C: tl.constexpr):
        pass

    @triton.heuristics({"n": lambda _: 16})
    @triton.jit
    def sized(x, n, B: tl.constexpr):
        pass

    good = {"default": {"B": 16}}
    return {
        "plain": (bare, good, ("`mistakes.<locals>.bare` is not a Triton kernel\n"
                  "hint: put @tritune.kernel above @triton.jit or @triton.autotune")),
        "default": (one, {}, ("`mistakes.<locals>.one` has no default config\n"
                    "hint: say default=dict(BLOCK=128, ..., num_warps=4): "
                    "its names are the tunables")),
        "key": (one, {**good, "key": ["N"]}, ("key names `N`, which is not an argument of "
                "`mistakes.<locals>.one`\nhint: it has x, n, B")),
        "like": (one, {**good, "like": ["xs"]}, ("like names `xs`, which is not an argument of "
                 "`mistakes.<locals>.one`\nhint: did you mean `x`?")),
        "near": (one, {**good, "near": "n"}, ("near names `n`, which is not in key\n"
                 "hint: key has nothing")),
        "near computed": (sized, {**good, "key": ["n"], "near": "n"}, ("near names `n`, which "
                          "@triton.heuristics sets\nhint: key has nothing")),
        "tunable": (one, {**good, "key": ["B"]}, ("key names `B`, which is tunable\n"
                    "hint: leave it out")),
        "option": (one, {"default": {"B": 16, "num_warp": 4}}, ("default names `num_warp`, which "
                   "is neither a parameter of `mistakes.<locals>.one` nor a launch option\n"
                   "hint: did you mean `num_warps`?")),
        "constexpr": (one, {"default": {"n": 16}}, ("default names `n`, which is not a "
                      "tl.constexpr\nhint: annotate it: `n: tl.constexpr`")),
        "heuristic": (computed, good, ("default names `B`, which @triton.heuristics sets\n"
                      "hint: take it out of one of the two")),
        "between": (above, {}, ("`mistakes.<locals>.above` has a decorator between "
                    "@tritune.kernel and @triton.autotune\n"
                    "hint: put @triton.heuristics below @triton.autotune")),
    }  # fmt: skip


@pytest.mark.parametrize("which", mistakes())
def test_a_mistake_in_the_decorator_is_told_at_import_with_its_line(which):
    function, says, message = mistakes()[which]
    *_, plain = runtime.contracts.layers(function)

    with pytest.raises(KernelError) as caught:
        tritune.kernel(**says)(function)
    assert str(caught.value) == f"{HERE}:{plain.__code__.co_firstlineno}: {message}"


SAY = "say default=dict(BLOCK=128, ..., num_warps=4): its names are the tunables"
QUOTE = "a name is a text, in quotes"


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (
            {"default": triton.Config({"BLOCK": 1024}, num_warps=8)},
            (
                "default is a triton.Config, not a dict\n"
                'hint: write default={"BLOCK": 1024, "num_warps": 8, "num_stages": 3}'
            ),
        ),
        ({"default": [1]}, f"default is a list, not a dict\nhint: {SAY}"),
        ({"default": "BLOCK"}, f"default is a str, not a dict\nhint: {SAY}"),
        ({"default": {3: 4}}, f"default names 3, which is an int, not a name\nhint: {QUOTE}"),
        (
            {"default": {"BLOCK": [64, 128]}},
            (
                "BLOCK of default is a list, and a config has one value for it\n"
                "hint: what to try goes into `space:` of a sweep file"
            ),
        ),
        (
            {"default": {"BLOCK": 1024, "num_warps": 3}},
            "default cannot launch: num_warps: expected a power of two, got 3\nhint: write 2 or 4",
        ),
        (
            {"default": {"num_stages": "3"}},
            "default cannot launch: num_stages: expected an integer, got '3'\nhint: write a number",
        ),
        ({"key": "M, N"}, 'key is a str, not a list of names\nhint: write key=["M", "N"]'),
        ({"key": 3}, 'key is an int, not a list of names\nhint: write key=["NAME", ...]'),
        ({"key": {"n": 1}}, 'key is a dict, not a list of names\nhint: write key=["NAME", ...]'),
        ({"key": [3]}, f"key names 3, which is an int, not a name\nhint: {QUOTE}"),
        ({"like": 3}, 'like is an int, not a list of names\nhint: write like=["NAME", ...]'),
        ({"like": [None]}, f"like names None, which is None, not a name\nhint: {QUOTE}"),
        ({"near": ["n"]}, 'near is a list, not the name of one argument\nhint: write near="n"'),
        ({"near": 3}, 'near is an int, not the name of one argument\nhint: write near="NAME"'),
        ({"lockfile": 3}, 'lockfile is an int, not a path\nhint: write lockfile="tritune.lock"'),
    ],
)
def test_what_the_decorator_is_given_of_a_wrong_type_is_told_at_its_line(says, message):
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.kernel(**says)
    assert str(caught.value) == f"{HERE}:{line}: {message}"


@pytest.mark.parametrize("key", [("FLAG", "n"), {"n", "FLAG"}, iter(["FLAG", "n"])])
def test_names_may_come_in_any_collection_and_a_set_has_one_order(key, tmp_path):
    assert jitted(tmp_path / "none.lock", key=key).key_names == ("FLAG", "n")


@pytest.mark.parametrize(
    "default",
    [
        {"B": 16, "num_warps": 32, "num_stages": 0, "num_ctas": 8, "waves_per_eu": 2},
        {"B": tl.constexpr(16), "FLAG": tl.float32, "num_warps": np.int64(4)},
    ],
)
def test_what_only_some_gpus_take_or_only_a_launch_is_no_mistake_in_a_default(tmp_path, default):
    assert jitted(tmp_path / "none.lock", default=default).default == default


def test_a_kernel_decorated_twice_is_told_so(tmp_path):
    with pytest.raises(KernelError) as caught:
        tritune.kernel(jitted(tmp_path / "none.lock"))
    assert caught.value.what == "`jitted.<locals>.fill` has two @tritune.kernel lines"


def test_something_that_is_no_function_is_told_where_it_was_decorated():
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.kernel(3)
    assert str(caught.value) == (
        f"{HERE}:{line}: @tritune.kernel got int, not a Triton kernel\n"
        "hint: put @tritune.kernel above @triton.jit or @triton.autotune"
    )


def test_a_problem_function_is_marked_on_its_kernel(tmp_path):
    kernel = jitted(tmp_path / "none.lock")

    @tritune.problem(kernel)
    def fill_problem(n):
        return tritune.Problem(lambda: n, flops=n)

    assert kernel.problem is fill_problem
    assert (fill_problem(3).run(), fill_problem(3).timed) == (3, "kernel")

    method = MethodType(fill_problem, 3)
    assert tritune.problem(kernel)(method) is method


def test_what_cannot_make_a_problem_is_told_where_it_is_marked(tmp_path):
    mark = tritune.problem(jitted(tmp_path / "none.lock"))
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        mark(tritune.Problem(print))
    assert str(caught.value) == (
        f"{HERE}:{line}: @tritune.problem got Problem, not a function\n"
        "hint: put it above the function that makes the problem"
    )


@pytest.mark.parametrize("timed", ["gpu", ["op"]])
def test_what_a_problem_cannot_time_is_told_at_the_line_that_makes_it(timed):
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.Problem(lambda: None, timed=timed)
    assert str(caught.value) == (
        f'{HERE}:{line}: timed={timed!r} of a Problem\nhint: it is "kernel" or "op"'
    )


@pytest.mark.parametrize("name", ["flops", "bytes"])
@pytest.mark.parametrize("amount", ["many", -2, True, float("nan"), float("inf")])
def test_work_that_is_no_amount_is_refused_at_the_line_that_says_it(name, amount):
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.Problem(lambda: None, **{name: amount})
    assert str(caught.value) == (
        f"{HERE}:{line}: {name}={amount!r} of a Problem\n"
        "hint: it is a number of at least 0, or left out"
    )


@pytest.mark.parametrize("amount", [0, 2.5, 10**30, np.float32(3), np.int64(3)])
def test_work_may_be_any_number_of_at_least_0(amount):
    assert tritune.Problem(lambda: None, flops=amount).flops == amount


@pytest.mark.parametrize(
    ("given", "kind", "hint"),
    [
        (3, "int", "put @tritune.kernel above @triton.jit or @triton.autotune"),
        (
            ran,  # what `@tritune.problem` alone gets
            "function",
            "name a kernel that has @tritune.kernel above it: @tritune.problem(KERNEL)",
        ),
    ],
)
def test_a_problem_of_something_else_is_refused(given, kind, hint):
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.problem(given)
    assert str(caught.value) == (
        f"{HERE}:{line}: @tritune.problem got {kind}, not a kernel\nhint: {hint}"
    )


# --- looking up ---------------------------------------------------------------------------

SHAPES = {
    f"n={n} FLAG=True x=f32": {"B": block, "num_warps": 4} for n, block in ((64, 32), (256, 128))
}


@pytest.mark.parametrize(
    ("n", "block", "kind"),
    [
        (64, 32, "exact"),
        (31, 16, "default"),
        (32, 32, "near"),
        (127, 32, "near"),
        (128, 128, "near"),
        (129, 128, "near"),
        (512, 128, "near"),
        (513, 16, "default"),
    ],
)
def test_near_serves_the_next_size_up_or_the_nearest_within_a_factor_of_two(
    n, block, kind, tmp_path, gpu
):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", SHAPES), near="n")

    assert ran(kernel, n) == block
    assert counted(kernel) == {kind: 1}


@pytest.mark.parametrize(
    ("n", "block"), [(59, 16), (60, 32), (64, 32), (100, 32), (101, 16), (256, 128)]
)
def test_near_serves_no_size_beyond_what_was_verified(n, block, tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", SHAPES, reach="60 <= n <= 100"), near="n")

    assert ran(kernel, n) == block


@pytest.mark.parametrize(
    ("written", "blocks"),
    [
        pytest.param(lambda text: text, (32, 16), id="as we write it"),
        pytest.param(
            lambda text: json.dumps(json.loads(text), indent=2), (32, 16), id="in another layout"
        ),
        pytest.param(lambda text: text.replace("10.0,", "10.0.0,"), (16, 16), id="damaged"),
        pytest.param(
            lambda text: json.dumps(json.loads(text.replace('"60 <= n <= 100"', "[60, 100]"))),
            (16, 16),
            id="in another layout and damaged",
        ),
    ],
)
def test_what_was_verified_is_read_whatever_the_layout_and_is_nothing_where_it_is_damaged(
    written, blocks, tmp_path, gpu
):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES, reach="60 <= n <= 100")
    file.write_text(written(file.read_text(encoding="utf-8")), encoding="utf-8")
    kernel = jitted(file, near="n")

    assert (ran(kernel, 65), ran(kernel, 101)) == blocks


def test_a_size_beyond_what_was_verified_is_a_miss_that_says_so(tmp_path, gpu, caplog):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES, reach="60 <= n <= 100")

    ran(jitted(file, near="n"), 101)

    [message] = [text for text in caplog.messages if "no locked config" in text]
    assert message.endswith(
        "n=64 would serve it, but its config is verified for 60 <= n <= 100 alone"
    )


def test_near_wants_every_other_part_of_the_key_equal(tmp_path, gpu):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", SHAPES), near="n")

    assert ran(kernel, 65, flag=False) == 16


def test_without_near_the_nearest_is_never_served(tmp_path, gpu):
    gpu()

    assert ran(jitted(locked(tmp_path / "t.lock", SHAPES)), 65) == 16


@pytest.mark.parametrize(
    ("constraint", "block"),
    [
        ("B <= n", 128),
        ("B >= n", 16),
        ("sms > 100 and B % 2 == 0", 128),
        ("B <= unknown", 16),
        ("().__class__", 16),
        ("9 ** 9 ** 9 > B", 16),
    ],
)
def test_near_wants_the_constraints_of_the_problem_to_hold(constraint, block, tmp_path, gpu):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES, near=[constraint])

    assert ran(jitted(file, near="n"), 257) == block


@pytest.mark.parametrize(
    "text",
    [
        "B <= n",
        "B * 2 > n - 1 and not B == 3",
        "n % B == 0 or n // B >= 2 ** 3",
        "B in [16, 32] and n not in (1, 2)",
        "min(B, n) == max(B, n) or abs(-B) < cdiv(n, 2)",
        "next_power_of_2(n) >= B if n > 1 else B == 1",
        "1 <= B <= n < 1 << 40",
        "B + n",
        "n / 0 > 1",
        "B >> 1 & 3 | 4 == 4",
        "flag is None or B > missing",
    ],
)
@pytest.mark.parametrize("values", [{"B": 16, "n": 64}, {"B": 32, "n": 1}, {"B": 3, "n": 3}])
def test_production_and_sweep_read_a_constraint_alike(text, values):
    def answer(holds, cannot):
        try:
            return holds(text, {**values, "flag": None})
        except cannot:
            return "cannot tell"

    assert answer(predicate.holds, predicate.CannotTellError) == answer(
        expression.truth, expression.ConstraintError
    )


@pytest.mark.parametrize("config", [{"B": 64}, {"B": 64, "num_warps": 4, "C": 1}, {"BLOCK": 64}])
def test_a_locked_config_of_other_names_is_a_miss_and_no_crash(config, tmp_path, gpu):
    gpu()

    assert ran(jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": config}))) == 16


def test_a_launch_option_that_only_one_backend_tunes_is_served(tmp_path, gpu):
    gpu()
    config = {"B": 64, "num_warps": 4, "waves_per_eu": 2}
    kernel = jitted(locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": config}))

    assert kernel.config(n=8, x=torch.zeros(8), FLAG=True) == config
    assert ran(kernel, **config) == 64


@pytest.mark.parametrize(
    ("facts", "block"),
    [
        ({"names": ("NVIDIA H100 SXM5",), "name": "other"}, 64),
        ({"sms": 114}, 16),  # PCIe
        ({"sms": 16}, 16),  # a MIG slice
        ({"sms": 78}, 16),  # H20
        ({"bus_bits": 6144, "memory_mhz": 3201}, 16),  # H200
        ({"arch": 100}, 16),
        ({"arch": 901}, 16),
    ],
)
def test_a_device_is_its_silicon_and_never_its_name(facts, block, tmp_path, gpu):
    fields = {name: getattr(H100, name) for name in H100.__slots__}
    gpu(DeviceIdentity(**{**fields, **facts}))
    file = locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}})

    assert ran(jitted(file)) == block


@pytest.mark.parametrize(
    ("where", "blocks"),
    [
        ((), {8: 64, 9: 16, 16: 32}),
        (("n <= 8",), {8: 64, 9: 16, 16: 16}),
        (("n > 8",), {8: 16, 9: 16, 16: 32}),
        (("sms == 16 and n < 17",), {8: 64, 16: 32}),
        (("M <= 8",), {8: 16}),  # no argument of this kernel: nothing is lent
    ],
)
def test_a_device_may_use_the_entries_of_another_where_somebody_said_so(
    where, blocks, tmp_path, gpu
):
    path = locked(
        tmp_path / "t.lock",
        {
            "n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8},
            "n=16 FLAG=True x=f32": {"B": 32, "num_warps": 8},
        },
    )
    slice_ = dataclasses.replace(H100, name="a slice", sms=16, use="H100", where=where)
    lock.update(path, lambda held: dataclasses.replace(held, devices=(*held.devices, slice_)))
    gpu(dataclasses.replace(H100, sms=16))
    kernel = jitted(path)

    assert {n: ran(kernel, n) for n in blocks} == blocks


def lent(tmp_path, where):
    """A lockfile of an H100, whose entries a slice of it uses; what it is called."""
    path = locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}})
    slice_ = dataclasses.replace(H100, name="a slice", sms=16, use="H100", where=where)
    lock.update(path, lambda held: dataclasses.replace(held, devices=(*held.devices, slice_)))
    return path


def test_where_that_is_no_constraint_is_damage_that_is_said_once(tmp_path, gpu, caplog):
    path = lent(tmp_path, ("n =< 8",))
    gpu(dataclasses.replace(H100, sms=16))

    kernel = jitted(path)

    assert (ran(kernel, 8), ran(kernel, 9)) == (16, 16)
    assert caplog.messages == [
        (
            "the lockfile is damaged, so kernels run as if nothing were locked: "
            f"{path}:5: devices.a slice.where.0: is no constraint: `n =< 8`\n"
            "hint: write it as `M <= 64`, of parts of the keys or of arch, backend, "
            "shared_bytes, sms"
        )
    ]


def test_where_that_does_not_hold_is_why_a_launch_is_a_miss(tmp_path, gpu, caplog):
    path = lent(tmp_path, ("foo > 3",))
    gpu(dataclasses.replace(H100, sms=16))
    kernel = jitted(path)

    assert (ran(kernel, 8), ran(kernel, 9)) == (16, 16)
    assert caplog.messages == [
        (
            "test_runtime:jitted.<locals>.fill: no locked config for n=8 FLAG=True x=f32 on "
            "a slice, so it runs its default: a slice uses the entries of H100 only where "
            "`foo > 3` (`foo` is not known at a launch)"
        )
    ]


def test_an_entry_of_its_own_comes_before_one_that_is_lent(tmp_path, gpu):
    key = "n=8 FLAG=True x=f32"
    path = locked(tmp_path / "t.lock", {key: {"B": 64, "num_warps": 8}})
    small = dataclasses.replace(H100, name="a slice", sms=16)
    own = lock.read(locked(tmp_path / "own.lock", {key: {"B": 32, "num_warps": 8}}, device=small))
    lock.update(
        path,
        lambda held: dataclasses.replace(
            held,
            devices=(*held.devices, dataclasses.replace(small, use="H100")),
            entries=(*held.entries, *own.entries),
        ),
    )
    gpu(small)

    assert ran(jitted(path)) == 32


def test_a_driver_that_only_compiles_is_no_device(tmp_path, monkeypatch):
    class StandIn:
        def get_current_device(self) -> int:
            return 0

    monkeypatch.setattr(driver, "_active", StandIn())
    file = locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}})

    assert ran(jitted(file)) == 16


def test_the_driver_is_asked_once_a_device_and_not_at_import(tmp_path, gpu):
    fake = gpu()
    kernel = jitted(tmp_path / "none.lock")
    assert fake.asked == 0

    for n in (1, 2, 3):
        ran(kernel, n)
    assert fake.asked == 1


# --- what is said -------------------------------------------------------------------------


def test_one_line_says_which_file_and_device_a_process_runs(tmp_path, gpu, caplog):
    caplog.set_level(logging.INFO, "tritune")
    gpu()
    file = locked(tmp_path / "t.lock", {"n=8 FLAG=True x=f32": {"B": 64, "num_warps": 8}})

    ran(jitted(file))
    ran(jitted(file))

    assert caplog.messages == [f"{file}: using the entries of H100"]


def test_a_miss_is_said_once_a_kernel_with_what_was_sought_and_what_is_there(tmp_path, gpu, caplog):
    gpu()
    kernel = jitted(locked(tmp_path / "t.lock", SHAPES))

    for n in (1, 2, 3):
        ran(kernel, n)

    assert caplog.messages == [
        (
            "test_runtime:jitted.<locals>.fill: no locked config for n=1 FLAG=True x=f32 on H100, "
            "so it runs its default: locked are n=64 FLAG=True x=f32; n=256 FLAG=True x=f32"
        )
    ]


def test_a_miss_for_another_gpu_shows_both(tmp_path, gpu, caplog):
    fields = {name: getattr(H100, name) for name in H100.__slots__}
    gpu(DeviceIdentity(**{**fields, "sms": 114}))

    ran(jitted(locked(tmp_path / "t.lock", SHAPES)))

    assert caplog.messages == [
        (
            "test_runtime:jitted.<locals>.fill: no locked config for n=8 FLAG=True x=f32 on "
            "cuda:90, "
            "so it runs its default: this GPU is cuda:90 (cuda:90, 114 SMs, 232448 bytes of shared "
            "memory, 5120 bits at 2619 MHz); locked are H100"
        )
    ]


def test_on_a_machine_with_no_gpu_nothing_is_said(tmp_path, caplog):
    ran(jitted(locked(tmp_path / "t.lock", SHAPES)))

    assert caplog.messages == []


def test_every_miss_can_be_written_down(tmp_path, gpu, monkeypatch):
    gpu()
    monkeypatch.setenv("TRITUNE_LOG", str(tmp_path / "misses.jsonl"))
    kernel = jitted(tmp_path / "none.lock")

    for n in (1, 2, 2):
        ran(kernel, n)

    lines = (tmp_path / "misses.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "kernel": "test_runtime:jitted.<locals>.fill",
            "device": "cuda:90",
            "key": f"n={n} FLAG=True x=f32",
            "why": f"there is no {tmp_path}/none.lock",
            "lockfile": f"{tmp_path}/none.lock",
        }
        for n in (1, 2)
    ]


def test_a_log_of_misses_that_cannot_be_written_is_said_once(tmp_path, gpu, monkeypatch, caplog):
    gpu()
    path = tmp_path / "none" / "misses.jsonl"
    monkeypatch.setenv("TRITUNE_LOG", str(path))
    kernel = jitted(tmp_path / "none.lock")

    for n in (1, 2):
        ran(kernel, n)

    [first, *rest] = caplog.messages
    assert first == f"TRITUNE_LOG={path}: cannot be written: No such file or directory"
    assert [text.partition(":")[0] for text in rest] == ["test_runtime"]


def test_with_no_gpu_it_is_said_once_that_no_miss_is_written(tmp_path, monkeypatch, caplog):
    path = tmp_path / "misses.jsonl"
    monkeypatch.setenv("TRITUNE_LOG", str(path))
    kernel = jitted(tmp_path / "none.lock")

    for n in (1, 2):
        ran(kernel, n)

    assert caplog.messages == [
        f"TRITUNE_LOG={path}: only misses on a GPU are written to it, and none is used here"
    ]
    assert not path.exists()


@pytest.mark.parametrize(
    ("said", "messages"),
    [
        ("of", ["TRITUNE=of is neither `on` nor `off`, so kernels run what is locked"]),
        ("on", []),
        ("off", []),
        ("", []),
    ],
)
def test_a_switch_that_is_misspelt_is_said_once(said, messages, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("TRITUNE", said)

    for _ in range(2):
        jitted(tmp_path / "none.lock")

    assert caplog.messages == messages


def test_a_miss_can_be_an_error(tmp_path, gpu, monkeypatch):
    gpu()
    monkeypatch.setenv("TRITUNE_MISS", "error")
    kernel = jitted(tmp_path / "none.lock")

    with pytest.raises(LookupMissError) as caught:
        ran(kernel)
    assert str(caught.value) == (
        f"{tmp_path}/none.lock: `test_runtime:jitted.<locals>.fill` has no locked config for "
        f"n=8 FLAG=True x=f32 on cuda:90: there is no {tmp_path}/none.lock\n"
        "hint: add it to the sweep file's shapes and sweep again"
    )


def test_with_no_gpu_a_key_that_no_device_has_is_the_miss_that_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITUNE_MISS", "error")
    file = locked(tmp_path / "t.lock", SHAPES)
    kernel, none = jitted(file), jitted(tmp_path / "none.lock")

    assert ran(kernel, 64) == 16  # the default, but its key is one of the H100's
    with pytest.raises(LookupMissError) as caught:
        ran(kernel, 65)
    with pytest.raises(LookupMissError) as without:
        ran(none, 64)

    hint = "hint: add it to the sweep file's shapes and sweep again"
    assert str(caught.value) == (
        f"{file}: `test_runtime:jitted.<locals>.fill` has no locked config for "
        f"n=65 FLAG=True x=f32 on any GPU: locked are {'; '.join(SHAPES)}\n{hint}"
    )
    assert str(without.value) == (
        f"{tmp_path}/none.lock: `test_runtime:jitted.<locals>.fill` has no locked config for "
        f"n=64 FLAG=True x=f32 on any GPU: there is no {tmp_path}/none.lock\n{hint}"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"run": 3}, "run of a Problem is int, not a function"),
        ({"run": print, "reference": [3]}, "reference of a Problem is list, not a function"),
    ],
)
def test_a_problem_refuses_at_once_what_cannot_be_called(given, said):
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.Problem(**given)

    assert str(caught.value) == (
        f"{HERE}:{line}: {said}\n"
        "hint: write tritune.Problem(lambda: op(...), reference=lambda: ...)"
    )


def test_a_damaged_lockfile_is_one_warning_and_the_default(tmp_path, gpu, caplog):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES)
    file.write_text(file.read_text(encoding="utf-8")[:-7], encoding="utf-8")

    assert (ran(jitted(file), 64), ran(jitted(file), 256)) == (16, 16)
    assert caplog.messages == [
        (
            "the lockfile is damaged, so kernels run as if nothing were locked: "
            f"{file}:18: is cut off here\n"
            "hint: restore it from git, or delete the file and sweep again"
        )
    ]


def test_damage_in_another_kernels_entries_does_no_harm_here(tmp_path, gpu, caplog):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"kernels": {', '"kernels": {"a:b": 3,'), encoding="utf-8")

    assert ran(jitted(file), 64) == 32
    assert caplog.messages == []


def test_damage_in_its_own_entries_is_said_when_a_kernel_is_imported(tmp_path, caplog):
    file = locked(tmp_path / "t.lock", SHAPES)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"B": 128', '"B": [128]'), encoding="utf-8")

    jitted(file)

    assert caplog.messages == [
        (
            "the lockfile is damaged, so `test_runtime:jitted.<locals>.fill` runs as if nothing "
            "were locked: "
            f"{file}:14: kernels.test_runtime:jitted.<locals>.fill.H100.n=256 FLAG=True x=f32."
            "config.B: expected a value, got [128]\n"
            "hint: restore it from git, or delete the file and sweep again"
        )
    ]


def test_evidence_that_is_damaged_keeps_no_config_from_a_launch(tmp_path, gpu, caplog):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"us": 1.0', '"us": 1.0.0'), encoding="utf-8")

    assert (ran(jitted(file), 64), caplog.messages) == (32, [])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-7], ("18: is cut off here\nhint: restore it from git, or delete the "
         "file and sweep again")),
        (lambda text: text.replace("    }\n", "=======\n    }\n"), ("16: has the markers of an "
         "unfinished merge\nhint: `tritune merge --install`, then `git checkout --merge` this "
         "file; or take one side (`git checkout --ours` or `--theirs`), and "
         "`tritune sweep --stale`")),
    ],
)  # fmt: skip
def test_damage_that_git_or_a_full_disk_left_is_an_error_where_a_miss_is_one(
    damage, message, tmp_path, gpu, monkeypatch
):
    gpu()
    monkeypatch.setenv("TRITUNE_MISS", "error")
    file = locked(tmp_path / "t.lock", SHAPES)
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    kernel = jitted(file)

    with pytest.raises(LockError) as caught:
        ran(kernel, 64)
    assert str(caught.value) == f"{file}:{message}"


def test_a_damaged_lockfile_is_an_error_where_a_miss_is_one(tmp_path, gpu, monkeypatch):
    gpu()
    monkeypatch.setenv("TRITUNE_MISS", "error")
    (tmp_path / "t.lock").write_text("", encoding="utf-8")
    kernel = jitted(tmp_path / "t.lock")

    with pytest.raises(LockError) as caught:
        ran(kernel)
    assert str(caught.value) == (
        f"{tmp_path}/t.lock: is empty\n"
        "hint: restore it from git, or delete the file and sweep again"
    )


def test_a_variable_names_another_lockfile_for_every_kernel(tmp_path, gpu, monkeypatch):
    gpu()
    file = locked(tmp_path / "t.lock", SHAPES)
    monkeypatch.setenv("TRITUNE_LOCKFILE", os.fspath(file))
    kernel = jitted(tmp_path / "none.lock")

    assert (kernel.lockfile, ran(kernel, 64)) == (file, 32)

"""What packages put around an autotuner, or make of it: found, tuned, and served.

The classes do in a few lines what those of public packages do: one that keeps the binary of a
first launch and launches it from then on, and one that tunes by a policy and a key of its own.
"""

from __future__ import annotations

import gc

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics

import tritune
from test_adopt import _world, benchmarks, config, configs, installed, sweeping, timed
from tritune import adopt, contract, intercept, wrappers
from tritune.model import Config

__all__ = ["_world", "benchmarks", "sweeping"]

HERE = "test_wrappers"


class Entry(triton.KernelInterface):
    """Launches by itself what it has launched once, with all that its layers said then."""

    def __init__(self, fn):
        self.fn = fn
        self.arg_names = fn.arg_names
        self.kernel_cache = ({}, {})
        self.options = {"fast": True}
        self.asked = 0
        *_, self.jit, _ = contract.layers(fn)

    def run(self, *args, grid, warmup, **kwargs):
        key = tuple((type(one), getattr(one, "dtype", one)) for one in (*args, *kwargs.values()))
        cache = self.kernel_cache[0]
        if key not in cache:
            self.asked += 1
            self.fn.run(*args, grid=grid, warmup=warmup, **kwargs)
            cache[key] = self._said(args, kwargs)
            return
        _, meta, hook = cache[key]
        if hook is not None:
            hook({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        self.jit.run(*args, grid=grid, warmup=warmup, **kwargs, **meta)

    def _said(self, args, kwargs):
        best, meta, hook, layer = None, {}, None, self.fn
        while layer is not self.jit:
            named = {**dict(zip(self.arg_names, args, strict=False)), **kwargs, **meta}
            if isinstance(layer, Autotuner):
                best = layer.best_config
                meta |= best.kwargs
                hook = best.pre_hook
            elif isinstance(layer, Heuristics):
                meta |= {name: value(named) for name, value in layer.values.items()}
            layer = layer.fn
        return best, meta, hook


class Policy(Autotuner):
    """Tunes with a key and a policy of its own, and never calls the `run` below it."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        named = {**self.nargs, **kwargs}
        key = tuple(named[name] // 32 for name in self.keys)
        if key not in self.cache:
            times = {one: self._bench(*args, config=one, **kwargs) for one in self.configs}
            self.cache[key] = min(times, key=times.get)
        self.best_config = self.cache[key]
        return self.fn.run(*args, **kwargs, **self.best_config.all_kwargs())


def wrapped(kind=None):
    """Remembering, heuristics, an autotuner, heuristics, a kernel: from the outside in."""

    @triton.jit  # here, where the environment says that it is interpreted
    def told(x, y, n, WIDE: tl.constexpr, B: tl.constexpr, TWICE: tl.constexpr):
        tl.store(y, B)
        tl.store(y + 1, TWICE)
        tl.store(y + 2, WIDE)

    inner = triton.heuristics({"TWICE": lambda named: 2 * named["B"]})(told)
    if kind is None:
        tuner = triton.autotune(configs(16, 32, 64), ["n"], do_bench=timed)(inner)
    else:
        tuner = kind(inner, inner.arg_names, configs(16, 32, 64), ["n"], [], [], do_bench=timed)
    return Entry(triton.heuristics({"WIDE": lambda named: named["n"] > 8})(tuner))


def ran(kernel, n=8):
    x, y = torch.zeros(4), torch.zeros(3, dtype=torch.int32)
    kernel[(1,)](x, y, n)
    return y.tolist()


def tuner_of(kernel):
    return adopt.inside(kernel)


NAME = f"{HERE}:wrapped.<locals>.told"
LOCKED = {"n=8 WIDE=False x=f32 y=i32": config(32), "n=9 WIDE=True x=f32 y=i32": config(16)}
KINDS = pytest.mark.parametrize("kind", [None, Policy])


@KINDS
def test_what_remembers_its_launches_is_served_and_remembers_what_is_locked(
    tmp_path, benchmarks, kind
):
    kernel = wrapped(kind)
    installed(tmp_path, LOCKED, kernel=NAME)

    found = [ran(kernel, n) for n in (8, 8, 9, 8, 9)]

    assert found == [[32, 64, 0], [32, 64, 0], [16, 32, 1], [32, 64, 0], [16, 32, 1]]
    assert (benchmarks(), kernel.asked) == (0, 2)


@KINDS
def test_a_miss_under_it_is_tuned_as_its_own_class_tunes(tmp_path, benchmarks, kind):
    kernel = wrapped(kind)
    installed(tmp_path, LOCKED, kernel=NAME)

    assert (ran(kernel, 7), ran(kernel, 7), benchmarks()) == ([64, 128, 0], [64, 128, 0], 3)
    assert len(tuner_of(kernel).cache) == 1


def test_what_has_launched_before_the_install_is_told_as_it_never_asks_again(tmp_path, caplog):
    kernel = wrapped()
    ran(kernel)

    installed(tmp_path, LOCKED, kernel=NAME)

    assert (ran(kernel), ran(kernel, 9)) == ([64, 128, 0], [16, 32, 1])
    assert caplog.messages[0] == (
        f"{NAME}: the Entry around it has launched it before tritune.install(), and what it "
        "launched once it launches without asking again: install before the first launch"
    )


def test_what_has_not_launched_before_the_install_is_not_told_of(tmp_path, caplog):
    kernel = wrapped()

    installed(tmp_path, LOCKED, kernel=NAME)

    assert caplog.messages == []
    assert ran(kernel) == [32, 64, 0]


def test_launches_of_other_threads_go_on_while_it_is_asked_what_has_launched():
    kernel = wrapped()
    held = kernel.kernel_cache[0]

    class Key:
        @property
        def __class__(self):  # asked of a key: now another thread launches
            held.setdefault(1)
            kernel.later = True
            return int

    held[Key()] = 0

    assert kernel not in wrappers.that_launched()
    assert kernel.later


def test_what_was_remembered_while_installed_is_forgotten_when_uninstalled(tmp_path, benchmarks):
    kernel = wrapped()
    kernel.kernel_cache[1][("of", "others")] = "stays"
    ran(kernel, 7)
    installed(tmp_path, LOCKED, kernel=NAME)
    assert (ran(kernel), kernel.asked) == ([32, 64, 0], 2)
    kernel.kernel_cache[1][64, 64] = {"of": "others"}

    tritune.uninstall()

    assert [len(held) for held in kernel.kernel_cache] == [1, 2]
    assert wrappers._before == {}
    assert (ran(kernel), ran(kernel, 7), kernel.asked) == ([64, 128, 0], [64, 128, 0], 3)


def test_what_was_remembered_of_one_lockfile_is_not_served_once_another_is_installed(
    tmp_path, caplog
):
    kernel = wrapped()
    installed(tmp_path, LOCKED, kernel=NAME)
    ran(kernel)

    installed(tmp_path, {"n=8 WIDE=False x=f32 y=i32": config(16)}, kernel=NAME)

    assert (ran(kernel), caplog.messages) == ([16, 32, 0], [])
    assert kernel.options == {"fast": True}


@KINDS
def test_in_a_sweep_every_launch_of_what_remembers_comes_through(sweeping, kind):
    kernel = wrapped(kind)
    behind = sweeping(tuner_of(kernel))
    x, y = torch.zeros(4), torch.zeros(3, dtype=torch.int32)

    def op():
        for n in (8, 8, 9):
            kernel[(1,)](x, y, n)
        return y

    found = []
    for block in (16, 64, 16):
        returned, launches = intercept.capture(behind, op, Config.of(config(block)))
        found.append((returned.tolist(), len(launches), [one.grid_sizes() for one in launches]))

    assert found == [
        ([16, 32, 1], 3, [(1,)] * 3),
        ([64, 128, 1], 3, [(1,)] * 3),
        ([16, 32, 1], 3, [(1,)] * 3),
    ]
    assert kernel.options == {"fast": True}


def test_a_launch_that_is_the_first_to_find_it_is_forgotten_too(sweeping):
    kernel = wrapped()

    assert intercept.as_it_comes(lambda: ran(kernel)) == [16, 32, 0]
    assert intercept.as_it_comes(lambda: (ran(kernel), ran(kernel))) == ([16, 32, 0], [16, 32, 0])
    assert kernel.asked == 3


class Counting(Autotuner):
    def run(self, *args, **kwargs):
        return super().run(*args, **kwargs)


@pytest.mark.parametrize(
    ("kind", "key"), [(None, "n=8 f32 i32"), (Counting, "n=8 f32 i32"), (Policy, "")]
)
def test_of_a_class_with_a_key_of_its_own_nothing_is_said_of_tritons(sweeping, kind, key):
    arguments = (torch.zeros(4), torch.zeros(3, dtype=torch.int32), 8)
    behind = sweeping(tuner_of(wrapped(kind)))

    assert behind.stock_key(arguments, {"WIDE": False}) == key


def test_after_a_sweep_it_remembers_again(sweeping, benchmarks):
    kernel = wrapped()
    sweeping(tuner_of(kernel))

    adopt.end()
    ran(kernel)
    ran(kernel)

    assert (kernel.asked, "run" in vars(kernel)) == (1, False)


def test_what_is_around_is_found_through_tritons_own_layers_and_nothing_else_is():
    kernel = wrapped()
    tuner = tuner_of(kernel)
    others = [[tuner], {"fn": tuner}, (tuner,)]

    class Holds:
        def __init__(self, fn):
            self.fn = fn

    held = Holds(tuner)
    gc.collect()

    assert list(wrappers.around(tuner)) == [kernel]
    assert (len(others), held.fn is tuner) == (3, True)


def test_a_wrapped_kernel_is_named_by_what_its_module_holds(monkeypatch):
    kernel = wrapped()
    monkeypatch.setitem(globals(), "entry", kernel)

    assert adopt.name_of(tuner_of(kernel), contract.describe(kernel)) == f"{HERE}:entry"

"""The launch path of production: a stand-in driver, and binaries that only note a launch."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

import tritune
from tritune import contract as contracts
from tritune import keys, runtime, switches, undecorated
from tritune.device.lowering import StandIn
from tritune.errors import LookupMissError
from tritune.launcher import Launcher
from tritune.recall import Recall

FACTOR = tl.constexpr(3)


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * FACTOR, mask=at < n)


@triton.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})
@triton.jit
def even(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(x, n)


@triton.jit(do_not_specialize=["seed"], do_not_specialize_on_alignment=["z"])
def many(  # noqa: PLR0917
    x,
    z,
    n,
    seed,
    wide: i64,  # noqa: F821
    eps: fp32,  # noqa: F821
    p,
    BLOCK: tl.constexpr,
    FLAG: tl.constexpr = 7,
):
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
    for kernel in (scale, even.fn, many):
        kernel.device_caches.clear()
        kernel.used_global_vals = {}


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


# --- a launch that is known ----------------------------------------------------------------

USUAL = {"BLOCK": 16, "num_warps": 4}


@pytest.fixture(name="locked")
def _locked(compiled, tmp_path):
    """`scale` as it is decorated; `looked` has the launches that were not recalled."""

    def make(jit=scale, **says):
        plain = {"key": ["n"], "default": USUAL, "lockfile": tmp_path / "none.lock"}
        kernel = tritune.kernel(**{**plain, **says})(jit)
        kernel.looked = []
        launch = kernel._launcher.launch

        def looked(*call):
            kernel.looked.append(call)
            return launch(*call)

        kernel._launcher.launch = looked
        return kernel

    return make


def counted(kernel):
    return {kind: n for kind, n in tritune.stats()[kernel.name].items() if n}


@pytest.fixture(autouse=True)
def _nothing_counted(monkeypatch):
    monkeypatch.setattr("tritune.switches._running", {})
    monkeypatch.setattr("tritune.switches._ended", {})
    monkeypatch.setattr("tritune.switches._mine", switches._OfThread())


def test_an_equal_launch_is_recalled_and_runs_with_its_own_arguments(compiled, locked):
    kernel, (x, y) = locked(), tensors()

    first = kernel[(4,)](x, y, 64)
    second = kernel[(5, 2)](y, x, 64)

    [binary] = compiled
    assert (first, second, len(kernel.looked)) == (binary, binary, 1)
    assert [launch[:3] for launch in binary.launches] == [(4, 1, 1), (5, 2, 1)]
    assert binary.launches[1][3:9] == (0, 7, (1,), None, None, None)
    assert binary.launches[1][9:] == (y, x, 64, 16)
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    assert counted(kernel) == {"default": 2}


def test_what_is_passed_by_name_and_what_is_not_passed_stand_in_the_order_of_the_signature(
    compiled, locked
):
    kernel, (x, z) = locked(many), tensors()
    named = {"FLAG": 8, "eps": 0.5, "n": 64, "p": None, "wide": 3, "seed": 9}

    for eps in (0.25, 0.5):
        kernel[(1,)](x, z, **{**named, "eps": eps})
        kernel[(1,)](x, z, 64, 9, 3, eps, None)

    assert len(kernel.looked) == 2
    assert [launch[9:] for launch in compiled[0].launches] == [
        (x, z, 64, 9, 3, 0.25, None, 16, 8),
        (x, z, 64, 9, 3, 0.5, None, 16, 8),
    ]
    assert [launch[9:] for launch in compiled[1].launches] == [
        (x, z, 64, 9, 3, 0.25, None, 16, 7),
        (x, z, 64, 9, 3, 0.5, None, 16, 7),
    ]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        pytest.param((*tensors(offset=1), 64), {}, id="an unaligned pointer"),
        pytest.param((*tensors(), 1), {}, id="a size of one"),
        pytest.param((*tensors(), 63), {}, id="a size that is no multiple of 16"),
        pytest.param((*tensors(), 2**31), {}, id="a wide size"),
        pytest.param((*tensors(), 2**63), {}, id="a size with no sign"),
        pytest.param((*tensors(), True), {}, id="a truth where a size was"),
        pytest.param((*tensors(), 64.0), {}, id="a float where a size was"),
        pytest.param((None, torch.zeros(64), 64), {}, id="nothing where a tensor was"),
        pytest.param((torch.zeros(64).half(), torch.zeros(64), 64), {}, id="another dtype"),
        pytest.param((*tensors(), 64), USUAL | {"BLOCK": 32}, id="another block"),
        pytest.param((*tensors(), 64), USUAL | {"num_warps": 8}, id="other warps"),
        pytest.param((*tensors(), 64), {"num_stages": 2}, id="an option of the caller"),
    ],
)
@pytest.mark.parametrize("key", [["n"], []])
def test_a_launch_that_triton_tells_apart_is_not_recalled_as_another(
    compiled, locked, args, named, key
):
    kernel = locked(key=key)
    for _ in range(2):
        kernel[(4,)](*tensors(), 64)
    for _ in range(3):
        kernel[(4,)](*args, **named)

    assert [len(binary.launches) for binary in compiled] == [2, 3]
    assert len(kernel.looked) == 2


def test_constants_and_options_are_compared_by_their_values(compiled, locked):
    kernel = locked()
    configs = [
        {"BLOCK": block, "num_warps": warps, "num_stages": stages}
        for block, warps, stages in itertools.product((32, 64), (2, 8), (3, 5))
    ]

    for config in configs * 2:
        kernel[(1,)](*tensors(), 64, **config)

    assert [(len(b.launches), b.launches[0][-1]) for b in compiled] == [
        (2, config["BLOCK"]) for config in configs
    ]
    assert len(kernel.looked) == len(configs)


def test_a_launch_whose_arguments_triton_changes_is_never_recalled(compiled, locked):
    kernel, (x, y) = locked(), tensors()
    *rest, binder = scale.device_caches[0]

    def copying(*args, **named):
        bound, *more = binder(*args, **named)
        return {**bound, "x": (bound["x"],)}, *more

    scale.device_caches[0] = (*rest, copying)
    for _ in range(3):
        kernel[(1,)](x, y, 64)

    assert len(kernel.looked) == 3


NUMBERS = sorted(
    {
        sign * (1 << bits) + more
        for bits in (0, 1, 4, 5, 30, 31, 32, 62, 63)
        for more in (-16, -1, 0, 1, 16)
        for sign in (1, -1)
    }
)


def specialization(args):
    _, found, _ = many.device_caches[0][-1](*args, BLOCK=16)
    return tuple(found)


def test_launches_that_are_recalled_as_equal_are_equal_to_triton(locked):
    x, off = tensors()[0], tensors(offset=1)[0]
    things = (x, off, x.half(), off.half(), x.int(), torch.nn.Parameter(x), None)
    kernel = locked(many, key=[])
    usual = (x, x, 64, 64, 64, 1.0, 1.0)
    calls = [
        (*usual[:at], value, *usual[at + 1 :])
        for at, values in ((0, things), (1, things), (2, NUMBERS), (3, NUMBERS), (4, NUMBERS))
        for value in values
        if not isinstance(value, int) or -(2**63) <= value < 2**64
    ]
    calls += [(*usual[:5], eps, p) for eps, p in itertools.product((0.0, 2.5, True), repeat=2)]

    seen = {}
    for args in calls:
        slot = kernel._recall.slot(args, {}, args)
        seen.setdefault((id(slot[0]), slot[1]), set()).add(specialization(args))

    assert {len(found) for found in seen.values()} == {1}
    assert len(seen) < len(calls) / 2


LAYOUTS = (
    torch.zeros(64),
    torch.zeros(128)[::2],
    torch.zeros(8, 8),
    torch.zeros(8, 8).T,
    torch.zeros(16, 16)[::2, ::2],
    torch.zeros(4, 4, 4),
    torch.zeros(4, 4, 4).transpose(1, 2),
    torch.zeros(4, 4, 4).transpose(0, 2),
    torch.zeros(8, 8, 8)[::2, ::2, ::2],
    torch.zeros(2, 4, 2, 4).transpose(2, 3),
    torch.zeros(0, 8).T,
)


def test_launches_that_are_recalled_as_equal_have_one_key_whatever_the_layouts(locked):
    contract = undecorated.contract(contracts.describe(scale), USUAL, ("n",))
    recall = Recall(contract, scale.arg_names, scale)
    seen = {}
    for x, y in itertools.product(LAYOUTS, repeat=2):
        _, slot = recall.slot((x, y, 64), {}, (x, y, 64))
        key = keys.text(contract, {"x": x, "y": y, "n": 64, **USUAL})
        seen.setdefault(slot, set()).add(key)

    assert {len(found) for found in seen.values()} == {1}
    assert len(seen) == 5 * 5


def test_a_number_too_large_for_any_argument_is_refused_every_time(compiled, locked):
    kernel = locked(key=[])
    kernel[(1,)](*tensors(), 2**63)

    for _ in range(2):
        with pytest.raises(OverflowError):
            kernel[(1,)](*tensors(), 2**64)


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("args", "named"),
    [
        pytest.param((torch.zeros(64).as_subclass(Subclass), 1, 64), {}, id="a class of its own"),
        pytest.param(((torch.zeros(64), 3), 1, 64), {}, id="a tuple"),
        pytest.param((TensorDescriptor(torch.zeros(64), [64], [1], [16]), 1, 64), {}, id="a desc"),
        pytest.param((1, 1, 64), {"BLOCK": torch.zeros(1), "num_warps": 4}, id="a constant tensor"),
        pytest.param((1, 1, 64), {"BLOCK": tl.constexpr(1), "num_warps": 4}, id="a wrapped one"),
        pytest.param((1, 1, 64, 16, 5), {"num_warps": 4}, id="one too many"),
    ],
)
def test_what_is_not_known_through_and_through_is_never_recalled(locked, args, named):
    assert locked()._recall.slot(args, named, (*args, *named.values())) is None


def test_a_grid_is_called_with_all_arguments_by_name(compiled, locked):
    kernel, seen = locked(), []
    x, y = tensors()

    for _ in range(3):
        kernel[lambda named: (seen.append(dict(named)), (named["n"],))[1]](x, y, 64)

    assert seen == [{"x": x, "y": y, "n": 64, "BLOCK": 16}] * 3
    assert [launch[0] for launch in compiled[0].launches] == [64] * 3
    assert len(kernel.looked) == 1


def test_a_recalled_launch_is_on_the_current_device_and_stream_of_the_current_driver(
    compiled, locked
):
    kernel, x_y = locked(), tensors()
    at = {"device": 0, "stream": 5}
    active = driver.active
    active.get_current_device = lambda: at["device"]
    active.get_current_stream = lambda device: (device, at["stream"])

    for at["device"], at["stream"] in ((0, 5), (0, 6), (1, 5), (1, 6), (0, 7)):
        kernel[(1,)](*x_y, 64)
    other = StandIn(GPUTarget("cuda", 80, 32))
    other.get_current_stream = lambda device: "other"
    driver.set_active(other)
    for _ in range(2):
        kernel[(1,)](*x_y, 64)

    streams = [[launch[3] for launch in binary.launches] for binary in compiled]
    assert streams == [[(0, 5), (0, 6), (0, 7), "other", "other"], [(1, 5), (1, 6)]]
    assert len(kernel.looked) == 3


def test_binaries_that_triton_has_dropped_are_not_recalled(compiled, locked):
    kernel, x_y = locked(), tensors()

    for _ in range(2):
        kernel[(1,)](*x_y, 64)
        kernel[(1,)](*x_y, 64)
        scale.device_caches.clear()

    assert [len(binary.launches) for binary in compiled] == [2, 2]


def test_an_amd_launch_is_asked_about_every_time_because_its_tensors_sizes_matter(locked):
    driver.set_active(StandIn(GPUTarget("hip", "gfx942", 64)))
    kernel, x_y = locked(), tensors()

    for _ in range(3):
        kernel[(1,)](*x_y, 64)

    assert len(kernel.looked) == 3


def hook(metadata):
    """A hook that does nothing."""


@pytest.mark.parametrize("enter", [hook, None])
def test_a_recalled_launch_has_the_hooks_of_now(compiled, locked, enter, monkeypatch):
    kernel, x_y = locked(), tensors()
    for _ in range(2):
        kernel[(4,)](*x_y, 64)
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", enter)
    chain = type(knobs.runtime.launch_exit_hook)()
    chain.add(hook)
    monkeypatch.setattr(knobs.runtime, "launch_exit_hook", chain)

    kernel[(4,)](*x_y, 64)

    assert [launch[6:9] for launch in compiled[0].launches[1:]] == [
        (None, None, None),
        ("metadata", enter, chain),
    ]
    assert len(kernel.looked) == 1


@pytest.mark.parametrize("where", ["knob", "function"])
def test_debugging_that_is_turned_on_later_is_another_binary(compiled, locked, where, monkeypatch):
    kernel, x_y = locked(), tensors()
    for _ in range(2):
        kernel[(4,)](*x_y, 64)
    monkeypatch.setattr(*{"knob": (knobs.runtime, "debug"), "function": (scale, "debug")}[where], 1)
    for _ in range(2):
        kernel[(4,)](*x_y, 64)
    monkeypatch.undo()

    assert [len(binary.launches) for binary in compiled] == [2, 2]


def test_a_launch_whose_compile_is_instrumented_is_tritons_own(compiled, locked, monkeypatch):
    kernel, x_y, runs = locked(), tensors(), []
    for _ in range(2):
        kernel[(4,)](*x_y, 64)
    monkeypatch.setattr(
        kernel._launcher, "_fn", SimpleNamespace(run=lambda *_, **k: runs.append(k))
    )

    with monkeypatch.context() as patch:
        patch.setattr(knobs.compilation, "instrumentation_mode", "proton")
        kernel[(4,)](*x_y, 64)
    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *_: ("", ""))
        kernel[(4,)](*x_y, 64)
    kernel[(4,)](*x_y, 64)

    assert [(run["BLOCK"], run["grid"]) for run in runs] == [(16, (4,))] * 2
    assert counted(kernel) == {"default": 5}


@pytest.mark.parametrize("where", [JITFunction, scale])
def test_a_run_that_a_profiler_replaced_is_called(locked, where, monkeypatch):
    kernel, x_y, runs = locked(), tensors(), []
    for _ in range(2):
        kernel[(4,)](*x_y, 64)
    monkeypatch.setattr(where, "run", lambda *args, **named: runs.append(named))

    kernel[(4,)](*x_y, 64)

    assert runs == [{"grid": (4,), "warmup": False, **USUAL}]


def test_a_hook_before_a_run_that_comes_late_sees_every_launch(locked, monkeypatch):
    kernel, seen = locked(), []
    for _ in range(2):
        kernel[(4,)](*tensors(), 64)
    monkeypatch.setattr(scale, "pre_run_hooks", [lambda *args, **named: seen.append(args[2])])

    for _ in range(2):
        kernel[(4,)](*tensors(), 64)

    assert seen == [64, 64]


def test_a_global_that_changed_is_an_error_in_a_recalled_launch_too(locked, monkeypatch):
    kernel, x_y = locked(), tensors()
    for _ in range(3):
        kernel[(4,)](*x_y, 64)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(5))

    for _ in range(2):
        with pytest.raises(RuntimeError, match="Global variable FACTOR has changed"):
            kernel[(4,)](*x_y, 64)


def test_a_heuristic_is_asked_on_every_launch_of_a_kernel(compiled, locked):
    answers = []
    asked = triton.heuristics({"EVEN": lambda named: answers[-1]})(even.fn)
    kernel = locked(asked)

    for answer in (True, False, True, False):
        answers.append(answer)
        kernel[(1,)](tensors()[0], 64)

    assert [len(binary.launches) for binary in compiled] == [2, 2]


def test_the_hook_of_a_config_runs_before_every_launch(compiled, locked):
    seen = []
    config = triton.Config({"BLOCK": 16}, pre_hook=lambda named: seen.append(named["n"]))
    kernel = locked(triton.autotune(configs=[config], key=["n"])(scale), default=None)

    for _ in range(3):
        kernel[(1,)](*tensors(), 64)

    assert seen == [64] * 3
    assert len(compiled[0].launches) == 3


def test_a_hook_and_an_inner_heuristic_are_given_what_triton_gives_them(compiled, locked):
    seen = []

    def heuristic(named):
        seen.append(("heuristic", {**named}))
        return True

    config = triton.Config({"BLOCK": 16}, pre_hook=lambda named: seen.append(("hook", {**named})))
    tuner = triton.autotune(configs=[config], key=["n"])(
        triton.heuristics({"EVEN": heuristic})(even.fn)
    )
    x, _ = tensors()
    tuner[(1,)](x, n=64)
    alone = [(who, {*named}, named["grid"], named["num_ctas"]) for who, named in seen]
    kernel = locked(tuner, default=None)
    seen.clear()

    for _ in range(2):
        kernel[(1,)](x, n=64)

    given = {"x", "n", "grid", "warmup", "BLOCK", "num_warps", "num_stages", "num_ctas"}
    assert alone == [("hook", given, (1,), 1), ("heuristic", given, (1,), 1)]
    served = [(who, {*named}, named["grid"], named["num_ctas"]) for who, named in seen]
    assert served[-2:] == alone  # of a launch that is known
    assert [one for one in served if one not in alone] == []


def test_what_is_switched_on_later_holds_for_a_launch_that_is_known(compiled, locked):
    kernel, x_y, calls = locked(), tensors(), []
    named = {"x": x_y[0], "y": x_y[1], "n": 64}
    for _ in range(2):
        kernel[(1,)](*x_y, 64)
        kernel.config(**named)

    with tritune.override(kernel, {"BLOCK": 32, "num_warps": 4}):
        kernel[(1,)](*x_y, 64)
        assert kernel.config(**named)["BLOCK"] == 32
    with runtime.intercept(lambda *call: calls.append(call[1:])):
        kernel[(1,)](*x_y, 64)
    with switches.tracing():
        kernel[(1,)](*x_y, 64)
    kernel[(1,)](*x_y, 64)

    assert [len(binary.launches) for binary in compiled] == [3, 1]
    assert calls == [((*x_y, 64), {}, (1,))]
    assert counted(kernel) == {"default": 5, "forced": 2}


def test_a_config_that_config_gave_is_counted_once_however_often_it_was_passed(locked):
    kernel, (x, y) = locked(), tensors()
    for _ in range(3):
        kernel[(1,)](x, y, 64, **USUAL)
    for _ in range(3):
        kernel[(1,)](x, y, 64, **kernel.config(n=64, x=x, y=y))

    assert counted(kernel) == {"given": 3, "default": 3}
    assert len(kernel.looked) == 1


def test_the_counts_of_recalled_launches_of_many_threads_add_up(compiled, locked):
    kernel, x_y = locked(), tensors()

    def launch():
        for _ in range(50):
            kernel[(1,)](*x_y, 64)

    threads = [threading.Thread(target=launch) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert counted(kernel) == {"default": 400}
    assert sum(len(binary.launches) for binary in compiled) == 400


def test_a_miss_that_is_an_error_is_one_at_every_launch(compiled, locked, monkeypatch):
    monkeypatch.delattr(type(driver.active), "only_compiles")
    driver.active.utils = SimpleNamespace(
        get_device_properties=lambda index: {
            "multiprocessor_count": 1,
            "max_shared_mem": 1,
            "mem_bus_width": 1,
            "mem_clock_rate": 1,
        }
    )
    monkeypatch.setenv("TRITUNE_MISS", "error")
    kernel = locked()

    for _ in range(3):
        with pytest.raises(LookupMissError):
            kernel[(1,)](*tensors(), 64)
    assert compiled == []


def test_what_is_remembered_is_bounded(locked, monkeypatch):
    monkeypatch.setattr("tritune.recall.LIMIT", 8)
    monkeypatch.setattr("tritune.recall.FORMS", 4)
    kernel = locked()

    for n in range(2, 30):
        kernel[(1,)](*tensors(), n)
        kernel[(1,)](*tensors(), *(64, 64.0, None, True)[n % 4 : n % 4 + 1], num_stages=n)
        kernel.config(n=n, x=torch.zeros(n), y=None)

    for recall in (kernel._recall, kernel._asked):
        [place] = recall._places.values()
        assert len(place.plans) <= 4
        assert max(len(plan.records) for plan in place.plans.values()) <= 8

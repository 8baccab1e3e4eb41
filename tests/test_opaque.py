"""`tritune.op`: under torch.compile an op is one node, and runs what is locked when it runs."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

import tritune
from tritune import dispatch
from tritune.device.lowering import StandIn
from tritune.errors import KernelError

HERE = str(Path(__file__).resolve())


@tritune.kernel(key=["n"], like=["x"], default={"BLOCK": 64, "num_warps": 4})
@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def parts(x: torch.Tensor, times: int = 1) -> torch.Tensor:
    """Add one, into a workspace sized by the config."""
    n = x.numel()
    config = add_one.config(n=n, x=x)
    out = x.new_empty(n)
    add_one[(-(-n // config["BLOCK"]),)](x, out, n, **config)
    return out * times


opaque = tritune.op(parts)


@pytest.fixture(name="launched", autouse=True)
def _launched(monkeypatch):
    """Launches are noted and done by torch: what is under test is who calls them, and when."""
    seen = []

    def launch(self, served, call, grid, warmup=False):  # noqa: FBT002
        x, y, n = call[0]
        seen.append((n, dict(served.config)))
        y.copy_(x + 1)

    monkeypatch.setattr(dispatch.Kernel, "_launch", launch)
    before = getattr(driver, "_active", None)
    driver.set_active(StandIn(GPUTarget("cuda", 90, 32)))
    yield seen
    driver._active = before


def test_outside_of_a_compile_the_op_is_called_as_it_is(launched):
    assert torch.equal(opaque(torch.zeros(10), times=2), torch.full((10,), 2.0))
    assert launched == [(10, {"BLOCK": 64, "num_warps": 4})]
    assert opaque.__name__ == "parts"


def test_a_compiled_op_launches_once_a_call_and_never_while_it_is_traced(launched):
    compiled = torch.compile(lambda x: opaque(x) + 1, fullgraph=True, backend="eager")

    results = [compiled(torch.zeros(n)) for n in (10, 10)]

    assert [n for n, _ in launched] == [10, 10]
    assert torch.equal(results[1], torch.full((10,), 2.0))


def test_dynamic_sizes_are_one_graph_and_each_size_is_looked_up_when_it_runs(launched):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x: opaque(x) * 2, fullgraph=True, dynamic=True, backend=backend)
    with tritune.override(add_one, {"BLOCK": 32, "num_warps": 8}):
        for n in (10, 20, 300):
            assert torch.equal(compiled(torch.zeros(n)), torch.full((n,), 2.0))

    assert len(graphs) == 1
    assert launched == [(n, {"BLOCK": 32, "num_warps": 8}) for n in (10, 20, 300)]


def test_an_op_of_the_main_module_has_a_name_that_a_class_does_not_change(launched):
    def plus_one(x: torch.Tensor) -> torch.Tensor:
        return parts(x)

    plus_one.__module__, plus_one.__qualname__ = "__main__", "plus_one"
    tritune.op(plus_one)

    assert hasattr(torch.ops.tritune, "main___plus_one")


def bare(x, n, *, scale: float = 1.0):
    return x * n * scale


def without_result(x: torch.Tensor):
    return x


def of_a_set(x: torch.Tensor, which: set) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            bare,
            (
                "tritune.op needs annotations, and `bare` has none for `x`, `n` and its result\n"
                "hint: torch asks for them, as `def bare(x: torch.Tensor, n: int) -> torch.Tensor:`"
            ),
        ),
        (
            without_result,
            (
                "tritune.op needs annotations, and `without_result` has none for its result\n"
                "hint: torch asks for them, as "
                "`def without_result(x: torch.Tensor, n: int) -> torch.Tensor:`"
            ),
        ),
        (
            of_a_set,
            (
                "tritune.op cannot make `of_a_set` an op of torch's: "
                "Parameter which has unsupported type set\n"
                "hint: parameters and results are tensors, numbers, texts, dtypes, "
                "or lists of these"
            ),
        ),
    ],
)
def test_an_op_that_torch_cannot_read_is_one_error_at_its_function(function, message):
    with pytest.raises(KernelError) as caught:
        tritune.op(function)

    assert str(caught.value) == f"{HERE}:{function.__code__.co_firstlineno}: {message}"


@pytest.mark.parametrize(
    ("mutates", "message"),
    [
        ("x", 'mutates is a str, not a list of names\nhint: write mutates=["x"]'),
        (["y"], "mutates names `y`, which is not an argument of `parts`\nhint: it has x, times"),
        (
            ["times"],
            (
                "tritune.op cannot make `parts` an op of torch's: Parameter times is in "
                "mutable_args but only Tensors or collections of Tensors can be mutated\n"
                "hint: mutates names tensors alone"
            ),
        ),
    ],
)
def test_what_an_op_writes_to_is_a_list_of_its_arguments(mutates, message):
    with pytest.raises(KernelError) as caught:
        tritune.op(parts, mutates=mutates)

    assert str(caught.value).partition(": ")[2] == message


def test_an_op_of_what_is_no_function_is_an_error_where_it_was_asked_for():
    line = inspect.currentframe().f_lineno + 2
    with pytest.raises(KernelError) as caught:
        tritune.op(3)

    assert str(caught.value) == (
        f"{HERE}:{line}: tritune.op got int, not a function\n"
        "hint: it takes the Python function that launches the kernel: tritune.op(matmul)"
    )

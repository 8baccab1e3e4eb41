"""The bench, on tensors of the CPU: what an op writes is found, put back, and judged.

Triton's interpreter stands for the GPU, in a child process; nothing here is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tritune.device import bench as benches
from tritune.device import sampling, study
from tritune.device.bench import Bench, Prepared
from tritune.load import Loaded, load
from tritune.model import Candidate, Config, Problem, Reason, Rejected, Verified
from tritune.workers import Done, Worker

PROBLEM = Problem.of({"n": 40})
MODULE = """\
import torch
import triton
import triton.language as tl
import tritune

IN = torch.zeros(40)


{decorator}
@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
{body}


def op(x, out):
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


@tritune.problem(kernel)
def problem(n):
    x = torch.randn(n)
{problem}
"""
PLAIN = """@tritune.kernel(
    key=["n"], default={"BLOCK": 16, "num_warps": 4, "num_stages": 3})"""
AUTOTUNED = """@tritune.kernel
@triton.autotune([triton.Config({"BLOCK": 16})], key=["n"], %s=["out"])"""
DOUBLE = "    tl.store(out + at, value * 2, mask=at < n)"
FRESH = "    return tritune.Problem(lambda: op(x, torch.empty_like(x)), reference=lambda: x * 2)"
ADD = "    tl.atomic_add(out + at, value, mask=at < n)"
SUM = "    return tritune.Problem(lambda: op(x, torch.zeros_like(x)), reference=lambda: x.double())"
IN_PLACE = """\
    y = torch.ones(n)
    return tritune.Problem(lambda: op(x, y), reference=lambda: 1 + x.double())"""


def opened(path: Path) -> Bench:
    import torch

    loaded: Loaded = load(f"{path}:kernel", None)
    return Bench(loaded=loaded, device=torch.device("cpu"), cold=False, flush=None)


def candidate(block: int = 16) -> Candidate:
    config = Config.of({"BLOCK": block, "num_warps": 4, "num_stages": 3})
    return Candidate(kernel="m:kernel", problem=PROBLEM, config=config)


Ask = Callable[..., Any]


@pytest.fixture(name="ask")
def _ask(tmp_path: Path) -> Iterator[Ask]:
    """Write a module, and call a function of this one with its bench, in a child process."""
    workers: list[Worker] = []

    def ask(
        function: Callable[..., Any],
        *args: object,
        body: str = DOUBLE,
        problem: str = FRESH,
        decorator: str = PLAIN,
    ) -> Any:
        path = tmp_path / "ops.py"
        path.write_text(MODULE.format(decorator=decorator, body=body, problem=problem))
        worker = Worker(opened, path, log=tmp_path / "log", env={"TRITON_INTERPRET": "1"})
        workers.append(worker)
        answer = worker.call(function, *args, timeout_s=60)
        assert isinstance(answer, Done), f"{answer}\n{getattr(answer, 'traceback', '')}"
        return answer.value

    yield ask
    for worker in workers:
        worker.close()


def studied(bench: Bench) -> dict[str, Any]:
    assert benches.open_problem(bench, candidate()) is None
    said = study.study(bench, candidate())
    return {
        "said": said,
        "own": len(bench.pristine),
        "fresh": sorted(bench.outputs),
        "repeatable": bench.repeatable,
        "adds to": bench.adds_to,
    }


def test_a_fresh_output_is_found_by_its_place(ask: Ask) -> None:
    assert ask(studied) == {
        "said": "",
        "own": 0,
        "fresh": [1],
        "repeatable": True,
        "adds to": (),
    }


def test_an_accumulated_output_is_found_though_nothing_declares_it(ask: Ask) -> None:
    assert ask(studied, body=ADD, problem=SUM) == {
        "said": "",
        "own": 0,
        "fresh": [1],
        "repeatable": False,
        "adds to": ("out",),
    }


def test_a_tensor_of_the_problem_that_is_written_in_place_is_found(ask: Ask) -> None:
    assert ask(studied, body=ADD, problem=IN_PLACE) == {
        "said": "",
        "own": 1,
        "fresh": [],
        "repeatable": False,
        "adds to": ("out",),
    }


VIEWED = """\
    y = torch.ones(n)
    return tritune.Problem(lambda: (kernel[(3,)](y[:1], y, n), y)[1], reference=lambda: 1 + y)"""
IN_A_TUPLE = """\
    y = torch.ones(n)
    return tritune.Problem(lambda: (kernel[(3,)](x, (1, y), n), y)[1], reference=lambda: 1 + x)"""


@pytest.mark.parametrize(
    ("body", "problem", "adds_to"),
    [
        pytest.param(ADD, VIEWED, ("x", "out"), id="also passed as a smaller view"),
        pytest.param(ADD.replace("out", "out[1]"), IN_A_TUPLE, ("out[1]",), id="in a tuple"),
    ],
)
def test_a_write_is_found_however_its_tensor_is_passed(
    ask: Ask, body: str, problem: str, adds_to: tuple[str, ...]
) -> None:
    found = ask(studied, body=body, problem=problem)

    assert (found["own"], found["repeatable"], found["adds to"]) == (len(adds_to), False, adds_to)


@pytest.mark.parametrize("declared", ["reset_to_zero", "restore_value"])
def test_what_an_author_declares_is_honoured_where_nothing_shows_it(
    ask: Ask, declared: str
) -> None:
    found = ask(studied, decorator=AUTOTUNED % declared)

    assert (found["repeatable"], found["adds to"]) == (False, ())


RANDOM = """\
    return tritune.Problem(
        lambda: op(x + torch.rand(1, generator=DICE), torch.empty_like(x)),
        reference=lambda: x * 2)


DICE = torch.Generator()
DICE.seed()"""


def test_an_output_that_differs_on_identical_inputs_is_named(ask: Ask) -> None:
    said = ask(studied, problem=RANDOM)["said"]

    assert said == (
        "two launches on identical inputs differ in `out`, so no digest of its bits is kept"
    )


def judged(bench: Bench, block: int) -> Verified | Rejected:
    benches.open_problem(bench, candidate())
    study.study(bench, candidate())
    assert benches.judge(bench, candidate(), candidate()) is None
    return benches.check(bench, candidate(block))


def test_a_right_config_is_verified_with_its_error_and_bits(ask: Ask) -> None:
    answer = ask(judged, 32)

    assert isinstance(answer, Verified)
    assert (answer.error, len(answer.bits)) == (0.0, 8)


def test_accumulation_is_right_however_often_it_was_run_before(ask: Ask) -> None:
    for problem in (SUM, IN_PLACE):
        answer = ask(judged, 32, body=ADD, problem=problem)

        assert isinstance(answer, Verified)
        assert answer.error < 1e-6


def test_an_op_in_place_is_compared_with_a_reference_made_from_its_input_as_it_was(
    ask: Ask,
) -> None:
    in_place = "    return tritune.Problem(lambda: op(x, x), reference=lambda: x.double() * 2)"

    assert isinstance(ask(judged, 32, problem=in_place), Verified)


def test_adding_to_what_was_never_set_is_wrong_and_said_to_be_that(ask: Ask) -> None:
    answer = ask(judged, 32, body=ADD, problem=FRESH)

    assert answer == Rejected(
        candidate=candidate(32),
        reason=Reason.WRONG,
        detail="largest error inf in output 0 at [0], 0.016 allowed; a launch changes nothing: "
        "does it add to what was never set?",
    )


SET_TOO_OFTEN = "    return tritune.Problem(lambda: op(x, torch.ones(n)), reference=lambda: x)"


def test_a_wrong_sum_names_the_argument_that_is_added_to(ask: Ask) -> None:
    answer = ask(judged, 32, body=ADD, problem=SET_TOO_OFTEN)

    assert answer.detail.endswith("; a launch adds to `out`: is it set before?")


HALF = "    tl.store(out + at, value * 2, mask=(at < n) & (at < 2 * BLOCK))"


def test_a_config_that_leaves_a_part_unwritten_does_not_pass_on_anothers_output(ask: Ask) -> None:
    answer = ask(judged, 16, body=HALF)

    assert answer == Rejected(
        candidate=candidate(16),
        reason=Reason.WRONG,
        detail="largest error inf in output 0 at [32], 0.016 allowed",
    )


def test_where_there_is_no_reference_the_default_is_it(ask: Ask) -> None:
    problem = "    return tritune.Problem(lambda: op(x, torch.empty_like(x)))"

    assert isinstance(ask(judged, 32, problem=problem), Verified)


def without_default(bench: Bench) -> Verified | Rejected:
    benches.open_problem(bench, candidate())
    study.study(bench, candidate(32))
    assert benches.judge(bench, candidate(), None) is None
    assert bench.default_error is None
    return benches.check(bench, candidate(32))


def test_where_the_default_cannot_run_the_type_judges(ask: Ask) -> None:
    assert isinstance(ask(without_default), Verified)


def prepared_twice(bench: Bench) -> list[list[float]]:
    """The output after each of three runs, restored before each as sampling does."""
    benches.open_problem(bench, candidate())
    study.study(bench, candidate())
    one = sampling._prepare(bench, candidate(32).config)
    found = []
    for _ in range(3):
        for tensor, content in one.restore:
            tensor.copy_(content)
        one.run()
        found.append([tensor.clone().sum().item() for tensor, _ in one.restore])
    return found


def test_a_sample_of_an_accumulating_kernel_always_finds_what_the_op_set(ask: Ask) -> None:
    first, second, third = ask(prepared_twice, body=ADD, problem=SUM)

    assert len(first) == 1
    assert first == second == third


def content_after(bench: Bench) -> list[float]:
    benches.open_problem(bench, candidate())
    study.study(bench, candidate())
    benches.judge(bench, candidate(), candidate())
    benches.check(bench, candidate(32))
    sampling._prepare(bench, candidate(32).config)
    [(tensor, _)] = bench.pristine
    benches.close_problem(bench)
    return [float(value) for value in tensor.unique()]


def test_the_callers_tensors_are_as_they_were(ask: Ask) -> None:
    assert ask(content_after, body=ADD, problem=IN_PLACE) == [1.0]


COUNT = """\
    if BLOCK == 32:
        value += tl.atomic_add(out[1] + at, 1.0, mask=at < n)
    tl.store(out[0] + at, value * 2, mask=at < n)"""
"""What only a config of 32 changes, and is wrong where it was changed before."""
COUNTED = """\
    mine = torch.zeros(n)
    def run(counter):
        y = torch.empty_like(x)
        kernel[(3,)](x, (y, counter), n)
        return y
    return tritune.Problem(lambda: run({counter}), reference=lambda: x * 2)"""


def counted(bench: Bench) -> tuple[set[type], list[bool], list[float], list[float]]:
    benches.open_problem(bench, candidate())
    study.study(bench, candidate())
    assert benches.judge(bench, candidate(), candidate()) is None
    checked = {type(benches.check(bench, candidate(block))) for block in (32, 16, 32)}
    default, other = (sampling._prepare(bench, candidate(block).config) for block in (16, 32))
    counts = []
    for _ in range(2):
        for tensor, content in other.restore:
            tensor.copy_(content)
        other.run()
        counts += [float(tensor.max()) for tensor, _ in other.restore if tensor.max() == 1]
    own = [tensor for tensor, _ in bench.pristine]
    benches.close_problem(bench)
    restored = [bool(one.restore) for one in (default, other)]
    return checked, restored, counts, [float(tensor.sum()) for tensor in own]


@pytest.mark.parametrize(
    ("counter", "own"),
    [
        pytest.param("mine", [0.0], id="a tensor of the problem"),
        pytest.param("torch.zeros(n)", [], id="a new one"),
    ],
)
def test_what_one_config_writes_and_the_default_does_not_is_put_back(
    ask: Ask, counter: str, own: list[float]
) -> None:
    found = ask(counted, body=COUNT, problem=COUNTED.format(counter=counter))

    assert found == ({Verified}, [False, True], [1.0, 1.0], own)


LEAF = """\
    y = torch.nn.Parameter(torch.ones(n))
    return tritune.Problem(lambda: op(x, y), reference=lambda: 1 + x.double())"""
INFERENCE = """\
    @torch.inference_mode()
    def run():
        return op(x, torch.ones(n))
    return tritune.Problem(run, reference=lambda: 1 + x.double())"""
BACKWARD = """\
    class Op(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(b)
            return a * 1
        @staticmethod
        def backward(ctx, dy):
            return op(dy, *ctx.saved_tensors).clone(), None
    a, y = torch.ones(n, requires_grad=True), torch.ones(n)
    b = Op.apply(a, y)
    def run():
        return torch.autograd.grad(b, a, x, retain_graph=True)[0]
    return tritune.Problem(run, reference=lambda: 1 + x.double())"""


def sampled(bench: Bench) -> list[str]:
    """How checks and samples of two configs end, in turn."""
    ends = [type(judged(bench, 16)).__name__]
    with mock.patch("torch.cuda.Event"), mock.patch("torch.cuda._sleep"):
        for block in (16, 32, 16):
            sampling._time(bench, sampling._prepare(bench, candidate(block).config))
            ends.append(type(benches.check(bench, candidate(block))).__name__)
    return ends


@pytest.mark.parametrize("problem", [LEAF, INFERENCE, BACKWARD])
def test_what_autograd_forbids_or_notes_to_be_changed_is_put_back_all_the_same(
    ask: Ask, problem: str
) -> None:
    assert ask(sampled, body=ADD, problem=problem) == ["Verified"] * 4


TWICE = """\
    y = torch.zeros(n)
    return tritune.Problem(lambda: (op(x, y), op(x, y))[1], reference=lambda: 2 * x.double())"""


def test_what_two_launches_change_gets_what_it_held_before_the_first(ask: Ask) -> None:
    assert ask(studied, body=ADD, problem=TWICE)["said"] == ""
    assert isinstance(ask(judged, 32, body=ADD, problem=TWICE), Verified)


POINTED = """\
    to = tl.load(out).to(tl.pointer_type(tl.float32))
    tl.store(to + at, value * 2, mask=(at < n) & (BLOCK == 16))"""
TABLE = """\
    y = torch.{made}(n)
    table = torch.tensor([y.data_ptr()])
    return tritune.Problem(lambda: (op(x, table), y)[1], reference=lambda: x * 2)"""
NEW_TABLE = """\
    def run():
        y = torch.zeros(1 << 22)
        op(x, torch.tensor([y.data_ptr()]))
        return y[:n].clone()
    return tritune.Problem(run, reference=lambda: x * 2)"""


@pytest.mark.parametrize("made", ["empty", "zeros"])
def test_a_config_that_writes_nothing_does_not_pass_on_what_a_table_of_pointers_hides(
    ask: Ask, made: str
) -> None:
    problem = TABLE.format(made=made)

    assert isinstance(ask(judged, 16, body=POINTED, problem=problem), Verified)
    assert ask(judged, 32, body=POINTED, problem=problem).reason is Reason.WRONG


HIDDEN_SUM = POINTED.replace("tl.store", "tl.atomic_add")


def test_what_a_table_of_pointers_hides_and_is_added_to_is_left_alone(ask: Ask) -> None:
    found = ask(studied, body=HIDDEN_SUM, problem=TABLE.format(made="zeros"))

    assert found["own"] == 0


def pointed(bench: Bench) -> bool:
    """Launch again what the op has launched, on a tensor that nothing else holds any more."""
    benches.open_problem(bench, candidate())
    study.study(bench, candidate())
    one = sampling._prepare(bench, candidate().config)
    one.run()
    return one.kept != []


def test_what_only_a_table_of_pointers_leads_to_lives_as_long_as_a_launch_writes_to_it(
    ask: Ask,
) -> None:
    assert ask(pointed, body=POINTED, problem=NEW_TABLE)


def lacking(bench: Bench) -> Rejected | None:
    import torch

    def too_big(_: object) -> None:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
            "139.80 GiB of which 3.50 GiB is free. Of the allocated memory …"
        )

    bench.loaded.problem.__globals__["torch"] = type("torch", (), {"randn": too_big})
    return benches.open_problem(bench, candidate())


def test_a_problem_that_does_not_fit_says_what_it_needs_and_what_is_free(ask: Ask) -> None:
    assert ask(lacking) == Rejected(
        candidate=candidate(),
        reason=Reason.MEMORY,
        detail="needs 20.00 GiB more, 3.50 GiB free",
    )


def test_each_round_has_an_order_of_its_own() -> None:
    orders = [tuple(sampling.turn([0, 1, 2], number)) for number in range(7)]

    assert orders == [
        (0, 1, 2),
        (0, 2, 1),
        (2, 0, 1),
        (2, 1, 0),
        (1, 2, 0),
        (1, 0, 2),
        (0, 1, 2),
    ]


def crowded(bench: Bench) -> tuple[Any, Any]:
    """Two windows on a GPU that holds one prepared candidate, then on one that holds none."""
    import torch

    def prepare(bench: Bench, config: Config, room: int) -> Prepared:
        if len(bench.prepared) >= room:
            raise torch.OutOfMemoryError("no room")
        return Prepared(run=lambda: None, ahead_us=1.0)

    def sampled(room: int) -> Any:
        with (
            mock.patch.object(sampling, "_kernel_only", partial(prepare, room=room)),
            mock.patch.object(sampling, "_time", return_value=(Event(), Event())),
        ):
            sampling.sample(bench, [candidate(16)], 1, 0)
            return sampling.sample(bench, [candidate(32)], 1, 0)

    assert benches.open_problem(bench, candidate()) is None
    return sampled(1), sampled(0)


class Event:
    """A moment on the GPU."""

    def elapsed_time(self, _: Event) -> float:
        return 0.002


def test_where_memory_is_short_the_candidates_of_earlier_windows_make_room(ask: Ask) -> None:
    out = Rejected(candidate=candidate(32), reason=Reason.MEMORY, detail="no room")

    assert ask(crowded) == (((2.0,),), (out,))

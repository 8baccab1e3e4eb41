"""The measuring process may die: who is to blame, what it costs, and who is measured all the same.

A fake stands for the worker, so no GPU is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes import H200_IDENTITY, KERNEL, PROBLEM, TRITON, compiled, config
from tritune.device import answers
from tritune.device.cuda import CALL_LIMIT_S, CudaDevice
from tritune.errors import EnvironmentFaultError, KernelError
from tritune.model import Candidate, Compiled, Config, Problem, Reason, Rejected, Timing, Verified
from tritune.workers import Answer, Died, Done, Raised, TimedOut

A, B, C = config(BLOCK=64), config(BLOCK=128), config(BLOCK=256)
THREE = [compiled(BLOCK=block) for block in (64, 128, 256)]
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"


class FakeWorker:
    """Answers by the name of the function; *how* says what configs do to it."""

    def __init__(self, **how: Callable[..., Answer[Any]]) -> None:
        self._how = how
        self.calls: list[tuple[str, tuple[object, ...], float | None]] = []
        self.started = 0
        self.turned: list[tuple[object, ...]] = []
        self._is_alive = False

    def call(
        self, function: Callable[..., Any], *args: object, timeout_s: float | None = None
    ) -> Answer[Any]:
        if not self._is_alive:
            self._is_alive, self.started = True, self.started + 1
        name = function.__name__
        self.calls.append((name, args, timeout_s))
        return self._how.get(name, getattr(self, f"_{name}", nothing))(*args)

    def turn(self, _: Callable[..., Any], *arguments: object) -> None:
        self.turned.append(arguments)

    def close(self) -> None:
        self._is_alive = False

    def _study(self, candidate: Candidate) -> Answer[str]:
        return Done("")

    def _check(self, candidate: Candidate) -> Answer[Verified]:
        return Done(Verified(candidate=candidate, error=0.0, bits="00000000"))

    def _sample(self, candidates: Sequence[Candidate], rounds: int, first: int) -> Answer[Any]:
        return Done(tuple((float(first),) * rounds for _ in candidates))

    def _compiles(self) -> Answer[int]:
        return Done(1)

    def _leave(self) -> Answer[int]:
        return Done(1)

    def named(self, name: str) -> list[tuple[object, ...]]:
        return [args for called, args, _ in self.calls if called == name]


def nothing(*_: object) -> Answer[None]:
    return Done(None)


def device(worker: FakeWorker, default: Config = A, kernel: str = KERNEL) -> CudaDevice:
    return CudaDevice(
        index=0,
        kernel=kernel,
        problem=None,
        default=default,
        identity=H200_IDENTITY,
        triton=TRITON,
        timing=Timing(),
        cache=Path("cache"),
        worker=worker,  # type: ignore[arg-type]
    )


def rejection(this: Compiled, reason: Reason, detail: str) -> Rejected:
    return Rejected(candidate=this.candidate, reason=reason, detail=detail)


def when(config_: Config, answer: Callable[[Candidate], Answer[Any]]) -> Callable[..., Answer[Any]]:
    """What a check answers for one config; the others are right."""

    def check(candidate: Candidate, *_: object) -> Answer[Any]:
        if candidate.config == config_:
            return answer(candidate)
        return Done(Verified(candidate=candidate, error=0.0, bits="00000000"))

    return check


def in_window(
    config_: Config, answer: Callable[[Sequence[Candidate]], Answer[Any]]
) -> Callable[..., Answer[Any]]:
    """What a window with one config in it answers."""

    def sample(candidates: Sequence[Candidate], rounds: int, first: int) -> Answer[Any]:
        if any(one.config == config_ for one in candidates):
            return answer(candidates)
        return Done(tuple((1.0,) * rounds for _ in candidates))

    return sample


def test_a_problem_is_opened_studied_and_judged_once() -> None:
    worker = FakeWorker()
    gpu = device(worker)

    for one in THREE:
        gpu.verify(one)
    gpu.sample(THREE, 2)

    assert [name for name, _, _ in worker.calls] == [
        "warm_up",
        "open_problem",
        "study",
        "judge",
        *["check"] * 3,
        "sample",
    ]


def test_an_illegal_access_costs_its_config_and_one_restart() -> None:
    worker = FakeWorker(
        check=when(
            B,
            lambda this: Done(
                Rejected(candidate=this, reason=Reason.LAUNCH, detail="illegal memory access")
            ),
        )
    )
    gpu = device(worker)

    answers = [gpu.verify(one) for one in THREE]

    assert isinstance(answers[0], Verified)
    assert answers[1] == rejection(THREE[1], Reason.LAUNCH, "illegal memory access")
    assert isinstance(answers[2], Verified)
    assert (gpu.restarts, worker.started) == (1, 2)
    assert len(worker.named("open_problem")) == 2


def test_a_kernel_that_spins_is_cut_off_and_the_next_is_measured() -> None:
    worker = FakeWorker(check=when(B, lambda _: TimedOut(CALL_LIMIT_S)))
    gpu = device(worker)

    answers = [gpu.verify(one) for one in THREE]

    assert answers[1] == rejection(THREE[1], Reason.HANG, "cut off after 20 s")
    assert isinstance(answers[2], Verified)
    assert {limit for name, _, limit in worker.calls if name == "check"} == {20.0}


def test_a_process_that_dies_is_said_to_have_died() -> None:
    worker = FakeWorker(check=when(B, lambda _: Died(signal=11, exit_code=None)))

    answer = device(worker).verify(THREE[1])

    assert answer == rejection(THREE[1], Reason.LAUNCH, "its process killed by signal 11 (SIGSEGV)")


def raised(_: object) -> Answer[Any]:
    return Raised("AcceleratorError", ILLEGAL, "")


def test_in_a_window_that_is_poisoned_only_the_guilty_is_rejected() -> None:
    worker = FakeWorker(sample=in_window(B, raised))
    gpu = device(worker)

    answers = gpu.sample(THREE, 3)

    assert answers == (
        (1.0, 1.0, 1.0),
        rejection(THREE[1], Reason.LAUNCH, "illegal memory access"),
        (1.0, 1.0, 1.0),
    )
    assert gpu.restarts == 2


def poisoned(candidates: Sequence[Candidate]) -> Answer[Any]:
    """The guilty poisons the process, so that whoever is prepared after it fails alike."""
    guilty = next(i for i, one in enumerate(candidates) if one.config == B)
    return Done(
        tuple(
            (1.0,)
            if i < guilty
            else Rejected(candidate=one, reason=Reason.LAUNCH, detail="illegal memory access")
            for i, one in enumerate(candidates)
        )
    )


def test_who_fails_only_because_another_poisoned_the_process_is_innocent() -> None:
    gpu = device(FakeWorker(sample=in_window(B, poisoned)))

    answers = gpu.sample(THREE, 1)

    assert [isinstance(answer, Rejected) for answer in answers] == [False, True, False]


def test_a_window_that_hangs_is_taken_apart() -> None:
    gpu = device(FakeWorker(sample=in_window(C, lambda _: TimedOut(21.0))))

    answers = gpu.sample(THREE, 1)

    assert answers[2] == rejection(THREE[2], Reason.HANG, "cut off after 21 s")
    assert answers[:2] == ((1.0,), (1.0,))


def test_one_binary_under_two_names_is_no_crowd() -> None:
    gpu = device(FakeWorker(sample=in_window(B, raised)))

    answers = gpu.sample([THREE[1]] * 2, 1)

    assert answers == (rejection(THREE[1], Reason.LAUNCH, "illegal memory access"),) * 2
    assert gpu.restarts == 1


def test_the_limit_of_a_window_knows_what_its_kernels_take() -> None:
    worker = FakeWorker()
    gpu = device(worker)
    gpu.verify(THREE[0])
    gpu._took_s = {THREE[0].candidate: 2.0}

    gpu.sample(THREE[:1], 5)

    assert worker.calls[-1][2] == CALL_LIMIT_S + 3 * 5 * 2.0


def lacks(candidate: Candidate, *_: object) -> Answer[Any]:
    big = candidate.problem == BIG
    missing = Rejected(
        candidate=candidate, reason=Reason.MEMORY, detail="needs 20.00 GiB more, 3.50 GiB free"
    )
    return Done(missing if big else None)


BIG = Problem.of({"n": 10**11})


def test_a_shape_that_does_not_fit_is_tried_once_and_the_others_go_on() -> None:
    worker = FakeWorker(open_problem=lacks)
    gpu = device(worker)
    large = [compiled(problem=BIG, BLOCK=block) for block in (64, 128)]

    answers = [gpu.verify(one) for one in (*large, THREE[0])]

    detail = "needs 20.00 GiB more, 3.50 GiB free"
    assert answers[:2] == [rejection(one, Reason.MEMORY, detail) for one in large]
    assert isinstance(answers[2], Verified)
    assert [args[0] for args in worker.named("open_problem")] == [
        large[0].candidate,
        THREE[0].candidate,
    ]


def hangs_by_default(candidate: Candidate) -> Answer[Any]:
    return TimedOut(20.0) if candidate.config == A else Done("")


def test_a_default_that_hangs_is_rejected_and_the_others_are_judged_without_it() -> None:
    worker = FakeWorker(study=hangs_by_default, has_reference=lambda _: Done(value=True))
    gpu = device(worker)

    answers = [gpu.verify(one) for one in THREE]

    assert answers[0] == rejection(THREE[0], Reason.HANG, "cut off after 20 s")
    assert all(isinstance(answer, Verified) for answer in answers[1:])
    assert worker.named("judge") == [(THREE[0].candidate, None)]
    assert gpu.restarts == 1


def test_with_neither_reference_nor_default_nothing_can_be_right() -> None:
    worker = FakeWorker(study=hangs_by_default, has_reference=lambda _: Done(value=False))
    gpu = device(worker)

    answer = [gpu.verify(one) for one in THREE][2]

    assert answer == rejection(
        THREE[2],
        Reason.HANG,
        "the default, which would be its reference, is out: cut off after 20 s",
    )


def test_what_the_study_says_is_noted_once_for_each_problem() -> None:
    gpu = device(FakeWorker(study=lambda _: Done("it wobbles")))

    for _ in range(2):
        gpu.verify(THREE[0])
        gpu.renew()

    assert gpu.notes == [f"{PROBLEM}: it wobbles"]


def test_a_fresh_process_knows_nothing_of_the_last() -> None:
    worker = FakeWorker()
    gpu = device(worker)
    gpu.sample(THREE, 1)

    gpu.renew()
    gpu.sample(THREE, 1)

    assert worker.started == 2
    assert gpu.restarts == 0
    assert len(worker.named("open_problem")) == len(worker.named("warm_up")) == 2
    assert worker.named("judge") == []


def test_what_is_compiled_while_measuring_is_counted_over_all_processes() -> None:
    gpu = device(FakeWorker())
    before = gpu.compiles()
    gpu.sample(THREE, 1)
    gpu.renew()
    gpu.sample(THREE, 1)

    assert (before, gpu.compiles()) == (0, 2)


def test_a_kernel_after_another_is_measured_in_the_same_process() -> None:
    worker = FakeWorker()
    one, other = device(worker), device(worker, kernel="ops:other")

    one.sample(THREE, 1)
    one.leave()
    other.sample(THREE, 1)

    assert worker.started == 1
    assert [kernel for kernel, *_ in worker.turned] == [KERNEL, "ops:other"]
    assert [name for name, _, _ in worker.calls] == [
        *("warm_up", "open_problem", "study", "sample", "leave"),
        *("warm_up", "open_problem", "study", "sample"),
    ]


def test_all_kernels_of_an_op_are_confirmed_in_one_process_that_none_was_raced_in() -> None:
    worker = FakeWorker()
    devices = [device(worker, kernel=name) for name in ("ops:a", "ops:b", "ops:c")]
    for one in devices:
        one.sample(THREE, 1)
        one.leave()

    for one in devices:
        one.renew()
        one.sample(THREE, 1)
        one.leave()

    assert worker.started == 2
    assert [one.compiles() for one in devices] == [2, 2, 2]


@pytest.mark.parametrize(
    "wrong",
    [Died(signal=9, exit_code=None), TimedOut(20.0), Raised("AcceleratorError", ILLEGAL, "")],
)
def test_a_process_that_fails_in_leaving_is_ended_and_not_the_sweep(wrong: Answer[Any]) -> None:
    worker = FakeWorker(leave=lambda *_: wrong)
    one, other = device(worker), device(worker, kernel="ops:other")

    one.sample(THREE, 1)
    one.leave()
    other.sample(THREE, 1)

    assert worker.started == 2
    assert (one.compiles(), other.compiles()) == (0, 1)


def test_a_kernel_that_poisons_the_process_costs_those_before_it_nothing() -> None:
    sticky = rejection(THREE[1], Reason.LAUNCH, "illegal memory access")
    worker = FakeWorker(check=when(B, lambda _: Done(sticky)))
    one, other = device(worker), device(worker, kernel="ops:other")
    one.sample(THREE, 1)
    one.leave()
    assert other.verify(THREE[1]) == sticky
    other.sample(THREE, 1)
    other.leave()
    before = worker.started

    for each in (one, other):
        each.renew()
        each.sample(THREE, 1)
        each.leave()

    # The second process is new to the one, and the third to the other, which was in both before.
    assert (before, worker.started) == (2, 3)
    assert (one.restarts, other.restarts) == (0, 1)
    assert (one.compiles(), other.compiles()) == (2, 2)


def test_a_kernel_that_is_doubted_is_timed_in_a_third_process() -> None:
    worker = FakeWorker()
    one, other = device(worker), device(worker, kernel="ops:other")
    for each in (one, other):
        each.sample(THREE, 1)
        each.leave()

    one.renew()
    one.sample(THREE, 1)
    one.renew()
    one.sample(THREE, 1)
    one.leave()
    other.renew()
    other.sample(THREE, 1)

    assert worker.started == 3


def test_a_mistake_of_the_user_ends_the_sweep_and_is_no_rejection() -> None:
    mistake = KernelError("the problem's op returned int")
    worker = FakeWorker(check=when(A, lambda _: Raised("KernelError", "", "", error=mistake)))

    with pytest.raises(KernelError) as caught:
        device(worker).verify(THREE[0])

    assert caught.value is mistake


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: device-side assert triggered",
        "Triton Error [CUDA]: invalid program counter",
        "CUDA error: invalid address space",
        "CUDA error: operation not supported on global/shared address space",
        "CUDA error: hardware stack error\nCUDA kernel errors might be",
    ],
)
def test_an_error_that_every_later_call_would_repeat_starts_a_new_process(said: str) -> None:
    found = answers.rejected(Raised("RuntimeError", said, ""), THREE[0].candidate)

    assert (found.reason, answers.is_poisoned(found)) == (Reason.LAUNCH, True)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TimedOut(20.0), "the GPU does not answer within 20 s"),
        (
            Died(signal=9, exit_code=None),
            "the GPU does not answer: its process killed by signal 9 (SIGKILL)",
        ),
        (
            Raised("RuntimeError", "no device", ""),
            "the GPU does not answer: RuntimeError: no device",
        ),
    ],
)
def test_a_gpu_that_does_not_answer_is_told_with_where_to_look(
    answer: Answer[Any], said: str
) -> None:
    with pytest.raises(EnvironmentFaultError) as caught:
        answers.value(answer, "the GPU does not answer")

    hint = "does `nvidia-smi` work, and does torch see the GPU?"
    assert str(caught.value) == f"{said}\nhint: {hint}"

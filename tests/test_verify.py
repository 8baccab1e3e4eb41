"""What is born uninitialised is poisoned, whoever makes it, so that an unwritten part shows."""

from __future__ import annotations

import threading

import pytest
import torch

from tritune import verify
from tritune.errors import KernelError


def test_what_autograd_makes_in_a_thread_of_its_own_is_poisoned_too() -> None:
    made: dict[str, torch.Tensor] = {}

    def work() -> None:
        like = torch.ones(4)
        made["empty"] = torch.empty(4)
        made["like"] = torch.empty_like(like)
        made["strided"] = torch.empty_strided((2, 2), (2, 1))
        made["new"] = like.new_empty(4)
        made["integers"] = torch.empty(4, dtype=torch.int32)
        made["zeros"] = torch.zeros(4)

    with verify.poisoned():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    floats = ("empty", "like", "strided", "new")
    assert [bool(made[name].isnan().all()) for name in floats] == [True] * 4
    assert made["integers"].tolist() == [0x7F] * 4
    assert made["zeros"].tolist() == [0.0] * 4
    assert torch.empty.__module__ != verify.__name__, "torch is as it was"


def test_what_the_same_thread_makes_is_poisoned_whatever_it_calls() -> None:
    with verify.poisoned():
        made = [torch.empty(3), torch.ones(3).new_empty(3), torch.empty_like(torch.ones(3))]

    assert [bool(one.isnan().all()) for one in made] == [True] * 3
    assert hasattr(torch.ones(1), "new_empty")


def test_complex_numbers_are_compared_as_two_numbers_each() -> None:
    reference = torch.tensor([1.0 + 1.0j, 2.0], dtype=torch.complex128)
    right, wrong = ((reference * (1 + by)).to(torch.complex64) for by in (1e-6, 0.5))

    found = verify.difference([right], [reference])
    [conjugate] = verify.tensors(right.conj())

    assert found.error < 1e-5 < found.tolerance == verify.TOLERANCE["float32"]
    assert verify.difference([wrong], [reference]).place == "output 0 at [1, 0]"
    assert verify.difference([conjugate], [reference]).place == "output 0 at [0, 1]"
    assert verify.digest([conjugate]) != verify.digest([right])


def test_one_tensor_is_not_called_tensors() -> None:
    one = torch.ones(3)

    with pytest.raises(KernelError) as caught:
        verify.difference([one], [one, one])

    assert str(caught.value) == (
        "the op returns 1 tensor and its reference 2\n"
        "hint: let both return the same tensors, in the same order"
    )

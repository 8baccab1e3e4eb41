"""Outputs are shared between configs where that cannot change what is timed."""

from types import SimpleNamespace

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tritune.device import sampling


def shared(arg, output, *, repeatable=True):
    """What the first argument of a launch is, once outputs are shared."""
    launch = SimpleNamespace(args=(arg, 7))
    bench = SimpleNamespace(outputs={0: output})
    sampling._share_outputs(bench, launch, repeatable=repeatable)
    assert launch.args[1] == 7
    return launch.args[0]


def test_an_output_that_is_alike_is_the_default_s():
    output = torch.zeros(4, 8)

    assert shared(torch.ones(4, 8), output) is output


@pytest.mark.parametrize(
    "own", [torch.ones(8, 4).T, torch.ones(4, 8).half(), torch.ones(4, 9), None, 3]
)
def test_one_that_is_not_stays_its_own(own):
    assert shared(own, torch.zeros(4, 8)) is own


def test_a_descriptor_stays_its_own_though_it_has_the_shape():
    base = torch.ones(4, 8)
    own = TensorDescriptor(base, base.shape, base.stride(), [4, 8])

    assert shared(own, torch.zeros(4, 8)) is own


def test_nothing_is_shared_where_a_launch_adds_to_its_output():
    own = torch.ones(4, 8)

    assert shared(own, torch.zeros(4, 8), repeatable=False) is own

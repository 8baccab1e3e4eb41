"""A value that no target of the file can use is a mistake of the file, and no rejected config."""

from __future__ import annotations

from pathlib import Path

import pytest

from tritune import spec
from tritune.errors import TrituneError
from tritune.pipeline.values import refuse_illegal

SWEEP = """\
kernel: ops:k
targets: [{targets}]
space: {{{space}}}
{more}
shapes: [{{n: 1}}]
"""


def read(targets: str, space: str, more: str = "") -> None:
    text = SWEEP.format(targets=targets, space=space, more=more)
    refuse_illegal(spec.parse_sweep(text, path="s.yaml"))


@pytest.mark.parametrize(
    ("targets", "space", "more", "said"),
    [
        (
            "H200, A100",
            "num_stages: [2, 0]",
            "",
            "s.yaml:3:25: space.num_stages[1]: num_stages=0, 1 is the least",
        ),
        (
            "MI300X",
            "num_warps: [4, 32]",
            "",
            "s.yaml:3:24: space.num_warps[1]: 32 warps are 2048 threads, 1024 available",
        ),
        (
            "A100",
            "num_ctas: 2",
            "",
            "s.yaml:3:9: space.num_ctas: num_ctas=2, but A100 (cuda:80) has no clusters",
        ),
        (
            "H200, MI300X",
            "BLOCK: [64]",
            "cuda: {space: {waves_per_eu: [2]}}",
            (
                "s.yaml:4:31: cuda.space.waves_per_eu[0]: waves_per_eu is an AMD option, H200 is "
                "NVIDIA's"
            ),
        ),
    ],
)
def test_what_no_target_can_use_is_refused_at_its_place(targets, space, more, said):
    with pytest.raises(TrituneError) as caught:
        read(targets, space, more)

    assert str(caught.value) == (
        f"{said}\nhint: remove it, or put it into the section of a target that can use it"
    )


@pytest.mark.parametrize(
    ("targets", "space", "more"),
    [
        ("H200, MI300X", "num_stages: [0, 2], waves_per_eu: [0, 2]", ""),
        ("H200, A100", "num_ctas: [1, 2]", ""),
        ("H200", "num_warps: [4]", "hip: {space: {num_stages: [0]}}"),
        ("H200, MI300X", "num_stages: [2]", "hip: {space: {num_stages: [0, 1]}}"),
    ],
)
def test_what_one_target_can_use_is_for_the_plan_to_reject_elsewhere(targets, space, more):
    read(targets, space, more)


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.parent.glob("sweeps/*.yaml")))
def test_our_own_files_have_no_such_value(path):
    refuse_illegal(spec.read_sweep(path))

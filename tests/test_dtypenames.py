"""A slip in the name of a dtype: which ones are told, and which texts are somebody's own."""

from __future__ import annotations

import pytest
import torch

from tritune import dtypenames
from tritune.errors import ManyMistakesError, SpecError
from tritune.spec import parse_sweep

SWEEP = """\
kernel: ops:k
targets: [H200]
space: {{BLOCK: [64]}}
shapes:
  - {{{row}}}
"""


def test_every_dtype_that_torch_has_is_known_here():
    there = {name for name in dir(torch) if isinstance(getattr(torch, name), torch.dtype)}

    assert {name for name in there if not dtypenames.is_torch(name)} == set()
    assert there >= {name for name in dtypenames.PLAIN if "float4" not in name}


def told(row: str) -> str:
    with pytest.raises((SpecError, ManyMistakesError)) as caught:
        parse_sweep(SWEEP.format(row=row), path="s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("fp61", "float16"),
        ("bf17", "bfloat16"),
        ("bf61", "bfloat16"),
        ("flaot16", "float16"),
        ("float61", "float16"),
        ("bflaot16", "bfloat16"),
        ("float8_e4m3fm", "float8_e4m3fn"),
        ("flota32", "float32"),
    ],
)
def test_a_typo_in_a_dtype_is_a_mistake_of_the_file_with_what_was_meant(text, meant):
    assert told(f"n: 1, dtype: {text}") == (
        f"s.yaml:5:19: shapes[0].dtype: `{text}` is no dtype of torch's\n"
        f"hint: did you mean `{meant}`?"
    )


def test_on_an_axis_with_a_dtype_of_torchs_another_spelling_is_a_mistake_too():
    assert told("kind: [float16, fp32], n: 1") == (
        "s.yaml:5:22: shapes[0].kind[1]: `fp32` is no dtype of torch's\n"
        "hint: did you mean `float32`?"
    )


@pytest.mark.parametrize(
    "row",
    [
        "n: 1, dtype: [float16, half, bool, uint4, mxfp4]",
        "n: 1, dtype: fp16",  # its problem function may have a table of its own
        "n: 1, in_dtype: [fp8_w8a8, w4a16, int4, tf32x3, auto]",
        "n: 1, dtype: [fp17, bf8]",  # near to two, or to none
        "n: 1, mode: [fp61, bf17, shrot]",
        "n: 1, dtype: [float16, mixed]",
    ],
)
def test_what_may_be_meant_as_it_stands_is_left_alone(row):
    assert parse_sweep(SWEEP.format(row=row), path="s.yaml").problems

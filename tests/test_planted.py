"""The kernels that are planted on a GPU can be written: a GPU is no place to find that out."""

import ast

import pytest
import yaml

import planted


@pytest.mark.parametrize("extra", [3, 20])
def test_what_does_more_work_is_python_with_that_in_it(extra):
    ast.parse(planted.EXTRA % extra)

    assert f'"EXTRA": {extra},' in planted.EXTRA % extra
    assert yaml.safe_load(planted.EXTRA_SWEEP % extra)["space"]["EXTRA"] == [0, extra]


@pytest.mark.parametrize("name", ["MISTAKES", "NEAR"])
def test_the_other_planted_modules_are_python(name):
    ast.parse(getattr(planted, name))

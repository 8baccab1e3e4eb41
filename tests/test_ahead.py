"""Whether a sweep's modules import packages is read from their text, and nothing is imported."""

import pytest

from tritune.ahead import imports_packages


@pytest.fixture
def sweep(tmp_path):
    """A sweep file of a module with this text."""

    def write(text, reference="ops.py:op"):
        (tmp_path / "ops.py").write_text(text)
        (tmp_path / "beside.py").touch()
        (tmp_path / "s.yaml").write_text(f"targets: [H200]\nproblem: {reference}\n")
        return [tmp_path / "s.yaml"]

    return write


@pytest.mark.parametrize(
    "text",
    [
        "import torch, triton\nimport triton.language as tl\nfrom os import path\n",
        "import tritune\nfrom beside import x\nfrom . import y\n",
        "def wrong(:\n",
    ],
)
def test_torch_triton_and_what_lies_beside_are_no_packages(sweep, text):
    assert not imports_packages(sweep(text))


@pytest.mark.parametrize(
    "text", ["import liger_kernel.ops\n", "def late():\n    from fla.ops import gla\n"]
)
def test_an_import_of_anything_else_is_one_wherever_it_stands(sweep, text):
    assert imports_packages(sweep(text))


def test_a_module_by_its_name_is_one(sweep):
    assert imports_packages(sweep("", reference="fla.modules.l2norm:l2norm_fwd_kernel"))


def test_a_file_that_is_not_there_imports_nothing(tmp_path):
    (tmp_path / "s.yaml").write_text("kernel: gone.py:kernel\n")

    assert not imports_packages([tmp_path / "s.yaml", tmp_path / "gone.yaml"])

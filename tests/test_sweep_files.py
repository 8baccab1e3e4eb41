"""The sweep files of this repository, what they recorded, and the lockfile that came of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tritune import lock
from tritune.device import targets
from tritune.journal import Journal
from tritune.model import Measured, Sweep
from tritune.spec import read_sweep

ROOT = Path(__file__).resolve().parent.parent
SWEEPS = sorted((ROOT / "sweeps").glob("*.yaml"))
RECORDED = sorted((ROOT / "sweeps" / "recorded").glob("*.jsonl.gz"))
LOCKFILE = ROOT / "kernels" / "tritune.lock"
LARGEST_RECORD = 1 << 20
"""Bytes; a record is cloned by everyone."""


def named(path: Path) -> tuple[Sweep, Path, str]:
    """A sweep, the file of its kernel, and the kernel's name in it."""
    sweep = read_sweep(path)
    file, _, name = str(sweep.kernel).rpartition(":")
    return sweep, Path(file), name


def functions(file: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def kernels() -> dict[str, str]:
    """Every tunable kernel of the repository, as the lockfile names it -> its sweep's stem."""
    return {f"kernels.{file.stem}:{name}": p.stem for p in SWEEPS for _, file, name in [named(p)]}


def test_every_tunable_kernel_has_a_sweep_file():
    tunable = {
        f"kernels.{path.stem}:{name}"
        for path in (ROOT / "kernels").glob("*.py")
        for name, node in functions(path).items()
        if any("tritune.kernel" in ast.unparse(each) for each in node.decorator_list)
    }

    assert tunable == set(kernels())


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_sweep_file_names_every_axis_of_its_problem_and_has_small_problems_too(path):
    sweep, file, name = named(path)
    found = functions(file)
    [problem] = [
        node
        for node in found.values()
        if any(ast.unparse(each) == f"tritune.problem({name})" for each in node.decorator_list)
    ]
    axes = [argument.arg for argument in problem.args.args]

    assert {axis for one in (*sweep.problems, *sweep.smoke) for axis in one.as_dict()} == {*axes}
    assert len(sweep.problems) == len(set(sweep.problems))
    assert sweep.smoke
    assert "H200" in sweep.targets


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_space_names_only_parameters_of_its_kernel(path):
    sweep, file, name = named(path)
    arguments = {argument.arg for argument in functions(file)[name].args.args}

    spaces = [sweep.space, *(section.space for section in sweep.sections)]
    axes = {axis.name for space in spaces for axis in space}

    assert {axis for axis in axes if axis.isupper()} <= arguments


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_record_is_small_and_of_problems_that_its_sweep_file_has(path):
    stem, label, *_ = path.name.split(".")
    sweep = read_sweep(ROOT / "sweeps" / f"{stem}.yaml")
    journal = Journal.open(path, read_only=True)

    [device] = journal.devices()
    problems = {one.candidate.problem for one in journal.outcomes() if isinstance(one, Measured)}

    assert path.stat().st_size <= LARGEST_RECORD
    assert targets.of_device(device).name == label.replace("_", " ")
    assert set(sweep.problems) <= problems


def test_every_problem_of_every_sweep_file_is_locked_for_one_device_at_least():
    if not LOCKFILE.is_file():
        pytest.skip("nothing is locked yet")
    locked = lock.read(LOCKFILE)
    devices = [device.name for device in locked.devices]

    counts = {
        (kernel, device): sum(
            (at.kernel, at.device) == (kernel, device) for at, _ in locked.entries
        )
        for kernel in kernels()
        for device in devices
    }

    wanted = {
        name: len(read_sweep(ROOT / f"sweeps/{s}.yaml").problems) for name, s in kernels().items()
    }
    assert {at.kernel for at, _ in locked.entries} <= set(kernels())
    for kernel, number in wanted.items():
        assert max(counts[kernel, device] for device in devices) >= number, kernel


def test_the_lockfile_holds_no_clock_no_path_and_no_more_than_its_evidence_needs():
    if not LOCKFILE.is_file():
        pytest.skip("nothing is locked yet")
    text = LOCKFILE.read_text(encoding="utf-8")

    assert re.findall(r"20\d\d-\d\d|/(?:home|root|tmp|work)/", text) == []
    assert text == lock.render(lock.parse(text, str(LOCKFILE)))

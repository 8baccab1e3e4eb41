"""What is said of a sweep file without sweeping."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fakes import H200_IDENTITY, KERNEL, PROBLEM, config
from tritune.cli import tritune
from tritune.errors import TrituneError
from tritune.journal import Journal
from tritune.model import Candidate, Reason, Rejected
from tritune.pipeline import questions
from tritune.pipeline.job import SweepOptions
from tritune.places import journal_path

SWEEP = """
kernel: ops.py:matmul_kernel
targets: [H200]
space: {BLOCK: [16, 32, 64, 128]}
shapes: [{M: 64, N: 4096, K: 4096, dtype: float16}]
"""
NOW = {"source": "s2", "protocol": "2 cold", "triton": "3.9.0"}


def out(block: int, kernel: str = KERNEL) -> Rejected:
    candidate = Candidate(kernel=kernel, problem=PROBLEM, config=config(BLOCK=block))
    return Rejected(candidate=candidate, reason=Reason.SHARED, detail="too much")


@pytest.mark.parametrize("was", [{"source": "s1"}, {"protocol": "2 hot"}, {"triton": "3.6.0"}])
def test_rejections_of_an_older_source_protocol_or_triton_are_not_shown(tmp_path: Path, was):
    path = tmp_path / "matmul.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    (tmp_path / "ops.py").touch()
    journal = Journal.open(journal_path(tmp_path, path, "H200"))
    for outcome, context in (
        (out(16), NOW | was),
        (out(16, "ops:other"), NOW | was),
        (out(32), NOW),
        (out(64), NOW),
    ):
        journal.record(outcome, device=H200_IDENTITY, **context)
    journal.close()

    shown = questions.rejected(path, SweepOptions(journal=tmp_path))

    assert shown.outcomes == (out(16, "ops:other"), out(32), out(64))


def test_a_value_of_an_axis_that_is_nowhere_is_told_with_those_there_are(tmp_path: Path):
    path = tmp_path / "matmul.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    (tmp_path / "ops.py").touch()
    Journal.open(journal_path(tmp_path, path, "H200")).close()
    asked = ["show", "rejected", str(path), "--journal", str(tmp_path)]

    wrong = CliRunner().invoke(tritune, [*asked, "Q=1"], prog_name="tritune")
    right = CliRunner().invoke(tritune, [*asked, "BLOCK=16"], prog_name="tritune")

    assert wrong.stderr == (
        "Usage: tritune show rejected [OPTIONS] FILE [NAME=VALUE]...\n"
        "Try 'tritune show rejected --help' for help.\n"
        "\n"
        "Error: Invalid value for 'NAME=VALUE': no `Q` here; there is BLOCK, K, M, N, dtype\n"
    )
    assert wrong.exit_code == 2
    assert (right.stdout, right.exit_code) == ("no config was rejected\n", 0)


def test_a_sweep_without_a_journal_says_which_sweeps_keep_one(tmp_path: Path):
    path = tmp_path / "matmul.yaml"
    path.write_text(SWEEP, encoding="utf-8")
    (tmp_path / "ops.py").touch()

    with pytest.raises(TrituneError) as caught:
        questions.rejected(path, SweepOptions(journal=tmp_path))

    assert str(caught.value) == (
        f"{path}: no journal of this sweep on this machine, and none recorded; a sweep with no "
        "GPU keeps none, and lists what it rejects at its end\n"
        "hint: `tritune sweep` on a GPU writes one; --journal DIR reads another machine's"
    )

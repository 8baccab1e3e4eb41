"""A sweep that is killed at any moment goes on where it was, and locks the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import killed_sweep

HERE = Path(__file__).resolve().parent
KILLS = 5
"""Of each of the sweeps."""


def started(folder: Path) -> subprocess.Popen[str]:
    """A sweep in a session of its own that has begun to measure."""
    paths = [str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "killed_sweep.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "measuring\n"
    return process


def finished(folder: Path) -> float:
    """Run a sweep to its end; the seconds that it measured."""
    with started(folder) as process:
        began = time.monotonic()
        assert process.wait(timeout=120) == 0
        return time.monotonic() - began


@pytest.fixture(name="undisturbed", scope="module")
def _undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, float]:
    """The lockfile of a sweep that nothing kills, and how long that measured."""
    folder = tmp_path_factory.mktemp("undisturbed")
    seconds = finished(folder)
    return (folder / "tritune.lock").read_bytes(), seconds


@pytest.mark.parametrize("seed", range(4))
def test_killed_and_resumed_again_and_again_it_measures_once_and_locks_the_same(
    tmp_path: Path, undisturbed: tuple[bytes, float], seed: int
) -> None:
    locked, seconds = undisturbed
    moments = random.Random(seed)  # noqa: S311
    sizes = []

    for _ in range(KILLS):
        with started(tmp_path) as process:
            time.sleep(moments.uniform(0, seconds / KILLS))
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
        assert not (tmp_path / "tritune.lock").exists()
        sizes.append(journal(tmp_path).stat().st_size)
    finished(tmp_path)

    assert (tmp_path / "tritune.lock").read_bytes() == locked
    assert sizes == sorted(sizes)
    lines = [json.loads(line) for line in journal(tmp_path).read_text().splitlines()]
    assert times_screened(lines) == dict.fromkeys(every_candidate(), 1)
    stages = Counter(line["done"] for line in lines if "done" in line)
    assert stages == dict.fromkeys(("finals", "confirm"), len(killed_sweep.PROBLEMS))


def journal(folder: Path) -> Path:
    [path] = folder.glob("*.jsonl")
    return path


def times_screened(lines: list[dict[str, object]]) -> Counter[str]:
    return Counter(
        json.dumps([line["problem"], line["config"]])
        for line in lines
        if "us" in line and "finals" not in line
    )


def every_candidate() -> list[str]:
    return [
        json.dumps([one.candidate.problem.as_dict(), one.candidate.config.as_dict()])
        for one in killed_sweep.BINARIES
    ]

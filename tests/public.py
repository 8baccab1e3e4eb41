"""public: a sweep file of a public package -> what `tritune compile` says of it, with no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OTHERS = ROOT / "tests" / "data" / "others"


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None,
        reason=f"{package} is not installed: `make test-others`",
    )


def compiled(sweep: Path, folder: Path, *arguments: str) -> dict[str, dict]:
    """What is said of each kernel, by its name, for an H200."""
    said = subprocess.run(
        [sys.executable, "-m", "tritune", "compile", str(sweep), "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
            "TRITUNE_CACHE_DIR": str(folder),
        },
    )
    assert said.returncode == 0, said.stderr
    return {one["kernel"]: one for one in json.loads(said.stdout)["reports"]}


def counts(report: dict, **axes: object) -> tuple[int, int, dict[str, int]]:
    """Of the problems with these axes: the candidates, those that fit, why the others do not."""
    built = [one for one in report["built"] if axes.items() <= one["problem"].items()]
    out = [one for one in report["rejected"] if axes.items() <= one["problem"].items()]
    fits = len(built) + sum(len(one["same_binary"]) for one in built)
    return fits + len(out), fits, dict(Counter(one["reason"] for one in out))


def binaries(report: dict) -> int:
    return len({one["binary"] for one in report["built"]})

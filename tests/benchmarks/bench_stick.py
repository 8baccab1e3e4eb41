"""bench_stick: sweeps in a row, each with a cold journal -> what changed, and what agrees.

From no lockfile, then with the lockfile of the first, then from no lockfile again: a second sweep
should change no byte, or at most 2 % of the entries, each for a gain above the margin in every
process; winners of the two from nothing should be as good as each other as far as either could
tell, and mostly the same. Needs a GPU; binaries are compiled by the first sweep only. Exits with 1
where that is not so.

    python tests/benchmarks/bench_stick.py [--only EXPRESSION] [--json FILE] [FILE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from simulated import tied  # noqa: E402
from tritune import lock, paired  # noqa: E402
from tritune.journal import Journal  # noqa: E402
from tritune.model import Config, Entry, LockedKey, Measured, Outcome  # noqa: E402

CHANGED, IDENTICAL = 0.02, 0.75
SMALL = ("sweeps/softmax.yaml", "sweeps/splitk.yaml")


@dataclass(frozen=True, kw_only=True)
class Swept:
    """One pass over the files."""

    entries: Mapping[LockedKey, Entry]
    outcomes: Mapping[tuple[str, str], Sequence[Outcome]]
    """By kernel and key."""
    gpu_s: float
    wall_s: float

    def keeps(self, at: LockedKey, entry: Entry) -> bool:
        """Whether it is as good as the winner, as far as this pass could tell."""
        outcomes = self.outcomes[at.kernel, at.key]
        return entry.config in tied(outcomes, self.entries[at].config)

    def leads(self, at: LockedKey, slower: Config, faster: Config) -> list[float]:
        """By how much one led the other, in the finals and in each confirmation."""
        a, b = (_of(self.outcomes[at.kernel, at.key], config) for config in (slower, faster))
        if a is None or b is None:
            return []
        kinds = ("finals_us", "confirm_us", "doubted_us")
        series = [(getattr(a, kind), getattr(b, kind)) for kind in kinds]
        return [paired.compare(x, y).excess for x, y in series if x and y]


def _of(outcomes: Sequence[Outcome], config: Config) -> Measured | None:
    timed = (one for one in outcomes if isinstance(one, Measured))
    return next((o for o in timed if config in (o.candidate.config, *o.compiled.aliases)), None)


def sweep(files: Sequence[str], lockfile: Path, journals: Path, *options: str) -> Swept:
    """Sweep the files with a journal of their own.

    Raises:
        SystemExit: the sweep did not end well; its exit code.
    """
    began = time.monotonic()
    folders = ["--lockfile", str(lockfile), "--journal", str(journals)]
    done = subprocess.run(
        [sys.executable, "-m", "tritune", "sweep", *files, "--json", *folders, *options],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    reports = json.loads(done.stdout)["reports"]
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    keys = {
        (one["kernel"], json.dumps(one["problem"])): one["key"]
        for report in reports
        for one in report["winners"]
    }
    for path in journals.glob("*.jsonl*"):
        for one in Journal.open(path, read_only=True).latest():
            kernel = one.candidate.kernel
            key = keys.get((kernel, json.dumps(one.candidate.problem.as_dict())), "")
            outcomes.setdefault((kernel, key), []).append(one)
    return Swept(
        entries=dict(lock.read(lockfile).entries),
        outcomes=outcomes,
        gpu_s=sum(report["gpu_s"] for report in reports),
        wall_s=time.monotonic() - began,
    )


def in_a_row(files: Sequence[str], folder: Path, *options: str) -> dict[str, Any]:
    """Three passes; the figures of all."""
    locked, anew = folder / "first.lock", folder / "anew.lock"
    first = sweep(files, locked, folder / "journals1", *options)
    shutil.copy(locked, folder / "kept.lock")
    second = sweep(files, locked, folder / "journals2", *options)
    third = sweep(files, anew, folder / "journals3", *options)
    kept = (folder / "kept.lock").read_bytes() == locked.read_bytes()
    changed = [
        {
            "entry": f"{at.kernel} {at.key}",
            "from": str(entry.config),
            "to": str(second.entries[at].config),
            "leads": second.leads(at, entry.config, second.entries[at].config),
        }
        for at, entry in first.entries.items()
        if second.entries[at].config != entry.config
    ]
    others = [
        {
            "entry": f"{at.kernel} {at.key}",
            "one": str(entry.config),
            "other": str(third.entries[at].config),
            "other_leads": [
                one.leads(at, entry.config, third.entries[at].config) for one in (first, third)
            ],
        }
        for at, entry in first.entries.items()
        if not (third.keeps(at, entry) and first.keeps(at, third.entries[at]))
    ]
    identical = sum(third.entries[at].config == one.config for at, one in first.entries.items())
    return {
        "entries": len(first.entries),
        "byte_for_byte": kept,
        "changed": changed,
        "identical": identical,
        "not_tied": others,
        "gpu_s": [round(one.gpu_s, 1) for one in (first, second, third)],
        "wall_s": [round(one.wall_s, 1) for one in (first, second, third)],
    }


def is_good(found: Mapping[str, Any]) -> bool:
    """Whether a sweep can be repeated."""
    few = len(found["changed"]) <= CHANGED * found["entries"]
    surely = all(one["leads"] and min(one["leads"]) > paired.BEAT for one in found["changed"])
    alike = found["identical"] >= IDENTICAL * found["entries"]
    return few and surely and alike and not found["not_tied"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", default=[str(ROOT / one) for one in SMALL])
    parser.add_argument("--only", help="of the problems, as `tritune sweep` has it")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    options = ("--only", given.only) if given.only else ()
    with TemporaryDirectory() as folder:
        found = in_a_row(given.files, Path(folder), *options)
    print(json.dumps(found, indent=1, ensure_ascii=False))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    return 0 if is_good(found) else 1


if __name__ == "__main__":
    sys.exit(main())

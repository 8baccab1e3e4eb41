"""bench_import: what a lockfile of 10,000 entries adds to the import of a kernel module.

The same module is imported with no lockfile beside it, with one in which its kernel is one of
40, and with one in which every entry is its own: each time in a process of its own that has
imported Triton and tritune before, in turn, and what is printed is the median. No GPU is
needed: a stand-in driver answers the look-up.

    python tests/benchmarks/bench_import.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from projects import H200, STAND_IN
from tritune import lock
from tritune.lockrender import sort_entries
from tritune.model import Config, Entry, Evidence, Lock, LockedKey

ROOT = Path(__file__).resolve().parents[2]
ENTRIES, KERNELS, ROUNDS = 10_000, 40, 9
OPS = """\
import triton, triton.language as tl, tritune

@tritune.kernel(key=["M", "N"], like=["x"], default=dict(B=16, G=8, num_warps=4, num_stages=3))
@triton.jit
def add(x, M, N, B: tl.constexpr, G: tl.constexpr):
    pass
"""
TIMED = f"""\
{STAND_IN}
import json, sys, time
from tritune import dispatch, tuned, runtime

class Tensor:
    dtype = "torch.float16"
    def data_ptr(self): return 0

began = time.perf_counter()
import ops
imported = time.perf_counter()
config = ops.add.config(M=1, N=4096, x=Tensor())
asked = time.perf_counter()
config["B"]
print(json.dumps([(imported - began) * 1e3, (asked - imported) * 1e3, config["B"]]))
"""
NONE, ONE, ALL = "no lockfile", f"one of {KERNELS} kernels", "all entries its own"


def entry(number: int) -> Entry:
    config = {
        "B": 32 << number % 3,
        "G": number % 7 + 1,
        "num_warps": 4,
        "num_stages": 2 + number % 3,
    }
    evidence = Evidence(
        us=19.1,
        default_us=55.0,
        margin=0.031,
        noise=0.003,
        bits="9c1e04d2",
        ir="87b314e3",
        triton="3.6.0",
        source="5d0c6a1b",
        space="0f3a99c2",
    )
    return Entry(config=Config.of(config), evidence=evidence)


def locked(kernels: int) -> str:
    names = ["ops:add", *(f"ops:other_{n}" for n in range(1, kernels))]
    each = ENTRIES // kernels
    entries = {
        LockedKey(kernel=name, device="H200", key=f"M={number} N=4096 x=f16"): entry(number)
        for name in names
        for number in range(1, each + 1)
    }
    return lock.render(Lock(devices=(H200,), entries=sort_entries(entries.items())))


def once(folder: Path) -> tuple[float, float]:
    """Milliseconds of the import, and of the first look-up."""
    path = os.pathsep.join((str(ROOT), str(folder)))
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TIMED],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    imported, asked, block = json.loads(said.stdout)
    if block != (64 if (folder / "tritune.lock").exists() else 16):
        raise RuntimeError(f"the look-up served B={block}")
    return imported, asked


def measure(rounds: int = ROUNDS) -> dict[str, tuple[float, float]]:
    with tempfile.TemporaryDirectory() as name:
        folders = {}
        for at, (what, kernels) in enumerate(((NONE, 0), (ONE, KERNELS), (ALL, 1))):
            folders[what] = Path(name, str(at))
            folders[what].mkdir()
            (folders[what] / "ops.py").write_text(OPS, encoding="utf-8")
            if kernels:
                (folders[what] / "tritune.lock").write_text(locked(kernels), encoding="utf-8")
        taken: dict[str, list[tuple[float, float]]] = {what: [] for what in folders}
        for number in range(rounds + 1):
            for what, folder in folders.items():
                times = once(folder)
                if number:  # the first one writes ops.pyc, and fills the page cache
                    taken[what].append(times)
    return {
        what: (statistics.median(t[0] for t in times), statistics.median(t[1] for t in times))
        for what, times in taken.items()
    }


def table(found: dict[str, tuple[float, float]]) -> list[str]:
    base = found[NONE]
    title = f"{ENTRIES:,} entries"
    lines = [f"{title:22s}  import, ms      over none  first look-up      over none"]
    for what, times in found.items():
        more = [time - before for time, before in zip(times, base, strict=True)]
        lines.append(
            f"{what:22s} {times[0]:11.2f}  {more[0]:+13.2f} {times[1]:14.2f}  {more[1]:+13.2f}"
        )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="times each")
    options = parser.parse_args(words)
    found = measure(options.rounds)
    print(*table(found), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

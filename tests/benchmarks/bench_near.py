"""bench_near: sizes that no lock has -> what the nearest locked config costs there.

The matmul of this repository along M: a sweep of sizes to lock, and one of sizes held out; then, on
each of those, the config that `near` serves and the best of that size's own sweep, interleaved
in one window. Beyond twice the largest locked size the default has to run. Needs a GPU.

    python tests/benchmarks/bench_near.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

LOCKED = tuple(2**power for power in range(4, 14))
HELD_OUT = (
    24, 40, 48, 80, 96, 112, 160, 192, 224, 320, 384, 448, 640, 768, 896, 1280, 1536, 1792, 2560,
    3072, 3584, 5120, 6144, 12288,
)  # fmt: skip
BEYOND = 20000
SIZE = 4096
"""Of N and of K."""
KERNEL = "kernels.matmul:matmul_kernel"


def swept(folder: Path, name: str, sizes: tuple[int, ...]) -> tuple[Path, dict[int, Any]]:
    """The lockfile of a sweep of these sizes alone, and the config of each."""
    shapes = f"{{M: [{', '.join(map(str, sizes))}], N: {SIZE}, K: {SIZE}, dtype: float16}}"
    head = (ROOT / "sweeps" / "matmul.yaml").read_text(encoding="utf-8").partition("shapes:")[0]
    text = head.replace("../kernels", str(ROOT / "kernels"))
    sweep, lockfile = folder / f"{name}.yaml", folder / f"{name}.lock"
    sweep.write_text(f"{text}shapes: [{shapes}]\n", encoding="utf-8")
    command = [sys.executable, "-m", "tritune", "sweep", sweep, "--lockfile", lockfile, "--json"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    [report] = json.loads(done.stdout)["reports"]
    return lockfile, {int(one["problem"]["M"]): one["config"] for one in report["winners"]}


def compare(best: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """On each size held out: what ran, and what it took beside that size's own best."""
    import torch
    from timing import GpuWatch, interleaved

    import tritune
    from kernels.matmul import matmul, matmul_kernel

    def count(kind: str) -> int:
        return tritune.stats().get(KERNEL, {}).get(kind, 0)

    watch, rows = GpuWatch.open(), []
    b = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
    for m in (*HELD_OUT, BEYOND):
        a = torch.randn(m, SIZE, device="cuda", dtype=torch.float16)
        before = {kind: count(kind) for kind in ("near", "default")}
        result = matmul(a, b)
        kind = next(kind for kind in before if count(kind) > before[kind])
        served = dict(matmul_kernel.best_config.all_kwargs())
        row: dict[str, Any] = {"M": m, "kind": kind, "config": served}
        row["error"] = float((result.float() - (a @ b).float()).abs().max())
        if m in best:

            def by_best(a: Any = a, config: dict[str, Any] = best[m]) -> None:
                with tritune.override(matmul_kernel, config):
                    matmul(a, b)

            runs = {kind: lambda a=a: matmul(a, b), "best": by_best}
            us = interleaved(watch, runs, 51)
            row |= {"us": us[kind], "best_us": us["best"], "ratio": us[kind] / us["best"]}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        _, best = swept(Path(folder), "held_out", HELD_OUT)
        lockfile, _ = swept(Path(folder), "locked", LOCKED)
        os.environ["TRITUNE_LOCKFILE"] = str(lockfile)
        rows = compare(best)
    from timing import geometric_mean

    for row in rows:
        times = f"{row['us']:8.1f} µs, best {row['best_us']:8.1f}" if "us" in row else ""
        ratio = f"{row['ratio']:.3f}" if "us" in row else ""
        print(f"  M={row['M']:<6} {row['kind']:8} {times} {ratio}  off by {row['error']:.2g}")
    near = [row["ratio"] for row in rows if row["kind"] == "near"]
    mean = geometric_mean(near) or 0.0
    print(f"  {len(near)} sizes held out, near / own best: {mean:.3f}, at most {max(near):.3f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

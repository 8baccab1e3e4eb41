"""bench_measure: 288 matmul configs on 4 shapes -> what a sweep's winners cost, and are worth.

`tritune sweep` with a cold journal, then every config timed by `triton.testing.do_bench` at its
5 and 40 ms; then what was locked, the best of all, and cuBLAS, interleaved in one window. Needs a
GPU. `--cache` names a compile cache that holds every config, such as `bench_compile --keep` left.

    python tests/benchmarks/bench_measure.py [--cache DIR] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
sys.path[:0] = [str(ROOT), str(DATA), str(Path(__file__).parent)]

GRID = DATA / "compile_matmul.yaml"
WARM_UP_MS, REPEAT_MS = 5, 40
ROUNDS = 101
Shape = tuple[int, int, int]


def swept(lockfile: Path) -> tuple[dict[Shape, dict[str, int]], dict[str, Any]]:
    """What a sweep locks on each shape, and its report."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tritune", "sweep", str(GRID), "--json", "--lockfile", lockfile],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    [report] = json.loads(done.stdout)["reports"]
    locked = {tuple(one["problem"].values()): one["config"] for one in report["winners"]}
    return locked, report


def launches(shape: Shape) -> Any:
    """A function of a config that launches the kernel on this shape with it."""
    import compile_matmul
    import torch

    m, n, k = shape
    a, b = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((m, k), (k, n)))
    return (
        lambda config: lambda: compile_matmul.matmul(_Given(compile_matmul, config), a, b),
        lambda: torch.mm(a, b),
    )


class _Given:
    """The bare kernel, with a config given."""

    def __init__(self, module: Any, config: Mapping[str, int]) -> None:
        self._kernel, self._config = module.matmul_kernel, dict(config)

    def __getitem__(self, grid: Any) -> Any:
        sizes = grid(self._config)
        return lambda *args: self._kernel[sizes](*args, **self._config)


def exhaustive(shapes: list[Shape]) -> dict[Shape, list[tuple[float, dict[str, int]]]]:
    """Every config that runs, by its do_bench median in microseconds, the fastest first."""
    from triton.runtime.errors import OutOfResources
    from triton.testing import do_bench

    from tritune import space
    from tritune.device import targets
    from tritune.spec import read_sweep

    configs = [one.as_dict() for one in space.configs(read_sweep(GRID), targets.find("H200"))]
    found: dict[Shape, list[tuple[float, dict[str, int]]]] = {}
    for shape in shapes:
        run, _ = launches(shape)
        timed = []
        for config in configs:
            try:
                ms = do_bench(run(config), WARM_UP_MS, REPEAT_MS, return_mode="median")
            except OutOfResources:
                continue
            timed.append((ms * 1e3, config))
        found[shape] = sorted(timed, key=lambda pair: pair[0])
    return found


def compare(
    locked: Mapping[Shape, dict[str, int]],
    best: Mapping[Shape, list[tuple[float, dict[str, int]]]],
) -> list[dict[str, Any]]:
    """The locked config and the three that do_bench put first, interleaved."""
    from timing import GpuWatch, interleaved

    watch, rows = GpuWatch.open(), []
    for shape, config in locked.items():
        run, cublas = launches(shape)
        firsts = {f"exhaustive {i + 1}": run(c) for i, (_, c) in enumerate(best[shape][:3])}
        us = interleaved(watch, {"locked": run(config), **firsts, "cuBLAS": cublas}, ROUNDS)
        place = next(i for i, (_, c) in enumerate(best[shape]) if c == config)
        rows.append({"shape": shape, "config": config, "us": us, "place": place + 1})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, help="a compile cache for the exhaustive timing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        locked, report = swept(Path(folder) / "tritune.lock")
        sweep_s = time.monotonic() - began
    if options.cache:
        os.environ["TRITON_CACHE_DIR"] = str(options.cache)
    import torch

    torch.ones(1, device="cuda")
    began = time.monotonic()
    best = exhaustive(list(locked))
    took_s = time.monotonic() - began
    rows = compare(locked, best)
    for step in report["steps"]:
        print(f"  {step['name']}: {step['text']} · {step['seconds']:.1f} s")
    for row in rows:
        us = row["us"]
        ratio = us["locked"] / min(value for name, value in us.items() if "exhaustive" in name)
        times = ", ".join(f"{name} {value:.1f}" for name, value in us.items())
        print(f"  {row['shape']}: {times} µs · locked / best {ratio:.3f} · place {row['place']}")
    print(f"  sweep {sweep_s:.1f} s, GPU {report['gpu_s']:.1f} s; do_bench of all {took_s:.1f} s")
    print(f"  GPU seconds, tritune / do_bench of all: {report['gpu_s'] / took_s:.0%}")
    if options.json:
        text = json.dumps({"report": report, "rows": rows, "exhaustive_s": took_s, "best": [
            {"shape": shape, "us": [us for us, _ in each], "first": each[:5]}
            for shape, each in best.items()
        ]})  # fmt: skip
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""bench_kernels: the kernels as locked, by default, under `@triton.autotune`, and torch's own.

Every problem of every sweep file, in one run: the four are interleaved in one window, and each
is the whole op (copies of unaligned operands, zeroed buffers and second launches included), with
a cold L2 cache. What autotuning itself takes is told apart and is in no time.

    python tests/benchmarks/bench_kernels.py [KERNEL ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import triton
from contenders import (
    AUTOTUNE,
    COLUMNS,
    LOCKED,
    OPS,
    TORCH,
    Axes,
    Run,
    autotuner,
    contenders,
    is_autotuned,
    problems,
)
from timing import ROUNDS, GpuWatch, Watch, geometric_mean, interleaved
from tutorial_kernels import MATMUL_CONFIGS

import tritune

AUTOTUNE_UNTIL_S = 400.0
"""No autotuning begins after so many seconds of the benchmark."""
LARGEST_ERROR = 0.03
"""Of a result, relative to the largest value of torch's: more, and a time means nothing."""


@dataclass(kw_only=True)
class Row:
    """One problem, timed."""

    kernel: str
    problem: dict[str, Any]
    us: dict[str, float]
    config: dict[str, Any] | None = None
    autotune_config: dict[str, Any] | None = None
    autotune_s: float | None = None
    wrong: dict[str, float] = field(default_factory=dict)


def is_locked(name: str, run: Run) -> bool:
    """Whether the op runs what the lockfile has for this very problem."""
    kernel = OPS[name].kernel.name
    before = tritune.stats().get(kernel, {}).get("exact", 0)
    run()
    return tritune.stats()[kernel]["exact"] > before


def measure(watch: Watch, name: str, axes: Axes, *, autotune: bool, rounds: int) -> Row:
    """Time one problem."""
    runs = contenders(name, axes, watch.device, autotune=autotune)
    row = Row(kernel=name, problem=dict(axes), us={})
    if is_locked(name, runs[LOCKED]):
        row.config = dict(OPS[name].kernel.best_config.all_kwargs())
    else:
        del runs[LOCKED]
    if autotune:
        row.autotune_s = seconds(runs[AUTOTUNE])
        row.autotune_config = dict(autotuner(name).best_config.all_kwargs())
    row.wrong = wrong(runs)
    row.us = interleaved(watch, runs, rounds)
    return row


def seconds(run: Run) -> float:
    began = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def wrong(runs: Mapping[str, Run]) -> dict[str, float]:
    """Whose result is not torch's, and by how much."""
    wanted = outputs(runs[TORCH]())
    errors = {
        name: max(map(error, outputs(run()), wanted)) for name, run in runs.items() if name != TORCH
    }
    return {name: off for name, off in errors.items() if not off <= LARGEST_ERROR}


def outputs(returned: Any) -> tuple[torch.Tensor, ...]:
    return returned if isinstance(returned, tuple) else (returned,)


def error(result: torch.Tensor, wanted: torch.Tensor) -> float:
    wide = wanted.float()
    return float((result.float() - wide).abs().max() / wide.abs().max().clamp_min(1e-30))


def times(rows: Sequence[Row], above: str, below: str) -> list[float]:
    """The time of one column over another's, wherever both were taken."""
    return [row.us[above] / row.us[below] for row in rows if {above, below} <= row.us.keys()]


def table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned columns, the first to the left."""
    wide = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    for cells in (heads, *lines):
        first, *rest = (cell.rjust(width) for cell, width in zip(cells, wide, strict=True))
        yield "  ".join([cells[0].ljust(len(first)), *rest]).rstrip()


def kernel_table(rows: Sequence[Row]) -> Iterator[str]:
    heads = [f"{rows[0].kernel}, µs", *COLUMNS, "over default", "over autotune", "over torch"]
    lines = []
    for row in rows:
        text = " ".join(f"{name}={value}" for name, value in row.problem.items())
        cells = [_us(row.us.get(column)) for column in COLUMNS]
        against = [_ratio([*times([row], other, LOCKED), None][0]) for other in COLUMNS[1:]]
        lines.append([text, *cells, *against])
    yield from table(heads, lines)
    tuning = [row for row in rows if row.autotune_s is not None]
    if tuning:
        taken = sum(row.autotune_s or 0.0 for row in tuning)
        yield f"autotuning took {taken:.1f} s: {len(tuning)} of {len(rows)} problems"
    if unlocked := sum(LOCKED not in row.us for row in rows):
        yield f"not locked on this GPU: {unlocked} of {len(rows)} problems"
    for row in rows:
        for name, off in row.wrong.items():
            yield f"wrong result: {name} is off by {off:.3g} on {row.problem}"


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """By kernel, then all: geometric means of the locked config's speed-up over each other."""
    groups = {name: [row for row in rows if row.kernel == name] for name in OPS}
    made = {**{name: own for name, own in groups.items() if own}, "all": list(rows)}
    return [
        {
            "kernel": name,
            "locked": sum(LOCKED in row.us for row in own),
            "autotuned": len(times(own, AUTOTUNE, LOCKED)),
            **{f"over_{other}": geometric_mean(times(own, other, LOCKED)) for other in COLUMNS[1:]},
        }
        for name, own in made.items()
    ]


def summary_table(rows: Sequence[Row]) -> Iterator[str]:
    heads = ["locked config, geometric mean", "over default", "over autotune", "over torch"]
    lines = [
        [
            f"{one['kernel']}: {one['locked']} problems, {one['autotuned']} autotuned",
            *(_ratio(one[f"over_{other}"]) for other in COLUMNS[1:]),
        ]
        for one in summary(rows)
    ]
    yield from table(heads, lines)


def highlights(rows: Sequence[Row]) -> Iterator[str]:
    """Two problems that are asked about most."""
    unaligned = find(rows, M=1000, N=4095, K=1023)
    if unaligned and LOCKED in unaligned.us:
        yield (
            f"matmul 1000x4095x1023 fp16, nothing aligned: {unaligned.us[LOCKED]:.1f} µs, "
            f"the copies of its operands included; cuBLAS {unaligned.us[TORCH]:.1f} µs"
        )
    small = find(rows, M=64, N=4096, K=4096, dtype="float16")
    if small and {LOCKED, AUTOTUNE} <= small.us.keys():
        yield (
            f"matmul 64x4096x4096 fp16: {small.us[LOCKED]:.1f} µs locked, "
            f"{small.us[AUTOTUNE]:.1f} µs by the tutorial's autotune over "
            f"{len(MATMUL_CONFIGS)} configs: "
            f"{small.us[AUTOTUNE] / small.us[LOCKED]:.2f}x"
        )


def find(rows: Sequence[Row], **axes: Any) -> Row | None:
    return next(
        (r for r in rows if r.kernel == "matmul" and axes.items() <= r.problem.items()), None
    )


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:,.1f}"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def machine() -> dict[str, Any]:
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(OPS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it here too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="samples of each, %(default)s")
    parser.add_argument("--no-autotune", action="store_true", help="leave the slow column out")
    parsed = parser.parse_args(words)
    if unknown := set(parsed.kernels) - set(OPS):
        parser.error(f"no kernel {min(unknown)}; there are {', '.join(OPS)}")
    return parsed


def run(options: argparse.Namespace, watch: Watch) -> list[Row]:
    """Every problem, a table a kernel as soon as it is done."""
    began, rows = time.monotonic(), []
    for name in options.kernels or OPS:
        own = []
        for axes in problems(name):
            late = time.monotonic() - began > AUTOTUNE_UNTIL_S
            autotune = is_autotuned(name, axes) and not (late or options.no_autotune)
            own.append(measure(watch, name, axes, autotune=autotune, rounds=options.rounds))
        print(*kernel_table(own), "", sep="\n", flush=True)
        rows += own
    print(*summary_table(rows), *highlights(rows), sep="\n")
    return rows


def main(words: Sequence[str] | None = None) -> int:
    options, began = parse(words), time.monotonic()
    about = machine()
    print(f"{about['device']}, torch {about['torch']}, Triton {about['triton']}")
    print(f"whole ops, cold L2 cache, median of {options.rounds - 1} interleaved samples, µs\n")
    rows = run(options, GpuWatch.open())
    taken = time.monotonic() - began
    print(f"the benchmark took {taken:.0f} s")
    if options.json:
        document = {**about, "seconds": taken, "summary": summary(rows), "rows": rows}
        text = json.dumps(document, indent=1, default=asdict)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

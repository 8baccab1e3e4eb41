"""tracedraft: a TracedKernel -> the text of its sweep file and its problems, or why there is none.

Pure.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritune import misslog, retrace
from tritune.draft import guessed_space, targets
from tritune.keys import UNALIGNED, split, value_of
from tritune.misslog import LONG_DTYPES
from tritune.tracelog import TracedKernel, TracedLaunch
from tritune.words import an

SMOKE = 200_000
"""Of elements and programs together: what the interpreter does in a second or so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """The two files of one kernel."""

    sweep: str
    problem: str
    """Empty where the kernel has a problem function of its own."""


def why_not(kernel: TracedKernel) -> str:
    """Why no sweep file can be made of a kernel; empty where one can."""
    if kernel.kind == "jit":
        return "it has no autotuner: tritune init says what it lacks"
    if kernel.kind == "decorated":
        return _why_no_rows(kernel)
    if not kernel.attribute:
        return "no module holds it, so no other program can import it"
    if not all(part.isidentifier() for part in kernel.name.partition(":")[0].split(".")):
        return f"{Path(kernel.file).name} is no name that can be imported"
    whys = [why_not_launch(one) for one in kernel.launches]
    return whys[0] if whys and all(whys) else ""


def _why_no_rows(kernel: TracedKernel) -> str:
    if not kernel.problem:
        return "it has no problem function: tritune init writes one to fill in"
    if _rows(kernel):
        return ""
    if {why for _, why in left_out(kernel)} == {misslog.UNALIGNED}:
        return misslog.UNALIGNED
    return "its keys do not say all axes of its problems"


def is_guessed(kernel: TracedKernel) -> bool:
    """Whether the space of its sweep file is a guess: nobody listed configs for it."""
    return kernel.kind == "decorated" and kernel.configs <= 1


def why_not_launch(launch: TracedLaunch) -> str:
    """Why the launches under one key cannot be made again."""
    if launch.why:
        return launch.why
    said = json.loads(launch.facts)
    every = [*said["args"], *said["kwargs"].values()]
    strange = [text for fact in every for text in _strange(fact)]
    if strange:
        return f"it passes {an(strange[0])}, which no file can hold"
    if not said["grid"].get("fixed") and not said["grid"].get("table"):
        return "its grid could not be asked for"
    return ""


def _strange(fact: Mapping[str, Any]) -> Iterator[str]:
    if fact["is"] == "tuple":
        for item in fact["items"]:
            yield from _strange(item)
    elif fact["is"] == "other" or (fact["is"] == "function" and "__main__:" in fact["text"]):
        yield fact["text"]


def written(
    kernel: TracedKernel, short: str, target: str, folder: Path, *, is_run_again: bool = False
) -> Written:
    """The files of a kernel that `why_not` says nothing of; they lie in *folder*.

    *is_run_again* is whether a sweep that imports its module runs the traced program.
    """
    notes = (f"# It {RUN_AGAIN[0]}", f"# {RUN_AGAIN[1]}.") if is_run_again else ()
    if kernel.kind == "decorated":
        return Written(sweep=_own_sweep(kernel, target, folder, notes), problem="")
    kept = [one for one in kernel.launches if not why_not_launch(one)]
    return Written(
        sweep=_sweep(kernel, kept, (short, target), notes),
        problem=retrace.module(kernel, kept, short, folder),
    )


RUN_AGAIN = (
    "is in the program itself, which a sweep imports and so runs again: put what it runs under",
    '`if __name__ == "__main__":`, or the kernel into a module of its own and trace it again',
)
"""What to know of such a kernel, in two lines."""


def _sweep(
    kernel: TracedKernel,
    launches: Sequence[TracedLaunch],
    named: tuple[str, str],
    notes: Sequence[str],
) -> str:
    short, target = named
    numbers = ", ".join(str(number) for number, _ in enumerate(launches, 1))
    return "\n".join(
        [
            f"# Launches of {kernel.name}, as `tritune trace` saw them; of {kernel.file}.",
            *notes,
            *(f"#   {n}: {retrace.about(one)}" for n, one in enumerate(launches, 1)),
            f"problem: traced_{short}.py:{short}_problem",
            *targets(target),
            f"shapes: [{{launch: [{numbers}]}}]",
            *_smoke(launches),
            "",
        ]
    )


def _smoke(launches: Sequence[TracedLaunch]) -> Iterator[str]:
    """The smallest launch, if Triton's interpreter can run it in a moment."""
    sizes = {number: _size(one) for number, one in enumerate(launches, 1)}
    number = min(sizes, key=lambda one: sizes[one])
    if sizes[number] <= SMOKE:
        yield f"smoke: [{{launch: {number}}}]"


def _size(launch: TracedLaunch) -> int:
    """Elements of its tensors, and a thousand for each program of its largest grid."""
    said = json.loads(launch.facts)
    grids = [said["grid"].get("fixed"), *(sizes for _, sizes in said["grid"].get("table", ()))]
    programs: int = max(math.prod(sizes) for sizes in grids if sizes)
    passed = [*said["args"], *said["kwargs"].values()]
    elements: int = sum(math.prod(fact.get("shape", ())) for fact in passed)
    return 1000 * programs + elements


def _own_sweep(kernel: TracedKernel, target: str, folder: Path, notes: Sequence[str]) -> str:
    file, name = Path(kernel.file), kernel.name.partition(":")[2]
    place = f"{Path(os.path.relpath(file, folder)).as_posix()}:{name}"
    return "\n".join(
        [
            f"# What {kernel.name} was launched on, as `tritune trace` saw it.",
            *notes,
            f"kernel: {place}",
            *targets(target),
            *(guessed_space(dict(kernel.default)) if is_guessed(kernel) else ()),
            "shapes:",
            *(f"  - {json.dumps(row)}" for row in _rows(kernel)),
            *(f"# Left out: {key}: {why}" for key, why in left_out(kernel)),
            "",
        ]
    )


def _rows(kernel: TracedKernel) -> list[dict[str, Any]]:
    """The rows that make its keys, each once."""
    rows: dict[str, dict[str, Any]] = {}
    for launch in kernel.launches:
        row, why = _row(kernel, launch)
        if not why:
            rows.setdefault(json.dumps(row), row)
    return list(rows.values())


def left_out(kernel: TracedKernel) -> list[tuple[str, str]]:
    """Keys of a kernel with tritune's line that no row makes, and why."""
    if kernel.kind != "decorated":
        return []
    every = [(launch.key or "other keys", _row(kernel, launch)[1]) for launch in kernel.launches]
    return [(key, why) for key, why in every if why]


def _row(kernel: TracedKernel, launch: TracedLaunch) -> tuple[dict[str, Any], str]:
    """The axes that a problem function needs, as a key says them; or why there is no row."""
    axes = [name for name, is_free in kernel.problem or () if not is_free]
    said = split(launch.key)
    types = misslog.dtypes(said)
    row = {name: LONG_DTYPES.get(said[name], value_of(said[name])) for name in axes if name in said}
    if "dtype" in axes and len(types) == 1:
        row["dtype"] = types[0]
    if not launch.key:
        return row, launch.why
    if UNALIGNED in launch.key:
        return row, misslog.UNALIGNED
    unsaid = ", ".join(f"`{name}`" for name in axes if name not in row)
    return row, f"it does not say {unsaid}" if unsaid else ""


def keys(kernels: Sequence[TracedKernel]) -> str:
    """What kernels with tritune's line were launched under, as `--shapes-from` reads it."""
    lines = [
        json.dumps({"kernel": kernel.name, "key": launch.key, "count": launch.count})
        for kernel in kernels
        if kernel.kind == "decorated"
        for launch in kernel.launches
        if launch.key
    ]
    return "".join(f"{line}\n" for line in lines)

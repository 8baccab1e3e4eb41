"""traces: what a program launched -> a table of its kernels and keys, or a JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group

from tritune.model import LOCKFILE
from tritune.views import json_view
from tritune.views.columns import Column
from tritune.views.page import line, page, table
from tritune.views.units import NONE, figures, format_count, format_percent, format_us
from tritune.words import plural, shell

if TYPE_CHECKING:
    from tritune.pipeline.replacing import Replaced
    from tritune.pipeline.tracefiles import Traced
    from tritune.tracelog import Trace, TracedKernel, TracedLaunch

SOME_TARGET = "H200"
SHOWN = 20
"""Keys of one kernel; the JSON has all."""
_KEPT_OUT = "python -I, -E and -S, and a child with an environment of its own, keep it out"
_NOT_REACHED = {
    "": f": the tracer started in none ({_KEPT_OUT})",
    "started": f": the tracer ran, but no process that it ran in imported Triton ({_KEPT_OUT})",
}
"""Why there is nothing, by how far the tracer came."""
SHOWN_LEFT = 3
"""Keys that a sweep file leaves out; it lists all."""


def report(traced: Traced) -> Group:
    """Kernels with their keys, most time first, and what was written."""
    kernels = traced.trace.kernels
    blocks = [part for kernel in kernels for part in _kernel(kernel, _total(traced.trace))]
    ended = _ended(traced)
    return page(
        line(_summary(traced.trace)),
        line(ended, "yellow") if ended else None,
        *blocks,
        *map(line, _after(traced)),
    )


def report_json(traced: Traced) -> str:
    """The whole of it, as one document."""
    trace = traced.trace
    return json_view.document(
        exit_code=traced.exit_code,
        signal=traced.signal or None,
        processes=json_view.plain(trace.processes),
        kernels=[_kernel_dict(traced, kernel) for kernel in trace.kernels],
        untraced=[{"kernel": name, "why": why} for name, why in trace.untraced],
        cut=list(trace.cut),
        reached=trace.reached or None,
        written=dict(traced.files.digests),
        keys=None if traced.keys is None else str(traced.keys),
    )


def _kernel_dict(traced: Traced, kernel: TracedKernel) -> dict[str, Any]:
    sweeps, why = dict(traced.sweeps), dict(traced.without)
    facts = [json.loads(each.facts) for each in kernel.launches]
    plain: dict[str, Any] = json_view.plain(kernel)
    plain["launches"] = [
        {**json_view.plain(each), "facts": fact}
        for each, fact in zip(kernel.launches, facts, strict=True)
    ]
    sweep = sweeps.get(kernel.name)
    return {
        **plain,
        "count": kernel.count,
        "total_us": kernel.total_us,
        "sweep": None if sweep is None else str(sweep),
        "why_no_sweep": why.get(kernel.name, ""),
        "own_sweeps": [str(path) for name, path in traced.own_sweeps if name == kernel.name],
        "left_out": [
            {"key": key, "why": why} for name, key, why in traced.left_out if name == kernel.name
        ],
        "is_run_again": kernel.name in dict(traced.run_again),
    }


def _total(trace: Trace) -> float:
    return sum(kernel.total_us or 0.0 for kernel in trace.kernels)


def _summary(trace: Trace) -> str:
    if not trace.processes:
        return "no process launched a tunable kernel" + _NOT_REACHED.get(trace.reached, "")
    launches = sum(kernel.count for kernel in trace.kernels)
    time = f", {figures(_total(trace) / 1e3)} ms on the GPU" if _total(trace) else ""
    return (
        f"{plural(len(trace.processes), 'process', 'processes')} launched "
        f"{plural(len(trace.kernels), 'kernel')} {plural(launches, 'time')}{time}"
    )


def _ended(traced: Traced) -> str:
    """That the trace may not be of all that the program launches, where it failed."""
    if not traced.exit_code:
        return ""
    code = f"ended with exit code {traced.exit_code}"
    how = f"was ended by {traced.signal}" if traced.signal else code
    return f"the program {how}, and the trace ends there"


def _kernel(kernel: TracedKernel, total_us: float) -> Iterator[Any]:
    shown = kernel.launches[:SHOWN]
    yield line("")
    yield line(f"{kernel.name}  {_what(kernel)}", "bold")
    share = [
        None if one.total_us is None or not total_us else one.total_us / total_us for one in shown
    ]
    yield table(
        [Column(heading="key", cells=tuple(one.key or "other keys" for one in shown))],
        [
            Column(heading="launches", cells=tuple(format_count(one.count) for one in shown)),
            Column(heading="µs each", cells=tuple(format_us(_mean(one)) for one in shown)),
            Column(heading="ms", cells=tuple(_ms(one) for one in shown)),
            Column(heading="of all", cells=tuple(map(format_percent, share))),
        ],
    )
    if len(kernel.launches) > SHOWN:
        yield line(f"and {plural(len(kernel.launches) - SHOWN, 'key')} more")


def _what(kernel: TracedKernel) -> str:
    kinds = {"autotuned": "autotuned", "decorated": "with tritune's line", "jit": "not tunable"}
    configs = "" if kernel.kind == "jit" else f", {plural(kernel.configs, 'config')}"
    return f"{kinds[kernel.kind]}{configs}"


def _mean(one: TracedLaunch) -> float | None:
    return None if one.total_us is None else one.total_us / one.count


def _ms(one: TracedLaunch) -> str:
    return NONE if one.total_us is None else figures(one.total_us / 1e3)


def _after(traced: Traced) -> Iterator[str]:
    """What a reader should know, and do next."""
    if traced.trace.processes:
        yield ""
    yield from _known(traced.trace)
    for name, why in traced.without:
        yield f"no sweep file for {name}: {why}"
    yield from _warned(traced)
    yield from _replaced(traced.files)
    yield from _next(traced)


def _replaced(files: Replaced) -> Iterator[str]:
    for path in files.kept:
        yield f"kept {path}, which was there: --force replaces it"
    for path, aside in files.moved:
        yield f"moved {path}, which is not as it was written, to {aside}"
    if files.removed:
        yield f"removed {', '.join(map(str, files.removed))}, which the last trace wrote"


def _warned(traced: Traced) -> Iterator[str]:
    """What to know of the sweep files before they are swept."""
    for kernel in traced.trace.kernels:
        if (path := dict(traced.sweeps).get(kernel.name)) is None:
            continue
        left = [(key, why) for name, key, why in traced.left_out if name == kernel.name]
        yield from (f"left out of {path}: {key}: {why}" for key, why in left[:SHOWN_LEFT])
        if len(left) > SHOWN_LEFT:
            yield f"left out of {path}: {plural(len(left) - SHOWN_LEFT, 'key')} more, listed there"
        if kernel.name in traced.guessed:
            yield (
                f"the space of {path} is a guess around the only config that {kernel.name} "
                "lists: widen it, or narrow it"
            )
        if again := dict(traced.run_again).get(kernel.name):
            yield f"{kernel.name} {again}"


def _next(traced: Traced) -> Iterator[str]:
    """The commands that come next, and how what they lock is served."""
    ours = {one.name for one in traced.trace.kernels if one.kind == "decorated"}
    own = dict.fromkeys(path for _, path in traced.own_sweeps)
    if traced.keys and own:
        yield f"next: tritune sweep {shell(*own)} --shapes-from {shell(traced.keys)}"
    if traced.keys and ours.intersection(dict(traced.without)) - {*dict(traced.own_sweeps)}:
        command = f"tritune sweep FILE --shapes-from {shell(traced.keys)}"
        yield f"next, with the kernel's own sweep FILE: {command}"
    if traced.sweeps:
        sweep = f"tritune sweep {shell(*(path for _, path in traced.sweeps))}"
        if any(one.device for one in traced.trace.processes):
            yield f"next: {sweep}"
        else:  # the files name no target, and a sweep here would ask for one
            yield f"next, on a machine with a GPU: {sweep}"
            yield f"or here, to compile and time nothing: {sweep} --target {SOME_TARGET}"
    if traced.sweeps or own:
        yield _served(traced, sorted(ours))


def _served(traced: Traced, ours: Sequence[str]) -> str:
    """How what is locked comes to be read; of kernels with tritune's line by itself.

    TRITUNE_LOCKFILE would have those read that file too, which has nothing of them.
    """
    lockfile = traced.folder / LOCKFILE
    own = f"the own lockfile of {', '.join(ours)}"
    if {name for name, _ in traced.sweeps} <= {*ours}:
        return f"then: nothing, as the sweep writes {own}"
    if ours:
        call = f"tritune.install({json.dumps(str(lockfile))})"
        return f"then: {call} where it runs; TRITUNE_LOCKFILE would turn {own} off"
    return f"then: TRITUNE_LOCKFILE={shell(lockfile)} where it runs"


def _known(trace: Trace) -> Iterator[str]:
    """What the figures leave out."""
    if trace.kernels and not any(one.total_us for one in trace.kernels):
        yield "no times: nothing ran on a GPU, or too little to time some of it"
    if any(each.captured for one in trace.kernels for each in one.launches):
        yield "launches in a CUDA graph count once; its replays cannot be seen"
    for name, why in trace.untraced:
        yield f"not traced: {name}: {why}"
    if trace.cut:
        yield f"left out, as they are no whole lines: {', '.join(trace.cut[:5])}"

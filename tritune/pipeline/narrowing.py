"""pipeline.narrowing: a sweep, its kernels, `--only` -> the problems that are left, and whose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tritune import expression
from tritune.contract import quoted
from tritune.errors import SpecError
from tritune.model import KernelInfo, Sweep


def narrowed(sweep: Sweep, only: str | None) -> Sweep:
    """The sweep with those of its problems, if it has any, for which *only* holds."""
    if only is None or not sweep.problems:
        return sweep
    try:
        kept = tuple(one for one in sweep.problems if expression.truth(only, one.as_dict()))
    except expression.ConstraintError as error:
        axes = ", ".join(name for name, _ in sweep.problems[0].axes)
        raise SpecError(str(error), where=f"--only {only}", hint=f"axes: {axes}") from None
    if not kept:
        raise SpecError("no problem is left", where=f"--only {only}")
    return replace(sweep, problems=kept)


def with_problems(
    sweep: Sweep, infos: Sequence[KernelInfo], only: str | None = None
) -> tuple[KernelInfo, ...]:
    """The kernels that a problem launches; what a smoke problem alone does has none to tune it on.

    Raises:
        SpecError: there is none such.
    """
    problems = {*sweep.problems}
    kept = tuple(
        info for info in infos if not info.foreign or not problems.isdisjoint(dict(info.keys))
    )
    if problems and not kept:
        names = quoted(info.short for info in infos)
        raise SpecError(
            f"no problem launches {names}, only a smoke problem does",
            where=f"--only {only}" if only else sweep.where("shapes"),
            hint="a kernel is tuned on the problems of `shapes:` that launch it",
        )
    return kept if problems else tuple(infos)

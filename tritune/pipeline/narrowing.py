"""pipeline.narrowing: a sweep, its kernels, `--only` -> the problems that are left, and whose."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tritune import expression
from tritune.contract import quoted
from tritune.errors import SpecError
from tritune.model import KernelInfo, Problem, Sweep
from tritune.words import some


def narrowed(sweep: Sweep, only: str | None) -> Sweep:
    """The sweep with those of its problems, if it has any, for which *only* holds."""
    if only is None or not sweep.problems:
        return sweep
    try:
        kept = tuple(one for one in sweep.problems if expression.truth(only, one.as_dict()))
    except expression.ConstraintError as error:
        hint = error.hint or _of_names(only, sweep.problems)
        raise SpecError(str(error), where=f"--only {only}", hint=hint) from None
    if not kept:
        hint = f"there is {some(sweep.problems)}"
        raise SpecError("no problem is left", where=f"--only {only}", hint=hint)
    return replace(sweep, problems=kept)


def _of_names(only: str, problems: Sequence[Problem]) -> str:
    """What the names in it may be; a text with no quotes is a name as well."""
    axes = [name for name, _ in problems[0].axes]
    with suppress(expression.ConstraintError):
        texts = {value for problem in problems for _, value in problem.axes}
        if hint := expression.unquoted(expression.names(only).difference(axes), texts):
            return hint
    return f"axes: {', '.join(axes)}"


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

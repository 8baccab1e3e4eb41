"""spec: the text of a sweep file -> Sweep, or every mistake in it at once.

Past this file nobody checks types again. It does not know the kernel: whether an axis is a
tunable of it is `space.check_against`'s, once the kernel is loaded.
`python -m tritune.spec` writes the JSON Schema.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from tritune import expression
from tritune.axisvalues import near
from tritune.errors import SpecError, of_many
from tritune.model import Axis, Constraint, Problem, Section, Sweep, Timing
from tritune.speccheck import cross_check, module_file
from tritune.sweepfile import KNOWN_TARGETS, SectionPart, SweepFile, Values, schema
from tritune.sweepmistakes import place_lines, structure
from tritune.words import shell
from tritune.yamltext import Document, Loc, inside, load

_LOCKFILE = re.compile(r'\s*\{\s*"tritune"\s*:')


def read_sweep(path: Path, *, known_targets: Collection[str] = KNOWN_TARGETS) -> Sweep:
    """The sweep of a file; also checks that the files it names exist.

    Raises:
        SpecError: the one mistake in it.
        ManyMistakesError: all of them, by position.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError("not text in UTF-8", where=str(path), hint="save it as UTF-8") from None
    except OSError as error:
        raise _unreadable(path, error) from None
    return _sweep(text, str(path), known_targets, files=True)


def parse_sweep(text: str, *, path: str, known_targets: Collection[str] = KNOWN_TARGETS) -> Sweep:
    """The sweep of a text; *path* is where it stands, for messages and relative paths."""
    return _sweep(text, path, known_targets, files=False)


def _unreadable(path: Path, error: OSError) -> SpecError:
    what = (error.strerror or str(error)).lower()
    if not isinstance(error, FileNotFoundError):
        return SpecError(what, where=str(path), hint="give the path of a sweep file")
    beside = sorted(one.name for one in path.parent.glob("*.y*ml"))
    guess = near(path.name, beside)
    hint = f"did you mean `{path.parent / guess}`?" if guess else "give the path of a sweep file"
    return SpecError(what, where=str(path), hint=hint)


def _refuse_other(text: str, path: str) -> None:
    """What is no sweep file has one mistake, and not one a line."""
    if path.endswith(".py"):
        hint = f"`tritune init {shell(path)}:NAME` writes the first sweep file of a kernel in it"
        raise SpecError("is a Python file, not a sweep file", where=path, hint=hint)
    if _LOCKFILE.match(text):
        hint = (
            f"name a sweep file; `tritune check --lockfile {shell(path)}` checks this one, "
            f"and `tritune compile --locked {shell(path)}` compiles what it locks"
        )
        raise SpecError("is a lockfile, not a sweep file", where=path, hint=hint)


def _sweep(text: str, path: str, known_targets: Collection[str], *, files: bool) -> Sweep:
    _refuse_other(text, path)
    document = load(text, path=path)
    file = structure(document)
    base = Path(path).parent
    if isinstance(document.value, dict):
        cross_check(document, known_targets, base if files else None)
    if document.mistakes or file is None:
        errors = [mistake.error(path) for mistake in sorted(set(document.mistakes))]
        raise of_many(errors)
    return _build(file, document, path, base)


def _build(file: SweepFile, document: Document, path: str, base: Path) -> Sweep:
    return Sweep(
        path=path,
        kernel=_absolute(file.kernel, base),
        problem=_absolute(file.problem, base),
        targets=tuple(file.targets),
        space=_axes(file.space),
        sections=tuple(_sections(file, document, path)),
        constraints=_constraints(file.constraints, ("constraints",), document, path),
        problems=tuple(_problems(file.shapes)),
        smoke=tuple(_problems(file.smoke)),
        timing=Timing(**file.timing.model_dump()),
        lines=place_lines(document, path),
    )


def _absolute(reference: str, base: Path) -> str | None:
    """`module:name`, a module given as a path made absolute."""
    file = module_file(reference, base)
    return f"{file}:{reference.rpartition(':')[2]}" if file else reference or None


def _axes(space: Mapping[str, Values]) -> tuple[Axis, ...]:
    return tuple(Axis(name=name, values=values) for name, values in space.items())


def _sections(file: SweepFile, document: Document, path: str) -> Iterator[Section]:
    """Backends before targets, so that a target has the last word."""
    parts: list[tuple[Loc, SectionPart]] = [(("cuda",), file.cuda), (("hip",), file.hip)]
    parts += [(("per_target", name), part) for name, part in file.per_target.items()]
    for loc, part in parts:
        constraints = _constraints(part.constraints, (*loc, "constraints"), document, path)
        if part.space or constraints:
            scope = str(loc[-1])
            yield Section(scope=scope, space=_axes(part.space), constraints=constraints)


def _constraints(
    texts: Iterable[str], loc: Loc, document: Document, path: str
) -> tuple[Constraint, ...]:
    made = []
    for index, text in enumerate(texts):
        at = (*loc, index)
        line, column = document.place(at)
        where = f"{path}:{line}:{column}: {inside(at)}"
        made.append(Constraint(text=text, where=where, names=expression.names(text)))
    return tuple(made)


def _problems(rows: Iterable[Mapping[str, Values]]) -> Iterator[Problem]:
    for row in rows:
        for values in itertools.product(*row.values()):
            yield Problem(tuple(zip(row, values, strict=True)))


if __name__ == "__main__":
    sys.stdout.write(schema())

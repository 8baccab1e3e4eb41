"""skeleton: Subject -> the text of a problem function to fill in, and what its kernel lacks.

Pure.
"""

from __future__ import annotations

from pathlib import Path

from tritune import draft
from tritune.subject import JIT, Subject
from tritune.words import shell

GUESSED = "the default above is a guess"
COMPUTED = "what the op computes itself, as a block that holds a row, leaves nothing to tune"


def problem_text(subject: Subject, places: draft.Places) -> str:
    """A problem function with its kernel, its axes and its shape; what it runs on is a gap."""
    name, axes = subject.short, draft.axes_of(subject)
    command = f"tritune sweep {shell(places.sweep)}"
    launched = [
        p for p in subject.params if p in draft.passed(subject) or p not in subject.constexprs
    ]
    return "\n".join(
        [
            f'"""{name}_problem: one problem of `{name}`, for `{command}`."""',
            "",
            "import torch",
            "import tritune",
            "",
            _import(subject),
            "",
            *_line_to_add(subject),
            f"def {name}_problem({', '.join(axes)}):  # the axes of `shapes:`",
            f'    raise NotImplementedError("{draft.GAP}: the inputs of {name}")',
            "    # Name no device and no seed: tritune sets both. A dtype comes as torch.float16.",
            "    # x = torch.randn(n, dtype=dtype)",
            "",
            "    def run():",
            "        # An op that launches it does as well, and allocates what it writes itself.",
            f"        # {subject.attribute}[lambda meta: (...,)]({', '.join(launched)})",
            "        # return out",
            "        ...",
            "",
            "    # With no reference, results are compared with those of the default config.",
            "    return tritune.Problem(run)  # reference=lambda: ..., flops=..., bytes=...",
            "",
        ]
    )


def _import(subject: Subject) -> str:
    if draft.needs_copy(subject):
        return (
            f"# {draft.GAP}: import your own copy of {subject.name}, or the op that launches that"
        )
    root = subject.attribute.partition(".")[0]
    module = subject.name.rpartition(":")[0]
    if all(part.isidentifier() for part in module.split(".")):
        return f"from {subject.imported} import {root}  # or the op that launches it"
    return f"# {draft.GAP}: load {root} from {Path(subject.file).name}, which no import can name"


def steps(subject: Subject, where: str) -> list[str]:
    """What its owner has to do besides filling gaps, before it can be tuned."""
    name = f"`{subject.short}` ({where})"
    match _advice(subject):
        case "copy", line:
            copy = f"copy it into a file of your own, with `import tritune` and above it `{line}`"
            why = "has no autotuner, and tritune tunes other people's kernels only under one"
            look = f"look at what its launch passes now: {GUESSED}, and {COMPUTED}"
            return [f"{name} {why}: to tune it, {copy}", look]
        case "below", line:
            return [f"import tritune, and put `{line}` below the last assignment to {name}"]
        case "above", line:
            return [f"import tritune, and put `{line}` above the decorators of {name}"]
    return []


def hints(subject: Subject) -> list[str]:
    """The same for who has named it in a sweep file already."""
    where, line = _advice(subject)
    what = {
        "copy": "copy it into a file of your own: other people's kernels need an autotuner\n"
        "and write above the copy's decorators",
        "below": "write below its last assignment",
        "above": "write above its decorators",
    }
    return [f"{what[where]}\n    import tritune\n    {line}"] if where else []


def _advice(subject: Subject) -> tuple[str, str]:
    """Where the line goes that it lacks, and that line: `copy`, `below`, `above`, or nowhere."""
    line = draft.decorator(subject)
    if draft.needs_copy(subject):  # above the decorators of that
        return "copy", line
    if line and subject.is_assigned:
        return "below", f"{subject.attribute} = {line[1:]}({subject.attribute})"
    return "above" if line else "", line


def _line_to_add(subject: Subject) -> list[str]:
    where, line = _advice(subject)
    if not where:
        return [""]
    guess = ["# with what the launch passes now for the default, which is a guess."]
    if where == "copy":
        said = [
            f"# `{subject.short}` has no autotuner, and tritune tunes other people's kernels only",
            "# under one. To tune it, copy it into a file of your own, with `import tritune` and",
            "# above its other decorators",
        ]
        guess += [f"# {COMPUTED[0].upper()}{COMPUTED[1:]}."]
    else:
        there = "below all else" if where == "below" else "above its other decorators"
        said = [
            f"# `{subject.short}` is tuned, and runs what is locked, with two lines more in",
            f"# {Path(subject.file).name}: `import tritune`, and {there}",
        ]
    return [*said, f"#     {line}", *(guess if subject.kind == JIT else []), "", ""]

"""The architecture, as a test: who may import whom.

cli -> pipeline -> the stages -> leaves; views -> nouns; a kernel module -> runtime.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tritune"

STAGES = frozenset(
    {"spec", "space", "plan", "compile", "measure", "verify", "choose", "lock"}
    | {"check", "diff", "merge"}
)
COMPOSERS = ("pipeline", "cli")
DRIVERS = (
    "device",
    "launches",
    "intercept",
    "load",
    "verify",
    "dispatch",
    "adopt",
    "adopted",
    "discover",
    "launcher",
    "recall",
    "opaque",
    "tuned",
    "silicon",
    "routing",
    "owning",
    "pruning",
    "tracing",
)
"""Where torch and triton may be imported: what runs in a child process or in production."""
RUNTIME = "runtime"
COMMAND_LINE = frozenset(
    {"click", "rich", "yaml", "pydantic", "pydantic_core", "filelock", "simpleeval", "pynvml"}
)
RELATIVE = "relative"
LONGEST = 300
"""Lines of a module; then ask what its second noun is."""
LONG = frozenset({"model"})
"""The nouns stand in one file, so that they read in the order a sweep makes them."""


@dataclass(frozen=True)
class Module:
    """One module of the package by its name below `tritune`, with its source."""

    name: str
    source: str

    @property
    def top(self) -> str:
        return self.name.split(".")[0]

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)


def modules() -> tuple[Module, ...]:
    found = sorted(PACKAGE.rglob("*.py"))
    return tuple(Module(_name(path), path.read_text(encoding="utf-8")) for path in found)


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: Module, *, types: bool = True) -> frozenset[str]:
    """What a module imports, in functions too; without *types*, not what only mypy reads."""
    tree = module.tree
    only_types = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
        for node in ast.walk(guard)
    }
    nodes = [node for node in ast.walk(tree) if types or id(node) not in only_types]
    return frozenset(name for node in nodes for name in _imported(node))


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (each.name for each in names)
        case ast.ImportFrom(module="tritune", names=names):
            yield from (f"tritune.{each.name}" for each in names)
        case ast.ImportFrom(module=str(name), level=0):
            yield name
        case ast.ImportFrom():
            yield RELATIVE


def own(names: frozenset[str]) -> frozenset[str]:
    """The parts of the package among *names*, by their first name: `device`, `views`."""
    return frozenset(name.split(".")[1] for name in names if name.startswith("tritune."))


def outside(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in names)


def violations(module: Module, reached: frozenset[str] = frozenset()) -> Iterator[str]:
    """Every rule that *module* breaks; *reached* is what a kernel module's import reaches."""
    inside = own(imports(module, types=False))
    foreign = outside(imports(module))
    if module.top in STAGES and (wrong := inside & STAGES - {module.top}):
        yield f"the stage {module.name} imports the stage {min(wrong)}"
    if module.top not in COMPOSERS and len(inside & STAGES - {module.top}) > 1:
        yield f"{module.name} composes stages, which only the pipeline does"
    if module.top not in {"cli", "__main__"} and "cli" in inside:
        yield f"{module.name} imports the command line"
    if module.top not in {"cli", "views", "pipeline"} and "views" in inside:
        yield f"{module.name} imports a view"
    if module.top == "views" and inside - {"views", "model", "words"}:
        yield f"{module.name} knows more than the nouns: {', '.join(sorted(inside))}"
    yield from _foreign(module, foreign, reached)
    yield from _form(module)


def _foreign(module: Module, foreign: frozenset[str], reached: frozenset[str]) -> Iterator[str]:
    if "rich" in foreign and module.top not in {"cli", "views"}:
        yield f"{module.name} imports rich"
    if "click" in foreign and module.top != "cli":
        yield f"{module.name} imports click"
    if foreign & {"torch", "triton"} and module.top not in DRIVERS:
        yield f"{module.name} imports torch or triton"
    if module.name in reached and (wrong := foreign & COMMAND_LINE):
        yield f"{module.name} is imported by kernels and imports {min(wrong)}"
    if RELATIVE in foreign:
        yield f"{module.name} has a relative import"


def _form(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.name or 'tritune'} has no docstring"
    if module.source.count("\n") >= LONGEST and module.name not in LONG:
        yield f"{module.name} has {LONGEST} lines or more"
    if module.top not in {"views", "cli"} and any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
        for node in ast.walk(module.tree)
    ):
        yield f"{module.name} prints"


def reached_by(name: str, every: tuple[Module, ...]) -> frozenset[str]:
    """The modules that importing *name* can import, in functions too."""
    by_name = {module.name: module for module in every}
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        if here in by_name and here not in reached:
            reached.add(here)
            names = imports(by_name[here], types=False)
            waiting += [each.removeprefix("tritune.") for each in names]
    return frozenset(reached)


EVERY = modules()
REACHED = reached_by(RUNTIME, EVERY)


@pytest.mark.parametrize("module", EVERY, ids=lambda module: module.name or "tritune")
def test_a_module_keeps_to_its_layer(module):
    assert list(violations(module, REACHED)) == []


def test_what_a_kernel_module_imports_is_what_we_think():
    """The reader of lockfiles is among it, the writer and the sweep are not."""
    assert {"runtime", "locktext", "model", "errors"} <= REACHED
    assert not REACHED & {"lock", "pipeline", "cli", "spec", "journal", "workers"}


def test_the_check_sees_every_module():
    assert {"", "cli", "cli.sweep", "views.terminal", "model"} <= {each.name for each in EVERY}


def planted(source: str, name: str = "measure") -> list[str]:
    return list(violations(Module(name, f'"""Doc."""\n{source}\n'), frozenset({"locktext"})))


@pytest.mark.parametrize(
    ("name", "source", "broken"),
    [
        ("measure", "from tritune import choose", "the stage measure imports the stage choose"),
        ("measure", "from tritune.lock import x", "the stage measure imports the stage lock"),
        ("measure", "import tritune.plan", "the stage measure imports the stage plan"),
        ("measure", "def f():\n    import torch", "measure imports torch or triton"),
        ("measure", "from tritune.views import units", "measure imports a view"),
        ("measure", "from . import model", "measure has a relative import"),
        ("measure", "from rich.text import Text", "measure imports rich"),
        ("measure", "print('x')", "measure prints"),
        ("measure", "\n" * 300, "measure has 300 lines or more"),
        ("journal", "import click", "journal imports click"),
        ("journal", "from tritune import cli", "journal imports the command line"),
        (
            "journal",
            "from tritune import plan, lock",
            "journal composes stages, which only the pipeline does",
        ),
        ("views.tables", "import tritune.lock", "views.tables knows more than the nouns: lock"),
        ("locktext", "import yaml", "locktext is imported by kernels and imports yaml"),
    ],
)
def test_the_check_fails_on_a_planted_violation(name, source, broken):
    assert planted(source, name) == [broken]


def test_the_check_lets_the_right_imports_pass():
    assert planted("from tritune import choose, lock", "pipeline.conclude") == []
    assert planted("import torch", "device.bench") == []
    assert planted("from rich.text import Text\nprint(Text())", "views.page") == []
    assert (
        planted(
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tritune import space",
            "views.tables",
        )
        == []
    )


def test_a_module_without_a_docstring_is_named():
    assert list(violations(Module("plan", "x = 1\n"))) == ["plan has no docstring"]

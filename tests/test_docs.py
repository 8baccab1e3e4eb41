"""The documentation, run: commands, help, kernels, sweep files and the map of the modules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tritune.cli import tritune
from tritune.load import describe, load
from tritune.space import check_against
from tritune.spec import parse_sweep, read_sweep

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(
    group: click.Group = tritune, name: str = "tritune"
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


COMMANDS = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_in_the_readme_and_has_help(name):
    command = COMMANDS[name]

    assert f"`{name}" in README
    assert command.help
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_of_a_command_is_a_whole_sentence(name):
    assert COMMANDS[name].get_short_help_str(66).endswith(".")
    assert not COMMANDS[name].get_short_help_str(66).endswith("...")


def test_the_readme_names_no_command_that_does_not_exist():
    named = set(re.findall(r"(?:^|`)tritune ((?:show )?[a-z]+)", README, flags=re.MULTILINE))

    assert {f"tritune {each}" for each in named} <= COMMANDS.keys()


def test_the_help_in_the_readme_is_the_programs():
    [shown] = blocks("console")
    command, _, text = shown.partition("\n")

    result = CliRunner().invoke(tritune, command.split()[2:], prog_name="tritune")

    assert text == result.output


def test_the_exit_codes_are_in_the_readme():
    for code in ("0    done", "1    the answer", "2    the input", "3    it could", "130  "):
        assert code in README


def written(folder: Path) -> dict[str, Path]:
    """The files that the README's blocks are, by the path in their first line."""
    files = {}
    for text in (*blocks("python"), *blocks("yaml")):
        name = text.splitlines()[0].removeprefix("# ")
        files[name] = folder / name
        files[name].parent.mkdir(exist_ok=True)
        files[name].write_text(text, encoding="utf-8")
    return files


@pytest.mark.lowering
@pytest.mark.parametrize("name", ["swiglu", "swiglu_autotuned"])
def test_a_kernel_of_the_readme_is_what_its_sweep_file_says(tmp_path, name):
    files = written(tmp_path)
    sweep = read_sweep(files[f"sweeps/{name}.yaml"])

    info = describe(load(sweep.kernel, sweep.problem))

    check_against(sweep, info)
    assert info.name.endswith(f"{name}:swiglu_kernel")
    assert info.lockfile == str(tmp_path / "kernels/tritune.lock")
    assert len(sweep.problems) == 4


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_sweep_file_of_the_readme_parses(text):
    assert parse_sweep(text, path="sweeps/readme.yaml").problems


def user_lines(name: str) -> int:
    """Lines a user adds or changes: from each mark to the end of its statement, and the sweep."""
    [kernel] = [text for text in blocks("python") if text.startswith(f"# kernels/{name}.py")]
    [sweep] = [text for text in blocks("yaml") if text.startswith(f"# sweeps/{name}.yaml")]
    problem = kernel[kernel.index("@tritune.problem") :]
    marks = kernel.count("  # ") - problem.count("  # ")
    return marks + len(problem.splitlines()) + len(sweep.splitlines()) - 1


@pytest.mark.parametrize("name", ["swiglu", "swiglu_autotuned"])
def test_from_a_kernel_to_a_locked_kernel_takes_at_most_12_lines(name):
    assert user_lines(name) <= 12


def test_the_entry_in_the_readme_is_json():
    [entry] = blocks("json")

    [(key, content)] = json.loads(entry).items()
    assert key.startswith("M=64 ")
    assert list(content) == ["config", "evidence"]


def test_every_module_is_on_the_map():
    named = set(re.findall(r"`([a-z_]+)`", CONTRIBUTING))
    modules = {path.stem for path in (ROOT / "tritune").iterdir() if path.suffix in {"", ".py"}}

    missing = {name for name in modules - named if not name.startswith("_")}
    assert missing == set()


def test_what_the_make_targets_are_is_said_by_make_itself():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [phony] = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)

    documented = re.findall(r"^([a-z-]+):.*##", makefile, flags=re.MULTILINE)

    assert sorted(phony.split()) == sorted(documented)

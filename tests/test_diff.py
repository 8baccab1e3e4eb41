"""Comparing lockfiles: what is added, removed, changed, and how a reviewer reads it."""

# ruff: noqa: RUF001  # the multiplication sign of a speed-up is meant
from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from test_lock import device
from tritune import lock
from tritune.cli import tritune
from tritune.diff import Part, diff
from tritune.model import Config, Entry, Evidence, Lock, LockedKey
from tritune.views.diffs import changes_markdown

KERNEL = "ops:matmul"


def entry(block: int = 64, us: float = 10.0, **facts) -> Entry:
    plain = {"default_us": 20.0, "margin": 0.05, "noise": 0.003, "bits": "b", "ir": "i"}
    evidence = Evidence(us=us, **{"triton": "3.9.0", **plain, **facts})
    return Entry(config=Config.of({"BLOCK": block, "num_warps": 4}), evidence=evidence)


def made(entries: dict[int, Entry]) -> Lock:
    keys = ((LockedKey(kernel=KERNEL, device="H100", key=f"M={m}"), e) for m, e in entries.items())
    return Lock(devices=(device(),), entries=tuple(keys))


OLD = made({1: entry(), 2: entry(), 3: entry(), 4: entry()})
NEW = made(
    {
        1: entry(),
        2: entry(128, 8.0, noise=0.011, bits="c", ir="j"),
        4: entry(us=9.5, triton="3.10.0"),
        5: entry(32, 0.0, noise=0.0, bits="", unmeasured=True),
    }
)


def test_equal_locks_have_no_changes():
    assert diff(OLD, OLD) == ()


def test_a_change_has_the_parts_the_speed_the_noise_and_whether_bits_differ():
    changed, removed, newer, added = diff(OLD, NEW)

    assert [c.kind for c in (changed, removed, newer, added)] == [
        "changed",
        "removed",
        "changed",
        "added",
    ]
    assert changed.parts == (Part(name="BLOCK", old=64, new=128),)
    assert (changed.faster, changed.noise, changed.bits) == (1.25, 0.011, True)
    assert (newer.parts, newer.bits) == ((), False)
    assert (removed.faster, removed.noise, removed.bits, added.parts) == (None, None, None, ())


def test_a_tunable_that_one_side_lacks_is_a_part_even_where_it_is_none():
    new = replace(entry(), config=Config.of({"BLOCK": 64, "num_warps": 4, "maxnreg": None}))

    [change] = diff(made({1: entry()}), made({1: new}))

    assert change.parts == (Part(name="maxnreg", old=None, new=None),)


@pytest.fixture
def two(tmp_path, monkeypatch) -> tuple[str, str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    lock.write("old.lock", OLD)
    lock.write("new.lock", NEW)
    return "old.lock", "new.lock"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, ["diff", *arguments], prog_name="tritune")


TEXT = """\
new.lock: 1 added, 1 removed, 2 changed

ops:matmul on H100
        key config                        µs faster  noise bits   note
changed M=2 BLOCK 64 → 128       10.0 → 8.00  1.25× ±1.1 % others other code
removed M=3 BLOCK=64 num_warps=4        10.0      - ±0.3 % -      -
changed M=4 the same             10.0 → 9.50  1.05× ±0.3 % same   Triton 3.9.0 → 3.10.0
added   M=5 BLOCK=32 num_warps=4  unmeasured      -      - -      -
"""
MARKDOWN = """\
### new.lock: 1 added, 1 removed, 2 changed

|  | kernel | device | key | config | µs | faster | noise | bits | note |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| changed | `matmul` | `H100` | `M=2` | BLOCK 64 → 128 | 10.0 → 8.00 | 1.25× | ±1.1 % | others \
| other code |
| removed | `matmul` | `H100` | `M=3` | BLOCK=64 num_warps=4 | 10.0 | - | ±0.3 % | - | - |
| changed | `matmul` | `H100` | `M=4` | the same | 10.0 → 9.50 | 1.05× | ±0.3 % | same \
| Triton 3.9.0 → 3.10.0 |
| added | `matmul` | `H100` | `M=5` | BLOCK=32 num_warps=4 | unmeasured | - | - | - | - |
"""


def test_two_files_are_compared_as_text_and_as_markdown(two):
    assert run(*two).stdout == TEXT
    assert run(*two, "--markdown").stdout == MARKDOWN


def test_of_an_entry_that_is_timed_at_last_only_the_measured_side_has_noise():
    before = made({1: entry(32, 0.0, noise=0.0, bits="", unmeasured=True)})
    after = made({1: entry(64, 8.0)})

    text = changes_markdown([("a.lock", diff(before, after))])

    assert text.splitlines()[-1] == (
        "| changed | `matmul` | `H100` | `M=1` | BLOCK 32 → 64 | unmeasured → 8.00 | - | ±0.3 % "
        "| - | - |"
    )


def test_two_equal_files_differ_in_nothing(two):
    assert run("old.lock", "old.lock").stdout == "no lockfile entry differs\n"
    assert run("old.lock", "old.lock", "--markdown").stdout == "No lockfile entry differs.\n"


def test_the_exit_code_says_whether_anything_differs_only_where_asked(two):
    assert run(*two).exit_code == 0
    assert run(*two, "--exit-code").exit_code == 1
    assert run("old.lock", "old.lock", "--exit-code").exit_code == 0


def test_json_has_both_entries_and_what_is_derived_from_them(two):
    [file] = json.loads(run(*two, "--json").stdout)["lockfiles"]

    first = file["changes"][0]
    assert (file["path"], len(file["changes"])) == ("new.lock", 4)
    assert (first["kind"], first["key"], first["faster"]) == ("changed", "M=2", 1.25)
    assert first["parts"] == [{"name": "BLOCK", "old": 64, "new": 128}]
    assert (first["noise"], first["bits_differ"]) == (0.011, True)
    assert (first["old"]["evidence"]["us"], first["new"]["config"]["BLOCK"]) == (10.0, 128)


def git(*arguments: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *arguments], check=True, capture_output=True, env=environment)


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """Two lockfiles in the first commit, one of them changed in the second, one in no commit."""
    monkeypatch.chdir(tmp_path)
    for name in ("kernels", "other"):
        Path(name).mkdir()
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@b.c")
    git("config", "user.name", "a")
    lock.write("kernels/tritune.lock", OLD)
    lock.write("other/tritune.lock", OLD)
    git("add", "-A")
    git("commit", "-qm", "first")
    git("tag", "first")
    lock.write("kernels/tritune.lock", NEW)
    git("commit", "-qam", "second")
    lock.write("other/tritune.lock", NEW)
    return tmp_path


def paths(*arguments: str) -> dict[str, int]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["lockfiles"]
    return {each["path"]: len(each["changes"]) for each in found}


KERNELS, OTHER = "kernels/tritune.lock", "other/tritune.lock"


def test_a_revision_is_compared_with_the_working_tree(repository, monkeypatch):
    assert paths() == {KERNELS: 0, OTHER: 4}
    assert paths("first") == {KERNELS: 4, OTHER: 4}
    assert paths("HEAD") == {KERNELS: 0, OTHER: 4}
    monkeypatch.chdir("kernels")
    assert paths("first") == {KERNELS: 4, OTHER: 4}


def test_two_revisions_are_compared_with_each_other(repository):
    assert paths("first", "main") == {KERNELS: 4, OTHER: 0}


def test_a_file_is_compared_with_its_own_path_of_a_revision(repository):
    assert paths("first", KERNELS) == {KERNELS: 4}
    assert paths(OTHER) == {OTHER: 4}
    assert paths(f"first:{KERNELS}") == {KERNELS: 4}
    assert paths(f"first:{KERNELS}", f"HEAD:{OTHER}") == {OTHER: 0}


def test_a_file_may_be_named_from_a_folder_below_or_by_a_link(repository, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(repository)
    monkeypatch.chdir(Path(KERNELS).parent)

    assert paths("first", "./tritune.lock") == {KERNELS: 4}
    assert paths("first", f"../{KERNELS}") == {KERNELS: 4}
    assert paths("first:./tritune.lock") == {KERNELS: 4}
    assert paths(f"HEAD:../{KERNELS}") == paths("HEAD", str(tmp_path / "link" / KERNELS))


def test_a_lockfile_that_one_side_lacks_is_added_or_removed_as_a_whole(repository):
    Path(KERNELS).unlink()

    assert paths("HEAD") == {KERNELS: 4, OTHER: 4}
    assert run("HEAD").stdout.splitlines()[0] == f"{KERNELS}: 4 removed"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("nope",),
            (
                "error: `nope` is neither a file nor a revision\n\n"
                "hint: name a lockfile, a revision such as main, or main:kernels/tritune.lock\n"
            ),
        ),
        (
            ("HEAD:nope",),
            (
                "error: git show: path 'nope' does not exist in 'HEAD'\n\n"
                "hint: HEAD has kernels/tritune.lock; other/tritune.lock\n"
            ),
        ),
        (
            ("nope:tritune.lock",),
            (
                "error: git show: invalid object name 'nope'.\n\n"
                "hint: name a lockfile, a revision such as main, or main:kernels/tritune.lock\n"
            ),
        ),
    ],
)
def test_what_is_no_lockfile_is_exit_2(repository, arguments, said):
    result = run(*arguments)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)


@pytest.mark.parametrize("arguments", [(), ("main",), ("old.lock",), ("old.lock", "main")])
def test_with_no_repository_git_says_so_and_two_files_can_be_named(two, arguments):
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    said = re.sub(r" \(or any .*\)(: \.git)?\n", "\n", result.stderr)
    assert said == (
        "error: git rev-parse: not a git repository\n\n"
        "hint: name two lockfiles: tritune diff OLD NEW\n"
    )


@pytest.mark.parametrize("arguments", [(), ("old.lock",)])
def test_with_no_commit_yet_there_is_nothing_to_compare_with(two, arguments):
    git("init", "-q")

    result = run(*arguments)

    assert (result.exit_code, result.stdout, result.stderr) == (
        2,
        "",
        (
            "error: there is no commit to compare with\n\n"
            "hint: name two lockfiles: tritune diff OLD NEW\n"
        ),
    )


def test_with_no_git_a_revision_is_not_called_unknown(two, monkeypatch):
    monkeypatch.setenv("PATH", "")

    result = run()

    assert (result.exit_code, result.stderr) == (3, "error: git is not installed\n")


def test_a_damaged_lockfile_of_a_revision_is_named_with_its_line(repository):
    Path(KERNELS).write_text("<<<<<<< ours\n", encoding="utf-8")
    git("commit", "-qam", "damaged")

    result = run("HEAD")

    assert result.exit_code == 2
    assert result.stderr.startswith(
        f"error: HEAD:{KERNELS}:1: has the markers of an unfinished merge\n"
    )


def test_what_near_serves_now_is_a_note():
    before = made({1: entry(reach="1 <= M <= 4"), 2: entry()})
    after = made({1: entry(reach="1 <= M <= 2"), 2: entry(reach="1 <= M <= 4")})

    rows = changes_markdown([("t.lock", diff(before, after))]).splitlines()[4:]

    assert [row.split(" | ")[-1] for row in rows] == [
        "near serves 1 <= M <= 4 → 1 <= M <= 2 |",
        "near serves - → 1 <= M <= 4 |",
    ]


def test_another_hook_is_a_note():
    before = made({1: entry(hook="m:z@1"), 2: entry()})
    after = made({1: entry(hook="m:z@2"), 2: entry(hook="m:z@1")})

    rows = changes_markdown([("t.lock", diff(before, after))]).splitlines()[4:]

    # One that names none is of an older sweep, or of a config without.
    assert [row.split(" | ")[-1] for row in rows] == ["other pre_hook |", "- |"]

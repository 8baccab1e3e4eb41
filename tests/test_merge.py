"""Merging lockfiles: what either side changed, what both did, and what git makes of it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from test_lock import device, locks
from tritune import lock
from tritune.cli import tritune
from tritune.lockrender import sort_entries
from tritune.merge import merge
from tritune.model import Config, DeviceIdentity, Entry, Evidence, Lock, LockedKey

KERNEL = "ops:matmul"
RESTORE = "\n\nhint: restore it from git, or delete the file and sweep again\n"


def entry(block: int = 64, us: float = 10.0, **facts) -> Entry:
    plain = {"default_us": 20.0, "margin": 0.05, "noise": 0.003, "bits": "b", "ir": "i"}
    evidence = Evidence(us=us, triton="3.9.0", **{**plain, **facts})
    return Entry(config=Config.of({"BLOCK": block, "num_warps": 4}), evidence=evidence)


def made(entries: dict[int, Entry], device_: DeviceIdentity | None = None, **facts) -> Lock:
    """A lock with an entry for each M."""
    at = device_ or device()
    keys = {LockedKey(kernel=KERNEL, device=at.name, key=f"M={m}"): e for m, e in entries.items()}
    return Lock(devices=(at,), entries=sort_entries(keys.items()), **facts)


def entries_of(merged: Lock) -> dict[str, Entry]:
    return {f"{at.device} {at.key}": entry for at, entry in merged.entries}


def test_what_one_side_changed_added_or_removed_is_taken():
    base = made({1: entry(1), 2: entry(2), 3: entry(3)})
    ours = made({1: entry(16), 2: entry(2), 3: entry(3), 4: entry(4)})
    theirs = made({1: entry(1), 2: entry(32), 5: entry(5)})

    merged = merge(base, ours, theirs)

    assert entries_of(merged.lock) == {
        "H100 M=1": entry(16),
        "H100 M=2": entry(32),
        "H100 M=4": entry(4),
        "H100 M=5": entry(5),
    }
    assert merged.unsettled == ()


def test_where_both_sides_changed_an_entry_ours_is_kept_and_marked():
    base, ours, theirs = (made({1: entry(n, us=n)}) for n in (1, 2, 3))

    merged = merge(base, ours, theirs)

    assert entries_of(merged.lock) == {"H100 M=1": entry(2, us=2, unsettled=True)}
    assert [at.key for at in merged.unsettled] == ["M=1"]


def test_a_change_of_both_sides_to_the_same_is_settled():
    base, both = made({1: entry(1)}), made({1: entry(2)})

    assert merge(base, both, both).lock == both


def test_an_entry_that_one_side_removed_and_the_other_changed_stays_and_is_marked():
    base, changed, removed = made({1: entry(1)}), made({1: entry(2)}), made({})

    for ours, theirs in ((changed, removed), (removed, changed)):
        assert entries_of(merge(base, ours, theirs).lock) == {"H100 M=1": entry(2, unsettled=True)}


def test_two_lockfiles_without_a_base_are_joined():
    merged = merge(Lock(), made({1: entry(1), 2: entry(2)}), made({2: entry(9), 3: entry(3)}))

    assert entries_of(merged.lock) == {
        "H100 M=1": entry(1),
        "H100 M=2": entry(2, unsettled=True),
        "H100 M=3": entry(3),
    }


def test_two_devices_are_joined_and_one_silicon_under_two_labels_is_one():
    h200 = device("H200", bus_bits=6016)
    same = device("H100 SXM", names=("NVIDIA H100 SXM5",))

    merged = merge(Lock(), made({1: entry(1)}), made({1: entry(7)}, h200)).lock
    merged = merge(Lock(), merged, made({2: entry(2)}, same)).lock

    assert [known.name for known in merged.devices] == ["H100", "H200"]
    assert merged.devices[0].names == ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5")
    assert list(entries_of(merged)) == ["H100 M=1", "H100 M=2", "H200 M=1"]


def test_other_silicon_under_one_label_is_never_mixed():
    pcie = device("H100", sms=114)

    merged = merge(Lock(), made({1: entry(1)}), made({1: entry(7)}, pcie)).lock

    assert entries_of(merged) == {"H100 M=1": entry(1), "H100 (114 SMs) M=1": entry(7)}


def test_constraints_that_both_sides_changed_have_all_to_hold():
    base, ours, theirs = (
        made({1: entry()}, near=((KERNEL, texts),)) for texts in (("a",), ("b", "c"), ("c", "d"))
    )

    assert merge(base, ours, theirs).lock.near == ((KERNEL, ("b", "c", "d")),)
    assert merge(base, base, theirs).lock.near == theirs.near


def plain(made_: Lock) -> Lock:
    """As sweeps write them: one label a silicon, and every entry of a device that is listed."""
    devices = (replace(one, names=tuple(sorted(set(one.names)))) for one in made_.devices)
    silicon = {known.silicon(): known for known in devices}
    names = {known.name for known in silicon.values()}
    return replace(
        made_,
        devices=tuple(sorted(silicon.values(), key=lambda known: known.name)),
        entries=tuple(item for item in made_.entries if item[0].device in names),
    )


SMALL = st.dictionaries(st.integers(1, 4), st.builds(entry, st.integers(1, 3)), max_size=4)
LOCKS = locks().map(plain) | SMALL.map(made)


@given(LOCKS, LOCKS, LOCKS)
def test_a_merge_is_idempotent(base, ours, theirs):
    once = merge(base, ours, theirs).lock

    assert merge(base, ours, once).lock == once
    assert merge(base, once, theirs).lock == once
    assert merge(once, once, once).lock == once
    assert lock.parse(lock.render(once), "-") == once


@given(LOCKS, LOCKS, LOCKS)
def test_a_merge_never_mixes_two_entries(base, ours, theirs):
    def whole(side: Entry) -> tuple[Config, Evidence]:
        return side.config, replace(side.evidence, unsettled=False)

    given_ = {whole(e) for side in (base, ours, theirs) for _, e in side.entries}

    assert {whole(e) for _, e in merge(base, ours, theirs).lock.entries} <= given_


@given(LOCKS, LOCKS)
def test_a_merge_with_a_side_that_changed_nothing_is_the_other_side(base, theirs):
    merged = merge(base, base, theirs).lock

    assert sorted(entries_of(merged).values(), key=str) == sorted(
        entries_of(theirs).values(), key=str
    )
    assert merge(base, theirs, base).lock.entries == theirs.entries


def run(*arguments: object) -> Result:
    return CliRunner().invoke(tritune, [str(each) for each in arguments], prog_name="tritune")


@pytest.fixture
def three(tmp_path) -> tuple[Path, Path, Path]:
    paths = tuple(tmp_path / name for name in ("base", "ours", "theirs"))
    for n, path in enumerate(paths):
        lock.write(path, made({1: entry(n), 2: entry(2), 10 + n: entry(n)}))
    return paths  # type: ignore[return-value]


def test_merging_three_files_replaces_ours_and_says_what_is_unsettled(three):
    base, ours, theirs = three

    result = run("merge", base, ours, theirs)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        f"wrote {ours}: 4 locked, 1 taken from theirs, 1 unsettled\n"
        f"{ours}: unsettled: matmul on H100: M=1: both sides changed it, ours is kept\n"
        "next: tritune sweep --stale\n"
    )
    assert list(entries_of(lock.read(ours))) == ["H100 M=1", "H100 M=2", "H100 M=11", "H100 M=12"]
    assert '"triton": "3.9.0", "unsettled": true}\n' in ours.read_text(encoding="utf-8")


def test_merging_two_files_into_a_third_leaves_both_as_they_are(three, tmp_path):
    _, ours, theirs = three
    before = ours.read_bytes(), theirs.read_bytes()

    result = run("merge", ours, theirs, "-o", tmp_path / "out")

    assert result.exit_code == 0
    assert result.stderr == (
        f"wrote {tmp_path}/out: 4 locked, 1 taken from theirs, 1 unsettled\n"
        f"{tmp_path}/out: unsettled: matmul on H100: M=1: both sides changed it, ours is kept\n"
        "next: tritune sweep --stale\n"
    )
    assert (ours.read_bytes(), theirs.read_bytes()) == before
    assert len(lock.read(tmp_path / "out").entries) == 4


def test_a_merge_with_nothing_to_settle_says_what_it_took_and_removed_and_git_is_told_nothing(
    tmp_path,
):
    sides = {
        "base": made({1: entry(1), 2: entry(2)}),
        "ours": made({1: entry(1), 2: entry(2)}),
        "theirs": made({2: entry(3), 3: entry(3)}),
    }
    paths = [tmp_path / name for name in sides]
    for path, side in zip(paths, sides.values(), strict=True):
        lock.write(path, side)

    by_git = run("merge", "--path", "t.lock", "-o", tmp_path / "git", *paths)
    by_hand = run("merge", "-o", tmp_path / "out", *paths)

    assert (by_git.exit_code, by_git.stderr) == (0, "")
    assert by_hand.stderr == (
        f"wrote {tmp_path}/out: 2 locked, 2 taken from theirs, 1 removed by theirs, 0 unsettled\n"
    )


@pytest.mark.parametrize("side", [0, 1, 2])
def test_a_damaged_side_is_an_error_with_its_line_and_nothing_is_written(three, side):
    damaged = three[side]
    damaged.write_text(damaged.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    before = [path.read_bytes() for path in three]

    result = run("merge", *three)

    assert result.exit_code == 2
    assert result.stderr == f"error: {damaged}:20: is cut off here{RESTORE}"
    assert [path.read_bytes() for path in three] == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Error: two lockfiles are needed, or three: [BASE] OURS THEIRS\n"),
        (("base",), "Error: two lockfiles are needed, or three: [BASE] OURS THEIRS\n"),
        (("--install", "base"), "Error: --install takes no lockfile\n"),
    ],
)
def test_a_merge_of_too_few_files_says_what_it_needs(three, monkeypatch, arguments, said):
    monkeypatch.chdir(three[0].parent)

    result = run("merge", *arguments)

    assert result.exit_code == 2
    assert result.stderr.endswith(said)


class Repository:
    """A git repository with a lockfile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.email", "a@b.c")
        self.git("config", "user.name", "a")

    @property
    def lockfile(self) -> Path:
        return self.folder / "tritune.lock"

    def git(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "PYTHONPATH": ROOT}
        return subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=check,
            env=environment,
        )

    def commit(self, held: Lock, *, branch: str = "") -> None:
        if branch:
            self.git("checkout", "-q", "-B", branch, "main")
        lock.write(self.lockfile, held)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def merge_of(self, base: Lock, ours: Lock, theirs: Lock) -> int:
        """Commit three locks and merge: git's exit code."""
        self.git("checkout", "-q", "-B", "main", check=False)
        self.commit(base)
        self.commit(theirs, branch="theirs")
        self.commit(ours, branch="ours")
        return self.git("merge", "-q", "--no-edit", "theirs", check=False).returncode


ROOT = str(Path(__file__).parent.parent)


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path / "repository")


def resweep(held: Lock, chance: random.Random) -> Lock:
    """Some entries measured anew, some shapes added, rarely one removed."""
    entries = dict(held.entries)
    for at in list(entries):
        if chance.random() < 0.02:
            entries[at] = entry(chance.choice([32, 64, 128]), round(chance.uniform(5, 50), 1))
        elif chance.random() < 0.01:
            del entries[at]
    for m in chance.sample(range(1, 9000), 3):
        at = LockedKey(kernel=KERNEL, device="H100", key=f"M={m}")
        entries.setdefault(at, entry(m % 7, us=m % 90 + 1))
    return replace(held, entries=sort_entries(entries.items()))


def test_what_git_merges_without_our_driver_is_what_we_merge_or_a_conflict(repository):
    conflicts = 0
    for seed in range(25):
        chance = random.Random(seed)  # noqa: S311
        base = made({m: entry(m % 5, us=m % 70 + 1) for m in chance.sample(range(1, 9000), 40)})
        ours, theirs = resweep(base, chance), resweep(base, chance)

        code = repository.merge_of(base, ours, theirs)

        if code:
            conflicts += 1
            repository.git("merge", "--abort")
        else:
            assert lock.read(repository.lockfile) == merge(base, ours, theirs).lock, seed
    assert conflicts <= 12


def test_git_conflicts_where_both_sides_touch_one_entry_in_different_lines(repository):
    base = made({m: entry(m) for m in (1, 2, 3)})
    ours = made({1: entry(1), 2: entry(9), 3: entry(3)})
    theirs = made({1: entry(1), 2: entry(2, us=3.0), 3: entry(3)})

    assert repository.merge_of(base, ours, theirs) == 1


def test_with_our_driver_git_merges_what_it_would_not_and_says_what_is_unsettled(
    repository, monkeypatch
):
    monkeypatch.chdir(repository.folder)
    first, second = run("merge", "--install"), run("merge", "--install")
    base, ours, theirs = (made({1: entry(n), 2: entry(2), 10 + n: entry(n)}) for n in (1, 2, 3))

    code = repository.merge_of(base, ours, theirs)

    assert first.stderr == (
        "git merges tritune.lock with tritune in this clone now; commit .gitattributes\n"
    )
    assert second.stderr == (
        "git merges tritune.lock with tritune in this clone now; .gitattributes says so already\n"
    )
    attributes = (repository.folder / ".gitattributes").read_text(encoding="utf-8")
    assert attributes == "tritune.lock merge=tritune\n"
    assert code == 0
    assert lock.read(repository.lockfile) == merge(base, ours, theirs).lock


def test_our_driver_leaves_a_damaged_side_as_a_conflict_and_names_its_line(repository, monkeypatch):
    monkeypatch.chdir(repository.folder)
    run("merge", "--install")
    base, ours, theirs = (made({1: entry(n)}) for n in (1, 2, 3))
    repository.commit(base)
    repository.commit(ours, branch="ours")
    repository.commit(theirs, branch="theirs")
    text = repository.lockfile.read_text(encoding="utf-8")
    repository.lockfile.write_text(text[:-20], encoding="utf-8")
    repository.git("commit", "-qam", "damaged")
    repository.git("checkout", "-q", "ours")

    result = repository.git("merge", "theirs", check=False)

    assert result.returncode == 1
    assert "error: tritune.lock (theirs):12: is cut off here" in result.stderr
    assert lock.read(repository.lockfile) == ours


def test_a_clone_whose_configuration_cannot_be_written_is_no_mistake_in_the_input(
    repository, monkeypatch
):
    monkeypatch.chdir(repository.folder)
    Path(".git/config.lock").touch()

    result = run("merge", "--install")

    assert (result.exit_code, result.stderr) == (
        3,
        "error: git config: could not lock config file .git/config: File exists\n",
    )
    assert not Path(".gitattributes").exists()


def test_attributes_in_another_encoding_are_added_to_and_stay_as_they_are(repository, monkeypatch):
    monkeypatch.chdir(repository.folder)
    before = "# Übersetzer\n*.po merge=ours".encode("latin-1")
    Path(".gitattributes").write_bytes(before)

    result = run("merge", "--install")

    assert result.exit_code == 0, result.output
    assert Path(".gitattributes").read_bytes() == before + b"\ntritune.lock merge=tritune\n"


def test_outside_of_a_repository_install_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    result = run("merge", "--install")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: git rev-parse: not a git repository")


def test_the_driver_is_run_by_the_python_that_installed_it(repository, monkeypatch):
    monkeypatch.chdir(repository.folder)
    run("merge", "--install")

    driver = repository.git("config", "merge.tritune.driver").stdout
    assert driver == f"{sys.executable} -P -m tritune merge --path %P %O %A %B\n"

"""What cannot be written is exit code 3, of every command that writes, before it does its work."""

from __future__ import annotations

import errno
import json
import os
import pwd
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import fakes
import test_measure_sweep
from projects import Project
from tritune import bundle, places
from tritune.cli import tritune
from tritune.device import bench, lowering
from tritune.errors import EnvironmentFaultError
from tritune.pipeline import compiling, importing, job


@pytest.fixture
def project(fresh: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project where `full` is a file, so that nothing can be made below it."""
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    made = fresh.copy(tmp_path / "project")
    made.write("full", "")
    table = {"1000": {"BLOCK": 512, "num_warps": 4}}
    made.write("one.json", json.dumps(table))
    monkeypatch.chdir(made.folder)
    return made


def told(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(tritune, arguments, prog_name="tritune")
    return result.exit_code, result.stderr


RECORD = Path(__file__).parent.parent / "sweeps" / "recorded" / "matmul.H200.jsonl.gz"
IMPORT = ("import", "one.json", "--sweep", "sweeps/scale.yaml", "--device", "H200", "--axis", "n")
ELSEWHERE = "\n\nhint: nothing was changed; --lockfile FILE writes elsewhere\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*IMPORT, "--lockfile", "full/a.lock"), f"full/a.lock{{}}{ELSEWHERE}"),
        (
            ("merge", "tritune.lock", "tritune.lock", "-o", "full/a.lock"),
            f"full/a.lock{{}}{ELSEWHERE.replace('--lockfile FILE', '-o PATH')}",
        ),
        (
            ("export", "tritune.lock", "--format", "configs", "--output", "full/a.py"),
            "full/a.py{}\n",
        ),
        (("compile", "sweeps/scale.yaml", "--output", "full/binaries"), "full/binaries{}\n"),
        (("init", "ops.py:scale_kernel", "--output", "full/sweeps"), "full/sweeps{}\n"),
        (("trace", "--output", "full/traced", "--", "true"), "full/traced/processes{}\n"),
    ],
)
def test_every_command_says_the_same_of_what_cannot_be_written(project, arguments, said):
    assert told(*arguments) == (3, "error: " + said.format(": cannot be written: Not a directory"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "sweeps/scale.yaml", "--output", "full/binaries"),
        ("init", "ops.py:scale_kernel", "--output", "full/sweeps"),
    ],
)
def test_it_is_told_before_any_kernel_is_loaded(project, arguments, monkeypatch):
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(job, "describe_kernels", loaded)
    monkeypatch.setattr("tritune.pipeline.starting.ask", loaded)

    assert told(*arguments)[0] == 3


def test_what_is_compiled_for_tritons_cache_is_told_so_before_it_is(project, monkeypatch):
    def compiled(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tritune.pipeline.prebuilding.asked_for", compiled)
    cache = str(project.folder / "full" / "cache")
    monkeypatch.setenv("TRITON_CACHE_DIR", cache)

    code, said = told("compile", "--locked", "sweeps/scale.yaml", "--target", "H200", "--jobs", "1")

    assert code == 3
    assert said == (
        f"error: {cache}: cannot be written: Not a directory\n\n"
        "hint: set TRITON_CACHE_DIR to a folder that can be written\n"
    )


def test_a_folder_of_journals_is_told_as_what_it_is_and_a_dry_run_needs_none(project):
    words = ("sweep", "sweeps/scale.yaml", "--target", "H200", "--journal", "full/journals")

    code, said = told(*words)
    dry, _ = told(*words, "--dry-run")

    assert code == 3
    assert said[said.index("error: ") :] == (
        "error: full/journals: cannot write here (Not a directory)\n\n"
        "hint: name a folder that can be written with --journal DIR\n"
    )
    assert dry == 0


def test_a_dry_run_refuses_the_lockfile_that_the_sweep_would(project):
    words = ("sweep", "sweeps/scale.yaml", "--device", f"replay:{RECORD}", "--dry-run")

    code, said = told(*words, "--lockfile", "none/a.lock")

    assert code == 3
    where = "error: none/a.lock: cannot be written: No such file or directory"
    assert said[said.index("error: ") :] == where + ELSEWHERE


def test_an_import_asks_before_it_looks_at_keys(project, monkeypatch):
    def looked(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(importing, "keys_of", looked)

    assert told(*IMPORT, "--lockfile", "full/a.lock")[0] == 3


def test_binaries_that_find_no_room_in_the_cache_are_one_error(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/cache/binaries/a")

    monkeypatch.setattr(compiling, "served", lambda *_: ())
    monkeypatch.setattr(bundle, "adopt", full)

    this = test_measure_sweep.job(tmp_path)

    with pytest.raises(EnvironmentFaultError) as caught:
        compiling.adopt(this, compiling.compilers(this), tmp_path)

    assert str(caught.value) == "/cache/binaries/a: cannot be copied: No space left on device"


@pytest.mark.parametrize("told_of", ["/cache/binaries/a", None])
def test_a_disk_that_takes_no_binary_is_no_fault_of_the_config(monkeypatch, told_of):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), told_of)

    monkeypatch.setenv("TRITON_CACHE_DIR", "/cache/binaries")
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # noqa: S108 - only named
    monkeypatch.setattr(lowering, "_lower", full)
    candidate = fakes.candidate()

    for attempt in (lowering.lower_loudly, lambda _, one: bench.guarded(one, full)):
        with pytest.raises(EnvironmentFaultError) as caught:
            attempt(None, candidate)

        assert str(caught.value) == (
            f"{told_of or '/cache/binaries'}: cannot be written: No space left on device\n"
            "hint: free some space there, and in /tmp; nothing finished is lost"
        )


def test_a_user_with_no_home_folder_is_told_how_to_name_a_cache(monkeypatch):
    def nobody(_: int) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "TRITUNE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)

    with pytest.raises(EnvironmentFaultError) as caught:
        places.cache_folder()

    assert str(caught.value) == (
        "this user has no home folder, where a cache would be\n"
        "hint: set TRITUNE_CACHE_DIR to a folder that can be written"
    )


def test_asking_makes_nothing(tmp_path):
    places.refuse_unwritable(tmp_path / "a" / "b")

    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").touch()
    with pytest.raises(EnvironmentFaultError) as caught:
        places.refuse_unwritable(tmp_path / "a" / "b")
    assert str(caught.value) == f"{tmp_path}/a/b: cannot be written: Not a directory"


def test_a_file_is_replaced_whole_and_keeps_its_link_and_mode(tmp_path):
    real, link = tmp_path / "real.py", tmp_path / "link.py"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)

    with real.open(encoding="utf-8") as reader:  # which has begun before
        places.write(link, "new")
        before = reader.read()

    assert (before, real.read_text(encoding="utf-8"), link.is_symlink()) == ("old", "new", True)
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.py", "real.py"]


def test_what_is_no_file_is_written_to_as_it_stands():
    places.write(Path("/dev/null"), "text")

    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_to_where_it_has_a_path(project):
    read, write = os.pipe()
    with os.fdopen(read, "rb") as reader:
        at = f"/dev/fd/{write}"
        code, said = told("export", "tritune.lock", "--format", "configs", "--output", at)
        os.close(write)
        text = reader.read()

    assert (code, said) == (0, f"wrote {at}\n")
    assert text.startswith(b'"""')

"""What a check says of entries after an edit of the kernel, of the sweep file, of the lockfile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from projects import H200, KERNEL, Project
from tritune import lock, pipeline
from tritune.check import DUE, Status, Today, failing, judge
from tritune.cli import tritune
from tritune.model import Config, Entry, Evidence, LockedKey
from tritune.pipeline import CheckOptions, looking

pytestmark = pytest.mark.lowering


@pytest.fixture
def project(fresh, tmp_path, monkeypatch) -> Project:
    copied = fresh.copy(tmp_path / "project")
    monkeypatch.chdir(copied.folder)
    monkeypatch.setattr(looking, "default_jobs", lambda: 1)  # two problems are not worth two
    monkeypatch.delenv("TRITUNE_LOCKFILE", raising=False)
    return copied


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


def statuses(project: Project, **options) -> list[Status]:
    checked = pipeline.check([project.sweep], CheckOptions(whole=True, **options))
    assert checked.faults == []
    return [finding.status for finding in checked.findings]


FRESH, STALE, OLDER = Status.FRESH, Status.STALE, Status.OLDER


def test_entries_of_an_unchanged_project_are_fresh_and_nothing_is_written(project):
    before = sorted(project.folder.rglob("*"))

    result = run("check")

    assert (result.stdout, result.stderr) == ("2 checked: 2 fresh\n", "")
    assert result.exit_code == 0
    after = [path for path in sorted(project.folder.rglob("*")) if "__pycache__" not in str(path)]
    assert after == before


SEMANTIC = {
    "a constexpr global": ("ops.py", "SHIFT = tl.constexpr(3.0)", "SHIFT = tl.constexpr(4.0)"),
    "a tuple of constexprs": ("ops.py", "(5.0, 7.0)", "(6.0, 7.0)"),
    "a constant behind a module alias": ("helpers.py", "tl.constexpr(2.0)", "tl.constexpr(2.5)"),
    "a helper's helper": ("helpers.py", "return x * 2.0", "return x * 3.0"),
    "a helper": ("helpers.py", "twice(x) + 1.0", "twice(x) + 1.5"),
    "a constexpr function": ("ops.py", "return n // 2", "return n // 4"),
    "the kernel itself": ("ops.py", "value = activate(value)", "value = -activate(value)"),
    "a mask": ("ops.py", "tl.load(x + at, mask=at < n)", "tl.load(x + at)"),
}
COSMETIC = {
    "a comment": ("ops.py", "    value = activate", "    # Twice.\n    value = activate"),
    "blank lines above": ("ops.py", "\n@tritune.kernel", "\n\n\n\n@tritune.kernel"),
    "a docstring": ("ops.py", '"""Scale."""', '"""Scale and shift."""'),
    "a moved function": (
        "helpers.py",
        "\n\n@triton.jit\ndef act(x):",
        "\n\nOTHER = 1\n\n\n\n@triton.jit\ndef act(x):",
    ),
    "an unused constant": ("helpers.py", "GAIN = ", "UNUSED = 9\nGAIN = "),
    "a line broken in two": ("ops.py", "x + at, mask=at < n)", "x + at,\n        mask=at < n)"),
}


EDITS = {**SEMANTIC, **COSMETIC, "a renamed local": ("ops.py", "value", "loaded")}


def edited(fresh: Project, folder: Path, **facts: object) -> dict[str, list[Status]]:
    """Each edit in modules of its own, all in one folder and one check: edit -> its statuses."""
    held, project = lock.read(fresh.lockfile), Project(folder)
    entries = []
    for number, (edit, (file, old, new)) in enumerate(EDITS.items()):
        for name in ("helpers.py", "ops.py"):
            text = (fresh.folder / name).read_text(encoding="utf-8")
            assert name != file or old in text, edit
            text = text.replace(old, new) if name == file else text
            text = text.replace("helpers", f"helpers{number}")
            project.write(name.replace(".py", f"{number}.py"), text)
        text = fresh.sweep.read_text(encoding="utf-8")
        project.write(f"sweeps/scale{number}.yaml", text.replace("ops.py", f"ops{number}.py"))
        kernel = KERNEL.replace("ops", f"ops{number}")
        entries += [(replace(at, kernel=kernel), entry) for at, entry in held.entries]
    lock.write(project.lockfile, replace(held, entries=tuple(entries)))
    project.edit_evidence(**facts)
    paths = [folder / f"sweeps/scale{number}.yaml" for number in range(len(EDITS))]
    checked = pipeline.check(paths, CheckOptions())
    assert checked.faults == []
    found = iter(checked.findings)
    return {edit: [next(found).status, next(found).status] for edit in EDITS}


@pytest.fixture(scope="module")
def under_the_same_triton(fresh, tmp_path_factory) -> dict[str, list[Status]]:
    return edited(fresh, tmp_path_factory.mktemp("same"))


@pytest.fixture(scope="module")
def under_another_triton(fresh, tmp_path_factory) -> dict[str, list[Status]]:
    return edited(fresh, tmp_path_factory.mktemp("other"), triton="3.3.1", ir="another1")


@pytest.mark.parametrize("edit", SEMANTIC)
def test_after_an_edit_of_what_a_kernel_computes_its_entries_are_stale(under_the_same_triton, edit):
    assert under_the_same_triton[edit] == [STALE, STALE]


@pytest.mark.parametrize("edit", [*COSMETIC, "a renamed local"])
def test_after_an_edit_that_changes_no_code_entries_stay_fresh(under_the_same_triton, edit):
    assert under_the_same_triton[edit] == [FRESH, FRESH]


@pytest.mark.parametrize("edit", [*SEMANTIC, *COSMETIC])
def test_under_another_triton_the_source_decides_and_unchanged_is_older(under_another_triton, edit):
    assert under_another_triton[edit] == [STALE if edit in SEMANTIC else OLDER] * 2


def test_modules_of_one_name_in_two_folders_are_told_apart(fresh, tmp_path):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for folder in (one, two, three):
        shutil.copytree(fresh.folder, folder)
    edit = Project.__new__(Project)
    edit.folder = two
    edit.edit(*SEMANTIC["a helper"])

    paths = [folder / "sweeps/scale.yaml" for folder in (one, two, three)]
    checked = pipeline.check(paths, CheckOptions())

    assert [one.status for one in checked.findings] == [FRESH, FRESH, STALE, STALE, FRESH, FRESH]


def test_under_another_triton_equal_ir_is_proof_that_only_names_changed(project):
    project.edit_evidence(triton="3.3.1")
    project.edit("ops.py", "value", "loaded")

    assert statuses(project) == [OLDER, OLDER]


def test_a_lockfile_from_before_there_were_digests_of_source_and_space_is_read(project):
    project.edit_evidence(source="", space="")

    assert statuses(project) == [FRESH, FRESH]
    project.edit_evidence(triton="3.3.1", ir="another1")
    assert statuses(project) == [OLDER, OLDER]


def test_another_process_hash_seed_and_checkout_give_the_same_answer(project, tmp_path):
    elsewhere = tmp_path / "another checkout"
    shutil.copytree(project.folder, elsewhere)
    code = "import sys; from tritune.cli import main; main()"

    for seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", code, "check", "--strict"],
            capture_output=True,
            text=True,
            check=False,
            cwd=elsewhere,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert (result.stdout, result.returncode) == ("2 checked: 2 fresh\n", 0), result.stderr


def test_a_stale_entry_is_named_with_its_line_and_the_check_is_a_no(project):
    project.edit(*SEMANTIC["a helper"])

    result = run("check")

    assert result.exit_code == 1
    assert result.stdout == (
        "tritune.lock:9: stale: scale_kernel on H200: n=1000 x=f32 y=f32: "
        "the kernel's code changed\n"
        "tritune.lock:13: stale: scale_kernel on H200: n=4096 x=f32 y=f32: "
        "the kernel's code changed\n"
        "2 checked: 2 stale\n"
        "next: on such a GPU, tritune sweep --stale\n"
    )


def test_the_next_step_of_files_that_were_named_names_them(project):
    project.edit(*SEMANTIC["a helper"])

    result = run("check", "sweeps/scale.yaml")

    assert result.exit_code == 1
    assert result.stdout.endswith("next: on such a GPU, tritune sweep --stale sweeps/scale.yaml\n")


def test_paths_in_the_next_steps_are_words_of_a_shell(project):
    (project.folder / "sweeps/scale.yaml").rename(project.folder / "sweeps/my scale.yaml")
    project.edit_evidence(unmeasured=True)
    project.lockfile.rename(project.folder / "my.lock; ls")

    result = run("check", "--strict", "sweeps/my scale.yaml", "--lockfile", "my.lock; ls")
    project.edit(*SEMANTIC["a helper"])
    stale = run("check", "sweeps/my scale.yaml", "--lockfile", "my.lock; ls")

    assert result.stdout.splitlines()[-1] == (
        "next: on such a GPU, tritune sweep 'sweeps/my scale.yaml' --lockfile 'my.lock; ls' times "
        "what is unmeasured"
    )
    assert stale.stdout.splitlines()[-1] == (
        "next: on such a GPU, tritune sweep --stale 'sweeps/my scale.yaml' --lockfile 'my.lock; ls'"
    )


def test_github_gets_an_annotation_at_the_line_of_every_stale_entry(project):
    project.edit(*SEMANTIC["a helper"])

    result = run("check", "--format", "github")

    assert result.exit_code == 1
    assert result.stdout == (
        "::error file=tritune.lock,line=9,title=stale::"
        "scale_kernel on H200: n=1000 x=f32 y=f32: the kernel's code changed\n"
        "::error file=tritune.lock,line=13,title=stale::"
        "scale_kernel on H200: n=4096 x=f32 y=f32: the kernel's code changed\n"
        "2 checked: 2 stale\n"
    )


def test_json_has_every_entry_the_fresh_ones_too(project):
    made = json.loads(run("check", "--json").stdout)

    assert made["counts"] == {"fresh": 2}
    assert made["findings"][0] == {
        "status": "fresh",
        "why": "",
        "kernel": KERNEL,
        "device": "H200",
        "key": "n=1000 x=f32 y=f32",
        "sweep": "sweeps/scale.yaml",
        "problem": {"n": 1000, "dtype": "float32"},
        "file": "tritune.lock",
        "line": 9,
        "broken": "",
    }


def test_a_config_added_to_the_space_makes_entries_stale(project):
    project.edit("sweeps/scale.yaml", "[256, 512]", "[256, 512, 1024]")

    result = run("check")

    assert result.exit_code == 1
    assert "x=f32 y=f32: the space that was searched changed\n" in result.stdout
    assert result.stdout.endswith(
        "2 checked: 2 stale\nnext: on such a GPU, tritune sweep --stale\n"
    )


def test_a_constraint_makes_only_those_entries_stale_whose_configs_it_removes(project):
    project.edit("sweeps/scale.yaml", "shapes:", "constraints: [BLOCK <= n / 3]\nshapes:")

    assert statuses(project) == [STALE, FRESH]


def test_a_constraint_that_removes_nothing_changes_nothing(project):
    project.edit("sweeps/scale.yaml", "shapes:", "constraints: [BLOCK <= 512]\nshapes:")

    assert statuses(project) == [FRESH, FRESH]


def test_a_shape_with_no_entry_is_missing_and_an_entry_with_no_shape_an_orphan(project):
    project.edit("sweeps/scale.yaml", "4096", "8192")

    result = run("check")

    assert result.exit_code == 1
    assert result.stdout == (
        "sweeps/scale.yaml:7: missing: scale_kernel on H200: n=8192 x=f32 y=f32: "
        "nothing is locked for it\n"
        "tritune.lock:13: orphan: scale_kernel on H200: n=4096 x=f32 y=f32: no shape asks for it\n"
        "3 checked: 1 missing · 1 fresh · 1 orphan\n"
        "next: on such a GPU, tritune sweep --stale\n"
    )


def test_a_target_of_the_file_with_no_entries_is_missing_as_a_whole(project):
    project.edit("sweeps/scale.yaml", "[H200]", "[H200, MI300X]")

    result = run("check")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "sweeps/scale.yaml:3: missing: scale_kernel on MI300X: "
        "nothing is locked for any of its 2 problems"
    )
    assert run("check", "--target", "H200").exit_code == 0
    assert run("check", "--target", "L40S").exit_code == 1
    assert run("check", "--target", "cuda:90").exit_code == 0


def test_a_lockfile_that_is_named_and_not_there_is_a_mistake_in_the_input(project):
    result = run("check", "sweeps/scale.yaml", "--lockfile", "nope.lock")

    assert (result.exit_code, result.stderr) == (
        2,
        (
            "Usage: tritune check [OPTIONS] [FILE]...\n"
            "Try 'tritune check --help' for help.\n\n"
            "Error: Invalid value for '--lockfile': File 'nope.lock' does not exist.\n"
        ),
    )


def test_with_no_lockfile_every_problem_is_missing(project):
    project.lockfile.unlink()

    result = run("check")

    assert (result.exit_code, result.stdout.splitlines()[-2]) == (1, "1 checked: 1 missing")


def test_an_entry_of_a_kernel_that_no_file_tunes_is_an_orphan_of_the_whole_project(project):
    held = lock.read(project.lockfile)
    at = LockedKey(kernel="ops:gone_kernel", device="H200", key="n=1")
    lock.write(project.lockfile, replace(held, entries=(*held.entries, (at, held.entries[0][1]))))

    whole, one = run("check", "--strict"), run("check", "--strict", "sweeps/scale.yaml")

    assert whole.stdout == (
        "tritune.lock:21: orphan: gone_kernel on H200: n=1: no sweep file tunes this kernel\n"
        "3 checked: 1 orphan · 2 fresh\n"
        "next: delete what is an orphan from tritune.lock, or add a shape that asks for it\n"
    )
    assert (whole.exit_code, one.exit_code) == (1, 0)


def test_the_next_step_of_a_strict_check_is_one_that_mends_it(project):
    project.edit("sweeps/scale.yaml", "4096", "8192")
    project.edit_evidence(unmeasured=True)
    (project.folder / "other.lock").write_bytes(project.lockfile.read_bytes())

    strict = run("check", "--strict")
    other = run("check", "--strict", "sweeps/scale.yaml", "--lockfile", "other.lock")
    project.edit("sweeps/scale.yaml", "[1000, 8192]", "[1000, 4096]")
    unmeasured = run("check", "--strict")
    project.edit_evidence(unmeasured=False, triton="3.3.1")
    older = run("check", "--strict")

    orphan = "delete what is an orphan from {}, or add a shape that asks for it"
    assert strict.stdout.splitlines()[-1] == (
        "next: on such a GPU, tritune sweep --stale · on such a GPU, tritune sweep "
        f"sweeps/scale.yaml times what is unmeasured · {orphan.format('tritune.lock')}"
    )
    assert other.stdout.splitlines()[-1] == (
        "next: on such a GPU, tritune sweep --stale sweeps/scale.yaml --lockfile other.lock · on "
        "such a GPU, tritune sweep sweeps/scale.yaml --lockfile other.lock times what is "
        f"unmeasured · {orphan.format('other.lock')}"
    )
    last = "next: on such a GPU, tritune sweep sweeps/scale.yaml times what is "
    assert unmeasured.stdout.splitlines()[-1] == f"{last}unmeasured"
    assert older.stdout.splitlines()[-1] == f"{last}older"


def test_a_config_that_the_kernel_cannot_run_any_more_is_stale(project):
    project.edit("ops.py", '"BLOCK": 256,', '"BLOCK": 256, "num_stages": 3,')

    result = run("check")

    assert result.stdout.splitlines()[0] == (
        "tritune.lock:9: stale: scale_kernel on H200: n=1000 x=f32 y=f32 and 1 more: the kernel "
        "cannot run it any more: its config has BLOCK, num_warps; the kernel has BLOCK, "
        "num_stages, num_warps"
    )


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (
            "ops.py",
            "(0, BLOCK)",
            "(0, BLOCK - 1)",
            "ValueError: arange's range must be a power of 2",
        ),
        ("helpers.py", "x * 2.0", "gone(x)", "CompilationError: NameError('gone is not defined')"),
    ],
)
def test_what_the_kernel_cannot_run_is_told_once_with_its_line(project, file, old, new, said):
    project.edit(file, old, new)
    lines = (project.folder / file).read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if new in text)

    result = run("check")

    first, counts, *_ = result.stdout.splitlines()
    assert first == (
        "tritune.lock:9: stale: scale_kernel on H200: n=1000 x=f32 y=f32 and 1 more: the kernel "
        f"cannot run it any more: {said} ({file}:{line})"
    )
    assert (counts, result.exit_code) == ("2 checked: 2 stale", 1)


def test_an_op_that_cannot_run_without_a_gpu_is_unknown_and_no_failure(project):
    project.edit("ops.py", "    y = torch.empty_like(x)", "    raise OSError('no GPU')")

    result = run("check")

    assert (result.exit_code, run("check", "--strict").exit_code) == (0, 1)
    assert result.stdout == (
        "sweeps/scale.yaml:7: unknown: scale_kernel on H200: n=1000 dtype=float32 and 1 more: "
        "cannot be lowered here: OSError: no GPU (ops.py:30)\n"
        "2 checked: 2 unknown\n"
    )


def test_a_kernel_module_that_cannot_be_imported_is_exit_2_with_its_line(project):
    project.edit("ops.py", "import tritune\n", "import tritune\nraise ValueError(1)\n")

    result = run("check")

    assert (result.exit_code, result.stdout) == (2, "0 checked: nothing that could be\n")
    assert result.stderr.startswith(f"error: {project.folder}/ops.py:8: ValueError: 1\n")


def test_a_damaged_lockfile_is_exit_2_with_its_line(project):
    text = project.lockfile.read_text(encoding="utf-8")
    project.write("tritune.lock", text[: len(text) // 2])

    result = run("check")

    assert result.exit_code == 2
    assert f"error: {project.folder}/tritune.lock:11: is cut off here" in result.stderr


def test_a_damaged_lockfile_of_two_sweep_files_is_told_once(project):
    text = project.lockfile.read_text(encoding="utf-8")
    project.write("tritune.lock", text[: len(text) // 2])
    project.write("sweeps/again.yaml", project.sweep.read_text(encoding="utf-8"))

    result = run("check", "sweeps/scale.yaml", "sweeps/again.yaml")

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {project.folder}/tritune.lock:11: is cut off here\n"
        "  hint: restore it from git, or delete the file and sweep again\n"
    )


def test_a_lockfile_that_may_not_be_written_is_checked(project):
    project.lockfile.chmod(0o444)

    assert run("check").exit_code == 0


def test_a_crash_of_ours_is_exit_3_and_never_1(project, monkeypatch):
    def crash(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(pipeline, "check", crash)

    assert run("check").exit_code == 3


def entry(**facts) -> Entry:
    plain = {
        "us": 1.0,
        "default_us": None,
        "margin": None,
        "noise": 0.0,
        "bits": "b",
        "ir": "i",
        "triton": "3.9.0",
        "source": "s",
        "space": "p",
    }
    return Entry(config=Config.of({"BLOCK": 1}), evidence=Evidence(**{**plain, **facts}))


TODAY = Today(triton="3.9.0", source="s", space="p", ir="i")


@pytest.mark.parametrize(
    ("made", "today", "status", "why"),
    [
        (entry(), TODAY, "fresh", ""),
        (None, TODAY, "missing", "nothing is locked for it"),
        (entry(source="t"), TODAY, "fresh", ""),
        (entry(unsettled=True), TODAY, "unsettled", "both sides of a merge changed it"),
        (entry(unsettled=True, ir="j"), TODAY, "stale", "the kernel's code changed"),
        (
            entry(unmeasured=True, ir="", triton="", source="", space=""),
            TODAY,
            "unmeasured",
            "it was imported, and nobody timed it here",
        ),
        (
            entry(triton="3.10.0"),
            TODAY,
            "older",
            "measured under Triton 3.10.0, and this is 3.9.0",
        ),
        (
            entry(),
            replace(TODAY, triton="3.9.0+git1a2b"),
            "older",
            "measured under Triton 3.9.0, and this is 3.9.0+git1a2b",
        ),
        (entry(ir=""), TODAY, "fresh", ""),
        (entry(ir="", source="t"), TODAY, "stale", "the kernel's code changed"),
        (
            entry(),
            replace(TODAY, broken="CompilationError: no"),
            "stale",
            "the kernel cannot run it any more: CompilationError: no",
        ),
        (
            entry(unmeasured=True),
            replace(TODAY, broken="CompilationError: no"),
            "stale",
            "the kernel cannot run it: CompilationError: no",
        ),
        (
            entry(),
            replace(TODAY, unknown="no answer after 60 s"),
            "unknown",
            "cannot be lowered here: no answer after 60 s",
        ),
    ],
)
def test_an_entry_has_one_status_and_a_reason(made, today, status, why):
    assert judge(made, today) == (Status(status), why)


def test_an_imported_config_that_takes_more_than_the_gpu_has_is_stale(project):
    project.take_shared_memory(available=2000, blocks=(1024, 256))

    result = run("check")

    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "tritune.lock:9: stale: scale_kernel on H200: n=1000 x=f32 y=f32: the kernel cannot run "
        "it: too much shared memory: at least 2048 bytes, 2000 available"
    )
    assert "2 checked: 1 stale · 1 unmeasured" in result.stdout


def test_an_entry_edited_to_what_the_gpu_has_not_is_stale(project):
    text = project.lockfile.read_text(encoding="utf-8")
    project.lockfile.write_text(text.replace('"num_warps": 4', '"num_warps": 64', 1), "utf-8")

    result = run("check")

    assert result.exit_code == 1
    assert "the kernel cannot run it any more: 64 warps are 2048 threads, 1024 available" in (
        result.stdout
    )


def test_a_strict_check_fails_for_all_that_is_not_fresh():
    assert failing(strict=False) == DUE == {Status.STALE, Status.MISSING, Status.UNSETTLED}
    assert failing(strict=True) == set(Status) - {Status.FRESH}


def test_entries_of_other_silicon_of_that_name_are_checked_as_what_they_are(project):
    held = lock.read(project.lockfile)
    other = replace(H200, name="H200 (66 SMs)", sms=66)
    more = tuple((replace(at, device=other.name), entry) for at, entry in held.entries)
    lock.write(
        project.lockfile, replace(held, devices=(H200, other), entries=(*held.entries, *more))
    )

    assert statuses(project) == [FRESH] * 4

"""The steps of our workflows, run one by one on a project whose times are replayed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from projects import Project
from tritune import lock

ROOT = Path(__file__).parent.parent
SETUP = ("make setup", 'echo "$PWD/.venv/bin" >> "$GITHUB_PATH"')
GH = """\
#!/bin/sh
printf '%s\\n' "$@" > "$RUNNER_TEMP/gh.txt"
"""
CRASH = """\
import tritune.cli.project


def crash(*_):
    raise ZeroDivisionError("oops")


tritune.cli.project.sweep_files = crash
"""
TIMES_US = {256: 10.0, 512: 20.0, 1024: 5.0}


@dataclass
class Run:
    """How far a workflow came: what its steps printed, and the exit code of the last one."""

    output: str
    code: int


class Runner:
    """A clone of a repository with one project, in which workflows run."""

    def __init__(self, folder: Path) -> None:
        self.temp = folder / "temp"
        self.bin = folder / "bin"
        self.project = Project(folder / "project")
        for each in (self.temp, self.bin):
            each.mkdir()
        (self.bin / "gh").write_text(GH, encoding="utf-8")
        (self.bin / "gh").chmod(0o755)
        (self.bin / "tritune").write_text(
            f'#!/bin/sh\nexec {sys.executable} -m tritune "$@"\n', encoding="utf-8"
        )
        (self.bin / "tritune").chmod(0o755)
        # The larger block, if it is ever asked for, is twice as fast.
        self.project.record(folder / "times.jsonl", TIMES_US, "3.3.1")
        self.journal = folder / "times.jsonl"

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.project.folder,
            check=True,
            capture_output=True,
            text=True,
            env=self.environment(),
        )
        return done.stdout

    def commit(self) -> None:
        """Commit all as `main`, with a bare repository to push to."""
        self.git("init", "-q", "-b", "main")
        (self.project.folder / ".gitignore").write_text("__pycache__\n", encoding="utf-8")
        self.git("add", "-A")
        self.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first")
        self.git("clone", "-q", "--bare", ".", str(self.temp / "origin"))
        self.git("remote", "add", "origin", str(self.temp / "origin"))

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TRITUNE_CACHE_DIR": str(self.temp / "cache"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            "GITHUB_RUN_ID": "17",
            "BASE": "HEAD",
            "DEVICE": f"replay:{self.journal}",
            **more,
        }

    def run(self, workflow: str, **more: str) -> Run:
        """Every step of a workflow as GitHub runs it, up to the first that fails."""
        text = (ROOT / f".github/workflows/{workflow}.yml").read_text(encoding="utf-8")
        [job] = yaml.safe_load(text)["jobs"].values()
        output = ""
        for script in (step["run"] for step in job["steps"] if "run" in step):
            if script.strip() in SETUP:
                continue
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
                cwd=self.project.folder,
                check=False,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self.environment(**more),
            )
            output += done.stdout
            if done.returncode:
                return Run(output, done.returncode)
        return Run(output, 0)

    @property
    def pull_request(self) -> list[str]:
        path = self.temp / "gh.txt"
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


@pytest.fixture
def runner(tmp_path, monkeypatch) -> Runner:
    monkeypatch.delenv("TRITUNE_LOCKFILE", raising=False)
    made = Runner(tmp_path)
    made.project.lock()
    made.commit()
    return made


def test_where_nothing_changed_nothing_is_measured_committed_or_proposed(runner):
    result = runner.run("lock")

    assert result.code == 0, result.output
    assert "sweeps/scale.yaml: no entry is stale, missing or unsettled" in result.output
    assert result.output.endswith("nothing to commit\n")
    assert runner.pull_request == []
    assert runner.git("status", "--porcelain") == ""
    summary = (runner.temp / "summary.md").read_text(encoding="utf-8")
    assert summary == "No lockfile entry differs.\n"


def test_a_changed_space_becomes_a_pull_request_with_the_markdown_diff(runner):
    runner.project.edit("sweeps/scale.yaml", "[256, 512]", "[256, 512, 1024]")
    runner.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "space")

    result = runner.run("lock")

    assert result.code == 0, result.output
    assert runner.pull_request[:4] == ["pr", "create", "--head", "lock/17"]
    body = Path(runner.pull_request[-1]).read_text(encoding="utf-8")
    assert body.startswith("### tritune.lock: 2 changed\n\n|  | kernel | device | key | config |")
    assert "| `n=1000 x=f32 y=f32` | BLOCK 256 → 1024 | 10.0 → 5.00 | 2.00" in body
    assert runner.git("ls-remote", "--heads", "origin").count("\n") == 2
    assert runner.git("show", "--stat", "--format=", "lock/17").startswith(" tritune.lock |")
    assert {entry.config["BLOCK"] for _, entry in lock.read(runner.project.lockfile).entries} == {
        1024
    }
    assert runner.run("check").code == 0


def test_a_stale_kernel_fails_the_check_at_the_entry_and_its_line(runner):
    runner.project.edit("helpers.py", "return x * 2.0", "return x * 3.0")

    result = runner.run("check")

    assert result.code == 1
    assert result.output == (
        "::error file=tritune.lock,line=9,title=stale::"
        "scale_kernel on H200: n=1000 x=f32 y=f32: the kernel's code changed\n"
        "::error file=tritune.lock,line=13,title=stale::"
        "scale_kernel on H200: n=4096 x=f32 y=f32: the kernel's code changed\n"
        "2 checked: 2 stale\n"
    )


@pytest.mark.parametrize("workflow", ["check", "lock"])
def test_a_crash_of_ours_is_no_answer_and_nothing_is_proposed(runner, tmp_path, workflow):
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash/sitecustomize.py").write_text(CRASH, encoding="utf-8")

    result = runner.run(workflow, PYTHONPATH=f"{tmp_path}/crash:{ROOT}")

    assert result.code == 3
    assert "error: tritune crashed; nothing finished is lost\n" in result.output
    assert runner.pull_request == []

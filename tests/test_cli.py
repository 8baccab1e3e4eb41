"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from test_views import (
    H200,
    LOCK,
    SUMMARY,
    config,
    evidence,
    problem,
    rejected,
    report,
    winner,
)
from tritune import lock, pipeline, setting, spec
from tritune.cli import filters, project, tritune
from tritune.errors import EnvironmentFaultError, ManyMistakesError, SpecError, TrituneError
from tritune.model import Reason
from tritune.pipeline import SweepOptions, narrowing
from tritune.pipeline.questions import Rejections
from tritune.space import SpaceCount

HEAVY = ("torch", "triton", "rich", "pydantic", "yaml", "numpy", "filelock", "simpleeval")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two sweep files, where the command line stands."""
    monkeypatch.chdir(tmp_path)
    Path("sweeps").mkdir()
    Path("sweeps/matmul.yaml").touch()
    Path("sweeps/softmax.yaml").touch()
    Path("pyproject.toml").write_text('[tool.tritune]\nsweeps = ["sweeps/*.yaml"]\n')
    return tmp_path


def sweeping(monkeypatch: pytest.MonkeyPatch, answer: Callable) -> list[tuple]:
    """Put *answer* in the place of the pipeline; returns the calls it gets."""
    calls = []

    def fake(path, options, observer):
        calls.append((str(path), options))
        observer.say(f"sweeping {path}")
        return answer(path)

    monkeypatch.setattr(pipeline, "run", fake)
    return calls


def failing(error: BaseException) -> Callable:
    def fail(*_):
        raise error

    return fail


def test_a_sweep_prints_its_summary_on_stdout_and_its_progress_on_stderr(folder, monkeypatch):
    calls = sweeping(monkeypatch, lambda _: (report(warnings=("it is warm here",)),))

    result = run("sweep", "sweeps/matmul.yaml")

    assert result.stdout == SUMMARY
    assert result.stderr == "sweeping sweeps/matmul.yaml\nwarning: it is warm here\n"
    assert result.exit_code == 0
    assert calls == [("sweeps/matmul.yaml", SweepOptions())]


def test_every_option_of_a_sweep_reaches_the_pipeline(folder, monkeypatch):
    calls = sweeping(monkeypatch, lambda _: (report(),))
    given = (
        "--only 'M>1' --device 1 --target H200 --lockfile other.lock --dry-run --jobs 3 "
        "--budget-compile 7.5 --journal journals --fresh --budget 60 --allow-noisy "
        "--compile-limit 9.5 --compiled sweeps"
    )

    run("sweep", "sweeps/matmul.yaml", *given.replace("'", "").split())

    assert calls[0][1] == SweepOptions(
        only="M>1",
        device="1",
        target="H200",
        lockfile=Path("other.lock"),
        dry_run=True,
        jobs=3,
        compile_budget_s=7.5,
        journal=Path("journals"),
        fresh=True,
        budget_s=60.0,
        allow_noisy=True,
        compile_limit_s=9.5,
        compiled=Path("sweeps"),
    )


def test_a_sweep_of_what_is_stale_leaves_fresh_files_alone(folder, monkeypatch):
    calls = sweeping(monkeypatch, lambda _: (report(),))
    monkeypatch.setattr(pipeline, "not_fresh", lambda paths, options: paths[1:])

    result = run("sweep", "--stale")

    assert calls == [("sweeps/softmax.yaml", SweepOptions(stale=True))]
    assert result.stderr.splitlines()[0] == (
        "sweeps/matmul.yaml: no entry is stale, missing or unsettled"
    )


def test_with_no_file_it_sweeps_what_the_nearest_pyproject_names(folder, monkeypatch):
    calls = sweeping(monkeypatch, lambda _: (report(),))
    monkeypatch.chdir("sweeps")

    run("sweep")

    assert [path for path, _ in calls] == ["matmul.yaml", "softmax.yaml"]


def test_a_problem_with_no_valid_config_is_exit_1(folder, monkeypatch):
    sweeping(monkeypatch, lambda _: (report(unsolved=(problem(1),)),))

    assert run("sweep", "sweeps/matmul.yaml").exit_code == 1


def test_a_wrong_file_does_not_keep_the_others_from_their_sweep(folder, monkeypatch):
    def answer(path):
        if path.stem == "matmul":
            raise SpecError("no kernel", where=str(path), hint="name one")
        return (report(),)

    sweeping(monkeypatch, answer)

    result = run("sweep")

    assert result.stdout == SUMMARY
    assert result.stderr.endswith("error: sweeps/matmul.yaml: no kernel\n\nhint: name one\n")
    assert result.exit_code == 2


def test_a_fault_of_the_machine_stops_all_files_at_once(folder, monkeypatch):
    calls = sweeping(monkeypatch, failing(EnvironmentFaultError("no C compiler")))

    result = run("sweep")

    assert (len(calls), result.exit_code) == (1, 3)
    assert result.stderr.endswith("error: no C compiler\n")


def test_every_mistake_of_a_file_is_a_line_of_its_own(folder, monkeypatch):
    mistakes = [
        SpecError("expected an integer", where="a.yaml:3:22: space.BLOCK_M[1]"),
        SpecError("`BLOCK_X` is not a parameter", where="a.yaml:4:3", hint="it has BLOCK_M"),
    ]
    sweeping(monkeypatch, failing(ManyMistakesError(mistakes)))

    result = run("sweep", "sweeps/matmul.yaml")

    assert result.exit_code == 2
    assert result.stderr.split("\n", 1)[1] == (
        "error: a.yaml:3:22: space.BLOCK_M[1]: expected an integer\n"
        "error: a.yaml:4:3: `BLOCK_X` is not a parameter\n"
        "  hint: it has BLOCK_M\n"
    )


def test_a_sweep_as_json_is_one_document_whatever_happened(folder, monkeypatch):
    def answer(path):
        if path.stem == "softmax":
            raise SpecError("no kernel", where=str(path))
        return (report(),)

    sweeping(monkeypatch, answer)

    result = run("sweep", "--json")

    assert [each["locked"] for each in json.loads(result.stdout)["reports"]] == [True]
    assert result.exit_code == 2


def test_an_interrupted_sweep_is_exit_130(folder, monkeypatch):
    sweeping(monkeypatch, failing(KeyboardInterrupt()))

    result = run("sweep", "sweeps/matmul.yaml")

    assert result.exit_code == 130
    assert result.stderr.endswith("interrupted; nothing finished is lost\n")


LONG = "x" * 300
CALL = "import sys; from tritune.cli import main; main()"
INTERRUPTED = """\
import atexit, os, signal
from tritune import pipeline
from tritune.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
pipeline.device = lambda: os.kill(os.getpid(), signal.{how})
atexit.register(os.kill, os.getpid(), signal.SIGINT)
main()
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_what_is_told_to_end_says_so_and_is_not_disturbed_while_it_does(how):
    result = python(INTERRUPTED.format(how=how), "show", "device")

    assert result.returncode == 130
    assert result.stderr == "interrupted; nothing finished is lost\n"


@pytest.mark.parametrize("start", ["-m tritune", f"-c '{CALL}'"])
def test_a_folder_that_has_been_removed_is_no_crash(tmp_path, start):
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone; rmdir ../gone; {sys.executable} {start} check"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}

    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env=environ
    )

    assert result.stderr == (
        "error: the current folder has been removed\n\n"
        "hint: change to one that is there: `cd .` if it was made anew\n"
    )
    assert result.returncode == 2


def test_our_own_crash_is_exit_3_with_its_traceback(folder, monkeypatch):
    sweeping(monkeypatch, failing(ZeroDivisionError("oops")))

    result = run("sweep", "sweeps/matmul.yaml")

    assert result.exit_code == 3
    assert "Traceback" in result.stderr
    assert result.stderr.endswith(
        "ZeroDivisionError: oops\n"
        "error: tritune crashed; nothing finished is lost\n\n"
        "hint: this is a bug in tritune: report it with the lines above\n"
    )


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("import", f"{LONG}:T", "--kernel", "ops:k"), f"{LONG}:T"),
        (("init", f"{LONG}.py:k"), f"FOLDER/{LONG}.py"),
        (("diff", LONG), LONG),
    ],
)
def test_a_path_that_no_system_opens_is_an_error_and_no_crash(folder, arguments, where):
    result = run(*arguments)

    assert result.stderr == (
        f"error: {where.replace('FOLDER', str(folder))}: file name too long\n\n"
        "hint: name a path that can be opened\n"
    )
    assert result.exit_code == 2


def test_an_error_of_click_that_says_1_comes_out_as_2(folder, monkeypatch):
    sweeping(monkeypatch, failing(click.FileError("x.yaml", "gone")))

    assert run("sweep", "sweeps/matmul.yaml").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweeep",),
        ("sweep", "no/such/file.yaml"),
        ("sweep", "--jobs", "0"),
        ("sweep", "--no-such-option"),
        ("show", "space"),
        ("show", "nothing"),
        ("show", "rejected", "pyproject.toml", "M"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2(folder, arguments):
    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")


def test_with_no_file_and_no_project_it_says_how_to_name_one(tmp_path, monkeypatch):
    monkeypatch.setattr(project, "_pyproject", lambda _: None)
    monkeypatch.chdir(tmp_path)

    result = run("sweep")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: no sweep file given, and no pyproject.toml here or above\n"
        "\n"
        'hint: name sweep files, or add `[tool.tritune] sweeps = ["sweeps/*.yaml"]`'
        " to pyproject.toml\n"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "no sweep file given, and no pyproject.toml here or above"),
        ("", "{}/pyproject.toml: tool.tritune.sweeps: no sweep file given, and none named here"),
    ],
)
def test_a_command_that_takes_no_sweep_file_does_not_tell_to_name_one(
    tmp_path, monkeypatch, text, what
):
    monkeypatch.chdir(tmp_path)
    Path(".git").mkdir()
    if text is not None:
        Path("pyproject.toml").write_text(text, encoding="utf-8")

    result = run("retime")

    assert (result.exit_code, result.stderr) == (
        2,
        (
            f"error: {what.format(tmp_path)}\n\n"
            'hint: add `[tool.tritune] sweeps = ["sweeps/*.yaml"]` to pyproject.toml\n'
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.other]\n", "tool.tritune.sweeps: no sweep file given, and none named here"),
        ("[tool.tritune]\nsweeps = 3\n", "expected a list of file patterns"),
        ("[tool.tritune]\nsweeps = []\n", "tool.tritune.sweeps: it names no sweep file\n\nhint: "),
        ("[tool.tritune]\nsweeps = ['/x.yaml']\n", "patterns are relative to this file"),
        (
            "[tool.tritune]\nsweeps = ['none/*.yaml']\n",
            "no file matches `none/*.yaml`\n\nhint: write them from the folder of this file, ",
        ),
        (
            "[tool.tritune]\nsweep = ['sweeps/*.yaml']\n",
            "none named here\n\nhint: write `sweeps` for its `sweep`\n",
        ),
        ("[tool.tritune\n", "not TOML: "),
        (
            "[tool.tritune]\nsweeps = ['sweeps/**.yaml']\n",
            "tool.tritune.sweeps: `sweeps/**.yaml` is no pattern of files\n\nhint: write ",
        ),
        ("[tool.tritune]\nsweeps = ['.']\n", "tool.tritune.sweeps: `.` is no pattern of files"),
    ],
)
def test_a_pyproject_that_names_no_sweeps_is_named_with_the_mistake(folder, text, message):
    Path("pyproject.toml").write_text(text)

    result = run("sweep")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {folder}/pyproject.toml: ")
    assert message in result.stderr


def test_a_digit_that_is_no_number_is_no_device():
    with pytest.raises(TrituneError) as caught:
        setting.gpu("²", Path("device.log"), hint="")

    assert str(caught.value) == (
        "--device: `²` is not a device of this version\n"
        "hint: give one index, such as 0, or replay:JOURNAL"
    )


def test_a_journal_that_is_not_there_says_what_one_is(tmp_path):
    sweep = spec.parse_sweep("kernel: ops:f\nshapes: [{n: 1}]", path="s.yaml")

    with pytest.raises(TrituneError) as caught:
        setting.find(sweep, device="replay:nope", target=None, log=tmp_path / "device.log")

    assert str(caught.value) == (
        "replay:nope: there is no such journal\n"
        "hint: give the file of a journal, as replay:sweeps/recorded/matmul.H200.jsonl.gz"
    )


@pytest.mark.parametrize(
    ("only", "said"),
    [
        ("n = 3", "not an expression\nhint: write `n == 3`"),
        ("n >", "not an expression\nhint: axes: n, dtype"),
        (
            "dtype == float16",
            (
                "'float16' is not defined for expression 'dtype == float16'\n"
                'hint: quote it: "float16"'
            ),
        ),
        ("Q > 1", "'Q' is not defined for expression 'Q > 1'\nhint: axes: n, dtype"),
        ("n == 9", "no problem is left\nhint: there is n=1 dtype=float16; n=2 dtype=float16"),
    ],
)
def test_an_only_that_keeps_nothing_says_what_to_write(only, said):
    shapes = "shapes: [{n: [1, 2], dtype: float16}]"
    sweep = spec.parse_sweep(f"kernel: ops:f\n{shapes}", path="s.yaml")

    with pytest.raises(TrituneError) as caught:
        narrowing.narrowed(sweep, only)

    assert str(caught.value) == f"--only {only}: {said}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("swep",), "Error: No such command 'swep'. Did you mean 'sweep'?\n"),
        (("show", "lockfle"), "Error: No such command 'lockfle'. Did you mean 'lockfile'?\n"),
        (("zzz",), "Error: No such command 'zzz'.\n"),
        (
            ("sweep", "sweeps/scale.yaml"),  # nothing but its suffix is like `matmul.yaml`
            "Error: Invalid value for '[FILE]...': File 'sweeps/scale.yaml' does not exist.\n",
        ),
        (
            ("sweep", "sweeps/matmull.yaml"),
            (
                "Error: Invalid value for '[FILE]...': File 'sweeps/matmull.yaml' does not exist. "
                "Did you mean 'sweeps/matmul.yaml'?\n"
            ),
        ),
    ],
)
def test_a_slip_in_the_name_of_a_command_or_a_file_is_told_what_is_meant(folder, arguments, said):
    result = run(*arguments)

    assert (result.exit_code, result.stderr.endswith(said)) == (2, True), result.stderr


def test_show_lockfile_finds_the_lockfiles_of_the_project(folder):
    for place in ("kernels", ".hidden", "env"):
        Path(place).mkdir()
        lock.write(Path(place, "tritune.lock"), LOCK)
    Path("env/pyvenv.cfg").touch()

    result = run("show", "lockfile")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        "kernels/tritune.lock: 3 entries, 2 kernels, 2 devices"
    )
    assert result.stdout.count("tritune.lock") == 1


def test_show_lockfile_says_where_it_looked_when_there_is_none(folder):
    result = run("show", "lockfile")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: no tritune.lock below {folder}\n\nhint: `tritune sweep` writes one\n"
    )


def keys(*arguments: str) -> list[str]:
    lock.write("tritune.lock", LOCK)
    result = run("show", "lockfile", "tritune.lock", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    [made] = json.loads(result.stdout)["lockfiles"]
    return [entry["key"] for entry in made["entries"]]


def test_show_lockfile_keeps_a_kernel_a_device_or_what_an_expression_says(folder):
    small, large, rows = [key.key for key, _ in LOCK.entries]

    assert keys("--kernel", "softmax_kernel") == [rows]
    assert keys("--kernel", "kernels.matmul:matmul_kernel") == [small, large]
    assert keys("--device", "mi300x") == [rows]
    assert keys("--only", "M >= 1024") == [large]
    assert keys("--only", 'a == "f16" and M < 1024') == [small]
    assert keys("--only", "n > 0 or True") == [rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kernel", "x"), "no `x` here; there is kernels.matmul:matmul_kernel, kernels.s"),
        (("--device", "A100"), "no `A100` here; there is H200, MI300X"),
        (("--only", "Q > 1"), "no `Q` here; there is K, M, N, a, b, n, x"),
        (("--kernel", "softmax_kernel", "--only", "M > 1"), "no `M` here; there is n, x"),
        (("--kernel", "softmax_kernel", "--device", "H200"), "no `H200` here; there is MI300X"),
        (
            ("--only", "M == 99"),
            "error: --only M == 99: no entry is left hint: locked are M=64 N=4096 ",
        ),
        (("--only", "M >"), "'M >': not an expression"),
        (("--only", "M = 9"), "'M = 9': not an expression; write `M == 9`"),
        (("--only", "a == f16"), "'a == f16': quote it: \"f16\""),
        (("--only", "a > 1"), "'a > 1': "),
    ],
)
def test_a_filter_that_names_nothing_is_a_mistake(folder, arguments, message):
    lock.write("tritune.lock", LOCK)

    result = run("show", "lockfile", "tritune.lock", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.split())


def test_show_rejected_keeps_the_values_it_is_given(folder, monkeypatch):
    rows = (
        rejected(),
        rejected(problem(4096), config(256), reason=Reason.COMPILE),
        rejected(problem(4096), config(128)),
    )
    found = Rejections(outcomes=rows, names=frozenset())
    monkeypatch.setattr(pipeline, "rejected", lambda path, options: found)

    result = run("show", "rejected", "sweeps/matmul.yaml", "M=4096", "BLOCK_M=256", "--json")
    text = run("show", "rejected", "sweeps/matmul.yaml", "M=4096")
    wrong = run("show", "rejected", "sweeps/matmul.yaml", "BLOCK_X=1")

    assert [each["reason"] for each in json.loads(result.stdout)["rejected"]] == [
        "does not compile"
    ]
    assert text.stdout.endswith("\n2 rejected configs\n")
    assert "no `BLOCK_X` here; there is BLOCK_K, BLOCK_M" in " ".join(wrong.stderr.split())
    assert wrong.exit_code == 2


def test_show_space_counts_configs(folder, monkeypatch):
    counts = SpaceCount(configs=12, removed=(), left=((problem(), 12),))
    monkeypatch.setattr(pipeline, "space_counts", lambda path, options: (counts,))

    assert run("show", "space", "sweeps/matmul.yaml").stdout == (
        "sweeps/matmul.yaml        configs\n"
        "the whole space                12\n"
        "left for all of 1 problem      12\n"
    )
    made = json.loads(run("show", "space", "sweeps/matmul.yaml", "--json").stdout)
    assert (made["configs"], made["left"][0]["configs"]) == (12, 12)
    assert [one["configs"] for one in made["spaces"]] == [12]


@pytest.mark.parametrize(("left", "code"), [((0, 0), 1), ((0, 3), 0)])
def test_a_space_of_which_nothing_is_left_is_a_no(folder, monkeypatch, left, code):
    counts = SpaceCount(configs=3, removed=(), left=tuple((problem(), number) for number in left))
    monkeypatch.setattr(pipeline, "space_counts", lambda path, options: (counts,))

    assert run("show", "space", "sweeps/matmul.yaml").exit_code == code
    assert run("show", "space", "sweeps/matmul.yaml", "--json").exit_code == code


def test_one_kernel_of_several_of_which_nothing_is_left_is_a_no(folder, monkeypatch):
    spaces = tuple(
        SpaceCount(configs=3, removed=(), left=((problem(), number),), kernel="ops:k")
        for number in (3, 0)
    )
    monkeypatch.setattr(pipeline, "space_counts", lambda path, options: spaces)

    assert run("show", "space", "sweeps/matmul.yaml").exit_code == 1


def test_show_device_shows_the_gpu_or_says_that_there_is_none(monkeypatch):
    monkeypatch.setattr(pipeline, "device", lambda: H200)
    assert run("show", "device").stdout.startswith("H200\nbackend ")
    assert json.loads(run("show", "device", "--json").stdout)["device"]["name"] == "H200"

    monkeypatch.setattr(pipeline, "device", lambda: None)
    none = run("show", "device")
    assert (none.exit_code, none.stdout) == (3, "")
    assert none.stderr == (
        "error: no GPU on this machine that torch and Triton can use\n\n"
        "hint: `tritune sweep --target H200` compiles and verifies for one without it\n"
    )


def test_a_key_is_read_as_numbers_and_words():
    assert filters.key_values("M=64 CAUSAL=True a=f16(unaligned) b=none") == {
        "M": 64,
        "CAUSAL": True,
        "a": "f16(unaligned)",
        "b": None,
    }


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("arguments", [("--help",), ("sweep", "--help"), ("show", "--help")])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import atexit, sys; "
        f"atexit.register(lambda: print('heavy:', *sorted(set({HEAVY}) & set(sys.modules)))); "
        + CALL
    )

    result = python(code, *arguments)

    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("heavy:\n")


def test_show_lockfile_opens_no_file_for_writing(tmp_path):
    lock.write(tmp_path / "tritune.lock", LOCK)
    watch = (
        "import os, sys\n"
        "def hook(event, args):\n"
        "    if event == 'open' and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):\n"
        "        raise SystemExit(f'writes {args[0]}')\n"
        "    if event in ('os.mkdir', 'os.remove', 'os.rename'):\n"
        "        raise SystemExit(f'{event} {args}')\n"
        "sys.addaudithook(hook)\n"
    )

    result = python(watch + CALL, "show", "lockfile", str(tmp_path / "tritune.lock"), HOME="/null")

    assert (result.returncode, result.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["tritune.lock"]


def test_a_reader_that_goes_away_is_no_answer_and_no_traceback(tmp_path):
    lock.write(tmp_path / "tritune.lock", LOCK)
    command = f"{sys.executable} -c '{CALL}' show lockfile {tmp_path}/tritune.lock"

    result = subprocess.run(
        ["bash", "-c", f"{command} > >(:); echo $?"], capture_output=True, text=True, check=True
    )

    assert result.stderr == ""
    assert result.stdout.strip() in {"141", "0"}


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        (">&-", "0", ""),
        (">/dev/full", "3", "error: cannot be written: No space left on device\n"),
    ],
)
def test_a_stdout_that_is_closed_or_full_is_no_bug_of_ours(tmp_path, to, code, said):
    lock.write(tmp_path / "tritune.lock", LOCK)
    main = "from tritune.cli import main; main()"
    command = f"{sys.executable} -c '{main}' show lockfile {tmp_path}/tritune.lock"

    result = subprocess.run(
        ["bash", "-c", f"{command} {to}; echo $?"], capture_output=True, text=True, check=True
    )

    assert (result.stdout.strip(), result.stderr) == (code, said)


def test_an_ascii_terminal_gets_question_marks_and_no_crash(tmp_path):
    lock.write(tmp_path / "tritune.lock", LOCK)

    result = python(CALL, "show", "lockfile", f"{tmp_path}/tritune.lock", PYTHONIOENCODING="ascii")

    assert (result.returncode, result.stderr) == (0, "")
    assert "2.88?" in result.stdout


def test_winners_are_what_the_exit_code_is_about(folder, monkeypatch):
    alone = report(winners=(winner(problem(), config(), evidence()),))
    sweeping(monkeypatch, lambda _: (alone, report(unsolved=(problem(2),))))

    assert run("sweep", "sweeps/matmul.yaml").exit_code == 1

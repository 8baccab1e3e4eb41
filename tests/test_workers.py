"""Workers: what a call may do to its process, and what is left of it."""

# ruff: noqa: T201  # a call may print

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tritune.cores import default_jobs
from tritune.errors import KernelError
from tritune.workers import Died, Done, Pool, Raised, TimedOut, Worker


def number(value: int = 0) -> int:
    print("made")
    return value


def refuse() -> None:
    raise KernelError("no such kernel", where="ops.py:3", hint="write one")


def add(state: int, other: int) -> int:
    return state + other


def variables(state: int) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("TRITUNE_MISS", "TRITUNE_LOG", "TRITUNE")}


def who(state: int) -> int:
    return os.getpid()


def see(state: int) -> tuple[list[str], str | None, str | None, str, str]:
    modules = [name for name in ("torch", "triton") if name in sys.modules]
    environ = os.environ.get
    return sys.argv[1:], environ("ADDED"), environ("TAKEN"), str(Path.cwd()), " ".join(modules)


def shout(state: int) -> None:
    print("an old story", flush=True)
    subprocess.run(["sh", "-c", "echo from a compiler; echo and its errors >&2"], check=True)


def silence(state: int, how: str) -> int:
    if how == "closed":
        sys.stdout.close()
    else:
        sys.stdout = None if how == "gone" else object()  # type: ignore[assignment]
    return state


def abort(state: int) -> None:
    print("LLVM ERROR: boom")
    os.abort()


def leave(state: int) -> None:
    sys.exit(3)


def leave_at_once(state: int) -> None:
    os._exit(7)


def fail(state: int) -> None:
    print("a line of PTX")
    raise ValueError("too\nbad")


def unpicklable(state: int) -> object:
    return lambda: None


def start_compiler(state: int, pids: Path, last: int = 300) -> None:
    """Stand for a compiler that never returns, in a grandchild and in C with Python locked."""
    compiler = subprocess.Popen(["sleep", "300"])
    pids.write_text(f"{os.getpid()} {compiler.pid}\n")
    ctypes.PyDLL(None).sleep(last)


def start_compiler_and_abort(state: int, pids: Path) -> None:
    start_compiler(state, pids, 0)
    os.abort()


def slow_on_third(state: int, index: int) -> int:
    time.sleep(60 if index == 3 else 0)
    return index


def nap(state: int, seconds: float) -> None:
    time.sleep(seconds)


def group(leader: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, leader_of_it, *_ = stat.read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if int(leader_of_it) == leader and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def until_gone(leader: int) -> list[int]:
    deadline = time.monotonic() + 10
    while (left := group(leader)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with Worker(number, 40, log=tmp_path / "log") as made:
        yield made


def pids_in(file: Path) -> tuple[int, int]:
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    leader, compiler = map(int, file.read_text().split())
    assert {leader, compiler} <= set(group(leader))
    return leader, compiler


def test_a_call_is_answered_from_the_state_that_was_made_once(worker: Worker, tmp_path: Path):
    answers = [worker.call(add, 2, timeout_s=60), worker.call(add, 3)]

    assert answers == [Done(42), Done(43)]
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_call_sees_no_command_line_and_the_environment_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TAKEN", "1")
    monkeypatch.chdir(tmp_path)
    with Worker(number, log=tmp_path / "log", env={"ADDED": "2", "TAKEN": None}) as worker:
        answer = worker.call(see)

    assert answer == Done(([], "2", None, str(tmp_path), "torch triton"))


def test_a_call_that_is_to_interpret_kernels_imports_triton_itself(tmp_path: Path):
    with Worker(number, log=tmp_path / "log", env={"TRITON_INTERPRET": "1"}) as worker:
        answer = worker.call(see)

    assert isinstance(answer, Done)
    assert answer.value[-1] == ""


def test_what_a_call_and_its_compilers_print_goes_to_the_log(
    worker: Worker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    worker.call(shout)

    assert (tmp_path / "log").read_text() == (
        "made\nan old story\nfrom a compiler\nand its errors\n"
    )
    assert capfd.readouterr() == ("", "")


def test_an_exception_comes_back_with_what_only_that_call_printed(worker: Worker):
    worker.call(shout)

    answer = worker.call(fail)

    assert isinstance(answer, Raised)
    assert (answer.type_name, answer.message) == ("ValueError", "too\nbad")
    assert answer.output == "a line of PTX\n"
    assert answer.traceback.endswith('    raise ValueError("too\\nbad")\nValueError: too\nbad\n')
    assert worker.call(add, 2) == Done(42)


def test_an_error_of_ours_comes_back_whole(tmp_path: Path):
    with Worker(refuse, log=tmp_path / "log") as worker:
        answer = worker.call(add, 1)

    assert isinstance(answer, Raised)
    assert isinstance(answer.error, KernelError)
    assert str(answer.error) == "ops.py:3: no such kernel\nhint: write one"
    assert worker.setup_failed


def test_a_crash_is_an_answer_and_the_next_call_starts_afresh(worker: Worker):
    answer = worker.call(abort)

    assert isinstance(answer, Died)
    assert str(answer) == "killed by signal 6 (SIGABRT)"
    assert answer.output.startswith("LLVM ERROR: boom\nFatal Python error: Aborted\n")
    assert worker.call(add, 2) == Done(42)


def test_what_a_worker_launches_is_no_miss_of_the_users(tmp_path: Path, monkeypatch):
    for name in ("TRITUNE_MISS", "TRITUNE_LOG", "TRITUNE"):
        monkeypatch.setenv(name, "error")

    with Worker(number, 40, log=tmp_path / "log") as made:
        answer = made.call(variables)

    assert answer == Done({"TRITUNE_MISS": None, "TRITUNE_LOG": None, "TRITUNE": "error"})


@pytest.mark.parametrize("how", ["closed", "gone", "replaced"])
def test_whatever_a_module_does_to_its_output_a_call_is_answered(worker: Worker, how: str):
    assert worker.call(silence, how) == Done(40)


def test_an_exit_is_an_answer(worker: Worker):
    exits = worker.call(leave), worker.call(leave_at_once)

    assert str(exits[0]) == f"SystemExit: 3 ({__file__}:{leave.__code__.co_firstlineno + 1})"
    assert str(exits[1]) == "exited with code 7"


def test_a_value_that_cannot_travel_is_an_exception(worker: Worker):
    answer = worker.call(unpicklable)

    assert isinstance(answer, Raised)
    assert "pickle" in answer.message


def test_a_time_limit_ends_the_call_and_the_compiler_it_started(worker: Worker, tmp_path: Path):
    answer = worker.call(start_compiler, tmp_path / "pids", timeout_s=2.0)

    assert answer == TimedOut(2.0)
    assert str(answer) == "no answer after 2 s"
    leader = int((tmp_path / "pids").read_text().split()[0])
    assert until_gone(leader) == []


def test_a_setup_has_a_limit_of_its_own(tmp_path: Path):
    with Worker(time.sleep, 60, log=tmp_path / "log", setup_limit_s=0.5) as worker:
        answer = worker.call(who, timeout_s=60)

    assert answer == TimedOut(0.5)


def test_no_compiler_outlives_a_crash(worker: Worker, tmp_path: Path):
    worker.call(start_compiler_and_abort, tmp_path / "pids")

    leader = int((tmp_path / "pids").read_text().split()[0])
    assert until_gone(leader) == []


def test_no_process_is_left_after_close(worker: Worker):
    answer = worker.call(who)
    assert isinstance(answer, Done)
    assert group(answer.value)

    worker.close()

    assert until_gone(answer.value) == []


PARENT = """
import signal, sys
from pathlib import Path
from test_workers import number, start_compiler
from tritune.workers import Worker
folder = Path(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
worker = Worker(number, log=folder / "log")
worker.call(start_compiler, folder / "pids", int(sys.argv[2]))
"""


def parent(folder: Path, *, last: int) -> subprocess.Popen[str]:
    """Start a sweep of one call, which never returns or, with *last* 0, leaves a compiler."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), str(last)],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_when_the_sweep_is_killed_or_interrupted(
    tmp_path: Path, how: signal.Signals
):
    with parent(tmp_path, last=300) as sweep:
        leader, _ = pids_in(tmp_path / "pids")

        os.killpg(sweep.pid, how)  # a terminal's Ctrl-C goes to the whole group

        _, said = sweep.communicate(timeout=20)
    assert until_gone(leader) == []
    assert until_gone(sweep.pid) == []  # its fork server, too
    assert said.count("Traceback") == (1 if how is signal.SIGINT else 0)


def test_no_process_is_left_when_a_sweep_ends_without_closing_its_worker(tmp_path: Path):
    with parent(tmp_path, last=0) as sweep:
        assert sweep.communicate(timeout=60) == (None, "")

    leader = int((tmp_path / "pids").read_text().split()[0])
    assert until_gone(leader) == []


SCRIPT = """
import sys
from pathlib import Path
from test_workers import number
from tritune.workers import Worker
if __name__ == "__main__":
    with Worker(number, 40, log=Path("log")) as worker:
        print(worker.call(number, timeout_s=60))
"""


def test_a_module_of_the_current_folder_stands_for_none_of_pythons(tmp_path: Path):
    (tmp_path / "json.py").write_text("raise AssertionError", encoding="utf-8")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "call.py").write_text(SCRIPT, encoding="utf-8")
    here = Path(__file__).resolve().parent

    said = subprocess.run(
        [sys.executable, "scripts/call.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (said.stdout, said.stderr) == ("Done(value=40)\n", "")


def test_answers_of_a_pool_come_with_the_index_of_their_task(tmp_path: Path):
    with Pool(2, number, 100, log_folder=tmp_path) as pool:
        answers = dict(pool.run(add, ((i,) for i in range(9)), 60.0))

    assert answers == {i: Done(100 + i) for i in range(9)}


def test_a_task_that_hangs_costs_a_pool_that_task_only(tmp_path: Path):
    with Pool(2, number, log_folder=tmp_path) as pool:
        answers = dict(pool.run(slow_on_third, [(i,) for i in range(8)], 0.5))

    assert answers == {i: TimedOut(0.5) if i == 3 else Done(i) for i in range(8)}


def test_a_limit_that_shrinks_cuts_off_a_call_that_is_under_way(tmp_path: Path):
    limits = iter([60.0, 60.0])

    with Pool(2, number, log_folder=tmp_path) as pool:
        calls = pool.run(slow_on_third, [(3,), (0,), (1,)], lambda spent: next(limits, 0.3))
        answers = dict(calls)

    assert answers == {0: TimedOut(0.3), 1: Done(0), 2: Done(1)}


def test_a_pool_that_can_make_no_state_says_so_of_every_task(tmp_path: Path):
    with Pool(2, refuse, log_folder=tmp_path) as pool:
        answers = dict(pool.run(add, [(i,) for i in range(50)], 60.0))

    assert sorted(answers) == list(range(50))
    assert {str(answer) for answer in answers.values()} == {
        "KernelError: ops.py:3: no such kernel\nhint: write one"
    }
    made = [log.read_text() for log in tmp_path.iterdir()]
    assert made == ["", ""]


def test_after_the_deadline_no_task_is_begun(tmp_path: Path):
    with Pool(1, number, log_folder=tmp_path) as pool:
        list(pool.run(nap, [(0.0,)], 60.0))
        answers = list(pool.run(nap, [(0.4,)] * 50, 60.0, deadline=time.monotonic() + 0.2))

    assert answers == [(0, Done(None))]


def test_a_pool_whose_answers_nobody_wants_any_more_is_stopped(tmp_path: Path):
    with Pool(2, number, log_folder=tmp_path) as pool:
        [(_, first), (_, second)] = pool.run(who, [(), ()], 60.0)
        answers = pool.run(nap, [(0.0,), (300.0,), (300.0,)], 600.0)
        next(answers)

        answers.close()

        assert isinstance(first, Done)
        assert isinstance(second, Done)
        assert until_gone(first.value) == []
        assert until_gone(second.value) == []


def test_at_least_one_job_and_at_most_one_a_core():
    assert 1 <= default_jobs() <= len(os.sched_getaffinity(0))


def test_a_worker_turned_to_another_state_keeps_its_process(worker: Worker):
    before = worker.call(who)

    worker.turn(number, 50)

    assert worker.call(add, 1) == Done(51)
    assert worker.call(who) == before


def test_a_state_that_cannot_be_made_ends_the_process_and_the_next_call_tries_again(
    worker: Worker,
):
    worker.call(who)

    worker.turn(refuse)
    refused = worker.call(who)
    worker.turn(number, 50)

    assert isinstance(refused, Raised)
    assert str(refused.error) == "ops.py:3: no such kernel\nhint: write one"
    assert worker.call(add, 1) == Done(51)


def test_a_pool_turned_to_another_state_answers_from_that(tmp_path: Path):
    with Pool(2, number, 100, log_folder=tmp_path) as pool:
        first = {answer for _, answer in pool.run(who, [()] * 4, 60.0)}
        pool.turn(number, 200)
        answers = dict(pool.run(add, ((i,) for i in range(4)), 60.0))
        last = {answer for _, answer in pool.run(who, [()] * 4, 60.0)}

    assert answers == {i: Done(200 + i) for i in range(4)}
    assert last <= first


def test_what_was_raised_without_a_message_is_told_by_its_type_and_its_line():
    silent = Raised("AssertionError", "", "", where="ops.py:3")

    assert str(silent) == "AssertionError (ops.py:3)"
    assert str(replace(silent, message="n is 0", where="")) == "AssertionError: n is 0"

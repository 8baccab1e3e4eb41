"""The journal: what is written is read again, whatever happened in between."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import (
    H200_IDENTITY,
    KERNEL,
    PROBLEM,
    TRITON,
    compiled,
    config,
    grid_outcomes,
    measured,
    rejected,
)
from tritune.errors import EnvironmentFaultError
from tritune.journal import CONFIRM, FINALS, Journal
from tritune.journal_file import JournalError
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    DeviceIdentity,
    Measured,
    Outcome,
    Problem,
    Reason,
    Timing,
)

PROTOCOL = Timing().protocol()
H100_IDENTITY = replace(H200_IDENTITY, name="H100", bus_bits=5120, names=("NVIDIA H100",))
EVERYTHING = Measured(
    compiled=Compiled(
        candidate=Candidate(
            kernel=KERNEL,
            problem=Problem.of({"N": 1, "M": 2, "causal": True, "dtype": "float16", "bias": None}),
            config=Config.of({"BLOCK": 64, "FLAG": False, "SCALE": 1.5, "MODE": "a b", "X": None}),
        ),
        key="M=2 N=1 a=f16",
        binary="be755cef9ad3",
        ir="87b314e3",
        registers=255,
        stack_bytes=16,
        shared_bytes=49152,
        seconds=1.234,
        aliases=(config(BLOCK=128), config(BLOCK=256)),
    ),
    samples_us=(19.1, 19.12, 20.0),
    finals_us=(19.05, 19.11),
    error=0.000412,
    bits="9c1e04d2",
    confirm_us=(19.2, 19.21),
    doubted_us=(19.3, 19.31),
    floor=0.00123,
)


def record(
    journal: Journal,
    *outcomes: Outcome,
    source: str = "s1",
    device: DeviceIdentity = H200_IDENTITY,
    protocol: str = PROTOCOL,
    triton: str = TRITON,
) -> None:
    for outcome in outcomes:
        journal.record(outcome, source=source, device=device, protocol=protocol, triton=triton)


def known(
    journal: Journal,
    *,
    kernel: str = KERNEL,
    source: str = "s1",
    device: DeviceIdentity = H200_IDENTITY,
    protocol: str = PROTOCOL,
    triton: str | None = TRITON,
) -> list[Outcome]:
    return list(journal.known(kernel, source, device, protocol, triton).values())


def written(path: Path, *outcomes: Outcome) -> Path:
    journal = Journal.open(path)
    record(journal, *outcomes)
    journal.close()
    return path


def reread(path: Path) -> list[Outcome]:
    return known(Journal.open(path, read_only=True))


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "journals" / "sweep.jsonl"


@pytest.mark.parametrize(
    "outcome",
    [
        EVERYTHING,
        measured(samples=[1.0]),
        rejected(Reason.COMPILE, "line 1\nline “2”", log="/logs/1.txt"),
        rejected(Reason.HANG, ""),
    ],
)
def test_what_is_recorded_is_known_at_once_and_again(path: Path, outcome: Outcome) -> None:
    journal = Journal.open(path)
    record(journal, outcome)

    assert known(journal) == [outcome]
    assert reread(path) == [outcome]


def test_every_reason_survives(path: Path) -> None:
    outcomes = [rejected(reason, BLOCK=i) for i, reason in enumerate(Reason)]

    assert reread(written(path, *outcomes)) == outcomes


def test_the_order_of_a_problems_axes_survives(path: Path) -> None:
    [outcome] = reread(written(path, EVERYTHING))

    assert str(outcome.candidate.problem) == "N=1 M=2 causal=True dtype=float16 bias=none"


def test_the_recorded_grid_survives(path: Path) -> None:
    outcomes = grid_outcomes()

    assert reread(written(path, *outcomes)) == list(outcomes)


def test_the_file_reads_format_then_device_then_context_then_outcomes(path: Path) -> None:
    written(path, rejected(BLOCK=64), measured(BLOCK=128))

    lines = [json.loads(line) for line in path.read_text().splitlines()]

    assert [next(iter(line)) for line in lines] == ["journal", "device", "context", "in", "in"]
    assert lines[0] == {"journal": 1}
    assert lines[3] == {
        "in": lines[2]["context"],
        "problem": {"M": 64, "N": 4096, "K": 4096, "dtype": "float16"},
        "config": {"BLOCK": 64, "num_warps": 4},
        "no": "SHARED",
        "why": "262144 of 232448 bytes",
    }


def test_the_latest_outcome_of_a_candidate_counts(path: Path) -> None:
    later = measured(9.0, BLOCK=64)

    assert reread(written(path, measured(10.0, BLOCK=64), later)) == [later]


def test_outcomes_are_known_only_under_what_they_were_taken_under(path: Path) -> None:
    written(path, measured())
    journal = Journal.open(path, read_only=True)

    assert known(journal) == [measured()]
    assert known(journal, kernel="other:kernel") == []
    assert known(journal, source="s2") == []
    assert known(journal, device=H100_IDENTITY) == []
    assert known(journal, protocol="1 hot 3 30") == []
    assert known(journal, triton="3.9.0") == []


def done(path: Path) -> dict[Problem, str]:
    return Journal.open(path, read_only=True).done(KERNEL, "s1", H200_IDENTITY, PROTOCOL, TRITON)


def finish(journal: Journal, *outcomes: Outcome, stage: str) -> None:
    journal.record_all(
        outcomes,
        source="s1",
        device=H200_IDENTITY,
        protocol=PROTOCOL,
        triton=TRITON,
        done=stage,
    )


def test_a_problem_is_done_with_a_stage_until_another_outcome_of_it_follows(path: Path) -> None:
    journal = Journal.open(path)
    finish(journal, measured(BLOCK=64), measured(BLOCK=128), stage=FINALS)
    assert done(path) == {PROBLEM: "finals"}

    finish(journal, measured(BLOCK=64), stage=CONFIRM)
    assert done(path) == {PROBLEM: "confirm"}

    record(journal, measured(BLOCK=256))
    assert done(path) == {}


def test_a_stage_of_which_the_last_line_was_lost_is_not_done(path: Path) -> None:
    journal = Journal.open(path)
    finish(journal, measured(BLOCK=64), measured(BLOCK=128), stage=FINALS)
    path.write_bytes(path.read_bytes()[:-2])

    assert done(path) == {}
    assert len(reread(path)) == 2


def test_a_second_sweep_on_one_journal_is_refused_and_told_whose_it_is(path: Path) -> None:
    first, second = Journal.open(path), Journal.open(path)

    with first.hold(), pytest.raises(EnvironmentFaultError) as caught, second.hold():
        pass

    assert str(caught.value) == (
        f"{path}: another sweep (process {os.getpid()}) is measuring into this journal\n"
        "hint: wait until it is done, or give this one another folder with `--journal DIR`"
    )
    with second.hold():
        record(second, measured())


def test_a_journal_of_before_the_confirmation_is_read(path: Path) -> None:
    lines = written(path, measured(finals=[10.0])).read_text().splitlines()

    assert '"confirm"' not in lines[-1]
    assert '"floor"' not in lines[-1]
    assert reread(path) == [measured(finals=[10.0])]


def test_a_replay_takes_any_triton_and_learns_which(path: Path) -> None:
    journal = Journal.open(path)
    record(journal, measured(BLOCK=64), triton="3.6.0")
    record(journal, measured(BLOCK=128), triton="3.9.0")

    assert len(known(journal, triton=None)) == 2
    assert journal.tritons(KERNEL, "s1", H200_IDENTITY, PROTOCOL) == ("3.6.0", "3.9.0")
    record(journal, measured(BLOCK=64), triton="3.6.0")
    assert journal.tritons(KERNEL, "s1", H200_IDENTITY, PROTOCOL) == ("3.9.0", "3.6.0")


def test_one_silicon_under_two_names_is_one_device(path: Path) -> None:
    journal = Journal.open(path)
    renamed = replace(H200_IDENTITY, names=("NVIDIA H200 NVL",))
    record(journal, measured())
    record(journal, rejected(BLOCK=1), device=renamed)
    record(journal, rejected(BLOCK=2), device=H100_IDENTITY)

    assert len(known(journal)) == 2
    again = Journal.open(path, read_only=True)
    assert journal.devices() == again.devices() == (H200_IDENTITY, H100_IDENTITY)


def test_a_reopened_journal_does_not_repeat_its_head(path: Path) -> None:
    written(path, measured(BLOCK=64))
    written(path, measured(BLOCK=128))

    firsts = [next(iter(json.loads(line))) for line in path.read_text().splitlines()]

    assert firsts == ["journal", "device", "context", "in", "in"]


def test_a_compressed_journal_is_read(path: Path) -> None:
    plain = written(path, EVERYTHING)
    packed = path.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert reread(packed) == [EVERYTHING]


def test_a_compressed_journal_cannot_be_added_to(path: Path) -> None:
    with pytest.raises(JournalError) as caught:
        Journal.open(Path("sweep.jsonl.gz"))

    assert str(caught.value) == (
        "sweep.jsonl.gz: a compressed journal is only read\nhint: gunzip it to add to it"
    )


def test_a_damaged_compressed_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.gz"
    path.write_bytes(gzip.compress(b'{"journal":1}\n' * 100)[:20])

    with pytest.raises(JournalError) as caught:
        Journal.open(path, read_only=True)

    assert str(caught.value) == (
        f"{path}: a damaged gzip file: Compressed file ended before the end-of-stream marker was "
        "reached\nhint: restore the file"
    )


def test_a_journal_that_is_not_there_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(JournalError) as caught:
        Journal.open(tmp_path / "none", read_only=True)

    assert str(caught.value) == (
        f"{tmp_path / 'none'}: no such journal\nhint: a sweep on a GPU writes one"
    )


def test_a_journal_opened_to_be_read_is_not_written(path: Path) -> None:
    journal = Journal.open(written(path, measured()), read_only=True)

    with pytest.raises(JournalError) as caught:
        record(journal, measured())

    assert str(caught.value) == f"{path}: this journal is open to be read only"


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_last_line_cut_off_is_ignored_then_repaired(path: Path, cut: int) -> None:
    first, second, third = (measured(BLOCK=block) for block in (64, 128, 256))
    content = written(path, first, second).read_bytes()
    path.write_bytes(content[:-cut])

    # Without its newline a line is whole, and stays.
    left = [first, second] if cut == 1 else [first]
    assert reread(path) == left
    assert reread(written(path, third)) == [*left, third]


@pytest.mark.parametrize(
    "garbage", [b"\0" * 200_000, b"\xff\xfe", b"garbage\n", b'{"in":\n\n', b"7"]
)
def test_a_garbage_last_line_is_ignored_then_repaired(path: Path, garbage: bytes) -> None:
    content = written(path, measured(BLOCK=64)).read_bytes()
    path.write_bytes(content + garbage)

    assert reread(path) == [measured(BLOCK=64)]
    assert reread(written(path, measured(BLOCK=128))) == [measured(BLOCK=64), measured(BLOCK=128)]
    assert path.read_bytes().startswith(content)


def test_a_file_cut_off_in_its_first_line_starts_anew(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"jour')

    assert reread(written(path, measured())) == [measured()]


def test_another_writers_cut_line_is_cut_off_before_the_next_is_written(path: Path) -> None:
    journal = Journal.open(path)
    record(journal, measured(BLOCK=64))
    with path.open("ab") as killed:
        killed.write(b'{"in":"0123')

    record(journal, measured(BLOCK=128))

    assert reread(path) == [measured(BLOCK=64), measured(BLOCK=128)]


@pytest.mark.parametrize(
    "garbage",
    [
        b"<<<<<<< HEAD",
        b"[]",
        b"{}",
        b'{"in":"unknown","problem":{},"config":{},"no":"HANG"}',
        b'{"device":"d","colour":"green","names":[]}',
    ],
)
def test_garbage_in_the_middle_is_an_error_with_its_line(path: Path, garbage: bytes) -> None:
    lines = written(path, measured(), rejected()).read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:4], garbage, *lines[4:]]) + b"\n")

    with pytest.raises(JournalError) as caught:
        Journal.open(path)

    assert str(caught.value) == (
        f"{path}:5: not a line of a journal\n"
        "hint: delete the line, or the file: what it held is measured again"
    )


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "package.json"
    path.write_text('{"name": "x"}\n{"version": 1}\n')

    with pytest.raises(JournalError) as caught:
        Journal.open(path)

    assert str(caught.value).startswith(f"{path}:1: not a line of a journal")
    assert path.read_text() == '{"name": "x"}\n{"version": 1}\n'


def test_a_format_from_the_future_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"journal":2}\n')

    with pytest.raises(JournalError) as caught:
        Journal.open(path)

    assert str(caught.value) == (
        f"{path}: a journal of format 2, and this tritune reads format 1\n"
        "hint: update tritune, or delete the file to measure again"
    )


def test_a_full_disk_says_so_and_how_to_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.open(path)
    record(journal, measured(BLOCK=64))
    write = os.write
    monkeypatch.setattr(os, "write", lambda to, text: write(to, text[:20]))

    with pytest.raises(EnvironmentFaultError) as caught:
        record(journal, measured(BLOCK=128))

    assert str(caught.value) == (
        f"{path}: cannot write the journal: No space left on device\n"
        "hint: free some space, or put journals elsewhere with `--journal DIR` or "
        "TRITUNE_CACHE_DIR"
    )
    assert known(journal) == reread(path) == [measured(BLOCK=64)]


def test_a_read_only_folder_says_so_and_how_to_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(EnvironmentFaultError) as caught:
        Journal.open(path)

    assert str(caught.value) == (
        f"{path}: cannot write the journal: Read-only file system\n"
        "hint: make it writable, or put journals elsewhere with `--journal DIR` or "
        "TRITUNE_CACHE_DIR"
    )


def test_a_folder_in_place_of_the_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFaultError) as caught:
        Journal.open(tmp_path, read_only=True)

    assert str(caught.value) == (
        f"{tmp_path}: cannot read the journal: Is a directory\n"
        "hint: make it readable, or name another"
    )


WRITER = """
import sys
from pathlib import Path
from fakes import H200_IDENTITY, measured
from tritune.journal import CONFIRM, FINALS, Journal

journal = Journal.open(Path(sys.argv[1]))
for i in range(200):
    outcome = measured(samples=[1.0] * 500, BLOCK=int(sys.argv[2]) + i)
    journal.record(
        outcome, source="s1", device=H200_IDENTITY, protocol="2 cold 3 30", triton="3.6.0"
    )
    print(i, flush=True)
"""


def start_writer(path: Path, first: int) -> subprocess.Popen[bytes]:
    root = Path(__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first)],
        env=os.environ | {"PYTHONPATH": f"{root}:{root / 'tests'}"},
        stdout=subprocess.PIPE,
    )


def test_two_processes_that_append_spoil_nothing(path: Path) -> None:
    writers = [start_writer(path, first) for first in (0, 1000)]
    for writer in writers:
        writer.communicate()

    blocks = sorted(str(outcome.candidate.config["BLOCK"]) for outcome in reread(path))

    assert blocks == sorted(str(first + i) for first in (0, 1000) for i in range(200))


def test_a_killed_process_loses_nothing_it_had_recorded(path: Path) -> None:
    writer = start_writer(path, 0)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(20)]
    writer.kill()
    writer.communicate()

    assert len(reread(path)) >= len(said) == 20
    written(path, measured(BLOCK=5000))
    assert reread(path)[-1] == measured(BLOCK=5000)


def sweep_of_forty_problems() -> Sequence[Outcome]:
    """130 binaries on each, with aliases, digests, screening samples and 16 finalists."""
    rng = random.Random(0)  # noqa: S311
    outcomes: list[Outcome] = []
    for number in range(40):
        problem = Problem.of({"M": 2 ** (number % 14), "N": 4096, "K": 14336, "dtype": "float16"})
        for block in range(130):
            us = 20.0 + block + number
            sampled = [round(rng.gauss(us, us / 100), 2) for _ in range(33)]
            binary = replace(
                compiled(
                    problem=problem,
                    key=f"M={2 ** (number % 14)} N=4096 K=14336 a=f16 b=f16",
                    aliases=[config(BLOCK=block, num_warps=8)],
                    BLOCK=block,
                    STAGE=number,
                ),
                binary=f"{rng.getrandbits(48):012x}",
                seconds=round(rng.uniform(0.3, 3), 3),
            )
            outcomes.append(
                Measured(
                    compiled=binary,
                    samples_us=tuple(sampled[:3]),
                    finals_us=tuple(sampled[3:]) if block < 16 else (),
                    error=0.000412,
                    bits=f"{rng.getrandbits(32):08x}",
                )
            )
    return outcomes


def test_a_recorded_sweep_of_forty_problems_packs_into_a_megabyte(path: Path) -> None:
    outcomes = sweep_of_forty_problems()

    packed = gzip.compress(written(path, *outcomes).read_bytes())

    assert len(outcomes) == 5200
    assert len(packed) < 1_000_000


def test_the_problem_of_an_outcome_is_what_it_is_known_by(path: Path) -> None:
    journal = Journal.open(path)
    record(journal, measured(BLOCK=64))

    assert list(journal.known(KERNEL, "s1", H200_IDENTITY, PROTOCOL, TRITON)) == [
        (PROBLEM, config(BLOCK=64))
    ]

"""Views: what a reader sees, whole."""

# ruff: noqa: RUF001  # the multiplication sign of a speed-up is meant
from __future__ import annotations

import io
import json
from contextlib import suppress
from dataclasses import replace

import pytest

from tritune import words
from tritune.model import (
    Candidate,
    Compiled,
    Config,
    Constraint,
    DeviceIdentity,
    Entry,
    Evidence,
    KernelInfo,
    Lock,
    LockedKey,
    Measured,
    Problem,
    Reason,
    Rejected,
    Report,
    Step,
    Target,
    Winner,
    Work,
)
from tritune.space import Removed, SpaceCount
from tritune.views import columns, json_view, progress, tables, terminal, units
from tritune.views.page import plain

KERNEL = "kernels.matmul:matmul_kernel"
H200 = Target(
    name="H200",
    backend="cuda",
    arch=90,
    warp_size=32,
    sms=132,
    shared_bytes=232448,
    l2_bytes=50 * 2**20,
    dram_gbps=4800.0,
    peaks_tflops=(("fp16", 989.0),),
    names=("NVIDIA H200",),
)


def problem(m: int = 64, n: int = 4096, k: int = 4096) -> Problem:
    return Problem.of({"M": m, "N": n, "K": k, "dtype": "float16"})


def config(m: int = 64, n: int = 64, k: int = 128, warps: int = 4, stages: int = 5) -> Config:
    return Config.of(
        {
            "BLOCK_M": m,
            "BLOCK_N": n,
            "BLOCK_K": k,
            "GROUP_M": 8,
            "num_warps": warps,
            "num_stages": stages,
        }
    )


def evidence(us: float = 19.1, default_us: float | None = 55.0, margin: float | None = 0.031):
    return Evidence(
        us=us,
        default_us=default_us,
        margin=margin,
        noise=0.003,
        bits="9c1e04d2",
        ir="87b314e3",
        triton="3.6.0",
    )


def winner(of: Problem, how: Config, why: Evidence, *, ties: int = 0, change: str = "new"):
    return Winner(
        kernel=KERNEL, key="", problem=of, config=how, evidence=why, ties=ties, change=change
    )


def work(of: Problem) -> Work:
    m, n, k = (of.as_dict()[axis] for axis in "MNK")
    return Work(
        problem=of, flops=2.0 * m * n * k, bytes=2.0 * (m * k + k * n + m * n), dtype="fp16"
    )


def rejected(
    of: Problem | None = None,
    how: Config | None = None,
    *,
    reason: Reason = Reason.SHARED,
    detail: str = "262,144 > 232,448",
    log: str = "",
) -> Rejected:
    candidate = Candidate(kernel=KERNEL, problem=of or problem(), config=how or config())
    return Rejected(candidate=candidate, reason=reason, detail=detail, log=log)


def measured(us: float = 19.1, *, aliases: tuple[Config, ...] = ()) -> Measured:
    candidate = Candidate(kernel=KERNEL, problem=problem(), config=config())
    compiled = Compiled(candidate=candidate, key="", binary="", ir="", aliases=aliases)
    return Measured(compiled=compiled, samples_us=(us,))


WINNERS = (
    winner(problem(), config(), evidence()),
    winner(
        problem(1000, 4095, 1023),
        config(128, 64, 32, 8, 2),
        evidence(122.0, 155.0, 0.002),
        ties=4,
    ),
    winner(
        problem(4096),
        config(128, 256, 64, 8, 3),
        evidence(191.0, 460.0, 0.05),
        change="changed",
    ),
)


def info(name: str = KERNEL) -> KernelInfo:
    return KernelInfo(
        name=name,
        file="kernels/matmul.py",
        line=1,
        params=(),
        constexprs=(),
        tunables=(),
        default=config(),
        configs=(),
        key=(),
        near=None,
        lockfile="kernels/tritune.lock",
        problem="",
        problem_line=0,
        problem_params=(),
        source="",
    )


def report(**changes: object) -> Report:
    made = Report(
        sweep="sweeps/matmul.yaml",
        kernel=info(),
        target=H200,
        work=tuple(work(each.problem) for each in WINNERS),
        steps=(
            Step(name="planned", text="288 configs for 3 problems", seconds=0.01),
            Step(
                name="verified",
                text="36 configs on 3 smoke problems in Triton's interpreter (results, not times)",
                seconds=12.3,
            ),
        ),
        outcomes=(measured(aliases=(config(warps=8), config(warps=2))), rejected()),
        winners=WINNERS,
        lockfile="kernels/tritune.lock",
        locked=True,
        wall_s=72.4,
        gpu_s=38.0,
    )
    return replace(made, **changes)


def shown(*reports: Report) -> str:
    return plain(terminal.summaries(reports))


SUMMARY = """\
kernels.matmul:matmul_kernel from sweeps/matmul.yaml
planned    288 configs for 3 problems
verified   36 configs on 3 smoke problems in Triton's interpreter (results, not times) · 12 s

matmul_kernel on H200    BLOCK_M/N/K GROUP_M warps stages    µs default faster roofline runner-up
M=64   N=4096 K=4096 f16  64  64 128       8     4      5  19.1    55.0  2.88×     38 %    +3.1 %
M=1000 N=4095 K=1023 f16 128  64  32       8     8      2   122     155  1.27×      7 %  tie of 5
M=4096 N=4096 K=4096 f16 128 256  64       8     8      3   191     460  2.41×     73 %    +5.0 %
4 candidates: 1 timed · 2 same binary as another · 1 too much shared memory
locked 3 (2 new, 1 changed, 0 kept) in kernels/tritune.lock, 2.07× over default \
· 1 min 12 s, GPU 38 s
next: git diff kernels/tritune.lock · why not another: tritune show rejected sweeps/matmul.yaml
"""


def test_a_sweep_ends_with_its_winners_its_counts_and_what_to_do_next():
    assert shown(report()) == SUMMARY


def test_a_narrow_page_cuts_the_names_of_tunables_and_never_a_line():
    text = plain(terminal.summary(report(), width=80))

    assert "BLOCK_M/N/K G warps stages    µs default faster roofline runner-up\n" in text


def test_a_replayed_report_says_that_its_times_were_recorded():
    text = shown(report(replayed=True, gpu_s=0.0))

    assert (
        "replayed: every time here was recorded on H200 by an earlier sweep; "
        "nothing was timed on this machine\n"
        "4 candidates: 1 timed in the record · 2 same binary as another"
        " · 1 too much shared memory\n"
    ) in text
    assert "GPU" not in text.splitlines()[-2]


def test_with_no_gpu_it_says_why_nothing_is_locked_and_offers_no_journal():
    text = shown(
        report(
            winners=(),
            outcomes=(rejected(),),
            locked=False,
            not_locked="no GPU here, and no recorded times for H200",
            gpu_s=0.0,
            steps=(),
        )
    )

    assert text == (
        "kernels.matmul:matmul_kernel from sweeps/matmul.yaml\n"
        "1 candidate rejected: 1 too much shared memory\n"
        "rejected for H200:\n"
        "  BLOCK_K=128 BLOCK_M=64 BLOCK_N=64 GROUP_M=8 num_stages=5 num_warps=4 "
        "· too much shared memory: 262,144 > 232,448 · 1 problem\n"
        "nothing locked: no GPU here, and no recorded times for H200 · 1 min 12 s\n"
    )


def test_what_compiled_here_and_was_not_timed_is_told_its_way_to_a_gpu():
    compiled = Step(name="compiling", text="2 of 2 distinct binaries for H200", seconds=1.0)

    text = shown(report(winners=(), outcomes=(), not_locked="no GPU", gpu_s=0.0, steps=(compiled,)))

    assert text.splitlines()[-1] == (
        "next: tritune compile sweeps/matmul.yaml --target H200 --output DIR, then on such a GPU "
        "tritune sweep sweeps/matmul.yaml --compiled DIR"
    )


@pytest.mark.parametrize(
    ("reason", "lost", "gpu_s", "said"),
    [
        (
            Reason.SHARED,
            problem(),
            0.0,
            "give other values in the space of sweeps/matmul.yaml",
        ),
        (Reason.COMPILE, problem(), 0.0, "mend matmul_kernel or its problem function"),
        # Of `smoke:`, and so not one that a GPU is asked for.
        (Reason.WRONG, problem(1, 2, 3), 0.0, "mend matmul_kernel or its problem function"),
        (
            Reason.WRONG,
            problem(),
            1.0,
            (
                "why none: tritune show rejected sweeps/matmul.yaml · "
                "mend matmul_kernel or its problem function"
            ),
        ),
    ],
)
def test_after_a_total_failure_a_sweep_offers_what_helps_and_no_compile(reason, lost, gpu_s, said):
    compiled = Step(name="compiling", text="0 of 2 distinct binaries for H200", seconds=1.0)

    text = shown(
        report(
            winners=(),
            work=(work(problem()),),
            outcomes=(rejected(lost, reason=reason),),
            unsolved=(lost,),
            locked=False,
            gpu_s=gpu_s,
            steps=(compiled,),
        )
    )

    assert text.splitlines()[-1] == f"next: {said}, then tritune sweep sweeps/matmul.yaml"


def failed(name: str, *, installed: bool, reason: Reason = Reason.WRONG) -> Report:
    kernel = replace(info(f"theirs:{name}"), installed=installed, problem="mine.py:mlp_problem")
    return report(
        kernel=kernel,
        winners=(),
        work=(work(problem()),),
        outcomes=(rejected(reason=reason),),
        unsolved=(problem(),),
        locked=False,
        gpu_s=1.0,
    )


@pytest.mark.parametrize(
    ("reports", "cure"),
    [
        (
            [failed(name, installed=True) for name in ("up", "gate", "down")],
            "mend the problem function mlp_problem",
        ),
        (
            [failed("up", installed=True), failed("gate", installed=False)],
            "mend gate or its problem function",
        ),
        (
            [failed(name, installed=False) for name in ("up", "gate")],
            "mend up, gate or their problem function",
        ),
        (
            [failed("up", installed=True, reason=Reason.SHARED), failed("gate", installed=True)],
            (
                "give other values in the space of sweeps/matmul.yaml and "
                "mend the problem function mlp_problem"
            ),
        ),
    ],
)
def test_after_a_total_failure_a_file_of_several_kernels_has_one_cure_for_what_is_the_readers(
    reports, cure
):
    assert shown(*reports).splitlines()[-1] == (
        f"next: why none: tritune show rejected sweeps/matmul.yaml · {cure}, then tritune sweep "
        "sweeps/matmul.yaml"
    )


def test_a_problem_with_no_valid_config_is_listed_with_its_reasons_counted():
    lost = problem(1, 2, 3)
    out = (rejected(lost), rejected(lost), rejected(lost, reason=Reason.WRONG), rejected())

    text = shown(report(outcomes=out, unsolved=(lost,)))

    assert (
        "no valid config for M=1 N=2 K=3 dtype=float16: 2 too much shared memory · 1 wrong result\n"
    ) in text


def test_a_lockfile_with_no_change_needs_no_diff():
    kept = tuple(replace(each, change="kept") for each in WINNERS)

    assert "git diff" not in shown(report(winners=kept))


@pytest.mark.parametrize("more", [(), (rejected(reason=Reason.MISTAKEN),)])
def test_where_no_journal_has_a_rejected_config_no_list_of_them_is_offered(more):
    made = report(outcomes=(measured(), *more))

    assert shown(made).splitlines()[-1] == "next: git diff kernels/tritune.lock"


def test_paths_in_the_next_line_are_words_of_a_shell():
    sweep, lockfile = "my sweeps/matmul.yaml", "my kernels/tritune.lock"
    made = report(sweep=sweep, lockfile=lockfile, outcomes=(measured(), rejected()))
    lost = {"outcomes": (rejected(),), "unsolved": (problem(),), "winners": (), "work": ()}
    failed = report(sweep=sweep, **lost)

    assert shown(made).splitlines()[-1] == (
        "next: git diff 'my kernels/tritune.lock' · "
        "why not another: tritune show rejected 'my sweeps/matmul.yaml'"
    )
    assert shown(failed).splitlines()[-1].endswith(", then tritune sweep 'my sweeps/matmul.yaml'")


def test_two_kernels_of_one_sweep_share_one_next_line():
    text = shown(report(), report(kernel=info("kernels.matmul:other_kernel")))

    assert text.count("next: ") == 1
    assert "other_kernel on H200" in text


def test_what_nobody_said_is_a_dash_and_never_a_guess():
    alone = winner(problem(), config(), evidence(default_us=None, margin=None))
    row = shown(report(winners=(alone,), work=())).splitlines()[5]

    assert row.split()[-5:] == ["19.1", "-", "-", "-", "-"]


def test_the_roofline_is_the_larger_of_the_two_bounds():
    flops_bound = Work(problem=problem(), flops=989e6, bytes=48.0, dtype="fp16")
    bytes_bound = Work(problem=problem(), flops=1.0, bytes=48e6, dtype="fp16")
    unknown_type = Work(problem=problem(), flops=1.0, bytes=None, dtype="fp64")

    bounds = [terminal.roofline_us(each, H200) for each in (flops_bound, bytes_bound, unknown_type)]

    assert bounds == [pytest.approx(1.0), pytest.approx(10.0), None]


def test_rejected_configs_are_a_table_with_reason_limit_and_log():
    rows = [
        rejected(),
        rejected(problem(4096), config(256), reason=Reason.COMPILE, detail="", log="logs/x.txt"),
    ]

    head = "BLOCK_M/N/K GROUP_M warps stages  reason                  limit              log"
    assert plain(tables.rejected_table(rows)) == (
        f"matmul_kernel            {head}\n"
        "M=64   N=4096 K=4096 f16   64 64 128       8     4      5"
        "  too much shared memory  262,144 > 232,448  -\n"
        "M=4096 N=4096 K=4096 f16  256 64 128       8     4      5"
        "  does not compile        -                  logs/x.txt\n"
        "\n"
        "2 rejected configs\n"
    )


def test_no_rejected_config_is_said_so():
    assert plain(tables.rejected_table([])) == "no config was rejected\n"


def locked(key: str, device: str = "H200", kernel: str = KERNEL) -> tuple[LockedKey, Entry]:
    place = LockedKey(kernel=kernel, device=device, key=key)
    return place, Entry(config=config(), evidence=evidence())


SILICON = DeviceIdentity(
    name="H200",
    backend="cuda",
    arch=90,
    sms=132,
    shared_bytes=232448,
    bus_bits=6144,
    memory_mhz=3201,
)
LOCK = Lock(
    devices=(SILICON,),
    entries=(
        locked("M=64 N=4096 K=4096 a=f16 b=f16"),
        locked("M=8192 N=4096 K=4096 a=bf16 b=f16"),
        locked("n=1024 x=f16", "MI300X", "kernels.softmax:softmax_kernel"),
    ),
    near=((KERNEL, ("SPLIT_K * BLOCK_K <= K",)),),
)


def test_a_lockfile_is_grouped_by_kernel_and_device():
    head = "BLOCK_M/N/K GROUP_M warps stages    µs default faster runner-up  noise triton\n"
    tail = "  64 64 128       8     4      5  19.1    55.0  2.88×    +3.1 % ±0.3 %  3.6.0\n"

    assert plain(tables.lock_table("kernels/tritune.lock", LOCK)) == (
        "kernels/tritune.lock: 3 entries, 2 kernels, 2 devices\n"
        "\n"
        "kernels.matmul:matmul_kernel on H200\n"
        f"key                               {head}"
        f"M=64   N=4096 K=4096 a=f16  b=f16 {tail}"
        f"M=8192 N=4096 K=4096 a=bf16 b=f16 {tail}"
        "\n"
        "kernels.softmax:softmax_kernel on MI300X\n"
        f"key          {head}"
        f"n=1024 x=f16 {tail}"
    )


def removed(text: str, configs: int, of: Problem | None = None) -> Removed:
    constraint = Constraint(text=text, where="", names=frozenset())
    return Removed(constraint=constraint, problem=of, configs=configs)


def test_a_space_shows_what_each_constraint_removes():
    counts = SpaceCount(
        configs=1152,
        removed=(removed("BLOCK_M <= 128", 150),),
        left=((problem(), 1002), (problem(4096), 1002)),
    )

    assert plain(tables.space_table("sweeps/matmul.yaml", counts)) == (
        "sweeps/matmul.yaml         configs\n"
        "the whole space              1,152\n"
        "BLOCK_M <= 128                -150\n"
        "left for all of 2 problems   1,002\n"
    )


def test_of_several_kernels_each_has_a_table_under_its_name():
    spaces = [
        SpaceCount(configs=configs, removed=(), left=((problem(), configs),), kernel=kernel)
        for kernel, configs in (("theirs:scale_backward", 3), ("theirs:scale_forward", 6))
    ]

    assert plain(tables.space_tables("scale.yaml", spaces)) == (
        "scale.yaml\n"
        "\n"
        "scale_backward            configs\n"
        "the whole space                 3\n"
        "left for all of 1 problem       3\n"
        "\n"
        "scale_forward             configs\n"
        "the whole space                 6\n"
        "left for all of 1 problem       6\n"
    )
    assert plain(tables.space_tables("scale.yaml", spaces[:1])) == (
        "scale.yaml                configs\n"
        "the whole space                 3\n"
        "left for all of 1 problem       3\n"
    )


def test_a_constraint_on_the_problem_removes_by_problem():
    short, long = problem(k=64), problem(k=4096)
    counts = SpaceCount(
        configs=12,
        removed=(removed("BLOCK_K <= K", 8, short), removed("BLOCK_K <= N", 1, long)),
        left=((short, 4), (long, 11)),
    )

    assert plain(tables.space_table("sweeps/matmul.yaml", counts)) == (
        "sweeps/matmul.yaml     configs\n"
        "the whole space             12\n"
        "BLOCK_K <= K           0 to -8\n"
        "BLOCK_K <= N           0 to -1\n"
        "M=64 N=4096 K=64   f16       4\n"
        "M=64 N=4096 K=4096 f16      11\n"
    )


def test_a_device_shows_the_facts_that_are_known():
    assert plain(tables.device_table(H200)) == (
        "H200\n"
        "backend                       cuda\n"
        "architecture                  90\n"
        "multiprocessors               132\n"
        "warp size                     32\n"
        "shared memory of a program    227 KiB (232,448 bytes)\n"
        "registers of a multiprocessor 65,536\n"
        "threads of a program          1,024\n"
        "L2 cache                      50 MiB (52,428,800 bytes)\n"
        "memory bandwidth              4,800 GB/s\n"
        "peak fp16                     989 TFLOP/s\n"
        "known as                      NVIDIA H200\n"
    )


def test_tunables_of_one_family_share_a_column_in_the_order_people_say_them():
    [blocks, *others] = columns.config_columns([config(), config(m=128)])

    assert (blocks.heading, blocks.cells) == ("BLOCK_M/N/K", (" 64 64 128", "128 64 128"))
    assert [column.heading for column in others] == ["GROUP_M", "warps", "stages"]


def test_headings_that_would_be_cut_to_one_letter_stay_whole():
    both = Config.of({"GROUP_M": 8, "GAP": 1, "SPLIT_K": 2})

    headings = [column.heading for column in columns.config_columns([both], compact=True)]

    assert headings == ["GAP", "GROUP_M", "S"]


def test_keys_that_do_not_match_part_for_part_stay_as_they_are():
    assert columns.key_lines(["M=1 a=f16", "M=64"]) == ("M=1 a=f16", "M=64")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.figures(8.614), "8.61"),
        (units.figures(19.14), "19.1"),
        (units.figures(9.999), "10.0"),
        (units.figures(121.6), "122"),
        (units.figures(12345.6), "12,346"),
        (units.figures(0.0), "0"),
        (units.format_us(None), "-"),
        (units.format_s(0.04), "0.0 s"),
        (units.format_s(9.96), "10 s"),
        (units.format_s(59.7), "1 min 0 s"),
        (units.format_s(72), "1 min 12 s"),
        (units.format_s(7500), "2 h 5 min"),
        (units.format_bytes(232448), "227 KiB"),
        (units.format_bytes(1000), "1,000 B"),
        (units.format_bytes(1536), "1.5 KiB"),
        (units.format_ratio(2.871), "2.87×"),
        (units.format_ratio(12.34), "12.3×"),
        (units.format_percent(0.031, signed=True), "+3.1 %"),
        (units.format_percent(0.384), "38 %"),
        (words.plural(1, "entry", "entries"), "1 entry"),
        (words.plural(1152, "config"), "1,152 configs"),
    ],
)
def test_figures_have_their_unit_and_no_more_digits_than_they_mean(text, expected):
    assert text == expected


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_progress_has_a_first_and_a_last_line_and_few_between():
    stream, clock = io.StringIO(), Clock()
    watcher = progress.PlainLines(stream, clock)

    watcher.say("will measure 288 configs")
    watcher.stage("compile", 100)
    for step in range(100):
        clock.now += 0.0625
        watcher.advance(f"best {100 - step} µs" if step % 2 else "")
    watcher.stage("lock", None)
    watcher.done()

    assert stream.getvalue() == (
        "will measure 288 configs\n"
        "compile: 0/100\n"
        "compile: 32/100 · 4.2 s left · best 69 µs\n"
        "compile: 64/100 · 2.2 s left · best 37 µs\n"
        "compile: 96/100 · 0.2 s left · best 5 µs\n"
        "compile: 100/100 · took 6.2 s · best 1 µs\n"
        "lock\n"
        "lock: took 0.0 s\n"
    )


def test_a_stage_that_is_cut_off_says_how_far_it_came():
    stream = io.StringIO()

    with suppress(KeyboardInterrupt), progress.observing(stream) as watcher:
        watcher.stage("measure", 3)
        watcher.advance()
        raise KeyboardInterrupt

    assert stream.getvalue() == "measure: 0/3\nmeasure: 1/3 · took 0.0 s\n"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_on_a_terminal_there_is_a_bar_and_finished_stages_leave_a_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    with progress.observing(stream) as watcher:
        watcher.stage("measure", 2)
        watcher.advance("best 19.1 µs [K=1]")
        watcher.say("a line that stays")
        watcher.advance()

    assert isinstance(watcher, progress.Bar)
    assert "measure: 2/2 · took 0.0 s · best 19.1 µs [K=1]\n" in stream.getvalue()
    assert "a line that stays\n" in stream.getvalue()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")

    assert isinstance(progress.observer(Terminal()), progress.PlainLines)


def test_a_report_is_one_json_document_with_configs_as_objects():
    document = json.loads(json_view.reports_json([report()]))

    [made] = document["reports"]
    assert document["version"] == 1
    assert made["winners"][0]["config"]["BLOCK_K"] == 128
    assert made["winners"][0]["problem"] == {"M": 64, "N": 4096, "K": 4096, "dtype": "float16"}
    assert made["target"]["peaks_tflops"] == {"fp16": 989.0}
    assert [each.get("reason") for each in made["outcomes"]] == [None, "too much shared memory"]
    assert made["outcomes"][0]["median_us"] == 19.1


def test_a_lockfile_is_json_with_place_and_entry_in_one_object():
    [made] = json.loads(json_view.locks_json([("tritune.lock", LOCK)]))["lockfiles"]

    assert made["path"] == "tritune.lock"
    assert made["entries"][2]["device"] == "MI300X"
    assert made["entries"][2]["evidence"]["us"] == 19.1
    assert made["near"] == {KERNEL: ["SPLIT_K * BLOCK_K <= K"]}
    assert made["devices"][0]["bus_bits"] == 6144

"""What compiling decides without a compiler: limits, groups, order, logs, folders."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest

from fakes import H200, KERNEL, PROBLEM, compiled, config
from tritune import bundle, fulltext, grouping
from tritune import compile as compiling
from tritune.answer import Died, Raised, TimedOut
from tritune.device.resources import LOAD_WORK, compile_work
from tritune.errors import SpecError
from tritune.limit import Limit
from tritune.model import Candidate, Launches, Lowered, Problem, Reason, Rejected, Work

OTHER = Problem.of({"M": 1, "N": 4096, "K": 4096, "dtype": "float16"})


# Limits


def test_a_limit_is_the_hard_one_until_enough_was_seen():
    limit = Limit(120.0)

    for _ in range(19):
        limit.answered(1.0)
    before = limit()
    limit.answered(1.0)

    assert (before, limit()) == (120.0, 30.0)


def test_a_limit_follows_what_nine_of_ten_compiles_took():
    limit = Limit(120.0)

    for seconds in [1.0] * 15 + [5.0] * 10:
        limit.answered(seconds)

    assert limit() == 40.0


def test_a_limit_never_passes_the_hard_one():
    limit = Limit(20.0)

    for _ in range(30):
        limit.answered(9.0)

    assert limit() == 20.0


def test_a_slow_machine_raises_its_own_limit_and_one_that_hangs_does_not():
    limit = Limit(600.0)
    for _ in range(20):
        limit.answered(1.0)

    assert limit([50.0] + [0.5] * 15) == 30.0
    assert limit([50.0] * 16) == 400.0


def test_what_is_cut_off_counts_so_that_one_false_time_out_does_not_make_more():
    limit = Limit(600.0)
    for _ in range(20):
        limit.answered(1.0)

    for _ in range(5):
        limit.answered(10.0)

    assert limit() == 80.0


def test_a_limit_that_a_user_has_set_learns_nothing():
    limit = Limit(45.0, learns=False)

    for _ in range(40):
        limit.answered(0.1)

    assert limit() == 45.0
    assert limit.said(45.0) == "cut off after 45 s; --compile-limit S raises it"


def test_a_config_cut_off_by_what_was_learnt_is_told_so():
    limit = Limit(120.0)
    for _ in range(40):
        limit.answered(1.0)

    assert limit.said(12.0) == (
        "cut off after 12 s, the limit learnt from 40 compiles; --compile-limit S raises it"
    )


# Groups


def launches(*, grids=((64, 1, 1),), problem=PROBLEM, of="", **values) -> tuple[Launches, Lowered]:
    """What a config launches, its class its own; *of* is its TTGIR."""
    candidate = Candidate(kernel=KERNEL, problem=problem, config=config(**values))
    name = str(candidate.config)
    one = Launches(candidate=candidate, key="key", grids=tuple(grids), compile_class=name)
    ir = Lowered(candidate=candidate, ir="1f", ttgir=of or name, shared_bound=1024, seconds=0.1)
    return one, ir


def work(timed="kernel", *problems):
    return {
        one: Work(problem=one, flops=None, bytes=None, dtype="fp16", timed=timed)
        for one in (PROBLEM, *problems)
    }


def grouped(*pairs, timed="kernel", lead=lambda _: False, target=H200):
    lowered = {one.compile_class: ir for one, ir in pairs}
    found = [one for one, _ in pairs]
    return grouping.group(found, lowered, target=target, work=work(timed, OTHER), lead=lead)


def test_configs_with_equal_ttgir_and_grids_are_one_group_led_by_the_least_of_them():
    groups, rejected = grouped(
        launches(num_stages=4, of="same"),
        launches(num_stages=2, of="same"),
        launches(num_stages=3, of="same", grids=((32, 1, 1),)),
        launches(num_stages=5, of="other"),
    )

    assert rejected == ()
    assert [(one.candidate.config["num_stages"], one.aliases) for one in groups] == [
        (2, (config(num_stages=4),)),
        (3, ()),
        (5, ()),
    ]


def test_the_default_leads_its_group():
    default = config(num_stages=4)

    [one], _ = grouped(
        launches(num_stages=2, of="same"),
        launches(num_stages=4, of="same"),
        lead=lambda candidate: candidate.config == default,
    )

    assert (one.candidate.config, one.aliases) == (default, (config(num_stages=2),))


def test_where_a_whole_op_is_timed_configs_of_other_meta_parameters_stay_apart():
    pairs = (
        launches(SPLIT=1, num_stages=2, of="same"),
        launches(SPLIT=2, num_stages=2, of="same"),
        launches(SPLIT=2, num_stages=3, of="same"),
    )

    assert [len(grouped(*pairs, timed=timed)[0]) for timed in ("kernel", "op")] == [1, 2]


def test_configs_with_other_hooks_stay_apart_however_equal_their_binaries_are():
    found = [
        (replace(one, hooks=hooks), ir)
        for hooks, ttgir, stages in (
            (("m:zero",), "same", 2),
            (("",), "same", 3),
            (("m:zero",), "other", 4),
            (("",), "other", 5),
        )
        for one, ir in [launches(num_stages=stages, of=ttgir)]
    ]

    groups, _ = grouped(*found)
    made = [replace(compiled(num_stages=stages), binary="b1") for stages in (2, 3, 4, 5)]
    merged = grouping.merge(made, groups, work=work(), lead=lambda _: False)

    assert [one.candidate.config["num_stages"] for one in groups] == [2, 3, 4, 5]
    assert [(one.candidate.config, one.aliases) for one in merged] == [
        (config(num_stages=2), (config(num_stages=4),)),
        (config(num_stages=3), (config(num_stages=5),)),
    ]


def test_what_cannot_fit_is_out_before_llvm_with_its_need_and_the_limit():
    fits, big = launches(BLOCK=64), launches(BLOCK=128)
    bound = replace(big[1], shared_bound=262144)

    groups, rejected = grouped(fits, (big[0], bound))

    assert [one.candidate.config for one in groups] == [config(BLOCK=64)]
    assert rejected == (
        Rejected(
            candidate=big[0].candidate,
            reason=Reason.SHARED,
            detail="at least 262144 bytes, 232448 available",
        ),
    )


@pytest.mark.parametrize(
    ("facts", "reason", "detail"),
    [
        ({}, None, ""),
        ({"shared_bytes": 232449}, Reason.SHARED, "232449 bytes, 232448 available"),
        ({"tensor_memory": 512}, Reason.TENSOR_MEMORY, "512 columns, 0 available"),
        ({"threads": 2048}, Reason.THREADS, "2048 threads, 1024 available"),
    ],
)
def test_a_binary_that_does_not_fit_is_out_with_its_need_and_the_limit(facts, reason, detail):
    unfit = grouping.unfit(replace(compiled(), **facts), H200)

    found = (unfit.reason, unfit.detail) if unfit else (None, "")
    assert found == (reason, detail)


def test_binaries_that_turn_out_equal_are_merged_and_launches_of_other_grids_are_not():
    pairs = [
        launches(BLOCK=64),
        launches(BLOCK=128),
        launches(BLOCK=256, grids=((8, 1, 1),)),
    ]
    groups, _ = grouped(*pairs)
    made = [
        replace(compiled(BLOCK=block), binary="b1", aliases=(config(BLOCK=block, num_warps=8),))
        for block in (64, 128, 256)
    ]

    merged = grouping.merge(
        made, groups, work=work(), lead=lambda one: one.config == config(BLOCK=128)
    )

    assert [(one.candidate.config, one.aliases) for one in merged] == [
        (
            config(BLOCK=128),
            (config(BLOCK=128, num_warps=8), config(BLOCK=64), config(BLOCK=64, num_warps=8)),
        ),
        (config(BLOCK=256), (config(BLOCK=256, num_warps=8),)),
    ]


def test_equal_binaries_of_two_problems_are_not_merged():
    groups, _ = grouped(launches(), launches(problem=OTHER))
    made = [replace(compiled(problem=problem), binary="b1") for problem in (PROBLEM, OTHER)]

    assert len(grouping.merge(made, groups, work=work("kernel", OTHER), lead=lambda _: False)) == 2


def test_what_fills_the_gpu_with_room_to_spare_is_compiled_first():
    def ranked(**changed):
        one, ir = launches(grids=(changed.pop("grid"),), **changed.pop("values", {}))
        [group], _ = grouped((one, replace(ir, **changed)))
        return grouping.promise(group, H200)

    full = ranked(grid=(1320, 1, 1))
    ragged = ranked(grid=(1330, 1, 1))
    crowded = ranked(grid=(1320, 1, 1), shared_bound=200000)
    idle = ranked(grid=(16, 1, 1))
    deep = ranked(grid=(1320, 1, 1), values={"num_stages": 5})
    empty = ranked(grid=(0, 1, 1))

    assert sorted([idle, empty, crowded, ragged, full, deep]) == [
        deep,
        full,
        crowded,
        ragged,
        idle,
        empty,
    ]
    assert all(math.isfinite(part) for part in empty)


def test_what_takes_longest_to_compile_is_found_whichever_problem_it_is_of():
    works = {"a": 3.0, "b": 5.0, "c": 5.0, "d": 1.0}
    pairs = [
        (one, replace(ir, work=works[of]))
        for block, of in enumerate(works)
        for one, ir in (
            launches(of=of, BLOCK=block),
            launches(of=of, BLOCK=block, problem=OTHER),
        )
    ]
    groups, _ = grouped(*pairs)

    assert len(groups) == 8
    assert grouping.longest(groups, 3) == ("b", "c", "a")
    assert grouping.longest(groups, 0) == ()


def test_the_work_of_a_compile_is_about_the_instructions_of_a_thread():
    text = (
        'module attributes {"ttg.num-warps" = 4 : i32, "ttg.threads-per-warp" = 32 : i32} {\n'
        "  %0 = arith.constant dense<0.0> : tensor<128x64xf32, #mma>\n"
        "  %1 = tt.load %p, %m : tensor<128x32x!tt.ptr<f16>, #blocked>\n"
        "  %2 = arith.addi %a, %b : i32\n"
        "}\n"
    )

    assert compile_work(text) == 128 * 64 / 128 + LOAD_WORK * 128 * 32 / 128
    assert compile_work("") == 0.0


# What is told of a failure


def outcome(answer, logs=None):
    one = Candidate(kernel=KERNEL, problem=PROBLEM, config=config())
    found = compiling.outcome_of(answer, one, logs)
    return found.reason, found.detail, found.log


def test_a_failure_is_one_line_and_the_rest_is_in_a_file_that_equal_failures_share(tmp_path):
    def failure(folder, address):
        return Raised(
            type_name="CompilerError",
            message="PTXASError: ptxas fatal : Register allocation failed",
            traceback=f"Traceback of /tmp/{folder}/kernel.ptx at {address}\n",
            output="a line of PTX\n" * 3000,
        )

    first = outcome(failure("ab12", "0x7f0012"), tmp_path)
    second = outcome(failure("cd34", "0x7faa34"), tmp_path)

    [log] = tmp_path.iterdir()
    assert first == second
    assert first == (
        Reason.REGISTERS,
        "PTXASError: ptxas fatal : Register allocation failed",
        str(log),
    )
    assert log.read_text(encoding="utf-8").count("a line of PTX") == 3000


def test_a_crash_a_kill_and_a_time_out_are_told_apart():
    assert outcome(Died(6, None)) == (Reason.CRASH, "killed by signal 6 (SIGABRT)", "")
    assert outcome(Died(9, None))[1] == "killed by signal 9 (SIGKILL), as when memory runs out"
    assert outcome(Died(35, None))[1] == "killed by signal 35 (signal 35)"
    assert outcome(Died(None, 1)) == (Reason.CRASH, "exited with code 1", "")
    assert outcome(TimedOut(12.0)) == (Reason.TIMEOUT, "cut off after 12 s", "")
    assert outcome(Raised("ValueError", "bad", ""))[1] == "ValueError: bad"


def test_a_folder_that_cannot_be_written_costs_the_log_and_not_the_outcome(tmp_path):
    assert fulltext.keep(tmp_path / "missing", "text") == ""
    assert fulltext.keep(tmp_path, " \n") == ""


# Folders of binaries

SERVED = (("target", "cuda:90"), ("Triton", "3.9.0"), ("Python", "3.11"))


def cache(folder, *names):
    """A compile cache as Triton writes it: a group file names its members by absolute paths."""
    for name in names:
        entry = folder / name
        entry.mkdir(parents=True)
        (entry / "add.cubin").write_bytes(b"binary")
        members = {"add.cubin": str(entry / "add.cubin")}
        text = json.dumps({"child_paths": members})
        (entry / "__grp__add.json").write_text(text, encoding="utf-8")
    return folder


def test_binaries_that_moved_are_found_where_they_are_now(tmp_path):
    made = cache(tmp_path / "made", "a", "b")
    (made / "half").mkdir()

    written = bundle.write(tmp_path / "out", SERVED, "ops:add", "5ec2", made.iterdir())
    here = tmp_path / "here"
    adopted = bundle.adopt(tmp_path / "out", SERVED, "ops:add", "5ec2", here)

    group = json.loads((here / "a" / "__grp__add.json").read_text(encoding="utf-8"))
    assert (written, adopted) == (2, 2)
    assert group == {"child_paths": {"add.cubin": str(here / "a" / "add.cubin")}}


def test_a_folder_takes_a_second_kernel_but_not_one_for_another_triton(tmp_path):
    made, out = cache(tmp_path / "made", "a"), tmp_path / "out"
    bundle.write(out, SERVED, "ops:add", "5ec2", made.iterdir())

    bundle.write(out, SERVED, "ops:double", "77aa", made.iterdir())
    with pytest.raises(SpecError) as caught:
        bundle.write(
            out, (*SERVED[:1], ("Triton", "3.6.0"), *SERVED[2:]), "ops:x", "1", made.iterdir()
        )

    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["kernels"] == {"ops:add": "5ec2", "ops:double": "77aa"}
    assert str(caught.value) == (
        f"{out / 'manifest.json'}: its binaries do not serve here: "
        "Triton is 3.9.0 there, 3.6.0 here\nhint: choose another folder"
    )


def test_every_field_that_differs_is_named(tmp_path):
    made, out = cache(tmp_path / "made", "a"), tmp_path / "out"
    bundle.write(out, (*SERVED, ("TRITON_X", "1")), "ops:add", "5ec2", made.iterdir())
    here = (("target", "cuda:80"), *SERVED[1:], ("TRITON_Y", "2"))

    with pytest.raises(SpecError) as caught:
        bundle.adopt(out, here, "ops:mul", "5ec2", tmp_path / "here")

    assert caught.value.what == (
        "its binaries do not serve here: target is cuda:90 there, cuda:80 here; "
        "TRITON_Y is not set there, 2 here; TRITON_X is 1 there, not set here; "
        "no binaries of `ops:mul` are in it"
    )


AGAIN = "\nhint: copy the whole folder again, or make it again: `tritune compile FILE --output DIR`"


def test_a_folder_that_lost_its_binaries_says_so(tmp_path):
    made, out = cache(tmp_path / "made", "a"), tmp_path / "out"
    bundle.write(out, SERVED, "ops:add", "5ec2", made.iterdir())
    shutil.rmtree(out / "5ec2")

    with pytest.raises(SpecError) as caught:
        bundle.adopt(out, SERVED, "ops:add", "5ec2", tmp_path / "here")

    assert str(caught.value) == (
        f"{out / '5ec2'}: the folder of `ops:add` that its manifest.json names is gone{AGAIN}"
    )


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ({"format": 1}, "served"),
        ({"format": 1, "served": {"target": "cuda:90"}}, "kernels"),
        ({"format": 1, "served": {"target": "cuda:90"}, "kernels": ["ops:add"]}, "kernels"),
        ({"format": 1, "served": {"target": 90}, "kernels": {}}, "served"),
    ],
)
def test_a_manifest_that_lacks_a_field_says_which(tmp_path, manifest, field):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest), encoding="utf-8")

    with pytest.raises(SpecError) as caught:
        bundle.adopt(tmp_path, SERVED, "ops:add", "5ec2", tmp_path / "here")

    assert str(caught.value) == f"{path}: has no `{field}` of names and texts{AGAIN}"


def test_a_folder_that_was_copied_in_part_says_which_file_of_it_is_cut_off(tmp_path):
    made, out = cache(tmp_path / "made", "a"), tmp_path / "out"
    bundle.write(out, SERVED, "ops:add", "5ec2", made.iterdir())
    group = out / "5ec2" / "a" / "__grp__add.json"
    group.write_text(group.read_text(encoding="utf-8")[:20], encoding="utf-8")

    with pytest.raises(SpecError) as caught:
        bundle.adopt(out, SERVED, "ops:add", "5ec2", tmp_path / "here")

    assert str(caught.value) == (
        f"{group}: is cut off, or no file of Triton's compile cache{AGAIN}"
    )
    assert not (tmp_path / "here" / "a").exists()

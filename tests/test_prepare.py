"""What is planned besides the space, and what the interpreter's answers come to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes import candidate, config, entry
from fakes import rejected as out
from projects import Project
from test_measure_sweep import PROBLEMS, Silent, binaries, found, job
from tritune import pipeline
from tritune.errors import SpecError
from tritune.model import Axis, Config, Constraint, Problem, Reason
from tritune.pipeline import prepare, smoke
from tritune.pipeline.job import SweepOptions

FIRST = PROBLEMS[0]
PLANNED = tuple(one.candidate for one in binaries())
OUTSIDE = config(BLOCK=512)


@pytest.mark.parametrize("evidence", [{"unmeasured": True}, {"unsettled": True}])
def test_a_locked_config_that_nobody_chose_here_is_raced_though_the_space_lacks_it(
    tmp_path: Path, evidence: dict[str, bool]
) -> None:
    this = job(tmp_path)
    this = replace(this, info=replace(this.info, default=config(BLOCK=1)))

    more = prepare.outside(this, found(), PLANNED, {str(FIRST): entry(OUTSIDE, **evidence)})

    assert more == (candidate(problem=FIRST, BLOCK=512),)
    assert this.warnings == []


def test_a_winner_that_the_space_lacks_now_is_said_to_lose_its_place(tmp_path: Path) -> None:
    this = job(tmp_path)
    locked = {str(FIRST): entry(OUTSIDE), str(PROBLEMS[1]): entry(config(BLOCK=2))}

    more = prepare.outside(this, found(), PLANNED, locked)

    assert more == ()
    assert this.warnings == ["M=1: the locked config is not in the space: BLOCK=512 num_warps=4"]


def test_a_locked_config_with_other_tunables_cannot_be_raced(tmp_path: Path) -> None:
    this = job(tmp_path)
    other = entry(config(BLOCK=512, WIDE=1), unmeasured=True)

    assert prepare.outside(this, found(), PLANNED, {str(FIRST): other}) == ()
    assert this.warnings == [
        "M=1: the locked config is not in the space: BLOCK=512 WIDE=1 num_warps=4"
    ]


def test_a_locked_config_that_nobody_says_is_valid_is_not_raced(tmp_path: Path) -> None:
    this = job(tmp_path)
    this = replace(this, info=replace(this.info, foreign=True))
    other = entry(OUTSIDE, unmeasured=True)

    assert prepare.outside(this, found(), PLANNED, {str(FIRST): other}) == ()
    assert this.warnings == ["M=1: the locked config is not in the space: BLOCK=512 num_warps=4"]


def test_a_locked_config_with_a_launch_option_more_is_raced(tmp_path: Path) -> None:
    this = job(tmp_path)
    other = entry(config(BLOCK=512, num_ctas=2), unmeasured=True)

    [more] = prepare.outside(this, found(), PLANNED, {str(FIRST): other})

    assert more == candidate(problem=FIRST, BLOCK=512, num_ctas=2)


def test_a_smoke_problem_is_unsolved_where_no_config_is_right_on_it(tmp_path: Path) -> None:
    this = job(tmp_path)
    space = (Axis(name="BLOCK", values=(1, 2)), Axis(name="num_warps", values=(4,)))
    this = replace(this, sweep=replace(this.sweep, space=space, smoke=PROBLEMS))
    one, two, _ = (
        [out(Reason.MISTAKEN, problem=problem, BLOCK=block) for block in (1, 2)]
        for problem in PROBLEMS
    )

    assert smoke.all_wrong(this, [*one, two[0]]) == (FIRST,)
    assert smoke.all_wrong(this, []) == ()


def test_a_sweep_without_a_gpu_fails_where_the_op_is_never_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    project = Project(tmp_path / "project")
    project.edit("ops.py", "lambda: scale(x))", "lambda: scale(x), reference=lambda: x)")
    project.edit("sweeps/scale.yaml", "shapes:", "smoke: [{n: 100, dtype: float32}]\nshapes:")

    [report] = pipeline.run(
        project.sweep, SweepOptions(target="H200", jobs=1, compile_budget_s=0.0), Silent()
    )

    assert report.unsolved == (Problem.of({"n": 100, "dtype": "float32"}),)


def test_what_no_smoke_problem_can_run_is_counted_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    project = Project(tmp_path / "project")
    project.edit("ops.py", " + PAIR[0] * half(BLOCK)", "")  # equal results of all blocks
    project.edit("sweeps/scale.yaml", "[256, 512]", "{pow2: [32, 4096]}")
    project.edit(
        "sweeps/scale.yaml",
        "shapes:",
        "constraints: [BLOCK <= n]\nsmoke: [{n: 100, dtype: float32}]\nshapes:",
    )
    project.edit("sweeps/scale.yaml", "[1000, 4096]", "[1000, 2048]")

    [report] = pipeline.run(
        project.sweep, SweepOptions(target="H200", jobs=1, compile_budget_s=0.0), Silent()
    )

    # 4096 is for no problem at all, and so not missing here.
    assert report.not_interpreted == tuple(Config.of({"BLOCK": 1 << n}) for n in range(7, 12))
    [text] = [step.text for step in report.steps if step.name == "verifying in the interpreter"]
    assert text == (
        "2 distinct sets of meta-parameters on 1 smoke problem: 2 results right, 0 wrong "
        "(results, not times), 5 sets not reached"
    )
    [warning] = report.warnings
    assert warning == (
        "the interpreter has not verified what no smoke problem can run under the constraints or "
        "the prune function: BLOCK=128; BLOCK=256; BLOCK=512; BLOCK=1024; BLOCK=2048"
    )


def test_constraints_that_leave_no_config_are_an_error_and_those_of_one_problem_are_said(
    tmp_path: Path,
) -> None:
    this = job(tmp_path)
    space = (Axis(name="BLOCK", values=(1, 2)),)
    never = Constraint(text="BLOCK > 9", where="s.yaml:3:5", names=frozenset({"BLOCK"}))
    rarely = Constraint(text="M > 1", where="s.yaml:4:5", names=frozenset({"M"}))
    none = replace(this, sweep=replace(this.sweep, space=space, constraints=(never,)))
    some = replace(this, sweep=replace(this.sweep, space=space, constraints=(rarely,)))

    with pytest.raises(SpecError) as caught:
        prepare.plan(none)
    prepare.plan(some)

    assert str(caught.value) == (
        f"{this.sweep.path}: constraints: they leave none of 2 configs on any problem\n"
        f"hint: `tritune show space {this.sweep.path}` says what each of them removes"
    )
    assert some.warnings == ["M=1: the constraints leave no config, so only the default is tried"]

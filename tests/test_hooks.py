"""The `pre_hook` of a config: named in its entry, missed where it is gone, given what Triton gives.

The kernels run in Triton's interpreter; a driver that only answers questions stands in for a GPU.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

import tritune
from fakes import evidence
from test_adopt import (
    FILL,
    _world,
    benchmarks,
    config,
    configs,
    fill,
    installed,
    key,
    ran,
    sweeping,
    timed,
    zeroed,
)
from test_runtime import locked
from tritune import adopt, evidenced, hooks, intercept, lock, lockscan, locktext, lookup
from tritune.check import Status, Today, judge
from tritune.identity import hook_digest
from tritune.load import Loaded, describe, own_hooks
from tritune.lockrender import render
from tritune.model import Config, Entry, KernelInfo, Winner

__all__ = ["_world", "benchmarks", "sweeping"]

HERE = "test_hooks"
ZEROED = f"test_adopt:zeroed@{hook_digest(zeroed)}"


def other(named):
    named["y"].fill_(3)


# --- the name of a hook ---------------------------------------------------------------------


class Sets:
    """A hook that is an object, or a method of one."""

    def __call__(self, named):
        named["y"].zero_()

    def method(self, named):
        named["y"].zero_()


def same(hook):
    @wraps(hook)
    def around(named):
        hook(named)

    return around


@same
def wrapped(named):
    named["y"].zero_()


@pytest.mark.parametrize(
    ("hook", "name"),
    [
        (None, ""),
        (zeroed, "test_adopt:zeroed"),
        (partial(partial(zeroed)), "test_adopt:zeroed()"),
        (Sets(), "test_hooks:Sets()"),
        (Sets, "test_hooks:Sets"),
        (wrapped, "test_hooks:wrapped()"),
        (Sets.method, "test_hooks:Sets.method"),
        (Sets().method, "test_hooks:Sets.method()"),
        (lambda _: None, "test_hooks:<lambda>"),
    ],
)
def test_a_hook_is_named_by_the_function_that_runs(hook, name):
    assert hooks.name(hook) == name


def test_the_hook_of_a_script_is_named_as_where_its_file_is_imported(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from tritune import hooks\n"
        "class Z:\n    def __call__(self, named): ...\n    def zero(self, named): ...\n"
        "def zero(named): ...\n"
        "print(*map(hooks.name, (Z(), Z().zero, zero)))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parent.parent)])
    env = {**os.environ, "PYTHONPATH": path}

    said = [
        subprocess.run(
            [sys.executable, *how], env=env, capture_output=True, text=True, check=True
        ).stdout.strip()
        for how in ([str(script)], ["-c", "import train"])
    ]

    assert said == ["train:Z() train:Z.zero() train:zero"] * 2


def filler(value):
    def fills(named):
        named["y"].fill_(value)

    return fills


def test_the_digest_of_a_hook_is_of_its_code_and_of_what_it_reaches():
    def same(named):
        named["y"].fill_(3)  # a comment

    assert hook_digest(filler(1)) == hook_digest(filler(1)) != hook_digest(filler(2))
    assert hook_digest(zeroed) != hook_digest(other) != hook_digest(same)
    assert hook_digest(partial(zeroed, 1)) != hook_digest(partial(zeroed, 2))
    assert len(hook_digest(Sets())) == 8


def emptied(named, how):
    how(named)


GIVEN_TO_IT = [
    ("c",), ("d",), ["c", "d"], {"c": 1}, {"c": 2}, {"c": [1]}, 1, "1", None,
    zeroed, other, partial(zeroed, 1), partial(zeroed, partial(other)),
    partial(zeroed, (other,)), [zeroed], Sets().method, Sets, torch.float16, torch.zeros,
]  # fmt: skip


@pytest.mark.parametrize(
    "give", [lambda it: partial(emptied, it), lambda it: partial(emptied, how=it)]
)
def test_the_digest_of_a_partial_is_of_all_that_it_is_given(give):
    digests = [hook_digest(give(value)) for value in GIVEN_TO_IT]

    assert len({*digests}) == len(GIVEN_TO_IT)
    assert digests == [hook_digest(give(value)) for value in GIVEN_TO_IT]


# --- in the lockfile ------------------------------------------------------------------------


def test_an_entry_names_its_hook_last_and_one_without_has_no_such_field(tmp_path):
    path = locked(tmp_path / "t.lock", {key(): config(32)}, hook=ZEROED)
    plain = locked(tmp_path / "plain.lock", {key(): config(32)})

    assert f'"hook": "{ZEROED}"}}\n' in path.read_text()
    assert "hook" not in plain.read_text()
    held = lock.read(path)
    assert render(locktext.parse(path.read_text(), "-")) == path.read_text()
    assert [entry.evidence.hook for _, entry in held.entries] == [ZEROED]


def test_a_kept_entry_names_the_hook_of_today(tmp_path):
    held = lock.read(locked(tmp_path / "t.lock", {key(): config(32)}, hook=ZEROED))
    [(at, entry)] = held.entries
    winner = Winner(
        kernel=at.kernel, key=at.key, problem=None, config=entry.config, change="kept",
        evidence=evidence(us=9.0),
    )  # fmt: skip

    [(_, kept)] = lock.merge_winners(held, held.devices[0], [winner]).entries

    assert (kept.evidence.hook, kept.evidence.us) == ("", entry.evidence.us)


def info(configs_, hooks_, *, one_hook=False) -> KernelInfo:
    own = tuple(map(Config.of, configs_))
    return KernelInfo(
        name="k", file="", line=1, params=(), constexprs=(), tunables=("B",), default=own[0],
        configs=own, hooks=hooks_, has_one_hook=one_hook, key=(), near=None, lockfile="",
        problem="", problem_line=1, problem_params=(), source="",
    )  # fmt: skip


def test_a_config_has_the_hook_of_the_authors_that_it_is_or_the_one_that_all_share():
    listed = [{"B": 1}, {"B": 2}]
    mixed = info(listed, ("m:z@1", ""))
    shared = info(listed, ("m:z@1", "m:z@1"), one_hook=True)
    alike = info(listed, ("m:z@1", "m:z@1"))

    assert mixed.hook_of(Config.of({"B": 1, "num_ctas": 2})) == "m:z@1"
    assert mixed.hook_of(Config.of({"B": 2})) == mixed.hook_of(Config.of({"B": 3})) == ""
    assert shared.hook_of(Config.of({"B": 3})) == "m:z@1"
    assert (alike.hook_of(Config.of({"B": 2})), alike.hook_of(Config.of({"B": 3}))) == ("m:z@1", "")
    assert info(listed, (), one_hook=True).hook_of(Config.of({"B": 1})) == ""


def a_problem():
    raise NotImplementedError


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_sweep_names_a_hook_for_a_config_of_nobodys_where_a_launch_runs_one(sweeping, is_shared):
    first = filler(3)
    listed = [*configs(16, hook=first), *configs(32, hook=first if is_shared else filler(3))]
    behind = sweeping(fill(listed))
    told = describe(Loaded(behind, a_problem))
    other_ = config(64)

    assert told.hooks[0] == told.hooks[1] != ""
    assert told.hook_of(Config.of(other_)) == (told.hooks[0] if is_shared else "")
    assert bool(behind.tuning.no_hook(other_)) is not is_shared
    assert told.hook_of(Config.of(config(32))) == told.hooks[1]


def test_the_hooks_of_a_kernel_stand_beside_its_configs_and_nowhere_if_it_has_none(sweeping):
    mixed = sweeping(fill([*configs(16, hook=zeroed), *configs(32)]))
    plain = sweeping(chained("HG"))

    assert (own_hooks(mixed), own_hooks(plain)) == ((ZEROED, ""), ())


class Empty(list[str]):
    """A hook that is nothing to `bool()`."""

    def __call__(self, named):
        named["y"].zero_()


def test_a_hook_that_is_an_empty_collection_is_one_all_the_same(sweeping):
    hooked = sweeping(fill([*configs(16, hook=Empty()), *configs(32)]))

    assert own_hooks(hooked) == (f"test_hooks:Empty()@{hook_digest(Empty())}", "")


# --- served ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "now"), [(None, "has none now"), (other, "has `test_hooks:other` now")]
)
def test_an_entry_is_missed_and_said_once_where_its_config_has_not_its_hook(
    tmp_path, caplog, benchmarks, hook, now
):
    kernel = fill(configs(16, 32, hook=hook))
    installed(tmp_path, {key(): config(16), key(9): config(16)}, hook=ZEROED)

    assert (ran(kernel), ran(kernel), ran(kernel, 9), benchmarks()) == (32, 32, 32, 4)
    [line] = caplog.messages
    assert line == (
        f"{FILL}: no locked config for {key()} on H100, so Triton autotunes it: it was locked with "
        f"the pre_hook `test_adopt:zeroed`, and its config {now}"
    )


def test_an_entry_whose_config_and_hook_are_both_gone_is_missed(tmp_path, benchmarks):
    kernel = fill(configs(16, 32))
    installed(tmp_path, {key(): config(128)}, hook=ZEROED)

    assert (ran(kernel), benchmarks()) == (32, 2)


def test_an_entry_is_served_with_the_hook_that_it_names_whatever_its_code(tmp_path, benchmarks):
    kernel = fill(configs(16, 32, hook=zeroed))
    installed(tmp_path, {key(): config(16)}, hook="test_adopt:zeroed@00000000")

    assert (ran(kernel), benchmarks()) == (16, 0)


def test_a_kernel_with_tritunes_line_misses_an_entry_whose_hook_is_gone(tmp_path, caplog):
    name = f"{HERE}:{test_a_kernel_with_tritunes_line_misses_an_entry_whose_hook_is_gone.__name__}"
    path = locked(
        tmp_path / "t.lock", {key(): config(32)}, kernel=f"{name}.<locals>.own", hook=ZEROED
    )

    @tritune.kernel(lockfile=path)
    @triton.autotune(configs(16, 32), key=["n"])
    @triton.jit
    def own(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.store(y, B)

    assert ran(own) == 16
    assert "it was locked with the pre_hook `test_adopt:zeroed`" in caplog.text


OTHER = f"{FILL}_too"
"""Another kernel of the same file."""


def both(path, hook="", other=ZEROED):
    """A lockfile of two kernels, each with a hook of its own."""
    locked(path, {key(): config(32), key(9): config(32)})
    held = lock.read(path)
    entries = [
        (replace(at, kernel=kernel), replace(entry, evidence=evidence(hook=named)))
        for at, entry in held.entries
        for kernel, named in ((FILL, hook), (OTHER, other))
    ]
    lock.write(path, replace(held, entries=tuple(sorted(entries, key=lambda one: str(one[0])))))
    return path


def damaged(path):
    """The same, with a line of each kernel's evidence damaged."""
    text = path.read_text()
    assert text.count('"us": 10.0') == 4
    path.write_text(text.replace('"us": 10.0', '"us": 10..0'))
    return path


def test_a_kernel_with_no_hook_is_asked_for_none_whatever_others_have(
    tmp_path, monkeypatch, benchmarks
):
    read = []
    monkeypatch.setattr(evidenced, "_loaded", lambda text: read.append(text) or {})
    monkeypatch.setattr(lockscan.Scan, "evidence", lambda *args: read.append(args) or {})
    tritune.install(both(tmp_path / "t.lock"))
    kernel = fill()

    assert (ran(kernel), ran(kernel, 9), benchmarks(), read) == (32, 32, 0, [])


def test_whether_a_kernel_has_hooks_is_searched_for_once_and_its_evidence_found_once(tmp_path):
    calls = []

    class Counted(lockscan.Scan):
        def mentions(self, kernel, word):
            calls.append("mentions")
            return super().mentions(kernel, word)

        def evidence(self, kernel):
            calls.append("evidence")
            return super().evidence(kernel)

    scanned = lockscan.scan(both(tmp_path / "t.lock").read_bytes())
    counted = Counted(data=scanned.data, head=scanned.head, kernels=scanned.kernels)
    bare, hooked = (evidenced.Evidenced(counted, None, kernel) for kernel in (FILL, OTHER))

    assert [bare.hook("H100", key(n)) for n in (8, 9)] == ["", ""]
    assert calls == ["mentions"]
    assert [hooked.hook("H100", key(n)) for n in (8, 9)] == [ZEROED, ZEROED]
    assert calls == ["mentions", "mentions", "evidence"]


def test_damaged_evidence_is_no_miss_of_a_kernel_without_hooks_in_a_file_with_others(
    tmp_path, benchmarks
):
    tritune.install(damaged(both(tmp_path / "t.lock")))

    assert (ran(fill()), benchmarks()) == (32, 0)


def test_an_entry_whose_evidence_is_damaged_is_missed_where_its_kernel_has_hooks(
    tmp_path, caplog, benchmarks
):
    tritune.install(damaged(both(tmp_path / "t.lock", ZEROED, "")))

    assert (ran(fill(configs(16, 64, hook=zeroed))), benchmarks()) == (64, 2)
    assert caplog.messages == [
        (
            f"{FILL}: no locked config for {key()} on H100, so Triton autotunes it: its evidence "
            "is damaged, so nothing says which pre_hook it was locked with"
        )
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [('"hook": ', '"hook":'), ('"hook": ', '"hook"  :  '), ("n=8", r"n\u003d8")],
)
def test_a_hook_is_found_however_its_line_is_written(tmp_path, caplog, before, after):
    kernel = fill(configs(16, 32))
    path = locked(tmp_path / "t.lock", {key(): config(16)}, kernel=FILL, hook=ZEROED)
    path.write_text(path.read_text().replace(before, after))
    tritune.install(path)

    assert ran(kernel) == 32
    assert "it was locked with the pre_hook `test_adopt:zeroed`" in caplog.text


class Overtaken(lookup.Lockfile):
    """After each look at what was scanned, another thread has read the whole."""

    held: lockscan.Scan | None = None

    @property
    def _scan(self):
        scan, self.held = self.held, None if self._sections else self.held
        if self._sections and scan:
            self.document = self._whole(scan.data)
        return scan

    @_scan.setter
    def _scan(self, scan):
        self.held = scan


def test_a_look_up_survives_that_another_thread_reads_the_whole_meanwhile(tmp_path):
    file = Overtaken(both(tmp_path / "t.lock"))
    file._sections = {OTHER: file._section(OTHER)}

    assert file.evidence(OTHER).hook("H100", key()) == ZEROED
    assert file.held is None
    assert file.evidence(FILL).hook("H100", key()) == ""


def made(prune):
    @triton.jit
    def makes(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.atomic_add(y, B)

    return triton.autotune(
        configs(16), key=["n"], do_bench=timed, prune_configs_by={"early_config_prune": prune}
    )(makes)


MADE = f"{HERE}:made.<locals>.makes"


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (
            "",
            (
                "its config is not in its author's list, and the early_config_prune that may make "
                "it fails"
            ),
        ),
        (
            ZEROED,
            "it was locked with the pre_hook `test_adopt:zeroed`, and its config has none now",
        ),
    ],
)
def test_where_a_prune_function_fails_what_only_it_makes_is_missed_and_said(
    tmp_path, caplog, hook, why
):
    def prune(listed, named, **_):
        raise RuntimeError("no NVML")

    kernel = made(prune)
    installed(tmp_path, {key(): config(128)}, kernel=MADE, hook=hook)

    assert (ran(kernel), ran(kernel)) == (16, 16)  # Triton asks no prune function of one config
    [line] = caplog.messages
    at, _, said = line.partition(" (RuntimeError: no NVML)")
    assert at == f"{MADE}: no locked config for {key()} on H100, so Triton autotunes it: {why}"
    assert not said


def test_where_a_prune_function_fails_for_one_key_another_is_served_as_before(tmp_path):
    def prune(listed, named, **_):
        if named["n"] == 9:
            raise RuntimeError("no NVML")
        return listed

    kernel = made(prune)
    installed(tmp_path, {key(): config(128)}, kernel=MADE)
    assert (ran(kernel), ran(kernel, 9)) == (128, 16)

    adopt.kernel_of(kernel)._memo.clear()

    assert ran(kernel) == 128


def test_what_a_prune_function_makes_no_more_is_missed(tmp_path, caplog):
    kernel = made(lambda listed, named, **_: listed[:1])
    installed(tmp_path, {key(): config(128)}, kernel=MADE, hook=ZEROED)

    assert ran(kernel) == 16
    assert "its config has none now" in caplog.text


def test_a_config_that_its_author_does_not_list_is_served_and_that_is_said_once(tmp_path, caplog):
    kernel = fill()
    caplog.set_level(logging.INFO, logger="tritune")
    installed(tmp_path, {key(): config(128), key(9): config(128)})

    assert (ran(kernel), ran(kernel, 9)) == (128, 128)
    [line] = [line for line in caplog.messages if "author's list" in line]
    assert line == (
        f"{FILL}: B=128 num_stages=3 num_warps=4 is locked, and is not in its author's list: "
        "`space:` of its sweep file has to have it"
    )


# --- checked --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ("m:z@1", "m:z@1", ""),
        ("", "m:z@1", ""),
        ("", "", ""),
        ("m:z@1", "", "it was locked with the pre_hook `m:z`, and its config has none now"),
        ("m:z@1", "m:y@1", "it was locked with the pre_hook `m:z`, and its config has `m:y` now"),
        ("m:z@1", "m:z@2", "the code of its pre_hook `m:z` changed"),
    ],
)
def test_an_entry_is_stale_once_its_hook_is_another(before, now, why):
    held = Entry(config=Config.of({"B": 1}), evidence=evidence(hook=before))
    said = held.evidence
    today = Today(triton=said.triton, source=said.source, space=said.space, ir=said.ir, hook=now)

    assert judge(held, today) == (Status.STALE if why else Status.FRESH, why)


# --- what hooks, heuristics and prune functions are given ------------------------------------


def keeping(seen):
    """A kernel whose hook and inner heuristic note what they are given."""

    def hook(named):
        seen.append(("hook", dict(named)))

    def heuristic(named):
        seen.append(("heuristic", dict(named)))
        return 5

    @triton.autotune(configs(16, 32, hook=hook), key=["n"], do_bench=timed)
    @triton.heuristics({"H": heuristic})
    @triton.jit
    def keeps(x, y, n, H: tl.constexpr, B: tl.constexpr):
        tl.store(y, B + H)

    return keeps


KEEPS = f"{HERE}:keeping.<locals>.keeps"
GIVEN = {"x", "y", "n", "grid", "warmup", "B", "num_warps", "num_stages", "num_ctas"}


def launched(kernel, grid):
    y = torch.zeros(1, dtype=torch.int32)
    kernel[grid](torch.zeros(8), y, 8)
    return y.item()


def told(seen):
    return [(who, {*named}, named["grid"], named["num_ctas"]) for who, named in seen]


def test_a_hook_and_an_inner_heuristic_are_given_what_triton_gives_them(tmp_path):
    seen = []
    kernel, grid = keeping(seen), lambda _: (1,)
    assert launched(kernel, grid) == 37
    alone = told(seen)[-2:]
    assert alone == [("hook", GIVEN, grid, 1), ("heuristic", GIVEN, grid, 1)]

    installed(tmp_path, {"n=8 x=f32 y=i32": config(16)}, kernel=KEEPS)
    seen.clear()

    assert launched(kernel, grid) == 21
    assert told(seen) == alone


def test_they_are_given_the_same_in_a_sweep(sweeping):
    seen = []
    kernel, grid = keeping(seen), lambda _: (1,)
    behind = sweeping(kernel)

    _, [one] = intercept.capture(
        behind, lambda: launched(kernel, grid), Config.of(config(32)), launch=True
    )

    hooked = [given for given in told(seen) if given[0] == "hook"]
    assert hooked == [("hook", GIVEN, grid, 1)]
    assert told(seen)[-1] == ("heuristic", GIVEN, grid, 1)
    assert (one.kwargs["num_ctas"], {*one.for_hook()}) == (1, GIVEN)


def chained(order):
    """Two inner heuristics: the later one sees the first's, and both overwrite the caller's."""
    both = {"H": lambda named: named["B"] + 1, "G": lambda named: 100 * named["H"]}

    @triton.autotune(configs(16, 32), key=["n"], do_bench=timed)
    @triton.heuristics({name: both[name] for name in order})
    @triton.jit
    def chains(x, y, n, H: tl.constexpr, G: tl.constexpr, B: tl.constexpr):
        tl.store(y, H + G)

    return chains


@pytest.mark.parametrize(("order", "result"), [("HG", 3333), ("GH", 733)])
def test_inner_heuristics_see_each_other_in_their_order_and_overwrite_in_a_sweep_too(
    sweeping, order, result
):
    kernel = chained(order)
    y = torch.zeros(1, dtype=torch.int32)

    def op():
        kernel[(1,)](torch.zeros(8), y, 8, H=7, G=9)

    _, [one] = intercept.capture(sweeping(kernel), op, Config.of(config(32)))

    assert y.item() == result
    assert one.named()["H"] == 33
    assert one.named()["G"] == result - 33
    assert one.for_hook()["H"] == 7


def test_a_prune_function_is_given_the_grid_of_the_launch(sweeping, tmp_path):
    seen = []

    def prune(listed, named, grid, **_):
        seen.append(grid)
        return listed[:1]

    kernel, grid = fill(prune_configs_by={"early_config_prune": prune}), lambda _: (1,)
    behind = sweeping(kernel)

    def op():
        kernel[grid](torch.zeros(8), torch.zeros(1, dtype=torch.int32), 8, 1)

    _, captured = intercept.capture(behind, op, Config.of(config(16)))
    assert intercept.is_admitted(captured)
    intercept.as_it_comes(op)
    tritune.uninstall()
    installed(tmp_path, {key(): config(128)})
    op()

    assert seen
    assert all(each is grid for each in seen)


def test_a_list_that_is_pruned_to_nothing_is_tried_whole_and_that_is_said(sweeping):
    behind = sweeping(fill(prune_configs_by={"early_config_prune": lambda *_, **__: []}))

    assert len(behind.admitted((), {})) == 3
    assert list(behind.notes) == ["its early_config_prune leaves no config, so all are tried"]


def test_a_performance_model_is_given_copies_of_the_configs(sweeping):
    class Careless(Autotuner):
        def prune_configs(self, kwargs):
            for live in self.configs:
                live.kwargs["B"], live.num_warps = 1, 1
            return super().prune_configs(kwargs)

    kernel = fill(
        configs(16, 32), kind=Careless,
        prune_configs_by={"perf_model": lambda B, **_: B, "top_k": 1},
    )  # fmt: skip

    assert len(sweeping(kernel).foreseen((torch.zeros(8),), {"n": 8, "FLAG": 1})) == 1
    assert [(live.kwargs["B"], live.num_warps) for live in kernel.configs] == [(16, 4), (32, 4)]


def test_hooks_of_the_autotuner_itself_never_run_in_a_sweep_and_that_is_said(sweeping):
    called = []
    kernel = fill(
        pre_hook=lambda *_, **__: called.append("pre"),
        post_hook=lambda *_, **__: called.append("post"),
    )
    behind = sweeping(kernel)

    intercept.capture(behind, lambda: ran(kernel), Config.of(config(32)))

    assert called == []
    assert list(behind.notes) == [
        f"the {name} of its autotuner is for Triton's own benchmarks, and never runs here: what a "
        "launch writes is put back without it"
        for name in ("pre_hook", "post_hook")
    ]


def test_a_num_ctas_that_the_caller_passes_is_refused_by_triton_as_before(tmp_path):
    kernel = fill(configs(16))
    with pytest.raises(TypeError, match="num_ctas"):
        ran(kernel, num_ctas=1)
    installed(tmp_path, {key(): config(16)})

    with pytest.raises(TypeError, match="num_ctas"):
        ran(kernel, num_ctas=1)


def test_the_hook_of_a_config_that_a_prune_function_makes_is_known_once_it_has(sweeping):
    def prune(listed, named, **_):
        return [*listed, *configs(128, hook=zeroed)]

    behind = sweeping(made(prune))
    before = own_hooks(behind)

    behind.admitted((), {})

    assert (before, own_hooks(behind)) == ((), ("", ZEROED))


def clusters(named):
    named["y"].fill_(named["num_ctas"] + named["num_warps"])


def test_a_hook_reads_launch_options_that_no_config_says_served_and_in_a_sweep(tmp_path, sweeping):
    @triton.autotune(configs(16, 32, hook=clusters), key=["n"], do_bench=timed)
    @triton.jit
    def hooked(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.atomic_add(y, B)

    behind = sweeping(hooked)
    _, [one] = intercept.capture(behind, lambda: ran(hooked), Config.of(config(32)))
    swept = one.args[1].item()
    tritune.uninstall()
    installed(tmp_path, {key(): config(16)}, kernel=behind.name, hook=f"{HERE}:clusters@")

    assert (swept, ran(hooked)) == (37, 21)
    assert "num_ctas" not in one.kwargs


@pytest.mark.parametrize("spaces", ["", " "])
@pytest.mark.parametrize("n", [8, 6])
def test_a_hook_is_asked_for_of_the_entry_that_serves_however_the_file_is_laid_out(
    tmp_path, caplog, spaces, n
):
    here = test_a_hook_is_asked_for_of_the_entry_that_serves_however_the_file_is_laid_out
    name = f"{HERE}:{here.__name__}.<locals>.nearby"
    entries = {key(): config(32), key(4): config(32)}
    path = locked(tmp_path / "t.lock", entries, kernel=name, hook=ZEROED)
    path.write_text(path.read_text().replace('"kernels":', f'{spaces}"kernels":'))

    @tritune.kernel(lockfile=path, near="n")
    @triton.autotune(configs(16, 32), key=["n"])
    @triton.jit
    def nearby(x, y, n, FLAG: tl.constexpr, B: tl.constexpr):
        tl.store(y, B)

    assert ran(nearby, n) == 16
    assert "it was locked with the pre_hook `test_adopt:zeroed`" in caplog.text

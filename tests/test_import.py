"""Tables of other tools: what is taken in, what is refused, and what a sweep makes of it."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from click.testing import CliRunner, Result

from fakes import TRITON, grid_compiled, grid_outcomes, grid_problems, grid_samples
from projects import H200, Project
from replay_device import ReplayDevice
from tritune import choose, configtables, devicelabels, fitting, keytext, lock, lookup
from tritune.cli import tritune
from tritune.configtables import Row
from tritune.device import cuda, targets
from tritune.device.guards import Guard, NoSensors
from tritune.errors import ManyMistakesError, TableError
from tritune.fitting import Receiver
from tritune.model import (
    Config,
    Entry,
    Measured,
    Outcome,
    Problem,
    Timing,
    Winner,
)
from tritune.pipeline.cases import resumed
from tritune.pipeline.rounds import Rounds

ROOT = Path(__file__).parent.parent
MATMUL = "kernels.matmul:matmul_kernel"
NAME = "E=8,N=14336,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
OWN = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 4}
A_TABLE = 'a table is {"64": {"BLOCK_SIZE_M": 64, ...}, "128": ...}'
CUT = "copy it again, should it be cut off; "
TIMES = 'a file of Triton\'s autotuner is {"key": [...], "configs_timings": [[config, times], ...]}'
RECEIVER = Receiver(
    kernel=MATMUL,
    default=Config.of(OWN),
    key=("M", "N", "K"),
    constants=(),
    numbers=("M", "K"),
    tensors=("a", "b"),
    all_tensors=True,
)


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda, "present", lambda: False)
    monkeypatch.setenv("TRITUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITUNE_LOCKFILE", raising=False)
    monkeypatch.setattr(lookup, "_files", {})


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


def vllm(*blocks: int, **changed: Any) -> dict[str, Any]:
    """A config as vLLM writes it: block sizes M, N, K."""
    m, n, k = blocks
    tiles = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
    return {**tiles, "num_warps": 4, "num_stages": 4} | changed


def table(folder: Path, rows: dict[str, Any], name: str = NAME) -> str:
    path = folder / name
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return str(path)


def row(**values: Any) -> Row:
    return Row(where="t.json:2: 64", parts=(("M", "64"),), values=tuple(values.items()))


# What a table says.


def test_a_table_of_vllms_says_its_sizes_its_device_and_its_triton():
    text = json.dumps({"triton_version": "3.5.1", "64": vllm(64, 128, 32)})

    found = configtables.parse_vllm(text, f"configs/{NAME}", "M")

    assert (found.device, found.triton) == ("NVIDIA_H200", "3.5.1")
    [one] = found.rows
    assert one.parts == (
        ("M", "64"), ("E", "8"), ("N", "14336"), ("dtype", "fp8_w8a8"), ("block_shape", "[128,128]")
    )  # fmt: skip
    assert dict(one.values) == vllm(64, 128, 32)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"t.json:1: is not JSON: expecting value\nhint: {CUT}{A_TABLE}"),
        ("[]", f"t.json:1: expected an object, got []\nhint: {A_TABLE}"),
        ("{}", f"t.json: it holds no config\nhint: {A_TABLE}"),
        ('{\n"64": 3}', f"t.json:2: 64: expected an object, got 3\nhint: {A_TABLE}"),
        ('{\n"big": {}}', f't.json:2: big: expected a size of M, got "big"\nhint: {A_TABLE}'),
        (
            '{"key": [1], "configs_timings": []}',
            (
                't.json:1: key: expected a size of M, got "key"\n'
                "hint: this is a file of Triton's autotuner: --format autotune-cache"
            ),
        ),
        (
            '{"64": {\n"BLOCK_SIZE_M": [1]}}',
            (
                "t.json:2: 64.BLOCK_SIZE_M: expected a value, got [1]\n"
                "hint: a value is a number, a text, true, false or null"
            ),
        ),
        (
            '{"64": {},\n"64": {}}',
            't.json:2: "64" stands twice, first on line 1\nhint: leave one of the two out',
        ),
        (
            f'{{"{"9" * 5000}": {{}}}}',
            f't.json:1: {"9" * 5000}: expected a size of M, got "{"9" * 39}\nhint: {A_TABLE}',
        ),
    ],
)
def test_a_broken_table_is_told_with_its_line(text, said):
    with pytest.raises(TableError) as caught:
        configtables.parse_vllm(text, "t.json", "M")

    assert str(caught.value) == said


def autotune_file(*times: object, key: tuple[object, ...] = (4096, "torch.float16")) -> str:
    """As Triton's autotuner leaves it: block 256 took the first time, 512 the second."""
    unsaid = {"num_ctas": 1, "maxnreg": None, "pre_hook": None, "ir_override": None}
    timings = [
        [{"kwargs": {"BLOCK": 256 << index}, "num_warps": 4, "num_stages": 3, **unsaid}, us]
        for index, us in enumerate(times)
    ]
    return json.dumps({"key": key, "configs_timings": timings})


def test_of_a_file_of_the_autotuner_the_fastest_config_is_taken():
    inf = float("inf")
    text = autotune_file([inf, inf, inf], [0.02, 0.01, 0.03], 0.03, [float("nan"), 0, 0])

    [one] = configtables.parse_autotune(text, "k.autotune.json").rows

    assert dict(one.values) == {"BLOCK": 512, "num_warps": 4, "num_stages": 3}
    assert (one.ordered, one.dtypes) == (("4096",), ("f16",))


def test_its_key_reads_as_a_key_of_ours():
    key = (7, True, None, 0.5, "NHWC", "a b", "torch.int8")

    [one] = configtables.parse_autotune(autotune_file(1.0, key=key), "k.autotune.json").rows

    assert one.ordered == ("7", "True", "none", "0.5", "NHWC", '"a b"')


def test_it_is_the_file_that_tritons_own_autotuner_writes():
    live = triton.Config({"BLOCK": 256}, num_warps=8)
    pair = [live.__dict__, [0.1, 0.1, 0.1]]
    text = json.dumps({"key": (7, True, "torch.bfloat16"), "configs_timings": [pair]})

    [one] = configtables.parse_autotune(text, "k.autotune.json").rows

    assert dict(one.values) == {"BLOCK": 256, "num_warps": 8, "num_stages": 3}
    assert (one.ordered, one.dtypes) == (("7", "True"), ("bf16",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (autotune_file(float("inf")), "k.json: no config of it has a time"),
        (autotune_file(10**400), "k.json: no config of it has a time"),
        (
            '{"64": {}}',
            (
                'k.json: it has no "key" and "configs_timings", as a file of '
                "Triton's autotuner has\n"
                "hint: a table of sizes is --format vllm"
            ),
        ),
        (
            '{"key": [],\n"configs_timings": [3]}',
            f"k.json:2: configs_timings.0: expected a config and its times, got 3\nhint: {TIMES}",
        ),
        (
            autotune_file(1.0, key=("torch.float16", 3)),
            (
                'k.json:1: key: expected values and then dtypes, got ["torch.float16", 3]\n'
                f"hint: {TIMES}"
            ),
        ),
    ],
)
def test_a_broken_file_of_the_autotuner_is_told_with_its_line(text, said):
    with pytest.raises(TableError) as caught:
        configtables.parse_autotune(text, "k.json")

    assert str(caught.value) == said


def test_a_size_as_json_has_it_is_one_in_python_too():
    assert configtables.row_of_key("m.py:T", "064", "M", {}).parts == (("M", "64"),)


# What a config of it means to a kernel.


def test_names_with_size_in_them_are_the_kernels_names_without():
    values = {**vllm(16, 64, 128), "num_ctas": 1}

    found = fitting.config(row(**values), RECEIVER, {})

    assert found == Config.of({**OWN, "BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128})


def test_a_renamed_name_is_the_kernels_and_one_renamed_to_nothing_is_left_out():
    values = {**vllm(64, 128, 32), "SPLIT_K": 1}
    values["TILE"] = values.pop("BLOCK_SIZE_M")

    assert fitting.config(row(**values), RECEIVER, {"TILE": "BLOCK_M", "SPLIT_K": ""}) == (
        Config.of(OWN)
    )


def test_a_launch_option_that_the_kernel_does_not_tune_is_taken_if_it_says_something():
    found = fitting.config(row(**OWN, num_ctas=2, maxnreg=None), RECEIVER, {})

    assert found == Config.of({**OWN, "num_ctas": 2})


HAS = "it has BLOCK_K, BLOCK_M, BLOCK_N, GROUP_M, num_stages, num_warps"


@pytest.mark.parametrize(
    ("values", "renames", "said"),
    [
        (
            {**OWN, "SPLIT_K": 4},
            {},
            (
                "t.json:2: 64: `SPLIT_K` is not a tunable of `matmul_kernel`\n"
                f"hint: {HAS}; --rename SPLIT_K=NEW gives it another name, --rename SPLIT_K= "
                "leaves it out"
            ),
        ),
        (
            {name: value for name, value in OWN.items() if name != "GROUP_M"},
            {},
            (
                "t.json:2: 64: it has no `GROUP_M`, which `matmul_kernel` needs\n"
                "hint: it has BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages; --rename OLD=NEW "
                "gives a name of the table the kernel's"
            ),
        ),
        (
            {**OWN, "BLOCK_M": "64"},
            {},
            (
                't.json:2: 64: `BLOCK_M` is the text "64", where an integer is expected\n'
                "hint: write 64 without quotes"
            ),
        ),
        *[
            (
                {**OWN, "BLOCK_M": value},
                {},
                (
                    f"t.json:2: 64: `BLOCK_M` is {told}, where an integer is expected\n"
                    "hint: the kernel's own is 64"
                ),
            )
            for value, told in (
                (True, "True"),
                (None, "None"),
                (64.0, "64.0"),
                ("x", 'the text "x"'),
            )
        ],
        (
            {**OWN, "num_ctas": "2"},
            {},
            (
                't.json:2: 64: `num_ctas` is the text "2", where an integer is expected\n'
                "hint: write 2 without quotes"
            ),
        ),
        ({**OWN, "X": 1}, {"X": "BLOCK_M"}, "t.json:2: 64: two of its names become `BLOCK_M`"),
    ],
)
def test_a_config_that_the_kernel_cannot_run_is_refused(values, renames, said):
    with pytest.raises(TableError) as caught:
        fitting.config(row(**values), RECEIVER, renames)

    assert str(caught.value) == said


# Which keys a row is for.


def test_a_row_is_for_the_keys_that_have_its_parts():
    one = Row(where="", parts=(("M", "64"), ("E", "8"), ("N", "4096")), values=())

    assert fitting.fits(one, "M=64 N=4096 K=1 a=f16 b=f16", RECEIVER)
    assert not fitting.fits(one, "M=64 N=6144 K=1 a=f16 b=f16", RECEIVER)
    assert not fitting.fits(one, "M=16 N=4096 K=1 a=f16 b=f16", RECEIVER)


@pytest.mark.parametrize(
    ("dtypes", "fit"),
    [(("f16", "f16", "f32"), True), (("f16", "f32"), False), (("bf16", "bf16", "f16"), False)],
)
def test_a_file_of_the_autotuner_is_for_the_keys_with_its_dtypes_in_order(dtypes, fit):
    one = Row(where="", ordered=("64", "8", "1"), dtypes=dtypes, values=())

    assert fitting.fits(one, "M=64 N=8 K=1 a=f16 b=f16(unaligned)", RECEIVER) is fit


@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("N=8 K=4 a=f16 b=float16", "M=64 N=8 K=4 a=f16 b=f16"),
        ("b=f16(unaligned) a=torch.bfloat16 K={} N={M}", "M=64 N=64 K=64 a=bf16 b=f16(unaligned)"),
    ],
)
def test_a_template_and_a_row_make_a_key_as_a_call_has_it(template, key):
    assert fitting.key_of(row(), template, RECEIVER) == key


@pytest.mark.parametrize(
    ("template", "axis", "said"),
    [
        (
            "N=8 a=f16",
            "M",
            (
                "t.json:2: 64: a key of `matmul_kernel` also has `K`, `b`\n"
                'hint: --key "K=... b=...", or --sweep FILE, whose problems have all of it'
            ),
        ),
        ("N={Z}", "M", "t.json:2: 64: the table has nothing for `{Z}`\nhint: it has M"),
        (
            "N=8 K=8 a=f16 b=f16",
            "m",
            (
                "t.json:2: 64: a key of `matmul_kernel` also has `M`\n"
                "hint: --axis NAME: the sizes are of `m`, which is no part of it; or "
                '--key "M=...", or --sweep FILE, whose problems have all of it'
            ),
        ),
    ],
)
def test_a_template_that_makes_no_whole_key_is_refused(template, axis, said):
    with pytest.raises(TableError) as caught:
        fitting.key_of(replace(row(), parts=((axis, "64"),)), template, RECEIVER)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Q=8",
            ("--key: `Q` is no part of a key of `matmul_kernel`\nhint: it has M, N, K, a, b"),
        ),
        ("K 4", "--key: `K 4` is no part of a key\nhint: write NAME=VALUE, as M=..."),
        ("K=", "--key: `K` is ``, which is no value\nhint: write one behind the `=`"),
        (
            "K=4O96",
            (
                "--key: `K` is `4O96`, which is no number and no name\n"
                "hint: other text is quoted, as JSON"
            ),
        ),
        ("K=04096", "--key: `K` is `04096`, which no key has\nhint: a key has `4096`"),
        ("K=true", "--key: `K` is `true`, which no key has\nhint: a key has `True`"),
        (
            "K=abc",
            "--key: `K` is `abc`, which is no number\nhint: `matmul_kernel` is passed one for it",
        ),
        ("K=1 K=2", "--key: `K` is given twice"),
        ("a=fp61", "--key: `a` is `fp61`, which is no dtype\nhint: did you mean `f16`?"),
        ("a=half", "--key: `a` is `half`, which is no dtype\nhint: did you mean `f16`?"),
        (
            "b=torch.LONG(unaligned)",
            ("--key: `b` is `torch.LONG(unaligned)`, which is no dtype\nhint: did you mean `i64`?"),
        ),
        ("a=64", "--key: `a` is `64`, which is no dtype\nhint: as f16, bf16 or f32(unaligned)"),
    ],
)
def test_a_wrong_name_or_value_of_a_key_is_refused(text, said):
    with pytest.raises((TableError, ManyMistakesError)) as caught:
        keytext.check(text, RECEIVER)

    assert str(caught.value) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M={} N={M} K=4096 a=torch.float16 b=f16(unaligned)",
        'K=-1.5 N="two words" a=none b=(f16,bf16)',
        "K=True N=tl.float16 a=f8e4m3fn b=i1(dim0)",
    ],
)
def test_what_a_key_may_hold_is_taken(text):
    keytext.check(text, RECEIVER)


def test_every_mistake_of_a_key_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path, {"1": vllm(16, 64, 128)})

    result = run("import", path, "--kernel", MATMUL, "--key", "k=4096 a=flaot16 b=f16")
    besides = run("import", path, "--sweep", "sweeps/matmul.yaml", "--key", "K=4096")

    assert (result.exit_code, besides.exit_code) == (2, 2)
    assert result.stderr == (
        "error: --key: `k` is no part of a key of `matmul_kernel`\n"
        "  hint: did you mean `K`? it has M, N, K, a, b\n"
        "error: --key: `a` is `flaot16`, which is no dtype\n"
        "  hint: did you mean `f16`?\n"
    )
    assert besides.stderr == (
        "error: --key: it is for an import without --sweep, whose problems have all of a key\n"
    )


def test_a_name_to_rename_that_no_config_has_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)

    result = import_matmul(tmp_path, {"1": vllm(16, 64, 128)}, "--rename", "BLOCK_SIZ_M=BLOCK_M")

    assert (result.exit_code, (tmp_path / "tritune.lock").exists()) == (2, False)
    assert result.stderr == (
        "error: --rename: no config has a `BLOCK_SIZ_M`\n\nhint: did you mean `BLOCK_SIZE_M`?\n"
    )


def test_what_of_a_files_name_is_ignored_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    into = ("--lockfile", str(tmp_path / "tritune.lock"), "--kernel", MATMUL)
    path = table(tmp_path, {"1": vllm(16, 64, 128)})

    plain = run("import", path, *into, "--key", "K=4096 a=f16 b=f16")
    other = run("import", path, *into, "--key", "N=8 K={E} a=f16 b=f16", "--device", "H100")

    last = (
        f"next: tritune sweep sweeps/matmul.yaml --lockfile {tmp_path}/tritune.lock times them, "
        "and says what beats them\n"
    )
    assert plain.stderr == (
        f"{path}: E=8, block_shape=[128,128] of its name is not compared with the key\n"
        f"{path}: dtype=fp8_w8a8 of its name is of other work: no tensor of M=1 N=14336 K=4096 "
        f"a=f16 b=f16 has such a dtype\n{last}"
    )
    assert other.stderr == (
        f"{path}: block_shape=[128,128] of its name is not compared with the key\n"
        f"{path}: dtype=fp8_w8a8 of its name is of other work: no tensor of M=1 N=8 K=8 a=f16 "
        f"b=f16 has such a dtype\n"
        f"{path}: its N=14336 is ignored: --key says N=8\n"
        f"{path}: device_name=NVIDIA_H200 of its name is ignored: --device says H100\n"
        "no shape of sweeps/matmul.yaml asks for M=1 N=8 K=8 a=f16 b=f16, so no sweep times it\n"
        "add to the shapes of sweeps/matmul.yaml:\n"
        "  - {M: 1, N: 8, K: 8, dtype: float16}\n"
        f"{last}"
    )


def test_a_key_that_no_problem_can_have_is_told_and_no_sweep_is_promised(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    into = ("--lockfile", str(tmp_path / "tritune.lock"), "--kernel", MATMUL)
    path = table(tmp_path, {"1": vllm(16, 64, 128)}, "device_name=NVIDIA_H200.json")

    result = run("import", path, *into, "--key", "N=8 K=8 a=f16 b=f32")

    assert result.stderr.splitlines() == [
        (
            "no shape of sweeps/matmul.yaml asks for M=1 N=8 K=8 a=f16 b=f32, so no sweep "
            "times it: `M=1 N=8 K=8 dtype=float16` has the key `M=1 N=8 K=8 a=f16 b=f16`"
        )
    ]


def test_where_no_project_names_the_sweep_file_a_sweep_is_promised_on_condition(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("tritune.cli.project.named", lambda: ())
    into = ("--lockfile", str(tmp_path / "tritune.lock"), "--kernel", MATMUL)
    path = table(tmp_path, {"1": vllm(16, 64, 128)}, "device_name=NVIDIA_H200.json")

    result = run("import", path, *into, "--key", "N=8 K=8 a=f16 b=f16")

    assert result.stderr.splitlines() == [
        (
            "next: where a shape of its sweep file asks for them, the next sweep times them, "
            "and says what beats them"
        )
    ]


def test_a_kernel_whose_author_names_no_tensors_has_some_in_its_key_all_the_same():
    free = replace(RECEIVER, all_tensors=False)

    assert fitting.key_of(row(), "N=8 K=4 a=f16", free) == "M=64 N=8 K=4 a=f16"
    with pytest.raises(TableError, match="also has `a`, `b`"):
        fitting.key_of(row(), "N=8 K=4", free)


# The command: our matmul.


KEY = "K=4096 a=f16 b=f16"


def import_matmul(folder: Path, rows: dict[str, Any], *more: str) -> Result:
    path = table(folder, rows)
    into = ("--lockfile", str(folder / "tritune.lock"))
    return run("import", path, "--kernel", MATMUL, "--key", KEY, *into, *more)


def served(path: Path, key: str, device=H200) -> lookup.Found:
    """What a call with this key runs, on a device as its driver reports it."""
    parts = tuple(tuple(part.split("=")) for part in key.split())
    asked = lookup.Asked(kernel=MATMUL, key=parts, near=None, values={})
    return lookup.find(lookup.Lockfile(path), device, asked, lambda *_: "")


def test_a_table_of_vllms_is_served_to_our_matmul_on_the_gpu_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)

    result = import_matmul(tmp_path, {"1": vllm(16, 64, 128), "64": vllm(64, 128, 64)})

    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path}/tritune.lock: matmul_kernel on H200: 2 added\n"
    found = served(tmp_path / "tritune.lock", "M=64 N=14336 K=4096 a=f16 b=f16")
    assert (found.kind, found.config) == (
        "exact",
        Config.of({**OWN, "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}),
    )
    held = lock.read(tmp_path / "tritune.lock")
    assert all(entry.evidence.unmeasured for _, entry in held.entries)
    other = replace(H200, bus_bits=5120)
    assert served(tmp_path / "tritune.lock", "M=64 N=14336 K=4096 a=f16 b=f16", other).kind == (
        "default"
    )


def test_the_sweep_file_says_for_which_problems(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path, {"1": vllm(16, 64, 128), "48": vllm(64, 128, 64)})
    into = ("--lockfile", str(tmp_path / "tritune.lock"))

    result = run("import", path, "--sweep", "sweeps/matmul.yaml", *into)

    assert result.exit_code == 0, result.output
    held = lock.read(tmp_path / "tritune.lock")
    assert [at.key for at, _ in held.entries] == ["M=1 N=14336 K=4096 a=f16 b=f16"]
    assert dict(held.near)[MATMUL][0] == "BLOCK_M < 2 * max(M, 16)"
    assert result.stderr == (
        f"{path}: no problem of the sweep file asks for M=48\n"
        f"{path}: it has nothing for 32 problems of the sweep file\n"
        f"{path}: E=8, block_shape=[128,128] of its name is not compared with the key\n"
        f"{path}: dtype=fp8_w8a8 of its name is of other work: no tensor of M=1 N=14336 K=4096 "
        "a=f16 b=f16 has such a dtype\n"
        f"next: tritune sweep sweeps/matmul.yaml --lockfile {tmp_path}/tritune.lock times them, "
        "and says what beats them\n"
    )


def test_a_config_that_a_constraint_rules_out_is_taken_and_told(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path, {"1": vllm(64, 128, 64)}, "N=14336,device_name=NVIDIA_H200.json")
    into = ("--lockfile", str(tmp_path / "tritune.lock"))

    result = run("import", path, "--sweep", "sweeps/matmul.yaml", *into)

    assert result.exit_code == 0, result.output
    assert (
        f"{path}: M=1 N=14336 K=4096 a=f16 b=f16: the sweep file's `BLOCK_M < 2 * max(M, 16)` "
        "rules its config out; it is locked all the same\n"
    ) in result.stderr


@pytest.mark.lowering
def test_the_next_step_has_paths_as_words_of_a_shell(project, tmp_path):
    path = table(tmp_path, {"1000": {"BLOCK": 512, "num_warps": 4}}, "mine.json")
    (project.folder / "sweeps/scale.yaml").rename(project.folder / "sweeps/my scale.yaml")
    sweep = ("--sweep", "sweeps/my scale.yaml", *SCALE[2:])

    done = run("import", path, *sweep, "--axis", "n", "--lockfile", "my own.lock")

    assert done.stderr.splitlines()[-1] == (
        "next: tritune sweep 'sweeps/my scale.yaml' --lockfile 'my own.lock' times them, and says "
        "what beats them"
    )


@pytest.mark.lowering
def test_a_config_outside_the_space_is_taken_and_told_and_what_cannot_run_is_left(
    project, tmp_path
):
    project.take_shared_memory(available=2000)
    guarded = "constraints: [num_warps <= 4, n % (8 - num_warps) == 0, num_warps < 8]\nshapes:"
    project.edit("sweeps/scale.yaml", "shapes:", guarded)
    rows = {"1000": {"BLOCK": 256, "num_warps": 8}, "4096": {"BLOCK": 17, "num_warps": 4}}
    path = table(tmp_path, rows, "mine.json")
    bad = table(tmp_path, rows | {"1000": {"BLOCK": 1024, "num_warps": 4}}, "bad.json")
    lines = (project.folder / "ops.py").read_text(encoding="utf-8").splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "tl.arange" in text)

    refused = run("import", bad, *SCALE, "--axis", "n")
    taken = run("import", path, *SCALE, "--axis", "n")

    why = (
        "`scale_kernel` cannot run BLOCK=17 num_warps=4 at n=4096 x=f32 y=f32: ValueError: "
        f"arange's range must be a power of 2 (ops.py:{line})\n"
    )
    assert (refused.exit_code, taken.exit_code) == (2, 0)
    assert refused.stderr == (
        f"error: {bad}:2: 1000: `scale_kernel` cannot run BLOCK=1024 num_warps=4 at n=1000 x=f32 "
        "y=f32: too much shared memory: at least 2048 bytes, 2000 available\n"
        f"error: {bad}:6: 4096: {why}"
    )
    assert taken.stdout == f"{project.lockfile}: scale_kernel on H200: 1 added\n"
    assert taken.stderr == (
        f"{path}:6: 4096: not taken: {why}"
        f"{path}: n=1000 x=f32 y=f32: the sweep file's `num_warps <= 4` and `num_warps < 8` rule "
        "its config out; it is locked all the same\n"
        f"{path}: n=1000 x=f32 y=f32: num_warps=8 is not in the sweep file's `space:`; it is "
        "locked all the same\n"
        "next: tritune sweep sweeps/scale.yaml times them, and says what beats them\n"
    )


def test_an_imported_entry_is_shown_as_unmeasured(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    import_matmul(tmp_path, {"1": vllm(16, 64, 128)})

    result = run("show", "lockfile", str(tmp_path / "tritune.lock"))

    assert result.stdout == (
        f"{tmp_path}/tritune.lock: 1 entry, 1 kernel, 1 device\n"
        "\n"
        "kernels.matmul:matmul_kernel on H200\n"
        "key                            BLOCK_M/N/K GROUP_M warps stages    µs default faster "
        "runner-up noise triton\n"
        "M=1 N=14336 K=4096 a=f16 b=f16   16 64 128       8     4      4     -       -      - "
        "        -     -      -  unmeasured\n"
    )


def test_what_was_measured_is_kept_unless_forced(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = {"1": vllm(16, 64, 128), "2": vllm(16, 64, 64), "4": vllm(16, 32, 64)}
    import_matmul(tmp_path, rows)
    path = tmp_path / "tritune.lock"
    (at, first), *others = lock.read(path).entries
    measured = replace(first.evidence, us=5.0, ir="1", unmeasured=False)
    entries = ((at, replace(first, evidence=measured)), *others)
    lock.write(path, replace(lock.read(path), entries=entries))
    rows = {"1": vllm(32, 64, 128), "2": vllm(32, 64, 64), "4": rows["4"], "8": rows["4"]}

    result = import_matmul(tmp_path, rows)

    assert result.stdout == (
        f"{path}: matmul_kernel on H200: 1 added, 1 replaced, 1 there already, 1 kept\n"
    )
    assert "what is kept was measured; --force replaces it\n" in result.stderr
    assert lock.read(path).entries[0][1] == entries[0][1]
    assert "1 replaced, 3 there already\n" in import_matmul(tmp_path, rows, "--force").stdout
    assert lock.read(path).entries[0][1].config["BLOCK_M"] == 32


def test_every_wrong_row_is_told_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    rows = {"1": vllm(16, 64, 128, num_warps=3), "2": vllm(16, 64, 64, SPLIT_K=2)}

    result = import_matmul(tmp_path, rows)

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {tmp_path}/{NAME}:2: 1: num_warps=3 is not a power of two\n"
        f"error: {tmp_path}/{NAME}:10: 2: `SPLIT_K` is not a tunable of `matmul_kernel`\n"
        f"  hint: {HAS}; --rename SPLIT_K=NEW gives it another name, --rename SPLIT_K= leaves it "
        "out\n"
    )
    assert not (tmp_path / "tritune.lock").exists()


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("NVIDIA_H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA_H100_80GB_HBM3", "H100"),
        ("NVIDIA_A100-SXM4-80GB", "A100"),
        ("NVIDIA_GeForce_RTX_4090", "RTX 4090"),
        ("rtx 4090", "RTX 4090"),
        ("AMD_Instinct_MI300X", "MI300X"),
    ],
)
def test_a_device_is_known_by_its_product_and_by_what_its_driver_calls_it(name, label):
    found = devicelabels.named(map(targets.identity, targets.TARGETS), name)

    assert found is not None
    assert found.name == label


def test_a_device_whose_clock_is_known_comes_before_one_of_unknown_clock():
    unknown = replace(H200, name="H200 imported", memory_mhz=0)
    slower = replace(H200, name="slower", memory_mhz=2600)

    assert devicelabels.find([unknown, slower], H200) == unknown
    assert devicelabels.find([unknown, slower, H200], H200) == H200
    assert devicelabels.find([slower], H200) is None
    assert devicelabels.find([slower], unknown) == slower


def test_a_device_that_nobody_knows_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)

    result = import_matmul(tmp_path, {"1": vllm(16, 64, 128)}, "--device", "H2000")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: --device: `H2000` is no device that is known here\n\n"
        "hint: --device NAME: A100, H100, H200, L40S, RTX 4090, B200, RTX 5090, MI300X, MI355X\n"
    )


def test_a_table_that_does_not_name_its_gpu_needs_to_be_told(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = table(tmp_path, {"1": vllm(16, 64, 128)}, "mine.json")

    result = run("import", path, "--kernel", MATMUL, "--key", f"{KEY} N=8")

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {path}: it does not say which GPU it is of, and there is none here\n\n"
        "hint: --device H200 says it\n"
    )


# What the next sweep makes of an entry of our matmul: times recorded on an H200.


def ranked(problem: Problem) -> list[tuple[float, Config]]:
    samples = grid_samples(problem)
    medians = [(statistics.median(us), this) for this, us in samples.items() if us]
    return sorted(medians, key=lambda pair: pair[0])


PROBLEM = grid_problems()[1]
SIZES = PROBLEM.as_dict()


def grid_key(at: Path, this: Config) -> Entry:
    """Import one config of the recorded grid for its problem; the entry."""
    values = {
        name.replace("BLOCK_", "BLOCK_SIZE_").replace("GROUP_", "GROUP_SIZE_"): value
        for name, value in this.values
    }
    path = table(at, {str(SIZES["M"]): values}, "device_name=NVIDIA_H200.json")
    key = f"N={SIZES['N']} K={SIZES['K']} a=f16 b=f16"
    result = run(
        "import", path, "--kernel", MATMUL, "--key", key, "--lockfile", str(at / "tritune.lock")
    )
    assert result.exit_code == 0, result.output
    [(_, entry)] = lock.read(at / "tritune.lock").entries
    return entry


def recorded(this: Config, excess: float) -> list[Outcome]:
    """The recorded grid, with one config so much slower than the fastest, sample by sample."""
    best = grid_samples(PROBLEM)[ranked(PROBLEM)[0][1]]
    us = tuple(sample * (1 + excess) for sample in best)
    mine = [one for one in grid_outcomes() if one.candidate.problem == PROBLEM]
    return [
        replace(one, samples_us=us)
        if isinstance(one, Measured) and one.candidate.config == this
        else one
        for one in mine
    ]


def swept(at: Path, entry: Entry, excess: float) -> Entry:
    """Race it against the recorded grid, lock the winner, and read its entry."""
    binaries = grid_compiled(PROBLEM)
    default = binaries[0].candidate.config
    case = resumed(binaries, {}, done="", default=default, incumbent=entry.config)
    target = targets.find("H200")
    device = ReplayDevice(recorded(entry.config, excess), target=target, triton=TRITON)
    rounds = Rounds(
        device=device,
        guard=Guard(device.canary, NoSensors("")),
        default=default,
        timing=Timing(),
        write=lambda *_: None,
        advance=lambda _: None,
    )
    rounds.race([case])
    rounds.confirm([case])
    key = binaries[0].key
    winner = choose.choose(
        case.outcomes, kernel=MATMUL, key=key, default=default, incumbent=entry, triton=TRITON
    )
    assert isinstance(winner, Winner)
    locked = lock.update(
        at / "tritune.lock", lambda before: lock.merge_winners(before, H200, [winner])
    )
    [device_now] = locked.devices
    assert device_now == H200  # the clock that no data sheet gives is known now
    [(_, found)] = locked.entries
    return found


@pytest.mark.parametrize("excess", [0.0, 0.005])
def test_an_imported_config_that_nothing_beats_by_the_margin_stays_and_is_measured(
    tmp_path, monkeypatch, excess
):
    monkeypatch.chdir(ROOT)
    (best_us, _), *_, (_, other) = ranked(PROBLEM)
    entry = grid_key(tmp_path, other)
    found = served(tmp_path / "tritune.lock", grid_compiled(PROBLEM)[0].key)
    assert (found.kind, found.config, entry.evidence.unmeasured) == ("exact", other, True)

    after = swept(tmp_path, entry, excess)

    assert after.config == other
    assert not after.evidence.unmeasured
    assert after.evidence.us == pytest.approx(best_us, rel=0.02)
    assert (after.evidence.triton, bool(after.evidence.ir)) == (TRITON, True)


def test_an_imported_config_that_is_beaten_gives_way(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    best_us, best = ranked(PROBLEM)[0]
    other = ranked(PROBLEM)[-1][1]

    after = swept(tmp_path, grid_key(tmp_path, other), 0.03)

    assert after.config == best
    assert not after.evidence.unmeasured
    assert after.evidence.us == pytest.approx(best_us, rel=0.02)


# A whole sweep, its times replayed, and the other formats.


@pytest.fixture
def project(tmp_path, monkeypatch) -> Project:
    made = Project(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    return made


@pytest.mark.lowering
@pytest.mark.parametrize(("us", "winner", "found_us"), [(10.05, 512, 10.1), (20.0, 256, 10.0)])
def test_a_sweep_keeps_an_imported_entry_unless_it_is_beaten_by_the_margin(
    project, tmp_path, us, winner, found_us
):
    rows = {size: {"BLOCK": 512, "num_warps": 4} for size in ("1000", "4096")}
    path = table(tmp_path, rows, "mine.json")
    to = ("--sweep", "sweeps/scale.yaml", "--axis", "n", "--device", "H200")
    assert "scale_kernel on H200: 2 added\n" in run("import", path, *to).stdout
    project.record(tmp_path / "times.jsonl", {256: 10.0, 512: us}, TRITON)

    result = run("sweep", "sweeps/scale.yaml", "--device", f"replay:{tmp_path}/times.jsonl")

    assert result.exit_code == 0, result.output
    held = lock.read(project.lockfile)
    assert {entry.config["BLOCK"] for _, entry in held.entries} == {winner}
    assert {entry.evidence.us for _, entry in held.entries} == {found_us}
    assert not any(entry.evidence.unmeasured for _, entry in held.entries)
    assert held.devices == (H200,)


@pytest.mark.lowering
def test_a_file_of_the_autotuner_is_for_the_problem_with_its_key(project, tmp_path):
    path = tmp_path / "scale_kernel.autotune.json"
    text = autotune_file([0.2], [0.1], key=(4096, "torch.float32", "torch.float32"))
    path.write_text(text, encoding="utf-8")

    result = run("import", str(path), "--sweep", "sweeps/scale.yaml", "--device", "NVIDIA H200")

    assert result.exit_code == 0, result.output
    [(at, entry)] = lock.read(project.lockfile).entries
    assert at.key == "n=4096 x=f32 y=f32"
    assert entry.config == Config.of({"BLOCK": 512, "num_warps": 4})


HELD_CONFIGS = "its configs: `ONE`, `TWO`, `BY_SIZE`, `BY_KEY`, `ODD`, `HELD`"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("mine.py", f"{{0}}/mine.py: no name after the module\n\nhint: {HELD_CONFIGS}"),
        ("mine.py:", f"{{0}}/mine.py: no name after the module\n\nhint: {HELD_CONFIGS}"),
        (
            "mine.py:TW",
            f"{{0}}/mine.py: it has no `TW`\n\nhint: did you mean `TWO`? {HELD_CONFIGS}",
        ),
        (
            "mine.py:triton",
            (
                "mine.py:triton: expected a triton.Config, or a mapping to them, got a module\n\n"
                f"hint: {HELD_CONFIGS}"
            ),
        ),
        (
            "mine",
            ("mine: no such file\n\nhint: configs in Python are MODULE:NAME, as mine:NAME"),
        ),
    ],
)
def test_a_module_without_a_name_of_configs_is_told_with_those_it_holds(project, reference, said):
    project.write("mine.py", CONFIGS)

    result = run("import", reference, "--kernel", "ops.py:scale_kernel", "--device", "H200")

    assert (result.exit_code, result.stderr) == (2, f"error: {said.format(project.folder)}\n")


CONFIGS = """
import triton

ONE = [triton.Config({"BLOCK": 512}, num_warps=4)]
TWO = [*ONE, triton.Config({"BLOCK": 256}, num_warps=4)]
BY_SIZE = {1000: ONE[0], 4096: TWO[1]}
BY_KEY = {"n=1000 x=f32 y=f32": ONE[0]}
ODD = {"n": ONE[0]}
HELD = [triton.Config({"BLOCK": triton}, num_warps=4)]
"""


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("ONE", {"n=1000 x=f32 y=f32": 512, "n=4096 x=f32 y=f32": 512}),
        ("BY_SIZE", {"n=1000 x=f32 y=f32": 512, "n=4096 x=f32 y=f32": 256}),
        ("BY_KEY", {"n=1000 x=f32 y=f32": 512}),
    ],
)
@pytest.mark.lowering
def test_configs_in_python_are_for_all_problems_or_for_those_they_name(project, name, blocks):
    project.write("mine.py", CONFIGS)
    to = ("--sweep", "sweeps/scale.yaml", "--axis", "n", "--device", "H200")

    result = run("import", f"mine:{name}", *to)

    assert result.exit_code == 0, result.output
    held = lock.read(project.lockfile).entries
    assert {at.key: entry.config["BLOCK"] for at, entry in held} == blocks


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TWO", "mine.py:TWO: a list of 2 configs does not say which key each is for\n"),
        ("ODD", "mine.py:ODD['n']: expected a key as `M=64 a=f16`, or a size of M, got 'n'\n"),
        ("HELD", "mine.py:HELD: `BLOCK` is a module, which no lockfile can hold\n"),
        ("OTHER", "mine.py: it has no `OTHER`\n"),
    ],
)
def test_what_is_no_config_for_a_key_is_refused(project, name, said):
    project.write("mine.py", CONFIGS)

    result = run("import", f"mine.py:{name}", "--kernel", "ops.py:scale_kernel")

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_row_for_no_problem_is_an_error_that_shows_a_key(project, tmp_path):
    path = table(tmp_path, {"7": {"BLOCK": 512, "num_warps": 4}}, "mine.json")
    to = ("--sweep", "sweeps/scale.yaml", "--device", "H200")

    wrong_size = run("import", path, *to, "--axis", "n")
    wrong_axis = run("import", path, *to)

    assert wrong_size.stderr == (
        f"error: {path}: no row of it is for any problem of sweeps/scale.yaml\n\n"
        "hint: their keys are as n=1000 x=f32 y=f32\n"
    )
    assert wrong_axis.stderr == (
        f"error: {path}:2: 7: `M` is no part of a key of `scale_kernel`\n\n"
        "hint: --axis NAME: it has n, x, y\n"
    )


def test_a_kernel_that_the_sweep_file_does_not_tune_is_refused(project, tmp_path):
    path = table(tmp_path, {"7": {"BLOCK": 512, "num_warps": 4}}, "mine.json")

    result = run("import", path, "--sweep", "sweeps/scale.yaml", "--kernel", "other_kernel")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: sweeps/scale.yaml: it tunes no `other_kernel`\n\n"
        "hint: --kernel NAME: scale_kernel\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no kernel is named\n\nhint: name its sweep file with --sweep, or --kernel"),
        (
            ("--kernel", "ops.py:bare"),
            (
                "`bare` has no tritune line, so it reads no lockfile\n\n"
                "hint: `tritune init ops.py:bare` says which line to add\n"
            ),
        ),
        (
            ("--kernel", "ops.py:tuned"),
            (
                "`tuned` has no tritune line, so it reads no lockfile\n\n"
                "hint: `tritune init ops.py:tuned` says which line to add; --sweep FILE is for a "
                "kernel that nobody decorated: the sweep file of an op\n"
            ),
        ),
    ],
)
def test_a_kernel_is_needed_that_reads_a_lockfile(project, tmp_path, arguments, said):
    text = (project.folder / "ops.py").read_text(encoding="utf-8")
    bare = "\n\n@triton.jit\ndef bare(x, n):\n    pass\n"
    above = "@triton.autotune([triton.Config({})], key=[])\n@triton.jit"
    tuned = bare.replace("bare", "tuned").replace("@triton.jit", above)
    project.write("ops.py", text + bare + tuned)
    path = table(tmp_path, {"7": {"BLOCK": 512, "num_warps": 4}}, "mine.json")

    result = run("import", path, *arguments)

    assert result.exit_code == 2
    assert said in result.stderr


HOOKED = """

@tritune.kernel
@triton.autotune(
    [triton.Config({"BLOCK": block}, pre_hook=lambda args: None) for block in (256, 512)], key=["n"]
)
@triton.jit
def hooked(x, n, BLOCK: tl.constexpr):
    pass
"""


def test_a_config_that_the_kernel_knows_no_hook_for_is_refused(project, tmp_path):
    text = (project.folder / "ops.py").read_text(encoding="utf-8")
    project.write("ops.py", text + HOOKED)
    options = {"num_warps": 4, "num_stages": 3}
    rows = {"7": {"BLOCK": 512, **options}, "8": {"BLOCK": 64, **options}}
    path = table(tmp_path, rows, "device_name=NVIDIA_H200.json")

    result = run("import", path, "--kernel", "ops.py:hooked", "--axis", "n", "--key", "x=f16")

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {path}:7: 8: it is none of the kernel's own configs, and their pre_hooks differ\n"
    )


def test_a_config_in_python_whose_hook_the_kernel_does_not_have_is_refused(project):
    text = (project.folder / "ops.py").read_text(encoding="utf-8")
    project.write("ops.py", text + HOOKED.replace("lambda args: None", "print"))
    project.write(
        "mine.py",
        "import triton\n\nBEST = triton.Config({'BLOCK': 512}, num_warps=4, pre_hook=print)\n",
    )
    more = ("--device", "H200", "--key")

    known = run("import", "mine:BEST", "--kernel", "ops.py:hooked", *more, "n=8 x=f16")
    key = "n=8 x=f32 y=f32"
    unknown = run("import", "mine:BEST", "--kernel", "ops.py:scale_kernel", *more, key)

    assert (known.exit_code, unknown.exit_code) == (0, 2), known.stderr
    assert unknown.stderr == (
        "error: mine:BEST: it has a pre_hook, of which a lockfile holds the name alone; the "
        "kernel has none for it\n"
    )


def test_two_rows_for_one_key_are_refused(project, tmp_path):
    one = table(tmp_path, {"1000": {"BLOCK": 512, "num_warps": 4}}, "one.json")
    two = table(tmp_path, {"1000": {"BLOCK": 256, "num_warps": 4}}, "two.json")
    to = ("--sweep", "sweeps/scale.yaml", "--device", "H200", "--axis", "n")

    result = run("import", one, two, *to)

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {two}:2: 1000: this row and that at {one}:2: 1000 are both for "
        "n=1000 x=f32 y=f32\n\n"
        "hint: leave one of the two files out\n"
    )
    assert not project.lockfile.exists()


# Several files, as a pattern of the shell names them.


def cached(project: Project, folder: str, *times: object, n: int = 1000, **options: Any) -> str:
    """A file of Triton's cache; relative, as one types it."""
    name = options.pop("name", "scale_kernel")
    text = autotune_file(*times, key=(n, "torch.float32", "torch.float32"))
    at = f"cache/{folder}/{name}.autotune.json"
    (project.folder / at).parent.mkdir(parents=True)
    project.write(at, text.replace(', "num_stages": 3', ""))
    os.utime(project.folder / at, (options.get("written", 1), options.get("written", 1)))
    return at


SCALE = ("--sweep", "sweeps/scale.yaml", "--device", "H200")


@pytest.mark.lowering
def test_of_several_files_those_of_which_nothing_fits_are_named_and_the_others_taken(project):
    good = cached(project, "good", 2.0, 1.0)
    other_key = cached(project, "key", 1.0, n=7)
    no_time = cached(project, "time", float("inf"))
    other = cached(project, "other", 1.0, name="other_kernel")
    before = cached(project, "before", 1.0)
    project.write(before, autotune_file(1.0, key=(1000, 2, "torch.float32")))

    result = run("import", before, good, no_time, other, other_key, *SCALE)

    assert result.exit_code == 0, result.output
    assert result.stdout == f"{project.lockfile}: scale_kernel on H200: 1 added\n"
    assert result.stderr == (
        f"{no_time}: not taken: no config of it has a time\n"
        f"{before}:1: configs_timings.0.0: not taken: its key has 2 values, and that of "
        "`scale_kernel` is n\n"
        f"{other}: not taken: its name says that it is of `other_kernel`, and the kernel is "
        "`scale_kernel`\n"
        f"{other_key}: not taken: no row of it is for any problem of sweeps/scale.yaml\n"
        f"{good}: it has nothing for 1 problem of the sweep file\n"
        "next: tritune sweep sweeps/scale.yaml times them, and says what beats them\n"
    )


@pytest.mark.lowering
def test_with_no_sweep_file_too_those_of_another_key_or_other_dtypes_are_named_and_left(project):
    good = cached(project, "good", 2.0, 1.0)
    before, half = cached(project, "before", 1.0), cached(project, "half", 1.0)
    project.write(before, autotune_file(1.0, key=(1000, 2, "torch.float32")))
    project.write(half, autotune_file(1.0, key=(1000, "torch.float16")))
    into = ("--kernel", "ops.py:scale_kernel", "--device", "H200", "--key", "x=f32 y=f32")

    result = run("import", before, half, good, *into)

    assert result.exit_code == 0, result.output
    assert result.stdout == f"{project.lockfile}: scale_kernel on H200: 1 added\n"
    assert result.stderr == (
        f"{before}:1: configs_timings.0.0: not taken: its key has 2 values, and that of "
        "`scale_kernel` is n\n"
        f"{half}: not taken: its tensors are f16, and those of n=1000 x=f32 y=f32 are not\n"
        "next: tritune sweep sweeps/scale.yaml times them, and says what beats them\n"
    )
    [(_, entry)] = lock.read(project.lockfile).entries
    assert entry.config["BLOCK"] == 512


@pytest.mark.lowering
def test_a_key_in_python_that_no_launch_has_is_refused_and_a_dtype_that_gives_way_is_told(project):
    project.write(
        "tuned.py",
        "import triton\nONE = triton.Config({'BLOCK': 512}, num_warps=4)\n"
        "WRONG = {'n=1e3 x=f32 y=f32': ONE}\n"
        "HALF = {'n=1000 x=f32 y=float32': ONE, 'n=4096 x=f16 y=f32': ONE}\n",
    )
    into = ("--kernel", "ops.py:scale_kernel", "--device", "H200", "--key", "x=f32 y=f32")

    wrong = run("import", "tuned.py:WRONG", *into)
    half = run("import", "tuned.py:HALF", *into)

    assert (wrong.exit_code, half.exit_code) == (2, 0)
    assert wrong.stderr == (
        "error: tuned.py:WRONG['n=1e3 x=f32 y=f32']: `n` is `1e3`, which no key has\n\n"
        "hint: a key has `1000.0`\n"
    )
    assert half.stderr == (
        "tuned.py:HALF: its x=f16 is ignored: --key says x=f32\n"
        "next: tritune sweep sweeps/scale.yaml times them, and says what beats them\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("no.json", "--sweep", "sweeps/scale.yaml"),
            "no.json: no such file\n\nhint: a path is relative to the current folder\n",
        ),
        (
            ("*/k.autotune.json", "--sweep", "sweeps/scale.yaml"),
            (
                "*/k.autotune.json: no file matches the pattern\n\n"
                "hint: Triton's autotuner writes such files under TRITON_CACHE_AUTOTUNING=1, into "
                "TRITON_CACHE_DIR or ~/.triton/cache\n"
            ),
        ),
        (
            ("sweeps", "--sweep", "sweeps/scale.yaml"),
            "sweeps: it is a folder\n\nhint: name the files in it, as sweeps/*.json\n",
        ),
        (
            ("ops.py/h200.json", "--sweep", "sweeps/scale.yaml"),
            "ops.py/h200.json: not a directory\n\nhint: give the path of a file to read\n",
        ),
        (
            ("zzz.py:BY_KEY", "--kernel", "ops.py:scale_kernel"),
            "FOLDER/zzz.py: no such file\n\nhint: a path is relative to the current folder\n",
        ),
        (
            ("tuned:T", "--kernel", ":scale_kernel"),
            (
                "no module named `tuned`\n\n"
                "hint: name it from a folder on PYTHONPATH, or give the path of its file\n"
            ),
        ),
        (
            (":T", "--kernel", "ops.py:scale_kernel"),
            (
                "no module before the colon\n\n"
                "hint: name it from a folder on PYTHONPATH, or give the path of its file\n"
            ),
        ),
        (
            ("ops.py", "--format", "vllm", "--kernel", "opss.py:scale_kernel"),
            f"ops.py:2: is not JSON: expecting value\n\nhint: {CUT}{A_TABLE}\n",
        ),
    ],
)
def test_what_is_not_there_is_told_as_what_it_is(project, arguments, said):
    result = run("import", *arguments, "--device", "H200")

    assert result.exit_code == 2
    assert result.stderr == f"error: {said.replace('FOLDER', str(project.folder))}"


@pytest.mark.lowering
def test_where_none_of_several_files_fits_each_is_an_error(project):
    other_key = cached(project, "key", 1.0, n=7)
    no_time = cached(project, "time", float("inf"))

    result = run("import", other_key, no_time, *SCALE)

    assert (result.exit_code, project.lockfile.exists()) == (2, False)
    assert result.stderr == (
        f"error: {no_time}: no config of it has a time\n"
        f"error: {other_key}: no row of it is for any problem of sweeps/scale.yaml\n"
        "  hint: their keys are as n=1000 x=f32 y=f32\n"
    )


@pytest.mark.lowering
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_two_files_of_tritons_cache_for_one_key_the_later_written_is_taken(project, order):
    old = cached(project, "old", 1.0, 2.0, written=1)
    new = cached(project, "new", 2.0, 1.0, written=3)
    again = cached(project, "again", 2.0, 1.0, written=2)
    files = [(old, new, again)[index] for index in order]

    result = run("import", *files, *SCALE)

    assert result.exit_code == 0, result.output
    assert (
        f"{old}: not taken: n=1000 x=f32 y=f32: its BLOCK=256 num_warps=4 is left: {new}, written "
        "later, has BLOCK=512 num_warps=4\n"
    ) in result.stderr
    [(_, entry)] = lock.read(project.lockfile).entries
    assert entry.config["BLOCK"] == 512


@pytest.mark.lowering
def test_of_two_that_were_written_at_once_neither_is_taken(project):
    one, two = cached(project, "one", 1.0, 2.0), cached(project, "two", 2.0, 1.0)

    result = run("import", one, two, *SCALE)

    assert (result.exit_code, project.lockfile.exists()) == (2, False)
    assert result.stderr == (
        f"error: {two}:1: configs_timings.1.0: this row and that at {one}:1: configs_timings.0.0 "
        "are both for n=1000 x=f32 y=f32\n\n"
        "hint: leave one of the two files out\n"
    )


@pytest.mark.lowering
def test_a_file_of_tritons_cache_that_is_of_another_function_is_refused(project):
    path = cached(project, "other", 1.0, name="other_kernel")

    result = run("import", path, *SCALE)

    assert (result.exit_code, project.lockfile.exists()) == (2, False)
    assert result.stderr == (
        f"error: {path}: its name says that it is of `other_kernel`, and the kernel is "
        "`scale_kernel`\n\n"
        "hint: if that is what the kernel was called before, name it scale_kernel.autotune.json\n"
    )

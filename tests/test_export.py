"""What is locked, in the formats of others, and taken in again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fakes import entry
from projects import H200
from tritune import configlist, configtables, export, fitting, lock
from tritune.cli import tritune
from tritune.configtables import Row
from tritune.errors import TableError
from tritune.fitting import Receiver
from tritune.lockrender import sort_entries
from tritune.model import Config, Entry, Lock, LockedKey, Value

KERNEL = "ops:matmul_kernel"
Locked = tuple[LockedKey, Entry]


def locked(configs: Mapping[str, Config], kernel: str = KERNEL) -> tuple[Locked, ...]:
    return sort_entries(
        (LockedKey(kernel=kernel, device="H200", key=key), entry(config))
        for key, config in configs.items()
    )


def config(block: int, **more: Value) -> Config:
    return Config.of({"BLOCK_M": block, "num_warps": 4, **more})


ENTRIES = locked(
    {
        "M=1 N=8 a=f16": config(16),
        "M=64 N=8 a=f16": config(64, maxnreg=None),
        "M=128 N=8 a=f16": config(16),
    }
)


def test_as_python_each_distinct_config_stands_once_below_the_keys_that_it_wins():
    assert export.configs_source(KERNEL, "H200", ENTRIES) == (
        '"""What is locked for ops:matmul_kernel on H200."""\n'
        "\n"
        "import triton\n"
        "\n"
        "CONFIGS = [\n"
        "    # M=1 N=8 a=f16\n"
        "    # M=128 N=8 a=f16\n"
        '    triton.Config({"BLOCK_M": 16}, num_warps=4),\n'
        "    # M=64 N=8 a=f16\n"
        '    triton.Config({"BLOCK_M": 64}, num_warps=4),\n'
        "]\n"
        "\n"
        "BY_KEY = {\n"
        '    "M=1 N=8 a=f16": CONFIGS[0],\n'
        '    "M=64 N=8 a=f16": CONFIGS[1],\n'
        '    "M=128 N=8 a=f16": CONFIGS[0],\n'
        "}\n"
    )


def tables(keys: Sequence[str], axis: str = "M") -> list[str]:
    entries = locked({key: config(16) for key in keys})
    return list(export.vllm_tables(H200, entries, axis, {}))


def test_a_table_of_vllms_has_vllms_names_and_its_sizes_in_order():
    [(name, text)] = export.vllm_tables(H200, ENTRIES, "M", {"num_warps": "WARPS"}).items()

    assert name == "N=8,a=f16,device_name=NVIDIA_H200.json"
    assert json.loads(text) == {
        "1": {"BLOCK_SIZE_M": 16, "WARPS": 4},
        "64": {"BLOCK_SIZE_M": 64, "WARPS": 4},
        "128": {"BLOCK_SIZE_M": 16, "WARPS": 4},
    }
    assert list(json.loads(text)) == ["1", "64", "128"]


@pytest.mark.parametrize("form", ["configs", "vllm"])
def test_a_folder_above_the_output_that_is_not_there_is_an_error(tmp_path, form):
    held = Lock(devices=(H200,), entries=ENTRIES)
    lock.write(tmp_path / "tritune.lock", held)
    told = ("export", str(tmp_path / "tritune.lock"), "--format", form, "--output")

    result = CliRunner().invoke(tritune, [*told, str(tmp_path / "nope/x/out")])

    assert (result.exit_code, (tmp_path / "nope").exists()) == (2, False)
    assert result.stderr == (
        f"error: {tmp_path}/nope/x: there is no such folder\n\n"
        "hint: make it, or name one that is there\n"
    )


def test_a_table_is_named_as_vllm_does_where_that_tells_it_from_the_others():
    assert tables(["M=1 E=8 N=4 a=f16", "M=2 E=8 N=4 a=f16"]) == [
        "E=8,N=4,device_name=NVIDIA_H200.json"
    ]
    assert tables(["M=1 E=8 N=4 a=f16", "M=1 E=8 N=4 a=bf16"]) == [
        "E=8,N=4,a=bf16,device_name=NVIDIA_H200.json",
        "E=8,N=4,a=f16,device_name=NVIDIA_H200.json",
    ]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "n=1 x=f16",
            ("n=1 x=f16: it has no `M`\nhint: --axis NAME says which part the sizes are: n, x"),
        ),
        (
            "M=f16",
            "M=f16: `M` is 'f16', not a size\nhint: --axis NAME says which part the sizes are: M",
        ),
        (
            'M=1 L="a/b"',
            'L="a/b",device_name=NVIDIA_H200: its key has a `/`, which no name of a file can have',
        ),
    ],
)
def test_a_key_that_no_table_can_hold_is_refused(key, said):
    with pytest.raises(TableError) as caught:
        tables([key])

    assert str(caught.value) == said


# There and back again.

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
META: dict[str, st.SearchStrategy[Any]] = {
    "BLOCK_M": st.integers(1, 512),
    "GROUP_M": st.integers(1, 16),
    "FAST": st.booleans(),
    "ORDER": st.text(max_size=5),
    "SCALE": st.floats(allow_nan=False, allow_infinity=False),
    "num_warps": st.sampled_from([1, 2, 4, 8]),
    "num_stages": st.integers(1, 6),
    "num_ctas": st.sampled_from([1, 2]),
    "maxnreg": st.none() | st.integers(1, 255),
}


@st.composite
def kernels(draw) -> tuple[Receiver, tuple[Locked, ...]]:
    """A kernel with some tunables, and what is locked for some keys of it."""
    names = draw(st.lists(st.sampled_from(list(META)), min_size=1, unique=True))
    values = st.fixed_dictionaries({name: META[name] for name in names}).map(Config.of)
    parts = st.tuples(
        st.integers(0, 99),
        st.sampled_from(["8", "4096"]),
        st.sampled_from(["True", "False", "none", '"a, b"', "(f16,f16)"]),
        st.sampled_from(["f16", "bf16(unaligned)", "(f16,none)"]),
    )
    keys = parts.map(lambda one: "M={} N={} FLAG={} a={}".format(*one))
    receiver = Receiver(
        kernel=KERNEL,
        default=draw(values),
        key=("M", "N"),
        constants=("FLAG",),
        tensors=("a", "b"),
    )
    return receiver, locked(draw(st.dictionaries(keys, values, min_size=1, max_size=8)))


def taken(rows: Sequence[Row], receiver: Receiver) -> dict[str, Config]:
    """What an import without a sweep file makes of rows."""
    found = {fitting.key_of(row, "", receiver): fitting.config(row, receiver, {}) for row in rows}
    assert len(found) == len(rows)
    return found


def held(entries: Sequence[Locked]) -> dict[str, Config]:
    return {at.key: entry.config for at, entry in entries}


@given(kernels())
def test_what_is_exported_as_python_is_imported_as_the_same_configs(kernel):
    receiver, entries = kernel
    names: dict[str, Any] = {}

    exec(export.configs_source(KERNEL, "H200", entries), names)  # noqa: S102

    rows = list(configlist.rows("x:BY_KEY", names["BY_KEY"], "M"))
    assert taken(rows, receiver) == held(entries)
    assert len(names["CONFIGS"]) == len({entry.config for _, entry in entries})
    assert all(isinstance(one, triton.Config) for one in names["CONFIGS"])


@given(kernels())
def test_what_is_exported_as_tables_is_imported_as_the_same_configs(kernel):
    receiver, entries = kernel

    files = export.vllm_tables(H200, entries, "M", {})

    parsed = [configtables.parse_vllm(text, name, "M") for name, text in files.items()]
    assert {one.device for one in parsed} == {"NVIDIA_H200"}
    assert taken([row for one in parsed for row in one.rows], receiver) == held(entries)


# The command.


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    others = locked({"n=1 x=f16": config(8)}, kernel="ops:scale_kernel")
    lock.write("tritune.lock", Lock(devices=(H200,), entries=(*ENTRIES, *others)))
    return tmp_path / "tritune.lock"


def test_python_source_goes_to_stdout_and_can_be_run(path):
    result = run("export", "--format", "configs", "--kernel", "matmul_kernel")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == export.configs_source(KERNEL, "H200", ENTRIES)


def test_tables_go_into_a_folder_and_a_single_one_to_stdout(path):
    one = run("export", str(path), "--format", "vllm", "--kernel", "matmul_kernel")
    scale = ("--kernel", "scale_kernel", "--axis", "n", "--device", "h200", "--output", "out")
    other = run("export", "--format", "vllm", *scale)

    assert json.loads(one.stdout)["64"] == {"BLOCK_SIZE_M": 64, "num_warps": 4}
    assert other.stderr == "wrote out/x=f16,device_name=NVIDIA_H200.json\n"
    assert Path("out/x=f16,device_name=NVIDIA_H200.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Error: there are several; --kernel NAME: ops:matmul_kernel, ops:scale_kernel\n"),
        (("--kernel", "nope"), "no `nope` here; there is ops:matmul_kernel, ops:scale_kernel\n"),
        (
            ("--kernel", "matmul_kernel", "--axis", "N"),
            "these are 3 tables: --output DIR writes a file each, --only keeps some\n",
        ),
        (
            ("--kernel", "matmul_kernel", "--only", "M > 999"),
            (
                "error: --only M > 999: no entry is left\n\n"
                "hint: locked are M=1 N=8 a=f16; M=64 N=8 a=f16; M=128 N=8 a=f16\n"
            ),
        ),
        (("--kernel", "scale_kernel"), "error: n=1 x=f16: it has no `M`\n"),
        *[
            (
                ("--format", "configs", *given),
                f"{given[0]} is for --format vllm: Python source has whole keys\n",
            )
            for given in (("--axis", "Q"), ("--axis", "M"), ("--rename", "A=B"))
        ],
        (
            ("--kernel", "matmul_kernel", "--format", "configs", "--output", "."),
            "error: .: it is a folder\n\nhint: name a file in it, as tuned.py\n",
        ),
        (
            ("--kernel", "matmul_kernel", "--output", "tritune.lock"),
            (
                "error: tritune.lock: it is no folder\n\n"
                "hint: tables have names of their own: name a folder for them\n"
            ),
        ),
    ],
)
def test_what_cannot_be_written_is_refused(path, arguments, said):
    result = run("export", "--format", "vllm", *arguments)

    assert result.exit_code == 2
    assert said in result.stderr


def test_a_lockfile_that_does_not_say_what_a_device_is_names_no_table(path):
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"H200": {"backend"', '"H100": {"backend"'), encoding="utf-8")

    result = run("export", "--format", "vllm", "--kernel", "matmul_kernel")

    assert result.exit_code == 2
    assert result.stderr == (
        'error: "devices" of the lockfile does not say what H200 is, and a table is named by it\n\n'
        "hint: take its line from the lockfile's history\n"
    )


@pytest.mark.parametrize(
    ("renames", "said"),
    [
        (("BLOCK_N=B",), "no config has a `BLOCK_N`\n\nhint: did you mean `BLOCK_M`?\n"),
        (("BLOCK_M=B", "num_warps=B"), "two names of a config become `B`\n"),
        (("num_warps=BLOCK_SIZE_M",), "two names of a config become `BLOCK_SIZE_M`\n"),
    ],
)
def test_a_name_that_would_be_lost_in_a_table_is_refused(path, renames, said):
    options = [f"--rename={one}" for one in renames]

    result = run("export", "--format", "vllm", "--kernel", "matmul_kernel", *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: --rename: {said}"


def test_an_empty_lockfile_has_nothing_to_write(path):
    lock.write(path, Lock())

    result = run("export", str(path), "--format", "configs")

    assert result.stderr == f"error: {path}: nothing is locked in it\n"


# Hooks.


def hooked(*hooks: str) -> tuple[Locked, ...]:
    blocks = {f"M={size} a=f16": config(16) for size in range(1, len(hooks) + 1)}
    return tuple(
        (at, replace(one, evidence=replace(one.evidence, hook=hook)))
        for (at, one), hook in zip(locked(blocks), hooks, strict=True)
    )


def test_a_config_in_python_has_the_hook_that_it_was_measured_with_and_its_import():
    entries = hooked("mine.ops:zero@12345678", "other:Sets.fill@12345678", "")

    source = export.configs_source(KERNEL, "H200", entries)

    assert "import triton\n\nimport mine.ops\nimport other\n\nCONFIGS = [\n" in source
    assert [line.strip() for line in source.splitlines() if "triton.Config(" in line] == [
        'triton.Config({"BLOCK_M": 16}, num_warps=4, pre_hook=mine.ops.zero),',
        'triton.Config({"BLOCK_M": 16}, num_warps=4, pre_hook=other.Sets.fill),',
        'triton.Config({"BLOCK_M": 16}, num_warps=4),',
    ]
    assert '"M=2 a=f16": CONFIGS[1],' in source
    assert export.unwritten(entries) == ()


@pytest.mark.parametrize("hook", ["ops:make.<locals>.zero", "ops:Zero()", "ops:Zero.fill()"])
def test_a_hook_that_cannot_be_imported_is_a_comment(hook):
    entries = hooked(f"{hook}@12345678")

    source = export.configs_source(KERNEL, "H200", entries)

    assert (
        "    # M=1 a=f16\n"
        f"    # FILL IN pre_hook: it was measured with {hook}, which cannot be imported\n"
        '    triton.Config({"BLOCK_M": 16}, num_warps=4),\n'
    ) in source
    assert "import ops" not in source
    assert export.unwritten(entries) == (hook,)


@pytest.mark.parametrize(
    ("form", "hook", "said"),
    [
        ("configs", "ops:zero", ""),
        ("configs", "ops:<lambda>", "ops:<lambda> cannot be imported: give its configs their "),
        ("vllm", "ops:zero", "no table holds a pre_hook, and configs here were measured with ops:"),
    ],
)
def test_a_hook_that_is_not_written_is_a_warning(tmp_path, form, hook, said):
    path = tmp_path / "tritune.lock"
    lock.write(path, Lock(devices=(H200,), entries=hooked(f"{hook}@12345678")))

    found = CliRunner().invoke(tritune, ["export", str(path), "--format", form])

    assert found.exit_code == 0, found.output
    assert said in found.stderr
    assert bool(found.stderr) is bool(said)

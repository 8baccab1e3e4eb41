"""What production reads of a lockfile: one kernel's configs, and what is damaged around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_lock import GOLDEN, RESTORE, device, evidence, locks
from tritune import lock, lockscan
from tritune.errors import LockError
from tritune.lockrender import sort_entries
from tritune.lookup import Lockfile
from tritune.model import Config, Entry, Lock, LockedKey


def two(blocks=(32, 64)) -> str:
    """A lockfile of two kernels, `a:f` before `b:g`, with an entry for one key and for another."""
    entries = {
        LockedKey(kernel=kernel, device="H100", key=key): Entry(
            config=Config.of({"BLOCK": block + more}), evidence=evidence()
        )
        for kernel, block in zip(("a:f", "b:g"), blocks, strict=True)
        for more, key in enumerate(("M=64", "M=128"))
    }
    return lock.render(Lock(devices=(device(),), entries=sort_entries(entries.items())))


def opened(text: str, folder: Path) -> Lockfile:
    path = folder / "tritune.lock"
    path.write_bytes(text.encode())
    return Lockfile(path)


def message(file: Lockfile, kernel: str = "a:f") -> str:
    return str(file.damage(kernel)).replace(str(file.path), "tritune.lock")


def changed(kind: str, text: str, at: int, more: str) -> str:
    """*text* with what a hand or a disk does to it at one place."""
    if kind == "flip":
        return text[:at] + more + text[at + 1 :]
    if kind == "insert":
        return text[:at] + more + text[at:]
    return text[:at]


def configs(parsed: Lock, kernel: str) -> lockscan.Configs:
    found: lockscan.Configs = {}
    for at, entry in parsed.entries:
        if at.kernel == kernel:
            found.setdefault(at.device, {})[at.key] = entry.config.as_dict()
    return found


@given(locks())
def test_whatever_is_rendered_is_scanned_as_it_is_parsed(written):
    scan = lockscan.scan(lock.render(written).encode())

    if not written.entries:
        assert scan is None  # with nothing in it, all of it is soon read
    else:
        kernels = {at.kernel for at, _ in written.entries}
        assert set(scan.kernels) == kernels
        for kernel in kernels:
            assert scan.configs(kernel) == configs(written, kernel)
        assert scan.configs("another") == {}


BEHIND = st.sampled_from([",", "]", "}", "words", "], 1", " "])


@given(data=st.data())
def test_a_mutated_lockfile_is_served_as_it_is_parsed_or_is_damaged(data, tmp_path_factory):
    text = two() if data.draw(st.booleans()) else GOLDEN
    kind = data.draw(st.sampled_from(["flip", "insert", "cut", "double", "drop", "swap"]))
    lines = text.splitlines(keepends=True)
    line, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    at = data.draw(st.integers(0, len(text) - 1))
    if kind in {"flip", "insert", "cut"}:
        text = changed(kind, text, at, data.draw(st.characters(codec="utf-8") | BEHIND))
    elif kind == "double":
        text = "".join([*lines[:line], lines[line], *lines[line:]])
    elif kind == "drop":
        text = "".join([*lines[:line], *lines[line + 1 :]])
    else:
        lines[line], lines[other] = lines[other], lines[line]
        text = "".join(lines)
    file = opened(text, tmp_path_factory.mktemp("mutated"))
    sections = {kernel: file.section(kernel) for kernel in ("ops:matmul", "a:f", "b:g")}

    try:
        parsed = lock.parse(text, "tritune.lock")
    except LockError:
        # What evidence says is not looked at, nor (where lines were swapped) are the entries of a
        # kernel that nobody asks for; all else that is damaged is noticed.
        damaged = any(file.damage(kernel) for kernel in sections)
        assert damaged or kind in {"flip", "insert", "swap"}
        if kind in {"flip", "insert"} and not damaged:
            assert '"evidence"' in lines[text.count("\n", 0, at)]
    else:
        assert not any(file.damage(kernel) for kernel in sections)
        assert sections == {kernel: configs(parsed, kernel) for kernel in sections}


def test_only_the_kernels_own_entries_are_decoded(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(lockscan, "_config", lambda text: seen.append(text) or {})

    opened(two(), tmp_path).section("b:g")

    assert sorted(seen) == ['{"BLOCK": 64}', '{"BLOCK": 65}']


DAMAGES = {
    "cut off in another kernel's entries": lambda text: text[: text.index('"b:g"') + 80],
    "cut off after the last entry": lambda text: text[:-4],
    "with words behind an entry": lambda text: text.replace("\n    },\n", "\n    },words\n", 1),
    "with brackets behind an entry": lambda text: text.replace("\n    }\n", "\n    } ]]\n", 1),
    "with markers in another kernel's entries": lambda text: text.replace(
        '     "config": {"BLOCK": 64', '<<<<<<< ours\n     "config": {"BLOCK": 64'
    ),
    "with markers around its own": lambda text: text.replace(
        '    "M=64"', '=======\n    "M=64"', 1
    ),
    "with a kernel twice": lambda text: text.replace('"b:g"', '"a:f"'),
    "with a key twice": lambda text: text.replace(
        '    "M=64": {',
        '    "M=64": {\n     "config": {},\n     "evidence": {}\n    },\n    "M=64": {',
        1,
    ),
    "with a name twice in a config": lambda text: text.replace(
        '{"BLOCK": 32}', '{"BLOCK": 32, "BLOCK": 64}'
    ),
    "with a number that is none": lambda text: text.replace('{"BLOCK": 32}', '{"BLOCK": NaN}'),
    "with a nested config": lambda text: text.replace('{"BLOCK": 32}', '{"BLOCK": [32]}'),
    "with a kernel too few commas": lambda text: text.replace("\n  },\n", "\n  }\n"),
    "with evidence that does not end": lambda text: text.replace('"3.6.0"}', '"3.6.0"', 1),
    "of another format": lambda text: text.replace('"tritune": 1', '"tritune": 2'),
    "with a device of which too little is known": lambda text: text.replace('"sms": 132, ', ""),
    "with no end of its devices": lambda text: text.replace(
        '\n },\n "kernels"', ',\n "kernels"'
    ),
    "with another bracket at its end": lambda text: text[:-2] + "]\n",
    "with something before its first kernel": lambda text: text.replace(
        '  "a:f"', '      junk\n  "a:f"'
    ),
    "with something before a name": lambda text: text.replace('  "a:f"', ' 0"a:f"'),
    "with a list where a kernel was": lambda text: text.replace('"a:f": {', '"a:f": ['),
    "with an entry too few commas": lambda text: text.replace("    },\n", "    }\n", 1),
    "with an entry too many commas": lambda text: text.replace("    }\n", "    },\n", 1),
    "with more after it": lambda text: text + "{}\n",
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file_is_noticed_when_a_kernel_is_imported_and_said_as_it_always_is(
    what, tmp_path
):
    text = DAMAGES[what](two())
    file = opened(text, tmp_path)

    section = file.section("a:f")

    with pytest.raises(LockError) as caught:
        lock.parse(text, "tritune.lock")
    assert (section, message(file)) == ({}, str(caught.value))


@pytest.mark.parametrize("first", ["a:f", "b:g"])
def test_what_is_damaged_of_one_kernel_is_served_to_no_other_whoever_is_imported_first(
    first, tmp_path
):
    text = two().replace('"BLOCK": 64', '"BLOCK": NaN')
    file = opened(text, tmp_path)
    file.section(first)

    served = [file.section(kernel) for kernel in ("a:f", "b:g")]

    assert served == [{"H100": {"M=64": {"BLOCK": 32}, "M=128": {"BLOCK": 33}}}, {}]
    assert file.damage("a:f") is None
    assert "NaN is no finite number" in message(file, "b:g")


def test_evidence_that_is_damaged_inside_its_line_does_a_launch_no_harm(tmp_path):
    text = two().replace('"us": 10.0', '"us": 10..0')

    file = opened(text, tmp_path)

    assert (file.section("a:f"), file.error) == (
        {"H100": {"M=64": {"BLOCK": 32}, "M=128": {"BLOCK": 33}}},
        None,
    )
    with pytest.raises(LockError):
        lock.parse(text, "tritune.lock")


def test_evidence_of_a_file_that_is_read_in_full_is_not_looked_at_either(tmp_path):
    text = json.dumps(json.loads(two().replace('"us": 10.0', '"us": "ten"')), indent=2)

    file = opened(text, tmp_path)

    assert (file.section("a:f"), file.error) == (
        {"H100": {"M=64": {"BLOCK": 32}, "M=128": {"BLOCK": 33}}},
        None,
    )


def test_an_entry_with_no_evidence_is_damaged(tmp_path):
    whole = json.loads(two())
    del whole["kernels"]["a:f"]["H100"]["M=64"]["evidence"]

    file = opened(json.dumps(whole, indent=1), tmp_path)

    assert (file.section("b:g"), file.error) == (
        {"H100": {"M=64": {"BLOCK": 64}, "M=128": {"BLOCK": 65}}},
        None,
    )
    assert file.section("a:f") == {}
    assert message(file) == f'tritune.lock:19: kernels.a:f.H100.M=64: has no "evidence"{RESTORE}'


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="line ends of Windows"),
        pytest.param(lambda text: json.dumps(json.loads(text)), id="one line"),
        pytest.param(lambda text: json.dumps(json.loads(text), indent=1), id="a line a value"),
        pytest.param(lambda text: text.replace('"M=64": {', '"M=64" : {'), id="a space more"),
        pytest.param(lambda text: text.replace('"M=64"', r'"M\u003d64"'), id="escapes"),
        pytest.param(lambda text: text.replace('"87b', '"\u00b5'), id="no ASCII"),
    ],
)  # fmt: skip
def test_a_file_that_is_laid_out_in_another_way_serves_the_same(written, tmp_path):
    file = opened(written(two()), tmp_path)

    assert (file.section("a:f"), file.section("b:g"), file.error) == (
        {"H100": {"M=64": {"BLOCK": 32}, "M=128": {"BLOCK": 33}}},
        {"H100": {"M=64": {"BLOCK": 64}, "M=128": {"BLOCK": 65}}},
        None,
    )

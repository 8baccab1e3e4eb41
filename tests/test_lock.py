"""The lockfile: what is written is read again, and what is damaged says where."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritune import lock, locktext, places
from tritune.errors import EnvironmentFaultError, LockError
from tritune.lockrender import render, sort_entries
from tritune.lookup import Asked, Lockfile, find
from tritune.model import (
    Config,
    DeviceIdentity,
    Entry,
    Evidence,
    Lock,
    LockedKey,
    Problem,
    Winner,
)
from tritune.views.page import plain
from tritune.views.tables import lock_table

GOLDEN = (Path(__file__).parent / "data" / "lock_two_devices.lock").read_text(encoding="utf-8")
RESTORE = "\nhint: restore it from git, or delete the file and sweep again"
NAME = "\nhint: name a lockfile, such as kernels/tritune.lock"
NAME_ONE = NAME + "; if this was one, restore it from git"


def device(name="H100", **facts) -> DeviceIdentity:
    plain = {
        "backend": "cuda",
        "arch": 90,
        "sms": 132,
        "shared_bytes": 232448,
        "bus_bits": 5120,
        "memory_mhz": 2619,
        "names": ("NVIDIA H100 80GB HBM3",),
    }
    return DeviceIdentity(name=name, **{**plain, **facts})


def evidence(**facts) -> Evidence:
    plain = {
        "us": 10.0,
        "default_us": 20.0,
        "margin": 0.05,
        "noise": 0.003,
        "bits": "9c1e04d2",
        "ir": "87b314e3",
        "triton": "3.6.0",
    }
    return Evidence(**{**plain, **facts})


def winner(key="M=64", *, change="new", block=64, **facts) -> Winner:
    return Winner(
        kernel="ops:matmul",
        key=key,
        problem=Problem.of({"M": 64}),
        config=Config.of({"BLOCK": block, "num_warps": 4}),
        evidence=evidence(**facts),
        change=change,
    )


def error_of(text: str) -> str:
    with pytest.raises(LockError) as caught:
        lock.parse(text, "tritune.lock")
    return str(caught.value)


def test_a_rendered_lock_is_the_file_a_reviewer_knows():
    assert lock.render(lock.parse(GOLDEN, "-")) == GOLDEN


def test_keys_are_in_the_order_of_their_numbers():
    parsed = lock.parse(GOLDEN, "-")

    assert [(at.device, at.key) for at, _ in parsed.entries] == [
        ("H100", "M=64 K=4096 a=f16"),
        ("H100", "M=1024 K=4096 a=f16"),
        ("MI300X", "M=64 K=4096 a=f16"),
    ]


def test_evidence_that_there_is_none_of_is_left_out():
    text = lock.render(lock.merge_winners(Lock(), device(), [winner(default_us=None, margin=None)]))

    assert '"evidence": {"us": 10.0, "noise": 0.003, "bits"' in text


def test_times_are_rounded_to_three_figures():
    merged = lock.merge_winners(Lock(), device(), [winner(us=123.456, default_us=1234.5)])

    [(_, entry)] = merged.entries
    assert (entry.evidence.us, entry.evidence.default_us) == (123.0, 1230.0)


def test_a_merge_leaves_every_other_entry_alone():
    before = lock.parse(GOLDEN, "-")

    after = lock.merge_winners(before, device(), [winner("M=128 K=4096 a=f16")])

    new = LockedKey(kernel="ops:matmul", device="H100", key="M=128 K=4096 a=f16")
    assert [item for item in after.entries if item[0] != new] == list(before.entries)
    assert [at.key for at, _ in after.entries if at.device == "H100"] == [
        "M=64 K=4096 a=f16",
        "M=128 K=4096 a=f16",
        "M=1024 K=4096 a=f16",
    ]


def test_a_kept_incumbent_keeps_its_evidence_so_no_byte_changes():
    before = lock.merge_winners(Lock(), device(), [winner(us=10.0)])

    after = lock.merge_winners(before, device(), [winner(us=10.4, change="kept")])

    assert lock.render(after) == lock.render(before)


def test_a_changed_winner_brings_its_own_evidence():
    before = lock.merge_winners(Lock(), device(), [winner(us=10.0)])

    after = lock.merge_winners(before, device(), [winner(us=9.0, block=128, change="changed")])

    assert [(str(e.config), e.evidence.us) for _, e in after.entries] == [
        ("BLOCK=128 num_warps=4", 9.0)
    ]


def test_one_silicon_under_two_names_is_one_device_of_the_file():
    before = lock.merge_winners(Lock(), device("H100"), [winner("M=1")])

    after = lock.merge_winners(
        before, device("H100 SXM", names=("NVIDIA H100 SXM5",)), [winner("M=2")]
    )

    assert after.devices == (device("H100", names=("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5")),)
    assert [(at.device, at.key) for at, _ in after.entries] == [("H100", "M=1"), ("H100", "M=2")]


def test_other_silicon_under_one_name_gets_a_label_of_its_own():
    before = lock.merge_winners(Lock(), device("H100"), [winner()])

    once = lock.merge_winners(before, device("H100", sms=114), [winner()])
    twice = lock.merge_winners(once, device("H100", sms=114, bus_bits=6144), [winner()])

    assert [known.name for known in twice.devices] == [
        "H100",
        "H100 (114 SMs)",
        "H100 (114 SMs, 6144 bit)",
    ]
    assert lock.merge_winners(twice, device("H100", sms=114), [winner()]) == twice


def test_constraints_for_near_are_written_per_kernel_and_replaced_by_the_next_sweep():
    first = lock.merge_winners(Lock(), device(), [winner()], {"ops:matmul": ["BLOCK <= M"]})
    second = lock.merge_winners(first, device(), [winner()], {"ops:matmul": []})

    assert (first.near, second.near) == ((("ops:matmul", ("BLOCK <= M",)),), ())


def test_constraints_that_an_entry_was_swept_under_which_this_sweep_is_not_about_stay():
    other = winner("M=1")
    first = lock.merge_winners(Lock(), device(), [winner(), other], {"ops:matmul": ["BLOCK <= M"]})

    narrowed = lock.merge_winners(first, device(), [other], {"ops:matmul": ["M < 99"]})
    whole = lock.merge_winners(narrowed, device(), [winner(), other], {"ops:matmul": ["M < 99"]})

    assert narrowed.near == (("ops:matmul", ("BLOCK <= M", "M < 99")),)
    assert whole.near == (("ops:matmul", ("M < 99",)),)


def test_constraints_that_another_device_was_swept_under_stay():
    h100, h200 = device("H100"), device("H200", bus_bits=6016, memory_mhz=3201)
    strict = {"ops:matmul": ["BLOCK <= M", "M >= 16"]}
    first = lock.merge_winners(Lock(), h100, [winner()], strict)

    both = lock.merge_winners(first, h200, [winner()], {"ops:matmul": ["M >= 16", "M < 99"]})
    again = lock.merge_winners(both, h100, [winner(change="kept")], strict)

    assert both.near == (("ops:matmul", ("BLOCK <= M", "M >= 16", "M < 99")),)
    assert again == both


def test_the_committed_lockfile_is_the_same_after_a_sweep_that_changes_nothing():
    path = Path(__file__).parent.parent / "kernels" / "tritune.lock"
    before = lock.read(path)
    near = {name: list(texts) for name, texts in before.near}

    after = lock.merge_winners(before, before.devices[0], [], near)

    assert lock.render(after) == path.read_text(encoding="utf-8")


def test_a_kept_incumbent_takes_on_the_source_and_the_space_of_today_and_is_settled():
    old = winner(source="000000000001", space="00000001", unsettled=True)
    before = Lock(devices=(device(),), entries=((at_of(old), entry_of(old)),))

    today = winner(us=10.4, change="kept", source="000000000002", space="00000002")
    [(_, entry)] = lock.merge_winners(before, device(), [today]).entries

    assert entry.evidence == evidence(us=10.0, source="000000000002", space="00000002")


def at_of(won: Winner) -> LockedKey:
    return LockedKey(kernel=won.kernel, device="H100", key=won.key)


def entry_of(won: Winner) -> Entry:
    return Entry(config=won.config, evidence=won.evidence)


def test_an_imported_entry_has_evidence_that_says_only_so():
    text = GOLDEN.replace(
        '{"us": 190.0, "noise": 0.002, "bits": "11aa22bb", "ir": "87b314e3", "triton": "3.6.0"}',
        '{"unmeasured": true}',
    )

    parsed = lock.parse(text, "-")

    imported = parsed.entries[1][1].evidence
    assert (imported.unmeasured, imported.us, imported.ir, imported.triton) == (True, 0.0, "", "")
    assert lock.render(parsed) == text


def test_a_device_may_name_another_whose_entries_it_uses():
    text = lending("M <= 64")

    read = lock.parse(text, "tritune.lock")

    assert [(one.name, one.use, one.where) for one in read.devices] == [
        ("H100", "", ()),
        ("MI300X", "H100", ("M <= 64",)),
    ]
    assert render(read) == text


@pytest.mark.parametrize("use", ["H200", "MI300X"])
def test_a_device_cannot_use_the_entries_of_one_that_is_not_there(use):
    head = '"memory_mhz": 2600, "names": []'

    message = error_of(GOLDEN.replace(head, f'{head}, "use": "{use}"'))

    assert message.splitlines()[0].endswith(
        f'devices.MI300X.use: expected another device of this file, got "{use}"'
    )


def lending(*where: str) -> str:
    head = '"memory_mhz": 2600, "names": []'
    return GOLDEN.replace(head, f'{head}, "use": "H100", "where": {json.dumps(where)}')


@pytest.mark.parametrize(
    ("constraint", "what"),
    [
        ("M =< 64", "is no constraint: `M =< 64`"),
        ("M + 1", "is no constraint: `M + 1` is neither true nor false"),
        ("M.bit_length() < 7", "is no constraint: `M.bit_length() < 7`"),
        ("len(a) < 7", "is no constraint: `len(a) < 7`"),
        ("M <= 64 and foo > 3", "names `foo`, which no key of what it uses has"),
    ],
)
def test_where_a_device_uses_another_is_a_constraint_of_the_keys_there(constraint, what):
    text = lending("M > 0", constraint)
    line = text[: text.index('"where"')].count("\n") + 1

    assert error_of(text) == (
        f"tritune.lock:{line}: devices.MI300X.where.1: {what}\n"
        "hint: write it as `M <= 64`, of parts of the keys or of arch, backend, shared_bytes, "
        "sms"
    )


@pytest.mark.parametrize("constraint", ["sms == 16 and K < cdiv(M, 2)", "not M in (1, 2 ** 3)"])
def test_where_a_device_uses_another_may_be_any_constraint_of_the_keys(constraint):
    assert lock.parse(lending(constraint), "-").devices[1].where == (constraint,)


def test_an_imported_entry_is_served_and_shown_without_times(tmp_path):
    text = GOLDEN.replace(
        '{"us": 190.0, "noise": 0.002, "bits": "11aa22bb", "ir": "87b314e3", "triton": "3.6.0"}',
        '{"unmeasured": true}',
    )
    path = tmp_path / "tritune.lock"
    path.write_text(text, encoding="utf-8")
    key = (("M", "1024"), ("K", "4096"), ("a", "f16"))
    asked = Asked(kernel="ops:matmul", key=key, near=None, values={})

    found = find(Lockfile(path), device(), asked, lambda *_: "")

    assert (found.kind, str(found.config)) == ("exact", "BLOCK_K=128 SPLIT_K=1 num_warps=8")
    [row] = [row for row in plain(lock_table("x", lock.read(path))).splitlines() if "M=1024" in row]
    assert row.split()[3:] == ["128", "1", "8", "-", "-", "-", "-", "-", "-", "unmeasured"]


def test_what_was_measured_is_measured_with_all_of_its_evidence():
    text = GOLDEN.replace('{"us": 190.0, "noise"', '{"unmeasured": false, "noise"')

    assert error_of(text) == (
        "tritune.lock:19: kernels.ops:matmul.H100.M=1024 K=4096 a=f16.evidence: "
        'has no "us"' + RESTORE
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tritune.lock: is empty" + RESTORE),
        (GOLDEN[:-7], "tritune.lock:28: is cut off here" + RESTORE),
        (GOLDEN[:400], "tritune.lock:11: is cut off here" + RESTORE),
        ("nonsense", "tritune.lock: is no lockfile: it does not begin with `{`" + NAME_ONE),
        ("[]", "tritune.lock: is no lockfile: it does not begin with `{`" + NAME_ONE),
        ("{}", 'tritune.lock:1: has no "tritune", the version of its format' + NAME_ONE),
        ('{"journal":1}\n{}', "tritune.lock:2: is not JSON: extra data" + NAME_ONE),
        (
            "\ufeff" + GOLDEN,
            "tritune.lock:1: starts with a byte-order mark\nhint: save it as plain UTF-8",
        ),
        (
            GOLDEN.replace('  "ops:matmul": {\n', '<<<<<<< ours\n  "ops:matmul": {\n'),
            (
                "tritune.lock:11: has the markers of an unfinished merge\n"
                "hint: `tritune merge --install`, then `git checkout --merge` this file; or take "
                "one side (`git checkout --ours` or `--theirs`), and `tritune sweep --stale`"
            ),
        ),
        (
            GOLDEN.replace('"num_warps": 8', '"num_warps": 8,\n "num_warps": 4'),
            (
                'tritune.lock:19: "num_warps" stands twice, first on line 18\n'
                "hint: a merge kept both sides: delete one of the two and sweep again"
            ),
        ),
        (
            GOLDEN.replace("M=1024 K", "M=64 K"),
            (
                'tritune.lock:17: "M=64 K=4096 a=f16" stands twice, first on line 13\n'
                "hint: a merge kept both sides: delete one of the two and sweep again"
            ),
        ),
        (
            GOLDEN.replace('"us": 22.4', '"us": NaN'),
            "tritune.lock:25: NaN is no finite number" + RESTORE,
        ),
        (
            GOLDEN.replace('"us": 22.4', '"us": -Infinity'),
            "tritune.lock:25: -Infinity is no finite number" + RESTORE,
        ),
        (
            GOLDEN.replace('"us": 22.4', '"us": 1e999'),
            "tritune.lock:25: 1e999 is no finite number" + RESTORE,
        ),
        (
            GOLDEN.replace('"us": 22.4', f'"us": {"9" * 400}'),
            (
                "tritune.lock:25: kernels.ops:matmul.MI300X."
                f"M=64 K=4096 a=f16.evidence.us: expected a number, got {'9' * 40}" + RESTORE
            ),
        ),
        (
            GOLDEN.replace('"tritune": 1', '"tritune": 999'),
            (
                "tritune.lock:2: tritune: format 999 is newer than this tritune, which reads 1\n"
                "hint: upgrade tritune"
            ),
        ),
        (
            GOLDEN.replace('"us": 22.4', '"us": "22.4"'),
            "tritune.lock:25: kernels.ops:matmul.MI300X.M=64 K=4096 a=f16.evidence.us: "
            'expected a number, got "22.4"' + RESTORE,
        ),
        (
            GOLDEN.replace('"SPLIT_K": 8', '"SPLIT_K": [8]'),
            "tritune.lock:24: kernels.ops:matmul.MI300X.M=64 K=4096 a=f16.config.SPLIT_K: "
            "expected a value, got [8]" + RESTORE,
        ),
        (
            GOLDEN.replace('"sms": 304', '"sms": true'),
            "tritune.lock:5: devices.MI300X.sms: expected a whole number, got true" + RESTORE,
        ),
        (
            GOLDEN.replace('"sms": 304, ', ""),
            'tritune.lock:5: devices.MI300X: has no "sms"' + RESTORE,
        ),
        (
            GOLDEN.replace('"near"', '"neer"'),
            "tritune.lock:7: neer: is not part of a lockfile" + RESTORE,
        ),
    ],
)
def test_a_damaged_lockfile_names_the_line_and_the_cure(text, message):
    assert error_of(text) == message


def test_line_ends_of_windows_are_fine():
    assert lock.parse(GOLDEN.replace("\n", "\r\n"), "-") == lock.parse(GOLDEN, "-")


def test_a_file_that_is_not_there_is_an_empty_lock(tmp_path):
    assert lock.read(tmp_path / "tritune.lock") == Lock()


def test_a_file_that_is_not_text_says_so(tmp_path):
    path = tmp_path / "tritune.lock"
    path.write_bytes(b"{\xff}")

    with pytest.raises(LockError) as caught:
        lock.read(path)
    assert str(caught.value) == f"{path}: is not UTF-8 at byte 1{RESTORE}"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.yaml", b"kernel: m:k\n", "is no lockfile but a sweep file, by its name" + NAME),
        ("a.md", b"A\n=======\n", "is no lockfile: it does not begin with `{`" + NAME_ONE),
        ("a.jsonl.gz", b"\x1f\x8b", "is not UTF-8 at byte 1" + NAME_ONE),
    ],
)
def test_a_file_that_never_was_a_lockfile_is_not_to_be_deleted(tmp_path, name, data, message):
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(LockError) as caught:
        lock.read(path)
    assert str(caught.value) == f"{path}: {message}"


def test_writing_leaves_the_lockfile_and_nothing_else(tmp_path):
    path = tmp_path / "tritune.lock"

    lock.write(path, lock.parse(GOLDEN, "-"))

    assert path.read_text(encoding="utf-8") == GOLDEN
    assert [each.name for each in tmp_path.iterdir()] == ["tritune.lock"]


def test_writing_keeps_the_mode_and_follows_a_link(tmp_path):
    real, link = tmp_path / "real.lock", tmp_path / "tritune.lock"
    real.write_text("{}", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)

    lock.write(link, Lock())

    assert link.is_symlink()
    assert (oct(real.stat().st_mode & 0o777), lock.read(real)) == ("0o640", Lock())


def test_a_new_lockfile_has_the_mode_of_any_new_file(tmp_path):
    path, other = tmp_path / "tritune.lock", tmp_path / "other"
    other.touch()

    lock.write(path, Lock())

    assert path.stat().st_mode == other.stat().st_mode


def test_a_folder_whose_name_is_not_text_takes_a_lockfile(tmp_path):
    folder = tmp_path / os.fsdecode(b"a\xff")
    folder.mkdir()

    lock.write(folder / "tritune.lock", Lock())

    assert lock.read(folder / "tritune.lock") == Lock()
    assert places.journal_path(tmp_path, folder / "a.yaml", "H200").parent == tmp_path


def test_equal_text_is_not_written_again(tmp_path):
    path = tmp_path / "tritune.lock"
    path.write_text(GOLDEN, encoding="utf-8")
    os.utime(path, (1, 1))

    lock.write(path, lock.parse(GOLDEN, "-"))

    assert path.stat().st_mtime == 1


def test_a_folder_that_is_not_there_is_one_message_and_leaves_nothing(tmp_path):
    path = tmp_path / "no" / "tritune.lock"

    with pytest.raises(EnvironmentFaultError) as caught:
        lock.write(path, Lock())
    assert str(caught.value) == (
        f"{path}: cannot be written: No such file or directory\n"
        "hint: nothing was changed; --lockfile FILE writes elsewhere"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_lockfile_is_never_overwritten_by_an_update(tmp_path):
    path = tmp_path / "tritune.lock"
    path.write_text(GOLDEN[:-7], encoding="utf-8")

    with pytest.raises(LockError):
        lock.update(path, lambda _: Lock())
    assert path.read_text(encoding="utf-8") == GOLDEN[:-7]


def test_sweeps_that_write_at_once_lose_no_entry(tmp_path):
    path = tmp_path / "tritune.lock"

    def add(number: int) -> None:
        lock.update(path, lambda old: lock.merge_winners(old, device(), [winner(f"M={number}")]))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [at.key for at, _ in lock.read(path).entries] == [f"M={n}" for n in range(8)]


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
FLOATS = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
MAYBE = st.none() | FLOATS
VALUES = st.none() | st.booleans() | st.integers(0, 2**40) | FLOATS | NAMES
TIMED = st.builds(
    Evidence, us=FLOATS, default_us=MAYBE, margin=MAYBE, noise=FLOATS, bits=NAMES, ir=NAMES,
    triton=NAMES, source=st.just("") | NAMES, space=st.just("") | NAMES, unsettled=st.booleans(),
)  # fmt: skip
IMPORTED = st.builds(
    Evidence, us=st.just(0.0) | FLOATS, default_us=MAYBE, margin=MAYBE, noise=st.just(0.0),
    bits=st.just("") | NAMES, ir=st.just("") | NAMES, triton=st.just("") | NAMES,
    source=st.just(""), unsettled=st.booleans(), unmeasured=st.just(True),  # noqa: FBT003
)  # fmt: skip
EVIDENCE = TIMED | IMPORTED
ENTRIES = st.builds(
    Entry, config=st.dictionaries(NAMES, VALUES, max_size=3).map(Config.of), evidence=EVIDENCE
)
KEYS = st.builds(LockedKey, kernel=NAMES, device=NAMES, key=NAMES)
DEVICES = st.builds(
    DeviceIdentity,
    name=NAMES,
    backend=NAMES,
    arch=st.integers(0, 200) | NAMES,
    sms=st.integers(0, 999),
    shared_bytes=st.integers(0, 2**20),
    bus_bits=st.integers(0, 2**14),
    memory_mhz=st.integers(0, 9999),
    names=st.lists(NAMES, max_size=2).map(tuple),
)


@st.composite
def locks(draw) -> Lock:
    devices = draw(st.lists(DEVICES, max_size=3, unique_by=lambda known: known.name))
    near = draw(st.dictionaries(NAMES, st.lists(NAMES, max_size=2).map(tuple), max_size=2))
    return Lock(
        devices=tuple(sorted(devices, key=lambda known: known.name)),
        entries=sort_entries(draw(st.dictionaries(KEYS, ENTRIES, max_size=4)).items()),
        near=tuple(sorted(near.items())),
    )


@given(locks())
def test_whatever_is_rendered_is_parsed_again(written):
    assert lock.parse(lock.render(written), "-") == written


@given(st.data())
def test_a_mutated_lockfile_is_a_lock_or_one_error(data):
    text = GOLDEN
    kind = data.draw(st.sampled_from(["flip", "cut", "double", "drop"]))
    lines = text.splitlines(keepends=True)
    line = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(text) - 1))
    if kind == "flip":
        text = text[:at] + data.draw(st.characters(codec="utf-8")) + text[at + 1 :]
    elif kind == "cut":
        text = text[:at]
    elif kind == "double":
        text = "".join([*lines[:line], lines[line], *lines[line:]])
    else:
        text = "".join([*lines[:line], *lines[line + 1 :]])

    try:
        parsed = lock.parse(text, "tritune.lock")
    except LockError as error:
        assert str(error).startswith("tritune.lock:")  # noqa: PT017  # one of two outcomes
    else:
        assert lock.parse(lock.render(parsed), "-") == parsed


def test_a_file_of_ten_thousand_entries_is_read_quickly_and_in_one_piece():
    many = sort_entries(
        (
            LockedKey(kernel="k", device="H100", key=f"M={n}"),
            Entry(config=Config.of({"B": n}), evidence=evidence()),
        )
        for n in range(10_000)
    )

    text = lock.render(Lock(devices=(device(),), entries=many))

    assert len(json.loads(text)["kernels"]["k"]["H100"]) == 10_000
    assert error_of(text.replace('"B": 9999', '"B": []')).startswith("tritune.lock:40006: ")


def test_a_place_where_nothing_can_be_written_is_refused_before_the_work(tmp_path):
    path = tmp_path / "nowhere" / "tritune.lock"

    with pytest.raises(EnvironmentFaultError) as caught:
        lock.refuse_unwritable(path)

    assert str(caught.value) == (
        f"{path}: cannot be written: No such file or directory\n"
        "hint: nothing was changed; --lockfile FILE writes elsewhere"
    )


def test_asking_whether_a_lockfile_can_be_written_leaves_nothing_behind(tmp_path):
    path = tmp_path / "tritune.lock"
    path.write_text(GOLDEN, encoding="utf-8")

    lock.refuse_unwritable(path)

    assert [each.name for each in tmp_path.iterdir()] == ["tritune.lock"]
    assert path.read_text(encoding="utf-8") == GOLDEN


def test_a_number_in_a_key_may_have_more_digits_than_python_makes_a_number_of():
    long = f"M={'9' * 5000} K"

    entries = lock.parse(GOLDEN.replace("M=64 K", long), "tritune.lock").entries

    assert any(at.key.startswith(long) for at, _ in entries)
    assert locktext.natural("M=7") < locktext.natural("M=064") < locktext.natural("M=64")
    assert locktext.natural("M=64") < locktext.natural(long)

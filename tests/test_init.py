"""A first sweep file: what it says of each kind of kernel, and what it takes to make it run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tritune import pipeline, spec
from tritune.cli import tritune
from tritune.device import cuda
from tritune.errors import TrituneError
from tritune.model import Target

OPS = """
import torch
import triton
import triton.language as tl


@triton.autotune(
    [
        triton.Config({"BLOCK": 1024, "FAST": True}, num_warps=4),
        triton.Config({"BLOCK": 4096, "FAST": False}, num_warps=8, maxnreg=64),
    ],
    key=["n"],
)
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr, FAST: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def bare(x_ptr, y_ptr, n, x_stride, CAUSAL: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


NUMBER = 3
"""
DECORATED = (
    OPS.replace("import triton\n", "import triton\nimport tritune\n")
    .replace("@triton.autotune(", "@tritune.kernel\n@triton.autotune(")
    .replace(
        "@triton.jit\ndef bare",
        '@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))\n@triton.jit\ndef bare',
    )
)
PROBLEM = """

@tritune.problem(tuned)
def copy_problem(n, dtype, scale=1.0):
    x = torch.randn(n, dtype=dtype)
    return tritune.Problem(lambda: x)
"""
FILLED = """
    x, y = torch.randn(n, dtype=dtype), torch.empty(n, dtype=dtype)

    def run():
        bare[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 1, False)
        return y

    return tritune.Problem(run)
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tritune, arguments, prog_name="tritune")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cuda, "present", lambda: False)
    Path("ops.py").write_text(OPS, encoding="utf-8")
    return tmp_path


def filled(path: str) -> str:
    """A sweep file with its gaps filled, on disk as well."""
    text = re.sub(r":  # FILL IN.*", ": 64", Path(path).read_text(encoding="utf-8"))
    Path(path).write_text(text, encoding="utf-8")
    return text


def axes(path: str) -> dict[str, tuple[object, ...]]:
    return {axis.name: axis.values for axis in spec.read_sweep(Path(path)).space}


AUTOTUNED = """\
# What to try of `tuned`, and for which problems; FILL IN marks what is open.
kernel: ../ops.py:tuned
problem: ../tuned_problem.py:tuned_problem
# targets: [H200]  # the GPUs it ships on; needed where a sweep has no GPU

# The values in its own list of 2 configs. Their product is
# 16 configs, wider than the list: see that the kernel is right with
# all of them, or leave `space:` out, which tries exactly the list.
space:
  BLOCK: [1024, 4096]
  FAST: [false, true]
  maxnreg: [64, null]
  num_stages: [3]
  num_warps: [4, 8]

# A constraint rules configs out before they compile; it may name the problem's axes.
# constraints:
#   - num_warps <= 8

# One row for each group of problems: a row with several values is their product.
shapes:
  - n:  # FILL IN: one value, or [1, 64, 4096]
    dtype: float16  # or a list: [float16, bfloat16]

# Small problems, with sizes that no block divides: Triton's interpreter runs them.
# smoke:
#   - {n: 100, dtype: float16}
"""


def test_of_a_kernel_under_autotune_the_space_is_what_its_list_has():
    result = run("init", "ops.py:tuned")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "wrote sweeps/tuned.yaml\n"
        "wrote tuned_problem.py\n"
        "next: import tritune, and put `@tritune.kernel` above the decorators of `tuned` "
        "(ops.py:7)\n"
        "next: fill in what is marked FILL IN in sweeps/tuned.yaml and tuned_problem.py\n"
        "next: tritune show space sweeps/tuned.yaml\n"
    )
    assert Path("sweeps/tuned.yaml").read_text(encoding="utf-8") == AUTOTUNED
    assert Path("ops.py").read_text(encoding="utf-8") == OPS


def test_a_list_that_is_its_own_product_is_not_called_narrower_than_it():
    single = OPS.replace('"FAST": True', '"FAST": False').replace(
        "num_warps=8, maxnreg=64", "num_warps=4"
    )
    Path("ops.py").write_text(single, encoding="utf-8")

    run("init", "ops.py:tuned")

    assert (
        "\n# The values in its own list of 2 configs. Their product is\n"
        "# that list, which leaving `space:` out tries as well.\n"
        "space:\n"
        "  BLOCK: [1024, 4096]\n"
        "  FAST: [false]\n"
    ) in Path("sweeps/tuned.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["tuned", "bare"])
def test_a_gap_is_refused_at_its_line_and_a_filled_file_is_read(name):
    run("init", f"ops.py:{name}")
    path = Path(f"sweeps/{name}.yaml")
    with pytest.raises(TrituneError, match=r"shapes\[0\]\.n: expected a value, got nothing"):
        spec.read_sweep(path)

    filled(str(path))

    sweep = spec.read_sweep(path)
    assert str(sweep.problems[0]) == "n=64 dtype=float16"
    assert sweep.problem == str(Path(f"{name}_problem.py").absolute()) + f":{name}_problem"


def test_of_a_bare_kernel_tiles_are_guessed_and_the_line_to_add_is_shown():
    result = run("init", "ops:bare")

    line = '@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))'
    assert f"next: import tritune, and put `{line}` above" in result.stderr
    assert f"#     {line}\n" in Path("bare_problem.py").read_text(encoding="utf-8")
    text = filled("sweeps/bare.yaml")
    assert "# The caller passes CAUSAL; put one here" in text
    assert "kernel: ops:bare\n" in text
    assert axes("sweeps/bare.yaml") == {"BLOCK": (32, 64, 128), "num_warps": (2, 4, 8)}


def test_the_problem_skeleton_imports_and_says_that_it_is_not_filled_in():
    run("init", "ops.py:bare")
    text = Path("bare_problem.py").read_text(encoding="utf-8")

    code = compile(text, "bare_problem.py", "exec")

    assert "bare_problem" in code.co_names
    assert 'raise NotImplementedError("FILL IN: the inputs of bare")' in text


@pytest.mark.lowering
def test_of_a_filled_file_a_sweep_refuses_the_skeleton_that_is_not(monkeypatch):
    monkeypatch.setenv("TRITUNE_CACHE_DIR", "cache")
    Path("ops.py").write_text(DECORATED, encoding="utf-8")
    run("init", "ops.py:bare")
    filled("sweeps/bare.yaml")

    shown = run("show", "space", "sweeps/bare.yaml", "--target", "H200")
    swept = run("sweep", "sweeps/bare.yaml", "--target", "H200", "--dry-run")

    assert (shown.exit_code, swept.exit_code) == (0, 2)
    assert swept.stderr.splitlines()[-1] == (
        f"error: {Path.cwd()}/bare_problem.py:10: the problem n=64 dtype=float16 cannot be made: "
        "NotImplementedError: FILL IN: the inputs of bare"
    )


@pytest.mark.lowering
def test_a_skeleton_and_a_file_that_are_filled_in_are_ready_to_sweep():
    run("init", "ops.py:bare")
    Path("ops.py").write_text(DECORATED, encoding="utf-8")
    skeleton = Path("bare_problem.py").read_text(encoding="utf-8")
    head, _, _ = skeleton.partition("    raise NotImplementedError")
    text = head.replace("import torch\n", "import torch\nimport triton\n") + FILLED
    Path("bare_problem.py").write_text(text, encoding="utf-8")
    filled("sweeps/bare.yaml")

    result = run("show", "space", "sweeps/bare.yaml", "--target", "H200")

    assert result.exit_code == 0, result.output
    assert "the whole space" in result.stdout


HEURISTIC = """
import triton
import triton.language as tl


@triton.heuristics({"HAS": lambda args: args["acc"] is not None, "BLOCK": lambda args: 64})
@triton.jit
def pass_on(x, acc, out, n, HAS: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def plain(x, n, EVEN):
    tl.store(x, n)
"""


def test_a_drafted_launch_leaves_out_what_heuristics_set():
    Path("computed.py").write_text(HEURISTIC, encoding="utf-8")

    assert run("init", "computed.py:pass_on").exit_code == 0
    line = next(
        text for text in run("init", "computed.py:plain").stderr.splitlines() if "@" in text
    )

    assert "        # pass_on[lambda meta: (...,)](x, acc, out, n)\n" in (
        Path("pass_on_problem.py").read_text(encoding="utf-8")
    )
    assert "        # plain[lambda meta: (...,)](x, n)\n" in (
        Path("plain_problem.py").read_text(encoding="utf-8")
    )
    assert '`@tritune.kernel(key=["n"], default=dict(num_warps=4))`' in line


def test_a_kernel_is_called_what_its_module_has_it_under():
    text = f"{OPS}\n\nclass Ops:\n    forward = bare\n"
    Path("ops.py").write_text(text, encoding="utf-8")

    assert run("init", "ops.py:Ops.forward").exit_code == 0

    skeleton = Path("forward_problem.py").read_text(encoding="utf-8")
    assert "\nfrom ops import Ops  # or the op that launches it\n" in skeleton
    assert "        # Ops.forward[lambda meta: (...,)](x_ptr, y_ptr, n, x_stride, CAUSAL)\n" in (
        skeleton
    )
    assert "\nkernel: ../ops.py:Ops.forward\n" in filled("sweeps/forward.yaml")


def test_a_file_that_no_import_can_name_is_left_to_its_owner():
    Path("my-ops.py").write_text(OPS, encoding="utf-8")

    assert run("init", "my-ops.py:bare").exit_code == 0

    skeleton = Path("bare_problem.py").read_text(encoding="utf-8")
    assert "\n# FILL IN: load bare from my-ops.py, which no import can name\n" in skeleton
    compile(skeleton, "bare_problem.py", "exec")


@pytest.mark.parametrize("folder", ["lib/site-packages", "vendored"])
def test_nothing_of_ours_is_put_into_an_installed_package(monkeypatch, folder):
    package = Path(folder)
    package.mkdir(parents=True)
    (package / "theirs.py").write_text(OPS, encoding="utf-8")
    (package / "theirs-1.0.dist-info").mkdir()  # as of `pip install --target vendored`
    record = "theirs.py,sha256=x,1\ntheirs-1.0.dist-info/RECORD,,\n"
    (package / "theirs-1.0.dist-info/RECORD").write_text(record, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{package.absolute()}")

    result = run("init", f"{folder}/theirs.py:tuned")

    assert result.exit_code == 0, result.output
    assert [path.name for path in package.glob("*.py")] == ["theirs.py"]
    assert Path("sweeps/tuned_problem.py").is_file()
    assert "\nproblem: tuned_problem.py:tuned_problem\n" in filled("sweeps/tuned.yaml")
    made = spec.read_sweep(Path("sweeps/tuned.yaml"))
    assert (len(made.problems), made.space) == (1, ())
    assert "# Its author's own list of 2 configs is tried." in Path("sweeps/tuned.yaml").read_text()
    assert "@tritune.kernel" not in result.output


def installed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A module of an installed package, its folder on the path."""
    package = Path("lib/site-packages").absolute()
    (package / name).parent.mkdir(parents=True)
    (package / name).write_text(OPS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(package))
    monkeypatch.syspath_prepend(str(package))


def test_of_a_bare_kernel_in_a_package_it_is_said_what_can_be_done_with_it(monkeypatch):
    installed(monkeypatch, "theirs.py")

    result = run("init", "theirs:bare")

    line = '@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))'
    assert result.stderr == (
        "wrote sweeps/bare.yaml\n"
        "wrote sweeps/bare_problem.py\n"
        "next: `bare` (lib/site-packages/theirs.py:20) has no autotuner, and tritune tunes other "
        "people's kernels only under one: to tune it, copy it into a file of your own, with "
        f"`import tritune` and above it `{line}`\n"
        "next: look at what its launch passes now: the default above is a guess, and what the op "
        "computes itself, as a block that holds a row, leaves nothing to tune\n"
        "next: fill in what is marked FILL IN in sweeps/bare.yaml and sweeps/bare_problem.py\n"
        "next: tritune show space sweeps/bare.yaml\n"
    )
    skeleton = Path("sweeps/bare_problem.py").read_text(encoding="utf-8")
    assert (
        "# FILL IN: import your own copy of theirs:bare, or the op that launches that\n"
        "\n"
        "# `bare` has no autotuner, and tritune tunes other people's kernels only\n"
        "# under one. To tune it, copy it into a file of your own, with `import tritune` and\n"
        "# above its other decorators\n"
        f"#     {line}\n"
        "# with what the launch passes now for the default, which is a guess.\n"
        "# What the op computes itself, as a block that holds a row, leaves nothing to tune.\n"
    ) in skeleton
    compile(skeleton, "bare_problem.py", "exec")
    with pytest.raises(TrituneError, match=r"^sweeps/bare\.yaml:2:\d+: kernel: ") as caught:
        spec.read_sweep(Path("sweeps/bare.yaml"))
    assert "shapes[0].n" in str(caught.value)
    assert ("\nkernel:  # FILL IN: your own copy of theirs:bare, which has no autotuner\n") in Path(
        "sweeps/bare.yaml"
    ).read_text(encoding="utf-8")


def test_a_sweep_of_a_bare_kernel_in_a_package_says_that_it_needs_a_copy(monkeypatch):
    installed(monkeypatch, "theirs.py")
    Path("s.yaml").write_text(
        "kernel: theirs:bare\ntargets: [H200]\nspace: {BLOCK: [64]}\nshapes: [{n: 64}]\n",
        encoding="utf-8",
    )

    result = run("show", "space", "s.yaml")

    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == (
        f"error: {Path.cwd()}/lib/site-packages/theirs.py: `bare` is a Triton kernel without its "
        "tritune line hint: copy it into a file of your own: other people's kernels need an "
        "autotuner and write above the copy's decorators import tritune "
        '@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))'
    )


def test_a_kernel_below_a_folder_without_an_init_file_is_imported_as_it_was_named(monkeypatch):
    installed(monkeypatch, "spaced/kernels/nms.py")

    assert run("init", "spaced.kernels.nms:tuned").exit_code == 0

    assert "\nfrom spaced.kernels.nms import tuned  # or the op that launches it\n" in (
        Path("sweeps/tuned_problem.py").read_text(encoding="utf-8")
    )
    assert "\nkernel: spaced.kernels.nms:tuned\n" in filled("sweeps/tuned.yaml")


ASSIGNED = """
import triton
import triton.language as tl


def wrapped(E, C, LSE, B, V, stride_b, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = E + at * stride_b
    rows += 1
    other = tl.make_block_ptr(base=C, shape=(B, V), strides=(V, 1), offsets=(0, 0),
                              block_shape=(BLOCK, BLOCK), order=(1, 0))
    tl.store(LSE + at, tl.load(rows, mask=at < B) + tl.sum(tl.load(other), axis=1))


wrapped = triton.jit(wrapped)
"""


def test_what_an_assignment_wraps_is_told_so_and_a_key_has_no_pointers():
    Path("assigned.py").write_text(ASSIGNED, encoding="utf-8")

    result = run("init", "assigned.py:wrapped")

    line = 'wrapped = tritune.kernel(key=["B", "V"], default=dict(BLOCK=64, num_warps=4))(wrapped)'
    assert result.stderr.splitlines()[2] == (
        f"next: import tritune, and put `{line}` below the last assignment to `wrapped` "
        "(assigned.py:6)"
    )
    assert (
        "# `wrapped` is tuned, and runs what is locked, with two lines more in\n"
        "# assigned.py: `import tritune`, and below all else\n"
        f"#     {line}\n"
        "# with what the launch passes now for the default, which is a guess.\n"
    ) in Path("wrapped_problem.py").read_text(encoding="utf-8")
    # The line makes a kernel of it.
    code = ASSIGNED.replace("import triton\n", "import triton\nimport tritune\n")
    Path("assigned.py").write_text(f"{code}{line}\n", encoding="utf-8")
    assert run("init", "assigned.py:wrapped", "--force").stderr.splitlines()[2] == (
        "next: fill in what is marked FILL IN in sweeps/wrapped.yaml and wrapped_problem.py"
    )


HELPERS = """

@triton.jit
def swizzled(pid, n):
    return pid % n, pid // n


@triton.jit
def larger(x, y):
    return tl.maximum(x, y)


@triton.jit
def ends_early(x, n):
    if n == 0:
        return
    tl.store(x, n)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("swizzled", "`swizzled` returns a value, so it is what kernels call, and nothing"),
        ("larger", "`larger` returns a value, so it is what kernels call, and nothing"),
        ("NUMBER", "`NUMBER` is an int, not a Triton kernel"),
        ("none", "it has no `none`"),
    ],
)
def test_what_only_kernels_can_call_is_no_kernel_and_is_not_offered(name, said):
    Path("ops.py").write_text(OPS + HELPERS, encoding="utf-8")

    result = run("init", f"ops.py:{name}")

    assert result.exit_code == 2
    launches = " launches it" if said.endswith("nothing") else ""
    assert " ".join(result.stderr.split()) == (
        f"error: {Path.cwd()}/ops.py: {said}{launches} "
        "hint: its Triton kernels: `tuned`, `bare`, `ends_early`"
    )


def test_a_kernel_that_returns_early_is_one():
    Path("ops.py").write_text(OPS + HELPERS, encoding="utf-8")

    assert run("init", "ops.py:ends_early").exit_code == 0


SCRIPT = 'hint: put what a script does under `if __name__ == "__main__":`'


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(0)", f"{{folder}}/ends.py:1: sys.exit(0) at import {SCRIPT}"),
        ("import os\nos._exit(0)", "`ends.py:k` cannot be loaded: exited with code 0"),
        (
            'import sys\nif __name__ == "__main__":\n    sys.exit()',
            "{folder}/ends.py: it has no `k` hint: it has no Triton kernels",
        ),
    ],
)
def test_a_module_that_ends_the_process_is_said_to_do_so(code, said):
    Path("ends.py").write_text(code, encoding="utf-8")

    result = run("init", "ends.py:k")

    assert result.exit_code == 2
    assert " ".join(result.stderr.split()) == f"error: {said.format(folder=Path.cwd())}"


def test_a_path_is_relative_to_where_one_stands():
    result = run("init", "nowhere/ops.py:k")

    assert " ".join(result.stderr.split()) == (
        f"error: {Path.cwd()}/nowhere/ops.py: no such file "
        "hint: a path is relative to the current folder"
    )


FLAGS = """
import triton
import triton.language as tl


@triton.autotune([triton.Config({"B": 64})], key=["n", "EVEN", "MASKED", "SPLIT", "FAST"])
@triton.jit
def flags(
    x, n, B: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr, SPLIT: tl.constexpr,
    FAST: tl.constexpr = False,
):
    if not EVEN and n > 0:
        tl.store(x + tl.arange(0, B), 1.0 if MASKED else 0.0)
    if SPLIT:
        tl.store(x + n // SPLIT, 2.0)
"""


def test_constants_that_are_true_or_false_are_offered_so():
    Path("flagged.py").write_text(FLAGS, encoding="utf-8")

    assert run("init", "flagged.py:flags").exit_code == 0

    text = Path("sweeps/flags.yaml").read_text(encoding="utf-8")
    assert text[text.index("shapes:") :].splitlines() == [
        "shapes:",
        "  - n:  # FILL IN: one value, or [1, 64, 4096]",
        "    EVEN:  # FILL IN: one value, or [true, false]",
        "    MASKED:  # FILL IN: one value, or [true, false]",
        "    SPLIT:  # FILL IN: one value, or [1, 64, 4096]",
        "    FAST:  # FILL IN: one value, or [true, false]",
        "    dtype: float16  # or a list: [float16, bfloat16]",
        "",
        "# Small problems, with sizes that no block divides: Triton's interpreter runs them.",
        "# smoke:",
        "#   - {n: 100, EVEN: true, MASKED: true, SPLIT: 100, FAST: true, dtype: float16}",
    ]


def test_a_kernel_under_two_names_is_called_by_the_one_that_is_given():
    Path("ops.py").write_text(f"{OPS}\n\nalias = bare\n", encoding="utf-8")

    assert run("init", "ops.py:alias").stderr.startswith("wrote sweeps/alias.yaml\n")


def test_a_kernel_with_a_problem_function_needs_no_skeleton():
    Path("ops.py").write_text(DECORATED + PROBLEM, encoding="utf-8")

    result = run("init", "ops.py:tuned", "--output", "here")

    assert result.stderr == (
        "wrote here/tuned.yaml\n"
        "next: fill in what is marked FILL IN in here/tuned.yaml\n"
        "next: tritune show space here/tuned.yaml\n"
    )
    text = filled("here/tuned.yaml")
    assert "problem:" not in text
    assert "    # left to their defaults: scale\n" in text
    assert run("show", "space", "here/tuned.yaml", "--target", "H200").exit_code == 0


def test_the_gpu_of_this_machine_is_the_target(monkeypatch):
    chip = Target(name="H200", backend="cuda", arch=90, warp_size=32, sms=132, shared_bytes=1)
    monkeypatch.setattr(pipeline.starting, "device", lambda: chip)

    run("init", "ops.py:bare")

    assert "\ntargets: [H200]\n" in Path("sweeps/bare.yaml").read_text(encoding="utf-8")


def test_what_force_would_replace_is_named_with_the_problem_module():
    run("init", "ops.py:bare")
    paths = [Path("sweeps/bare.yaml"), Path("bare_problem.py")]
    for path in paths:
        path.write_text("mine\n", encoding="utf-8")

    refused = run("init", "ops.py:bare")
    kept = [path.read_text(encoding="utf-8") for path in paths]
    forced = run("init", "ops.py:bare", "--force")

    assert (refused.exit_code, refused.stderr) == (
        2,
        (
            "error: sweeps/bare.yaml: it is there already, and nothing was written\n\n"
            "hint: --force replaces both it and bare_problem.py\n"
        ),
    )
    assert kept == ["mine\n", "mine\n"]
    assert forced.exit_code == 0
    assert "mine\n" not in [path.read_text(encoding="utf-8") for path in paths]


def test_a_sweep_file_that_is_there_alone_is_replaced_only_by_force():
    Path("sweeps").mkdir()
    Path("sweeps/bare.yaml").write_text("mine\n", encoding="utf-8")

    refused = run("init", "ops.py:bare")

    assert (refused.exit_code, refused.stderr) == (
        2,
        (
            "error: sweeps/bare.yaml: it is there already, and nothing was written\n\n"
            "hint: --force replaces it\n"
        ),
    )
    assert not Path("bare_problem.py").exists()
    assert run("init", "ops.py:bare", "--force").exit_code == 0


def test_a_problem_module_that_is_there_alone_is_kept_and_its_sweep_file_written():
    Path("bare_problem.py").write_text("mine\n", encoding="utf-8")

    result = run("init", "ops.py:bare")

    line = '@tritune.kernel(key=["n"], default=dict(BLOCK=64, num_warps=4))'
    assert (result.exit_code, result.stderr) == (
        0,
        (
            "wrote sweeps/bare.yaml\n"
            "kept bare_problem.py, which was there\n"
            f"next: import tritune, and put `{line}` above the decorators of `bare` (ops.py:20)\n"
            "next: fill in what is marked FILL IN in sweeps/bare.yaml\n"
            "next: tritune show space sweeps/bare.yaml\n"
        ),
    )
    assert Path("bare_problem.py").read_text(encoding="utf-8") == "mine\n"
    assert "\nproblem: ../bare_problem.py:bare_problem\n" in filled("sweeps/bare.yaml")


def test_a_sweep_file_of_another_kernel_of_this_name_is_told_to_be_its():
    Path("other").mkdir()
    Path("other/ops2.py").write_text(OPS, encoding="utf-8")
    run("init", "ops.py:bare")

    again = run("init", "ops.py:bare")
    refused = run("init", "other/ops2.py:bare")
    elsewhere = run("init", "other/ops2.py:bare", "--output", "other")

    assert (again.exit_code, again.stderr) == (
        2,
        (
            "error: sweeps/bare.yaml: it is there already, of `../ops.py:bare`, "
            "and nothing was written\n\nhint: --force replaces both it and bare_problem.py\n"
        ),
    )
    assert (refused.exit_code, refused.stderr) == (
        2,
        (
            "error: sweeps/bare.yaml: it is there already, of another kernel, `../ops.py:bare`, "
            "and nothing was written\n\n"
            "hint: --output DIR puts that of `other/ops2.py:bare` elsewhere, --force replaces it\n"
        ),
    )
    assert elsewhere.exit_code == 0
    assert Path("other/bare.yaml").is_file()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "ops.py:NUMBER",
            "ops.py: `NUMBER` is an int, not a Triton kernel\n\nhint: its Triton kernels: `tuned`,",
        ),
        ("ops.py", "ops.py: no name after the module\n\nhint: its Triton kernels: `tuned`, `bare`"),
        ("nothing:bare", "error: no module named `nothing`\n"),
    ],
)
def test_what_is_no_kernel_is_one_error_and_nothing_is_written(reference, said):
    result = run("init", reference)

    assert result.exit_code == 2
    assert said in result.stderr
    assert not Path("sweeps").exists()

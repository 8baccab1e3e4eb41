"""kernel_checks: (an op, problems, configs, a device) -> every result against its reference.

Knows nothing of pytest, so that the same checks run in Triton's interpreter, in a child process
of the tests, and on a GPU:

    export PYTHONPATH=.
    TRITON_INTERPRET=1 python tests/kernel_checks.py cpu [group ...]
    python tests/kernel_checks.py cuda [group ...]
    python tests/kernel_checks.py compile TARGET [group ...]    # the defaults; needs no GPU
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import tritune
from kernels import attention, layer_norm, matmul, softmax, splitk

ROOT = Path(__file__).parents[1]

F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32

TOLERANCE = {F16: 2e-3, BF16: 1.6e-2, F32: 2e-5}
"""Largest difference allowed, relative to the largest value of the reference."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Problems of one kernel, each run with its default config and with these."""

    kernel: object
    configs: tuple[Mapping[str, int], ...]
    problems: tuple[Mapping[str, object], ...]
    extra: tuple[Callable[[str], None], ...] = field(default=())
    dots: bool = False
    """Whether it calls `tl.dot`, which Triton's interpreter does in bf16 on the bit patterns."""

    def problems_on(self, device: str) -> Iterator[Mapping[str, object]]:
        for problem in self.problems:
            broken = self.dots and device == "cpu" and problem["dtype"] is BF16
            yield {**problem, "dtype": F16} if broken else problem


def axes(names: str, *rows: tuple[object, ...]) -> tuple[dict[str, object], ...]:
    return tuple(dict(zip(names.split(), row, strict=True)) for row in rows)


def configs(names: str, *rows: tuple[int, ...]) -> tuple[dict[str, int], ...]:
    return axes(names, *rows)


def difference(result: torch.Tensor, reference: torch.Tensor) -> float:
    """Largest difference over the reference's largest value; NaN when either holds one."""
    if result.shape != reference.shape:
        raise AssertionError(f"{tuple(result.shape)} is not {tuple(reference.shape)}")
    if result.numel() == 0:
        return 0.0
    wide = reference.double()
    return float((result.double() - wide).abs().max() / wide.abs().max().clamp_min(1e-30))


def compare(result: object, reference: object, dtype: torch.dtype, what: str) -> None:
    results = result if isinstance(result, tuple) else (result,)
    references = reference if isinstance(reference, tuple) else (reference,)
    for place, (got, wanted) in enumerate(zip(results, references, strict=True)):
        error = difference(got, wanted)
        # Not `error > tolerance`, which a NaN would pass.
        if not error <= TOLERANCE[dtype]:
            raise AssertionError(f"{what}: result {place} is off by {error:.3g}")


def run_problem(check: Check, problem: Mapping[str, object], device: str) -> int:
    """How many configs of one problem were right; raises at the first that is not."""
    torch.manual_seed(0)
    with torch.device(device):
        made = check.kernel.problem(**problem)
        reference = made.reference()
        for config in (check.kernel.default, *check.configs):
            with tritune.override(check.kernel, config):
                compare(made.run(), reference, problem["dtype"], f"{problem} {config}")
    return 1 + len(check.configs)


def operands_that_are_views(device: str) -> None:
    """Slices of wider matrices (one starts unaligned) and a transposed operand."""
    wide = torch.randn(70, 300, device=device).to(F16)
    deep = torch.randn(96, 130, device=device).to(F16)
    for a, b in (
        (wide[:, :96], deep[:, :64]),
        (wide[:, 3:99], deep[:, 1:66]),
        (wide[:, 8:104], torch.randn(40, 96, device=device).to(F16).T),
    ):
        reference = a.double() @ b.double()
        compare(matmul.matmul(a, b), reference, F16, f"matmul of views {tuple(b.shape)}")
        compare(splitk.splitk(a, b), reference, F16, f"splitk of views {tuple(b.shape)}")


def padding_never_reaches_a_result(device: str) -> None:
    """Infinities beyond a view's columns would turn zeros of a padded operand into NaN."""
    wide = torch.full((40, 128), math.inf, device=device, dtype=F16)
    wide[:, :72] = torch.randn(40, 72, device=device).to(F16)
    b = torch.randn(72, 48, device=device).to(F16)
    a = wide[:, :72]
    compare(matmul.matmul(a, b), a.double() @ b.double(), F16, "matmul beside infinities")


def empty_matrices(device: str) -> None:
    def empty(*sizes: int) -> torch.Tensor:
        return torch.empty(*sizes, dtype=F16, device=device)

    for op in (matmul.matmul, splitk.splitk):
        compare(op(empty(0, 32), empty(32, 16)), empty(0, 16), F16, "no rows")
        compare(op(empty(16, 32), empty(32, 0)), empty(16, 0), F16, "no columns")
        nothing = torch.zeros(16, 16, device=device)
        compare(op(empty(16, 0), empty(0, 16)), nothing, F16, "no depth")


def masked_rows(device: str) -> None:
    """Minus infinity where a logit is masked, as samplers do; all of a row gives NaN."""
    x = torch.randn(3, 100, device=device)
    x[0, 1:] = -math.inf
    x[1, :60] = -math.inf
    for block in (64, 128):
        config = {"BLOCK": block, "ROWS": 2, "STAGES": 1, "num_warps": 4}
        with tritune.override(softmax.softmax_kernel, config):
            compare(softmax.softmax(x), torch.softmax(x.double(), dim=1), F32, f"BLOCK={block}")
            alone = softmax.softmax(torch.full((1, 100), -math.inf, device=device))
        assert alone.isnan().all(), "a row of minus infinities has no softmax"


def empty_rows(device: str) -> None:
    none = torch.empty(0, 7, dtype=F16, device=device)
    weight = torch.ones(7, dtype=F16, device=device)
    assert softmax.softmax(none).shape == (0, 7)
    assert layer_norm.layer_norm(none, weight, weight).shape == (0, 7)


def gradients(device: str) -> None:
    """The op under autograd, against torch's own in double precision."""
    sizes = (2, 5, 96)
    x, dy = torch.randn(sizes, device=device), torch.randn(sizes, device=device)
    weight, bias = torch.randn(96, device=device), torch.randn(96, device=device)
    ours = [t.clone().requires_grad_() for t in (x, weight, bias)]
    theirs = [t.double().requires_grad_() for t in (x, weight, bias)]
    y = layer_norm.layer_norm(*ours)
    wanted = torch.nn.functional.layer_norm(theirs[0], (96,), theirs[1], theirs[2])
    y.backward(dy)
    wanted.backward(dy.double())
    compare(y.detach(), wanted.detach(), F32, "layer_norm under autograd")
    for mine, other in zip(ours, theirs, strict=True):
        compare(mine.grad, other.grad, F32, "a gradient of layer_norm")


def no_queries(device: str) -> None:
    none = torch.empty(1, 2, 0, 64, dtype=F16, device=device)
    assert attention.attention(none, none, none, causal=True).shape == none.shape


CHECKS = {
    "matmul": Check(
        kernel=matmul.matmul_kernel,
        dots=True,
        configs=configs(
            "BLOCK_M BLOCK_N BLOCK_K GROUP_M num_warps num_stages",
            (16, 32, 64, 8, 4, 3),
            (128, 64, 64, 2, 4, 3),
            (32, 128, 128, 1, 4, 2),
        ),
        problems=axes(
            "M N K dtype",
            (64, 128, 64, F16),
            (130, 200, 96, BF16),
            (1, 1, 1, F16),
            (65, 127, 100, F16),  # B unaligned
            (33, 64, 99, F16),  # A unaligned
            (50, 95, 73, BF16),  # both
        ),
        extra=(operands_that_are_views, padding_never_reaches_a_result, empty_matrices),
    ),
    "splitk": Check(
        kernel=splitk.splitk_kernel,
        dots=True,
        configs=configs(
            "BLOCK_M BLOCK_N BLOCK_K SPLIT_K num_warps num_stages",
            (16, 64, 64, 1, 4, 3),
            (32, 32, 32, 2, 4, 3),
            (64, 128, 128, 16, 4, 2),
        ),
        problems=axes(
            "M N K dtype",
            (1, 64, 512, F16),
            (17, 96, 200, BF16),
            (64, 64, 128, F16),
            (3, 33, 77, F16),
            (1, 1, 1, F16),
        ),
    ),
    "softmax": Check(
        kernel=softmax.softmax_kernel,
        configs=configs(
            "BLOCK ROWS STAGES num_warps", (64, 1, 3, 4), (128, 4, 2, 4), (1024, 2, 1, 8)
        ),
        problems=axes(
            "rows n dtype",
            (4, 256, F16),
            (5, 1000, F32),
            (3, 77, BF16),
            (2, 1, F32),
            (1, 4099, F16),
        ),
        extra=(masked_rows, empty_rows),
    ),
    "layer_norm_forward": Check(
        kernel=layer_norm.layer_norm_forward_kernel,
        configs=configs("BLOCK ROWS num_warps", (64, 1, 4), (128, 4, 4), (1024, 2, 8)),
        problems=axes(
            "rows n dtype",
            (4, 256, F16),
            (5, 1000, F32),
            (3, 77, BF16),
            (2, 1, F32),
        ),
    ),
    "layer_norm_backward": Check(
        kernel=layer_norm.layer_norm_backward_kernel,
        configs=configs(
            "BLOCK ROWS STAGES num_warps", (64, 1, 1, 4), (128, 4, 2, 4), (1024, 32, 3, 8)
        ),
        problems=axes(
            "rows n dtype",
            (4, 256, F16),
            (5, 1000, F32),
            (3, 77, BF16),
            (2, 1, F32),
        ),
        extra=(gradients,),
    ),
    "attention": Check(
        kernel=attention.attention_kernel,
        dots=True,
        configs=configs(
            "BLOCK_M BLOCK_N num_warps num_stages",
            (32, 32, 4, 3),
            (128, 64, 8, 3),
            (32, 64, 4, 2),
        ),
        problems=axes(
            "batch heads kv_heads S head_dim causal dtype",
            (1, 2, 2, 128, 64, False, F16),
            (1, 2, 2, 128, 64, True, F16),
            (2, 4, 2, 100, 64, True, BF16),
            (1, 1, 1, 77, 128, False, BF16),
            (1, 1, 1, 1, 64, True, F16),
        ),
        extra=(no_queries,),
    ),
}


def run(group: str, device: str) -> int:
    """How many results of a group were right; raises at the first that is not."""
    check = CHECKS[group]
    right = sum(run_problem(check, problem, device) for problem in check.problems_on(device))
    for function in check.extra:
        function(device)
    return right + len(check.extra)


def compile_default(group: str, target: str) -> object:
    """The default config on the first problem of the sweep file, compiled for a target."""
    # Only here, so that the checks on a GPU need no more than torch and triton.
    from tritune.device import lowering, targets
    from tritune.model import Candidate, Config
    from tritune.spec import read_sweep

    sweep = read_sweep(ROOT / "sweeps" / f"{group}.yaml")
    folder = os.environ.get("TRITON_CACHE_DIR", tempfile.gettempdir())
    session = lowering.open_session(sweep.kernel, sweep.problem, targets.find(target), folder)
    default = Config.of(session.loaded.kernel.default)
    name = session.loaded.kernel.name
    candidate = Candidate(kernel=name, problem=sweep.problems[0], config=default)
    return lowering.compile_(session, candidate, "")


def main(device: str, words: Sequence[str]) -> None:
    if device == "compile":
        target, *groups = words
        for group in groups or CHECKS:
            made = compile_default(group, target)
            say(f"{group}: {made.shared_bytes} bytes shared, {made.stack_bytes} of stack")
    else:
        for group in words or CHECKS:
            say(f"{group}: {run(group, device)} right")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""device.study: an op on a problem -> what it writes, by comparison.

What is found decides what is put back before a sample, and who shares an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tritune import verify
from tritune.contract import quoted
from tritune.device import written
from tritune.device.bench import Bench, guarded, run_once, synchronize
from tritune.device.written import Before, Written, same_bits, watching
from tritune.intercept import Captured
from tritune.model import Candidate, Config, Rejected


def study(bench: Bench, candidate: Candidate) -> Rejected | str:
    """Find out what the op writes, by comparison: nothing that a kernel declares is trusted.

    What there is to say of it, in a line; mostly nothing.
    """
    return guarded(candidate, lambda: _study(bench, candidate.config))


def _study(bench: Bench, config: Config) -> str:
    before: Before = []
    with watching(before):
        outputs, captured = run_once(bench, config)
    changes = written.changed(before, captured)
    own = [one for one in changes if one.launch >= 0]
    results = [one.tensor.clone() for one in own]
    bench.written = frozenset((one.launch, one.place) for one in own)
    bench.adds_to = _changed_again(bench, captured, own)
    bench.repeatable = not bench.adds_to and not any(map(_declares, captured))
    bench.pristine = written.undoing(changes)
    held: Before = []
    with watching(held, contents=False):
        outputs_again, again = run_once(bench, config)
    # What the second run has in its hands too is the problem's own; the rest is made by the op.
    bench.own = frozenset(written.pointers(held) & written.pointers(before))
    bench.pristine = [(t, content) for t, content in bench.pristine if t.data_ptr() in bench.own]
    bench.outputs = {
        one.place: one.tensor
        for one in own
        if one.tensor.data_ptr() not in bench.own and isinstance(one.place, int)
    }
    bench.unsteady = _unsteady(again, own, results)
    hidden = _hidden(held, outputs, outputs_again)
    bench.pristine += _overwritten(bench, config, hidden)
    if not bench.unsteady:
        return ""
    return (
        f"two launches on identical inputs differ in {quoted(bench.unsteady)}, "
        "so no digest of its bits is kept"
    )


def _hidden(held: Before, first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Results that the op returns in the problem's own tensors, and that no launch shows.

    Kernels write to such ones by a table of pointers. Integers may be such a table.
    """
    seen = {t.untyped_storage().data_ptr() for _, found in held for _, t, _ in found}
    return [
        two
        for one, two in zip(first, second, strict=False)
        if one.data_ptr() == two.data_ptr()
        and two.untyped_storage().data_ptr() not in seen
        and (two.is_floating_point() or two.is_complex())
    ]


def _overwritten(bench: Bench, config: Config, hidden: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Those of them that the op sets whatever they held, with a poison to put into them."""
    if not hidden:
        return []
    results = [tensor.clone() for tensor in hidden]
    poisons = [verify.poison(result.clone()) for result in results]
    written.put(list(zip(hidden, poisons, strict=True)))
    run_once(bench, config)
    found: list[tuple[Any, Any]] = []
    for tensor, result, poison in zip(hidden, results, poisons, strict=True):
        difference = verify.difference((tensor,), (result,))
        if difference.error <= difference.tolerance:
            found.append((tensor, poison))
        else:
            written.put([(tensor, result)])
    return found


def _declares(one: Captured) -> bool:
    """Whether its author says that a launch cannot be repeated as it is."""
    named = ("reset_to_zero", "restore_value")
    return any(getattr(one.kernel, name, ()) for name in named)


def _unsteady(
    again: Sequence[Captured], own: Sequence[Written], results: Sequence[Any]
) -> tuple[str, ...]:
    """Arguments that a second run on the same inputs left with other bits."""
    now = {
        (number, place): tensor
        for number, one in enumerate(again)
        for place, tensor in written.tensors(one)
    }
    differ = [
        one.name
        for one, result in zip(own, results, strict=True)
        if (other := now.get((one.launch, one.place))) is not None
        and other.shape == result.shape
        and not same_bits(other, result)
    ]
    return tuple(dict.fromkeys(differ))


def _changed_again(
    bench: Bench, captured: Sequence[Captured], own: Sequence[Written]
) -> tuple[str, ...]:
    """Arguments that a launch over its own results changes: it accumulates, or keeps a state."""
    if not own:  # what it writes is behind pointers, and may be gone with the op
        return ()
    after = [one.tensor.clone() for one in own]
    for one in captured:
        one.launch()
    synchronize(bench)
    pairs = zip(own, after, strict=True)
    return tuple(dict.fromkeys(one.name for one, a in pairs if not same_bits(one.tensor, a)))

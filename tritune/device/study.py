"""device.study: an op on a problem -> what it writes, by comparison.

Nothing that a kernel declares is trusted: every tensor of every launch is compared with itself
from before. What is found decides what is put back before a sample, and who shares an output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tritune.contract import quoted
from tritune.device.bench import Bench, guarded, run_once, synchronize
from tritune.intercept import Captured
from tritune.model import Candidate, Config, Rejected


def study(bench: Bench, candidate: Candidate) -> Rejected | str:
    """Find out what the op writes, by comparison: nothing that a kernel declares is trusted.

    What there is to say of it, in a line; mostly nothing.
    """
    return guarded(candidate, lambda: _study(bench, candidate.config))


@dataclass(frozen=True, slots=True)
class _Written:
    """One tensor that a launch changed, with its content before."""

    launch: int
    """Its number among those of the kernel under trial; -1 for one of another kernel."""
    place: int | str
    name: str
    tensor: Any
    content: Any


def _study(bench: Bench, config: Config) -> str:
    before: list[tuple[Captured, list[tuple[int | str, Any, Any]]]] = []
    with watching(before):
        _, captured = run_once(bench, config)
    numbers = {id(one): number for number, one in enumerate(captured)}
    changed = [
        _Written(numbers.get(id(one), -1), place, _name(one, place), tensor, content)
        for one, found in before
        for place, tensor, content in found
        if not same_bits(tensor, content)
    ]
    written = [one for one in changed if one.launch >= 0]
    results = [one.tensor.clone() for one in written]
    bench.writes = bool(written)
    bench.adds_to = _changed_again(bench, captured, written)
    bench.repeatable = not bench.adds_to and not any(map(_declares, captured))
    bench.pristine = [(one.tensor, one.content) for one in changed]
    held: list[tuple[Captured, list[tuple[int | str, Any, Any]]]] = []
    with watching(held, contents=False):
        _, again = run_once(bench, config)
    # What the second run has in its hands too is the problem's own; the rest is made by the op.
    old = {tensor.data_ptr() for _, found in held for _, tensor, _ in found}
    bench.pristine = [(t, content) for t, content in bench.pristine if t.data_ptr() in old]
    bench.outputs = {
        one.place: one.tensor
        for one in written
        if one.tensor.data_ptr() not in old and isinstance(one.place, int)
    }
    bench.unsteady = _unsteady(again, written, results)
    if not bench.unsteady:
        return ""
    return (
        f"two launches on identical inputs differ in {quoted(bench.unsteady)}, "
        "so no digest of its bits is kept"
    )


def _name(one: Captured, place: int | str) -> str:
    return place if isinstance(place, str) else str(one.kernel.arg_names[place])


def _declares(one: Captured) -> bool:
    """Whether its author says that a launch cannot be repeated as it is."""
    named = ("reset_to_zero", "restore_value")
    return any(getattr(one.kernel, name, ()) for name in named)


def _unsteady(
    again: Sequence[Captured], written: Sequence[_Written], results: Sequence[Any]
) -> tuple[str, ...]:
    """Arguments that a second run on the same inputs left with other bits."""
    now = {
        (number, place): tensor
        for number, one in enumerate(again)
        for place, tensor in _tensors(one)
    }
    differ = [
        one.name
        for one, result in zip(written, results, strict=True)
        if (other := now.get((one.launch, one.place))) is not None
        and other.shape == result.shape
        and not same_bits(other, result)
    ]
    return tuple(dict.fromkeys(differ))


def watching(before: list[Any], *, contents: bool = True) -> Any:
    """A context in which every launch first notes its tensors in *before*, with their content."""
    from unittest import mock

    launch = Captured.launch

    def noted(self: Captured) -> None:
        found = [(place, t, t.clone() if contents else None) for place, t in _tensors(self)]
        before.append((self, found))
        launch(self)

    return mock.patch.object(Captured, "launch", noted)


def _tensors(one: Captured) -> list[tuple[int | str, Any]]:
    """The tensors of a launch with their places, those in tuples too; each view once.

    Of two views of one storage both count: a smaller one shows less of what is written.
    """
    seen: set[tuple[object, ...]] = set()
    found: list[tuple[int | str, Any]] = []
    places: list[tuple[int | str, Any]] = [*enumerate(one.args), *one.kwargs.items()]
    for place, arg in places:
        for at, tensor in _within(one, place, arg):
            view = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            if view not in seen:
                seen.add(view)
                found.append((at, tensor))
    return found


def _within(one: Captured, place: int | str, arg: Any) -> Iterator[tuple[int | str, Any]]:
    import torch

    if isinstance(arg, tuple):
        for at, item in enumerate(arg):
            yield from _within(one, f"{_name(one, place)}[{at}]", item)
        return
    tensor = getattr(arg, "base", arg)
    if isinstance(tensor, torch.Tensor):
        yield place, tensor


def same_bits(a: Any, b: Any) -> bool:
    import torch

    if a.numel() == 0:
        return True
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(a, b))


def _changed_again(
    bench: Bench, captured: Sequence[Captured], written: Sequence[_Written]
) -> tuple[str, ...]:
    """Arguments that a launch over its own results changes: it accumulates, or keeps a state."""
    after = [one.tensor.clone() for one in written]
    for one in captured:
        one.launch()
    synchronize(bench)
    pairs = zip(written, after, strict=True)
    return tuple(dict.fromkeys(one.name for one, a in pairs if not same_bits(one.tensor, a)))

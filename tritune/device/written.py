"""device.written: the launches of an op -> the tensors that they change, by comparison.

Nothing that a kernel declares is trusted, and what one config writes another one may not: each
is compared with itself from before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tritune.intercept import Captured

Before = list[tuple[Captured, list[tuple[int | str, Any, Any]]]]
"""Of each launch, in order: the places of its tensors, these, and their content before it."""


@dataclass(frozen=True, slots=True)
class Written:
    """One tensor that a launch changed, with its content before."""

    launch: int
    """Its number among those of the kernel under trial; -1 for one of another kernel."""
    place: int | str
    name: str
    tensor: Any
    content: Any


def watching(before: Before, *, contents: bool = True) -> AbstractContextManager[Any]:
    """A context in which every launch first notes its tensors in *before*, with their content."""
    launch = Captured.launch

    def noted(self: Captured) -> None:
        found = [(place, t, t.clone() if contents else None) for place, t in tensors(self)]
        before.append((self, found))
        launch(self)

    return mock.patch.object(Captured, "launch", noted)


def changed(before: Before, captured: Sequence[Captured] = ()) -> list[Written]:
    """What is other than it was; *captured* are the launches of the kernel under trial."""
    numbers = {id(one): number for number, one in enumerate(captured)}
    return [
        Written(numbers.get(id(one), -1), place, _name(one, place), tensor, content)
        for one, found in before
        for place, tensor, content in found
        if not same_bits(tensor, content)
    ]


def undoing(written: Sequence[Written]) -> list[tuple[Any, Any]]:
    """Tensors and what to give them, in order: the content before the first change comes last."""
    return [(one.tensor, one.content) for one in reversed(written)]


def put(contents: Sequence[tuple[Any, Any]]) -> None:
    """Give each tensor its content, as a kernel would: autograd neither forbids nor notes it."""
    import torch

    with torch.inference_mode():
        for tensor, content in contents:
            tensor.data.copy_(content)


def beyond(
    known: Sequence[tuple[Any, Any]], changes: Sequence[Written], own: frozenset[int]
) -> list[tuple[Any, Any]]:
    """What of the problem's *own* tensors changed and is not *known*, to be put back before that.

    It was compared with the midst of a run, in which the known may have been changed already.
    """
    views = {view(tensor) for tensor, _ in known}
    found = [(t, content) for t, content in undoing(changes) if t.data_ptr() in own]
    return [(t, content) for t, content in found if view(t) not in views]


def pointers(before: Before) -> set[int]:
    return {tensor.data_ptr() for _, found in before for _, tensor, _ in found}


def tensors(one: Captured) -> list[tuple[int | str, Any]]:
    """The tensors of a launch with their places, those in tuples too; each view once.

    Of two views of one storage both count: a smaller one shows less of what is written.
    """
    seen: set[tuple[object, ...]] = set()
    found: list[tuple[int | str, Any]] = []
    places: list[tuple[int | str, Any]] = [*enumerate(one.args), *one.kwargs.items()]
    for place, arg in places:
        for at, tensor in _within(one, place, arg):
            if view(tensor) not in seen:
                seen.add(view(tensor))
                found.append((at, tensor))
    return found


def view(tensor: Any) -> tuple[object, ...]:
    """What makes two tensors the same part of the same memory."""
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def same_bits(a: Any, b: Any) -> bool:
    import torch

    if a.numel() == 0:
        return True
    a, b = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(a, b))


def _name(one: Captured, place: int | str) -> str:
    return place if isinstance(place, str) else str(one.kernel.arg_names[place])


def _within(one: Captured, place: int | str, arg: Any) -> Iterator[tuple[int | str, Any]]:
    import torch

    if isinstance(arg, tuple):
        for at, item in enumerate(arg):
            yield from _within(one, f"{_name(one, place)}[{at}]", item)
        return
    tensor = getattr(arg, "base", arg)
    if isinstance(tensor, torch.Tensor):
        yield place, tensor

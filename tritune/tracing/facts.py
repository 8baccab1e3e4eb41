"""tracing.facts: a launch's arguments -> what JSON holds of them, enough to make such a launch.

No tensor is kept and nothing waits for the GPU. What is in a tensor of integers decides whether
a launch is valid at all (indices, offsets of sequences), so a short one is copied to the host
while the GPU goes on, and read when it has arrived (`Arriving`).
"""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tritune import keys

VALUES = 256
"""The longest tensor of integers that is written down whole; of longer ones, the range."""
READ = 1 << 20
"""The longest one that is read for its range."""
_INTEGERS = frozenset({"int16", "int32", "int64"})
_PLAIN = (bool, int, str, type(None))

Fact = dict[str, Any]


class Facts:
    """The arguments of one launch; tensors that share a storage say so."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self.tensors: list[tuple[Fact, Any]] = []
        """Those whose content decides what a launch does."""

    def of(self, value: Any) -> Fact:
        """One argument."""
        value = value.value if _is_constexpr(value) else value
        if isinstance(value, _PLAIN):
            return {"is": "value", "value": value}
        if isinstance(value, float):
            return _number(value)
        if type(value) is tuple:
            return {"is": "tuple", "items": [self.of(item) for item in value]}
        if hasattr(value, "data_ptr") and hasattr(value, "stride"):
            return self._tensor(value)
        if keys.is_tensor(value) and hasattr(value, "block_shape"):
            return self._descriptor(value)
        return _named(value)

    def _tensor(self, tensor: Any) -> Fact:
        dtype = str(tensor.dtype).removeprefix("torch.")
        storage, pointer = tensor.untyped_storage(), tensor.data_ptr()
        place, size = storage.data_ptr(), tensor.element_size()
        found: Fact = {
            "is": "tensor",
            "dtype": dtype,
            "shape": list(map(int, tensor.shape)),
            "stride": list(map(int, tensor.stride())),
            "storage": self._storages.setdefault(place, len(self._storages)),
            "offset": (pointer - place) // size,
            "align": pointer % keys.ALIGNMENT // size,
            "room": (place + storage.nbytes() - pointer) // size,
        }
        if dtype in _INTEGERS and 0 < tensor.numel() <= READ:
            self.tensors.append((found, tensor))
        return found

    def _descriptor(self, value: Any) -> Fact:
        return {
            "is": "descriptor",
            "base": self.of(value.base),
            "shape": list(map(int, value.shape)),
            "stride": list(map(int, value.strides)),
            "block": list(map(int, value.block_shape)),
        }


@contextlib.contextmanager
def unseen_by_modes() -> Iterator[None]:
    """No mode of the program's, as a default device is one, sees or changes what is done inside."""
    torch: Any = sys.modules["torch._C"]
    with torch.DisableTorchFunction(), torch._DisableTorchDispatch():  # noqa: SLF001
        yield


class Arriving:
    """Contents of tensors, on their way to the host."""

    def __init__(self, tensors: Sequence[tuple[Fact, Any]]) -> None:
        self._waits: list[tuple[Fact, str, Any, Any]] = []
        for fact, tensor in tensors:
            with contextlib.suppress(Exception):  # then it is not known, as of any other tensor
                self._send(fact, tensor)

    def _send(self, fact: Fact, tensor: Any) -> None:
        torch: Any = sys.modules["torch"]
        with torch.no_grad(), unseen_by_modes():
            known, what = tensor.detach(), "values"
            if known.numel() > VALUES or not known.is_contiguous():
                known, what = torch.stack(torch.aminmax(known)), "range"
            if not known.is_cuda:
                fact[what] = known.reshape(-1).tolist()
                return
            host = torch.empty(known.shape, dtype=known.dtype, device="cpu", pin_memory=True)
            host.copy_(known, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waits.append((fact, what, host, event))

    @property
    def is_on_its_way(self) -> bool:
        """Whether any is still to be read."""
        return bool(self._waits)

    def have_arrived(self) -> bool:
        """Whether all are known; then they stand in the facts."""
        for fact, what, host, event in self._waits:
            if what in fact:
                continue
            if not event.query():
                return False
            fact[what] = host.reshape(-1).tolist()
        return True


def grids(
    grid: Any, configs: Sequence[Mapping[str, Any]], named: Callable[[Any], dict[str, Any]]
) -> Fact:
    """The grid that each config launches on; *named* gives a config's launch its arguments.

    A callable is asked once a config, before the launch itself asks it.
    """
    if not callable(grid):
        return {"fixed": _sizes(grid)}
    found = []
    for config in configs:
        with contextlib.suppress(Exception):  # a config that its author never launches here
            meta = named(config)
            sizes = _sizes(grid(dict(meta)))
            found.append([{name: meta[name] for name in config if name in meta}, sizes])
    return {"table": found}


def _sizes(grid: Any) -> list[int]:
    return [int(size) for size in (grid if isinstance(grid, Sequence) else (grid,))]


def _is_constexpr(value: Any) -> bool:
    return type(value).__name__ == "constexpr" and hasattr(value, "value")


def _number(value: float) -> Fact:
    return {"is": "value", "value": value} if math.isfinite(value) else _text("float", str(value))


def _named(value: Any) -> Fact:
    kind = type(value)
    if kind.__name__ == "dtype":
        text = str(value)
        if not text.startswith("torch."):  # Triton's `bf16` is `tl.bfloat16`, `fp8e5` tl.float8e5
            text = "tl." + re.sub("^(b?)fp?(?=[0-9])", r"\1float", text)
        return _text("dtype", text)
    # In Triton's interpreter a jit function does not say its own.
    plain = value if hasattr(value, "__qualname__") else getattr(value, "fn", value)
    if callable(value) and "<" not in getattr(plain, "__qualname__", "<"):
        return _text("function", f"{module_of(plain)}:{plain.__qualname__}")
    return _text("other", kind.__name__)


def module_of(value: Any) -> str:
    """Its module; the program itself has another name where multiprocessing has spawned it."""
    name = str(value.__module__)
    return "__main__" if name == "__mp_main__" else name


def _text(kind: str, text: str) -> Fact:
    return {"is": kind, "text": text}

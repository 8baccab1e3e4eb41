"""device.fakes: a target -> a world with no GPU, in which an op for one runs up to its launches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tritune.device import light
from tritune.model import Target

COUNTED = 7
"""What memory that no kernel has written holds, where an op reads values."""


@contextlib.contextmanager
def world(target: Target, *, values: bool = False) -> Iterator[None]:
    """A world with no GPU in which an op for one runs up to its launches.

    Tensors are fake ones on the CPU (fake `cuda` tensors fail in slices and abort in autograd),
    or real ones where *values* says that the op reads what is in them.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return run(self, *args, grid=grid, warmup=True, **kwargs) if warmup else None

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(JITFunction, "run", compile_only))
        for name, answer in _cuda_answers(target).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        if not values:
            stack.enter_context(light.modes())
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            mode.cache_enabled = False  # for a few operations it costs more than it saves
            stack.enter_context(mode)
        stack.enter_context(_on_cpu(written=values))
        yield


@contextlib.contextmanager
def importing(target: Target) -> Iterator[None]:
    """A world in which a module that asks for the GPU at its import is told of *target*.

    Lists of configs may depend on the answer, so an import with no GPU is not to decide them.
    """
    with contextlib.ExitStack() as stack:
        for name, answer in _cuda_answers(target).items():
            stack.enter_context(mock.patch.object(torch_cuda(), name, answer))
        stack.enter_context(_on_cpu())
        yield


def torch_cuda() -> Any:
    import torch

    return torch.cuda


def _cuda_answers(target: Target) -> dict[str, Any]:
    capability = (target.arch // 10, target.arch % 10) if isinstance(target.arch, int) else (9, 4)
    properties = SimpleNamespace(
        name=(target.names or (target.name,))[0],
        multi_processor_count=target.sms,
        shared_memory_per_block_optin=target.shared_bytes,
        L2_cache_size=target.l2_bytes,
        warp_size=target.warp_size,
        major=capability[0],
        minor=capability[1],
    )

    class Device(torch_cuda().device):  # type: ignore[misc]
        """An op makes its tensors' device the current one; here these are on the CPU."""

        def __init__(self, device: Any) -> None:
            del device
            self.idx = 0

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    return {
        "device": Device,
        "set_device": lambda device: None,  # noqa: ARG005  # torch's own signature
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "synchronize": lambda device=None: None,  # noqa: ARG005  # torch's own signature
        "get_device_capability": lambda device=None: capability,  # noqa: ARG005
        "get_device_name": lambda device=None: properties.name,  # noqa: ARG005
        "get_device_properties": lambda device=None: properties,  # noqa: ARG005
    }


def _on_cpu(*, written: bool = False) -> Any:
    """A mode for the CPU; where *written*, what a kernel would have to fill is not left random.

    An op may read back how much a kernel counted, and no kernel runs here. One or a multiple of
    16 would be compiled in as such, zero would launch nothing.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    def cpu(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return "cpu" if isinstance(value, str) and value.split(":")[0] == "cuda" else value

    unwritten = (torch.empty, torch.empty_like, torch.Tensor.new_empty, torch.empty_strided)

    class OnCpu(TorchFunctionMode):  # type: ignore[misc]
        """Turns `cuda` into `cpu`, and says of every tensor that it is on a GPU."""

        def __torch_function__(  # torch's protocol
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if getattr(func, "__self__", None) is torch.Tensor.is_cuda:
                return True
            if func is torch.Tensor.cuda:
                return args[0]
            named = {name: cpu(value) for name, value in (kwargs or {}).items()}
            made = func(*(cpu(arg) for arg in args), **named)
            return made.fill_(COUNTED) if written and func in unwritten else made

    return OnCpu()


def reads_values() -> tuple[type[Exception], ...]:
    """What a fake tensor raises when an op asks what is in it."""
    from torch._subclasses import fake_tensor

    return (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)

"""inductor: what torch.compile asks a kernel in place of launching it -> its locked config.

Dynamo traces `early_config_prune`, so that function holds nothing but what it can trace: the
look-up itself is marked as one whose result is a constant, takes constants only, and gives
back the name under which the config is found again, because Dynamo guards on where a config
was read from.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from tritune import keys, switches
from tritune.contract import Contract
from tritune.errors import KernelError

Answer = Callable[[dict[str, Any]], Any]
"""The arguments of a call by name -> the live Config; None where nothing is locked."""

_kernels: dict[int, tuple[Answer, tuple[str, ...], tuple[str, ...], SimpleNamespace]] = {}
_listed: dict[int, tuple[Any, ...]] = {}
"""The configs of kernels that nobody decorated: theirs are told by their place in that list."""
_numbers = itertools.count()


class _Aligned:
    """A tensor as far as a key can know it while tracing; Inductor sees to alignment itself."""

    def __init__(self, dtype: object, dense: int, dimensions: int) -> None:
        self.dtype, self._dense = dtype, dense
        self.shape = (2,) * dimensions

    def stride(self) -> tuple[int, ...]:
        """Strides of which `keys.layout` says what it said of the tensor's own."""
        dense = len(self.shape) - 1 if self._dense == keys.LAST else self._dense
        return tuple(1 if at == dense else 2 for at in range(len(self.shape)))

    def data_ptr(self) -> int:
        return 0


def pruner(
    answer: Answer,
    contract: Contract,
    defaults: Mapping[str, Any],
    stock: Any = None,
) -> Callable[..., Any]:
    """An `early_config_prune` that leaves the locked config alone, and no benchmark to run.

    Where nothing is locked, it does what that of the *stock* autotuner does, and its performance
    model after it: of a kernel that is served torch.compile sees none, which would drop what is
    locked.
    """
    held = {} if stock is None else vars(stock)
    own, model, top_k = map(held.get, ("early_config_prune", "perf_model", "configs_top_k"))
    number, holder, kernel = next(_numbers), SimpleNamespace(), contract.function.name
    scalars, tensors, layout = contract.scalars, contract.tensors, contract.layout
    _kernels[number] = (answer, scalars, tensors, holder)
    if layout and stock is not None:
        _listed[number] = tuple(stock.configs)

    def early_config_prune(configs: Any, named: Any, **kwargs: Any) -> Any:
        bound = {**defaults, **named, **kwargs}
        # What only a config that a prune function makes will set is not there yet.
        given = [bound.get(name) for name in scalars]  # Dynamo traces no generator
        if _vary(given):
            if not layout:  # decorated: it is launched uncompiled, and served
                _break_graph()
            name = unserved(kernel)  # its graph stays whole
        else:
            like = [*given, *[bound[name] for name in tensors]]  # a key may name a tensor, too
            values = tuple([None if _is_tensor(one) else one for one in given])
            dtypes = tuple([one.dtype if _is_tensor(one) else None for one in like])
            dense = tuple([_dense(one) for one in like]) if layout else ()
            name = locked_name(number, values, dtypes, dense)
        if not name:
            # A list of its own, by which `adopt` knows what torch makes of it.
            left = list(configs if own is None else own(configs, named, **kwargs))
            return left if model is None else _foreseen(left, model, top_k, {**named, **kwargs})
        if name.isdigit():  # with what Dynamo has put into it: the results of heuristics
            return [configs[int(name)]]
        return [getattr(holder, name)]

    return early_config_prune


def _foreseen(configs: list[Any], model: Any, top_k: Any, named: dict[str, Any]) -> list[Any]:
    """What Triton's own pruning leaves by a performance model, in words that Dynamo traces."""
    most = max(1, int(len(configs) * top_k)) if isinstance(top_k, float) else top_k
    if len(configs) <= most:
        return configs
    expected = [(float(model(**named, **one.all_kwargs())), one) for one in configs]
    return [one for _, one in sorted(expected, key=itemgetter(0))[:most]]


def keep_out(*functions: Any) -> None:
    """Let torch.compile run these, and all that they call, as they are, wherever it breaks a graph.

    It traces whatever a function that it compiles calls, and what it makes of a look-up is an
    error of its own, or another config. Imports no torch: where nobody has, nothing is traced yet.
    """
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if hasattr(frames, "set_code_exec_strategy"):
        skip = frames._FrameAction.SKIP  # noqa: SLF001
        whole = frames._FrameExecStrategy(skip, skip)  # noqa: SLF001
        for function in functions:
            frames.set_code_exec_strategy(function.__code__, whole)


class Traced:
    """A kernel that torch.compile may ask for its configs."""

    @property
    def early_config_prune(self) -> Any:
        mend_sources()
        return vars(self)["early_config_prune"]

    @early_config_prune.setter
    def early_config_prune(self, value: Any) -> None:
        vars(self)["early_config_prune"] = value


def mend_sources() -> None:
    """Let Dynamo know where a kernel lies that it makes of another one; asked while it traces.

    Before torch 2.12 it forgets that where there are heuristics or the launch says `num_warps`, and
    then any prune function is an AssertionError, its author's as well as ours.
    """
    tracer = sys.modules.get("torch._higher_order_ops.triton_kernel_wrap")
    made: Any = getattr(tracer, "TritonHOPifier", None)
    if made is None or hasattr(made, "get_kernel_source"):  # nobody traces, or it is 2.12
        return
    _give_source()
    own = made.call_triton_kernel
    if own.__module__ == __name__:
        return

    def call_triton_kernel(self: Any, variable: Any, *rest: Any) -> Any:
        _give_source(variable)
        return own(self, variable, *rest)

    made.call_triton_kernel = call_triton_kernel


def _give_source(*without: Any) -> None:
    """What the callers trace, from the inside out, gets the source of the first that has one."""
    frame: Any = sys._getframe(1)  # noqa: SLF001
    traced = list(without)
    while frame is not None:
        if frame.f_code.co_name in {"call_triton_kernel", "call_run"}:
            traced.append(frame.f_locals.get("variable"))
            known = (getattr(traced[-1], name, None) for name in ("kernel_source", "source"))
            if source := next(filter(None, known), None):
                for one in filter(None, traced):
                    one.kernel_source = source
                return
        frame = frame.f_back


def forced(contract: Contract) -> KernelError:
    """What is traced stays compiled, and a forced config would outlive its `override`."""
    return KernelError(
        f"torch.compile traces `{contract.function.short}` inside `tritune.override`, "
        "which would be compiled in",
        where=contract.function.where,  # every frame on the way here is torch's
        hint="call the op uncompiled, or make it opaque with `tritune.op`",
    )


def _vary(values: list[Any]) -> bool:
    """Whether torch.compile traces with sizes that are no numbers, for which no key can be made."""
    shapes: Any = sys.modules.get("torch.fx.experimental.symbolic_shapes")
    if shapes is None:  # who asks is not torch.compile
        return False
    numbers = [one for one in values if isinstance(one, (int, float))]
    return not all([shapes.has_static_value(one) for one in numbers])  # noqa: C419  # no generator


def _break_graph() -> None:
    torch: Any = sys.modules["torch._dynamo"]
    torch.graph_break()


def unserved(kernel: str) -> str:
    """No name of a config; said once a kernel."""
    switches.count((kernel, "default"))
    switches.say_once(
        f"{kernel}: torch.compile traces it for sizes that vary, so there it runs as without "
        "tritune; with dynamic=False each size runs what is locked"
    )
    return ""


def _is_tensor(value: Any) -> bool:
    # Dynamo asks no attribute of a number that is none yet.
    return not isinstance(value, (int, float)) and hasattr(value, "data_ptr")


def _dense(value: Any) -> tuple[int, int]:
    """What a key says of a tensor's layout."""
    if not _is_tensor(value) or not hasattr(value, "stride"):
        return keys.LAST, 0
    return keys.layout(value.shape, value.stride()), len(value.shape)


def locked_name(
    number: int,
    values: tuple[Any, ...],
    dtypes: tuple[Any, ...],
    dense: tuple[tuple[int, int], ...] = (),
) -> str:
    """The attribute of the kernel's holder at which the config for these values is.

    A number is its place in the kernel's own list; empty where nothing is locked for them.
    """
    answer, scalars, tensors, holder = _kernels[number]
    layouts = dense or ((keys.LAST, 0),) * len(dtypes)
    stand_ins = {
        name: _Aligned(dtype, *layout)
        for name, dtype, layout in zip((*scalars, *tensors), dtypes, layouts, strict=True)
        if dtype is not None
    }
    plain = dict.fromkeys(tensors) | dict(zip(scalars, values, strict=True))
    live = answer(plain | stand_ins)
    if live is None:
        return ""
    for place, one in enumerate(_listed.get(number, ())):
        if one.all_kwargs() == live.all_kwargs():
            return str(place)
    for name, known in vars(holder).items():
        if known is live:
            return name
    name = f"config_{len(vars(holder))}"
    setattr(holder, name, live)
    return name


locked_name._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
unserved._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001
# what torch._dynamo.assume_constant_result does, with no import of torch

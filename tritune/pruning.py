"""pruning: an autotuner and a launch -> the configs that its author leaves for that launch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from triton.runtime.autotuner import Config as TritonConfig

from tritune import routing, tuned
from tritune.errors import line_of

Left = list[TritonConfig] | None
"""None where none is left out."""


class Pruning:
    """The prune function and the performance model of an autotuner, where it has them."""

    def __init__(self, stock: Any, arg_names: Sequence[str], notes: dict[str, None]) -> None:
        self._stock, self._arg_names, self._notes = stock, arg_names, notes
        self._prune = vars(stock).get("early_config_prune")
        self._model = vars(stock).get("perf_model")

    @property
    def is_there(self) -> bool:
        return self._prune is not None

    def kept(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> tuple[Left, str]:
        """What the prune function leaves, and what it raised; all where it fails, or leaves none.

        It gets the caller's split of arguments and a copy of the list, to change as it likes.
        """
        if self._prune is None:
            return None, ""
        named = dict(zip(self._arg_names, args, strict=False))
        try:
            kept = list(self._prune(self._copies(), named, grid=grid, warmup=False, **kwargs))
        except Exception as error:  # noqa: BLE001  # somebody else's code raises anything
            said = line_of(error)
            self._notes[f"its early_config_prune fails, so all configs are tried ({said})"] = None
            return None, said
        if not kept:
            self._notes["its early_config_prune leaves no config, so all are tried"] = None
        return kept or None, ""

    def foreseen(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], grid: Any) -> Left:
        """What the performance model leaves of these.

        How many it leaves is for Triton's own code to say, as versions of it count differently.
        """
        if self._model is None:
            return None
        kept = self.kept(args, kwargs, grid)[0] or self._copies()
        probe, named = copy.copy(self._stock), dict(zip(self._arg_names, args, strict=False))
        vars(probe).update(
            configs=self._copies(), nargs=named, early_config_prune=lambda *_, **__: kept
        )
        try:
            with routing.let_through(probe):
                left = list(probe.prune_configs({**kwargs, "grid": grid, "warmup": False}))
        except Exception as error:  # noqa: BLE001  # somebody else's code raises anything
            said = line_of(error)
            self._notes[f"its perf_model fails, so it leaves out none ({said})"] = None
            return None
        if not left:
            what = "its perf_model with its top_k leaves no config, so it is not obeyed"
            self._notes[what] = None
        return left or None

    def _copies(self) -> list[TritonConfig]:
        return [tuned.copied(live) for live in self._stock.configs]

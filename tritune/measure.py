"""measure: Compiled -> Measured | Rejected.

    screen -> Screened -> finals -> outcomes -> confirm, in a fresh process -> outcomes

Decides which candidate of one problem to sample next; a `Device` does the sampling, so the
same decisions are tested with no GPU. Does not know what wins: that is choosing's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tritune.device import Device
from tritune.model import Compiled, Config, Outcome, Timing
from tritune.race import confirm, finals
from tritune.screening import Screened, screen

__all__ = ["Screened", "confirm", "finals", "measure", "screen"]


def measure(
    device: Device,
    compiled: Sequence[Compiled],
    *,
    default: Config,
    incumbent: Config | None,
    timing: Timing,
    record: Callable[[Outcome], None],
    progress: Callable[[str], None],
) -> tuple[Outcome, ...]:
    """Verify, screen and race the candidates of one problem; one outcome each, in their order.

    An outcome is recorded when it was screened, and again when it was in the finals.
    """
    screened = screen(
        device,
        compiled,
        default=default,
        incumbent=incumbent,
        timing=timing,
        record=record,
        progress=progress,
    )
    return finals(
        device,
        screened,
        default=default,
        incumbent=incumbent,
        timing=timing,
        record=record,
        progress=progress,
    )

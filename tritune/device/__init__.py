"""device: the seam to the hardware. `Device` is all that the measuring stage knows of a GPU.

A GPU keeps this contract (`cuda`), and in the tests so do a fake and recorded samples, so that
every decision is tested with no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tritune.device.guards import Canary
from tritune.model import Compiled, Rejected, Target, Verified


class Device(Protocol):
    """One GPU, as the measuring stage sees it; a failing candidate is an answer, no exception."""

    @property
    def target(self) -> Target:
        """The product this device is, its facts as the driver reports them."""

    @property
    def triton(self) -> str:
        """The version of Triton that makes the binaries."""

    def verify(self, compiled: Compiled) -> Verified | Rejected:
        """Run a candidate once on poisoned outputs and compare it with the reference."""

    def sample(
        self, compiled: Sequence[Compiled], rounds: int, first: int = 0
    ) -> tuple[tuple[float, ...] | Rejected, ...]:
        """Time verified candidates of one problem, interleaved; microseconds.

        Answer `i` holds *rounds* samples of `compiled[i]`; sample `r` of all of them was taken in
        one round, number *first* + `r`, whose order is rotated by its number and, where that is
        odd, reversed. One candidate may be there twice.
        """

    def canary(self) -> Canary:
        """Do a fixed piece of work: how long it takes tells whether the GPU is disturbed."""

    def renew(self) -> None:
        """Go on in a process that this kernel was never in."""

    def close(self) -> None:
        """Give the GPU back."""

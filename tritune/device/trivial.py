"""device.trivial: the least that a toolchain must compile."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def trivial(out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201  # Triton's dialect
    """Store one number."""
    tl.store(out, 1.0)

"""device.warm: what every worker needs -> imported once, in the server that they are forked from.

Nothing here touches a GPU. Besides torch it is Triton, and the digest of its wheel that enters
every compile key: 0.4 s a process.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):
    import torch
    import triton
    from triton.runtime.cache import triton_key

    triton_key()
    __all__ = ["torch", "triton"]

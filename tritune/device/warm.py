"""device.warm: what every worker needs -> imported once, in the server that they are forked from.

Nothing here touches a GPU. Besides torch it is Triton, what its first launch imports, and the
digest of its wheel, which enters every compile key. Sixteen processes that import it side by side
take 4 s each on an H200's host.
"""

from __future__ import annotations

import contextlib
import warnings

# Torch's, at its import without numpy, which nothing needs but the interpreter; that says so.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

with contextlib.suppress(ImportError):
    import torch

with contextlib.suppress(ImportError):
    import numpy as np  # a problem is seeded there too

    _ = np.random

with contextlib.suppress(ImportError):
    import triton
    import triton.experimental.gluon
    from triton.runtime.cache import triton_key

    triton_key()

__all__ = ["np", "torch", "triton"]

"""device.warmer: what packages of kernels make torch import -> imported once, as `warm` does.

That is `torch._dynamo` and, for who compiles at import, `torch._inductor`: 4 s each on an H200's
host.
"""

from __future__ import annotations

import contextlib
import importlib

for name in ("torch._dynamo", "torch._inductor.compile_fx"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)

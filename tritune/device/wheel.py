"""device.wheel: this process -> what Triton's cache serves: its wheel, Python and environment.

All of it is in Triton's own compile keys; as a digest there, by name here.
"""

from __future__ import annotations

import hashlib
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution

from tritune.device.lowering import Session
from tritune.device.stages import gpu_target


def served(session: Session) -> tuple[tuple[str, str], ...]:
    """Name and value of everything that has to be equal where the binaries are used."""
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.compiler.compiler import make_backend

    target = session.target
    assembler = str(make_backend(gpu_target(target)).hash())
    version = re.search(r"V\d+\.\d+\.\d+", assembler)
    return (
        ("target", f"{target.backend}:{target.arch}"),
        ("Triton", str(triton.__version__)),
        ("Triton's wheel", _wheel()),
        ("Triton's code", _digest(_triton_key())),
        ("Python", ".".join(map(str, sys.version_info[:2]))),
        ("assembler", version[0] if version else _digest(assembler)),
        *sorted((str(n), str(v)) for n, v in get_cache_invalidating_env_vars().items()),
    )


def version() -> str:
    """Triton's version, with the knob of its environment that changes what it compiles."""
    import triton

    knobs = triton.knobs.language
    forced = getattr(knobs, "force_disable_fp_fusion", False)  # since 3.9
    fused = bool(knobs.default_fp_fusion) and not forced
    return f"{triton.__version__}{'' if fused else ' no-fp-fusion'}"


def _wheel() -> str:
    try:
        text = distribution("triton").read_text("WHEEL") or ""
    except PackageNotFoundError:  # built in place
        text = ""
    tags = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("Tag: ")]
    return " ".join(tags) or "none"


def _triton_key() -> str:
    try:
        from triton.runtime.cache import triton_key
    except ImportError:
        from triton.compiler.compiler import triton_key
    return str(triton_key())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]

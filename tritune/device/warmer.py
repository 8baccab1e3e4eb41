"""device.warmer: what packages of kernels make torch import -> imported once, as `warm` does.

That is torch's compiler, 6 s on an H200's host. Importing it counts GPUs, and once CUDA has been
asked, no fork may use it: so NVML is asked in its place. Where that is not enough, the server
starts over without.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys

MODULES = ("torch._dynamo", "torch._inductor.compile_fx")
COLD = "TRITUNE_COLD_SERVER"
"""Set once the server has started over."""
NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"


def warm() -> None:
    before = os.environ.get(NVML)
    os.environ[NVML] = "1"
    for name in MODULES:
        with contextlib.suppress(Exception):  # it is only ahead of who needs it, and is told then
            importlib.import_module(name)
    if before is None:
        del os.environ[NVML]
    else:
        os.environ[NVML] = before
    if _forks_are_spoilt():
        os.environ[COLD] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this very command, files and all


def _forks_are_spoilt() -> bool:
    import torch

    child = os.fork()
    if child == 0:
        os._exit(torch.cuda._is_in_bad_fork())  # noqa: SLF001  # nothing else tells
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


if COLD not in os.environ:
    warm()

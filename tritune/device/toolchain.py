"""device.toolchain: this machine's environment -> nothing, or the fault that stops every compile.

Triton passes over a tool that its variable names and that does not run, and uses its own in
silence: what a user set up and what compiled would be two things. Costs nothing where no
variable is set, and imports no Triton.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from tritune.errors import EnvironmentFaultError
from tritune.model import Target

TOOLS = {
    "TRITON_PTXAS_PATH": "ptxas",
    "TRITON_PTXAS_BLACKWELL_PATH": "ptxas",
    "TRITON_CUOBJDUMP_PATH": "cuobjdump",
    "TRITON_NVDISASM_PATH": "nvdisasm",
}
LIMIT_S = 30.0


def check(target: Target, *, launches: bool) -> None:
    """Refuse tools that Triton would pass over; to launch, it needs a C compiler as well.

    Raises:
        EnvironmentFaultError: naming the variable, the tool and its path.
    """
    if target.backend == "cuda":
        for variable, tool in TOOLS.items():
            path = os.environ.get(variable)
            if path and (fault := _fault(path)):
                raise EnvironmentFaultError(
                    f"{tool} at {path} {fault}",
                    where=variable,
                    hint=f"Triton would use its own {tool} instead and not say so: correct the "
                    "path, or unset the variable",
                )
    if launches and not c_compiler():
        named = os.environ.get("CC")
        why = f"CC is {named}, which is no program" if named else "CC is not set"
        raise EnvironmentFaultError(
            f"no C compiler: {why}" + ("" if named else ", and there is no gcc or clang"),
            hint="Triton builds the launcher of a kernel with one: "
            + ("correct CC, or unset it" if named else "install gcc or clang, or set CC"),
        )


def c_compiler() -> str | None:
    """What Triton would build its launchers with."""
    if named := os.environ.get("CC"):
        return shutil.which(named)
    return shutil.which("gcc") or shutil.which("clang")


def _fault(path: str) -> str:
    """Why Triton would pass over the tool at *path*; empty where it would not."""
    try:
        said = subprocess.run(  # noqa: S603  # the tool that the user named
            [path, "--version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except FileNotFoundError:
        return "does not exist"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({getattr(error, 'strerror', None) or type(error).__name__})"
    lines = said.stdout.strip().splitlines() or ["nothing"]
    if said.returncode:
        return f"does not tell its version: exit code {said.returncode}, {lines[-1][:100]}"
    if not re.search(r"release \d+\.\d+", said.stdout):
        return f"does not tell its version: {lines[-1][:100]}"
    return ""

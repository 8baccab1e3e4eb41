"""The server imports torch's compiler, and starts over where that spoils its forks."""

import os
import subprocess
import sys

import pytest

SERVER = """\
import os, sys, torch
torch.cuda._is_in_bad_fork = lambda: {spoilt}
from tritune.device import warmer
print(warmer.COLD in os.environ, "torch._dynamo" in sys.modules, os.environ.get(warmer.NVML))
"""


@pytest.mark.parametrize(
    ("spoilt", "said"), [(False, "False True None\n"), (True, "True False None\n")]
)
def test_a_server_whose_forks_are_spoilt_starts_over_without(tmp_path, spoilt, said):
    (tmp_path / "server.py").write_text(SERVER.format(spoilt=spoilt))

    done = subprocess.run(
        [sys.executable, tmp_path / "server.py"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == said

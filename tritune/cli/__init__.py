"""cli: a command line -> an exit code. Each command parses, calls, and renders.

0 done · 1 the answer is no · 2 the input is wrong · 3 it could not be answered ·
130 interrupted. Nothing heavier than click is imported until a command runs.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import click

from tritune.cli.root import Commands, Root

COMMANDS: Commands = {
    "init": "tritune.cli.init:init",
    "trace": "tritune.cli.trace:trace",
    "sweep": "tritune.cli.sweep:sweep",
    "show": "tritune.cli.show:show",
    "check": "tritune.cli.check:check",
    "diff": "tritune.cli.diff:diff",
    "compile": "tritune.cli.compile:compile_",
    "retime": "tritune.cli.retime:retime",
    "merge": "tritune.cli.merge:merge",
    "import": "tritune.cli.import_:import_",
    "export": "tritune.cli.export:export",
}


@click.group(cls=Root, commands_at=COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(package_name="tritune", message="%(prog)s %(version)s")
def tritune() -> None:
    """Tune Triton kernels once, lock the winners, and let production run them.

    \b
    Exit codes:
      0    done
      1    the answer is no: a problem has no valid config, an entry is stale
      2    the input is wrong
      3    it could not be answered: no such GPU, driver, disk, or a crash of tritune
      130  interrupted; nothing finished is lost
    """  # noqa: D301 - click's mark for lines that stay as they are


def main() -> None:
    """Run the command line of this process."""
    # Where one is closed (`>&-`) Python has None, and the next file opened would get its number.
    sys.stdout, sys.stderr = (
        stream or Path(os.devnull).open("w")  # noqa: SIM115 - to the end of the process
        for stream in (sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):
        # An ASCII locale has no µ: a question mark is better than a crash.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # A job that CI cancels is interrupted like any other: it says so and leaves nothing.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        tritune(prog_name="tritune")
    finally:
        # All that is left is to end processes and to remove their folder: a second Ctrl-C waits.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

"""show: the commands that only read."""

from __future__ import annotations

import click

from tritune.cli.root import Commands, Group

COMMANDS: Commands = {
    "lockfile": "tritune.cli.show_lockfile:lockfile",
    "space": "tritune.cli.show_space:space",
    "rejected": "tritune.cli.show_rejected:rejected",
    "device": "tritune.cli.show_device:device",
}


@click.group(cls=Group, commands_at=COMMANDS)
def show() -> None:
    """Show a lockfile, a space, rejected configs, or the GPU.

    Nothing is measured, compiled or locked by any of them.
    """

"""root: command names -> commands, imported only when called; exceptions -> exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from tritune.errors import ManyMistakesError, TrituneError

Commands = Mapping[str, str]
"""Name of a command -> `module:attribute` it is found at."""

NO = 1
UNANSWERED = 3
INTERRUPTED = 130
_FULL = {errno.ENOSPC, errno.EDQUOT}
_REFUSED = {errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES}
CLOSED_PIPE = 141
"""What a shell gives a program whose reader went away (`| head`): 128 + SIGPIPE."""


class Group(click.Group):
    """A group whose commands are imported one by one, when they are asked for."""

    def __init__(self, *args: Any, commands_at: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.commands_at:
            return None
        module, _, attribute = self.commands_at[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from tritune.axisvalues import near

            if guess := near(args[0], self.commands_at):
                what = f"{error.message} Did you mean {guess!r}?"
                raise click.UsageError(what, ctx=ctx) from None
            raise


class Root(Group):
    """The outermost group: a command's answer, or what stopped it, becomes the exit code."""

    def invoke(self, ctx: click.Context) -> NoReturn:
        ctx.exit(self._answer(ctx))

    def _answer(self, ctx: click.Context) -> int:
        try:
            _refuse_no_folder()
            return int(super().invoke(ctx) or 0)
        except TrituneError as error:
            click.echo(message(error), err=True)
            return error.exit_code
        except KeyboardInterrupt:
            click.echo("interrupted; nothing finished is lost", err=True)
            return INTERRUPTED
        except BrokenPipeError:
            return _closed_pipe()
        except OSError as error:
            return _told(error)
        except (click.exceptions.Exit, click.UsageError):
            raise
        except click.ClickException as error:  # click would exit 1, a "no"
            raise click.UsageError(error.format_message()) from error
        except Exception:  # noqa: BLE001 - the outermost boundary: Python would exit 1, a "no"
            return _crashed()


def _refuse_no_folder() -> None:
    """Every path is relative to it, and Python's own words would be those of a crash."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        hint = "change to one that is there: `cd .` if it was made anew"
        raise TrituneError("the current folder has been removed", hint=hint) from error


def message(error: TrituneError) -> str:
    """An error, or all the mistakes of a file, as a user reads it."""
    if isinstance(error, ManyMistakesError):
        return "\n".join(
            f"error: {each}".replace("\nhint: ", "\n  hint: ") for each in error.errors
        )
    what, _, hint = str(error).partition("\nhint: ")
    return f"error: {what}\n\nhint: {hint}" if hint else f"error: {what}"


def _closed_pipe() -> int:
    # Python flushes stdout at exit and would complain about the pipe once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CLOSED_PIPE


def _told(error: OSError) -> int:
    if error.errno in _FULL:
        return _full_disk(error)
    if error.errno not in _REFUSED or not error.filename:
        return _crashed()
    # Whatever looks at a path may meet it: `Path.exists` raises these too.
    where, hint = os.fsdecode(error.filename), "name a path that can be opened"
    refused = TrituneError((error.strerror or "").lower(), where=where, hint=hint)
    click.echo(message(refused), err=True)
    return refused.exit_code


def _full_disk(error: OSError) -> int:
    click.echo(f"error: cannot be written: {error.strerror}", err=True)
    with contextlib.suppress(OSError):  # what is left of stdout, which Python would flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNANSWERED


def _crashed() -> int:
    click.echo(traceback.format_exc().rstrip(), err=True)
    click.echo("error: tritune crashed; nothing finished is lost", err=True)
    click.echo("\nhint: this is a bug in tritune: report it with the lines above", err=True)
    return UNANSWERED

"""Failures of commands: a sentence on standard error, and an exit code for scripts.

0 done   1 failed   2 wrong usage or settings   3 no database   4 done, but --fail-on is violated
130, 143 stopped by a signal
"""

import os
import re
from collections.abc import Iterable
from importlib import import_module
from typing import IO, Any, NoReturn

import click

from schemas.similar_names import did_you_mean
from schemas.urls import without_queries

_EXAMPLE = re.compile(r"^ *Examples?:\n+ *(toolgate (?:.*\\\n)*.+)$", re.MULTILINE)
_CONTINUATION = re.compile(r" *\\\n *")

FAILED, USAGE, NO_DATABASE, UNWANTED, INTERRUPTED, TERMINATED = 1, 2, 3, 4, 130, 143


class CommandFailure(click.ClickException):
    """A command failed with an expected error."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(without_queries(message))
        self.exit_code = exit_code  # type: ignore[misc]  # click reads the instance's

    def show(self, file: IO[Any] | None = None) -> None:
        prefix = click.style("toolgate:", fg="red", bold=True)
        color = False if os.environ.get("NO_COLOR") else None  # None: color if it is a terminal
        click.echo(f"{prefix} {_harmless(self.message)}", file, err=True, color=color)


def warn(text: str) -> None:
    """Print a remark on standard error, for people and logs; the command goes on."""
    click.echo(f"toolgate: {_harmless(text)}", err=True)


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    raise CommandFailure(message, exit_code)


def _harmless(text: str) -> str:
    # imported by commands that fail: help has nothing to escape
    escaped: str = import_module("gateway.cli.common.text").harmless(text)
    return escaped


def no_such(kind: str, name: str, names: Iterable[str], lists: str = "") -> NoReturn:
    """Fail because no `kind` ("tool", "source") has this name; suggests similar names. `lists`: the
    command that lists them; "": `toolgate KINDs list`."""
    lists = lists or f"toolgate {kind}s list"
    hint = did_you_mean(name, names) or f"`{lists}` lists the {kind}s."
    fail(f"There is no {kind} {name!r}. {hint}")


def with_example(error: click.UsageError) -> click.UsageError:
    """The error with the first example of the help of its command, if there is one."""
    hint = _usage_hint(error, error.ctx) if error.ctx else ""
    return click.UsageError(error.format_message() + hint, error.ctx) if hint else error


def _usage_hint(error: click.UsageError, ctx: click.Context) -> str:
    """An example, or the command that lists what the first argument may name."""
    if example := _EXAMPLE.search(ctx.command.help or ""):
        return f"\nExample: {_CONTINUATION.sub(' ', example[1])}"
    group = ctx.parent.command if ctx.parent else None
    lists = isinstance(group, click.Group) and "list" in group.commands
    arguments = [each for each in ctx.command.params if isinstance(each, click.Argument)]
    is_first = isinstance(error, click.MissingParameter) and error.param in arguments[:1]
    if ctx.parent and lists and is_first:
        return f"\n`{ctx.parent.command_path} list` lists what there is."
    return ""

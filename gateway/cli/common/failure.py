"""Failures of commands: a sentence on standard error, and an exit code for scripts.

0 done   1 failed   2 wrong usage or settings   3 no database   4 done, but --fail-on is violated
130, 143 stopped by a signal
"""

import os
from collections.abc import Iterable
from importlib import import_module
from typing import IO, Any, NoReturn

import click

from schemas.similar_names import did_you_mean
from schemas.urls import without_queries

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


def no_such(kind: str, name: str, known: Iterable[str]) -> NoReturn:
    """Fail because no `kind` ("tool", "source") has this name; suggests similar names."""
    hint = did_you_mean(name, known) or f"`toolgate {kind}s list` lists the {kind}s."
    fail(f"There is no {kind} {name!r}. {hint}")

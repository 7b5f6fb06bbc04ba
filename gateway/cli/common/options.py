"""Options that commands share."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from gateway.cli.common.failure import USAGE, fail

CONFIG_FILE = "toolgate.config_file"  # key of the click context's `meta`

F = TypeVar("F", bound=Callable[..., Any])


def config_option(command: F) -> F:
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(),
        help="Settings file [default: $TOOLGATE_CONFIG, else ./toolgate.yaml if it exists].",
    )(command)


def source_option(command: F) -> F:
    return click.option("--source", metavar="NAME", help="Only the tools of this source.")(command)


def tenant_option(command: F) -> F:
    return click.option(
        "--tenant",
        metavar="ID",
        type=click.UUID,
        callback=lambda _context, _option, value: str(value) if value else None,
        help="Tenant [default: tenant.host_id].",
    )(command)


def yes_option(command: F) -> F:
    return click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")(command)


def check_terminal(verb: str, target: str) -> None:
    """Fail without a terminal where a person has to confirm `verb` ("remove") of `target`."""
    if not sys.stdin.isatty():
        fail(f"no terminal to confirm: add --yes to {verb} {target}", USAGE)


def ask(verb: str, target: str) -> None:
    """Confirm `verb` ("remove") of `target`; fails on refusal, and without a terminal."""
    check_terminal(verb, target)
    if not click.confirm(f"{verb.capitalize()} {target}?"):
        fail("nothing was changed: the answer was no")


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(
        command
    )

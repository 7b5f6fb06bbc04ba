"""Options that commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

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


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(
        command
    )

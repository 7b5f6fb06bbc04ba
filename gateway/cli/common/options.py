"""Options and argument types that commands share."""

import math
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from gateway.cli.common.failure import USAGE, fail

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
LONGEST_DAYS = 3650


def seconds_of(text: str) -> int | None:
    """Seconds of a span such as 90s; None if it is invalid or too long."""
    match = re.fullmatch(r"([0-9]{1,10})([smhdw])", text.strip())
    seconds = int(match[1]) * UNITS[match[2]] if match else None
    return None if seconds is None or seconds > LONGEST_DAYS * UNITS["d"] else seconds


def span_of(seconds: Any) -> str:
    """A span as `seconds_of` reads it, such as 90s or 1d."""
    if not isinstance(seconds, int):
        return str(seconds)
    unit = max((unit for unit in "smhd" if seconds % UNITS[unit] == 0), key="smhd".index)
    return f"{seconds // UNITS[unit]}{unit}"


class Duration(click.ParamType[timedelta]):
    """Click type of a `timedelta`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        seconds = seconds_of(value)
        if not seconds:
            expected = f"a span of time such as 90s, 15m, 1h or 30d, at most {LONGEST_DAYS}d"
            self.fail(f"{value!r}: expected {expected}", param, ctx)
        return timedelta(seconds=seconds)


DURATION = Duration()


CONFIG_FILE = "toolgate.config_file"  # key of the click context's `meta`

F = TypeVar("F", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A range of finite numbers: NaN is in every FloatRange, and infinity in an open one."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> float:
        number = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return float(number)


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

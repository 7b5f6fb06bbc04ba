"""Spans of time on the command line: 90s, 15m, 1h, 30d."""

import re
from datetime import timedelta
from typing import Any

import click

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
LONGEST_DAYS = 3650


def seconds_of(text: str) -> int | None:
    """Of a span such as 90s; None for what is none, or is too long."""
    found = re.fullmatch(r"([0-9]{1,10})([smhdw])", text.strip())
    seconds = int(found[1]) * UNITS[found[2]] if found else None
    return None if seconds is None or seconds > LONGEST_DAYS * UNITS["d"] else seconds


class Duration(click.ParamType[timedelta]):
    """A `timedelta`."""

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

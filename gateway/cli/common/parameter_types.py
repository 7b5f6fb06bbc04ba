"""Types of values on the command line: spans of time, times, numbers and documents."""

import math
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import yaml

from config.yaml_document import check_text, syntax_problem
from gateway.cli.common.tool_arguments import json_or_text
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json

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


class Number(click.FloatRange):
    """A range of finite numbers: NaN is in every FloatRange, and infinity in an open one."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> float:
        number = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return float(number)


class _Free(click.ParamType[Any]):
    """A type whose texts that cannot be read stay texts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(
        self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> Any:
        return self.read(value) if isinstance(value, str) else value

    def read(self, text: str) -> Any:
        return json_or_text(text)


class _Span(_Free):
    def read(self, text: str) -> Any:
        seconds = seconds_of(text)
        return json_or_text(text) if seconds is None else seconds


class _Time(_Free):
    """A time as RFC 3339 has it, or a span from now on, or until now, such as 90d."""

    def __init__(self, sign: int) -> None:
        super().__init__("time")
        self._sign = sign

    def read(self, text: str) -> Any:
        seconds = seconds_of(text)
        if seconds is None:
            return _with_zone(text)
        return (datetime.now(UTC) + self._sign * timedelta(seconds=seconds)).isoformat()


def _with_zone(text: str) -> str:
    """A time as RFC 3339 has it, with seconds, and in UTC where it names no zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


class FreeChoice(click.Choice[str]):
    """Choices for help and completion."""

    def convert(
        self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> Any:
        return value


class _Document(click.ParamType[Any]):
    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return read_document(value)
        except (OSError, UnicodeError, ParseError, yaml.YAMLError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.fail(f"{value[:100]}: expected JSON, YAML, a file or - ({reason})", param, ctx)


_INLINE = re.compile(r"^\s*[{\[]|:(?:\s|$)")  # in YAML a blank follows the ":" after a key


def read_document(text: str) -> Any:
    """JSON or YAML: the text itself, that of the file that it names, or of standard input for
    "-". A path may have a ":". Raises OSError, UnicodeError, ParseError and YAMLError."""
    if text == "-":
        text = sys.stdin.read()
    elif os.path.isfile(text) or not _INLINE.search(text):  # noqa: PTH113 - takes any text
        text = Path(text).read_text(encoding="utf-8")
    if text.lstrip().startswith(("{", "[")):
        return decode_json(text.encode())
    try:
        check_text(text)
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ParseError(f"{line}{syntax_problem(error, text)}") from error
    except RecursionError as error:
        raise ParseError("it is nested too deeply") from error
    except ValueError as error:  # such as that of the date 2030-13-01
        raise ParseError(str(error)) from error


NUMBER, TEXT = _Free("number"), click.STRING
SPAN, DOCUMENT = _Span("span"), _Document()
TIME, PAST = _Time(1), _Time(-1)

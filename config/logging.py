"""Logging: one line per event, for people or for machines.

The message is the event's name; its data are keys: `log.info("tool called",
extra={"request_id": request_id, "tool": name})`. There is no context variable: callers pass the
id of the request.
"""

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from config.settings import LoggingSettings

OWN = logging.makeLogRecord({}).__dict__.keys() | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}
SECRET = re.compile(r"(^|[_.-])(authorization|cookie|password|secret|token|api[_-]?key)$", re.I)
QUIET = re.compile(r"[\w./:@%+,-]+")  # a value that needs no quotes
COLOURS = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}


def configure(settings: LoggingSettings, stream: TextIO | None = None) -> None:
    """Log to `stream` (standard error); may be called again, after settings were reloaded."""
    stream = sys.stderr if stream is None else stream
    handler = _Handler(stream)
    handler.setFormatter(_formatter(settings.format, stream))
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    level = settings.level.upper()
    logging.getLogger("toolgate").setLevel(level)
    # It logs its start in five lines of INFO; ours is one.
    logging.getLogger("uvicorn").setLevel("DEBUG" if level == "DEBUG" else "WARNING")
    logging.getLogger("toolgate.access").setLevel("INFO")  # it logs only when enabled


class _Handler(logging.StreamHandler[TextIO]):
    """Marker class, so that a second `configure` finds our handler."""


def _formatter(name: str, stream: TextIO) -> logging.Formatter:
    if name == "json" or (name == "auto" and not stream.isatty()):
        return JsonFormatter()
    return ConsoleFormatter(colour=stream.isatty() and not os.environ.get("NO_COLOR"))


def keys(record: logging.LogRecord) -> dict[str, Any]:
    """The keys of `extra`, secrets masked."""
    extra = ((key, value) for key, value in record.__dict__.items() if key not in OWN)
    return {key: "***" if SECRET.search(key) else value for key, value in extra}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, event, the keys, and `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(
            line | {k: v for k, v in keys(record).items() if k not in line}, default=str
        )


class ConsoleFormatter(logging.Formatter):
    """`12:30:01 info    tool called request_id=r-1`, local time; a traceback follows."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self.colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        label = f"{level:<8}"
        if self.colour:
            label = f"\x1b[{COLOURS.get(level, '0')}m{label}\x1b[0m"
        time = _time(record).astimezone().strftime("%H:%M:%S")
        event = _one_line(record.getMessage())
        pairs = [f"{key}={_quote(value)}" for key, value in keys(record).items()]
        lines = [" ".join([time, f"{label}{event}", *pairs])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return "\n".join(lines)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _quote(value: object) -> str:
    text = str(value)
    return text if QUIET.fullmatch(text) else json.dumps(text)


def _one_line(text: str) -> str:
    """`text` without control characters, against log injection and terminal escapes."""
    return text if text.isprintable() else json.dumps(text)[1:-1]

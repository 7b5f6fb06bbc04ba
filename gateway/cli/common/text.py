"""Untrusted text for a terminal. Descriptions, names and answers come from others: escape sequences
can rewrite a terminal, and bidirectional marks show a line in another order than it has."""

import re
from contextlib import suppress
from datetime import UTC, datetime

from schemas.invisible_characters import visible, without_hidden


def harmless(text: str) -> str:
    r"""`text` with control characters and invisible characters escaped, as in `\u{1b}`."""
    return visible(text).replace("\r", "\\u{d}")


def is_harmless(text: str) -> bool:
    """Whether there is nothing to escape. What `harmless` has written is harmless."""
    return "\r" not in text and without_hidden(text) == text


_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})")


def time_text(time: datetime | str) -> str:
    """A time as commands print it, and as their options take it: `2026-01-31T09:30:00Z`. A text
    that is no time with its zone, as in JSON, is unchanged."""
    if isinstance(time, datetime):
        return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if _TIMESTAMP.fullmatch(time):
        with suppress(ValueError, OverflowError):  # such as a leap second
            return time_text(datetime.fromisoformat(time))
    return time


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]

"""Which values a style can say at all, and tell from others (RFC 6570; OpenAPI 3.1, 4.8.12.3).

What it cannot is counted apart: neither as arrived nor as lost.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.roundtrip.described import Spot

_TRIPLE = re.compile("%[0-9A-Fa-f]{2}")
DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}


def why_not(spot: Spot, value: Any) -> str | None:
    """The reason why `value` cannot be said there; None when it can."""
    if spot.media_type is not None or spot.location == "querystring":
        return _in_place(spot, "x")
    if value is None or _is_empty(value):
        return "null and nothing are undefined (RFC 6570, 2.3)"
    members = list(_members(value))
    nested = spot.style != "deepObject" and any(isinstance(one, list | dict) for one in members)
    if nested:
        return "members of members are undefined"
    if None in members:
        return "null and nothing are undefined (RFC 6570, 2.3)"
    if spot.style == "deepObject":
        return _deep(value)
    return _ambiguous(spot, value, members) or _in_place(spot, value)


def _ambiguous(spot: Spot, value: Any, members: list[Any]) -> str | None:
    texts = [one for one in members if isinstance(one, str)]
    delimiter = DELIMITERS.get(spot.style)
    several = isinstance(value, list | dict)
    if delimiter and several and not spot.explode and any(delimiter in text for text in texts):
        return "the delimiter stands in a value"
    if spot.style == "label" and several and spot.explode and any("." in text for text in texts):
        return "the delimiter stands in a value"  # it is unreserved, so nobody encodes it
    if several and texts.count("") == len(members) and not spot.explode:
        return "a list of nothing but empty texts looks like an empty one"
    if several and spot.allow_reserved and any("," in text for text in texts):
        return "reserved characters are let through, the delimiter too"
    if spot.allow_reserved and any(_TRIPLE.search(text) for text in texts):
        return "what looks percent-encoded is let through (RFC 6570, 3.2.3)"
    return None


def _in_place(spot: Spot, value: Any) -> str | None:
    if spot.location == "path":
        return _path(value)
    if spot.location == "header":
        return _header(value)
    return None


def _path(value: Any) -> str | None:
    if isinstance(value, str) and (value == "" or _climbs(value)):
        return "an empty or climbing segment in a path"
    joined = "".join(map(str, _members(value)))
    inner = any(isinstance(one, str) and _climbs(one) for one in _members(value))
    return "an empty or climbing segment in a path" if not joined or inner else None


def _climbs(text: str) -> bool:
    return not {".", ".."}.isdisjoint(text.replace("\\", "/").split("/"))


def _header(value: Any) -> str | None:
    texts = [one for one in _members(value) if isinstance(one, str)]
    if any(ord(char) < 32 or ord(char) == 127 for text in texts for char in text):
        return "control characters in a header"
    if any(text != text.strip(" \t") or not text for text in texts):
        return "blanks around a header's value"
    if isinstance(value, list | dict) and any("," in text or "=" in text for text in texts):
        return "the delimiter stands in a value"
    return None


def _deep(value: Any) -> str | None:
    keys = list(_keys(value))
    if any(not key or set(key) & set("[]%.") or key.isdecimal() for key in keys):
        return "a name that brackets cannot hold"
    return "null and nothing are undefined (RFC 6570, 2.3)" if _hollow(value) else None


def _hollow(value: Any) -> bool:
    """Whether there is null, {} or [] anywhere inside."""
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return not value or any(_hollow(one) for one in inner)
    return value is None


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _keys(one)


def _members(value: Any) -> Iterator[Any]:
    """The members of an array or object, names too; the value itself otherwise."""
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value
    else:
        yield value


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | dict) and not value

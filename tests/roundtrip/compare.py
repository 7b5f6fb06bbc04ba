"""Whether what was read is what was sent. On the wire most values are text: `1` and `true` there
are the number and the boolean that were sent, and the text `1` too."""

import json
from typing import Any

from tests.fuzz.oracle import same

__all__ = ["is_json_of", "same", "says"]


def says(read: Any, sent: Any) -> bool:
    """Whether `read`, a structure of texts, says `sent`; members that are null are not there."""
    if isinstance(sent, dict):
        told = {key: value for key, value in sent.items() if not nothing(value)}
        if not isinstance(read, dict) or read.keys() - told.keys():
            return False
        return all(key in read and says(read[key], value) for key, value in told.items())
    if isinstance(sent, list):
        return _list(read, [one for one in sent if not nothing(one)])
    return isinstance(read, str) and _scalar(read, sent)


def nothing(value: Any) -> bool:
    return value is None or value == {} or value == []


def is_json_of(read: Any, sent: Any) -> bool:
    try:
        return same(json.loads(read), sent)
    except (ValueError, TypeError):
        return False


def _list(read: Any, members: list[Any]) -> bool:
    if isinstance(read, dict):  # numbered members
        numbers = sorted((key for key in read if key.isdecimal()), key=int)
        read = [read[key] for key in numbers] if len(numbers) == len(read) else None
    if not isinstance(read, list) or len(read) != len(members):
        return False
    return all(says(one, other) for one, other in zip(read, members, strict=True))


def _scalar(read: str, sent: Any) -> bool:
    if isinstance(sent, str):
        return read == sent
    if isinstance(sent, bool) or sent is None:
        return read == json.dumps(sent)
    try:
        return float(read) == sent if isinstance(sent, float) else int(read) == sent
    except ValueError:
        return False

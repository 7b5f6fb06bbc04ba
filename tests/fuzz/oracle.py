"""What a JSON text says, found out without the code under test.

Where readers may differ in good faith (nesting, numbers out of range, half a surrogate pair), the
text is `Doubtful`: it may be refused or served.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from tests.fuzz.messages import TUPLE

LEVELS = 60  # deeper than that is deep
EXACT = 2**64  # a reader may take a larger number for a floating point one


class Unreadable:
    """No JSON, or an object that says two things: nothing may be done about it."""


class Doubtful:
    """JSON that not every reader takes."""


@dataclass(frozen=True, slots=True)
class Said:
    value: Any


def understand(text: bytes) -> Said | Unreadable | Doubtful:
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_none)
    except RecursionError:
        return Doubtful()
    except ValueError as error:
        return Doubtful() if "integer string conversion" in str(error) else Unreadable()
    return Doubtful() if _is_doubtful(value) else Said(value)


def strictly(text: bytes) -> Any:
    """The value of JSON text that an answer holds. Raises ValueError for what is none."""
    return json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_none)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a member is there twice")
    return found


def _none(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _is_doubtful(value: Any, level: int = 0) -> bool:
    match value:
        case str():
            return any("\ud800" <= one <= "\udfff" for one in value)
        case float():
            return math.isinf(value)
        case bool() | None:
            return False
        case int():
            return abs(value) >= EXACT
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    return level > LEVELS or any(_is_doubtful(one, level + 1) for one in inner)


def is_mixed(value: Any) -> bool:
    """Whether it is in both dialects."""
    return isinstance(value, dict) and "jsonrpc" in value and any(one in value for one in TUPLE)


def is_legacy(value: Any) -> bool:
    return isinstance(value, dict) and value.get("jsonrpc") != "2.0" and not is_mixed(value)


def is_request(value: Any, strict: bool) -> bool:
    """Whether it is a request or a notification of JSON-RPC 2.0; params of null
    are none. `strict`: as light-hybrid-4j has it, where an id may be anything."""
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0" or is_mixed(value):
        return False
    legal = strict or not isinstance(value.get("id"), bool | list | dict)
    params = value.get("params", {})
    by_name_or_place = params is None or isinstance(params, dict | list)
    return legal and by_name_or_place and isinstance(value.get("method"), str)


def is_notification(value: Any, strict: bool) -> bool:
    """Strictly, whatever names a method and has no id is one, and an id of null is none."""
    if not strict:
        return is_request(value, strict) and "id" not in value
    named = is_request({**value, "params": {}}, strict) if isinstance(value, dict) else False
    return named and value.get("id") is None


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; true is no 1, and 1.0 is."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)

"""Canonical JSON (RFC 8785), which hashes and signatures of JSON are made over. Pure."""

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """The bytes of parsed JSON. Raises ValueError for numbers that are no integers of 53 bits:
    their form is that of ECMAScript, which nothing here needs."""
    return json.dumps(_sort_members(value), ensure_ascii=False, separators=(",", ":")).encode()


def _sort_members(value: Any) -> Any:
    if isinstance(value, dict):
        # RFC 8785, 3.2.3: by UTF-16 code units, not by code points
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return {name: _sort_members(value[name]) for name in names}
    if isinstance(value, list):
        return [_sort_members(item) for item in value]
    if isinstance(value, float) or (type(value) is int and abs(value) >= 2**53):
        raise ValueError("expected an integer of at most 53 bits")
    return value

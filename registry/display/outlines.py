"""What is left of an input schema for which a list has hardly any room: its arguments. Pure."""

from collections.abc import Mapping
from typing import Any

from registry.display.references import definitions
from registry.display.summaries import Summaries
from schemas.jsonrpc import encode

AROUND = 64  # characters that are kept free
LONGEST = 160  # characters of what is said of one argument

Json = dict[str, Any]


def outline(schema: Json, limit: int, more: str) -> Json:
    """The arguments alone; of those that may be left out as many as there is room for. `more` says
    where the rest is to be had."""
    summaries = Summaries(definitions(schema).get, more)
    own = schema.get("properties")
    properties: Mapping[str, Any] = own if isinstance(own, dict) else {}
    required = schema.get("required")
    must = required if isinstance(required, list) else []
    shown: Json = {"type": "object", "properties": {}, "required": must, "description": more}
    if not must:
        del shown["required"]
    left = limit - length(shown) - AROUND
    for name in sorted(properties, key=lambda name: name not in must):
        short = _outlined(properties[name], summaries, left)
        left -= len(name) + length(short) + 4
        if left < 0:
            return shown
        shown["properties"][name] = short
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        shown["additionalProperties"] = False
    return shown


def _outlined(raw: Any, summaries: Summaries, left: int) -> Json:
    if not isinstance(raw, dict):
        return {}
    short = summaries.of(raw)
    if length(short) > LONGEST or left < 10 * LONGEST:
        return {"type": short["type"]} if "type" in short else {}
    return short


def length(value: Any) -> int:
    """Characters of JSON."""
    return len(encode(value).decode())

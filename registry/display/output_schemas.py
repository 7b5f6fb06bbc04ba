"""Output schemas for revisions whose structured content is always an object.

2026-07-28 allows any value; before that a value that is not an object is sent as `{"result":
value}`, and the schema has to describe the same. The schema alone may not decide which values will
be wrapped: one that leaves it open allows both. Pure.
"""

from typing import Any

import msgspec
from msgspec import Raw

from registry.names.keywords import BY_NAME, VALUES
from schemas.errors import ParseError
from schemas.jsonrpc import decode_json

RESULT = "result"

_OF_THE_WHOLE = ("$schema", "$defs", "definitions")
_STEPS = 8  # references followed from the root

Json = dict[str, Any]


def for_objects(schema: Raw) -> Raw | None:
    """`schema` with `"type": "object"` at its root; None for one that cannot be read."""
    try:
        found = decode_json(bytes(schema))
    except ParseError:
        return None
    if not isinstance(found, dict):
        return None
    if found.get("type") == "object":
        return schema
    return Raw(msgspec.json.encode(_for_objects(found)))


def _for_objects(schema: Json) -> Json:
    kind = _kind(schema, schema)
    if kind == "object":
        return {"type": "object", **schema}
    # References of a schema with an `$id` are relative to it, at any position.
    moved = "$id" not in schema
    whole = {key: schema[key] for key in _OF_THE_WHOLE if moved and key in schema}
    inner = {key: value for key, value in schema.items() if key not in whole}
    if isinstance(kind, str):
        place = f"#/properties/{RESULT}"
        return {"type": "object", **_result(_moved(inner, place) if moved else inner),
                **_shifted(whole, place)}  # fmt: skip
    place = "#/anyOf/0"
    plain = _moved(inner, place) if moved else inner
    return {"type": "object", "anyOf": [plain, _result({"$ref": place})], **_shifted(whole, place)}


def _result(schema: Json) -> Json:
    return {"properties": {RESULT: schema}, "required": [RESULT]}


def _shifted(whole: Json, place: str) -> Json:
    return {keyword: _keyword(keyword, member, place) for keyword, member in whole.items()}


def _kind(schema: Any, root: Json) -> str | None:
    """The single type that the schema allows; None where that is open."""
    for _ in range(_STEPS):
        if not isinstance(schema, dict):
            return None
        if "type" in schema or "$ref" not in schema:
            kind = schema.get("type")
            return kind if isinstance(kind, str) else None
        schema = _definition(schema["$ref"], root)
    return None


def _definition(reference: Any, root: Json) -> Any:
    for keyword in ("$defs", "definitions"):
        start = f"#/{keyword}/"
        definitions = root.get(keyword)
        if isinstance(reference, str) and reference.startswith(start):
            name = reference.removeprefix(start)
            return definitions.get(name) if isinstance(definitions, dict) else None
    return None


def _moved(value: Any, place: str) -> Any:
    """`value` with its references into the schema rewritten for its new position, `place`."""
    if isinstance(value, list):
        return [_moved(item, place) for item in value]
    if not isinstance(value, dict):
        return value
    return {keyword: _keyword(keyword, member, place) for keyword, member in value.items()}


def _keyword(keyword: str, member: Any, place: str) -> Any:
    if keyword == "$ref" and isinstance(member, str):
        return _reference(member, place)
    if keyword in VALUES:
        return member
    if keyword in BY_NAME and isinstance(member, dict):
        return {name: _moved(schema, place) for name, schema in member.items()}
    return _moved(member, place)


def _reference(reference: str, place: str) -> str:
    if reference != "#" and not reference.startswith("#/"):
        return reference
    if reference.startswith(("#/$defs/", "#/definitions/")):
        return reference
    return place + reference[1:]

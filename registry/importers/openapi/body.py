"""Request bodies: which media type, and whether its properties become arguments of their own."""

from dataclasses import dataclass
from typing import Any

from registry.importers.openapi.document import Document
from registry.importers.openapi.keywords import ANNOTATIONS
from registry.importers.openapi.schema_tree import Converted
from registry.importers.openapi.schemas import Schemas
from registry.importers.openapi.values import mapping, text

_HOPS = 16  # a body that is a `$ref` to a `$ref` to ...

# Keywords of an object that is nothing but its properties. Every other one, `oneOf` or
# `minProperties`, speaks of the body as a whole, which is lost when the properties stand alone.
_PLAIN = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}

# a range stands for the type that we would like best
_RANGES = {
    "*/*": "application/json",
    "application/*": "application/json",
    "text/*": "text/plain",
    "multipart/*": "multipart/form-data",
}
_PREFERENCE = (
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
    "application/octet-stream",
)


@dataclass(frozen=True, slots=True)
class Payload:
    """A request body: an object whose properties are offered, or one value."""

    media_type: str
    required: bool
    converted: Converted
    properties: dict[str, Any] | None  # name on the wire -> schema; None: one value
    demanded: tuple[str, ...] = ()  # properties that every body must have
    description: str = ""


def payload(
    operation: dict[str, Any], document: Document, schemas: Schemas, notes: list[str]
) -> Payload | None:
    """The body of `operation`, None when it has none. Raises `Skip`."""
    if operation.get("requestBody") is None:
        return None
    body = document.resolve(operation["requestBody"])
    content = mapping(body.get("content"))
    if not content:
        notes.append("`requestBody` has no `content`; nothing is sent")
        return None
    key = preferred(list(content))
    media_type = _RANGES.get(_essence(key), key)
    schema = document.resolve(content[key]).get("schema", _unstated(media_type))
    return _shape(body, media_type, schemas.convert(schema), schemas, notes)


def preferred(media_types: list[str]) -> str:
    """The best of a non-empty list. JSON first, because it says the most exactly."""
    return min(media_types, key=lambda key: _rank(_essence(key)))


def _rank(essence: str) -> int:
    if essence == "application/json":
        return 0
    if essence.endswith("+json"):
        return 1
    known = essence in _PREFERENCE
    return 2 + (_PREFERENCE.index(essence) if known else len(_PREFERENCE))


def _essence(media_type: str) -> str:
    """Without parameters: `application/json; charset=utf-8` is `application/json`."""
    return media_type.split(";", 1)[0].strip().lower()


def _unstated(media_type: str) -> dict[str, Any]:
    """A media type without a schema (3.1, section 4.8.14.3: binary has none)."""
    essence = _essence(media_type)
    structured = essence.endswith("json") or essence in _PREFERENCE[:2]
    return {} if structured else {"type": "string"}


def _shape(
    body: dict[str, Any],
    media_type: str,
    converted: Converted,
    schemas: Schemas,
    notes: list[str],
) -> Payload | None:
    required = body.get("required") is True
    plain = _plain_object(converted, schemas)
    if plain is None:
        description = text(body.get("description"))
        return Payload(media_type, required, converted, None, description=description)
    properties = dict(plain.schema["properties"])
    demanded = tuple(plain.schema.get("required", ()))
    for name in demanded:
        if name not in properties:
            notes.append(f"body: {name} is required, but not described")
            properties[name] = {}
    if not properties and not required:
        return None  # Stripe describes an empty form for every GET
    return Payload(media_type, required, plain, properties, demanded)


def _plain_object(converted: Converted, schemas: Schemas) -> Converted | None:
    """`converted`, or what it refers to, if it is an object that is nothing but properties."""
    for _ in range(_HOPS):
        target = schemas.target(converted.schema)
        if target is None:
            break
        converted = target
    schema = converted.schema
    closed = schema.get("additionalProperties", {"not": {}}) == {"not": {}}
    plain = schema.keys() <= _PLAIN and schema.get("type", "object") == "object"
    return converted if plain and closed and "properties" in schema else None

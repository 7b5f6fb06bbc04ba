"""Media types of request bodies: which one of several is used."""

from collections.abc import Sequence
from typing import Any

from registry.importers.openapi.raw_schema_facts import RawSchemas
from schemas.untrusted_json import mapping

FORM = "application/x-www-form-urlencoded"

# best first, after JSON and types serialized as JSON
_PREFERENCE = (
    FORM,
    "multipart/form-data",
    "text/plain",
    "application/octet-stream",
    "application/xml",
    "text/xml",
)
# RFC 7396 takes an object as it is; RFC 6902 takes a list of steps
_PATCHES = ("application/merge-patch+json", "application/json-patch+json")
# cannot be serialized from JSON: a caller would have to send the bytes
_OPAQUE = ("cbor", "msgpack", "protobuf", "avro", "x-protobuf", "x-msgpack", "smile")
_LAST_RANK = 100


def in_header(media_type: str) -> bool:
    """Whether the value is legal in a header: no line breaks."""
    return media_type.isascii() and media_type.isprintable()


def essence(media_type: str) -> str:
    """The media type without parameters: `application/json; charset=utf-8` is
    `application/json`."""
    return media_type.split(";", 1)[0].strip().lower()


def preferred_media_type(
    content: dict[str, Any],
    raw_schemas: RawSchemas,
    preferences: Sequence[str] = (),
    method: str = "POST",
) -> str:
    """The best media type of a non-empty `content`: a wanted one, else JSON, the most exact."""
    for media_type in preferences:
        for key in content:
            if essence(media_type) == essence(key):
                return key
    return min(content, key=lambda key: _rank(key, content, raw_schemas, method))


def _rank(
    key: str, content: dict[str, Any], raw_schemas: RawSchemas, method: str
) -> tuple[int, int]:
    kind = essence(key)
    if kind in ("application/json", "text/json"):
        return 0, 0
    if kind.endswith("+json"):
        return 1, _patch_rank(kind, content[key], raw_schemas, method)
    if kind.endswith(("/yaml", "/x-yaml", "+yaml")):
        return 2, 0
    if kind == FORM and raw_schemas.has_files(body_schema(content[key], raw_schemas)):
        return 3 + len(_PREFERENCE), 0  # a form cannot carry them
    if kind.endswith(_OPAQUE):
        return _LAST_RANK, 0
    if kind in _PREFERENCE:
        return 3 + _PREFERENCE.index(kind), 0
    return 3 + len(_PREFERENCE), 0 if kind.endswith("+xml") or kind.startswith("text/") else 1


def _patch_rank(kind: str, media: object, raw_schemas: RawSchemas, method: str) -> int:
    if method != "PATCH" or kind not in _PATCHES:
        return 1
    steps = raw_schemas.kind(body_schema(media, raw_schemas)) == "array"
    return 0 if (kind == _PATCHES[1]) == steps else 2


def body_schema(media: object, raw_schemas: RawSchemas) -> Any:
    return mapping(raw_schemas.resolve(media)).get("schema", {})

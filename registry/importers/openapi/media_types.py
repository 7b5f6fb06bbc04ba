"""Which media type a body goes out as, of those that are described."""

from collections.abc import Sequence
from typing import Any

from registry.importers.openapi.members import Members
from registry.importers.openapi.values import mapping

FORM = "application/x-www-form-urlencoded"

# the best first, after JSON and what is written as JSON
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
# what cannot be written from JSON: a caller would have to send the bytes
_OPAQUE = ("cbor", "msgpack", "protobuf", "avro", "x-protobuf", "x-msgpack", "smile")
_LAST = 100


def in_header(media_type: str) -> bool:
    """Whether it can stand in a header: nothing in it ends the line."""
    return media_type.isascii() and media_type.isprintable()


def essence(media_type: str) -> str:
    """Without parameters: `application/json; charset=utf-8` is `application/json`."""
    return media_type.split(";", 1)[0].strip().lower()


def preferred(
    content: dict[str, Any], members: Members, wanted: Sequence[str] = (), method: str = "POST"
) -> str:
    """The best of a non-empty `content`: what is wanted, else JSON, which says the most exactly."""
    for media_type in wanted:
        for key in content:
            if essence(media_type) == essence(key):
                return key
    return min(content, key=lambda key: _rank(key, content, members, method))


def _rank(key: str, content: dict[str, Any], members: Members, method: str) -> tuple[int, int]:
    kind = essence(key)
    if kind in ("application/json", "text/json"):
        return 0, 0
    if kind.endswith("+json"):
        return 1, _patch_rank(kind, content[key], members, method)
    if kind.endswith(("/yaml", "/x-yaml", "+yaml")):
        return 2, 0
    if kind == FORM and members.has_files(_members_schema(content[key], members)):
        return 3 + len(_PREFERENCE), 0  # a form cannot carry them
    if kind.endswith(_OPAQUE):
        return _LAST, 0
    if kind in _PREFERENCE:
        return 3 + _PREFERENCE.index(kind), 0
    return 3 + len(_PREFERENCE), 0 if kind.endswith("+xml") or kind.startswith("text/") else 1


def _patch_rank(kind: str, media: object, members: Members, method: str) -> int:
    if method != "PATCH" or kind not in _PATCHES:
        return 1
    steps = members.kind(_members_schema(media, members)) == "array"
    return 0 if (kind == _PATCHES[1]) == steps else 2


def _members_schema(media: object, members: Members) -> Any:
    return mapping(members.resolved(media)).get("schema", {})


def concrete(key: str, schema: object, members: Members) -> str:
    """What `key` stands for: a range is the type that we would like best for this schema."""
    kind = essence(key)
    if kind in ("*/*", "application/*"):
        return key if members.kind(schema) == "string" else "application/json"
    return {"text/*": "text/plain", "multipart/*": "multipart/form-data"}.get(kind, key)

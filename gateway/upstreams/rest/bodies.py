"""Request bodies: encodes a value in its media type. Pure."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import quote_plus

from gateway.upstreams.rest import xml
from gateway.upstreams.rest.files import (
    ANY_TYPE,
    RemoteFile,
    StreamedBody,
    file_of,
    media_type_of,
)
from gateway.upstreams.rest.multipart import Multipart
from gateway.upstreams.rest.serialize import FORM, in_query, is_json, plain
from schemas.binding import Body, Parameter, Part
from schemas.jsonrpc import encode

Kind = Literal["json", "form", "multipart", "xml", "lines", "records", "other"]


class EncodedBody(NamedTuple):
    media_type: str
    data: bytes


def written(body: Body, value: Any, arguments: Mapping[str, Any]) -> EncodedBody | StreamedBody:
    """The encoded body for `value`. Raises InvalidParams."""
    if body.file:
        return _file(body, value)
    match kind_of(body.media_type):
        case "json":
            return EncodedBody(body.media_type, encode(value))
        case "form" if isinstance(value, dict):
            return EncodedBody(body.media_type, form(value, body.parts))
        case "multipart":
            return _multipart(body, value, arguments)
        case "xml" if body.xml is not None and not isinstance(value, str):
            return EncodedBody(body.media_type, xml.document(body, value))
        case "lines" if isinstance(value, list):
            return EncodedBody(body.media_type, b"".join(encode(item) + b"\n" for item in value))
        case "records" if isinstance(value, list):  # RFC 7464
            data = b"".join(b"\x1e" + encode(item) + b"\n" for item in value)
            return EncodedBody(body.media_type, data)
        case _:
            return EncodedBody(body.media_type, plain(value).encode())


@lru_cache(maxsize=1024)
def kind_of(media_type: str) -> Kind:
    """The encoding for values of this media type."""
    essence = media_type.partition(";")[0].strip().lower()
    if is_json(essence) or essence.endswith(("/yaml", "/x-yaml", "+yaml")):
        return "json"  # which YAML can read (YAML 1.2, section 1.3)
    if essence.endswith(("/xml", "+xml")):
        return "xml"
    if essence.startswith("multipart/"):
        return "multipart"
    if essence.endswith(("jsonl", "ndjson", "/x-json-stream")):
        return "lines"
    if essence.endswith(("/json-seq", "+json-seq")):
        return "records"
    return "form" if essence == FORM else "other"


def form(value: Mapping[str, Any], parts: tuple[Part, ...]) -> bytes:
    """Form fields: an array is one field for each member, an object is JSON, null is omitted,
    unless its part specifies otherwise."""
    by_name = {part.name: part for part in parts}
    fields = (_field(name, item, by_name.get(name)) for name, item in value.items())
    return "&".join(filter(None, fields)).encode()


def _field(name: str, value: Any, part: Part | None) -> str:
    if part is not None and part.style is not None:
        allow = part.allow_reserved
        return in_query(Parameter(name, name, "query", part.style, part.explode, allow), value)
    key = quote_plus(name)
    if part is not None and part.content_type is not None and is_json(part.content_type):
        return f"{key}={quote_plus(encode(value).decode())}"
    members = value if isinstance(value, list) else [value]
    texts = (quote_plus(plain(member)) for member in members if member is not None)
    return "&".join(f"{key}={text}" for text in texts)


def _file(body: Body, value: Any) -> EncodedBody | StreamedBody:
    file = file_of(body.argument or "body", value)
    stated = None if "*" in body.media_type else body.media_type
    if file.data is None:
        return StreamedBody([RemoteFile(file, _nothing)], stated)
    return EncodedBody(stated or media_type_of(file) or ANY_TYPE, file.data)


def _nothing(_name: str, _media_type: str | None) -> bytes:
    return b""


def _multipart(body: Body, value: Any, arguments: Mapping[str, Any]) -> EncodedBody | StreamedBody:
    upload = Multipart(body, arguments).write(value)
    if any(isinstance(piece, RemoteFile) for piece in upload.pieces):
        return upload
    data = b"".join(piece for piece in upload.pieces if isinstance(piece, bytes))
    return EncodedBody(upload.content_type or ANY_TYPE, data)

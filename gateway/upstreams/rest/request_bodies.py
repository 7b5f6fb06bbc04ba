"""Bodies of requests: JSON, forms, multipart and files, without any I/O."""

import secrets
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import quote_plus

from msgspec import UNSET

from gateway.upstreams.http.file_arguments import (
    ANY_TYPE,
    CallFile,
    Piece,
    RemoteFile,
    StreamedBody,
    file_of,
    media_type_of,
    name_of,
)
from gateway.upstreams.http.responses_as_results import is_json
from gateway.upstreams.rest import xml_bodies
from gateway.upstreams.rest.parameter_styles import FORM, in_header, in_query, pairs_of, plain
from schemas.binding import Body, Parameter, Part
from schemas.jsonrpc import encode

# RFC 7578, section 4.2, as WHATWG's HTML writes it: quotes and line ends are percent-encoded
_IN_QUOTES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
_TRANSFER = "Content-Transfer-Encoding"
_ESSENTIALS = frozenset({"content-disposition", "content-type", "content-length"})


class Multipart:
    """One body, written part by part."""

    def __init__(self, body: Body, arguments: Mapping[str, Any]) -> None:
        self._boundary = secrets.token_hex(16)
        self._parts = {part.name: part for part in body.parts}
        self._names = {name: argument for argument, name in body.properties or ()}
        self._arguments = arguments
        essence, _, parameters = body.media_type.partition(";")
        retained = [
            text
            for text in parameters.split(";")
            if text.strip() and "boundary=" not in text.lower()
        ]
        self._type = ";".join([essence.strip(), *retained, f" boundary={self._boundary}"])

    def write(self, value: Any) -> StreamedBody:
        """Encode `value`: a part for each member, several for an array. Raises InvalidParams."""
        members = value if isinstance(value, dict) else {"value": value}
        pieces: list[Piece] = []
        for name, member in members.items():
            pieces.extend(self._member(name, member))
        pieces.append(f"--{self._boundary}--\r\n".encode())
        return StreamedBody(pieces, self._type)

    def _member(self, name: str, value: Any) -> Iterator[Piece]:
        part = self._parts.get(name) or Part(name)
        if part.style is not None and part.content_type is None:
            for key, text in pairs_of(_as_query(part), value):
                yield self._head(key, {}) + text.encode() + b"\r\n"
            return
        is_one_part = part.content_type is not None and is_json(part.content_type) and not part.file
        items = value if isinstance(value, list) and not is_one_part else [value]
        for item in items:
            if item is not None or is_one_part:
                yield from self._item(part, item)

    def _item(self, part: Part, value: Any) -> Iterator[Piece]:
        headers = dict(self._headers(part))
        if part.file:
            yield from self._file(part, headers, value)
            return
        media_type, text = _write_part(part, value)
        if media_type:
            headers["Content-Type"] = media_type
        if part.transfer_encoding and _TRANSFER.lower() not in map(str.lower, headers):
            headers[_TRANSFER] = part.transfer_encoding
        yield self._head(part.name, headers) + text + b"\r\n"

    def _file(self, part: Part, headers: dict[str, str], value: Any) -> Iterator[Piece]:
        described = [kind.strip() for kind in (part.content_type or "").split(",") if kind.strip()]
        file = file_of(self._names.get(part.name, part.name), value)

        def head(name: str, media_type: str | None) -> bytes:
            fetched = CallFile(file.argument, b"", uri="", name=name, media_type=media_type)
            of_type = {"Content-Type": media_type_of(fetched, described) or ANY_TYPE}
            return self._head(part.name, {**headers, **of_type}, name)

        if file.data is None:
            yield RemoteFile(file, head)
        else:
            media_type = media_type_of(file, described)
            yield head(name_of(file, media_type), media_type) + file.data
        yield b"\r\n"

    def _headers(self, part: Part) -> Iterator[tuple[str, str]]:
        for parameter in part.headers:
            value = self._arguments.get(parameter.argument)
            if value is not None and parameter.name.lower() not in _ESSENTIALS:
                yield parameter.name, in_header(parameter, value)

    def _head(self, name: str, headers: Mapping[str, str], filename: str | None = None) -> bytes:
        disposition = f'form-data; name="{name.translate(_IN_QUOTES)}"'
        if filename is not None:
            disposition += f'; filename="{filename.translate(_IN_QUOTES)}"'
        lines = [f"--{self._boundary}", f"Content-Disposition: {disposition}"]
        lines += [f"{key}: {value}" for key, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _as_query(part: Part) -> Parameter:
    style = part.style or "form"
    return Parameter(
        part.name,
        part.name,
        location="query",
        style=style,
        explode=part.explode,
        allow_reserved=part.allow_reserved,
    )


def _write_part(part: Part, value: Any) -> tuple[str | None, bytes]:
    """Media type and text of a value that is no file. Text has no media type, as in browsers: with
    one, a service may take the part for a file."""
    stated = (part.content_type or "").split(",")[0].strip() or None
    if isinstance(value, dict | list) and (stated is None or "*" in stated):
        return "application/json", encode(value)
    if stated and is_json(stated):
        return stated, encode(value)
    return stated, plain(value).encode()


Kind = Literal["json", "form", "multipart", "xml", "lines", "records", "other"]


class EncodedBody(NamedTuple):
    media_type: str
    data: bytes


def encode_body(body: Body, value: Any, arguments: Mapping[str, Any]) -> EncodedBody | StreamedBody:
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
            return EncodedBody(body.media_type, xml_bodies.document(body, value))
        case "lines" if isinstance(value, list):
            return EncodedBody(body.media_type, b"".join(encode(item) + b"\n" for item in value))
        case "records" if isinstance(value, list):  # RFC 7464
            data = b"".join(b"\x1e" + encode(item) + b"\n" for item in value)
            return EncodedBody(body.media_type, data)
        case _:
            return EncodedBody(body.media_type, plain(value).encode())


def body_content(body: Body, arguments: Mapping[str, Any]) -> EncodedBody | StreamedBody | None:
    value = _value(body, arguments)
    return None if value is UNSET else encode_body(body, value, arguments)


def _value(body: Body, arguments: Mapping[str, Any]) -> Any:
    """The value of the body; UNSET where there is none."""
    if body.properties is not None:
        value = {name: arguments[key] for key, name in body.properties if key in arguments}
        if body.additional is not None and body.additional in arguments:
            value = {**arguments[body.additional], **value}
        if not value and not body.required:
            return UNSET
        return {**value, **body.fixed} if body.fixed else value
    body_value = arguments.get(body.argument or "", UNSET)
    if body.fixed and isinstance(body_value, dict):
        return {**body_value, **body.fixed}
    return body_value


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
        return in_query(
            Parameter(
                name,
                name,
                location="query",
                style=part.style,
                explode=part.explode,
                allow_reserved=allow,
            ),
            value,
        )
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

"""Multipart bodies (RFC 2046, section 5.1; of forms RFC 7578). Pure."""

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.upstreams.rest.files import (
    ANY_TYPE,
    CallFile,
    Piece,
    RemoteFile,
    StreamedBody,
    file_of,
    media_type_of,
    name_of,
)
from gateway.upstreams.rest.serialize import in_header, is_json, pairs_of, plain
from schemas.binding import Body, Parameter, Part
from schemas.jsonrpc import encode

# RFC 7578, section 4.2, as WHATWG's HTML writes it: quotes and line ends are percent-encoded
_IN_QUOTES = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
_ESSENTIALS = frozenset({"content-disposition", "content-type", "content-length"})


class Multipart:
    """One body, written part by part."""

    def __init__(self, body: Body, arguments: Mapping[str, Any]) -> None:
        self._boundary = secrets.token_hex(16)
        self._parts = {part.name: part for part in body.parts}
        self._names = {name: argument for argument, name in body.properties or ()}
        self._arguments = arguments
        essence, _, said = body.media_type.partition(";")
        kept = [
            text for text in said.split(";") if text.strip() and "boundary=" not in text.lower()
        ]
        self._type = ";".join([essence.strip(), *kept, f" boundary={self._boundary}"])

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
        whole = part.content_type is not None and is_json(part.content_type) and not part.file
        items = value if isinstance(value, list) and not whole else [value]
        for item in items:
            if item is not None or whole:
                yield from self._item(part, item)

    def _item(self, part: Part, value: Any) -> Iterator[Piece]:
        headers = dict(self._headers(part))
        if part.file:
            yield from self._file(part, headers, value)
            return
        media_type, text = _written(part, value)
        if media_type:
            headers["Content-Type"] = media_type
        yield self._head(part.name, headers) + text + b"\r\n"

    def _file(self, part: Part, headers: dict[str, str], value: Any) -> Iterator[Piece]:
        described = [kind.strip() for kind in (part.content_type or "").split(",") if kind.strip()]
        file = file_of(self._names.get(part.name, part.name), value)

        def head(name: str, media_type: str | None) -> bytes:
            fetched = CallFile(file.argument, b"", "", name, media_type)
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
    return Parameter(part.name, part.name, "query", style, part.explode, part.allow_reserved)


def _written(part: Part, value: Any) -> tuple[str | None, bytes]:
    """Media type and text of a value that is no file. Text has no media type, as in browsers: with
    one, a service may take the part for a file."""
    stated = (part.content_type or "").split(",")[0].strip() or None
    if isinstance(value, dict | list) and (stated is None or "*" in stated):
        return "application/json", encode(value)
    if stated and is_json(stated):
        return stated, encode(value)
    return stated, plain(value).encode()

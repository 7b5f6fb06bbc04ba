"""Encodings of the properties of a request body (OpenAPI 3.1, section 4.8.15)."""

from dataclasses import dataclass, field
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.media_types import FORM, essence, in_header
from registry.importers.openapi.parameters import Parameters, WireParameter
from registry.importers.openapi.raw_schema_facts import RawSchemas, is_textual
from schemas.binding import Part, Style
from schemas.untrusted_json import mapping, text

_STYLES: tuple[Style, ...] = (
    "form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject",
)  # fmt: skip
_FILE_PROPERTY = "file"
_UNCONSTRAINING = frozenset({"type", "title", "description", "deprecated", "example", "x-toolgate"})
_STYLE_MEMBERS = ("style", "explode", "allowReserved")
_TRANSFER_ENCODINGS = frozenset({"base64", "quoted-printable"})  # RFC 2045, section 6.1
_OWN_HEADERS = frozenset({"content-type", "content-disposition"})

FILE = (
    "A file: base64, a data: or http(s) URL, a resource URI,"
    " or {data | text | uri, filename, mimeType}."
)


@dataclass(frozen=True, slots=True)
class EncodedProperties:
    """The properties of a form that need an encoding other than the default."""

    parts: tuple[Part, ...] = ()
    headers: dict[str, list[WireParameter]] = field(default_factory=dict)  # of parts, by property


class Encodings:
    """Reads the `encoding` objects of one document."""

    def __init__(
        self, document: OpenApiDocument, raw_schemas: RawSchemas, parameters: Parameters
    ) -> None:
        self._document = document
        self._raw_schemas = raw_schemas
        self._parameters = parameters

    def of(self, media: dict[str, Any], media_type: str, notes: list[str]) -> EncodedProperties:
        """Encodings of a form-urlencoded or multipart body."""
        stated = mapping(media.get("encoding"))
        unread = [key for key in ("prefixEncoding", "itemEncoding") if key in media]
        notes.extend(f"body: `{key}` (3.2) is not read; parts are named" for key in unread)
        multipart = essence(media_type) != FORM
        properties = self._raw_schemas.properties(media.get("schema"))
        is_undescribed_file = multipart and self._has_undescribed_file(properties)
        parts: list[Part] = []
        headers: dict[str, list[WireParameter]] = {}
        for name, schema in properties.items():
            encoding = self._encoding(stated.get(name), name, notes)
            part = self._part(name, schema, encoding, multipart, notes=notes)
            if is_undescribed_file and name == _FILE_PROPERTY and not encoding:
                part = Part(name, file=True)
            if part != Part(name):
                parts.append(part)
            if multipart and (wires := self._headers(encoding, notes)):
                headers[name] = wires
        return EncodedProperties(tuple(parts), headers)

    def _has_undescribed_file(self, properties: dict[str, Any]) -> bool:
        """Whether a form has exactly one property named as a file, described as plain text
        (Stripe)."""
        xml_object = self._raw_schemas.resolve(properties.get(_FILE_PROPERTY))
        plain = xml_object.get("type") == "string" and xml_object.keys() <= _UNCONSTRAINING
        return plain and not any(map(self._raw_schemas.files, properties.values()))

    def _encoding(self, raw: object, name: str, notes: list[str]) -> dict[str, Any]:
        if raw is not None and not isinstance(raw, dict):
            notes.append(f"body: the encoding of {name} is not an object; ignored")
        try:
            return self._document.resolve(raw)
        except SkipOperation as skip:
            notes.append(f"body: the encoding of {name}: {skip}")
            return {}

    def _part(
        self, name: str, schema: Any, encoding: dict[str, Any], multipart: bool, *, notes: list[str]
    ) -> Part:
        content_type = text(encoding.get("contentType")) or None
        if content_type and not in_header(content_type):
            notes.append(f"body: the content type of {name} cannot be sent; ignored")
            content_type = None
        if self._has_style(encoding, multipart):
            return _styled_part(name, encoding, notes)
        if not multipart:
            return Part(name, content_type if _json(content_type) else None)
        file = self._is_file(schema, content_type)
        if content_type is None:
            content_type = self._stated_type(schema)
        if not file and content_type in ("text/plain", "application/octet-stream"):
            content_type = None  # the default of text parts
        transfer = None if file else self._transfer_encoding(schema)
        return Part(name, content_type, file=file, transfer_encoding=transfer)

    def _has_style(self, encoding: dict[str, Any], multipart: bool) -> bool:
        """Whether `style` applies; 3.0 has styles in form-urlencoded bodies only (4.7.15)."""
        stated = any(key in encoding for key in _STYLE_MEMBERS)
        return stated and not (multipart and self._document.version == (3, 0))

    def _is_file(self, schema: Any, content_type: str | None) -> bool:
        raw_schemas = self._raw_schemas
        if raw_schemas.files(schema):
            return True
        if raw_schemas.kind(schema) == "array":
            schema = raw_schemas.items(schema)
        kind = raw_schemas.kind(schema)
        if content_type is not None:
            kinds = [media_type for media_type in content_type.split(",") if media_type.strip()]
            opaque = not any(is_textual(media_type) for media_type in kinds)
            return kind in (None, "string") and opaque and not self._is_packed(schema)
        # 3.1, 4.8.15.1.1: an empty schema means bytes
        return not raw_schemas.resolve(schema) and self._document.version >= (3, 1)

    def _is_packed(self, schema: Any) -> bool:
        """Whether bytes are encoded as text."""
        return any(
            "contentEncoding" in part or part.get("format") in ("byte", "base64")
            for part in self._raw_schemas.parts(schema)
        )

    def _transfer_encoding(self, schema: Any) -> str | None:
        """The `contentEncoding` of text, where multipart bodies have it as well (3.1, 4.8.15)."""
        if self._raw_schemas.kind(schema) == "array":
            schema = self._raw_schemas.items(schema)
        stated = (
            text(part.get("contentEncoding")).lower() for part in self._raw_schemas.parts(schema)
        )
        return next((encoding for encoding in stated if encoding in _TRANSFER_ENCODINGS), None)

    def _stated_type(self, schema: Any) -> str | None:
        if self._raw_schemas.kind(schema) == "array":
            schema = self._raw_schemas.items(schema)
        return next(
            (
                part["contentMediaType"]
                for part in self._raw_schemas.parts(schema)
                if text(part.get("contentMediaType")) and in_header(part["contentMediaType"])
            ),
            None,
        )

    def _headers(self, encoding: dict[str, Any], notes: list[str]) -> list[WireParameter]:
        headers = []
        for header, raw in mapping(encoding.get("headers")).items():
            if header.lower() in _OWN_HEADERS:
                continue
            try:
                named = {**self._document.resolve(raw), "name": header, "in": "header"}
                # absent parts have no headers
                wire = self._parameters.read({**named, "required": False}, notes)
            except SkipOperation as skip:
                notes.append(f"body: the header {header} of a part: {skip}")
                continue
            if wire:
                headers.append(wire)
        return headers


def file_schema(conversion: dict[str, Any], many: bool = False) -> dict[str, Any]:
    """Schema of an argument that is a file, or a list of files; `conversion` is the schema of its
    value in the description."""
    text_of_schema = text(conversion.get("description"))
    members: dict[str, Any] = {}
    members |= {key: conversion[key] for key in ("title", "deprecated") if key in conversion}
    if many:
        for key in ("minItems", "maxItems"):
            if key in conversion:
                members[key] = conversion[key]
        described = {"description": text_of_schema} if text_of_schema else {}
        return {"type": "array", "items": _ONE, **members, **described}
    return {
        **_ONE,
        **members,
        "description": f"{text_of_schema}\n\n{FILE}" if text_of_schema else FILE,
    }


_ONE: dict[str, Any] = {"type": ["string", "object"], "description": FILE}


def _styled_part(name: str, encoding: dict[str, Any], notes: list[str]) -> Part:
    stated = encoding.get("style", "form")
    style = next((style for style in _STYLES if style == stated), None)
    if style is None:
        notes.append(f"body: style {str(stated)[:40]!r} of {name} is not for a form")
        style = "form"
    explode = encoding.get("explode")
    return Part(
        name,
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        allow_reserved=encoding.get("allowReserved") is True,
    )


def _json(content_type: str | None) -> bool:
    kind = essence(content_type or "")
    return kind == "application/json" or kind.endswith("+json")

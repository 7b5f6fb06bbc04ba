"""How the properties of a form travel: Encoding Objects (OpenAPI 3.1, section 4.8.15)."""

from dataclasses import dataclass, field
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.media_types import FORM, essence, in_header
from registry.importers.openapi.members import Members, textual
from registry.importers.openapi.parameters import Parameters, WireParameter
from registry.importers.openapi.values import mapping, text
from schemas.binding import Part, Style

_STYLES: tuple[Style, ...] = (
    "form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject",
)  # fmt: skip
_USUAL = "file"
_SAYS_NOTHING = frozenset({"type", "title", "description", "deprecated", "example", "x-toolgate"})
_STYLED = ("style", "explode", "allowReserved")
_OURS = frozenset({"content-type", "content-disposition"})

FILE = (
    "A file: base64, a data: or http(s) URL, a resource URI,"
    " or {data | text | uri, filename, mimeType}."
)


@dataclass(frozen=True, slots=True)
class EncodedProperties:
    """The properties of a form that do not travel by default."""

    parts: tuple[Part, ...] = ()
    headers: dict[str, list[WireParameter]] = field(default_factory=dict)  # of parts, by property


class Encodings:
    """Reads the forms of one document."""

    def __init__(self, document: OpenApiDocument, members: Members, parameters: Parameters) -> None:
        self._document = document
        self._members = members
        self._parameters = parameters

    def of(self, media: dict[str, Any], media_type: str, notes: list[str]) -> EncodedProperties:
        """Of a form-urlencoded or multipart body."""
        stated = mapping(media.get("encoding"))
        unread = [key for key in ("prefixEncoding", "itemEncoding") if key in media]
        notes.extend(f"body: `{key}` (3.2) is not read; parts are named" for key in unread)
        multipart = essence(media_type) != FORM
        properties = self._members.properties(media.get("schema"))
        unsaid = multipart and self._unsaid_file(properties)
        parts: list[Part] = []
        headers: dict[str, list[WireParameter]] = {}
        for name, schema in properties.items():
            encoding = self._encoding(stated.get(name), name, notes)
            part = self._part(name, schema, encoding, multipart, notes)
            if unsaid and name == _USUAL and not encoding:
                part = Part(name, file=True)
            if part != Part(name):
                parts.append(part)
            if multipart and (wires := self._headers(encoding, notes)):
                headers[name] = wires
        return EncodedProperties(tuple(parts), headers)

    def _unsaid_file(self, properties: dict[str, Any]) -> bool:
        """Whether the one file of a form is called so, and described as any text (Stripe)."""
        said = self._members.resolved(properties.get(_USUAL))
        plain = said.get("type") == "string" and said.keys() <= _SAYS_NOTHING
        return plain and not any(map(self._members.files, properties.values()))

    def _encoding(self, raw: object, name: str, notes: list[str]) -> dict[str, Any]:
        if raw is not None and not isinstance(raw, dict):
            notes.append(f"body: the encoding of {name} is not an object; ignored")
        try:
            return self._document.resolve(raw)
        except SkipOperation as skip:
            notes.append(f"body: the encoding of {name}: {skip}")
            return {}

    def _part(
        self, name: str, schema: Any, encoding: dict[str, Any], multipart: bool, notes: list[str]
    ) -> Part:
        content_type = text(encoding.get("contentType")) or None
        if content_type and not in_header(content_type):
            notes.append(f"body: the content type of {name} cannot be sent; ignored")
            content_type = None
        if self._styled(encoding, multipart):
            return _styled(name, encoding, notes)
        if not multipart:
            return Part(name, content_type if _json(content_type) else None)
        file = self._is_file(schema, content_type)
        if content_type is None:
            content_type = self._stated_type(schema)
        if not file and content_type in ("text/plain", "application/octet-stream"):
            content_type = None  # what every part of text is
        return Part(name, content_type, file=file)

    def _styled(self, encoding: dict[str, Any], multipart: bool) -> bool:
        """3.0 has styles in form-urlencoded bodies only (4.7.15)."""
        stated = any(key in encoding for key in _STYLED)
        return stated and not (multipart and self._document.version == (3, 0))

    def _is_file(self, schema: Any, content_type: str | None) -> bool:
        members = self._members
        if members.files(schema):
            return True
        if members.kind(schema) == "array":
            schema = members.items(schema)
        kind = members.kind(schema)
        if content_type is not None:
            kinds = [one for one in content_type.split(",") if one.strip()]
            opaque = not any(textual(one) for one in kinds)
            return kind in (None, "string") and opaque and not self._packed(schema)
        # 3.1, 4.8.15.1.1: what says nothing at all is bytes
        return not members.resolved(schema) and self._document.version >= (3, 1)

    def _packed(self, schema: Any) -> bool:
        """Whether bytes travel as text."""
        return any(
            "contentEncoding" in part or part.get("format") in ("byte", "base64")
            for part in self._members.parts(schema)
        )

    def _stated_type(self, schema: Any) -> str | None:
        if self._members.kind(schema) == "array":
            schema = self._members.items(schema)
        return next(
            (
                part["contentMediaType"]
                for part in self._members.parts(schema)
                if text(part.get("contentMediaType")) and in_header(part["contentMediaType"])
            ),
            None,
        )

    def _headers(self, encoding: dict[str, Any], notes: list[str]) -> list[WireParameter]:
        found = []
        for header, raw in mapping(encoding.get("headers")).items():
            if header.lower() in _OURS:
                continue
            try:
                named = {**self._document.resolve(raw), "name": header, "in": "header"}
                # a part that is not sent has no headers
                wire = self._parameters.read({**named, "required": False}, notes)
            except SkipOperation as skip:
                notes.append(f"body: the header {header} of a part: {skip}")
                continue
            if wire:
                found.append(wire)
        return found


def file_schema(converted: dict[str, Any], many: bool = False) -> dict[str, Any]:
    """The schema of an argument that is a file, or a list of files; `converted` is what the
    description says of its value."""
    own = text(converted.get("description"))
    kept: dict[str, Any] = {}
    kept |= {key: converted[key] for key in ("title", "deprecated") if key in converted}
    if many:
        for key in ("minItems", "maxItems"):
            if key in converted:
                kept[key] = converted[key]
        about = {"description": own} if own else {}
        return {"type": "array", "items": _ONE, **kept, **about}
    return {**_ONE, **kept, "description": f"{own}\n\n{FILE}" if own else FILE}


_ONE: dict[str, Any] = {"type": ["string", "object"], "description": FILE}


def _styled(name: str, encoding: dict[str, Any], notes: list[str]) -> Part:
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

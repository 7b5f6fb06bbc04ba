"""Request bodies: which media type, and whether its properties become arguments of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.encodings import EncodedProperties, Encodings, file_schema
from registry.importers.openapi.keywords import ANNOTATIONS
from registry.importers.openapi.marks import ArgumentMarks, argument_marks
from registry.importers.openapi.media_types import FORM, concrete, essence, in_header, preferred
from registry.importers.openapi.members import Members, textual
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.parameters import Parameters
from registry.importers.openapi.schema_tree import Converted
from registry.importers.openapi.schemas import Schemas
from registry.importers.openapi.values import mapping, text
from registry.importers.openapi.xml import XmlBodies
from registry.importers.plain import plain
from schemas.binding import Xml

_HOPS = 16  # a body that is a `$ref` to a `$ref` to ...

# Keywords of an object that is nothing but its properties. Every other one, `oneOf` or
# `minProperties`, speaks of the body as a whole, which is lost when the properties stand alone.
_PLAIN = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}


@dataclass(frozen=True, slots=True)
class RequestPayload:
    """A request body: an object whose properties are offered, or one value."""

    media_type: str
    required: bool
    converted: Converted
    properties: dict[str, Any] | None  # name on the wire -> schema; None: one value
    demanded: tuple[str, ...] = ()  # properties that every body must have
    description: str = ""
    encoded: EncodedProperties = field(default_factory=EncodedProperties)
    file: bool = False
    xml: Xml | None = None
    xml_types: dict[str, Xml] = field(default_factory=dict)
    marks: dict[str, ArgumentMarks] = field(default_factory=dict)  # of properties
    whole_marks: ArgumentMarks | None = None


class Bodies:
    """Reads the request bodies of one document."""

    def __init__(
        self,
        document: OpenApiDocument,
        schemas: Schemas,
        parameters: Parameters,
        media_types: Sequence[str] = (),
    ) -> None:
        """`media_types` are taken where they are described, the first of them first."""
        self._document = document
        self._schemas = schemas
        self._members = Members(document)
        self._encodings = Encodings(document, self._members, parameters)
        self._xml = XmlBodies(document, self._members)
        self._wanted = tuple(media_types)

    def of(self, operation: DocumentOperation, notes: list[str]) -> RequestPayload | None:
        """The body of `operation`, None when it has none. Raises `SkipOperation`."""
        if operation.node.get("requestBody") is None:
            return None
        body = self._document.resolve(operation.node["requestBody"])
        content = {
            key: media for key, media in mapping(body.get("content")).items() if in_header(key)
        }
        if not content:
            notes.append("`requestBody` has no `content`; nothing is sent")
            return None
        key = self._chosen(content, operation, notes)
        media = self._document.resolve(content[key])
        schema = _schema(media, key)
        media_type = concrete(key, schema, self._members)
        payload = self._shape(body, media_type, self._schemas.convert(schema), notes)
        return payload and self._written(payload, media, schema, notes)

    def _chosen(
        self, content: dict[str, Any], operation: DocumentOperation, notes: list[str]
    ) -> str:
        marked = operation.marks.media_type
        wanted = (*([marked] if marked else ()), *self._wanted)
        key = preferred(content, self._members, wanted, operation.method)
        if marked and essence(marked) != essence(key):
            notes.append(f"the media type {marked!r}, which is marked, is not described")
        return key

    def _shape(
        self, body: dict[str, Any], media_type: str, converted: Converted, notes: list[str]
    ) -> RequestPayload | None:
        required = body.get("required") is True
        marks = argument_marks(body)
        flat = _plain_object(converted, self._schemas)
        if flat is None:
            description = plain(text(body.get("description")))
            return RequestPayload(
                media_type,
                required,
                converted,
                None,
                description=description,
                whole_marks=marks,
            )
        properties = dict(flat.schema["properties"])
        demanded = tuple(flat.schema.get("required", ()))
        for name in demanded:
            if name not in properties:
                notes.append(f"body: {name} is required, but not described")
                properties[name] = {}
        if not properties and not required:
            return None  # Stripe describes an empty form for every GET
        return RequestPayload(media_type, required, flat, properties, demanded)

    def _written(
        self, payload: RequestPayload, media: dict[str, Any], schema: Any, notes: list[str]
    ) -> RequestPayload:
        """With how its values are written, and what its owner says about them."""
        marks = self._marks(schema, payload.properties)
        payload = replace(payload, marks=marks) if marks else payload
        kind = essence(payload.media_type)
        if kind == FORM or kind.startswith("multipart/"):
            return self._form(payload, media, schema, notes)
        if kind.endswith(("/xml", "+xml")) and self._members.kind(schema) in ("object", "array"):
            return self._as_xml(payload, schema, notes)
        if self._is_file(kind, schema):
            converted = replace(payload.converted, schema=file_schema(payload.converted.schema))
            return replace(payload, converted=converted, file=True)
        return payload

    def _marks(self, schema: Any, properties: dict[str, Any] | None) -> dict[str, ArgumentMarks]:
        """`x-toolgate` of the properties."""
        found = {}
        for name, raw in self._members.properties(schema).items() if properties else ():
            if (marks := argument_marks(mapping(raw))) is not None:
                found[name] = marks
        return found

    def _form(
        self, payload: RequestPayload, media: dict[str, Any], schema: Any, notes: list[str]
    ) -> RequestPayload:
        encoded = self._encodings.of({**media, "schema": schema}, payload.media_type, notes)
        properties = payload.properties
        files = {part.name for part in encoded.parts if part.file}
        if properties is not None and files:
            raw = self._members.properties(schema)
            properties = {
                name: file_schema(value, many=self._members.kind(raw.get(name)) == "array")
                if name in files
                else value
                for name, value in properties.items()
            }
        return replace(payload, properties=properties, encoded=encoded)

    def _as_xml(self, payload: RequestPayload, schema: Any, notes: list[str]) -> RequestPayload:
        try:
            xml, types = self._xml.read(schema)
        except SkipOperation as skip:
            notes.append(f"body: {skip}; names of XML elements are those of the properties")
            xml, types = Xml(), {}
        return replace(payload, xml=xml, xml_types=types)

    def _is_file(self, kind: str, schema: Any) -> bool:
        if kind.endswith(("json", "yaml")):
            return False
        opaque = not textual(kind) and self._members.kind(schema) in (None, "string")
        return opaque or self._members.binary(schema)


def _schema(media: dict[str, Any], key: str) -> Any:
    """What is described, or what a media type without a schema stands for (3.1, section 4.8.14.3:
    binary has none)."""
    if "schema" in media:
        return media["schema"]
    if "itemSchema" in media:  # 3.2, section 4.14: of a sequence
        return {"type": "array", "items": media["itemSchema"]}
    kind = essence(key)
    structured = kind.endswith(("json", "yaml", "*/*")) or kind == FORM or "multipart/" in kind
    return {} if structured else {"type": "string"}


def _plain_object(converted: Converted, schemas: Schemas) -> Converted | None:
    """`converted`, or what it refers to, if it is an object that is nothing but properties."""
    for _ in range(_HOPS):
        target = schemas.target(converted.schema)
        if target is None:
            break
        converted = target
    schema = converted.schema
    closed = schema.get("additionalProperties", {"not": {}}) == {"not": {}}
    flat = schema.keys() <= _PLAIN and schema.get("type", "object") == "object"
    return converted if flat and closed and "properties" in schema else None

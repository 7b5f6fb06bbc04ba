"""Request bodies: media type, encodings, XML, and properties as arguments."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.keyword_repair import ANNOTATIONS
from registry.importers.openapi.media_types import FORM, essence, in_header, preferred_media_type
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.parameters import Parameters, stated_examples
from registry.importers.openapi.property_encodings import EncodedProperties, Encodings, file_schema
from registry.importers.openapi.raw_schema_facts import RawSchemas, is_textual
from registry.importers.openapi.schema_components import Schemas
from registry.importers.openapi.schema_conversion import ConvertedSchema
from registry.importers.openapi.x_toolgate import ArgumentMarks, argument_marks
from registry.importers.openapi.xml_bodies import XmlBodies
from registry.importers.plain_text import plain
from schemas.binding import Xml
from schemas.untrusted_json import mapping, sequence, text


def concrete(key: str, schema: object, raw_schemas: RawSchemas) -> str:
    """The media type for `key`: a range such as `*/*` becomes the best fit for this schema."""
    kind = essence(key)
    if kind in ("*/*", "application/*"):
        return key if raw_schemas.kind(schema) == "string" else "application/json"
    return {"text/*": "text/plain", "multipart/*": "multipart/form-data"}.get(kind, key)


_HOPS = 16  # chain of `$ref`s to a body

# Keywords of an object that consists of properties alone. Any other, `oneOf` or `minProperties`,
# constrains the body as a whole, which is lost when the properties become arguments.
_PLAIN = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}


@dataclass(frozen=True, slots=True)
class RequestPayload:
    """A request body: an object whose properties become arguments, or one value."""

    media_type: str
    required: bool
    converted: ConvertedSchema
    properties: dict[str, Any] | None  # wire name -> schema; None: one value
    required_properties: tuple[str, ...] = ()  # required properties
    description: str = ""
    encoded: EncodedProperties = field(default_factory=EncodedProperties)
    file: bool = False
    xml: Xml | None = None
    xml_types: dict[str, Xml] = field(default_factory=dict)
    marks: dict[str, ArgumentMarks] = field(default_factory=dict)  # by property
    whole_marks: ArgumentMarks | None = None
    examples: tuple[Any, ...] = ()  # without hidden properties
    open: bool = False  # whether members that are not described are sent


class Bodies:
    """Reads the request bodies of one document."""

    def __init__(
        self,
        document: OpenApiDocument,
        schemas: Schemas,
        parameters: Parameters,
        media_types: Sequence[str] = (),
    ) -> None:
        """`media_types` are preferred, in order, where they are described."""
        self._document = document
        self._schemas = schemas
        self._raw_schemas = RawSchemas(document)
        self._encodings = Encodings(document, self._raw_schemas, parameters)
        self._xml = XmlBodies(document, self._raw_schemas)
        self._wanted = tuple(media_types)

    def of(self, operation: DocumentOperation, notes: list[str]) -> RequestPayload | None:
        """The body of `operation`, None without one. Raises `SkipOperation`."""
        if operation.node.get("requestBody") is None:
            return None
        body = self._document.resolve(operation.node["requestBody"])
        content = {
            key: media for key, media in mapping(body.get("content")).items() if in_header(key)
        }
        if not content:
            notes.append("`requestBody` has no `content`; nothing is sent")
            return None
        key = self._media_type(content, operation, notes)
        media = self._document.resolve(content[key])
        schema = _schema(media, key)
        media_type = concrete(key, schema, self._raw_schemas)
        payload = self._payload(body, media_type, self._schemas.convert(schema), notes)
        return payload and self._with_encodings(payload, media, schema, notes)

    def _media_type(
        self, content: dict[str, Any], operation: DocumentOperation, notes: list[str]
    ) -> str:
        marked = operation.marks.media_type
        preferences = (*([marked] if marked else ()), *self._wanted)
        key = preferred_media_type(content, self._raw_schemas, preferences, operation.method)
        if marked and essence(marked) != essence(key):
            notes.append(f"the media type {marked!r}, which is marked, is not described")
        return key

    def _payload(
        self, body: dict[str, Any], media_type: str, schema: ConvertedSchema, notes: list[str]
    ) -> RequestPayload | None:
        required = body.get("required") is True
        marks = argument_marks(body)
        flat = _plain_object(schema, self._schemas)
        if flat is None:
            description = plain(text(body.get("description")))
            return RequestPayload(
                media_type,
                required,
                schema,
                None,
                description=description,
                whole_marks=marks,
            )
        properties = dict(flat.schema["properties"])
        required_properties = tuple(flat.schema.get("required", ()))
        for name in required_properties:
            if name not in properties:
                notes.append(f"body: {name} is required, but not described")
                properties[name] = {}
        if not properties and not required:
            return None  # Stripe describes an empty form for every GET
        return RequestPayload(
            media_type, required, flat, properties, required_properties=required_properties
        )

    def _with_encodings(
        self, payload: RequestPayload, media: dict[str, Any], schema: Any, notes: list[str]
    ) -> RequestPayload:
        """`payload` with the encodings of its values and the owner's marks."""
        marks = self._marks(schema, payload.properties)
        payload = replace(payload, marks=marks) if marks else payload
        payload = self._with_examples(payload, media, schema)
        kind = essence(payload.media_type)
        if kind == FORM or kind.startswith("multipart/"):
            return self._form(payload, media, schema, notes)
        if kind.endswith(("/xml", "+xml")) and self._raw_schemas.kind(schema) in (
            "object",
            "array",
        ):
            return self._as_xml(payload, schema, notes)
        if self._is_file(kind, schema):
            converted = replace(payload.converted, schema=file_schema(payload.converted.schema))
            return replace(payload, converted=converted, file=True)
        return payload

    def _with_examples(
        self, payload: RequestPayload, media: dict[str, Any], schema: Any
    ) -> RequestPayload:
        """`payload` with its examples. A body of properties stays open if its schema allows more
        and they are meant: an example has them, or a discriminator names schemas that do."""
        examples = stated_examples(media, self._document)
        if payload.properties is not None:  # else they stand in the schema of the argument
            examples += sequence(payload.converted.schema.get("examples"))
        hidden = self._schemas.visibility.names(schema) if examples else frozenset()
        visible = tuple(
            {name: value for name, value in example.items() if name not in hidden}
            if isinstance(example, dict)
            else example
            for example in examples
        )
        if payload.properties is None:
            return replace(payload, examples=visible)
        property_names = payload.properties.keys()
        more = any(
            not example.keys() <= property_names for example in visible if isinstance(example, dict)
        )
        more = more or any("discriminator" in part for part in self._raw_schemas.parts(schema))
        is_open = more and "additionalProperties" not in payload.converted.schema
        return replace(payload, examples=visible, open=is_open)

    def _marks(self, schema: Any, properties: dict[str, Any] | None) -> dict[str, ArgumentMarks]:
        """`x-toolgate` of the properties."""
        by_property = {}
        for name, raw in self._raw_schemas.properties(schema).items() if properties else ():
            if (marks := argument_marks(mapping(raw))) is not None:
                by_property[name] = marks
        return by_property

    def _form(
        self, payload: RequestPayload, media: dict[str, Any], schema: Any, notes: list[str]
    ) -> RequestPayload:
        encoded = self._encodings.of({**media, "schema": schema}, payload.media_type, notes)
        properties = payload.properties
        files = {part.name for part in encoded.parts if part.file}
        if properties is not None and files:
            raw = self._raw_schemas.properties(schema)
            properties = {
                name: file_schema(value, many=self._raw_schemas.kind(raw.get(name)) == "array")
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
        opaque = not is_textual(kind) and self._raw_schemas.kind(schema) in (None, "string")
        return opaque or self._raw_schemas.binary(schema)


def _schema(media: dict[str, Any], key: str) -> Any:
    """The stated schema, or the default of a media type without one (3.1, section 4.8.14.3: none
    for binary)."""
    if "schema" in media:
        return media["schema"]
    if "itemSchema" in media:  # 3.2, section 4.14: sequence items
        return {"type": "array", "items": media["itemSchema"]}
    kind = essence(key)
    structured = kind.endswith(("json", "yaml", "*/*")) or kind == FORM or "multipart/" in kind
    return {} if structured else {"type": "string"}


def _plain_object(conversion: ConvertedSchema, schemas: Schemas) -> ConvertedSchema | None:
    """`conversion`, or the target of its references, if it is an object of properties alone."""
    for _ in range(_HOPS):
        target = schemas.target(conversion.schema)
        if target is None:
            break
        conversion = target
    schema = conversion.schema
    closed = schema.get("additionalProperties", {"not": {}}) == {"not": {}}
    flat = schema.keys() <= _PLAIN and schema.get("type", "object") == "object"
    return conversion if flat and closed and "properties" in schema else None

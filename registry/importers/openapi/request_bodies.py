"""Request bodies: media type, encodings, XML, and properties as arguments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, canonical
from registry.importers.openapi.keyword_repair import ANNOTATIONS
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.parameters import Parameters, WireParameter, stated_examples
from registry.importers.openapi.raw_schema_facts import RawSchemas, is_textual
from registry.importers.openapi.schema_conversion import ConvertedSchema, Schemas
from registry.importers.openapi.x_toolgate import ArgumentMarks, argument_marks
from registry.importers.plain_text import plain
from schemas.binding import Part, Style, Xml
from schemas.json_schema.pointers import segments
from schemas.json_schema.references import reference_of, reference_to
from schemas.untrusted_json import mapping, sequence, text

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
    wanted: Sequence[str] = (),
    method: str = "POST",
) -> str:
    """The best media type of a non-empty `content`: a wanted one, else JSON, the most exact."""
    for media_type in wanted:
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
    if kind == FORM and raw_schemas.has_files(_body_schema(content[key], raw_schemas)):
        return 3 + len(_PREFERENCE), 0  # a form cannot carry them
    if kind.endswith(_OPAQUE):
        return _LAST_RANK, 0
    if kind in _PREFERENCE:
        return 3 + _PREFERENCE.index(kind), 0
    return 3 + len(_PREFERENCE), 0 if kind.endswith("+xml") or kind.startswith("text/") else 1


def _patch_rank(kind: str, media: object, raw_schemas: RawSchemas, method: str) -> int:
    if method != "PATCH" or kind not in _PATCHES:
        return 1
    steps = raw_schemas.kind(_body_schema(media, raw_schemas)) == "array"
    return 0 if (kind == _PATCHES[1]) == steps else 2


def _body_schema(media: object, raw_schemas: RawSchemas) -> Any:
    return mapping(raw_schemas.resolve(media)).get("schema", {})


def concrete(key: str, schema: object, raw_schemas: RawSchemas) -> str:
    """The media type for `key`: a range such as `*/*` becomes the best fit for this schema."""
    kind = essence(key)
    if kind in ("*/*", "application/*"):
        return key if raw_schemas.kind(schema) == "string" else "application/json"
    return {"text/*": "text/plain", "multipart/*": "multipart/form-data"}.get(kind, key)


_STYLES: tuple[Style, ...] = (
    "form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject",
)  # fmt: skip
_FILE_PROPERTY = "file"
_UNCONSTRAINING = frozenset({"type", "title", "description", "deprecated", "example", "x-toolgate"})
_STYLED = ("style", "explode", "allowReserved")
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
        stated = any(key in encoding for key in _STYLED)
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


def file_schema(converted: dict[str, Any], many: bool = False) -> dict[str, Any]:
    """Schema of an argument that is a file, or a list of files; `converted` is the schema of its
    value in the description."""
    own = text(converted.get("description"))
    kept: dict[str, Any] = {}
    kept |= {key: converted[key] for key in ("title", "deprecated") if key in converted}
    if many:
        for key in ("minItems", "maxItems"):
            if key in converted:
                kept[key] = converted[key]
        described = {"description": own} if own else {}
        return {"type": "array", "items": _ONE, **kept, **described}
    return {**_ONE, **kept, "description": f"{own}\n\n{FILE}" if own else FILE}


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


_DEPTH_LIMIT = 32  # nested inline schemas, `$ref` not counted
TYPES_LIMIT = 500  # per body
_NO_XML = Xml()
_PREFIX = re.compile(r"[^\W\d][\w.-]*")  # an XML name without a colon


class XmlBodies:
    """Reads the XML bodies of one document; each type is read once."""

    def __init__(self, document: OpenApiDocument, raw_schemas: RawSchemas) -> None:
        self._document = document
        self._raw_schemas = raw_schemas
        self._names: dict[str, str] = {}  # pointer -> type name
        self._used_names: set[str] = set()
        self._types: dict[str, tuple[Xml, tuple[str, ...]]] = {}  # pointer -> types that it uses
        self._uses: dict[str, None] = {}  # types used by the schema being read

    def read(self, raw: object) -> tuple[Xml, dict[str, Xml]]:
        """The root, and the types that it uses, by name. Raises `SkipOperation` for too many."""
        root, pointers = self._read_schema(raw)
        if root.type is not None and root.name is None:
            root = Xml(type=root.type, name=self._root_name(raw, root.type))
        reached: dict[str, Xml] = {}
        queue = list(pointers)
        while queue:
            pointer = queue.pop()
            if pointer not in reached:
                reached[pointer], uses = self._of_type(pointer)
                queue.extend(uses)
            if len(reached) > TYPES_LIMIT:
                raise SkipOperation(f"its XML is made of more than {TYPES_LIMIT} types")
        types = {self._names[pointer]: xml for pointer, xml in reached.items() if xml != _NO_XML}
        return root, types

    def _of_type(self, pointer: str) -> tuple[Xml, tuple[str, ...]]:
        if pointer not in self._types:
            self._types[pointer] = self._read_schema(
                self._raw_schemas.resolve(reference_to(pointer))
            )
        return self._types[pointer]

    def _read_schema(self, raw: object) -> tuple[Xml, tuple[str, ...]]:
        self._uses = {}
        return self._of(raw, 0), tuple(self._uses)

    def _root_name(self, raw: object, otherwise: str) -> str:
        """Name of the root element: from its schema, else of the component."""
        own = (text(mapping(part.get("xml")).get("name")) for part in self._raw_schemas.parts(raw))
        return next((name for name in own if name), otherwise)

    def _of(self, raw: object, depth: int) -> Xml:
        if depth > _DEPTH_LIMIT:
            raise SkipOperation(
                f"the schemas of its XML are nested deeper than {_DEPTH_LIMIT} levels"
            )
        schema = mapping(raw)
        xml_object = mapping(schema.get("xml"))
        ref = reference_of(schema)
        if ref is not None:
            return _xml_of(xml_object, type_=self._type(ref))
        properties = {
            name: xml
            for name, inner in self._raw_schemas.properties(schema).items()
            if (xml := self._of(inner, depth + 1)) != _NO_XML
        }
        for part in self._raw_schemas.parts(schema):
            xml_object = {**mapping(part.get("xml")), **xml_object}
        array = self._raw_schemas.kind(schema) == "array"
        items = self._of(self._raw_schemas.items(schema), depth + 1) if array else None
        return _xml_of(xml_object, properties, None if items == _NO_XML else items, array=array)

    def _type(self, ref: str) -> str | None:
        try:
            pointer = canonical(ref)
            self._document.find(ref)
        except SkipOperation:
            return None  # reported by the conversion of the schema
        self._uses[pointer] = None
        if pointer not in self._names:
            name = (segments(pointer) or ["root"])[-1]
            self._names[pointer] = pointer if name in self._used_names else name
            self._used_names.add(self._names[pointer])
        return self._names[pointer]


def _xml_of(
    xml_object: dict[str, Any],
    properties: dict[str, Xml] | None = None,
    items: Xml | None = None,
    type_: str | None = None,
    *,
    array: bool = False,
) -> Xml:
    node = xml_object.get("nodeType")  # 3.2, replaces `attribute` and `wrapped`
    return Xml(
        name=text(xml_object.get("name")) or None,
        namespace=text(xml_object.get("namespace")) or None,
        prefix=prefix if _PREFIX.fullmatch(prefix := text(xml_object.get("prefix"))) else None,
        attribute=xml_object.get("attribute") is True or node == "attribute",
        text=node in ("text", "cdata"),
        wrapped=xml_object.get("wrapped") is True or (array and node == "element"),
        properties=properties or {},
        items=items,
        type=type_,
    )


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
        wanted = (*([marked] if marked else ()), *self._wanted)
        key = preferred_media_type(content, self._raw_schemas, wanted, operation.method)
        if marked and essence(marked) != essence(key):
            notes.append(f"the media type {marked!r}, which is marked, is not described")
        return key

    def _payload(
        self, body: dict[str, Any], media_type: str, converted: ConvertedSchema, notes: list[str]
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
        known = payload.properties.keys()
        more = any(not example.keys() <= known for example in visible if isinstance(example, dict))
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


def _plain_object(converted: ConvertedSchema, schemas: Schemas) -> ConvertedSchema | None:
    """`converted`, or the target of its references, if it is an object of properties alone."""
    for _ in range(_HOPS):
        target = schemas.target(converted.schema)
        if target is None:
            break
        converted = target
    schema = converted.schema
    closed = schema.get("additionalProperties", {"not": {}}) == {"not": {}}
    flat = schema.keys() <= _PLAIN and schema.get("type", "object") == "object"
    return converted if flat and closed and "properties" in schema else None

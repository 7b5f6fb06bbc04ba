"""Parameter Objects (OpenAPI 3.1, section 4.8.12) and path templates.

Left out, because a model must not choose them: parameters that a security scheme fills, and headers
reserved by OpenAPI or HTTP.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, get_args

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.keyword_repair import ANNOTATIONS, VALUE_DEPTH_LIMIT
from registry.importers.openapi.old_keywords import modernise
from registry.importers.openapi.path_templates import reduce_variables, variables_of
from registry.importers.openapi.schema_components import Schemas
from registry.importers.openapi.schema_conversion import ConvertedSchema
from registry.importers.openapi.security import Identity, identity_of
from registry.importers.openapi.x_toolgate import ArgumentMarks, argument_marks
from registry.importers.plain_text import plain
from schemas.binding import Location, Style
from schemas.untrusted_json import mapping, nested_at_most, text

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2

# section 4.8.12.2: Accept, Content-Type and Authorization "SHALL be ignored"; the others frame the
# message or choose its receiver (RFC 9110, sections 7.2, 7.6.1, 8.4, 10.1; RFC 9112, section 6), or
# carry parameters described as cookies
_RESERVED_HEADERS = frozenset(
    {"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding"}
    | {"connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}
    | {"content-encoding", "cookie"}
)

_DELIMITED_STYLES: tuple[Style, ...] = ("spaceDelimited", "pipeDelimited", "tabDelimited")
_STYLES: dict[Location, tuple[Style, ...]] = {  # the first is the default
    "path": ("simple", "label", "matrix"),
    "query": ("form", *_DELIMITED_STYLES, "deepObject"),
    "querystring": ("form",),
    "header": ("simple",),
    "cookie": ("form", "cookie"),
}
# keywords that Swagger 2.0 has directly in the parameter
_SCHEMA_KEYWORDS = ("type", "format", "items", "enum", "default", "minimum", "maximum", "pattern")


@dataclass(frozen=True, slots=True)
class WireParameter:
    """One parameter as sent, and the schema of its argument."""

    name: str
    location: Location
    style: Style
    explode: bool
    required: bool
    schema: ConvertedSchema
    allow_reserved: bool = False
    media_type: str | None = None
    allow_empty: bool = False
    marks: ArgumentMarks | None = None


class Parameters:
    """Reads the parameters of operations; a Parameter Object is read once per document."""

    def __init__(
        self, document: OpenApiDocument, schemas: Schemas, secrets: frozenset[Identity]
    ) -> None:
        """`secrets` are filled by security schemes, never by callers."""
        self._document = document
        self._schemas = schemas
        self._secrets = secrets
        # by identity: the document keeps every object alive
        self._read: dict[int, _Read] = {}

    def of(
        self, item: dict[str, Any], operation: dict[str, Any], path: str, notes: list[str]
    ) -> tuple[list[WireParameter], str]:
        """The parameters of an operation, those of its path item overridden by (name, location),
        and its path with their names in it. Raises `SkipOperation` when a required one cannot be
        sent."""
        merged: dict[tuple[str, str], WireParameter] = {}
        for raw in self._objects(item, notes) + self._objects(operation, notes):
            if wire := self.read(raw, notes):
                merged[identity_of(wire.name, wire.location)] = wire
        path = reduce_variables(
            path, {wire.name for wire in merged.values() if wire.location == "path"}
        )
        return _fit_template(list(merged.values()), path, self._schemas, notes), path

    def read(self, raw: dict[str, Any], notes: list[str]) -> WireParameter | None:
        """One Parameter Object; None if callers do not set it. Raises `SkipOperation`."""
        wire, problems = self._wire(raw)
        notes.extend(problems)
        return wire

    def _objects(self, holder: dict[str, Any], notes: list[str]) -> list[dict[str, Any]]:
        stated = holder.get("parameters")
        if isinstance(stated, list):
            return [self._document.resolve(raw) for raw in stated]
        if stated is not None:
            notes.append("`parameters` is not a list; ignored")
        return []

    def _wire(self, raw: dict[str, Any]) -> tuple[WireParameter | None, tuple[str, ...]]:
        if id(raw) not in self._read:
            notes: list[str] = []
            self._read[id(raw)] = _Read(raw, self._convert(raw, notes), tuple(notes))
        reading = self._read[id(raw)]
        return reading.wire, reading.notes

    def _convert(self, raw: dict[str, Any], notes: list[str]) -> WireParameter | None:
        name: Any = raw.get("name")
        location: Any = raw.get("in")
        if (problem := _unsendable(name, location)) is not None:
            if raw.get("required") is True:
                raise SkipOperation(f"required {problem}")
            notes.append(f"{problem}; left out")
            return None
        if identity_of(name, location) in self._secrets or _is_reserved(name, location):
            return None
        media_type, schema = self._schema(raw, notes)
        style, explode = self._style(raw, location, notes)
        allow_empty = location == "query" and raw.get("allowEmptyValue") is True
        required = location == "path" or raw.get("required") is True
        converted = self._add_description(raw, self._schemas.convert(schema))
        if required and media_type is None and not allow_empty:
            converted = self._with_an_item(converted)
        return WireParameter(
            name=name,
            location=location,
            style=style,
            explode=explode,
            required=required,
            schema=_or_empty(converted) if allow_empty else converted,
            allow_reserved=self._reserved_pass(location) and raw.get("allowReserved") is True,
            media_type=media_type,
            allow_empty=allow_empty,
            marks=argument_marks(raw),
        )

    def _style(
        self, raw: dict[str, Any], location: Location, notes: list[str]
    ) -> tuple[Style, bool]:
        """Style and explode, stated or by default: 4.8.12.2."""
        legal = _STYLES[location]
        if self._document.version == (2, 0) and location in ("path", "header"):
            legal = (*legal, *_DELIMITED_STYLES)  # `collectionFormat` applies to any location
        style = raw.get("style", legal[0])
        if style not in legal:
            notes.append(f"parameter {raw['name']}: style {style!r} is not for a {location}")
            style = legal[0]
        explode = raw.get("explode")
        return style, explode if isinstance(explode, bool) else style in ("form", "cookie")

    def _reserved_pass(self, location: Location) -> bool:
        """Whether `allowReserved` applies: until 3.2 in the query only."""
        later = self._document.version >= (3, 2)
        return location == "query" or (later and location == "path")

    def _schema(self, raw: dict[str, Any], notes: list[str]) -> tuple[str | None, object]:
        """(media type, schema); the media type only of a `content` parameter."""
        for media_type, media in mapping(raw.get("content")).items():
            return media_type, self._document.resolve(media).get("schema", {})
        if "schema" in raw:
            return None, raw["schema"]
        notes.append(f"parameter {raw['name']} has no schema")
        return None, {key: raw[key] for key in _SCHEMA_KEYWORDS if key in raw}

    def _with_an_item(self, conversion: ConvertedSchema) -> ConvertedSchema:
        """The schema of a required list with at least one item: an empty one sends nothing."""
        bare = {key: value for key, value in conversion.schema.items() if key not in ANNOTATIONS}
        schema = (self._schemas.target(bare) or conversion).schema
        if schema.get("type") != "array" or schema.get("minItems", 0) > 0:
            return conversion
        return replace(conversion, schema={**conversion.schema, "minItems": 1})

    def _add_description(self, raw: dict[str, Any], conversion: ConvertedSchema) -> ConvertedSchema:
        """The schema with the description, deprecation and examples of the parameter."""
        schema = dict(conversion.schema)
        parameter_text, inner = plain(text(raw.get("description"))), text(schema.get("description"))
        if parameter_text:
            schema["description"] = (
                parameter_text if inner in parameter_text else f"{parameter_text}\n\n{inner}"
            )
        if raw.get("deprecated") is True:
            schema["deprecated"] = True
        if "examples" not in schema and (examples := stated_examples(raw, self._document)):
            schema["examples"] = examples
        return replace(conversion, schema=schema)


def stated_examples(holder: dict[str, Any], document: OpenApiDocument) -> list[Any]:
    """The values of `example` and `examples` of a parameter or media type."""
    stated = [holder["example"]] if "example" in holder else []
    for example in mapping(holder.get("examples")).values():
        try:
            stated += [document.resolve(example)["value"]]
        except (SkipOperation, KeyError):
            continue  # a bad example must not cost the operation
    return [value for value in stated if nested_at_most(value, VALUE_DEPTH_LIMIT)]


@dataclass(frozen=True, slots=True)
class _Read:
    """Result of reading a Parameter Object; holding `raw` keeps its `id` unique."""

    raw: dict[str, Any]
    wire: WireParameter | None
    notes: tuple[str, ...]


def _is_reserved(name: str, location: str) -> bool:
    return location == "header" and name.lower() in _RESERVED_HEADERS


def _unsendable(name: object, location: object) -> str | None:
    if not isinstance(name, str) or not name:
        return "parameter without a name"
    if location not in get_args(Location):
        return f"parameter {name}: `in` is {str(location)[:40]!r}"
    if location in ("header", "cookie") and not _TOKEN.fullmatch(name):
        return f"parameter {name!r}: no legal name in a {location}"
    return None


def _or_empty(schema: ConvertedSchema) -> ConvertedSchema:
    """The schema with null, sent as `name=`."""
    return replace(schema, schema=modernise({**schema.schema, "nullable": True}))


def _fit_template(
    wires: list[WireParameter], path: str, schemas: Schemas, notes: list[str]
) -> list[WireParameter]:
    """Match path parameters to template variables: exactly one for each."""
    variables = list(dict.fromkeys(variables_of(path)))
    usable = []
    for wire in wires:
        if wire.location == "path" and wire.name not in variables:
            notes.append(f"parameter {wire.name} is not in the path; left out")
        else:
            usable.append(wire)
    declared = {wire.name for wire in usable if wire.location == "path"}
    undeclared = [name for name in variables if name not in declared]
    notes.extend(f"parameter {name} is in the path, but not described" for name in undeclared)
    if not undeclared:
        return usable
    plain = schemas.convert({"type": "string"})
    return usable + [
        WireParameter(name, "path", "simple", False, required=True, schema=plain)
        for name in undeclared
    ]

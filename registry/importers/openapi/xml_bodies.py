"""Request bodies of XML: the element, attribute and namespace of each property."""

import re
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, canonical
from registry.importers.openapi.raw_schema_facts import RawSchemas
from schemas.binding import Xml
from schemas.json_schema.pointers import segments
from schemas.json_schema.references import reference_of, reference_to
from schemas.untrusted_json import mapping, text

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
        xml_names = (
            text(mapping(part.get("xml")).get("name")) for part in self._raw_schemas.parts(raw)
        )
        return next((name for name in xml_names if name), otherwise)

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

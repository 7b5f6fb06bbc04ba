"""XML Objects (OpenAPI 3.1, section 4.8.26; 3.2, section 4.26) to what writes a body as XML."""

import re
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, canonical, segments
from registry.importers.openapi.members import Members
from registry.importers.openapi.values import mapping, text
from schemas.binding import Xml

_DEPTH_LIMIT = 32  # of schemas inside schemas, references aside
TYPES_LIMIT = 500  # of one body
_NO_XML = Xml()
_PREFIX = re.compile(r"[^\W\d][\w.-]*")  # a part of what XML names may be


class XmlBodies:
    """Reads the bodies of one document; a type is read once."""

    def __init__(self, document: OpenApiDocument, members: Members) -> None:
        self._document = document
        self._members = members
        self._names: dict[str, str] = {}  # pointer -> name of the type
        self._named: set[str] = set()
        self._types: dict[str, tuple[Xml, tuple[str, ...]]] = {}  # pointer -> what it uses
        self._uses: dict[str, None] = {}  # of what is being read

    def read(self, raw: object) -> tuple[Xml, dict[str, Xml]]:
        """The root, and by name the types that it is made of. Raises `SkipOperation` for too
        many."""
        root, waiting = self._reading(raw)
        if root.type is not None and root.name is None:
            root = Xml(type=root.type, name=self._root_name(raw, root.type))
        reached: dict[str, Xml] = {}
        queue = list(waiting)
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
            self._types[pointer] = self._reading(self._members.resolved({"$ref": pointer}))
        return self._types[pointer]

    def _reading(self, raw: object) -> tuple[Xml, tuple[str, ...]]:
        self._uses = {}
        return self._of(raw, 0), tuple(self._uses)

    def _root_name(self, raw: object, otherwise: str) -> str:
        """A root is called as its schema says, else as the component is."""
        own = (text(mapping(part.get("xml")).get("name")) for part in self._members.parts(raw))
        return next((name for name in own if name), otherwise)

    def _of(self, raw: object, depth: int) -> Xml:
        if depth > _DEPTH_LIMIT:
            raise SkipOperation(
                f"the schemas of its XML are nested deeper than {_DEPTH_LIMIT} levels"
            )
        schema = mapping(raw)
        said = mapping(schema.get("xml"))
        ref = schema.get("$ref")
        if isinstance(ref, str):
            return _said(said, type_=self._type(ref))
        properties = {
            name: xml
            for name, inner in self._members.properties(schema).items()
            if (xml := self._of(inner, depth + 1)) != _NO_XML
        }
        for part in self._members.parts(schema):
            said = {**mapping(part.get("xml")), **said}
        array = self._members.kind(schema) == "array"
        items = self._of(self._members.items(schema), depth + 1) if array else None
        return _said(said, properties, None if items == _NO_XML else items, array=array)

    def _type(self, ref: str) -> str | None:
        try:
            pointer = canonical(ref)
            self._document.find(ref)
        except SkipOperation:
            return None  # reported where the schema is converted
        self._uses[pointer] = None
        if pointer not in self._names:
            name = (segments(pointer) or ["root"])[-1]
            self._names[pointer] = pointer if name in self._named else name
            self._named.add(self._names[pointer])
        return self._names[pointer]


def _said(
    said: dict[str, Any],
    properties: dict[str, Xml] | None = None,
    items: Xml | None = None,
    type_: str | None = None,
    array: bool = False,
) -> Xml:
    node = said.get("nodeType")  # 3.2, in place of `attribute` and `wrapped`
    return Xml(
        name=text(said.get("name")) or None,
        namespace=text(said.get("namespace")) or None,
        prefix=prefix if _PREFIX.fullmatch(prefix := text(said.get("prefix"))) else None,
        attribute=said.get("attribute") is True or node == "attribute",
        text=node in ("text", "cdata"),
        wrapped=said.get("wrapped") is True or (array and node == "element"),
        properties=properties or {},
        items=items,
        type=type_,
    )

"""Schemas of a document, whose components are converted once and named anew."""

import re
from collections.abc import Iterable
from typing import Any

from registry.importers.openapi.discriminators import Discriminators
from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.raw_schema_facts import Flag, Visibility
from registry.importers.openapi.schema_budgets import DEFINITIONS_LIMIT, SizeBudget
from registry.importers.openapi.schema_conversion import (
    ConvertedSchema,
    ReferenceTarget,
    SchemaParts,
    Tree,
)
from registry.importers.openapi.schema_cycles import Cycles
from registry.names.tool_names import add_suffix, legal
from schemas.json_schema.pointers import segments
from schemas.json_schema.references import definition_name, is_bare_reference
from schemas.json_schema.validators import compiled_as_2020
from schemas.jsonrpc import encode

_ILLEGAL_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")  # 3.1, section 4.8.7: component names


class Schemas:
    """The converted schemas of one document, for requests or for responses."""

    def __init__(
        self, document: OpenApiDocument, left_out: Flag = "readOnly", cycles: Cycles | None = None
    ) -> None:
        """`cycles` are those of the document, if computed already."""
        self.document = document
        self.cycles = cycles or Cycles(document)
        self.visibility = Visibility(document, left_out)
        self.discriminators = Discriminators(document)
        self.overlapping = left_out == "readOnly"
        self._converted: dict[ReferenceTarget, ConvertedSchema | str] = {}  # or the error
        self._names: dict[ReferenceTarget, str] = {}
        self._named: dict[str, ReferenceTarget] = {}
        self._sizes: dict[ReferenceTarget, int | str] = {}  # or the error

    def convert(self, raw: object) -> ConvertedSchema:
        """Convert an inline schema. Raises `SkipOperation`."""
        return Tree(self, None).convert(raw)

    def component(self, component: ReferenceTarget) -> ConvertedSchema:
        """Convert a component. Raises `SkipOperation`, on each call."""
        if component not in self._converted:
            try:
                raw = self.document.find(component.pointer)
                self._converted[component] = Tree(self, component).convert(raw)
            except SkipOperation as skip:
                self._converted[component] = str(skip)
        converted = self._converted[component]
        if isinstance(converted, str):
            raise SkipOperation(converted)
        return converted

    def target(self, schema: dict[str, Any]) -> ConvertedSchema | None:
        """The target of a converted schema that is only a `$ref`; else None."""
        if not is_bare_reference(schema):
            return None
        return self.component(self._named[definition_name(schema)])

    def definitions(self, parts: SchemaParts, room: SizeBudget) -> dict[str, Any]:
        """`$defs` for `parts`: all reachable components, by name. Adds their notes. Raises
        `SkipOperation` for an invalid one, or when `room` is exhausted."""
        reached: dict[str, ConvertedSchema] = {}
        queue = list(parts.uses)
        while queue:
            if len(reached) > DEFINITIONS_LIMIT:
                raise SkipOperation(f"its arguments need more than {DEFINITIONS_LIMIT:,} schemas")
            component = queue.pop()
            name = self.name(component)
            if name not in reached:
                room.take(self._size(component))
                reached[name] = self.component(component)
                queue.extend(reached[name].uses)
        for name in sorted(reached):
            parts.notes.extend(f"{name}{note}" for note in reached[name].notes)
        return {name: reached[name].schema for name in sorted(reached)}

    def check_compiles(self, schema: dict[str, Any], uses: Iterable[ReferenceTarget]) -> None:
        """Raises `SkipOperation` for a schema that does not compile. Referenced components are
        checked separately, each once."""
        try:
            compiled_as_2020({**schema, "$defs": {self.name(use): True for use in uses}})
        except ValueError as error:
            problem = str(error).partition("\n")[0]
            raise SkipOperation(f"its input schema cannot be compiled: {problem}") from error

    def _size(self, component: ReferenceTarget) -> int:
        """Size of a component, in bytes of JSON. Raises `SkipOperation` if it does not compile."""
        if component not in self._sizes:
            converted = self.component(component)
            try:
                self.check_compiles(converted.schema, converted.uses)
                self._sizes[component] = len(encode(converted.schema))
            except SkipOperation as skip:
                self._sizes[component] = str(skip)
        size = self._sizes[component]
        if isinstance(size, str):
            raise SkipOperation(size)
        return size

    def name(self, component: ReferenceTarget) -> str:
        """The unique name in `$defs`: `Pet` for `#/components/schemas/Pet`; others get a hash."""
        if component not in self._names:
            self._names[component] = self._new_name(component)
            self._named[self._names[component]] = component
        return self._names[component]

    def _new_name(self, component: ReferenceTarget) -> str:
        *_, last = segments(component.pointer) or ["root"]
        name = legal(last, _ILLEGAL_IN_NAMES)
        if self.document.schema_name(component.pointer) == name and component.choices:
            return name
        return add_suffix(name or "schema", f"{component.pointer} {component.choices}")

"""Schema Objects to standalone JSON Schema 2020-12: `$ref` becomes `#/$defs/Name`.

A component is converted once per document, without following its references, and cached with the
components that it uses; a tool's `$defs` are those reachable from its arguments. References are not
expanded, so cycles stay cycles and size stays linear.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, segments
from registry.importers.openapi.schema_tree import Converted, Cycles, ReferenceTarget, Tree
from registry.importers.openapi.visibility import Flag, Visibility
from registry.names.tool_names import legal, suffixed
from schemas.jsonrpc import encode
from schemas.validators import compiled_as_2020

# Kubernetes' largest request body needs 134. Models read far fewer, and a document with thousands
# of such operations would exceed memory.
DEFINITIONS_LIMIT = 2_000

_ILLEGAL_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")  # 3.1, section 4.8.7: component names


@dataclass(slots=True)
class SchemaParts:
    """Dependencies of one tool's schemas, and notes."""

    uses: list[ReferenceTarget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, converted: Converted, where: str) -> dict[str, Any]:
        """Record the dependencies of `converted`; returns its schema."""
        self.uses.extend(converted.uses)
        self.notes.extend(f"{where}{note}" for note in converted.notes)
        return converted.schema


class SizeBudget:
    """Size budget of all input schemas of one description. A shared schema counts for each
    operation that refers to it: a description of a megabyte can expand to gigabytes."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes: `imports.schemas_limit_bytes`."""
        self._limit = limit
        self._left = limit

    def take(self, size: int) -> None:
        """Use up `size` bytes. Raises `SkipOperation` when the budget is exhausted, and from then
        on."""
        self._left -= size
        if self._left < 0:
            raise SkipOperation(
                f"the input schemas of this description are larger than {self._limit:,} bytes "
                "together (setting imports.schemas_limit_bytes)"
            )


class Schemas:
    """The converted schemas of one document, for requests or for responses."""

    def __init__(
        self, document: OpenApiDocument, left_out: Flag = "readOnly", cycles: Cycles | None = None
    ) -> None:
        """`cycles` are those of the document, if computed already."""
        self.document = document
        self.cycles = cycles or Cycles(document)
        self.visibility = Visibility(document, left_out)
        self._converted: dict[ReferenceTarget, Converted | str] = {}  # or the error
        self._names: dict[ReferenceTarget, str] = {}
        self._named: dict[str, ReferenceTarget] = {}
        self._sizes: dict[ReferenceTarget, int | str] = {}  # or the error

    def convert(self, raw: object) -> Converted:
        """Convert an inline schema. Raises `SkipOperation`."""
        return Tree(self, None).convert(raw)

    def component(self, component: ReferenceTarget) -> Converted:
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

    def target(self, schema: dict[str, Any]) -> Converted | None:
        """The target of a converted schema that is only a `$ref`; else None."""
        if schema.keys() != {"$ref"}:
            return None
        return self.component(self._named[schema["$ref"].removeprefix("#/$defs/")])

    def definitions(self, parts: SchemaParts, room: SizeBudget) -> dict[str, Any]:
        """`$defs` for `parts`: all reachable components, by name. Adds their notes. Raises
        `SkipOperation` for an invalid one, or when `room` is exhausted."""
        reached: dict[str, Converted] = {}
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

    def vouch(self, schema: dict[str, Any], uses: Iterable[ReferenceTarget]) -> None:
        """Raises `SkipOperation` for a schema that does not compile. Referenced components are
        checked separately, each once."""
        try:
            compiled_as_2020({**schema, "$defs": {self.name(one): True for one in uses}})
        except ValueError as error:
            problem = str(error).partition("\n")[0]
            raise SkipOperation(f"its input schema cannot be compiled: {problem}") from error

    def _size(self, component: ReferenceTarget) -> int:
        """Size of a component, in bytes of JSON. Raises `SkipOperation` if it does not compile."""
        if component not in self._sizes:
            converted = self.component(component)
            try:
                self.vouch(converted.schema, converted.uses)
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
        return suffixed(name or "schema", f"{component.pointer} {component.choices}")

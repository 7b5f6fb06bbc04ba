"""Schema Objects to standalone JSON Schema 2020-12: `$ref` becomes `#/$defs/Name`.

A component is converted once per document, without following its references, and cached with the
components that it uses; a tool's `$defs` are those reachable from its arguments. References are not
expanded, so cycles stay cycles and size stays linear.

A single schema is read as stated in OpenAPI 3.0 (4.7.24, an extended subset of the Wright draft 00)
and drafts 4 to 7, in 3.1 documents as well: many were converted by changing the version only.

Cycles: `Node -> properties -> children -> Node` ends with the data. `Pet -> oneOf -> Cat -> allOf
-> Pet`, the usual way to write a base class with a discriminator, never ends: jsonschema overflows
its stack there. Components and the references *in place* between them form a graph; a reference
inside a strongly connected component of it is cyclic.

Legal keywords are kept, broken ones dropped or repaired with a note, and `readOnly` properties left
out. Order is kept: models read it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol
from urllib.parse import unquote

from registry.importers.openapi.document import (
    MissingReference,
    OpenApiDocument,
    SkipOperation,
    canonical,
)
from registry.importers.openapi.keyword_repair import (
    ABSENT,
    ANNOTATIONS,
    CHECKS,
    QUOTED_BOOLEANS,
    compiles,
)
from registry.importers.openapi.raw_schema_facts import Flag, RawSchemas, Visibility
from registry.names.tool_names import add_suffix, legal
from schemas.json_schema.keywords import (
    COMPOSITIONS,
    CONDITIONS,
    DEFINITION_KEYWORDS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    SCHEMA_KEYWORDS,
    UNIONS,
)
from schemas.json_schema.pointers import segments
from schemas.json_schema.references import (
    definition_name,
    is_bare_reference,
    refer_to,
    reference_of,
)
from schemas.json_schema.validators import compiled_as_2020
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import encode
from schemas.untrusted_json import mapping, sequence, text

_COMPOSITION = frozenset({"$ref", *COMPOSITIONS, "not", "if"})
_ANNOTATIONS = frozenset({"title", "description", "default", "example", "examples", "deprecated"})
_MARKERS = frozenset(
    {"nullable", "exclusiveMinimum", "exclusiveMaximum", "example", "dependencies", "items"}
    | {"x-nullable"}  # Swagger 2.0 has no `nullable`
)


def modernise(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert old keywords; returns `schema` itself if it has none. Subschemas are unchanged."""
    if _MARKERS.isdisjoint(schema):
        return schema
    modern = dict(schema)
    _convert_bound(modern, "maximum", "exclusiveMaximum")
    _convert_bound(modern, "minimum", "exclusiveMinimum")
    _example(modern)
    _tuple(modern)
    _dependencies(modern)
    stated = modern.pop("nullable", None), modern.pop("x-nullable", None)
    return _nullable(modern) if True in stated else modern


def _convert_bound(schema: dict[str, Any], limit: str, exclusive: str) -> None:
    """Draft 4: `maximum: 5, exclusiveMaximum: true` is `exclusiveMaximum: 5`."""
    flag = schema.get(exclusive)
    if isinstance(flag, bool):
        del schema[exclusive]
        if flag and limit in schema:
            schema[exclusive] = schema.pop(limit)


def _example(schema: dict[str, Any]) -> None:
    if "example" in schema:
        example = schema.pop("example")
        schema.setdefault("examples", [example])


def _tuple(schema: dict[str, Any]) -> None:
    """Up to 2019-09, `items` could be a list, one schema per position."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")


def _dependencies(schema: dict[str, Any]) -> None:
    """Up to draft 7, one keyword for property names and schemas."""
    dependencies = schema.pop("dependencies", None)
    if isinstance(dependencies, dict):
        names = {key: value for key, value in dependencies.items() if isinstance(value, list)}
        schemas = {key: value for key, value in dependencies.items() if key not in names}
        schema.update({"dependentRequired": names} if names else {})
        schema.update({"dependentSchemas": schemas} if schemas else {})


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """3.0's `nullable`, read as meant: beside `enum` and `$ref` it is often written alone, where
    3.0.3 would give it no effect. Accepting null too much costs a 400, too little a call."""
    if not _COMPOSITION.isdisjoint(schema):
        return _or_null(schema)
    if isinstance(schema.get("type"), str | list):
        stated = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        schema["type"] = stated if "null" in stated else [*stated, "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    if "const" in schema:
        schema["enum"] = [schema.pop("const"), None]
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    outer = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
    return {"anyOf": [inner, {"type": "null"}], **outer}


DEPTH_LIMIT = 64  # levels; operations with deeper schemas are rejected

# How a subschema applies to the same value: always, or as one of several choices.
Place = Literal["always", "choice"]
Turn = Literal["follow", "without_choices", "cut"]

_IN_PLACE = (*COMPOSITIONS, "not", *CONDITIONS, "dependentSchemas")


class Cycles:
    """Decides for each reference between components how to follow it, so that validation
    terminates."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._edges: dict[str, tuple[tuple[str, Place], ...]] = {}
        self._any = Groups(lambda node: [to for to, _ in self._references(node)])
        self._always = Groups(lambda node: self._to(node, "always"))
        self._choice = Groups(lambda node: self._to(node, "choice"))

    def turn(self, origin: str, target: str, place: Place) -> Turn:
        """A child that includes its base (`allOf`) needs the base without its choice of children.
        References that still form a cycle, by inclusion only or by choice only, add no constraint:
        cut."""
        if origin == target:
            return "cut"
        if place == "choice":
            return "cut" if self._choice.together(origin, target) else "follow"
        if self._always.together(origin, target):
            return "cut"
        return "without_choices" if self._any.together(origin, target) else "follow"

    def _to(self, node: str, wanted: Place) -> list[str]:
        return [target for target, place in self._references(node) if place == wanted]

    def _references(self, pointer: str) -> tuple[tuple[str, Place], ...]:
        if pointer not in self._edges:
            try:
                schema = self._document.find(pointer)
            except SkipOperation:
                schema = None  # reported by the conversion of the reference
            self._edges[pointer] = tuple(_in_place(schema, "always", 0))
        return self._edges[pointer]


def _in_place(raw: object, place: Place, depth: int) -> Iterator[tuple[str, Place]]:
    if depth > DEPTH_LIMIT:
        return
    schema = modernise(mapping(raw))
    ref = reference_of(schema)
    if ref is not None and ref.startswith("#"):
        yield canonical(ref), place
    for keyword, branch in _branches(schema):
        chosen = keyword in UNIONS
        yield from _in_place(branch, "choice" if chosen else place, depth + 1)


def _branches(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in _IN_PLACE:
        for branch in subschemas(schema, [keyword]):
            yield keyword, branch


class Groups:
    """Strongly connected components of a graph, computed lazily (Tarjan, SIAM J. Comput. 1972).
    Iterative; all queries together cost one pass over the graph."""

    def __init__(self, successors: Callable[[str], Collection[str]]) -> None:
        self._successors = successors
        self._number: dict[str, int] = {}  # order of discovery
        self._low: dict[str, int] = {}  # lowest number reachable
        self._group: dict[str, int] = {}
        self._open: list[str] = []  # discovered, component unknown yet

    def together(self, one: str, other: str) -> bool:
        """Whether both are in the same component."""
        for node in (one, other):
            if node not in self._group:
                self._explore(node)
        return self._group[one] == self._group[other]

    def _explore(self, root: str) -> None:
        path = [(root, self._enter(root))]
        while path:
            node, successors = path[-1]
            for successor in successors:
                if successor not in self._number:
                    path.append((successor, self._enter(successor)))
                    break
                if successor not in self._group:
                    self._low[node] = min(self._low[node], self._number[successor])
            else:
                path.pop()
                self._leave(node, path[-1][0] if path else None)

    def _enter(self, node: str) -> Iterator[str]:
        self._number[node] = self._low[node] = len(self._number)
        self._open.append(node)
        return iter(self._successors(node))

    def _leave(self, node: str, parent: str | None) -> None:
        if parent is not None:
            self._low[parent] = min(self._low[parent], self._low[node])
        if self._low[node] == self._number[node]:
            while self._open and node not in self._group:
                self._group[self._open.pop()] = self._number[node]


# The first two are converted, the third constrains nothing, and definitions are components.
_NESTED = SCHEMA_KEYWORDS - {
    "additionalItems", "dependencies", "contentSchema", *DEFINITION_KEYWORDS
}  # fmt: skip
_DYNAMIC = ("$dynamicRef", "$recursiveRef")  # resolved by the path that validation took
_SCALARS = ("string", "number", "integer", "boolean", "null")
_OF_ARRAYS = ("uniqueItems", "minItems", "maxItems")  # without effect on other types
_NOTES_LIMIT = 20  # per schema; a person reads the first


@dataclass(frozen=True, slots=True)
class ReferenceTarget:
    """A schema that is a reference target."""

    pointer: str
    choices: bool = True  # False: without the `anyOf` and `oneOf` that made it recursive


@dataclass(frozen=True, slots=True)
class ConvertedSchema:
    schema: dict[str, Any]
    uses: tuple[ReferenceTarget, ...]
    notes: tuple[str, ...]  # each begins with its location: "/properties/age: ..."


@dataclass(frozen=True, slots=True)
class _At:
    """Position in the tree: depth, application to the root's value, hidden names."""

    depth: int = 0
    place: Place | None = "always"  # None: below, on another value
    hidden: frozenset[str] = frozenset()


class Names(Protocol):
    """Interface of the document's schemas that a tree needs."""

    document: OpenApiDocument
    cycles: Cycles
    visibility: Visibility
    discriminators: "Discriminators"
    overlapping: bool  # whether `oneOf` may match several branches

    def name(self, component: ReferenceTarget) -> str: ...


class Tree:
    """One conversion. `origin` is the component being converted, if it is one."""

    def __init__(self, names: Names, origin: ReferenceTarget | None) -> None:
        self._names = names
        self._origin = origin
        self._path: list[str] = []
        self._uses: dict[ReferenceTarget, None] = {}
        self._notes: list[str] = []

    def convert(self, raw: object) -> ConvertedSchema:
        schema = self._schema(raw, _At())
        return ConvertedSchema(schema, tuple(self._uses), tuple(self._notes))

    def _schema(self, raw: object, at: _At) -> dict[str, Any]:
        if at.depth > DEPTH_LIMIT:
            raise SkipOperation(f"schemas are nested deeper than {DEPTH_LIMIT} levels")
        if isinstance(raw, str) and raw in QUOTED_BOOLEANS:
            raw = QUOTED_BOOLEANS[raw]
        if isinstance(raw, bool):
            return {} if raw else {"not": {}}
        if not isinstance(raw, dict):
            self._note("is not a schema; any value is accepted")
            return {}
        if not raw.keys().isdisjoint(("properties", "required", "allOf")):
            at = replace(at, hidden=at.hidden | self._names.visibility.names(raw))
        schema = modernise(raw)
        if "$ref" in schema:
            return self._reference(schema, at)
        return self._keywords(schema, at)

    def _reference(self, schema: dict[str, Any], at: _At) -> dict[str, Any]:
        ref = schema["$ref"]
        # 3.0 ignores siblings of a $ref; descriptions there are meant to be read
        old = self._names.document.old_schemas
        beside = {k: v for k, v in schema.items() if k != "$ref" and (k in ANNOTATIONS or not old)}
        siblings = self._keywords(beside, at)
        try:
            component = self._component(ref, at)
        except MissingReference as missing:
            self._note(f"{missing}; any value is accepted")
            return siblings
        if component is None:
            return siblings
        self._uses[component] = None
        return {**refer_to(self._names.name(component)), **siblings}

    def _component(self, ref: object, at: _At) -> ReferenceTarget | None:
        """The target of `ref`; None when following it would never end."""
        if not isinstance(ref, str):
            raise MissingReference("$ref is not text")
        pointer = canonical(ref)
        self._names.document.find(ref)
        if self._origin is None or at.place is None:
            return ReferenceTarget(pointer)
        turn = self._names.cycles.turn(self._origin.pointer, pointer, at.place)
        if turn == "cut":
            self._note(f"$ref {ref!r} applies the schema to itself; dropped")
            return None
        return ReferenceTarget(pointer, choices=turn == "follow")

    def _keywords(self, schema: dict[str, Any], at: _At) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in schema.items():
            if key in CHECKS:
                checked, problem = CHECKS[key](value)
                if problem:
                    self._note(f"`{key}` {problem}")
            elif key in _NESTED and not self._drops(key, at):
                checked = self._convert_nested(key, value, at)
                if key in UNIONS and checked is not ABSENT and "discriminator" in schema:
                    checked = self._add_discriminator(schema["discriminator"], value, checked)
            else:
                if key in _DYNAMIC:
                    self._note(f"`{key}` is not followed; any value is accepted")
                continue
            if checked is not ABSENT:
                out[key] = checked
        if self._names.overlapping and "oneOf" in out and _NEGATIONS.isdisjoint(self._path):
            out = _as_any_of(out)
        return self._tidy(out, at)

    def _add_discriminator(
        self, stated: object, raw: list[Any], branches: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """`branches` with the values of the discriminator that select each."""
        name = text(mapping(stated).get("propertyName"))
        values = self._names.discriminators.values(mapping(stated), raw) if name else {}
        return [
            _with_values(branch, name, values[index]) if index in values else branch
            for index, branch in enumerate(branches)
        ]

    def _drops(self, key: str, at: _At) -> bool:
        """Whether to drop the root's choices: the component was requested without them."""
        origin = self._origin
        return bool(origin and not origin.choices and at.place and key in UNIONS)

    def _convert_nested(self, key: str, value: object, at: _At) -> Any:
        inner = _At(at.depth + 1, None)
        if key in _IN_PLACE:
            chosen = at.place and key in UNIONS
            inner = _At(at.depth + 1, "choice" if chosen else at.place, at.hidden)
        with self._inside(key):
            if key in LIST_KEYWORDS:
                return self._list(value, inner)
            if key in MAP_KEYWORDS:
                return self._map(key, value, inner, at.hidden)
            return self._schema(value, inner)

    def _list(self, value: object, at: _At) -> Any:
        if not isinstance(value, list) or not value:
            self._note("is not a list of schemas; dropped")
            return ABSENT
        members = []
        for index, member in enumerate(value):
            with self._inside(str(index)):
                members.append(self._schema(member, at))
        return members

    def _map(self, key: str, value: object, at: _At, hidden: frozenset[str]) -> Any:
        if not isinstance(value, dict):
            self._note("is not an object of schemas; dropped")
            return ABSENT
        try:
            value = self._names.document.named_members(value)
        except SkipOperation as skip:
            self._note(f"{skip}; what it would add is missing")
            value = {name: member for name, member in value.items() if name != "$ref"}
        members = {}
        for name, member in value.items():
            if key == "properties" and name in hidden:
                continue
            with self._inside(name):
                if key == "patternProperties" and not compiles(name):
                    self._note("cannot be compiled; dropped")
                else:
                    members[name] = self._schema(member, at)
        return members

    def _tidy(self, out: dict[str, Any], at: _At) -> dict[str, Any]:
        """Clean-up that involves several keywords."""
        if at.hidden and "required" in out:
            out["required"] = [name for name in out["required"] if name not in at.hidden]
        if out.get("required") == []:
            del out["required"]
        if out.get("type") == "array" and out.keys().isdisjoint(("items", "prefixItems")):
            out["items"] = {}  # providers reject arrays without; 3.0 requires it
            if self._names.document.old_schemas:
                self._note("`items` is missing; any items are accepted")
        if out.get("type") == "string" and "enum" in out:
            self._enumerate_text(out)
        if out.get("type") in _SCALARS:
            for keyword in _OF_ARRAYS:  # Kubernetes sets `uniqueItems` on every parameter
                out.pop(keyword, None)
        return _flatten(out)

    def _enumerate_text(self, out: dict[str, Any]) -> None:
        """Quote enumerated values: unquoted in YAML, the texts 1 and true are a number and a
        boolean, which match no text."""
        if any(isinstance(value, int | float) for value in out["enum"]):
            out["enum"] = [_as_text(value) for value in out["enum"]]
            self._note("`enum` of a text lists numbers or booleans; read as text")

    @contextmanager
    def _inside(self, key: str) -> Iterator[None]:
        self._path.append(key)
        yield
        self._path.pop()

    def _note(self, problem: str) -> None:
        if len(self._notes) < _NOTES_LIMIT:
            self._notes.append("".join(f"/{part}" for part in self._path) + f": {problem}")


# a branch more in `not` or `if` makes a schema stricter
_NEGATIONS = frozenset({"not", "if"})


def _as_any_of(out: dict[str, Any]) -> dict[str, Any]:
    """`oneOf` as `anyOf`: branches of descriptions overlap more often than not, and the service
    decides which of them a body is."""
    if "anyOf" not in out:
        return {"anyOf" if key == "oneOf" else key: value for key, value in out.items()}
    rest = {key: value for key, value in out.items() if key != "oneOf"}
    return {**rest, "allOf": [*rest.get("allOf", ()), {"anyOf": out["oneOf"]}]}


def _with_values(branch: dict[str, Any], name: str, values: list[str]) -> dict[str, Any]:
    rule = {"const": values[0]} if len(values) == 1 else {"enum": values}
    properties = branch.get("properties", {})
    return {**branch, "properties": {**properties, name: {**properties.get(name, {}), **rule}}}


class Discriminators:
    """Reads Discriminator Objects (OpenAPI 3.1, section 4.8.25)."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._raw_schemas = RawSchemas(document)

    def values(self, discriminator: dict[str, Any], branches: list[Any]) -> dict[int, list[str]]:
        """The values that select each branch, by its index; left out are branches that state them
        themselves, and those that no value is known of."""
        name = str(discriminator["propertyName"])
        by_target: dict[str, list[str]] = {}
        for value, target in mapping(discriminator.get("mapping")).items():
            by_target.setdefault(_last_segment(str(target)), []).append(value)
        values: dict[int, list[str]] = {}
        for index, branch in enumerate(branches):
            target = _last_segment(reference_of(branch) or "")
            mapped = by_target.get(target, [])
            if target and (legal := self._legal(branch, name, mapped or [target], bool(mapped))):
                values[index] = legal
        return values

    def _legal(self, branch: Any, name: str, wanted: list[str], mapped: bool) -> list[str]:
        """Values of `wanted` that the branch's own schema of the property allows. Names of schemas
        are the values where nothing else is stated, and many descriptions rely on that unknowingly:
        any example, default or pattern of the property counts as a statement."""
        properties = self._raw_schemas.properties(branch)
        if name not in properties:
            closed = any(
                part.get("additionalProperties") is False
                for part in self._raw_schemas.parts(branch)
            )
            return wanted if mapped and not closed else []
        for part in self._raw_schemas.parts(properties[name]):
            if part.get("readOnly") is True or part.get("type", "string") != "string":
                return []
            if not mapped and not _STATEMENTS.isdisjoint(part):
                return []
            stated = [part["const"]] if "const" in part else sequence(part.get("enum")) or wanted
            wanted = [value for value in wanted if value in stated]
        return wanted


_STATEMENTS = frozenset({"const", "enum", "default", "example", "examples", "pattern", "format"})


def _last_segment(ref: str) -> str:
    """`Cat` for `#/components/schemas/Cat`, `cat.yaml#/Cat` and the bare name."""
    return unquote(ref.rpartition("/")[2].removeprefix("#")).replace("~1", "/").replace("~0", "~")


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _flatten(out: dict[str, Any]) -> dict[str, Any]:
    """`{allOf: [X]}` is X. Common in 3.0, where a `$ref` may have no siblings."""
    if len(out.get("allOf", ())) != 1 or not (out.keys() - {"allOf"}) <= ANNOTATIONS:
        return out
    [only] = out.pop("allOf")
    return {**only, **out}


# Kubernetes' largest request body needs 134. Models read far fewer, and a document with thousands
# of such operations would exceed memory.
DEFINITIONS_LIMIT = 2_000

_ILLEGAL_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")  # 3.1, section 4.8.7: component names


@dataclass(slots=True)
class SchemaParts:
    """Dependencies of one tool's schemas, and notes."""

    uses: list[ReferenceTarget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, converted: ConvertedSchema, where: str) -> dict[str, Any]:
        """Record the dependencies of `converted`; returns its schema."""
        self.uses.extend(converted.uses)
        self.notes.extend(f"{where}{note}" for note in converted.notes)
        return converted.schema


OUTPUT_LEFT_OUT = (
    "its output schema is left out: those of this description are too large together (setting "
    "imports.schemas_limit_bytes)"
)


class OutputBudget:
    """Size budget of all output schemas of one description: a tool can do without."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes: `imports.schemas_limit_bytes`."""
        self._left = limit

    def take(self, schema: dict[str, Any] | None, notes: list[str]) -> dict[str, Any] | None:
        """An output schema if there is room for it; else None, with a note."""
        size = 0 if schema is None else len(encode(schema))
        if size > self._left:
            notes.append(OUTPUT_LEFT_OUT)
            return None
        self._left -= size
        return schema


class SizeBudget:
    """Size budget of all input schemas of one description. A shared schema counts for each
    operation that refers to it: a description of a megabyte can expand to gigabytes."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes: `imports.schemas_limit_bytes`."""
        self.outputs = OutputBudget(limit)
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

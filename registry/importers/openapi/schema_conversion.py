"""Schema Objects to standalone JSON Schema 2020-12: `$ref` becomes `#/$defs/Name`.

A component is converted once per document, without following its references, and cached with the
components that it uses; a tool's `$defs` are those reachable from its arguments. References are not
expanded, so cycles stay cycles and size stays linear.

Legal keywords are kept, broken ones dropped or repaired with a note, and `readOnly` properties left
out. Order is kept: models read it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from registry.importers.openapi.discriminators import Discriminators
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
from registry.importers.openapi.old_keywords import modernise
from registry.importers.openapi.raw_schema_facts import Visibility
from registry.importers.openapi.schema_cycles import DEPTH_LIMIT, IN_PLACE, Cycles, Place
from schemas.json_schema.keywords import (
    DEFINITION_KEYWORDS,
    LIST_KEYWORDS,
    MAP_KEYWORDS,
    SCHEMA_KEYWORDS,
    UNIONS,
)
from schemas.json_schema.references import refer_to
from schemas.untrusted_json import mapping, text

# The first two are converted, the third constrains nothing, and definitions are components.
_SUBSCHEMA_KEYWORDS = SCHEMA_KEYWORDS - {
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
            elif key in _SUBSCHEMA_KEYWORDS and not self._drops(key, at):
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
        self, discriminator: object, raw: list[Any], branches: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """`branches` with the values of the discriminator that select each."""
        name = text(mapping(discriminator).get("propertyName"))
        values = self._names.discriminators.values(mapping(discriminator), raw) if name else {}
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
        if key in IN_PLACE:
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
        return _flatten_single_all_of(out)

    def _enumerate_text(self, out: dict[str, Any]) -> None:
        """Quote enumerated values: unquoted in YAML, the texts 1 and true are a number and a
        boolean, which match no text."""
        if any(isinstance(value, int | float) for value in out["enum"]):
            out["enum"] = [_scalar_text(value) for value in out["enum"]]
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
    others = {key: value for key, value in out.items() if key != "oneOf"}
    return {**others, "allOf": [*others.get("allOf", ()), {"anyOf": out["oneOf"]}]}


def _with_values(branch: dict[str, Any], name: str, values: list[str]) -> dict[str, Any]:
    rule = {"const": values[0]} if len(values) == 1 else {"enum": values}
    properties = branch.get("properties", {})
    return {**branch, "properties": {**properties, name: {**properties.get(name, {}), **rule}}}


@dataclass(slots=True)
class SchemaParts:
    """Dependencies of one tool's schemas, and notes."""

    uses: list[ReferenceTarget] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, schema: ConvertedSchema, where: str) -> dict[str, Any]:
        """Record the dependencies of `schema`; returns its schema."""
        self.uses.extend(schema.uses)
        self.notes.extend(f"{where}{note}" for note in schema.notes)
        return schema.schema


def _scalar_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _flatten_single_all_of(out: dict[str, Any]) -> dict[str, Any]:
    """`{allOf: [X]}` is X. Common in 3.0, where a `$ref` may have no siblings."""
    if len(out.get("allOf", ())) != 1 or not (out.keys() - {"allOf"}) <= ANNOTATIONS:
        return out
    [only] = out.pop("allOf")
    return {**only, **out}

"""One schema, without what it refers to, in the words of JSON Schema 2020-12.

Keywords that are legal are kept, whatever is broken is dropped or repaired with a note, and
`readOnly` properties are left out. Order is kept: a model reads it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from registry.importers.openapi.cycles import DEPTH_LIMIT, Cycles, Place
from registry.importers.openapi.document import (
    MissingReference,
    OpenApiDocument,
    SkipOperation,
    canonical,
)
from registry.importers.openapi.keywords import ABSENT, ANNOTATIONS, CHECKS, SPELLED, compiles
from registry.importers.openapi.legacy import modernise
from registry.importers.openapi.visibility import Visibility

_Shape = Literal["one", "list", "map"]

# keyword -> how it holds schemas, and whether they apply to the same value ("in place")
_NESTED: dict[str, tuple[_Shape, bool]] = {
    **dict.fromkeys(("not", "if", "then", "else"), ("one", True)),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), ("list", True)),
    "dependentSchemas": ("map", True),
    **dict.fromkeys(("items", "contains", "additionalProperties"), ("one", False)),
    **dict.fromkeys(("propertyNames", "unevaluatedItems", "unevaluatedProperties"), ("one", False)),
    "prefixItems": ("list", False),
    **dict.fromkeys(("properties", "patternProperties"), ("map", False)),
}
_CHOICES = ("anyOf", "oneOf")
_SCALARS = ("string", "number", "integer", "boolean", "null")
_OF_ARRAYS = ("uniqueItems", "minItems", "maxItems")  # without effect on what is no array
_NOTES_LIMIT = 20  # of one schema; a person reads the first


@dataclass(frozen=True, slots=True)
class Component:
    """A schema that can be referred to."""

    pointer: str
    choices: bool = True  # False: without the `anyOf` and `oneOf` that made it apply to itself


@dataclass(frozen=True, slots=True)
class Converted:
    schema: dict[str, Any]
    uses: tuple[Component, ...]
    notes: tuple[str, ...]  # each begins with where: "/properties/age: ..."


@dataclass(frozen=True, slots=True)
class _At:
    """Where in the tree: how deep, how applied to the root's value, which names are hidden."""

    depth: int = 0
    place: Place | None = "always"  # None: below, on another value
    hidden: frozenset[str] = frozenset()


class Names(Protocol):
    """What a tree asks of the document's schemas."""

    document: OpenApiDocument
    cycles: Cycles
    visibility: Visibility

    def name(self, component: Component) -> str: ...


class Tree:
    """One conversion. `origin` is the component that is being converted, if it is one."""

    def __init__(self, names: Names, origin: Component | None) -> None:
        self._names = names
        self._origin = origin
        self._path: list[str] = []
        self._uses: dict[Component, None] = {}
        self._notes: list[str] = []

    def convert(self, raw: object) -> Converted:
        schema = self._schema(raw, _At())
        return Converted(schema, tuple(self._uses), tuple(self._notes))

    def _schema(self, raw: object, at: _At) -> dict[str, Any]:
        if at.depth > DEPTH_LIMIT:
            raise SkipOperation(f"schemas are nested deeper than {DEPTH_LIMIT} levels")
        if isinstance(raw, str) and raw in SPELLED:
            raw = SPELLED[raw]
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
        # 3.0 ignores what stands beside a $ref; descriptions there are meant to be read
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
        return {"$ref": f"#/$defs/{self._names.name(component)}", **siblings}

    def _component(self, ref: object, at: _At) -> Component | None:
        """What `ref` refers to; None when following it would never end."""
        if not isinstance(ref, str):
            raise MissingReference("$ref is not text")
        pointer = canonical(ref)
        self._names.document.find(ref)
        if self._origin is None or at.place is None:
            return Component(pointer)
        turn = self._names.cycles.turn(self._origin.pointer, pointer, at.place)
        if turn == "cut":
            self._note(f"$ref {ref!r} applies the schema to itself; dropped")
            return None
        return Component(pointer, choices=turn == "follow")

    def _keywords(self, schema: dict[str, Any], at: _At) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in schema.items():
            if key in CHECKS:
                checked, problem = CHECKS[key](value)
                if problem:
                    self._note(f"`{key}` {problem}")
            elif key in _NESTED and not self._drops(key, at):
                checked = self._nested(key, value, at)
            else:
                continue
            if checked is not ABSENT:
                out[key] = checked
        return self._tidy(out, at)

    def _drops(self, key: str, at: _At) -> bool:
        """Whether this is a choice of the root in a component that was asked for without."""
        origin = self._origin
        return bool(origin and not origin.choices and at.place and key in _CHOICES)

    def _nested(self, key: str, value: object, at: _At) -> Any:
        shape, in_place = _NESTED[key]
        inner = _At(at.depth + 1, None)
        if in_place:
            chosen = at.place and key in _CHOICES
            inner = _At(at.depth + 1, "choice" if chosen else at.place, at.hidden)
        with self._inside(key):
            if shape == "one":
                return self._schema(value, inner)
            if shape == "list":
                return self._list(value, inner)
            return self._map(key, value, inner, at.hidden)

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
            value = self._names.document.named(value)
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
        """What takes more than one keyword to see."""
        if at.hidden and "required" in out:
            out["required"] = [name for name in out["required"] if name not in at.hidden]
        if out.get("required") == []:
            del out["required"]
        if out.get("type") == "array" and out.keys().isdisjoint(("items", "prefixItems")):
            out["items"] = {}  # providers refuse arrays without; 3.0 requires it
            if self._names.document.old_schemas:
                self._note("`items` is missing; any items are accepted")
        if out.get("type") == "string" and "enum" in out:
            self._enumerate_text(out)
        if out.get("type") in _SCALARS:
            for keyword in _OF_ARRAYS:  # Kubernetes says `uniqueItems` of every parameter
                out.pop(keyword, None)
        return _flatten(out)

    def _enumerate_text(self, out: dict[str, Any]) -> None:
        """Unquoted in YAML, the texts 1 and true are a number and a boolean; no text is either."""
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


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _flatten(out: dict[str, Any]) -> dict[str, Any]:
    """`{allOf: [X]}` is X. Common in 3.0, where nothing may stand beside a `$ref`."""
    if len(out.get("allOf", ())) != 1 or not (out.keys() - {"allOf"}) <= ANNOTATIONS:
        return out
    [only] = out.pop("allOf")
    return {**only, **out}

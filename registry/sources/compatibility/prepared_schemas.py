"""JSON Schemas prepared for comparison: all schemas that apply to one value, gathered.

Schemas are those of 2020-12, and complete: every `$ref` points into its own document.

Also the findings of a comparison.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import msgspec
from msgspec import Struct

from schemas.json_schema.keywords import UNIONS
from schemas.json_schema.pointers import ABSENT
from schemas.json_schema.references import find, reference_of
from schemas.json_schema.walk import subschemas
from schemas.untrusted_json import mapping, sequence

Kind = Literal[
    "operation", "name", "argument", "required", "type", "enum", "constraint", "schema", "wire",
    "security", "output", "annotation", "description",
]  # fmt: skip

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
GATHERED_LIMIT = 500  # schemas that apply to one value
DEPTH = 100
SAMENESS_STEPS = 1_000_000
VISIT_LIMIT = 300_000  # schemas visited in one comparison; Kubernetes' largest tool takes 20,000
SOURCE_VISIT_LIMIT = 100 * VISIT_LIMIT  # for all tools of a source: a minute or two

# Annotations: they do not constrain a value.
ANNOTATION_KEYWORDS = {
    "$ref", "allOf", "title", "description", "default", "example", "examples", "deprecated",
    "readOnly", "writeOnly", "format", "$comment", "$defs",
}  # fmt: skip

# One schema for each type, to split a schema of several types.
OF_TYPE = {name: {"type": name} for name in TYPES}


class SchemaChange(Struct, frozen=True):
    kind: Kind
    where: str  # path in the arguments or the answer: "pet.tags[]"; "": the root
    breaking: bool  # what worked before may fail now
    text: str  # continues the sentence after `where`


class Effect(Enum):
    LOST = "lost"  # values accepted before are rejected now
    IGNORED = "ignored"  # a property is no longer described: it may be sent, without effect
    NEW = "new"  # a property that no caller sent until now


@dataclass(frozen=True, slots=True)
class AcceptanceFinding:
    kind: str
    where: str
    before: str = ""
    after: str = ""
    effect: Effect = Effect.LOST


def any_lost(findings: Iterable[AcceptanceFinding]) -> bool:
    return any(finding.effect is Effect.LOST for finding in findings)


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


Pair = tuple[int, int]  # ids of two schemas


@dataclass(frozen=True, slots=True)
class RootedSchema:
    """A schema, and the document that its references resolve in."""

    schema: Any  # an object, true or false
    root: Any

    def of(self, schema: Any) -> "RootedSchema":
        return RootedSchema(schema, self.root)


@dataclass(frozen=True, slots=True)
class SchemaConjunction:
    """The conjunction of all schemas that apply to one value, with `$ref` and `allOf` resolved."""

    parts: tuple[RootedSchema, ...]  # objects
    accepts_none: bool = False  # no value is valid
    is_incomplete: bool = False  # some references could not be resolved


class ComparisonTooLarge(Exception):
    """The comparison exceeds its budget; it might run for hours."""


_remaining: ContextVar[list[int] | None] = ContextVar("_left", default=None)


@contextmanager
def comparison_budget(limit: int = VISIT_LIMIT) -> Iterator[None]:
    """Budget of a comparison: inside, at most `limit` schemas are visited, and no more than the
    enclosing budget has left: unions of unions that lead to one another multiply. Raises
    ComparisonTooLarge."""
    enclosing = _remaining.get()
    initial = limit if enclosing is None else max(0, min(limit, enclosing[0]))
    budget = [initial]
    token = _remaining.set(budget)
    try:
        yield
    finally:
        _remaining.reset(token)
        if enclosing is not None:
            enclosing[0] -= initial - max(0, budget[0])


def _spend(count: int) -> None:
    budget = _remaining.get()
    if budget is not None:
        budget[0] -= count
        if budget[0] < 0:
            raise ComparisonTooLarge


def gather(schemas: Iterable[RootedSchema]) -> SchemaConjunction:
    pending = list(schemas)
    _spend(len(pending) + 1)
    parts: list[RootedSchema] = []
    visited: set[int] = set()
    accepts_none = is_incomplete = False
    while pending:
        part = pending.pop()
        if not isinstance(part.schema, dict):
            accepts_none = accepts_none or part.schema is False
        elif id(part.schema) not in visited:
            if len(visited) >= GATHERED_LIMIT:
                return SchemaConjunction(tuple(parts), accepts_none, True)
            visited.add(id(part.schema))
            if not part.schema.keys() <= ANNOTATION_KEYWORDS:
                parts.append(part)
            followed = list(_subschemas(part))
            _spend(len(followed))
            is_incomplete = is_incomplete or None in followed
            pending += [more for more in followed if more is not None]
    return SchemaConjunction(tuple(parts), accepts_none, is_incomplete)


def _subschemas(part: RootedSchema) -> Iterator[RootedSchema | None]:
    """The schemas that apply beside this one; None: a reference that cannot be resolved."""
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in part.schema:
            yield resolve(part.root, part.schema[keyword])
    yield from map(part.of, subschemas(part.schema, ["allOf"]))


def resolve(root: Any, reference: object) -> RootedSchema | None:
    """The target of a reference inside the document; None when it has no target."""
    target = find(root, reference)
    return None if target is ABSENT else RootedSchema(target, root)


def types(schemas: Iterable[RootedSchema], depth: int = 8) -> frozenset[str]:
    """The types that a value may have; where a number may be one, an integer may, too."""
    types_ = TYPES
    for part in gather(schemas).parts:
        types_ &= _own_types(part.schema)
        for branches in unions(part) if depth else ():
            types_ &= frozenset().union(*(types([branch], depth - 1) for branch in branches))
    return types_


def stated_types(schema: dict[str, Any]) -> frozenset[str]:
    """The types that `type` itself allows."""
    if "type" not in schema:
        return TYPES
    stated = schema["type"]
    names = frozenset([stated] if isinstance(stated, str) else map(str, sequence(stated)))
    return names | {"integer"} if "number" in names else names


def _own_types(schema: dict[str, Any]) -> frozenset[str]:
    types_ = stated_types(schema)
    if (values := finite(schema)) is not None:
        types_ &= frozenset().union(*map(_types_of, values))
    return types_


def _types_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"integer", "number"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
    return {"object"}


def finite(schema: dict[str, Any]) -> list[Any] | None:
    """The values of `enum` or `const`; None when it has neither."""
    if "const" in schema:
        return [schema["const"]]
    return sequence(schema["enum"]) if isinstance(schema.get("enum"), list) else None


def unions(part: RootedSchema) -> Iterator[list[RootedSchema]]:
    """The alternatives of a schema, for each keyword that has some."""
    for keyword in UNIONS:
        if branches := [*map(part.of, subschemas(part.schema, [keyword]))]:
            yield branches


def declared_properties(schemas: Iterable[RootedSchema], depth: int = 8) -> frozenset[str]:
    """The properties described anywhere for one value."""
    names: set[str] = set()
    for part in gather(schemas).parts:
        names.update(mapping(part.schema.get("properties")))
        branches = [branch for union in unions(part) for branch in union]
        conditions = [part.of(part.schema[k]) for k in ("then", "else") if k in part.schema]
        for branch in [*branches, *conditions] if depth else ():
            names |= declared_properties([branch], depth - 1)
    return frozenset(names)


def canonical(value: Any) -> bytes:
    """A key that is equal for equal JSON values: 1 is 1.0, and neither is true."""
    return msgspec.json.encode(_plain(value), order="deterministic")


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(member) for member in value]
        case dict():
            return {key: _plain(member) for key, member in value.items()}
    return value


class SchemaIdentity:
    """Whether schemas of two documents are identical, verbatim. In doubt they are not."""

    def __init__(self) -> None:
        self._same_pairs: set[Pair] = set()
        self._differ: set[Pair] = set()
        self._remaining = SAMENESS_STEPS

    def __call__(self, was: RootedSchema, now: RootedSchema) -> bool:
        assumed: set[Pair] = set()
        if not self._same(was, now, assumed, DEPTH):
            return False
        self._same_pairs |= assumed
        return True

    def _same(
        self, was: RootedSchema, now: RootedSchema, identical_pairs: set[Pair], depth: int
    ) -> bool:
        """Whether two schemas are identical. `identical_pairs`: pairs assumed identical until
        one turns out not to be."""
        a, b = was.schema, now.schema
        if not isinstance(a, dict | list) or not isinstance(b, dict | list):
            return canonical(a) == canonical(b)
        pair = (id(a), id(b))
        if pair in self._same_pairs or pair in identical_pairs:
            return True
        self._remaining -= 1
        if pair in self._differ or depth == 0 or self._remaining < 0:
            return False
        identical_pairs.add(pair)
        if self._same_members(was, now, identical_pairs, depth):
            return True
        self._differ.add(pair)
        return False

    def _same_members(
        self, was: RootedSchema, now: RootedSchema, identical_pairs: set[Pair], depth: int
    ) -> bool:
        a, b = was.schema, now.schema
        if type(a) is not type(b) or len(a) != len(b):
            return False
        if isinstance(a, list):
            pairs = [*zip(a, b, strict=True)]
        elif a.keys() == b.keys():
            pairs = [(value, b[name]) for name, value in a.items()]
        else:
            return False
        if not all(self._same(was.of(x), now.of(y), identical_pairs, depth - 1) for x, y in pairs):
            return False
        reference = reference_of(a)
        if reference is None:
            return True
        here, there = resolve(was.root, reference), resolve(now.root, b["$ref"])
        return (
            here is not None
            and there is not None
            and self._same(here, there, identical_pairs, depth - 1)
        )

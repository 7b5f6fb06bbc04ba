"""Simple values that fit a schema, made from its keywords one by one. Of a schema whose values
cannot be made so, as with `pattern` or `not`, none is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from registry.importers.openapi.keyword_repair import ANNOTATIONS
from schemas.json_schema.keywords import COMPOSITIONS
from schemas.json_schema.references import definition_name, reference_of
from schemas.json_schema.walk import subschemas
from schemas.untrusted_json import mapping, sequence

_DEPTH_LIMIT = 12  # of made values
_STEPS_LIMIT = 2_000  # schemas applied and values compared for one made value
_LENGTH_LIMIT = 1_000  # characters or items of a made value
_MAKEABLE = ANNOTATIONS | {
    *("type", "enum", "const", "format", "contentEncoding", "contentMediaType"),
    *("properties", "required", "additionalProperties", "items", "minItems", "maxItems"),
    *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("$ref", *COMPOSITIONS),
}


class Unmakeable(Exception):
    """No value can be made for a schema with certainty."""


class NoFittingValue(Exception):
    """No value fits a schema; with the reason."""


@dataclass(slots=True)
class _Facts:
    """Keywords of all schemas that apply to one value."""

    types: list[list[str]] = field(default_factory=list)
    values: list[list[Any]] = field(default_factory=list)
    properties: dict[str, list[Any]] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    chosen: bool = False  # whether some are of one branch out of several
    size: int = 0  # least length
    length: int = _LENGTH_LIMIT  # most characters


class ValueMaker:
    """Makes values of schemas."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self.steps = 0

    def make(self, schemas: Sequence[Any], depth: int = 0, all_of: Any = None) -> Any:
        """A value for all of `schemas`, with all properties of `all_of`. Raises `Unmakeable`."""
        facts = _Facts()
        for schema in schemas:
            self._collect(schema, facts, depth)
        if facts.values:
            return _common(facts.values, facts, depth)
        kinds = facts.types or [["object"] if facts.properties or facts.required else ["string"]]
        kind = _common([sorted(types, key="null".__eq__) for types in kinds], facts, depth)
        all_of_facts = _Facts()
        if all_of is not None:
            self._collect(all_of, all_of_facts, depth)
        return self._of_kind(kind, facts, all_of_facts, depth)

    def _of_kind(self, kind: str, facts: _Facts, all_of_facts: _Facts, depth: int) -> Any:
        match kind:
            case "object":
                return self._object(facts, all_of_facts, depth)
            case "array":
                return [self.make(facts.items or [{}], depth + 1)] * min(facts.size, _LENGTH_LIMIT)
            case "string":
                return "x" * min(max(facts.size, 1), facts.length)
            case "integer" | "number":
                number = max([0, *facts.low]) if facts.low else min([0, *facts.high])
                return int(number) if kind == "integer" and number == int(number) else number
            case "boolean":
                return True
        return None

    def _object(self, facts: _Facts, all_of_facts: _Facts, depth: int) -> dict[str, Any]:
        members = {}
        for name in (*facts.required, *all_of_facts.properties):
            if name in members:
                continue
            try:
                members[name] = self.make(facts.properties.get(name, [{}]), depth + 1)
            except Unmakeable:
                if name in facts.required:
                    raise
        return members

    def _collect(self, schema: Any, facts: _Facts, depth: int) -> None:
        self.steps += 1
        if depth > _DEPTH_LIMIT:
            raise Unmakeable
        if not isinstance(schema, dict) or not schema.keys() <= _MAKEABLE:
            raise Unmakeable
        self.steps += len(sequence(schema.get("enum"))) + len(mapping(schema.get("properties")))
        if self.steps > _STEPS_LIMIT:
            raise Unmakeable
        if reference_of(schema) is not None:
            self._collect(self._definitions.get(definition_name(schema)), facts, depth + 1)
        for part in subschemas(schema, ["allOf"]):
            self._collect(part, facts, depth + 1)
        if choice := sequence(schema.get("anyOf")) or sequence(schema.get("oneOf")):
            facts.chosen = True
            self._collect(choice[0], facts, depth + 1)
        _take(schema, facts)


def _common(lists: list[list[Any]], facts: _Facts, depth: int) -> Any:
    """The first value that all `lists` have. Raises NoFittingValue, and Unmakeable where another
    branch or no value at all would do as well."""
    common = [value for value in lists[0] if all(value in values for values in lists)]
    if common:
        return common[0]
    if depth or facts.chosen:
        raise Unmakeable
    raise NoFittingValue(f"{lists[0]} and {lists[1]} exclude each other")


def _take(schema: Mapping[str, Any], facts: _Facts) -> None:
    if "type" in schema:
        facts.types.append([schema["type"]] if isinstance(schema["type"], str) else schema["type"])
    if "const" in schema:
        facts.values.append([schema["const"]])
    if "enum" in schema:
        facts.values.append(schema["enum"])
    for name, inner in mapping(schema.get("properties")).items():
        facts.properties.setdefault(name, []).append(inner)
    facts.required.update(dict.fromkeys(schema.get("required", ())))
    if "items" in schema:
        facts.items.append(schema["items"])
    facts.size = max(facts.size, schema.get("minLength", 0), schema.get("minItems", 0))
    facts.length = min(facts.length, schema.get("maxLength", _LENGTH_LIMIT))
    facts.low += [schema["minimum"]] if "minimum" in schema else []
    facts.low += [schema["exclusiveMinimum"] + 1] if "exclusiveMinimum" in schema else []
    facts.high += [schema["maximum"]] if "maximum" in schema else []
    facts.high += [schema["exclusiveMaximum"] - 1] if "exclusiveMaximum" in schema else []

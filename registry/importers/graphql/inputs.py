"""Arguments to JSON Schema 2020-12. Input objects become `$defs`, each converted once."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from registry.importers.graphql.schema import InputValue, Ref, Schema, Type, is_upload, scalar
from registry.importers.imported import said

# Services with generated table filters link each type to all others: Hasura has thousands.
DEFINITIONS_LIMIT = 100
INLINE_CHOICES = 12  # a longer enum, or one with descriptions, becomes a definition


@dataclass(slots=True)
class Needs:
    """Dependencies of one tool's schemas, and notes on losses."""

    names: dict[str, None] = field(default_factory=dict)  # of definitions, ordered
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, other: "Needs") -> None:
        self.names |= other.names
        self.notes |= other.notes


class GraphQLInputs:
    """Converts the input types of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._definitions: dict[str, tuple[dict[str, Any], Needs]] = {}
        self._unsendable = _unsendable(schema)

    def sendable(self, value: InputValue) -> bool:
        """Whether the value can be sent as JSON: files need multipart requests."""
        return not self._is_unsendable(value.type)

    def value(self, value: InputValue, needs: Needs) -> dict[str, Any]:
        """The schema of an argument or field, with its description."""
        return self._value(value, needs, nullable=not value.type.required)

    def definitions(self, needs: Needs) -> dict[str, Any]:
        """`$defs`: everything reachable, the nearest first if that is too much."""
        reached: dict[str, Any] = {}
        queue = deque(needs.names)
        while queue:
            name = queue.popleft()
            if name in reached:
                continue
            if len(reached) >= DEFINITIONS_LIMIT:
                reached[name] = self._unread(name)
                needs.notes[
                    f"its arguments need more than {DEFINITIONS_LIMIT} types: what lies further in"
                    " is not checked here"
                ] = None
                continue
            reached[name], inner = self._definition(name)
            needs.notes |= inner.notes
            queue.extend(inner.names)
        return {name: reached[name] for name in sorted(reached)}

    def _unread(self, name: str) -> dict[str, Any]:
        kind = "string" if self._schema.types[name].kind == "enum" else "object"
        return {"type": kind}

    def _definition(self, name: str) -> tuple[dict[str, Any], Needs]:
        if name not in self._definitions:
            type_, needs = self._schema.types[name], Needs()
            made = _enum(type_) if type_.kind == "enum" else self._object(type_, needs)
            self._definitions[name] = made, needs
        return self._definitions[name]

    def _object(self, type_: Type, needs: Needs) -> dict[str, Any]:
        properties, required = {}, []
        for name, value in type_.inputs.items():
            if self._is_unsendable(value.type):
                needs.notes[f"{type_.name}.{name} takes a file, which is not sent"] = None
                continue
            # 3.10.1: of a @oneOf type the one field that is given is not null
            nullable = not type_.one_of and not value.type.required
            properties[name] = self._value(value, needs, nullable)
            required += [name] if value.demanded else []
        schema: dict[str, Any] = {"type": "object"}
        if type_.description:
            schema["description"] = said(type_.description)
        schema["properties"] = properties
        if required:
            schema["required"] = required
        if type_.one_of:
            schema |= {"minProperties": 1, "maxProperties": 1}
        return {**schema, "additionalProperties": False}

    def _value(self, value: InputValue, needs: Needs, nullable: bool) -> dict[str, Any]:
        schema = self._of(value.type.nullable, needs)
        schema = _nullable(schema) if nullable else schema
        if value.description:
            schema = {**schema, "description": said(value.description)}
        if value.default is not UNSET:
            schema = {**schema, "default": value.default}
        if value.deprecated is not None:
            schema = {**schema, "deprecated": True}
        return schema

    def _of(self, ref: Ref, needs: Needs) -> dict[str, Any]:
        """Schema of a type without null."""
        if ref.wrap == "list" and ref.of is not None:
            items = self._of(ref.of.nullable, needs)
            return {"type": "array", "items": items if ref.of.required else _nullable(items)}
        type_ = self._schema.of(ref)
        match type_.kind:
            case "scalar":
                schema, unknown = scalar(type_)
                needs.notes |= {unknown: None} if unknown else {}
                return schema
            case "enum" if _is_small(type_):
                return _enum(type_)
            case "enum" | "input":
                needs.names[type_.name] = None
                return {"$ref": f"#/$defs/{type_.name}"}
        needs.notes[f"type {type_.name} is not defined: any value is let through"] = None
        return {}

    def _is_unsendable(self, ref: Ref) -> bool:
        type_ = self._schema.of(ref)
        return is_upload(type_) or type_.name in self._unsendable


def _unsendable(schema: Schema) -> frozenset[str]:
    """Input objects that require a file."""
    found: set[str] = set()
    inputs = [one for one in schema.types.values() if one.kind == "input"]
    users: Mapping[str, list[str]] = _users(inputs)
    queue = [
        one.name for one in inputs if any(is_upload(schema.of(v.type)) for v in _demanded(one))
    ]
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue.extend(users.get(name, ()))
    return frozenset(found)


def _users(inputs: Iterable[Type]) -> dict[str, list[str]]:
    """Reverse index: names of input objects by the type that they require."""
    users: dict[str, list[str]] = {}
    for one in inputs:
        for value in _demanded(one):
            users.setdefault(value.type.named, []).append(one.name)
    return users


def _demanded(type_: Type) -> list[InputValue]:
    return [value for value in type_.inputs.values() if value.demanded]


def _is_small(type_: Type) -> bool:
    told = any(choice.description for choice in type_.choices.values())
    return len(type_.choices) <= INLINE_CHOICES and not told and not type_.description


def _enum(type_: Type) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if type_.choices:
        schema["enum"] = list(type_.choices)
    lines = [type_.description] if type_.description else []
    for choice in type_.choices.values():
        told = f"deprecated: {choice.deprecated}" if choice.deprecated else choice.description
        lines += [f"{choice.name}: {' '.join(told.split())}"] if told else []
    if lines:
        schema["description"] = said("\n".join(lines))
    return schema


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    match schema.get("type"):
        case str(kind):
            return {**schema, "type": [kind, "null"]}
        case list(kinds):
            return {**schema, "type": [*kinds, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else schema

"""JSON Schema of an answer, from its selection set.

No member is required: a caller may select less, and a failed field nulls its parents. Enums, which
a service may extend, and custom scalars are unconstrained as well: no valid answer may fail.
"""

from typing import Any

from registry.importers.graphql.schema import Ref, Schema, answered
from registry.importers.graphql.selection import Selection

FURTHER = 40  # names listed of fields that could be selected besides
CHOICES = 30


def output_schema(schema: Schema, ref: Ref, selection: Selection | None) -> dict[str, Any]:
    return _of(schema, ref, selection)


def _of(schema: Schema, ref: Ref, selection: Selection | None) -> dict[str, Any]:
    made = _non_null(schema, ref.nullable, selection)
    if ref.required or "type" not in made:
        return made
    kinds = made["type"] if isinstance(made["type"], list) else [made["type"]]
    return {**made, "type": [*kinds, "null"]}


def _non_null(schema: Schema, ref: Ref, selection: Selection | None) -> dict[str, Any]:
    if ref.wrap == "list" and ref.of is not None:
        return {"type": "array", "items": _of(schema, ref.of, selection)}
    if selection is not None:
        return _object(schema, selection)
    type_ = schema.of(ref)
    if type_.kind != "enum":
        return answered(type_)
    names = ", ".join(list(type_.choices)[:CHOICES])
    return {"type": "string", "description": f"{type_.name}: {names}"}


def _object(schema: Schema, selection: Selection) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    _gather(schema, selection, properties)
    made: dict[str, Any] = {"type": "object", "properties": properties}
    further = [
        name
        for name, one in selection.type.fields.items()
        if name not in properties and not any(value.demanded for value in one.args.values())
    ]
    if further:
        more = ", …" if len(further) > FURTHER else ""
        made["description"] = f"Not selected: {', '.join(further[:FURTHER])}{more}"
    return made


def _gather(schema: Schema, selection: Selection, properties: dict[str, Any]) -> None:
    for one in selection.fields:
        if one.field is None:
            made: dict[str, Any] = {"type": "string"}
        else:
            made = _of(schema, one.field.type, one.inner)
        known = properties.setdefault(one.key, made)
        if known is not made and "properties" in known and "properties" in made:
            known["properties"] = {**made["properties"], **known["properties"]}
    for fragment in selection.fragments:
        _gather(schema, fragment, properties)

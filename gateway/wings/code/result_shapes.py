"""Shapes of answers: schemas learned from values, which they do not hold. Pure.

Members of objects whose names are data, such as ids and addresses, are not learned: such an object
is a map, of which only the values have a shape.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

Shape = Mapping[str, Any]
"""A JSON Schema of `type`, `properties`, `required`, `additionalProperties` and `items`; empty:
anything."""

DEPTH = 4
MEMBERS = 40  # of an object; one with more is a map
ITEMS = 20  # of a list that are looked at
ANYTHING: Shape = {}

# Names that people give to fields: no digits in a row, as ids have, no "@", "." or spaces.
_FIELD = re.compile(r"(?!.*\d\d)[A-Za-z_$][A-Za-z0-9_$-]{0,39}")
_SCALARS: Mapping[type, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"
}  # fmt: skip


def shape_of(value: Any, depth: int = DEPTH) -> Shape:
    if isinstance(value, dict):
        return _object(value, depth - 1) if depth else {"type": "object"}
    if isinstance(value, list):
        items = [shape_of(item, depth - 1) for item in value[:ITEMS]] if depth else []
        return {"type": "array", **({"items": merge_all(items)} if items else {})}
    kind = _SCALARS.get(type(value))
    return ANYTHING if kind is None else {"type": kind}


def merge(first: Shape, second: Shape) -> Shape:
    """The shape of values that have either shape."""
    if first == second:
        return first
    kinds = first.get("type"), second.get("type")
    match kinds:
        case "object", "object":
            return _merge_objects(first, second)
        case "array", "array":
            items = [shape["items"] for shape in (first, second) if "items" in shape]
            return {"type": "array", **({"items": merge_all(items)} if items else {})}
    names = {name for kind in kinds for name in ([kind] if isinstance(kind, str) else kind or ())}
    if "number" in names:
        names.discard("integer")
    is_scalar = all(kinds) and names <= {*_SCALARS.values()}
    if not is_scalar:
        return ANYTHING
    return {"type": names.pop() if len(names) == 1 else sorted(names)}


def merge_all(shapes: Sequence[Shape]) -> Shape:
    return reduce(merge, shapes)


def _object(value: Mapping[str, Any], depth: int) -> Shape:
    fields = len(value) <= MEMBERS and all(map(_FIELD.fullmatch, value))
    if not fields:
        return _map([shape_of(member, depth) for member in [*value.values()][:ITEMS]])
    properties = {name: shape_of(member, depth) for name, member in value.items()}
    if _is_alike([*properties.values()]):
        return _map([*properties.values()])
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def _is_alike(shapes: Sequence[Shape]) -> bool:
    """Whether members are objects of one shape, which makes their names keys of a map."""
    first = shapes[0].get("properties") if shapes else None
    return len(shapes) > 1 and bool(first) and all(s.get("properties") == first for s in shapes)


def _map(values: Sequence[Shape]) -> Shape:
    return {"type": "object", "additionalProperties": merge_all(values) if values else True}


def _merge_objects(first: Shape, second: Shape) -> Shape:
    properties_of_first, further = first.get("properties"), second.get("properties")
    if properties_of_first is None or further is None or _differ(properties_of_first, further):
        return _map([*_values(first), *_values(second)])
    properties = {**further, **properties_of_first}
    for name in properties_of_first.keys() & further.keys():
        properties[name] = merge(properties_of_first[name], further[name])
    if len(properties) > MEMBERS:
        return _map([*properties.values()])
    required = sorted({*first["required"]} & {*second["required"]})
    return {"type": "object", "properties": properties, "required": required}


def _differ(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two objects have few names in common, as maps have."""
    return bool(first and second) and 2 * len(first.keys() & second.keys()) < min(
        len(first), len(second)
    )


def _values(shape: Shape) -> list[Shape]:
    values = shape.get("additionalProperties")
    more = [values] if isinstance(values, Mapping) else []
    return [*shape.get("properties", {}).values(), *more]

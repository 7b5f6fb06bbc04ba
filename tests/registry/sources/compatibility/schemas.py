"""Schemas to compare, with changes made to them, and values that they accept."""

import copy
from typing import Any

from hypothesis import strategies as st

NAMES = ["a", "b", "c"]
DEFINITIONS = ["X", "Y"]
VALUES = [None, True, False, 0, 1, 2, 1.5, "", "a", "bb", "ccc"]

Schema = Any
Draw = Any


@st.composite
def plain(draw: Draw) -> Schema:
    kind = draw(st.sampled_from(["string", "integer", "number", "boolean", "enum", "types", "ref"]))
    match kind:
        case "string":
            return {"type": kind, **draw(_some({"minLength": 1, "maxLength": 2, "pattern": "a"}))}
        case "integer" | "number":
            limits = {"minimum": 0, "maximum": 2, "exclusiveMinimum": 0, "multipleOf": 2}
            return {"type": kind, **draw(_some(limits))}
        case "enum":
            return {"enum": draw(st.lists(st.sampled_from(VALUES), min_size=1, unique_by=repr))}
        case "types":
            some = st.sampled_from(["string", "null", "integer", "array", "object"])
            return {"type": draw(st.lists(some, min_size=1, max_size=3, unique=True))}
        case "ref":
            return {"$ref": f"#/$defs/{draw(st.sampled_from(DEFINITIONS))}"}
    return {"type": kind}


@st.composite
def _some(draw: Draw, limits: dict[str, Any]) -> dict[str, Any]:
    return {name: limits[name] for name in draw(st.sets(st.sampled_from([*limits]), max_size=2))}


@st.composite
def compound(draw: Draw, inner: st.SearchStrategy[Schema]) -> Schema:
    kind = draw(st.sampled_from(["object", "array", "anyOf", "oneOf", "allOf", "not", "map"]))
    if kind in {"anyOf", "oneOf", "allOf"}:
        return {kind: draw(st.lists(inner, min_size=1, max_size=3))}
    if kind == "not":
        return {"not": draw(inner), **draw(_some({"type": ["string", "integer"]}))}
    if kind == "array":
        limits = {"minItems": 1, "maxItems": 2, "uniqueItems": True}
        prefix = draw(st.lists(inner, max_size=2))
        first = {"prefixItems": prefix} if prefix else {}
        return {"type": "array", **first, "items": draw(inner), **draw(_some(limits))}
    if kind == "map":
        return {"type": "object", "additionalProperties": draw(inner)}
    properties = draw(st.dictionaries(st.sampled_from(NAMES), inner, min_size=1))
    names = st.sampled_from([*properties])
    closed = {"additionalProperties": False} if draw(st.booleans()) else {}
    needed = draw(st.lists(names, max_size=2, unique=True))
    together = {"dependentRequired": {draw(names): [draw(names)]}} if draw(st.booleans()) else {}
    return {"type": "object", "properties": properties, "required": needed, **closed, **together}


any_schema = st.recursive(plain(), compound, max_leaves=6)


@st.composite
def whole(draw: Draw) -> Schema:
    """An input schema, with definitions that may lead back to themselves."""
    properties = draw(st.dictionaries(st.sampled_from(NAMES), any_schema, min_size=1))
    definitions = {
        name: {"type": "object", "properties": {"a": draw(any_schema)}} for name in DEFINITIONS
    }
    return {
        "type": "object",
        "properties": properties,
        "required": draw(st.lists(st.sampled_from([*properties]), unique=True)),
        "additionalProperties": False,
        "$defs": definitions,
    }


@st.composite
def change_schema(draw: Draw, schema: Schema) -> Schema:
    """`schema` with a few places replaced, taken away or put into an alternative."""
    after = copy.deepcopy(schema)
    for _ in range(draw(st.integers(0, 3))):
        places = [*_places(after)]
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "wrap", "nullable", "bound"])):
            case "replace":
                holder[key] = draw(any_schema)
            case "remove" if len(holder) > 1 and holder is not after["$defs"]:
                del holder[key]
            case "wrap":
                union = draw(st.sampled_from(["anyOf", "oneOf", "allOf"]))
                holder[key] = {union: [holder[key], *draw(st.lists(plain(), max_size=1))]}
            case "nullable" if isinstance(holder[key].get("type"), str):
                holder[key]["type"] = [holder[key]["type"], "null"]
            case "bound":
                holder[key].update(draw(_some({"maxLength": 1, "minimum": 1, "maxItems": 1})))
    return after


def _places(schema: Schema) -> Any:
    """(holder, key) of every schema below."""
    for keyword, value in schema.items():
        if keyword in {"properties", "$defs"}:
            held = [(value, name) for name in value]
        elif keyword in {"anyOf", "oneOf", "allOf", "prefixItems"}:
            held = [(value, place) for place in range(len(value))]
        elif keyword in {"items", "not", "additionalProperties"} and isinstance(value, dict):
            held = [(schema, keyword)]
        else:
            continue
        for holder, key in held:
            yield holder, key
            yield from _places(holder[key])


@st.composite
def value(draw: Draw, schema: Schema, root: Schema, depth: int = 6) -> Any:
    """What `schema` might accept: near it, not always right, and nothing that it does not
    describe."""
    if not isinstance(schema, dict) or depth == 0:
        return draw(st.sampled_from(VALUES))
    if "$ref" in schema:
        return draw(value(root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth - 1))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return draw(value(draw(st.sampled_from(schema[keyword])), root, depth - 1))
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    types = schema.get("type", ["string", "integer", "null"])
    kind = types if isinstance(types, str) else draw(st.sampled_from(types))
    if kind == "array":
        prefix = [draw(value(one, root, depth - 1)) for one in schema.get("prefixItems", [])]
        rest = value(schema.get("items", True), root, depth - 1)
        return prefix + draw(st.lists(rest, max_size=2))
    if kind == "object":
        return draw(_object(schema, root, depth))
    if kind == "string":
        return draw(st.sampled_from(["", "a", "b", "aa", "ba", "aba"]))
    if kind in {"integer", "number"}:
        return draw(st.sampled_from([0, 1, 2, 3, 4, -2, *([0.5, 1.5] if kind == "number" else [])]))
    return None if kind == "null" else draw(st.booleans())


@st.composite
def _object(draw: Draw, schema: Schema, root: Schema, depth: int) -> Any:
    described = schema.get("properties", {})
    names = draw(st.sets(st.sampled_from([*described]))) if described else set()
    names |= {name for name in schema.get("required", []) if draw(st.integers(0, 9))}
    found = {n: draw(value(described.get(n, True), root, depth - 1)) for n in sorted(names)}
    extra = schema.get("additionalProperties", not described)
    if extra is not False:
        more = st.dictionaries(st.sampled_from(NAMES), value(extra, root, depth - 1), max_size=2)
        found = {**draw(more), **found}
    return found

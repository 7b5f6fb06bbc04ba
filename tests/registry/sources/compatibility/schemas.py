"""Schemas to compare, with changes made to them, and values that they accept.

Strategies are made once, or of tuples, which Hypothesis caches: to make and check one takes as long
as to draw from it.
"""

import copy
from functools import cache
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c")
DEFINITIONS = ("X", "Y")
VALUES = (None, True, False, 0, 1, 2, 1.5, "", "a", "bb", "ccc")

Schema = Any
Draw = Any


@cache
def _subsets(values: tuple[str, ...], most: int | None = None) -> st.SearchStrategy[set[str]]:
    return st.sets(st.sampled_from(values), max_size=most)


@cache
def _properties(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[dict[str, Schema]]:
    return st.dictionaries(st.sampled_from(NAMES), inner, min_size=1)


@cache
@st.composite
def plain(draw: Draw) -> Schema:
    kind = draw(st.sampled_from(("string", "integer", "number", "boolean", "enum", "types", "ref")))
    match kind:
        case "string":
            return {"type": kind, **_some(draw, {"minLength": 1, "maxLength": 2, "pattern": "a"})}
        case "integer" | "number":
            limits = {"minimum": 0, "maximum": 2, "exclusiveMinimum": 0, "multipleOf": 2}
            return {"type": kind, **_some(draw, limits)}
        case "enum":
            return {"enum": draw(st.lists(st.sampled_from(VALUES), min_size=1, unique_by=repr))}
        case "types":
            some = st.sampled_from(("string", "null", "integer", "array", "object"))
            return {"type": draw(st.lists(some, min_size=1, max_size=3, unique=True))}
        case "ref":
            return {"$ref": f"#/$defs/{draw(st.sampled_from(DEFINITIONS))}"}
    return {"type": kind}


def _some(draw: Draw, limits: dict[str, Any]) -> dict[str, Any]:
    names = draw(_subsets(tuple(limits), 2))
    return {name: limits[name] for name in names}


@st.composite
def compound(draw: Draw, inner: st.SearchStrategy[Schema]) -> Schema:
    kind = draw(st.sampled_from(("object", "array", "anyOf", "oneOf", "allOf", "not", "map")))
    if kind in {"anyOf", "oneOf", "allOf"}:
        return {kind: draw(st.lists(inner, min_size=1, max_size=3))}
    if kind == "not":
        return {"not": draw(inner), **_some(draw, {"type": ["string", "integer"]})}
    if kind == "array":
        limits = {"minItems": 1, "maxItems": 2, "uniqueItems": True}
        prefix = draw(st.lists(inner, max_size=2))
        first = {"prefixItems": prefix} if prefix else {}
        return {"type": "array", **first, "items": draw(inner), **_some(draw, limits)}
    if kind == "map":
        return {"type": "object", "additionalProperties": draw(inner)}
    properties = draw(_properties(inner))
    names = st.sampled_from(tuple(properties))
    closed = {"additionalProperties": False} if draw(st.booleans()) else {}
    needed = draw(st.lists(names, max_size=2, unique=True))
    together = {"dependentRequired": {draw(names): [draw(names)]}} if draw(st.booleans()) else {}
    return {"type": "object", "properties": properties, "required": needed, **closed, **together}


any_schema = st.recursive(plain(), compound, max_leaves=6)


@cache
@st.composite
def whole(draw: Draw) -> Schema:
    """An input schema, with definitions that may lead back to themselves."""
    properties = draw(_properties(any_schema))
    definitions = {
        name: {"type": "object", "properties": {"a": draw(any_schema)}} for name in DEFINITIONS
    }
    return {
        "type": "object",
        "properties": properties,
        "required": draw(st.lists(st.sampled_from(tuple(properties)), unique=True)),
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
        match draw(st.sampled_from(("replace", "remove", "wrap", "nullable", "bound"))):
            case "replace":
                holder[key] = draw(any_schema)
            case "remove" if len(holder) > 1 and holder is not after["$defs"]:
                del holder[key]
            case "wrap":
                union = draw(st.sampled_from(("anyOf", "oneOf", "allOf")))
                holder[key] = {union: [holder[key], *draw(st.lists(plain(), max_size=1))]}
            case "nullable" if isinstance(holder[key].get("type"), str):
                holder[key]["type"] = [holder[key]["type"], "null"]
            case "bound":
                holder[key].update(_some(draw, {"maxLength": 1, "minimum": 1, "maxItems": 1}))
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
def value(draw: Draw, schema: Schema, root: Schema) -> Any:
    """What `schema` might accept: near it, not always right, and nothing that it does not
    describe."""
    return _value(draw, schema, root, 6)


def _value(draw: Draw, schema: Schema, root: Schema, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return draw(st.sampled_from(VALUES))
    if "$ref" in schema:
        return _value(draw, root["$defs"][schema["$ref"].rpartition("/")[2]], root, depth - 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return _value(draw, draw(st.sampled_from(schema[keyword])), root, depth - 1)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    types = schema.get("type", ["string", "integer", "null"])
    kind = types if isinstance(types, str) else draw(st.sampled_from(types))
    if kind == "array":
        inner = schema.get("items", True)
        count = draw(st.integers(0, 2))
        places = [*schema.get("prefixItems", ()), *[inner] * count]
        return [_value(draw, place, root, depth - 1) for place in places]
    if kind == "object":
        return _object(draw, schema, root, depth)
    if kind == "string":
        return draw(st.sampled_from(("", "a", "b", "aa", "ba", "aba")))
    if kind in {"integer", "number"}:
        return draw(st.sampled_from((0, 1, 2, 3, 4, -2, *((0.5, 1.5) if kind == "number" else ()))))
    return None if kind == "null" else draw(st.booleans())


def _object(draw: Draw, schema: Schema, root: Schema, depth: int) -> Any:
    described = schema.get("properties", {})
    names = draw(_subsets(tuple(described))) if described else set()
    names |= {name for name in schema.get("required", ()) if draw(st.integers(0, 9))}
    schemas = {name: described.get(name, True) for name in sorted(names)}
    extra = schema.get("additionalProperties", not described)
    if extra is not False:
        more = draw(_subsets(NAMES, 2))
        schemas = {**dict.fromkeys(sorted(more), extra), **schemas}
    return {name: _value(draw, schemas[name], root, depth - 1) for name in schemas}

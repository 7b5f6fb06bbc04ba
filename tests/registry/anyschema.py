"""Strategies: JSON Schemas as descriptions and other servers have them, and values that fit.

Each is made once: to make and check one takes as long as to draw from it.
"""

from functools import cache
from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "kind", "long_name_of_a_property")
TEXTS = ("x", "yy", "cat", "dog", "A sentence. " * 30)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 30),
    st.sampled_from((0.5, 1.5)),
    st.sampled_from(TEXTS),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
    ),
    max_leaves=8,
)
DEFINITIONS = ("One", "Two", "Three")

Json = dict[str, Any]


@cache
@st.composite
def schemas(draw: st.DrawFn) -> Json:
    """An object of arguments, with definitions that may refer to each other in circles."""
    root = draw(_objects(3, refs=True))
    root["$defs"] = {name: draw(_any(2, refs=True)) for name in DEFINITIONS}
    if draw(st.booleans()):
        keyword = draw(st.sampled_from(("anyOf", "oneOf", "allOf")))
        root[keyword] = draw(st.lists(_objects(1, refs=False), min_size=1, max_size=3))
    return root


@cache
def _any(depth: int, refs: bool) -> st.SearchStrategy[Json]:
    kinds = [_leaves()]
    if refs:
        kinds.append(st.sampled_from(DEFINITIONS).map(lambda name: {"$ref": f"#/$defs/{name}"}))
    if depth:
        kinds += [_objects(depth, refs), _arrays(depth, refs), _unions(depth, refs)]
    return st.one_of(kinds)


@cache
@st.composite
def _leaves(draw: st.DrawFn) -> Json:
    leaf: Json = draw(
        st.sampled_from(
            (
                {},
                {"type": "string"},
                {"type": "string", "minLength": 2},
                {"type": "string", "format": "uri-reference"},
                {"type": "integer", "minimum": 0},
                {"type": "number", "exclusiveMaximum": 20},
                {"type": "boolean"},
                {"type": "null"},
                {"type": ["string", "null"]},
                {"type": ["integer", "object", "null"]},
                {"type": "string", "enum": ["cat", "dog"]},
                {"enum": ["cat", 1, None, 0.5]},
                {"enum": ["x", None]},
                {"const": "cat"},
                {"const": None},
                {"not": {"type": "string"}},
                {"type": "string", "pattern": r"^(?!y)"},
                {"not": {"type": "string", "pattern": r"^\p{Ll}{3}$"}},
            )
        )
    )
    return _add_description(draw, dict(leaf))


@cache
@st.composite
def _objects(draw: st.DrawFn, depth: int, refs: bool) -> Json:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    schema: Json = {"type": "object"}
    if names:
        schema["properties"] = {name: draw(_any(depth - 1, refs)) for name in names}
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    more = draw(st.sampled_from((None, False, True, "schema", "pattern", "dependent", "if")))
    if more == "schema":
        schema["additionalProperties"] = draw(_any(depth - 1, refs))
    elif more == "pattern":
        names_pattern = draw(st.sampled_from(("^[a-b]", "^(?=[a-b])")))
        schema["patternProperties"] = {names_pattern: draw(_any(depth - 1, refs))}
        schema["additionalProperties"] = False
    elif more == "dependent":
        schema["dependentRequired"] = {"a": ["b"]}
    elif more == "if":
        schema["if"] = {"required": ["kind"]}
        schema["then"] = {"properties": {"a": draw(_any(depth - 1, refs))}}
    elif more is not None:
        schema["additionalProperties"] = more
    return _add_description(draw, schema)


@cache
@st.composite
def _arrays(draw: st.DrawFn, depth: int, refs: bool) -> Json:
    schema: Json = {"type": "array"}
    if draw(st.booleans()):
        schema["items"] = draw(_any(depth - 1, refs))
    if draw(st.booleans()):
        schema["prefixItems"] = [draw(_any(depth - 1, refs))]
    if draw(st.booleans()):
        schema |= {"contains": {"type": "string"}, "maxContains": 1}
    return _add_description(draw, schema)


@cache
@st.composite
def _unions(draw: st.DrawFn, depth: int, refs: bool) -> Json:
    keyword = draw(st.sampled_from(("anyOf", "oneOf", "allOf")))
    # a circle of unions alone never ends for a validator, and no importer lets one through
    branches = draw(st.lists(_any(depth - 1, refs=False), min_size=1, max_size=3))
    beside = draw(st.sampled_from(({}, {"type": "object"}, {"type": ["string", "object"]})))
    return _add_description(draw, {keyword: branches, **beside})


def _add_description(draw: st.DrawFn, schema: Json) -> Json:
    if draw(st.booleans()):
        schema["description"] = draw(st.sampled_from(TEXTS))
    return schema


@st.composite
def instances(draw: st.DrawFn, schema: Json) -> Any:
    """Values that often fit."""
    return _instance(draw, schema, schema, 6)


def _instance(draw: st.DrawFn, schema: Any, root: Json, depth: int) -> Any:
    if not isinstance(schema, dict) or not depth or draw(st.integers(0, 15)) == 0:
        return draw(VALUES)
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rpartition("/")[2]]
        return _instance(draw, target, root, depth - 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema and schema is not root:
            return _instance(draw, draw(st.sampled_from(schema[keyword])), root, depth - 1)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "const" in schema:
        return schema["const"]
    return _of_type(draw, schema, root, depth)


def _of_type(draw: st.DrawFn, schema: Json, root: Json, depth: int) -> Any:
    stated = schema.get("type")
    kind = draw(st.sampled_from(stated)) if isinstance(stated, list) else stated
    match kind:
        case "object":
            return _object(draw, schema, root, depth)
        case "array":
            inner = schema.get("items", {})
            first = [_instance(draw, one, root, depth - 1) for one in schema.get("prefixItems", ())]
            rest = [_instance(draw, inner, root, depth - 1) for _ in range(draw(st.integers(0, 2)))]
            return first + rest
        case "string":
            return draw(st.sampled_from(TEXTS))
        case "integer" | "number":
            return draw(st.integers(0, 15))
        case "boolean":
            return draw(st.booleans())
        case "null":
            return None
    return draw(VALUES)


def _object(draw: st.DrawFn, schema: Json, root: Json, depth: int) -> Json:
    properties = schema.get("properties", {})
    wanted = set(schema.get("required", ()))
    chosen = [name for name in properties if name in wanted or draw(st.booleans())]
    value = {name: _instance(draw, properties[name], root, depth - 1) for name in chosen}
    if draw(st.booleans()):
        name = draw(st.sampled_from(NAMES))
        inner = schema.get("additionalProperties", {})
        value.setdefault(name, _instance(draw, inner, root, depth - 1))
    return value

"""The validator in use means by a schema what the reference implementation means by it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.json import encode

from schemas.json_schema.checker import Checker
from tests.properties import examples

NAMES = st.sampled_from(["a", "b", "c", "id"])
TEXTS = st.sampled_from(["", "a", "ab", "b1", "z-9", "\u00e9", "\U0001f600"])
NUMBERS = (
    st.integers(-5, 5)
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 1e300])
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SIZES = st.integers(0, 3)
BOUNDS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0])


SEVERAL = 3


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Any:
    """A schema of up to four keywords. (Decimal fractions of `multipleOf` stand in a test of their
    own: there the reference calculates in binary.)"""
    if depth == 0:
        return draw(LEAVES)
    inner = schemas(depth - 1)
    several = st.lists(inner, min_size=1, max_size=SEVERAL)
    meanings: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=SEVERAL, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=SEVERAL),
        "const": VALUES,
        "minimum": BOUNDS,
        "exclusiveMaximum": BOUNDS,
        "multipleOf": st.sampled_from([1, 2, 3, 0.5]),
        "minLength": SIZES,
        "maxLength": SIZES,
        "pattern": st.sampled_from(["^a", "[0-9]$", "^[^-]*$", "b|z"]),
        "properties": st.dictionaries(NAMES, inner, max_size=SEVERAL),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": inner,
        "propertyNames": inner,
        "maxProperties": SIZES,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True)),
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        "minItems": SIZES,
        "uniqueItems": st.booleans(),
        "unevaluatedProperties": st.just(False),
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    chosen = draw(st.lists(st.sampled_from(sorted(meanings)), max_size=4, unique=True))
    return {keyword: draw(meanings[keyword]) for keyword in chosen}


LEAVES = st.booleans() | TYPES.map(lambda name: {"type": name}) | st.just({"$ref": "#/$defs/n"})


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(schemas(), VALUES)
def test_verdicts_agree_and_refused_values_are_explained(schema, value):
    schema = {**schema, "$defs": {"n": {"type": ["integer", "array"], "items": {"$ref": "#"}}}}
    checker = Checker(encode(schema))
    accepted = checker.accepts(value)
    assert accepted == Draft202012Validator(schema).is_valid(value)
    assert accepted == (checker.explain(value) == [])

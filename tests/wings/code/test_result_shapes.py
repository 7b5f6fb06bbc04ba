"""Shapes of answers: what they keep of values, and what not."""

from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wings.code.result_shapes import merge, shape_of
from tests.properties import examples

STRING, NUMBER = {"type": "string"}, {"type": "integer"}


def record(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


SHAPES: dict[str, tuple[Any, Any]] = {
    "fields": ({"id": 1, "name": "x"}, record(id=NUMBER, name=STRING)),
    "lists": ([1, 2.5], {"type": "array", "items": {"type": "number"}}),
    "nothing": ([], {"type": "array"}),
    "null": ([None, "a"], {"type": "array", "items": {"type": ["null", "string"]}}),
    "addresses": ({"a@example.com": 1}, mapping(NUMBER)),
    "ids": ({"cus_0037": {"a": 1}}, mapping(record(a=NUMBER))),
    "names": ({"alice": {"n": 1}, "bob": {"n": 2}}, mapping(record(n=NUMBER))),
    "words": ({"Sales EMEA": "x"}, mapping(STRING)),
    "dates": ({"2026-01-01": 1}, mapping(NUMBER)),
    "many": ({f"k{chr(97 + n // 26)}{chr(97 + n % 26)}": n for n in range(50)}, mapping(NUMBER)),
    "deep": ([[[[[[1]]]]]], {"type": "array", "items": {"type": "array", "items": {
        "type": "array", "items": {"type": "array", "items": {"type": "array"}}}}}),
    "other names": ([{"alice": 1, "bob": 2}, {"carol": 1, "dave": 2}],
                    {"type": "array", "items": mapping(NUMBER)}),
    "optional": ([{"id": 1, "a": "x"}, {"id": 2}],
                 {"type": "array", "items": {**record(id=NUMBER, a=STRING), "required": ["id"]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_have_fields_and_no_data(name: str) -> None:
    value, shape = SHAPES[name]
    assert shape_of(value) == shape


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "name", "a@b.c", "x12"]) | st.text(), inner)
    ),
)


@settings(max_examples=examples(200))
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_merged_shapes_describe_all_values(values: list[Any]) -> None:
    shape = reduce(merge, map(shape_of, values))
    for value in values:
        assert merge(shape, shape_of(value)) == shape

"""Walks through schemas visit subschemas, and leave values alone."""

from typing import Any

import pytest

from schemas.json_schema.keywords import COMPOSITIONS
from schemas.json_schema.walk import DROPPED, INSIDE, nodes, rewrite, rewrite_references, subschemas


@pytest.mark.parametrize(
    ("schema", "keywords", "expected"),
    [
        ({"anyOf": [1, 2], "allOf": [3]}, COMPOSITIONS, [3, 1, 2]),
        ({"items": {"a": 1}}, ("items",), [{"a": 1}]),
        ({"items": [{}, True]}, ("items",), [{}, True]),
        ({"items": False}, ("items",), [False]),
        ({"properties": {"a": 1, "b": 2}}, ("properties",), [1, 2]),
        ({"properties": 7, "anyOf": {}}, ("properties", "anyOf", "not"), []),
        ({"properties": [{}], "allOf": 7}, ("properties", "allOf"), []),
    ],
)
def test_subschemas_are_found_by_keyword(schema: Any, keywords: Any, expected: list[Any]) -> None:
    assert list(subschemas(schema, keywords)) == expected


def test_nodes_are_all_objects_and_arrays_however_deep() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"not": [deep]}
    assert sum(1 for _ in nodes(deep)) == 10_001
    assert list(nodes("text")) == []


def test_rewriting_leaves_values_and_names_alone() -> None:
    schema = {
        "title": "gone",
        "const": {"title": "a value"},
        "properties": {"title": {"title": "gone", "minLength": 1}},
        "x-unknown": [{"title": "gone"}],
        "dependentRequired": {"title": ["a"]},
    }
    copy = rewrite(schema, lambda keyword, _: DROPPED if keyword == "title" else INSIDE)
    assert copy == {
        "const": {"title": "a value"},
        "properties": {"title": {"minLength": 1}},
        "x-unknown": [{}],
        "dependentRequired": {"title": ["a"]},
    }
    assert schema["title"] == "gone"


def test_only_real_references_are_rewritten() -> None:
    schema = {
        "properties": {"$ref": {"$ref": "a"}},
        "items": {"anyOf": [{"$ref": "b"}, {"$ref": 7}]},
        "default": {"$ref": "c"},
    }
    assert rewrite_references(schema, str.upper) == {
        "properties": {"$ref": {"$ref": "A"}},
        "items": {"anyOf": [{"$ref": "B"}, {"$ref": 7}]},
        "default": {"$ref": "c"},
    }

"""What `x-mask` marks, wherever in a schema it stands."""

import json

import pytest

from schemas.jsonrpc import encode
from schemas.masking import QUERY, _Marked, masks_of

DEEP = {
    "$defs": {
        "node": {
            "properties": {
                "secret": {"x-mask": True},
                "next": {"$ref": "#/$defs/node"},
                "all": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            }
        }
    },
    "$ref": "#/$defs/node",
}


def mask_value(schema, value):
    masks = masks_of(json.dumps(schema).encode())
    assert masks is not None
    hidden = set()
    return masks.mask(value, hidden), hidden


def of(schema, name="a"):
    return {"type": "object", "properties": {name: schema}}


CASES = {
    "a text": (of({"x-mask": True}), {"a": "s", "b": "s"}, {"a": "***", "b": "s"}),
    "its own mask": (of({"x-mask": "(hidden)"}), {"a": "s"}, {"a": "(hidden)"}),
    "a number": (of({"x-mask": True}), {"a": 7}, {"a": "***"}),
    "an object": (of({"x-mask": True}), {"a": {"b": ["s"]}}, {"a": "***"}),
    "nothing": (of({"x-mask": True}), {"a": None}, {"a": None}),
    "beside another member, before 2019-09": (
        {"dependencies": {"a": of({"x-mask": True}, "b"), "c": ["a"]}},
        {"a": 1, "b": "s"},
        {"a": 1, "b": "***"},
    ),
    "a mark of false": (
        {"properties": {"a": {"x-mask": False}, "b": {"x-mask": True}}},
        {"a": "s", "b": "s"},
        {"a": "s", "b": "***"},
    ),
    "items": (of({"items": {"x-mask": True}}), {"a": ["s", 1]}, {"a": ["***", "***"]}),
    "first items": (
        of({"prefixItems": [{}, {"x-mask": True}]}),
        {"a": ["p", "s", "p"]},
        {"a": ["p", "***", "p"]},
    ),
    "items before 2020-12": (
        of({"items": [{}, {"x-mask": True}]}),
        {"a": [1, 2]},
        {"a": [1, "***"]},
    ),
    "the rest": (
        {"properties": {"p": {}}, "additionalProperties": {"x-mask": True}},
        {"p": "p", "q": "s"},
        {"p": "p", "q": "***"},
    ),
    "by pattern": ({"patternProperties": {"^s": {"x-mask": True}}}, {"s1": "s"}, {"s1": "***"}),
    "all of": ({"allOf": [of({}), of({"x-mask": True})]}, {"a": "s"}, {"a": "***"}),
    "one of": ({"oneOf": [of({}), {"anyOf": [of({"x-mask": True})]}]}, {"a": "s"}, {"a": "***"}),
    "then": ({"if": of({}), "then": of({"x-mask": True})}, {"a": "s"}, {"a": "***"}),
    "a reference": (
        {"$defs": {"s": {"x-mask": True}}, **of({"$ref": "#/$defs/s"})},
        {"a": "s"},
        {"a": "***"},
    ),
    "an escaped reference": (
        {"definitions": {"a/b c": {"x-mask": True}}, **of({"$ref": "#/definitions/a~1b%20c"})},
        {"a": "s"},
        {"a": "***"},
    ),
    "an anchor": (
        {"$defs": {"s": {"$anchor": "here", "x-mask": True}}, **of({"$ref": "#here"})},
        {"a": "s"},
        {"a": "***"},
    ),
    "recursion": (
        DEEP,
        {"next": {"all": [{"secret": 1}, {"next": {"secret": "s", "p": 1}}]}},
        {"next": {"all": [{"secret": "***"}, {"next": {"secret": "***", "p": 1}}]}},
    ),
    "the root": ({"x-mask": True}, ["s"], "***"),
}


@pytest.mark.parametrize(("schema", "value", "expected"), CASES.values(), ids=CASES.keys())
def test_exactly_the_marked_values_are_masked(schema, value, expected):
    assert mask_value(schema, value)[0] == expected


def test_masked_values_are_returned():
    value = {"a": {"b": ["text", 7, True, None, 1.5]}}
    assert mask_value(of({"x-mask": True}), value)[1] == {"text", "7", "1.5"}


def test_a_value_without_marks_is_returned_itself():
    value = {"b": [{"c": 1}], "d": '{"c": 1}'}
    assert mask_value(of({"x-mask": True}), value)[0] is value


@pytest.mark.parametrize(
    "schema",
    [{}, of({"title": "x-mask"}), of({"x-mask": False}), of({"$ref": "#/$defs/none"}), [1]],
    ids=str,
)
def test_a_schema_without_marks_costs_nothing(schema):
    assert masks_of(json.dumps(schema).encode()) is None


def test_a_mark_that_is_written_with_escapes_counts():
    assert masks_of(rb'{"properties":{"a":{"x\u002dmask":true}}}') is not None


def test_members_that_no_schema_names_are_looked_up_once(monkeypatch):
    """Callers choose those names, and may send hundreds of thousands."""
    schema = {"properties": {"pin": {"x-mask": True}}, "patternProperties": {"^s": {}}}
    masks = masks_of(json.dumps(schema).encode())
    looked, place = [], _Marked.place

    def count_lookup(marked, schemas):
        looked.append(1)
        return place(marked, schemas)

    monkeypatch.setattr(_Marked, "place", count_lookup)
    value = {**{f"k{number}": 1 for number in range(50)}, "pin": 2}
    assert masks.mask(value) == {**value, "pin": "***"}
    assert len(looked) <= 2


def test_queries_of_urls_are_masked_alone() -> None:
    marked = {"type": "string", QUERY: True}
    schema = {"properties": {"url": {"anyOf": [marked, {"type": "null"}]}, "more": {}}}
    masks = masks_of(encode(schema))
    assert masks is not None
    hidden: set[str] = set()
    value = {"url": "https://a.example/b?token=tiger&c=1#d", "more": "https://a.example/b?c=1"}
    shown = {**value, "url": "https://a.example/b?***"}
    assert (masks.mask(value, hidden), hidden) == (shown, set())
    assert masks.mask({"url": json.dumps(value)}) != {"url": json.dumps(value)}
    for same in ({"url": "https://a.example/b"}, {"url": None}, {"url": 5}, {}):
        assert masks.mask(same) is same

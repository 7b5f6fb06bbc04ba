"""A tool's arguments, as a shell gives them and as a person reads them."""

import json
from typing import Any

import pytest

from gateway.cli.common.tool_arguments import Argument, arguments_of, example, parse_arguments
from schemas.json_schema.checker import Checker

DEFINITIONS = {"$defs": {"Kind": {"enum": ["cat", "dog"]}, "Loop": {"$ref": "#/$defs/Loop"}}}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"type": "array"}, "array"),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"type": "array", "items": {"$ref": "#/$defs/Kind"}}, "array of one of cat, dog"),
        ({"$ref": "#/$defs/Kind"}, "one of cat, dog"),
        ({"$ref": "#/$defs/Loop"}, "any"),
        ({"$ref": "#/$defs/Nowhere"}, "any"),
        ({"enum": ["cat", None]}, "one of cat, null"),
        ({"anyOf": [{"type": "object"}, {"enum": [""]}]}, 'object or one of ""'),
        ({"enum": list(range(20))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, …"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]},
         "string or integer"),
        ({}, "any"),
        (True, "any"),
    ],
)  # fmt: skip
def test_the_kind_of_an_argument_is_said_in_words(schema: Any, kind: str) -> None:
    [argument] = arguments_of({"properties": {"x": schema}, **DEFINITIONS})
    assert argument == Argument("x", kind, required=False, description="")


def test_required_arguments_come_first_and_into_the_example() -> None:
    schema = {
        "properties": {
            "note": {"type": "string"},
            "id": {"type": "integer"},
            "kind": {"enum": ["cat", "dog"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "kind", "tags"],
    }
    arguments = arguments_of(schema)
    assert [one.name for one in arguments] == ["id", "kind", "tags", "note"]
    assert example("add", arguments) == "toolgate tools call add id=1 kind=cat tags='[]'"


SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer", "maximum": 9},
        "either": {"type": ["string", "integer"]},
        "list": {"type": "array"},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("text", "Rex"), "Rex"),
        (("text", "123"), "123"),
        (("text", "true"), "true"),
        (("text", "null"), "null"),
        (("text", '"quoted"'), "quoted"),
        (("text", "[1]"), "[1]"),
        (("number", "7"), 7),
        (("number", "70"), 70),  # too large, and still a number: the tool says what is wrong
        (("number", "many"), "many"),
        (("either", "7"), 7),
        (("list", '["a", 1]'), ["a", 1]),
        (("list", "a"), "a"),
        (("unknown", "7"), 7),
    ],
)
def test_a_value_is_read_as_json_unless_the_tool_wants_the_text(
    pair: tuple[str, str], expected: Any
) -> None:
    name, text = pair
    checker = Checker(json.dumps(SCHEMA).encode())
    assert parse_arguments({name: text}, {}, checker) == {name: expected}


def test_a_pair_wins_over_the_same_name_in_args() -> None:
    checker = Checker(json.dumps(SCHEMA).encode())
    assert parse_arguments({"text": "b"}, {"text": "a", "number": 1}, checker) == {
        "text": "b",
        "number": 1,
    }

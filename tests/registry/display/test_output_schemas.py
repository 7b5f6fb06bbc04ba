"""Output schemas for clients whose structured content is always an object."""

import json
from typing import Any

import jsonschema
import pytest
from msgspec import Raw

from registry.display.tool_shaper import for_objects

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PET = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TREE = {
    "type": "array",
    "items": {"type": "object", "properties": {"below": {"$ref": "#"}}},
}


def show_schema(schema: Any) -> dict[str, Any]:
    made = for_objects(Raw(json.dumps(schema).encode()))
    assert made is not None
    found: dict[str, Any] = json.loads(bytes(made))
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["type"] == "object"
    return found


def accepts(schema: Any, value: Any) -> bool:
    """Whether the schema that clients see accepts what they are sent for `value`."""
    sent = value if isinstance(value, dict) else {"result": value}
    return jsonschema.Draft202012Validator(show_schema(schema)).is_valid(sent)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (PET, [{"name": "Rex"}], [{}]),
        ({"type": "array", "items": PET}, [[], [{"name": "Rex"}]], [[{}], {"a": 1}]),
        ({"type": "string"}, ["a"], [1]),
        ({"type": "null"}, [None], [0]),
        ({"$ref": "#/$defs/Pet", "$defs": {"Pet": PET}}, [{"name": "Rex"}], [{}]),
        (
            {"type": "array", "items": {"$ref": "#/$defs/Pet"}, "$defs": {"Pet": PET}},
            [[{"name": "Rex"}]],
            [[{}]],
        ),
        (TREE, [[{"below": [{"below": []}]}]], [[{"below": 1}]]),
        ({"anyOf": [PET, {"type": "string"}]}, [{"name": "Rex"}, "gone"], [{}, 1]),
        ({"type": ["object", "null"], "required": ["a"]}, [None, {"a": 1}], [1, {}]),
        ({"enum": ["$ref", {"$ref": "#"}]}, ["$ref", {"$ref": "#"}], ["other"]),
        ({"$id": "urn:x", "type": "array", "items": {"$ref": "#/$defs/P"},
          "$defs": {"P": {"type": "integer"}}}, [[1]], [["a"]]),
        ({"type": "array", "items": {"properties": {"default": {"$ref": "#"}}}},
         [[{"default": []}]], [[{"default": 1}]]),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "integer"}],
          "$defs": {"A": {"properties": {"a": {"$ref": "#"}}, "required": ["a"],
                          "type": "object"}}},
         [1, {"a": 1}, {"a": {"a": 2}}], ["x", {"a": "x"}]),
    ],
)  # fmt: skip
def test_output_schemas_accept_exactly_the_sent_values(
    schema: Any, right: list[Any], wrong: list[Any]
) -> None:
    assert [accepts(schema, value) for value in right] == [True] * len(right)
    assert [accepts(schema, value) for value in wrong] == [False] * len(wrong)


def test_an_object_schema_is_left_unchanged() -> None:
    text = Raw(b'{"type":  "object", "z": 1, "a": 2}')
    assert for_objects(text) is text


def test_any_other_value_stands_under_result() -> None:
    schema = {
        "$schema": DIALECT,
        "type": "array",
        "items": {"$ref": "#/$defs/A"},
        "$defs": {"A": {}},
    }
    assert json.loads(bytes(for_objects(Raw(json.dumps(schema).encode())) or b"")) == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "required": ["result"],
        "$schema": DIALECT,
        "$defs": {"A": {}},
    }


def test_unreadable_schemas_are_not_shown() -> None:
    assert for_objects(Raw(b"[]")) is None
    assert for_objects(Raw(b"{")) is None

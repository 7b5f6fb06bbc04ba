"""Schemas made to stand alone, judged by what they accept."""

from typing import Any

import jsonschema
import pytest

from registry.importers.hybrid import read_spec
from registry.importers.hybrid.actions_to_tools import close_schema
from schemas.json_schema.checker import Checker
from schemas.jsonrpc import encode
from tests.fixtures_hybrid import describe_actions, wanting


def schema_of(name: str, **schemas: Any) -> dict[str, Any]:
    """The request schema of an action that refers to the shared schema `name`."""
    (one,) = read_spec(describe_actions(wanting(name), **schemas)).actions
    assert one.request_schema is not None
    return one.request_schema


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """The verdict of both validators, which is one."""
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    validator.check_schema(schema)
    fast, slow = Checker(encode(schema)).accepts(value), validator(schema).is_valid(value)
    assert fast == slow
    return fast


NAME = {"type": "string", "minLength": 2}


def test_a_shared_schema_comes_along_and_no_other_does() -> None:
    thing = {"type": "object", "properties": {"name": {"$ref": "#/schemas/Name"}}}
    schema = schema_of("Thing", Thing=thing, Name=NAME, Unused={})
    assert schema == {
        "type": "object",
        "properties": {"name": {"$ref": "#/$defs/Name"}},
        "$defs": {"Name": NAME},
    }
    assert accepts(schema, {"name": "ab"})
    assert not accepts(schema, {"name": "a"})


def test_a_circle_stays_a_circle() -> None:
    tree = {
        "type": "object",
        "required": ["value"],
        "properties": {"value": NAME, "children": {"items": {"$ref": "#/schemas/Tree"}}},
    }
    schema = schema_of("Tree", Tree=tree)
    assert schema["type"] == "object"
    assert accepts(schema, {"value": "ab", "children": [{"value": "cd", "children": []}]})
    assert not accepts(schema, {"value": "ab", "children": [{"value": "c"}]})


def test_two_schemas_may_lead_to_each_other() -> None:
    schema = schema_of(
        "A",
        A={"properties": {"b": {"$ref": "#/schemas/B"}}},
        B={"required": ["a"], "properties": {"a": {"$ref": "#/schemas/A"}}},
    )
    assert accepts(schema, {"b": {"a": {"b": {"a": {}}}}})
    assert not accepts(schema, {"b": {"a": {"b": {}}}})


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
def test_a_schema_has_definitions_of_its_own(keyword: str) -> None:
    def with_own(name: dict[str, Any], **more: Any) -> dict[str, Any]:
        own = {"properties": {"n": {"$ref": f"#/{keyword}/Name"}}, keyword: {"Name": name}}
        own["properties"].update(more)
        return own

    inner = with_own({"type": "integer"})
    schema = schema_of("Outer", Outer=with_own(NAME, inner={"$ref": "#/schemas/I"}), I=inner)
    assert accepts(schema, {"n": "ab", "inner": {"n": 1}})
    assert not accepts(schema, {"n": 1})
    assert not accepts(schema, {"n": "ab", "inner": {"n": "ab"}})
    assert "definitions" not in schema


def test_a_schema_refers_to_any_place_in_itself_or_in_another() -> None:
    schema = schema_of(
        "A",
        A={
            "properties": {
                "a": NAME,
                "b": {"$ref": "#/properties/a"},
                "c": {"$ref": "#/schemas/B/properties/x~1y"},
                "d": {"$ref": "#"},
                "e": {"$ref": "#/allOf/0"},
            },
            "allOf": [{"not": {"const": 5}}],
        },
        B={"properties": {"x/y": {"type": "integer"}}},
    )
    assert accepts(schema, {"a": "ab", "b": "cd", "c": 1, "d": {"a": "ef"}, "e": 4})
    for wrong in ({"b": "c"}, {"c": "x"}, {"d": {"a": "e"}}, {"e": 5}):
        assert not accepts(schema, wrong)


def test_a_pure_reference_schema_becomes_its_target() -> None:
    schema = schema_of(
        "A",
        A={"$ref": "#/schemas/B", "title": "A"},
        B={"$ref": "#/schemas/C"},
        C={"type": "object"},
    )
    assert schema == {"type": "object", "title": "A"}


def test_values_outside_schemas_stay_unchanged() -> None:
    told = {
        "enum": [{"$ref": "#/schemas/None"}, {"definitions": 1}],
        "default": {"$id": "x"},
        "examples": [{"$ref": "elsewhere"}],
        "x-own": {"$ref": "elsewhere"},
        "properties": {"id": {"const": {"$ref": "x"}}, "definitions": {"type": "string"}},
        "message": {"type": "not so"},
    }
    assert schema_of("S", S=told) == told


def test_identifiers_do_not_lead_references_astray() -> None:
    name = {**NAME, "$id": "https://x.example/name", "$anchor": "n"}
    thing = {"$id": "https://x.example/thing", "properties": {"n": {"$ref": "#/schemas/Name"}}}
    schema = schema_of("Thing", Thing=thing, Name=name)
    assert accepts(schema, {"n": "ab"})
    assert not accepts(schema, {"n": "a"})


def test_names_that_clash_stay_apart() -> None:
    schema = schema_of(
        "A",
        A={
            "properties": {"a": {"$ref": "#/$defs/X"}, "b": {"$ref": "#/schemas/X"}},
            "$defs": {"X": {"type": "string"}},
        },
        X={"type": "integer"},
    )
    assert accepts(schema, {"a": "x", "b": 1})
    assert not accepts(schema, {"b": "x"})
    assert not accepts(schema, {"a": 1})


@pytest.mark.parametrize(
    ("dialect", "schema", "good", "bad"),
    [
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ("http://json-schema.org/draft-06/schema#", {"exclusiveMinimum": 1}, 2, 1),
        ("http://json-schema.org/draft-07/schema", {"items": [{"type": "string"}]}, ["a"], [1]),
        (
            "https://json-schema.org/draft/2019-09/schema",
            {"items": [{"type": "string"}], "additionalItems": False},
            ["a"],
            ["a", "b"],
        ),
    ],
)
def test_an_older_dialect_is_kept_for_all_that_comes_along(
    dialect: str, schema: dict[str, Any], good: Any, bad: Any
) -> None:
    thing = {"$schema": dialect, "id": "x", "properties": {"v": {"$ref": "#/schemas/V"}}}
    made = schema_of("Thing", Thing=thing, V=schema)
    assert made["$schema"] == dialect
    assert accepts(made, {"v": good})
    assert not accepts(made, {"v": bad})


def test_closing_again_changes_nothing() -> None:
    tree = {"properties": {"c": {"$ref": "#/schemas/Tree"}, "d": {"$ref": "#/$defs/D"}}}
    once = schema_of("Tree", Tree=tree | {"$defs": {"D": {"type": "string"}}})
    assert close_schema(once) == once


@pytest.mark.parametrize(("schema", "value", "verdict"), [(True, 1, True), (False, 1, False)])
def test_true_and_false_are_schemas(schema: bool, value: Any, verdict: bool) -> None:
    assert accepts(schema_of("S", S=schema), value) is verdict

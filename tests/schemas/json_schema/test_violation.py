"""What is wrong with the data of an action, in the words of light-hybrid-4j."""

import json

import pytest

from schemas.json_schema.checker import MESSAGE_CHARACTERS, Checker


def violation(schema, data, below=None):
    checker = Checker(json.dumps(schema).encode())
    assert not checker.accepts(data)
    return checker.violation(data, below)


MORE = (
    "property 'b' is not defined in the schema and the schema does not allow additional properties"
)


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ({"type": "integer"}, "x", "string found, integer expected"),
        ({"type": "integer"}, 1.5, "number found, integer expected"),
        ({"type": "integer"}, True, "boolean found, integer expected"),
        ({"type": "string"}, None, "null found, string expected"),
        ({"type": "string"}, {}, "object found, string expected"),
        ({"type": ["string", "null"]}, [], "array found, [string, null] expected"),
        ({"enum": ["Y", 1, None]}, "y", 'does not have a value in the enumeration ["Y",1,null]'),
        ({"const": "Y"}, "N", "must be the constant value 'Y'"),
        ({"const": {"a": 1}}, 1, """must be the constant value '{"a":1}'"""),
        ({"minLength": 3}, "x", "must be at least 3 characters long"),
        ({"maxLength": 3}, "xxxx", "must be at most 3 characters long"),
        ({"pattern": "^[a-z]+$"}, "7", "does not match the regex pattern ^[a-z]+$"),
        ({"minimum": 3}, 2, "must have a minimum value of 3"),
        ({"maximum": 3.5}, 4, "must have a maximum value of 3.5"),
        ({"exclusiveMinimum": 3}, 3, "must have an exclusive minimum value of 3"),
        ({"exclusiveMaximum": 3}, 3, "must have an exclusive maximum value of 3"),
        ({"multipleOf": 2}, 3, "must be multiple of 2"),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"maxItems": 0}, [1], "must have at most 0 items"),
        ({"uniqueItems": True}, [1, 1], "must have only unique items in the array"),
        ({"minProperties": 1}, {}, "must have at least 1 properties"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "must have at most 1 properties"),
        ({"required": ["x", "y"]}, {"y": 1}, "required property 'x' not found"),
        (
            {"additionalProperties": False, "properties": {"a": {}}},
            {"a": 1, "b": 2},
            MORE,
        ),
        (
            {"unevaluatedProperties": False},
            {"b": 2},
            MORE,
        ),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 5,
         "must be valid to one and only one schema"),
        ({"oneOf": [{"type": "integer"}]}, "x", "must be valid to one and only one schema"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x",
         "must be valid to any of the schemas"),
        ({"not": {"type": "integer"}}, 5, "must not be valid to the schema"),
    ],
)  # fmt: skip
def test_each_rule_has_its_words(rule, value, text):
    assert violation({"properties": {"field": rule}}, {"field": value}) == f"$.field: {text}"


@pytest.mark.parametrize(
    ("rule", "value", "word"),
    [
        ({"contains": {"type": "integer"}}, ["a"], "valid under the given schema"),
        ({"items": False}, [1], "False schema"),
        (False, 1, "False schema"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "required"),
    ],
)
def test_a_rarer_rule_has_the_words_of_the_validator(rule, value, word):
    text = violation({"properties": {"field": rule}}, {"field": value})
    assert text.startswith("$.field")
    assert word in text


@pytest.mark.parametrize(
    ("schema", "data", "path"),
    [
        ({"type": "object"}, None, "$"),
        ({"items": {"items": {"type": "integer"}}}, [[], [1, "x"]], "$[1][1]"),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": ["x"]}, "$.a[0]"),
        ({"properties": {"a.b": {"type": "integer"}}}, {"a.b": "x"}, "$.a.b"),
    ],
)
def test_the_path_leads_to_the_value(schema, data, path):
    assert violation(schema, data).partition(": ")[0] == path


def test_only_the_first_violation_is_reported():
    schema = {"required": ["a", "b"], "properties": {"c": {"type": "integer"}}}
    assert violation(schema, {}) == "$: required property 'a' not found"


@pytest.mark.parametrize(
    ("data", "text"),
    [(5, "$: integer found, array expected"), (["x", 5], "$[1]: integer found, string expected")],
)
def test_an_argument_that_is_all_of_the_data_is_no_part_of_its_path(data, text):
    schema = {"properties": {"data": {"type": "array", "items": {"type": "string"}}}}
    assert violation(schema, {"data": data}, below="data") == text


def test_a_member_of_that_name_deeper_inside_stays_in_the_path():
    schema = {"properties": {"data": {"properties": {"data": {"type": "string"}}}}}
    assert violation(schema, {"data": {"data": 5}}, "data").startswith("$.data: ")
    assert violation(schema, {"data": {"data": 5}}).startswith("$.data.data: ")


CUSTOM = {"type": "integer", "minimum": 3, "message": {"type": "Count must be a number"}}


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ({"type": "integer", "message": 'A "count" is wanted'}, "x", 'A "count" is wanted'),
        (CUSTOM, "x", "Count must be a number"),
        (CUSTOM, 1, "$.field: must have a minimum value of 3"),
        ({"type": "integer", "message": 5}, "x", "$.field: string found, integer expected"),
        ({"type": "integer", "message": {"type": 5}}, "x",
         "$.field: string found, integer expected"),
    ],
)  # fmt: skip
def test_a_message_in_the_schema_replaces_path_and_words(rule, value, text):
    assert violation({"properties": {"field": rule}}, {"field": value}) == text


def test_a_message_belongs_to_its_own_schema_only():
    schema = {"message": "outer", "properties": {"a": {"type": "integer"}}}
    assert violation(schema, {"a": "x"}) == "$.a: string found, integer expected"
    named = {"required": ["message"], "properties": {"message": {"type": "string"}}}
    assert violation(named, {}) == "$: required property 'message' not found"


def test_a_property_that_looks_like_a_position_has_its_own_message():
    schema = {"properties": {"0": {"type": "integer", "message": "custom"}}}
    assert violation(schema, {"0": "x"}) == "custom"


@pytest.mark.parametrize(
    "reference", ["#/$defs/of~1all~0%25", "#anchor", "#/properties/other"], ids=str
)
def test_a_rule_is_found_behind_a_reference(reference):
    target = {"$anchor": "anchor", "enum": ["Y", "N"], "message": {"type": "unused"}}
    schema = {
        "properties": {"a": {"$ref": reference}, "other": target if "other" in reference else {}},
        "$defs": {"of/all~%": {**target, "$anchor": "more"}, "x": target},
    }
    assert violation(schema, {"a": 1}) == '$.a: does not have a value in the enumeration ["Y","N"]'


def test_a_circular_schema_is_followed_as_far_as_the_data_goes():
    node = {"properties": {"next": {"$ref": "#/$defs/node"}, "id": {"type": "string"}}}
    text = violation(
        {"$ref": "#/$defs/node", "$defs": {"node": node}}, {"next": {"next": {"id": 1}}}
    )
    assert text == "$.next.next.id: integer found, string expected"


@pytest.mark.parametrize(
    ("rule", "value", "text"),
    [
        ({"type": "integer"}, "x", "string found, [integer] expected"),
        ({"minimum": 3}, 1, "minimum"),
    ],
)
def test_a_schema_inside_with_an_id_of_its_own_is_reported_too(rule, value, text):
    inner = {"$id": "https://schemas.example.com/inner", "properties": {"q": rule}}
    reference = {"$ref": "https://schemas.example.com/inner#/properties/q"}
    found = violation({"properties": {"a": reference}, "$defs": {"i": inner}}, {"a": value})
    assert found.startswith("$.a: ")
    assert text in found


def test_a_text_is_no_longer_than_anybody_reads():
    schema = {"properties": {"a": {"enum": ["x" * 50] * 50}}}
    assert len(violation(schema, {"a": 1})) == MESSAGE_CHARACTERS


def test_data_that_is_right_violates_nothing():
    assert Checker(b'{"type":"object"}').violation({}) == ""

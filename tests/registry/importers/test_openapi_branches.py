"""Branches of a request body: overlapping ones, and those that a discriminator names."""

from typing import Any

import pytest

from schemas.json_schema.checker import Checker
from schemas.jsonrpc import encode
from tests.registry.importers.describe import One, components, describe, json_body, only

TEXT = {"type": "string"}
CIRCLE = {
    "type": "object",
    "required": ["shape", "radius"],
    "properties": {"shape": TEXT, "radius": {"type": "number"}},
}
SQUARE = {
    "type": "object",
    "required": ["shape", "side"],
    "properties": {"shape": TEXT, "side": {"type": "number"}},
}
BRANCHES = [{"$ref": "#/components/schemas/Circle"}, {"$ref": "#/components/schemas/Square"}]
MAPPING = {"round": "#/components/schemas/Circle", "oval": "Circle", "box": "Square"}


def drawing(discriminator: dict[str, Any], circle: Any = CIRCLE, square: Any = SQUARE) -> One:
    body = {"oneOf": BRANCHES, "discriminator": discriminator}
    return only(describe(json_body(body), components=components(Circle=circle, Square=square)))


def shapes(tool: One) -> list[Any]:
    """The rule of the discriminator in each branch of the body."""
    branches = tool.properties["body"]["anyOf"]
    return [branch.get("properties", {}).get("shape") for branch in branches]


def problems(tool: One, body: Any) -> list[tuple[str, str]]:
    checker = Checker(encode(tool.schema))
    return [(problem.argument, problem.message) for problem in checker.explain({"body": body})]


def test_a_body_that_fits_two_branches_is_accepted():
    """Overlapping branches of `oneOf` are checked as `anyOf` (mending 23)."""
    stop = {"type": "object", "properties": {"action": {"enum": ["stop", "start"]}}}
    delay = {"type": "object", "properties": {**stop["properties"], "after_s": {"type": "integer"}}}
    tool = only(describe(json_body({"oneOf": [stop, delay]})))
    assert tool.accepts(body={"action": "stop"})
    assert not tool.accepts(body={"action": "jump"})


def test_both_choices_of_a_schema_with_two_apply():
    """`oneOf` beside `anyOf` keeps its say (mending 23)."""
    body = {"oneOf": [TEXT, {"type": "integer"}], "anyOf": [{"maxLength": 3}, {"minLength": 9}]}
    tool = only(describe(json_body(body)))
    assert tool.accepts(body="abc")
    assert tool.accepts(body=7)
    assert not tool.accepts(body="abcd")
    assert not tool.accepts(body=None)


def test_a_negated_choice_stays_exclusive():
    """`oneOf` inside `not` would become stricter as `anyOf` (mending 23)."""
    both = {"not": {"oneOf": [{"minLength": 2}, {"maxLength": 5}]}}
    tool = only(describe(json_body({"type": "string", **both})))
    assert tool.accepts(body="abc")


def test_values_of_a_discriminator_stand_in_its_branches():
    """The mapping of a discriminator becomes `const` or `enum` (mending 23)."""
    tool = drawing({"propertyName": "shape", "mapping": MAPPING})
    assert shapes(tool) == [{"enum": ["round", "oval"]}, {"const": "box"}]
    assert tool.accepts(body={"shape": "oval", "radius": 1})
    assert not tool.accepts(body={"shape": "box", "radius": 1})
    assert not tool.accepts(body={"shape": "Circle", "radius": 1})


def test_names_of_schemas_are_the_values_without_a_mapping():
    """A discriminator without a mapping takes the names of schemas (mending 23)."""
    assert shapes(drawing({"propertyName": "shape"})) == [{"const": "Circle"}, {"const": "Square"}]


@pytest.mark.parametrize(
    "shape", [{"enum": ["c"]}, {"const": "c"}, {"example": "c"}, {"type": "integer"}]
)
def test_a_statement_of_the_branch_itself_decides(shape):
    """A name of a schema never contradicts what the property states (mending 23)."""
    circle = {**CIRCLE, "properties": {**CIRCLE["properties"], "shape": {**TEXT, **shape}}}
    assert shapes(drawing({"propertyName": "shape"}, circle=circle))[0] is None


def test_a_mapping_that_the_branch_contradicts_is_ignored():
    """A mapped value outside the property's `enum` would leave no value (mending 23)."""
    circle = {**CIRCLE, "properties": {**CIRCLE["properties"], "shape": {"enum": ["disc"]}}}
    tool = drawing({"propertyName": "shape", "mapping": MAPPING}, circle=circle)
    assert tool.accepts(body={"shape": "disc", "radius": 1})


def test_a_problem_explains_the_branch_of_the_discriminator():
    """A problem is that of the branch that the value of the discriminator names (mending 23)."""
    square = {**SQUARE, "required": ["shape", "side", "colour", "border"]}
    tool = drawing({"propertyName": "shape", "mapping": MAPPING}, square=square)
    given = {"shape": "box", "side": 2, "colour": "red"}
    assert problems(tool, given) == [("body.border", "is required")]
    assert problems(tool, {"shape": "box"}) == [
        ("body.side", "is required"),
        ("body.colour", "is required"),
        ("body.border", "is required"),
    ]


def test_an_unknown_discriminator_is_told_all_values():
    """A value that names no branch is answered with those of all branches (mending 23)."""
    tool = drawing({"propertyName": "shape", "mapping": MAPPING})
    assert problems(tool, {"shape": "star", "side": 1}) == [
        ("body.shape", 'expected one of "round", "oval", "box", got "star"')
    ]

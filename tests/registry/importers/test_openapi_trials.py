"""Trial calls at the import: examples of the description and made values of branches."""

from typing import Any

import pytest

from registry.importers.openapi import example_values, trial_calls
from tests.registry.importers.describe import One, components, describe, json_body, only, query

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
CRATE = {"type": "object", "required": ["weight"], "properties": {"weight": WHOLE, "label": TEXT}}


def with_example(schema: Any, example: Any, **rest: Any) -> One:
    media = {"schema": schema, "example": example}
    body = {"requestBody": {"content": {"application/json": media}, "required": True}}
    return only(describe(body, **rest))


@pytest.mark.parametrize(
    ("example", "reason"),
    [
        ({"weight": "heavy"}, "an example of the body: weight: "),
        ({"label": "a"}, "an example of the body: weight is required"),
    ],
)
def test_a_refused_example_of_the_body_is_reported(example, reason):
    """The description's own examples are tried, and refusals reported (mending 23)."""
    assert f"its schema refuses {reason}" in with_example(CRATE, example).reason


def test_an_example_that_fits_leaves_no_note():
    """An accepted example does not degrade a tool (mending 23)."""
    assert with_example(CRATE, {"weight": 4}).outcome.status == "imported"


def test_hidden_properties_of_an_example_are_not_tried():
    """An example of a body often shows properties that only responses have (mending 23)."""
    crate = {**CRATE, "properties": {**CRATE["properties"], "id": {**TEXT, "readOnly": True}}}
    assert with_example(crate, {"weight": 4, "id": "c1"}).outcome.status == "imported"


def test_examples_of_named_components_are_tried():
    """Examples behind `examples` and `$ref` are tried as well (mending 23)."""
    media = {
        "schema": {"$ref": "#/components/schemas/Crate"},
        "examples": {"bad": {"$ref": "#/components/examples/Bad"}},
    }
    bad = {"Bad": {"value": {"weight": "much"}}}
    body = {"requestBody": {"content": {"application/json": media}}}
    tool = only(describe(body, components={**components(Crate=CRATE), "examples": bad}))
    assert "weight" in tool.reason


@pytest.mark.parametrize(
    ("schema", "example", "status"),
    [
        ({"enum": ["up", "down"], **TEXT}, "sideways", "degraded"),
        (TEXT, 2020, "imported"),  # as YAML reads the text
        (WHOLE, "7", "imported"),
        (WHOLE, "seven", "degraded"),
    ],
)
def test_examples_of_parameters_are_tried(schema, example, status):
    """Examples of parameters are tried, whatever the spelling of scalars (mending 23)."""
    operation = {"parameters": [query("way", schema, example=example)]}
    assert only(describe(operation, "GET /ways")).outcome.status == status


def test_a_branch_that_no_value_fits_is_reported():
    """A value is made for each branch, here of a parent that is closed (mending 23)."""
    parcel = {
        "type": "object",
        "properties": {"kind": TEXT},
        "additionalProperties": False,
        "anyOf": [{"required": ["kind"]}, CRATE],
    }
    reason = only(
        describe(json_body({"$ref": "#/components/schemas/P"}), components=components(P=parcel))
    ).reason
    assert "P: no value fits branch 2 of 2" in reason
    assert "branch 1" not in reason


def test_a_branch_deep_inside_is_tried():
    """Branches of every component that a tool uses are tried (mending 23)."""
    lid = {"type": "string", "oneOf": [{"maxLength": 5}, WHOLE]}
    crate = {
        "type": "object",
        "properties": {"lids": {"type": "array", "items": {"$ref": "#/components/schemas/Lid"}}},
    }
    reason = only(describe(json_body(crate), components=components(Lid=lid))).reason
    assert "Lid: no value fits branch 2 of 2" in reason


@pytest.mark.parametrize(
    "branch",
    [
        {"type": "string", "minLength": 3, "maxLength": 5},
        {"type": "integer", "minimum": 5, "exclusiveMaximum": 7},
        {"type": "number", "maximum": -2},
        {"type": "array", "minItems": 2, "items": WHOLE},
        {"type": "object", "required": ["a"], "properties": {"a": {"enum": ["x"]}}},
        {
            "allOf": [
                {"type": "object", "required": ["b"]},
                {"properties": {"b": {"type": "boolean"}}},
            ]
        },
        {"type": ["null", "boolean"]},
        {"type": "string", "pattern": "^[0-9]{5}$"},  # no value is made
        {"not": {"type": "string"}},
    ],
)
def test_a_usable_branch_is_not_reported(branch):
    """A made value fits its branch, or none is made (mending 23)."""
    assert (
        only(describe(json_body({"oneOf": [branch, {"type": "null"}]}))).outcome.status
        == "imported"
    )


def test_members_that_examples_show_are_accepted():
    """A body whose example has members of its own stays open (mending 24)."""
    tool = with_example(CRATE, {"weight": 4, "colour": "red"})
    assert tool.outcome.status == "imported"
    assert tool.accepts(weight=4, additional_properties={"colour": "red"})
    assert tool.draft.binding.body.additional == "additional_properties"


def test_a_base_of_other_schemas_accepts_their_members():
    """A body that a discriminator extends stays open (mending 24)."""
    base = {**CRATE, "discriminator": {"propertyName": "label"}}
    tool = only(describe(json_body(base)))
    assert tool.accepts(weight=4, additional_properties={"colour": "red"})


def test_a_closed_body_stays_closed():
    """An example does not open a body that allows no other members (mending 24)."""
    tool = with_example({**CRATE, "additionalProperties": False}, {"weight": 4, "colour": "red"})
    assert "colour" in tool.reason
    assert "additional_properties" not in tool.properties


def test_a_name_of_the_body_is_not_taken():
    """The argument of further members steps aside for a property of its name (mending 24)."""
    crate = {**CRATE, "properties": {**CRATE["properties"], "additional_properties": TEXT}}
    tool = with_example(crate, {"weight": 4, "colour": "red"})
    assert tool.draft.binding.body.additional == "additional_properties_2"


def test_a_schema_that_multiplies_is_not_tried():
    """A value of parts that apply one another without end is not made (mending 23)."""
    parts = {
        f"P{n}": {"allOf": [{"$ref": f"#/components/schemas/P{n + 1}"}] * 8} for n in range(11)
    }
    body = {"anyOf": [{"$ref": "#/components/schemas/P0"}, {"type": "null"}]}
    tool = only(describe(json_body(body), components=components(**parts, P11=WHOLE)))
    assert tool.outcome.status == "imported"


def test_made_values_of_a_document_have_a_bounded_number_of_steps(monkeypatch):
    """A small description cannot keep an import busy with made values (mending 10)."""
    steps = 0
    collect = example_values.ValueMaker._collect

    def count_steps(self, *arguments):
        nonlocal steps
        steps += 1
        collect(self, *arguments)

    monkeypatch.setattr(trial_calls, "_STEPS_OF_ALL", 5_000)
    monkeypatch.setattr(example_values.ValueMaker, "_collect", count_steps)
    wide = {"allOf": [{"allOf": [TEXT] * 30}] * 30}
    choice = {"oneOf": [{"$ref": "#/components/schemas/Wide"}] * 20}
    body = {"type": "object", "properties": {f"p{n}": choice for n in range(5)}}
    assert only(describe(json_body(body), components=components(Wide=wide))).outcome.status
    assert 0 < steps < 5_000 + 2 * example_values._STEPS_LIMIT


def test_long_lists_of_values_are_not_compared_with_one_another():
    """Comparing each value of two long lists takes the product of their lengths (mending 10)."""
    halves = [{"enum": list(range(1_500))}, {"enum": list(range(1_500, 3_000))}]
    with pytest.raises(example_values.Unmakeable):
        example_values.ValueMaker({}).make([{"allOf": halves}])

"""Input schemas that are too big for a list."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, validator_for
from msgspec.json import encode

from registry.display.schema_folding import Fold
from registry.display.schema_summaries import Summaries
from tests.properties import examples
from tests.registry.anyschema import instances, schemas

MORE = "Call describe_tool for all."
TEXT = {"type": "string", "description": "What it is. " * 20}

Json = dict[str, Any]


def size(schema: Json) -> int:
    return len(encode(schema).decode())


def object_of(required: tuple[str, ...] = (), **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), limit=st.integers(60, 4000), references=st.booleans())
def test_a_folded_schema_accepts_all_values_of_the_whole_schema(
    data: st.DataObject, limit: int, references: bool
) -> None:
    schema = data.draw(schemas())
    value = data.draw(instances(schema))
    assume(Draft202012Validator(schema).is_valid(value))
    folded = Fold(limit, MORE, references, text=data.draw(st.sampled_from((None, 20))))(schema)
    assert Draft202012Validator(folded.schema).is_valid(value)
    assert references or b'"$ref"' not in encode(folded.schema)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=schemas(), limit=st.integers(300, 3000))
def test_a_folded_schema_is_within_its_limit_and_can_be_read(schema: Json, limit: int) -> None:
    folded = Fold(limit, MORE)(schema)
    Draft202012Validator(folded.schema)
    assert size(folded.schema) <= limit


def test_a_schema_that_fits_is_whole() -> None:
    schema = object_of(("a",), a=TEXT, b={"$ref": "#/$defs/B"}) | {
        "$defs": {"B": object_of(c=TEXT)}
    }
    folded = Fold(size(schema) + 100, MORE)(schema)
    assert (folded.schema, folded.parts) == (schema, 0)


def test_optional_deep_parts_are_folded_first() -> None:
    deep = object_of(inner=object_of(deepest=TEXT, other=TEXT))
    schema = object_of(("must",), must=deep, may=deep, flat=TEXT)
    properties = Fold(size(schema) - 50, MORE)(schema).schema["properties"]
    assert properties["must"] == deep
    assert properties["flat"] == TEXT
    assert "inner" in str(properties["may"])
    assert properties["may"] != deep


def test_a_summary_describes_type_and_members() -> None:
    pet = object_of(("name",), age=TEXT, name=TEXT) | {"description": "A pet. It has a home."}
    schema = object_of(pet=pet, kinds={"enum": [f"kind-{number:03}" for number in range(300)]})
    properties = Fold(540, MORE)(schema).schema["properties"]
    assert properties["pet"] == {
        "type": "object",
        "description": f"A pet. Fields: name, age. {MORE}",
    }
    assert properties["kinds"]["type"] == "string"
    assert 'One of 300: "kind-000", "kind-001"' in properties["kinds"]["description"]


def test_definitions_that_nothing_leads_to_any_more_are_gone() -> None:
    definitions = {
        "Pet": object_of(owner={"$ref": "#/$defs/Owner"}, about=TEXT),
        "Owner": object_of(name=TEXT),
    }
    schema = object_of(pet={"$ref": "#/$defs/Pet"}) | {"$defs": definitions}
    folded = Fold(250, MORE)(schema).schema
    assert folded["properties"]["pet"] == {"$ref": "#/$defs/Pet"}
    assert list(folded["$defs"]) == ["Pet"]
    assert "Fields: owner, about" in folded["$defs"]["Pet"]["description"]


def test_references_are_inlined_for_clients_without_references() -> None:
    definitions = {"Size": {"type": "string", "enum": ["S", "M"], "description": "A size."}}
    schema = object_of(size={"$ref": "#/$defs/Size", "description": "Of it."}) | {
        "$defs": definitions
    }
    folded = Fold(1000, MORE, references=False)(schema)
    assert folded.schema["properties"]["size"] == {
        "type": "string", "enum": ["S", "M"], "description": "Of it.",
    }  # fmt: skip
    assert "$defs" not in folded.schema
    assert not folded.is_shortened


def test_a_circle_of_references_ends_in_a_summary() -> None:
    tree = object_of(
        ("value",), value=TEXT, children={"type": "array", "items": {"$ref": "#/$defs/T"}}
    )
    schema = object_of(tree={"$ref": "#/$defs/T"}) | {"$defs": {"T": tree}}
    folded = Fold(5000, MORE, references=False)(schema)
    shown = folded.schema["properties"]["tree"]["properties"]["children"]["items"]
    assert shown == {"type": "object", "description": f"Fields: value, children. {MORE}"}
    assert folded.is_shortened
    value = {"tree": {"value": "x", "children": [{"value": "y", "children": []}]}}
    assert Draft202012Validator(folded.schema).is_valid(value)


@pytest.mark.parametrize(
    "odd",
    [
        {"$dynamicRef": "#x"},
        {"$ref": "#/properties/a"},
        {"$ref": "https://example.com/schema"},
        {"$anchor": "x", "type": "string"},
    ],
    ids=str,
)
def test_a_schema_that_refers_to_itself_in_other_ways_shows_its_arguments(odd: Json) -> None:
    schema = object_of(("a",), a=odd, b=TEXT, c=object_of(d=TEXT, e=TEXT, f=TEXT))
    folded = Fold(500, MORE)(schema).schema
    assert folded["properties"].keys() >= {"a"}
    assert folded["required"] == ["a"]
    assert size(folded) <= 500


def test_required_arguments_are_shown_among_too_many() -> None:
    names = [f"argument_{number:04}" for number in range(2000)]
    schema = object_of(("argument_1999",), **{name: {"type": "string"} for name in names})
    schema["additionalProperties"] = False
    folded = Fold(2000, MORE)(schema).schema
    assert size(folded) <= 2000
    assert "argument_1999" in folded["properties"]
    assert folded["description"] == MORE
    assert Draft202012Validator(folded).is_valid({"argument_1999": "x", "argument_1500": "y"})


def test_siblings_of_a_reference_mean_nothing_in_an_old_draft() -> None:
    schema = object_of(a={"$ref": "#/definitions/A", "type": "string"}) | {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"A": {"type": "integer", "description": "N. " * 100}},
    }
    folded = Fold(5000, MORE, references=False)(schema).schema
    assert validator_for(schema).is_valid({"a": 1})
    assert validator_for(folded).is_valid({"a": 1})


@pytest.mark.parametrize("limit", [4_000, 60_000])
def test_parts_that_lead_to_one_another_are_looked_at_a_bounded_number_of_times(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty unions of all thirty, references replaced: the number of paths has no end."""
    looked: list[Any] = []
    summary = Summaries.of
    monkeypatch.setattr(
        Summaries, "of", lambda self, schema: (looked.append(1), summary(self, schema))[1]
    )
    names = [f"N{number}" for number in range(30)]
    each = {
        name: {"oneOf": [*({"$ref": f"#/$defs/{one}"} for one in names), object_of((), k=TEXT)]}
        for name in names
    }
    schema = {**object_of((), a={"$ref": "#/$defs/N0"}), "$defs": each}
    folded = Fold(limit, MORE, references=False)(schema)
    assert size(folded.schema) <= limit
    assert len(looked) < 5_000

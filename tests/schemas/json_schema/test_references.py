"""References inside a schema lead where the validator follows them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.json import encode

from schemas.json_schema.checker import Checker
from schemas.json_schema.pointers import ABSENT
from schemas.json_schema.references import (
    SchemaDocument,
    close,
    definition_name,
    find,
    refer_to,
    reference_of,
)

LEAF = {"type": "integer"}
ROOT = {
    "$defs": {"Pet": {"properties": {"age": LEAF}}, "a/b": LEAF, "x~y": LEAF, "per%20cent": LEAF},
    "prefixItems": [{}, LEAF],
}


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/Pet/properties/age", "#/$defs/a~1b", "#/$defs/x~0y", "#/$defs/per%2520cent",
        "#/prefixItems/1",
    ],
)  # fmt: skip
def test_a_pointer_leads_to_its_target(reference: str) -> None:
    assert find(ROOT, reference) is LEAF


def test_a_bare_fragment_is_the_whole_schema() -> None:
    assert find(ROOT, "#") is ROOT


@pytest.mark.parametrize(
    "reference",
    [
        "#/$defs/a/b", "#/$defs/Dog", "#/prefixItems/2", "#/prefixItems/-1", "#/prefixItems/x",
        f"#/prefixItems/{'9' * 5000}", "#Pet", "Pet", "https://example.com/#/$defs/Pet", "", 7,
        None,
    ],
)  # fmt: skip
def test_a_reference_without_a_target_is_absent(reference: Any) -> None:
    assert find(ROOT, reference) is ABSENT


@given(st.text("aZ09/~%.-_$", min_size=1, max_size=8))
def test_a_written_reference_is_followed_by_the_validator(name: str) -> None:
    root = {"$defs": {name: LEAF}, "properties": {"a": refer_to(name)}}
    assert find(root, reference_of(refer_to(name))) is LEAF
    assert definition_name(refer_to(name)) == name
    checker = Checker(encode(root))
    assert checker.accepts({"a": 1})
    assert not checker.accepts({"a": "text"})


@pytest.mark.parametrize(
    "schema",
    [
        {}, True, None, {"$ref": 7}, {"$ref": "#"}, {"$ref": "#/$defs"}, {"$ref": "#/properties/a"},
        {"$ref": "#/definitions/Pet"}, {"$ref": "x#/$defs/Pet"},
    ],
)  # fmt: skip
def test_a_schema_that_refers_to_no_definition_has_no_name(schema: Any) -> None:
    assert definition_name(schema) == ""


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#here", "anchor"), ("#there", "dynamic"), ("inner.json", "id"),
        ("inner.json#/properties/deep", "deep"), ("#/properties/a", "anchor"), ("#nowhere", None),
        ("outer.json#/properties/deep", None), ("#/nowhere", None), (7, None),
    ],
)  # fmt: skip
def test_anchors_and_identifiers_name_parts_of_a_document(
    reference: Any, target: str | None
) -> None:
    document = SchemaDocument(
        {
            "properties": {
                "a": {"title": "anchor", "$anchor": "here"},
                "b": {"title": "dynamic", "$dynamicAnchor": "there"},
                "c": {
                    "title": "id",
                    "$id": "inner.json#",
                    "properties": {"deep": {"title": "deep"}},
                },
            }
        }
    )
    schema = next(document.targets({"$ref": reference}), ABSENT)
    assert schema is ABSENT if target is None else schema["title"] == target


def test_a_closed_part_has_its_reachable_definitions() -> None:
    root = {
        "$defs": {
            "A": {"items": {"$ref": "#/$defs/B"}},
            "B": {"$ref": "#/definitions/C"},
            "Circle": {"$ref": "#/$defs/Circle"},
            "Unused": {"$ref": "#/$defs/A"},
        },
        "definitions": {"C": {"$ref": "#/$defs/Circle/properties/x"}, "D": {}},
    }
    part = {"properties": {"a": {"$ref": "#/$defs/A"}}}
    whole = close(part, root)
    assert list(whole["$defs"]) == ["A", "B", "Circle"]
    assert list(whole["definitions"]) == ["C"]
    assert "$defs" not in part
    assert close({"$ref": "#/$defs/Missing"}, root) == {"$ref": "#/$defs/Missing"}
    assert close({"type": "string"}, root) == {"type": "string"}


def test_long_references_lead_nowhere() -> None:
    """A reference of a foreign server costs its own length at most, once, wherever it stands."""
    root = {"$defs": {"a": {}}}
    assert find(root, "#/$defs/a") == {}
    assert find(root, "#/$defs" + "/" * 5000) is ABSENT
    assert list(SchemaDocument(root).targets({"$ref": "#/$defs" + "/" * 5000})) == [ABSENT]


@pytest.mark.parametrize("reference", ["#/$defs/part", "../b.json#/$defs/part"])
def test_references_below_an_id_have_all_targets_that_a_validator_may_take(reference: str) -> None:
    """What `#` means is changed by an embedded `$id`, so that neither costs nor marks are missed
    (JSON Schema 2020-12, section 8.2.1)."""
    inner = {"title": "inner"}
    schema = {
        "$defs": {
            "part": {"title": "root"},
            "b": {"$id": "https://x.example/b.json", "$defs": {"part": inner}},
        }
    }
    assert inner in list(SchemaDocument(schema).targets({"$ref": reference}))

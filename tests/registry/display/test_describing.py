"""Parts of an input schema, by their paths."""

from typing import Any

import pytest

from registry.display.schema_parts import MissingPart, part

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {"$ref": "#/$defs/Spec"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"anyOf": [{"type": "null"}, {"properties": {"x": {"type": "integer"}}}]},
    },
    "$defs": {
        "Spec": {
            "allOf": [
                {"properties": {"containers": {"type": "array", "items": {"$ref": "#/$defs/Box"}}}},
                {"properties": {"name": {"type": "string"}}},
            ]
        },
        "Box": {"type": "object", "properties": {"inner": {"$ref": "#/$defs/Box"}, "env": {}}},
        "Other": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.name", {"type": "string"}),
        ("labels.*", {"type": "string"}),
        ("either.x", {"type": "integer"}),
        ("spec.containers.env", {}),
        ("spec.containers[].env", {}),
        (".".join(["spec.containers", *["inner"] * 20, "env"]), {}),
    ],
)
def test_a_path_leads_through_references_unions_and_arrays(path: str, expected: Any) -> None:
    assert part(SCHEMA, path) == expected


def test_a_part_includes_only_its_definitions() -> None:
    shown = part(SCHEMA, "spec")
    assert shown["$ref"] == "#/$defs/Spec"
    assert list(shown["$defs"]) == ["Spec", "Box"]
    assert "$defs" not in part(SCHEMA, "labels")


@pytest.mark.parametrize(
    ("path", "step", "known"),
    [
        ("spec.naem", "naem", ["containers", "name"]),
        ("nothing.at.all", "nothing", ["spec", "labels", "either"]),
        ("spec.name.deeper", "deeper", []),
        ("", "", ["spec", "labels", "either"]),
    ],
)
def test_a_missing_part_names_the_existing_parts(path: str, step: str, known: list[str]) -> None:
    with pytest.raises(MissingPart) as missing:
        part(SCHEMA, path)
    assert (missing.value.step, missing.value.known) == (step, known)

"""What is breaking and what is not, change by change."""

from typing import Any

import pytest

from registry.sources.compatibility import comparison_budget, input_changes, output_changes

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
SHORT, LONG = {**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}
ONE, TWO = {**NUMBER, "minimum": 1}, {**NUMBER, "minimum": 2}
EVEN, FOURS = {**NUMBER, "multipleOf": 2}, {**NUMBER, "multipleOf": 4}
A, B = {**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}


def takes(argument: Any = None, *required: str, **others: Any) -> dict[str, Any]:
    properties = {} if argument is None else {"x": argument}
    return {
        "type": "object",
        "properties": properties | others,
        "required": list(required),
        "additionalProperties": False,
    }


def many(schema: Any) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def change_facts(before: Any, after: Any) -> set[tuple[str, str, bool]]:
    return {(one.kind, one.where, one.breaking) for one in input_changes(before, after)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (takes(TEXT, y=TEXT), takes(TEXT), ("argument", "y", True)),
        (takes(TEXT), takes(TEXT, y=TEXT), ("argument", "y", False)),
        (takes(TEXT), takes(TEXT, "x"), ("required", "x", True)),
        (takes(TEXT, "x"), takes(TEXT), ("required", "x", False)),
        (takes(TEXT), takes(NUMBER), ("type", "x", True)),
        (takes(NUMBER), takes({"type": "number"}), ("type", "x", False)),
        (takes({"type": "number"}), takes(NUMBER), ("type", "x", True)),
        (takes({"type": ["string", "null"]}), takes(TEXT), ("type", "x", True)),
        (takes(TEXT), takes({"anyOf": [TEXT, {"type": "null"}]}), ("type", "x", False)),
        (takes({"enum": ["a", "b"]}), takes({"enum": ["a"]}), ("enum", "x", True)),
        (takes({"enum": ["a"]}), takes({"enum": ["a", "b"]}), ("enum", "x", False)),
        (takes(TEXT), takes({**TEXT, "enum": ["a"]}), ("enum", "x", True)),
        (takes({"type": "boolean"}), takes({"const": True}), ("enum", "x", True)),
        (takes(TEXT), takes(SHORT), ("constraint", "x", True)),
        (takes(SHORT), takes(LONG), ("constraint", "x", False)),
        (takes(A), takes(B), ("constraint", "x", True)),
        (takes(ONE), takes(TWO), ("constraint", "x", True)),
        (takes(NUMBER), takes(EVEN), ("constraint", "x", True)),
        (takes(FOURS), takes(EVEN), ("constraint", "x", False)),
        (takes(many(TEXT)), takes(many(NUMBER)), ("type", "x[]", True)),
        (takes({"oneOf": [CAT]}), takes({"oneOf": [CAT, DOG]}), ("enum", "x.kind", False)),
        (takes(TEXT), takes({**TEXT, "description": "new"}), ("description", "x", False)),
        (takes({"not": TEXT}), takes({"not": NUMBER}), ("schema", "x", True)),
    ],
)  # fmt: skip
def test_a_change_of_an_argument_is_told(
    before: Any, after: Any, expected: tuple[str, str, bool]
) -> None:
    assert expected in change_facts(before, after)
    assert any(breaking for _, _, breaking in change_facts(before, after)) == expected[2]


def test_a_new_property_of_a_closed_object_breaks_nothing() -> None:
    before = takes({"type": "object", "properties": {"a": TEXT}})
    after = takes({"type": "object", "properties": {"a": TEXT, "b": NUMBER}})
    assert change_facts(before, after) == {("argument", "x.b", False)}
    assert change_facts(after, before) == {("argument", "x.b", True)}
    free = takes({"type": "object"})  # here callers chose the names
    assert ("type", "x.b", True) in change_facts(free, after)


def test_changes_inside_recursive_schemas_are_reported_once() -> None:
    def tree(value: Any) -> Any:
        children = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
        node = {"type": "object", "properties": {"value": value, "children": children}}
        return takes({"$ref": "#/$defs/Tree"}) | {"$defs": {"Tree": node}}

    assert change_facts(tree(TEXT), tree(TEXT)) == set()
    assert change_facts(tree(TEXT), tree(NUMBER)) == {("type", "x.value", True)}


def test_a_definition_that_moves_changes_nothing_for_callers() -> None:
    before = takes({"$ref": "#/$defs/A"}) | {"$defs": {"A": CAT}}
    after = takes({"$ref": "#/$defs/B"}) | {"$defs": {"B": CAT}}
    assert not any(breaking for *_, breaking in change_facts(before, after))
    assert not any(breaking for *_, breaking in change_facts(before, takes(CAT)))


def test_alternatives_that_change_their_order_break_nothing() -> None:
    before, after = takes({"oneOf": [CAT, DOG]}), takes({"oneOf": [DOG, CAT]})
    assert not any(breaking for *_, breaking in change_facts(before, after))


def test_schemas_that_are_too_large_to_compare_count_as_breaking() -> None:
    def wide(last: Any) -> Any:
        one: Any = last
        for depth in range(150):
            one = {"type": "object", "properties": {f"p{depth}": one}}
        return takes(one)

    assert {(kind, breaking) for kind, _, breaking in change_facts(wide(TEXT), wide(NUMBER))} == {
        ("schema", True)
    }


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (takes(TEXT, y=TEXT), takes(TEXT), ("y", True)),
        (takes(TEXT), takes(TEXT, y=TEXT), ("y", False)),
        (takes(TEXT, "x"), takes(TEXT), ("x", True)),
        (takes(TEXT), takes(NUMBER), ("x", True)),
        (takes(TEXT), takes({"type": ["string", "null"]}), ("x", True)),
        (takes({"enum": ["a"]}), takes({"enum": ["a", "b"]}), ("x", False)),
        (takes(many(takes(TEXT))), takes(many(takes())), ("x[].x", True)),
        (takes(TEXT), None, ("", True)),
        (None, takes(TEXT), ("", False)),
    ],
)  # fmt: skip
def test_a_change_of_the_answers_is_told(
    before: Any, after: Any, expected: tuple[str, bool]
) -> None:
    found = output_changes(before, after)
    assert [(one.where, one.breaking) for one in found] == [expected]
    assert {one.kind for one in found} == {"output"}


def test_fewer_types_of_answers_break_nobody() -> None:
    found = output_changes(takes({"type": ["string", "null"]}), takes(TEXT))
    assert not any(one.breaking for one in found)


def unions(levels: int, last: Any) -> dict[str, Any]:
    """Each level has two alternatives, both of which are the next level: 2^levels in all."""
    inner = {f"L{n}": {"anyOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 2} for n in range(levels)}
    return {**takes({"$ref": "#/$defs/L0"}), "$defs": {**inner, f"L{levels}": last}}


def shared_levels(levels: int, last: Any) -> dict[str, Any]:
    """Each level has two properties, both of which are the next level."""
    inner = {
        f"L{n}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/L{n + 1}"} for name in "pq"},
        }
        for n in range(levels)
    }
    return {**takes({"$ref": "#/$defs/L0"}), "$defs": {**inner, f"L{levels}": last}}


@pytest.mark.parametrize("made", [unions, shared_levels])
def test_schemas_that_multiply_level_by_level_come_to_an_end(made: Any) -> None:
    before, after = made(40, TEXT), made(40, NUMBER)
    assert any(change.breaking for change in input_changes(before, after))
    assert any(change.breaking for change in output_changes(before, after))


def test_each_tool_has_its_own_comparison_budget() -> None:
    before, after = unions(40, TEXT), unions(40, NUMBER)
    with comparison_budget(1000):
        input_changes(before, after)
        [change] = input_changes(takes(SHORT), takes(LONG))
    assert (change.breaking, change.text) == (True, "too large to be compared")
    [change] = input_changes(takes(SHORT), takes(LONG))
    assert not change.breaking


def test_references_of_any_spelling_are_compared() -> None:
    def holder(reference: str, target: Any) -> dict[str, Any]:
        return {
            "properties": {"x": {"$ref": reference}},
            "$defs": {"a b": target, "c%d": target, "list": {"prefixItems": [True, target]}},
        }

    for reference in ("#/$defs/a%20b", "#/$defs/c%25d", "#/$defs/list/prefixItems/1"):
        changes = change_facts(holder(reference, ONE), holder(reference, TWO))
        assert ("constraint", "x", True) in changes
        assert not any(kind == "schema" for kind, _, _ in changes)


def test_an_array_index_of_thousands_of_digits_is_a_reference_to_nothing() -> None:
    """It was a ValueError, which stopped the refresh of the whole source."""
    schema = {**takes(TEXT), "allOf": [{}, {"$ref": f"#/allOf/{'9' * 5000}"}]}
    assert ("schema", "", True) in change_facts(schema, {**schema, "required": ["y"]})

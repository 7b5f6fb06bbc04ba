"""Good answers: their schema, and what to ask for."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.importers.openapi import responses
from registry.importers.openapi.responses import widen
from tests.properties import examples
from tests.registry.importers.describe import components, describe, only

INTEGER = {"type": "integer"}


def answers(content: Any, status: str = "200", **rest: Any) -> dict[str, Any]:
    return {"responses": {status: {"description": "", "content": content}, **rest}}


def json_of(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def output_of(operation: dict[str, Any], endpoint: str = "GET /things", **schemas: Any) -> Any:
    return only(describe(operation, endpoint, components=components(**schemas))).draft.output_schema


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.Draft202012Validator(schema).is_valid(value))


@pytest.mark.parametrize("status", ["200", "201", "299", "2XX", "2xx", "default"])
def test_the_schema_of_a_good_answer_is_kept(status: str) -> None:
    assert output_of(answers(json_of(INTEGER), status)) == INTEGER


@pytest.mark.parametrize("status", ["100", "302", "404", "4XX", "x-2", "2000", "20"])
def test_other_statuses_give_no_output_schema(status: str) -> None:
    assert output_of(answers(json_of(INTEGER), status)) is None


def test_default_is_an_error_where_a_good_answer_is_described() -> None:
    error = {"description": "", "content": json_of({"type": "object"})}
    assert output_of(answers(json_of(INTEGER), default=error)) == INTEGER


def test_several_good_answers_are_alternatives() -> None:
    created = {"description": "", "content": json_of({"$ref": "#/components/schemas/Pet"})}
    schema = output_of(
        answers(json_of(INTEGER), **{"201": created, "204": {"description": ""}}),
        Pet={"type": "object", "properties": {"self": {"$ref": "#/components/schemas/Pet"}}},
    )
    assert fits(schema, 7)
    assert fits(schema, {"self": {"self": {}}})
    assert not fits(schema, {"self": 7})


def test_write_only_properties_are_not_in_the_output() -> None:
    schema = output_of(
        answers(json_of({"$ref": "#/components/schemas/User"})),
        User={
            "type": "object",
            "required": ["id", "password"],
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "password": {"type": "string", "writeOnly": True},
            },
        },
    )
    assert schema == {
        "type": "object",
        "required": ["id"],
        "properties": {"id": schema["properties"]["id"]},
    }
    assert fits(schema, {"id": 7})


def test_the_root_of_the_output_is_the_referenced_schema() -> None:
    pet = {"type": "object", "properties": {"name": {"type": "string"}}}
    assert output_of(answers(json_of({"$ref": "#/components/schemas/Pet"})), Pet=pet) == pet


@pytest.mark.parametrize("schema", [True, {}, {"description": "anything"}, None])
def test_a_schema_that_says_nothing_is_none(schema: Any) -> None:
    content = {"application/json": {} if schema is None else {"schema": schema}}
    assert output_of(answers(content)) is None


@pytest.mark.parametrize(
    "node",
    [None, 7, [], {}, {"200": 7}, {"200": {"content": 7}}, {"200": {"$ref": "#/nowhere"}},
     {"200": {"$ref": "other.yaml#/x"}}, {"200": {"content": {"application/json": 7}}},
     {"200": {"content": {"application/json": {"schema": {"$ref": "#/nowhere"}}}}}],
)  # fmt: skip
def test_nonsense_costs_the_schema_and_not_the_tool(node: Any) -> None:
    assert output_of({"responses": node}) is None


def test_a_head_answers_no_json() -> None:
    assert output_of(answers(json_of(INTEGER)), "HEAD /things") is None


@pytest.mark.parametrize(
    ("types", "accept"),
    [
        (["application/json"], None),
        (["application/xml", "application/json; charset=utf-8"], None),
        ([], None),
        (["*/*"], None),
        (["image/*"], None),
        (["application/pdf"], "application/pdf, */*;q=0.1"),
        (
            ["application/pdf", "text/csv", "application/hal+json"],
            "application/hal+json, text/csv;q=0.9, application/pdf;q=0.8, */*;q=0.1",
        ),
        (["application/vnd.x+json; version=2"], "application/vnd.x+json; version=2, */*;q=0.1"),
        (["text/plain\r\nX-Evil: 1"], None),
        (["nonsense", "text/plain"], "text/plain, */*;q=0.1"),
    ],
)
def test_json_is_preferred_in_the_accept_header(types: list[str], accept: str | None) -> None:
    operation = answers({kind: {"schema": {}} for kind in types})
    assert only(describe(operation, "GET /things")).draft.binding.accept == accept  # type: ignore[union-attr]


def chain(length: int) -> dict[str, Any]:
    """Schemas that refer to one another, each with a long description."""
    return {
        f"Part{n}": {
            "type": "object",
            "description": "x" * 1000,
            "properties": {"next": {"$ref": f"#/components/schemas/Part{n + 1}"}, "n": INTEGER},
        }
        for n in range(length)
    } | {f"Part{length}": INTEGER}


def test_a_huge_answer_is_described_up_to_the_limit() -> None:
    schema = output_of(answers(json_of({"$ref": "#/components/schemas/Part0"})), **chain(100))
    assert len(str(schema)) < responses.CHARACTERS_LIMIT * 1.5
    assert not fits(schema, {"next": {"next": 7}})
    deep: Any = {"anything": "goes"}
    for _ in range(60):
        deep = {"next": deep, "n": 1}
    assert fits(schema, deep)


NAMES = ("A", "B", "C")
LEAVES = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {"const": 1}, {"minimum": 3}, True, False]
) | st.sampled_from([{"$ref": f"#/$defs/{name}"} for name in NAMES])


def _bigger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda one: {"not": one}, inner),
        st.builds(lambda many: {"oneOf": many}, several),
        st.builds(lambda many, more: {"oneOf": many, "anyOf": more}, several, several),
        st.builds(lambda many: {"allOf": many, "unevaluatedProperties": False}, several),
        st.builds(lambda one: {"properties": {"a": one}, "required": ["a"]}, inner),
        st.builds(lambda one: {"items": one, "contains": one, "maxContains": 1}, inner),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
    )


SCHEMAS = st.recursive(LEAVES, _bigger, max_leaves=6)
PLAIN = st.recursive(
    st.sampled_from([{"type": "integer"}, {"type": "string"}, {"const": 1}]), _bigger, max_leaves=3
)
VALUES = st.recursive(
    st.integers(0, 5) | st.just("x"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner, max_size=1),
    max_leaves=4,
)


@given(
    schema=SCHEMAS,
    definitions=st.fixed_dictionaries(dict.fromkeys(NAMES, PLAIN)),
    dropped=st.sets(st.sampled_from(NAMES)),
    values=st.lists(VALUES, min_size=5, max_size=10),
)
@settings(max_examples=examples(300), deadline=None)
def test_without_some_definitions_all_is_accepted_that_was(
    schema: Any, definitions: dict[str, Any], dropped: set[str], values: list[Any]
) -> None:
    whole = {"allOf": [schema], "$defs": definitions}
    kept = {name: one for name, one in definitions.items() if name not in dropped}
    part = widen({"allOf": [schema], "$defs": kept}, dropped)
    assert not any(f"#/$defs/{name}'" in str(part) for name in dropped)
    for value in values:
        assert fits(part, value) or not fits(whole, value)


@pytest.mark.parametrize(
    ("codes", "redirects"), [(["200"], False), (["302", "200"], True), (["3XX"], True)]
)
def test_described_redirects_are_known(codes, redirects):
    """An operation described as a redirect may answer with one (mending 27)."""
    responses = {code: {"description": "R"} for code in codes}
    tool = only(describe({"responses": responses}, "GET /file"))
    assert tool.draft.binding.redirects is redirects

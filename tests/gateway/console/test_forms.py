"""Forms from JSON Schema: drawn, read, and lossless."""

from typing import Any

import msgspec
import pytest

from config.access import Rule
from gateway.admin.resources.import_requests import Import
from gateway.console.forms import (
    FIELDS,
    WHOLE,
    WORK,
    Form,
    add_texts,
    chosen_in,
    example,
    walk,
    words,
)
from gateway.operations.member_texts import MemberText

PET = {
    "type": "object",
    "required": ["name", "adopted"],
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "adopted": {"type": "boolean"},
        "age": {"type": ["integer", "null"], "minimum": 0},
        "species": {"enum": ["cat", "dog"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {
            "type": "object",
            "required": ["mail"],
            "properties": {"mail": {"type": "string"}, "a/b~c": {"type": "number"}},
        },
        "extra": {"type": "object"},
    },
}


def kinds(schema: Any) -> dict[str, str]:
    form = Form(schema)
    return {one.pointer: one.kind for one in walk(form.fields({}))}


def form_values(**values: str) -> dict[str, list[str]]:
    return {f"/{name.replace('__', '/')}": [value] for name, value in values.items()}


def test_each_type_has_its_field() -> None:
    assert kinds(PET) == {
        "/name": "text",
        "/adopted": "switch",
        "/age": "number",
        "/species": "choice",
        "/tags": "lines",
        "/owner": "group",
        "/owner/mail": "area",
        "/owner/a~1b~0c": "number",
        "/extra": "json",
    }


def test_a_form_is_read_as_the_displayed_value() -> None:
    whole = {
        "name": "Rex",
        "adopted": True,
        "age": 3,
        "species": "dog",
        "tags": ["good", "boy"],
        "owner": {"mail": "a@b", "a/b~c": 0.5},
        "extra": {"deep": [{"er": None}]},
    }
    form = Form(PET)
    assert form.holds(whole)
    assert form.holds({"adopted": False})
    assert not form.holds({"adopted": False, "name": ""})  # as JSON only
    assert not form.holds({"adopted": False, "unknown": 1})


def test_empty_fields_are_left_out() -> None:
    reading = Form(PET).read(form_values(name="Rex", age="", species="", tags="", extra=""))
    assert reading.value == {"name": "Rex", "adopted": False}
    assert not reading.errors


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("age", "three", "expected a number"),
        ("age", "1.5", "expected a whole number"),
        ("species", '"cow"', "expected one of the choices"),
        ("extra", "{", ""),
        ("age", "1e999", ""),
    ],
)
def test_an_invalid_text_is_reported_at_its_field(name: str, text: str, part: str) -> None:
    errors = Form(PET).read(form_values(name="Rex", **{name: text})).errors
    assert list(errors) == [f"/{name}"]
    assert part in errors[f"/{name}"]


def test_recursion_depth_and_size_are_fields_that_take_json() -> None:
    tree = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "child": {"$ref": "#"}},
    }
    assert kinds(tree) == {"/name": "area", "/child": "group", "/child/name": "area"} | {
        "/child/child": "json"
    }
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(2000)}}
    assert not Form(wide).is_drawn
    assert len(list(walk(Form(wide).fields({})))) == 1
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(10):
        deep = {"type": "object", "properties": {"in": deep}}
    assert "json" in kinds(deep).values()


@pytest.mark.parametrize(
    "schema",
    [
        True,
        False,
        {},
        {"$ref": "#/nowhere"},
        {"$ref": "https://elsewhere.example/schema"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": ["string", "array", "null"]},
        {"oneOf": [{"type": "string"}] * 80},
        {"oneOf": [], "type": "object"},
        {"enum": []},
        {"enum": "text"},
        {"allOf": [True, {"type": "object"}]},
        {"allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": []},
        {"type": "object", "required": 5, "properties": {"a": {"type": "array", "items": True}}},
        {"type": "string", "pattern": "(a+)+$"},
        {"type": {"a": 1}},
        {"type": "array", "items": {"type": {"a": 1}}},
        {"type": "array", "items": {"type": [["string"]]}},
        {"type": "object", "required": [{}, []], "properties": {"a": {}}},
        {"oneOf": [{"properties": [1]}, {"properties": {"a": {"enum": 5}}}]},
        {"allOf": [{"properties": 5}, {"required": 5}]},
        {"$ref": "#/properties/" + "9" * 5000},
    ],
)
def test_odd_schemas_have_a_form_of_bounded_size(schema: Any) -> None:
    form = Form({"type": "object", "properties": {"it": schema}})
    fields = list(walk(form.fields({})))
    assert len(fields) <= FIELDS
    form.read({"/it": ["1"]})
    Form(schema).read({})
    example(schema)


def test_items_that_may_be_null_are_lines() -> None:
    names = {"type": "array", "items": {"type": ["string", "null"]}}
    schema = {"type": "object", "properties": {"names": names}}
    assert kinds(schema) == {"/names": "lines"}
    assert not Form(schema).holds({"names": [None]})


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
            | {"a40": {"type": "object"}},
        },
        {
            "$ref": "#/$defs/a0",
            "$defs": {
                f"a{n}": {
                    "type": "object",
                    "properties": {f"p{m}": {"$ref": f"#/$defs/a{n + 1}"} for m in range(FIELDS)},
                }
                for n in range(5)
            },
        },
    ],
)
def test_references_that_multiply_are_no_work(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps are counted, not the time; without a bound this would not end."""
    steps = 0
    resolved = Form._resolve

    def count_resolution(*given: Any) -> Any:
        nonlocal steps
        steps += 1
        assert steps < WORK
        return resolved(*given)

    monkeypatch.setattr(Form, "_resolve", count_resolution)
    assert not Form(schema).is_drawn


def test_alternatives_are_chosen() -> None:
    schema = msgspec.json.schema(Import)
    form = Form(schema)
    assert form.node.variants == ("openapi", "graphql", "hybrid", "mcp", "a2a")
    other = Form(schema, chosen_in({"#variant": ["3"]}))
    assert other.read(form_values(name="files", url="http://a.example/")).value == {
        "kind": "mcp",
        "name": "files",
        "url": "http://a.example/",
    }


def test_a_document_keeps_its_lines() -> None:
    drawn = kinds(msgspec.json.schema(Import))
    assert (drawn["/name"], drawn["/url"], drawn["/document"]) == ("text", "text", "area")


def test_required_members_are_in_an_example() -> None:
    assert example(PET) == {"adopted": False}
    wide = {f"p{n}": {"type": "string"} for n in range(100)}
    assert example({"properties": wide, "required": ["p1"]}) == {"p1": ""}


def test_a_rule_is_drawn() -> None:
    form = Form(msgspec.json.schema(Rule))
    assert form.is_drawn
    reading = form.read(form_values(effect='"approve"', tools="create*\ndelete*"))
    assert reading.value == {"effect": "approve", "tools": ["create*", "delete*"]}
    assert WHOLE not in reading.errors


def test_texts_of_a_list_that_are_known_are_boxes() -> None:
    subjects = {"type": "array", "items": {"enum": ["jobs", "sources"]}}
    form = Form({"type": "object", "properties": {"subjects": subjects}})
    assert [one.kind for one in form.fields({})] == ["boxes"]
    assert form.read({"/subjects": ["sources", "other"]}).value == {"subjects": ["sources"]}
    assert form.read({}).value == {}
    assert form.holds({"subjects": ["jobs", "sources"]})


def test_fields_that_need_a_value_are_missing_in_an_empty_form() -> None:
    form = Form(PET)
    assert form.missing(form.read({}).value) == ["/name"]
    owner = form.read(form_values(name="Rex", owner__a="1") | {"/owner/a~1b~0c": ["1"]}).value
    assert form.missing(owner) == ["/owner/mail"]


@pytest.mark.parametrize(
    ("name", "title"),
    [("on_same_source", "On same source"), ("delayS", "Delay in seconds"), ("URL", "URL")],
)
def test_the_name_of_a_member_is_a_title(name: str, title: str) -> None:
    assert words(name) == title


TIMES = {"properties": {"expires": {"type": "string", "format": "date-time"}}, "type": "object"}


@pytest.mark.parametrize(
    ("posted", "time"),
    [
        ("2030-01-31T12:00", "2030-01-31T12:00:00Z"),
        ("2030-01-31T12:00:05", "2030-01-31T12:00:05Z"),
        ("2030-01-31T12:00:05+02:00", "2030-01-31T12:00:05+02:00"),
    ],
)
def test_a_time_without_a_zone_is_in_utc(posted: str, time: str) -> None:
    form = Form(TIMES)
    assert form.read({"/expires": [posted]}).value == {"expires": time}
    assert form.holds({"expires": time}) == time.endswith("Z")


def test_alternative_fields_stand_beside_required_fields() -> None:
    texts = {
        "a": MemberText("A", "", rarely=True),
        "b": MemberText("B", ""),
        "url": MemberText("URL", "", alternative=True),
    }
    members = {name: {"type": "string"} for name in ("a", "b", "url", "name")}
    form = Form({"type": "object", "required": ["name"], "properties": members})
    fields = add_texts(form.fields({}), texts)
    assert [one.label for one in fields if one.comes_first] == ["url", "name"]
    assert [one.label for one in fields] == ["url", "name", "b", "a"]

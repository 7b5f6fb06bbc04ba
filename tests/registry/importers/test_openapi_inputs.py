"""What the owner of a gateway says about arguments, and names that several values want."""

from itertools import combinations

import pytest
from msgspec import Raw

from registry.importers.openapi import OpenApiOptions, read
from schemas.binding import Parameter
from tests.registry.importers.describe import One, describe, json_body, only, query

STRING = {"type": "string"}
PET = {
    "type": "object",
    "properties": {"name": STRING, "kind": {**STRING, "default": "cat"}},
    "required": ["name", "kind"],
}
FORM = "application/x-www-form-urlencoded"


def describe_marked(operation, **marks):
    return only(describe({**operation, "x-toolgate": marks}))


def hiding(**arguments):
    return {"arguments": {name: {"hide": True, **marks} for name, marks in arguments.items()}}


def test_a_hidden_parameter_is_sent_with_its_value_or_default():
    operation = {
        "parameters": [
            query("v", {**STRING, "default": "2"}),
            query("w", required=True),
            query("nothing"),
        ]
    }
    one = describe_marked(operation, **hiding(v={}, w={"value": [1]}, nothing={}))
    assert one.properties == {}
    assert one.draft.binding.parameters == (
        Parameter("", "v", "query", "form", True, fixed=Raw(b'"2"')),
        Parameter("", "w", "query", "form", True, fixed=Raw(b"[1]")),
    )
    assert one.outcome.status == "imported"


def test_a_hidden_required_parameter_needs_a_value():
    operation = {"parameters": [query("v", required=True)], "x-toolgate": hiding(v={})}
    [outcome] = read(describe(operation)).outcomes
    assert outcome.status == "skipped"
    assert outcome.reason == "parameter v is needed, but hidden, and has no value"
    operation = {**json_body(PET, required=True), "x-toolgate": hiding(name={})}
    [outcome] = read(describe(operation)).outcomes
    assert outcome.reason == "body: name is needed, but hidden, and has no value"


def test_hidden_properties_of_a_body():
    one = describe_marked(json_body(PET, required=True), **hiding(kind={}))
    assert one.schema["required"] == ["name"]
    body = one.draft.binding.body
    assert (body.properties, body.fixed) == ((("name", "name"),), {"kind": "cat"})
    marked_there = {
        **PET["properties"],
        "name": {**STRING, "x-toolgate": {"hide": True, "value": 1}},
    }
    one = only(describe(json_body({**PET, "properties": marked_there}, required=True)))
    assert one.draft.binding.body.fixed == {"name": 1}
    assert list(one.properties) == ["kind"]


def test_members_of_a_body_that_is_one_argument_can_be_fixed():
    schema = {"properties": {"a": STRING}, "additionalProperties": True}
    one = describe_marked(json_body(schema, required=True), **hiding(a={"value": "x"}))
    assert one.draft.binding.body.fixed == {"a": "x"}


def test_arguments_are_called_and_described_as_their_owner_says():
    operation = {"parameters": [query("q"), query("search")], **json_body(PET, required=True)}
    arguments = {
        "q": {"name": "search", "description": "What to look for."},
        "name": {"name": "called"},
    }
    one = describe_marked(operation, arguments=arguments)
    assert list(one.properties) == ["search", "search_query", "called", "kind"]
    assert one.properties["search"]["description"] == "What to look for."
    assert one.draft.binding.body.properties[0] == ("called", "name")
    assert one.schema["required"] == ["called", "kind"]


def test_marks_stand_on_a_parameter_too():
    one = only(describe({"parameters": [query("q", **{"x-toolgate": {"name": "text"}})]}))
    assert list(one.properties) == ["text"]


def test_a_mark_for_nothing_is_reported():
    assert (
        describe_marked({}, **hiding(q={})).reason
        == "the argument 'q', which is marked, is not there"
    )


def test_texts_toolsets_and_examples():
    marks = {
        "title": "Make",
        "description": "Makes a thing.",
        "toolsets": ["shop"],
        "examples": [{"q": "x"}],
    }
    operation = {"summary": "s", "description": "d", "operationId": "make"}
    one = describe_marked({**operation, "parameters": [query("q")]}, **marks)
    draft = one.draft
    assert (draft.title, draft.description) == ("Make", "Makes a thing.")
    assert (draft.toolsets, draft.operation) == (("shop",), "make")
    assert one.schema["examples"] == [{"q": "x"}]


CONTENT = {
    "requestBody": {
        "content": {
            kind: {"schema": {"properties": {"a": STRING}}}
            for kind in ("application/json", FORM, "application/xml")
        }
    }
}


def test_the_media_type_can_be_chosen():
    assert describe_marked(CONTENT, media_type=FORM).draft.binding.body.media_type == FORM
    preferring = OpenApiOptions(media_types=("text/csv", "application/xml"))
    [draft] = read(describe(CONTENT), preferring).drafts
    assert draft.binding.body.media_type == "application/xml"
    [draft] = read(describe({**CONTENT, "x-toolgate": {"media_type": FORM}}), preferring).drafts
    assert draft.binding.body.media_type == FORM
    one = describe_marked(CONTENT, media_type="text/csv")
    assert one.draft.binding.body.media_type == "application/json"
    assert one.reason == "the media type 'text/csv', which is marked, is not described"


@pytest.mark.parametrize(
    ("schema", "best"),
    [
        ({"type": "object"}, "application/merge-patch+json"),
        ({}, "application/merge-patch+json"),
        ({"type": "array", "items": {}}, "application/json-patch+json"),
    ],
)
def test_the_patch_that_fits_its_schema(schema, best):
    kinds = ("application/json-patch+json", "application/merge-patch+json",
             "application/strategic-merge-patch+json", "application/apply-patch+yaml")  # fmt: skip
    content = {kind: {"schema": schema} for kind in kinds}
    one = only(describe({"requestBody": {"content": content}}, "PATCH /things"))
    assert one.draft.binding.body.media_type == best


PLACES = ("path", "query", "header", "cookie", "body")


def parameters_in(places):
    parameters = [
        {"name": "id", "in": place, "required": place == "path", "schema": STRING}
        for place in places
        if place != "body"
    ]
    body = json_body({"properties": {"id": STRING}}) if "body" in places else {}
    return {"parameters": parameters, **body}


@pytest.mark.parametrize("places", [*combinations(PLACES, 2), PLACES])
def test_values_of_one_name_are_kept_apart(places):
    one: One = only(describe(parameters_in(places), "POST /things/{id}"))
    binding = one.draft.binding
    arguments = {parameter.argument for parameter in binding.parameters}
    arguments |= {argument for argument, _ in binding.body.properties} if binding.body else set()
    assert {parameter.name for parameter in binding.parameters} == {"id"}
    assert arguments == set(one.properties)
    assert len(arguments) == len({*places, "path"})
    assert "id" in arguments


def test_any_token_is_a_method():
    item = {"additionalOperations": {"LINK": {"operationId": "link"}}, "query": {}}
    root = {"openapi": "3.2.0", "info": {}, "paths": {"/x": item}}
    drafts = {draft.binding.method: draft for draft in read(root).drafts}
    assert set(drafts) == {"LINK", "QUERY"}
    assert drafts["QUERY"].annotations.read_only_hint is True
    assert drafts["LINK"].annotations.read_only_hint is False


@pytest.mark.parametrize(
    ("path", "name", "sent"),
    [
        ("/a/{x}.{y}", "x", "/a/{x}.{y}"),
        ("/a/{x+}", "x", "/a/{x}"),
        ("/a/{+x}", "x", "/a/{x}"),
        ("/a/{x:[0-9]+}", "x", "/a/{x}"),
        ("/a/{x*}", "x", "/a/{x}"),
        ("/a/{ x }", " x ", "/a/{ x }"),
        ("/a/{x-y.z}", "x-y.z", "/a/{x-y.z}"),
        ("/a/{x}{?y,z}", "x", "/a/{x}"),
        ("/a?do=it&x={x}", "x", "/a?do=it&x={x}"),
        ("/a/{x}#part", "x", "/a/{x}"),
        ("/a b/{x}", "x", "/a%20b/{x}"),
    ],
)
def test_path_templates_of_other_dialects_are_understood(path, name, sent):
    parameters = [{"name": name, "in": "path", "required": True, "schema": STRING}]
    one = only(describe({"parameters": parameters}, f"GET {path}"))
    assert one.draft.binding.path == sent
    assert name in {parameter.name for parameter in one.draft.binding.parameters}


def test_a_parameter_that_may_be_empty_may_be_null():
    one = only(describe({"parameters": [query("q", {"type": "integer"}, allowEmptyValue=True)]}))
    assert one.draft.binding.parameters[0].allow_empty
    assert one.accepts(q=None)
    assert not one.accepts(q="x")


def test_the_query_as_a_whole():
    whole = {"name": "q", "in": "querystring", "content": {FORM: {"schema": {"type": "object"}}}}
    [found] = only(describe({"parameters": [whole]}, version="3.2.0")).draft.binding.parameters
    assert (found.location, found.media_type) == ("querystring", FORM)


@pytest.mark.parametrize(("version", "open_"), [("3.1.0", False), ("3.2.0", True)])
def test_reserved_characters_pass_into_paths_since_3_2(version, open_):
    raw = {"name": "p", "in": "path", "required": True, "schema": STRING, "allowReserved": True}
    one = only(describe({"parameters": [raw]}, "GET /{p}", version=version))
    assert one.draft.binding.parameters[0].allow_reserved is open_


def test_a_renamed_argument_names_its_parameter():
    """Texts of the service use the original name, which the description tells (mending 29)."""
    parameters = [
        query("filter[status]", description="What to list."),
        query("user id", description="See `user id` of a room."),
        query("sort", description="The order."),
        query("id", description="The video."),
        {**query("id"), "in": "header"},
    ]
    body = json_body({"type": "object", "properties": {"größe": {"type": "integer"}}})
    described = {
        name: schema.get("description")
        for name, schema in only(describe({"parameters": parameters, **body})).properties.items()
    }
    [size] = (name for name in described if name.startswith("gro"))
    assert described == {
        "filter_status": "What to list.\n\nNamed filter[status] by the service.",
        "user_id": "See `user id` of a room.",
        "sort": "The order.",
        "id": "The video.",
        "id_header": "Named id by the service.",
        size: "Named größe by the service.",
    }

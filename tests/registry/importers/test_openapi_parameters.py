import re

import pytest

from schemas.binding import Parameter
from tests.registry.importers.describe import (
    components,
    describe,
    document,
    import_description,
    json_body,
    only,
    query,
)


def one_parameter(parameter: dict, endpoint: str = "GET /things", **rest):
    return only(describe({"parameters": [parameter]}, endpoint, **rest))


def test_a_parameter_is_an_argument_of_its_name():
    one = one_parameter(query("limit", {"type": "integer"}, description="How many."))
    assert one.schema == {
        "type": "object",
        "properties": {"limit": {"type": "integer", "description": "How many."}},
        "additionalProperties": False,
    }
    assert one.draft.binding.parameters == (Parameter("limit", "limit", "query", "form", True),)


@pytest.mark.parametrize(
    ("location", "style", "explode"),
    [
        ("path", "simple", False),
        ("query", "form", True),
        ("header", "simple", False),
        ("cookie", "form", True),
    ],
)
def test_style_and_explode_have_defaults_by_location(location, style, explode):
    parameter = {"name": "x", "in": location, "schema": {"type": "string"}, "required": True}
    one = one_parameter(parameter, "GET /{x}" if location == "path" else "GET /")
    [wire] = one.draft.binding.parameters
    assert (wire.location, wire.style, wire.explode) == (location, style, explode)


@pytest.mark.parametrize(
    ("stated", "style", "explode"),
    [
        ({"style": "form", "explode": False}, "form", False),
        ({"style": "pipeDelimited"}, "pipeDelimited", False),
        ({"style": "deepObject", "explode": True}, "deepObject", True),
    ],
)
def test_style_and_explode_as_stated(stated, style, explode):
    [wire] = one_parameter(query("x", **stated)).draft.binding.parameters
    assert (wire.style, wire.explode) == (style, explode)


def test_a_style_of_another_location_is_reported_and_replaced():
    one = one_parameter(query("x", style="matrix"))
    assert one.draft.binding.parameters[0].style == "form"
    assert one.reason == "parameter x: style 'matrix' is not for a query"


def test_allow_reserved_is_for_queries():
    assert one_parameter(query("x", allowReserved=True)).draft.binding.parameters[0].allow_reserved


def test_a_content_parameter_carries_its_media_type():
    content = {"application/json": {"schema": {"type": "object"}}}
    one = one_parameter({"name": "filter", "in": "query", "content": content})
    assert one.properties == {"filter": {"type": "object"}}
    assert one.draft.binding.parameters[0].media_type == "application/json"


def test_path_parameters_are_always_required():
    one = one_parameter({"name": "id", "in": "path", "schema": {}}, "GET /{id}")
    assert one.schema["required"] == ["id"]


def test_parameters_of_the_path_are_overridden_by_name_and_location():
    item = {
        "parameters": [
            query("a", description="of the path"),
            query("b", description="of the path"),
            {"name": "b", "in": "header", "schema": {"type": "string"}},
        ],
        "get": {"parameters": [query("b", description="of the operation")]},
    }
    one = only(document({"/": item}))
    assert {name: p.get("description") for name, p in one.properties.items()} == {
        "a": "of the path",
        "b": "of the operation",
        "b_header": "Named b by the service.",
    }


def test_header_names_are_compared_without_case():
    item = {
        "parameters": [{"name": "X-Trace", "in": "header", "schema": {"type": "string"}}],
        "get": {"parameters": [{"name": "x-trace", "in": "header", "schema": {"type": "integer"}}]},
    }
    assert only(document({"/": item})).properties == {"x-trace": {"type": "integer"}}


def test_references_to_parameters_with_a_description_of_their_own():
    shared = {"parameters": {"Limit": query("limit", description="Shared.")}}
    ref = {"$ref": "#/components/parameters/Limit"}
    one = one_parameter({**ref, "description": "Here."}, version="3.1.0", components=shared)
    assert one.properties["limit"]["description"] == "Here."
    again = one_parameter(ref, components={"parameters": {**shared["parameters"], "R": ref}})
    assert again.properties["limit"]["description"] == "Shared."


@pytest.mark.parametrize("ref", ["#/components/parameters/Nope", "common.yaml#/x", "#/paths/~1"])
def test_a_parameter_that_is_not_there_skips_its_operation_only(ref):
    paths = {
        "/": {"get": {"parameters": [{"$ref": ref}]}, "post": {}},
    }
    if ref == "#/paths/~1":
        paths["/"]["get"]["parameters"] = [{"$ref": "#/paths/~1/get/parameters/0"}]
    result = import_description(document(paths))
    assert [o.status for o in result.outcomes] == ["skipped", "imported"]
    assert "$ref" in result.outcomes[0].reason


@pytest.mark.parametrize(
    "name",
    [
        *("Accept", "content-type", "AUTHORIZATION", "Host", "Content-Length", "Connection"),
        *("Cookie", "Content-Encoding"),
    ],
)
def test_headers_that_are_not_the_caller_s_are_left_out(name):
    header = {"name": name, "in": "header", "required": True, "schema": {"type": "string"}}
    one = one_parameter(header)
    assert one.properties == {}
    assert one.outcome.status == "imported"


@pytest.mark.parametrize(
    ("name", "location", "offered"),
    [
        ("api_key", "query", False),
        ("api_key", "header", True),
        ("x-api-key", "header", False),
        ("session", "cookie", False),
    ],
)
def test_parameters_of_security_schemes_are_never_offered(name, location, offered):
    schemes = {
        "a": {"type": "apiKey", "name": "api_key", "in": "query"},
        "b": {"type": "apiKey", "name": "X-API-Key", "in": "header"},
        "c": {"$ref": "#/components/securitySchemes/d"},
        "d": {"type": "apiKey", "name": "session", "in": "cookie"},
        "e": {"$ref": "#/nowhere"},
    }
    parameter = {"name": name, "in": location, "required": True, "schema": {"type": "string"}}
    one = one_parameter(parameter, components={"securitySchemes": schemes})
    assert bool(one.properties) is offered


def test_the_template_decides_on_path_parameters():
    parameter = {"name": "gone", "in": "path", "required": True, "schema": {"type": "string"}}
    one = one_parameter(parameter, "GET /{owner}/{repo-name}")
    assert one.properties == {"owner": {"type": "string"}, "repo-name": {"type": "string"}}
    assert one.schema["required"] == ["owner", "repo-name"]
    assert "parameter gone is not in the path" in one.reason
    assert "parameter owner is in the path, but not described" in one.reason


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("filter[status]", "filter_status"),
        ("$top", "top"),
        ("@type", "type"),
        ("a.b-c_d", "a.b-c_d"),
        ("größe", "gro_e_[0-9a-f]{8}"),
        ("n" * 70, "n{55}_[0-9a-f]{8}"),
        ("[]", "value_of"),
    ],
)
def test_names_that_providers_refuse_are_replaced_and_mapped_back(name, argument):
    [wire] = one_parameter(query(name)).draft.binding.parameters
    assert wire.name == name
    assert re.fullmatch(argument, wire.argument)


def test_names_that_become_equal_stay_apart_and_the_exact_one_keeps_its_own():
    parameters = [query("a[b]"), query("a(b)"), query("a_b"), query("a_b_query")]
    one = only(describe({"parameters": parameters}))
    names = {p.name: p.argument for p in one.draft.binding.parameters}
    assert names == {
        "a[b]": "a_b_query_2",
        "a(b)": "a_b_query_3",
        "a_b": "a_b",
        "a_b_query": "a_b_query",
    }


def test_one_name_in_all_locations_and_in_the_body():
    locations = ("cookie", "header", "query", "path")
    parameters = [
        {"name": "id", "in": location, "required": True, "schema": {"type": "string"}}
        for location in locations
    ]
    body = json_body({"type": "object", "properties": {"id": {"type": "integer"}}})
    one = only(describe({"parameters": parameters, **body}, "PUT /{id}"))
    assert [(p.location, p.argument) for p in one.draft.binding.parameters] == [
        ("cookie", "id_cookie"),
        ("header", "id_header"),
        ("query", "id_query"),
        ("path", "id"),
    ]
    assert one.draft.binding.body.properties == (("body_id", "id"),)
    assert one.properties["body_id"]["type"] == "integer"


def test_descriptions_of_parameter_and_schema_are_joined():
    one = one_parameter(
        query("a", {"type": "string", "description": "A colour."}, description="Of the frame.")
    )
    assert one.properties["a"]["description"] == "Of the frame.\n\nA colour."


def test_examples_and_deprecation_reach_the_argument():
    shared = {"examples": {"Red": {"value": "red"}}}
    examples = {
        "a": {"$ref": "#/components/examples/Red"},
        "b": {"value": "blue"},
        "c": {"$ref": "#/components/examples/Nope"},
        "d": {"externalValue": "https://example.com"},
    }
    one = one_parameter(query("a", examples=examples, deprecated=True), components=shared)
    assert one.properties["a"] == {
        "type": "string",
        "deprecated": True,
        "examples": ["red", "blue"],
    }
    assert one_parameter(query("a", example="x")).properties["a"]["examples"] == ["x"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"in": "query"}, "parameter without a name; left out"),
        ({"name": "b", "in": "body"}, "parameter b: `in` is 'body'; left out"),
        ({"name": "b", "in": ["query"]}, "`in` is"),
        ({"name": "a b", "in": "header", "schema": {}}, "no legal name in a header"),
        ({"name": "a\r\nb", "in": "cookie", "schema": {}}, "no legal name in a cookie"),
        ("text", "parameter without a name"),
    ],
)
def test_a_parameter_that_cannot_be_sent_is_left_out_unless_required(broken, reason):
    one = one_parameter(broken)
    assert reason in one.reason
    assert one.properties == {}
    if isinstance(broken, dict):
        result = import_description(describe({"parameters": [{**broken, "required": True}]}))
        assert result.outcomes[0].status == "skipped"


def test_a_parameter_without_schema_keeps_swagger_2_keywords():
    one = one_parameter({"name": "n", "in": "query", "type": "integer", "minimum": 1})
    assert one.properties["n"] == {"type": "integer", "minimum": 1}
    assert one.reason == "parameter n has no schema"


def test_parameters_that_are_no_list_are_reported():
    one = only(describe({"parameters": {"name": "a"}}))
    assert one.reason == "`parameters` is not a list; ignored"


def test_a_broken_parameter_shared_by_two_operations_is_reported_on_both():
    shared = {"parameters": {"P": query("p", {"type": "strng"})}}
    ref = {"parameters": [{"$ref": "#/components/parameters/P"}]}
    result = import_description(document({"/a": {"get": ref, "put": ref}}, components=shared))
    assert [o.reason for o in result.outcomes] == ["parameter p: `type` 'strng' is unknown"] * 2


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (r"/users/{key:\d{2,5}}/files", "/users/{key}/files"),  # JAX-RS, with braces of its own
        ("/files/{*key}", "/files/{key}"),  # ASP.NET
        ("/files/{key?}", "/files/{key}"),
        ("/users/:key", "/users/{key}"),  # Express
        ("/users/:key?/files", "/users/{key}/files"),
        ("/users/{ key }", "/users/{key}"),
        ("/jobs/{key}:cancel", "/jobs/{key}:cancel"),  # a method of Google's, no placeholder
    ],
)
def test_placeholders_of_frameworks_are_substituted(path, sent):
    """A request never carries a template of a framework (mending 28)."""
    key = {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}}
    tool = one_parameter(key, f"GET {path}")
    assert tool.draft.binding.path == sent
    assert list(tool.schema["properties"]) == ["key"]
    assert tool.outcome.status == "imported"


def test_a_placeholder_without_a_name_is_skipped():
    """A path that cannot be filled makes no tool (mending 28)."""
    outcome = import_description(describe({}, "GET /a/{[0-9]+}")).outcomes[0]
    assert outcome.status == "skipped"
    assert outcome.reason == "its path has the placeholder {[0-9]+}, which names no parameter"


LIST = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize("schema", [LIST, {"$ref": "#/components/schemas/Ids"}])
@pytest.mark.parametrize(
    ("place", "rest", "empty"),
    [
        ("path", {}, False),
        ("query", {"required": True}, False),
        ("header", {"required": True}, False),
        ("query", {}, True),
        ("query", {"required": True, "allowEmptyValue": True}, True),
    ],
)
def test_a_required_list_has_an_item(schema, place, rest, empty):
    """An empty list in a path, query or header sends nothing at all (mending 29)."""
    parameter = {"name": "ids", "in": place, "schema": schema, **rest}
    path = "GET /rooms/{ids}" if place == "path" else "GET /rooms"
    tool = only(describe({"parameters": [parameter]}, path, components=components(Ids=LIST)))
    assert tool.accepts(ids=[3])
    assert tool.accepts(ids=[]) is empty


def test_a_required_list_as_json_may_be_empty():
    """A parameter with a media type sends an empty list as text (mending 29)."""
    content = {"application/json": {"schema": LIST}}
    parameter = {"name": "ids", "in": "query", "required": True, "content": content}
    assert only(describe({"parameters": [parameter]}, "GET /rooms")).accepts(ids=[])

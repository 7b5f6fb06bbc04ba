import pytest

from registry.importers.openapi.document import OpenApiDocument
from registry.importers.openapi.media_types import preferred_media_type
from registry.importers.openapi.property_encodings import FILE
from registry.importers.openapi.raw_schema_facts import RawSchemas
from schemas.binding import Body
from tests.registry.importers.describe import components, describe, json_body, only, query

PET = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
STRING = {"type": "string"}
A_FILE = {"type": ["string", "object"], "description": FILE}
FORM = "application/x-www-form-urlencoded"


def test_properties_of_a_plain_object_become_arguments():
    one = only(describe(json_body(PET, required=True)))
    assert one.schema == {
        "type": "object",
        "properties": PET["properties"],
        "required": ["name"],
        "additionalProperties": False,
    }
    assert one.draft.binding.body == Body(
        "application/json", required=True, properties=(("name", "name"), ("age", "age"))
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/components/schemas/Pet"},
        {"$ref": "#/components/schemas/Alias"},
        {"allOf": [{"$ref": "#/components/schemas/Pet"}]},
        {"allOf": [{"$ref": "#/components/schemas/Pet"}], "description": "A pet."},
    ],
)
def test_a_plain_object_behind_a_reference_is_hoisted_too(schema):
    schemas = components(Pet=PET, Alias={"$ref": "#/components/schemas/Pet"})
    one = only(describe(json_body(schema), components=schemas))
    assert list(one.properties) == ["name", "age"] or "description" in schema


def test_an_optional_body_is_complete_once_begun():
    one = only(describe(json_body(PET)))
    assert "required" not in one.schema
    assert one.schema["dependentRequired"] == {"age": ["name"]}
    assert one.accepts()
    assert one.accepts(name="Tom")
    assert not one.accepts(age=3)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": STRING},
        {"type": "string"},
        {"type": "object"},
        {"type": ["object", "null"], "properties": {"a": STRING}},
        {"type": "object", "properties": {"a": STRING}, "nullable": True},
        {"properties": {"a": STRING}, "additionalProperties": True},
        {"properties": {"a": STRING}, "additionalProperties": STRING},
        {"properties": {"a": STRING}, "oneOf": [{"required": ["a"]}, {}]},
        {"properties": {"a": STRING}, "minProperties": 1},
        {"properties": {"a": STRING}, "patternProperties": {"^x": STRING}},
        {"properties": {"a": STRING}, "dependentRequired": {"a": ["b"]}},
        {"allOf": [{"properties": {"a": STRING}}, {"properties": {"b": STRING}}]},
        {},
    ],
)
def test_every_other_body_is_one_argument(schema):
    one = only(describe(json_body(schema, required=True, description="What to send.")))
    assert list(one.properties) == ["body"]
    assert one.properties["body"]["description"] == "What to send."
    assert one.schema["required"] == ["body"]
    assert one.draft.binding.body == Body("application/json", required=True, argument="body")


def test_the_argument_for_the_whole_body_gives_way_to_a_parameter():
    operation = {"parameters": [query("body"), query("body_2")], **json_body({"type": "array"})}
    assert only(describe(operation)).draft.binding.body.argument == "body_3"


def test_a_closed_object_is_hoisted():
    schema = {"properties": {"a": STRING}, "additionalProperties": False}
    assert only(describe(json_body(schema))).draft.binding.body.properties == (("a", "a"),)


def test_a_body_property_gives_way_to_parameters_and_keeps_its_name_on_the_wire():
    operation = {
        "parameters": [query("name"), query("body_name")],
        **json_body(PET, required=True),
    }
    one = only(describe(operation))
    assert one.draft.binding.body.properties == (("body_name_2", "name"), ("age", "age"))
    assert one.schema["required"] == ["body_name_2"]


def test_body_properties_with_illegal_names_are_mapped_back():
    schema = {"properties": {"a b": STRING, "a_b": STRING}}
    body = only(describe(json_body(schema))).draft.binding.body
    assert {wire: name for name, wire in body.properties} == {"a b": "body_a_b", "a_b": "a_b"}


def test_a_required_property_that_is_not_described_can_be_given():
    schema = {"properties": {"a": STRING}, "required": ["a", "b"]}
    one = only(describe(json_body(schema, required=True)))
    assert one.properties["b"] == {}
    assert one.reason == "body: b is required, but not described"
    assert one.accepts(a="x", b=1)


def test_read_only_properties_are_not_offered():
    schema = {"properties": {"id": {"readOnly": True}, "n": STRING}, "required": ["id", "n"]}
    one = only(describe(json_body(schema, required=True)))
    assert list(one.properties) == ["n"]
    assert one.schema["required"] == ["n"]


def test_an_empty_body_is_sent_only_if_required():
    empty = {"type": "object", "properties": {}}
    assert only(describe(json_body(empty))).draft.binding.body is None
    sent = only(describe(json_body(empty, required=True))).draft.binding.body
    assert sent == Body("application/json", required=True, properties=())


@pytest.mark.parametrize(
    ("media_types", "best"),
    [
        (["text/plain", "application/json"], "application/json"),
        (["a/b+json", "application/json; charset=utf-8"], "application/json; charset=utf-8"),
        (["multipart/form-data", "application/merge-patch+json"], "application/merge-patch+json"),
        (["multipart/form-data", FORM], FORM),
        (["text/plain", "multipart/form-data"], "multipart/form-data"),
        (["application/octet-stream", "text/plain"], "text/plain"),
        (["image/png", "application/octet-stream"], "application/octet-stream"),
        (["image/png", "image/jpeg"], "image/png"),
        (["*/*", "text/plain"], "text/plain"),
        (["APPLICATION/JSON", "text/plain"], "APPLICATION/JSON"),
    ],
)  # fmt: skip
def test_the_best_media_type_is_chosen(media_types, best):
    content = {media_type: {"schema": STRING} for media_type in media_types}
    assert preferred_media_type(content, RawSchemas(OpenApiDocument(describe({})))) == best


@pytest.mark.parametrize(
    ("stated", "schema", "sent"),
    [
        ("*/*", PET, "application/json"),
        ("application/*", {}, "application/json"),
        ("*/*", STRING, "*/*"),  # of the file that is sent
        ("text/*", STRING, "text/plain"),
        ("multipart/*", PET, "multipart/form-data"),
        ("image/*", STRING, "image/*"),
    ],
)
def test_a_range_stands_for_the_type_we_prefer(stated, schema, sent):
    operation = {"requestBody": {"content": {stated: {"schema": schema}}}}
    assert only(describe(operation)).draft.binding.body.media_type == sent


@pytest.mark.parametrize(
    ("media_type", "schema"),
    [("application/json", {}), ("text/plain", STRING), ("image/png", A_FILE)],
)
def test_a_media_type_without_schema(media_type, schema):
    one = only(describe({"requestBody": {"content": {media_type: {}}}}))
    assert one.properties == {"body": schema}


def test_forms_are_hoisted():
    content = {"multipart/form-data": {"schema": PET}}
    one = only(describe({"requestBody": {"content": content}}))
    assert one.properties == PET["properties"]


@pytest.mark.parametrize("endpoint", ["GET /", "HEAD /", "DELETE /"])
def test_any_method_may_have_a_body(endpoint):
    one = only(describe(json_body(PET), endpoint))
    assert one.draft.binding.body.properties
    assert one.outcome.status == "imported"


def test_a_referenced_body():
    bodies = {"requestBodies": {"Pet": {**json_body(PET)["requestBody"], "required": True}}}
    operation = {"requestBody": {"$ref": "#/components/requestBodies/Pet"}}
    assert only(describe(operation, components=bodies)).schema["required"] == ["name"]


@pytest.mark.parametrize("content", [None, {}, [], "json"])
def test_a_body_without_content_is_reported(content):
    one = only(describe({"requestBody": {"content": content}}))
    assert one.reason == "`requestBody` has no `content`; nothing is sent"
    assert one.draft.binding.body is None


def test_a_recursive_body_keeps_its_cycle():
    node = {"properties": {"children": {"items": {"$ref": "#/components/schemas/Node"}}}}
    one = only(
        describe(json_body({"$ref": "#/components/schemas/Node"}), components=components(Node=node))
    )
    assert list(one.properties) == ["children"]
    assert one.accepts(children=[{"children": [{}]}])
    assert list(one.schema["$defs"]) == ["Node"]


def test_a_media_type_that_would_end_its_header_is_none():
    content = {"text/plain\r\nX-Forged: 1": {}, "text/csv": {"schema": STRING}}
    one = only(describe({"requestBody": {"content": content}}))
    assert one.draft.binding.body.media_type == "text/csv"

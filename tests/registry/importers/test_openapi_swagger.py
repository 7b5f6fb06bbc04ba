"""Swagger 2.0 in the words of 3.x."""

from typing import Any

import pytest

from registry.importers.openapi import read
from registry.importers.openapi.document import OpenApiDocument
from registry.importers.openapi.operations import DocumentOperation, operations
from schemas.binding import Part
from tests.registry.importers.describe import One, import_description, only


def swagger(paths: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"swagger": "2.0", "info": {"title": "T", "version": "1"}, "paths": paths, **rest}


def operation(
    node: dict[str, Any], item: dict[str, Any] | None = None, **rest: Any
) -> DocumentOperation:
    found, skipped = operations(
        OpenApiDocument(swagger({"/a": {**(item or {}), "post": node}}, **rest))
    )
    assert skipped == []
    return found[0]


def one(node: dict[str, Any], **rest: Any) -> One:
    return only(swagger({"/a": {"post": node}}, **rest))


@pytest.mark.parametrize("version", ["2.0", 2.0, 2])
def test_the_version_may_be_a_number(version):
    assert len(read({**swagger({"/a": {"get": {}}}), "swagger": version}).drafts) == 1


@pytest.mark.parametrize(
    ("root", "servers"),
    [
        ({"host": "a.com", "basePath": "/v1", "schemes": ["http"]}, ["http://a.com/v1"]),
        ({"host": "a.com", "schemes": ["http", "https"]}, ["https://a.com", "http://a.com"]),
        ({"host": "a.com:8080", "basePath": "v1/"}, ["//a.com:8080/v1", "https://a.com:8080/v1"]),
        ({"host": "a.com", "schemes": ["ws"]}, ["//a.com", "https://a.com"]),
        ({"host": "http://a.com", "basePath": "/"}, ["http://a.com"]),
        ({"basePath": "/v1"}, ["/v1"]),
        ({}, ["/"]),
    ],
)
def test_host_base_path_and_schemes_are_servers(root, servers):
    assert list(read(swagger({"/a": {"get": {}}}, **root)).servers) == servers


def test_an_operation_with_schemes_of_its_own_has_a_server_of_its_own():
    root = {"host": "a.com", "schemes": ["https"]}
    assert operation({"schemes": ["http"]}, **root).node["servers"] == [{"url": "http://a.com"}]
    assert operation({"schemes": ["https"]}, **root).node["servers"] == []


@pytest.mark.parametrize(
    ("location", "collection", "style"),
    [
        ("query", None, ("form", False)),
        ("query", "csv", ("form", False)),
        ("query", "multi", ("form", True)),
        ("query", "ssv", ("spaceDelimited", False)),
        ("query", "tsv", ("tabDelimited", False)),
        ("query", "pipes", ("pipeDelimited", False)),
        ("path", "csv", None),
        ("header", None, None),
    ],
)
def test_collection_formats_are_styles(location, collection, style):
    parameter = {"name": "x", "in": location, "type": "array", "items": {"type": "integer"}}
    if collection:
        parameter["collectionFormat"] = collection
    [upgraded] = operation({"parameters": [parameter]}).node["parameters"]
    assert upgraded["schema"] == {"type": "array", "items": {"type": "integer"}}
    assert style == ((upgraded["style"], upgraded["explode"]) if "style" in upgraded else None)


def test_swagger_parameter_keywords_become_its_schema():
    parameter = {
        "name": "limit", "in": "query", "description": "How many", "type": "integer",
        "format": "int32", "minimum": 1, "maximum": 9, "multipleOf": 2, "default": 4,
        "x-example": 6, "allowEmptyValue": True,
    }  # fmt: skip
    limit = one({"parameters": [parameter]})
    assert limit.properties["limit"]["minimum"] == 1
    assert limit.properties["limit"]["multipleOf"] == 2
    assert limit.properties["limit"]["examples"] == [6]
    assert limit.properties["limit"]["description"] == "How many"
    assert limit.accepts(limit=2)
    assert not limit.accepts(limit=3)


def test_a_body_is_a_request_body_of_each_type_that_is_consumed():
    body = {"in": "body", "name": "pet", "required": True, "description": "A pet"}
    schema = {"$ref": "#/definitions/Pet"}
    types = ["application/xml", "application/json"]
    upgraded = operation({"parameters": [{**body, "schema": schema}]}, consumes=types)
    assert upgraded.node["requestBody"] == {
        "required": True,
        "description": "A pet",
        "content": {"application/xml": {"schema": schema}, "application/json": {"schema": schema}},
    }
    assert upgraded.node["parameters"] == []
    own = operation({"consumes": ["text/plain"], "parameters": [body]}, consumes=types)
    assert own.node["requestBody"]["content"] == {"text/plain": {"schema": {}}}


def test_definitions_keep_their_names():
    pet = {"type": "object", "properties": {"mother": {"$ref": "#/definitions/Pet"}}}
    body = {"in": "body", "name": "pet", "schema": {"$ref": "#/definitions/Pet"}}
    assert "Pet" in one({"parameters": [body]}, definitions={"Pet": pet}).schema["$defs"]


def test_form_parameters_are_one_form():
    parameters = [
        {"in": "formData", "name": "name", "type": "string", "required": True},
        {"in": "formData", "name": "tags", "type": "array", "items": {"type": "string"}},
        {
            "in": "formData", "name": "ids", "type": "array", "items": {"type": "integer"},
            "collectionFormat": "multi", "x-toolgate": {"hide": True},
        },
    ]  # fmt: skip
    assert operation({"parameters": parameters}).node["requestBody"] == {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "ids": {
                            "type": "array",
                            "items": {"type": "integer"},
                            "x-toolgate": {"hide": True},
                        },
                    },
                    "required": ["name"],
                },
                "encoding": {
                    "tags": {"style": "form", "explode": False},
                    "ids": {"style": "form", "explode": True},
                },
            }
        },
    }


@pytest.mark.parametrize("consumes", [["multipart/form-data"], ["application/json"], []])
def test_a_form_with_a_file_is_multipart(consumes):
    file = {"in": "formData", "name": "photo", "type": "file", "description": "JPEG"}
    upgraded = operation({"consumes": consumes, "parameters": [file]})
    [(media_type, media)] = upgraded.node["requestBody"]["content"].items()
    assert media_type == "multipart/form-data"
    assert media["schema"]["properties"] == {
        "photo": {"type": "string", "format": "binary", "description": "JPEG"}
    }
    assert upgraded.node["requestBody"]["required"] is False


def test_parameters_of_the_path_are_overridden_individually():
    shared = [
        {"name": "id", "in": "path", "required": True, "type": "string"},
        {"name": "page", "in": "query", "type": "string"},
        {"in": "body", "name": "b", "schema": {"title": "shared"}},
    ]
    own = [
        {"name": "page", "in": "query", "type": "integer"},
        {"in": "body", "name": "other", "schema": {"title": "own"}},
    ]
    node = operation({"parameters": own}, {"parameters": shared}).node
    assert [(p["name"], p["schema"]["type"]) for p in node["parameters"]] == [
        ("id", "string"),
        ("page", "integer"),
    ]
    assert node["requestBody"]["content"]["application/json"]["schema"] == {"title": "own"}


def test_shared_parameters_are_upgraded_once():
    paths = {f"/{n}": {"get": {"parameters": [{"$ref": "#/parameters/p"}]}} for n in range(2)}
    parameter = {"name": "p", "in": "query", "type": "string"}
    found, _ = operations(OpenApiDocument(swagger(paths, parameters={"p": parameter})))
    first, second = (op.node["parameters"][0] for op in found)
    assert first is second


def test_a_body_beside_a_form_is_reported():
    parameters = [{"in": "body", "name": "b"}, {"in": "formData", "name": "f", "type": "string"}]
    assert "the form parameters are left out" in one({"parameters": parameters}).reason


def test_responses_have_content():
    responses = {
        "200": {
            "description": "OK",
            "schema": {"type": "string"},
            "headers": {"X-Rate": {"type": "integer", "description": "Left"}},
        },
        "201": {"description": "A file", "schema": {"type": "file"}},
        "204": {"description": "Nothing"},
        "404": {"$ref": "#/responses/NotFound"},
        "500": {"$ref": "#/responses/Nope"},
    }
    shared = {"NotFound": {"description": "?", "schema": {"$ref": "#/definitions/Error"}}}
    node = operation({"produces": ["text/csv"], "responses": responses}, responses=shared).node
    assert node["responses"] == {
        "200": {
            "description": "OK",
            "headers": {"X-Rate": {"description": "Left", "schema": {"type": "integer"}}},
            "content": {"text/csv": {"schema": {"type": "string"}}},
        },
        "201": {
            "description": "A file",
            "content": {"text/csv": {"schema": {"type": "string", "format": "binary"}}},
        },
        "204": {"description": "Nothing"},
        "404": {
            "description": "?",
            "content": {"text/csv": {"schema": {"$ref": "#/definitions/Error"}}},
        },
        "500": {"$ref": "#/responses/Nope"},
    }


def test_security_definitions_are_security_schemes():
    scopes = {"read": "Reads"}
    schemes = {
        "plain": {"type": "basic", "description": "d"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "code": {"type": "oauth2", "flow": "accessCode", "tokenUrl": "/t", "scopes": scopes},
        "app": {"type": "oauth2", "flow": "application", "tokenUrl": "/t"},
    }
    root = OpenApiDocument(swagger({}, securityDefinitions=schemes)).root
    assert root["components"]["securitySchemes"] == {
        "plain": {"type": "http", "scheme": "basic", "description": "d"},
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "code": {
            "type": "oauth2",
            "flows": {"authorizationCode": {"tokenUrl": "/t", "scopes": scopes}},
        },
        "app": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/t"}}},
    }


def test_x_nullable_accepts_null():
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-nullable": True}}}
    body = {"in": "body", "name": "b", "schema": schema}
    assert one({"parameters": [body]}).accepts(a=None)


def test_paths_that_differ_in_their_queries():
    paths = {"/a": {"get": {"operationId": "plain"}}}
    more = {"/a?comp=list": {"get": {"operationId": "list"}}}
    result = import_description(swagger(paths, **{"x-ms-paths": more}))
    assert [draft.name for draft in result.drafts] == ["plain", "list"]


@pytest.mark.parametrize(
    "broken",
    [
        {"parameters": "x"},
        {"parameters": [None, 3, {"$ref": "#/nope"}]},
        {"parameters": [{"in": "body"}, {"in": "formData"}, {"in": "formData", "name": []}]},
        {"parameters": [{"name": "q", "in": "query", "type": "array", "collectionFormat": {}}]},
        {"responses": [], "consumes": "x", "produces": {"a": 1}, "schemes": 3},
        {"responses": {"200": {"schema": 3, "headers": {"a": 1}}}},
    ],
)
def test_a_broken_operation_never_sinks_the_import(broken):
    result = import_description(
        swagger({"/a": {"post": broken}, "/b": {"get": {}}}, host=3, definitions=[])
    )
    assert [o.status for o in result.outcomes if o.key == "/b@get"] == ["imported"]


def test_arrays_inside_an_array_are_sent_as_json_and_reported():
    inner = {"type": "array", "items": {"type": "integer"}, "collectionFormat": "pipes"}
    found = one({"parameters": [{"name": "grid", "in": "query", "type": "array", "items": inner}]})
    assert found.outcome.status == "degraded"
    assert "grid: arrays inside an array are sent as JSON" in str(found.outcome.reason)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "array", "items": {"type": "file"}, "collectionFormat": "multi"},
        {"type": "array", "items": {"type": "string", "format": "binary"}},
        {"type": "string", "format": "binary"},
        {"type": "file"},
    ],
)
@pytest.mark.parametrize("consumes", [[], ["application/json"], ["multipart/form-data"]])
def test_files_of_a_form_are_parts_with_a_name(value, consumes):
    """Lists of files are sent like single ones, whichever word names them (mending 26)."""
    scans = {"in": "formData", "name": "scans", **value}
    tool = one({"consumes": consumes, "parameters": [scans]})
    body = tool.draft.binding.body
    assert body.media_type == "multipart/form-data"
    assert body.parts == (Part("scans", file=True),)
    file = {"filename": "a.txt", "text": "x"}
    assert tool.accepts(scans=[file] if value["type"] == "array" else file)

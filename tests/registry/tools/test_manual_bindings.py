"""What a person asks for becomes a binding: the one that an import would have made."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from registry.importers.openapi import read
from registry.tools.editable_columns import NewTool
from registry.tools.manual_bindings import make_tool
from registry.tools.tool_errors import ToolRefused
from registry.tools.tool_request import KnownFunction, KnownSources, ToolRequest
from schemas.binding import (
    Credential,
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    Parameter,
    ScriptBinding,
    Variable,
)
from schemas.source import HybridOptions, Source
from schemas.tool import Annotations, Tool

KEY = ((Credential("key", "apiKey", "header", "X-Key"),),)


def source(name: str, kind: str) -> Source:
    return Source(name, name, kind, f"{name}.json", "http://127.0.0.1:9", True)


def tool(name: str, of: str, binding: Any, schema: str = '{"type": "object"}') -> Tool:
    hints = Annotations(read_only_hint=True)
    return Tool(name, name, "T", "Does it", Raw(schema.encode()), None, hints, binding, of, name)


KNOWN = KnownSources(
    {name: source(name, kind) for name, kind in [("pets", "openapi"), ("crm", "mcp")]},
    (
        tool("listPets", "pets", OpenAPIBinding("GET", "/pets", security=KEY)),
        tool("getPet", "pets", OpenAPIBinding("GET", "/pets/{id}", security=KEY)),
        tool("open", "pets", OpenAPIBinding("GET", "/open")),
        tool("crm_find", "crm", McpBinding("find"), '{"type": "object", "required": ["q"]}'),
    ),
    {
        "count": KnownFunction(
            {"type": "object", "properties": {"text": {}}}, "Counts", ("text", "least")
        ),
        "vague": KnownFunction(None, "", ()),
    },
    source_bytes=100,
)


def make_from(**said: Any) -> NewTool:
    return make_tool(
        msgspec.convert({"name": "t", "description": "It", **said}, ToolRequest), KNOWN
    )


def refusal_of(**said: Any) -> str:
    with pytest.raises(ToolRefused) as failed:
        make_from(**said)
    return str(failed.value)


def test_a_request_without_a_schema_takes_its_placeholders() -> None:
    new = make_from(rest="GET https://api.example.com:8443/v1/{city}/now?q={text}&units=metric")
    assert new.address is not None
    assert (new.address.name, new.address.base_url) == (
        "api-example-com-8443",
        "https://api.example.com:8443",
    )
    binding = new.draft.binding
    assert isinstance(binding, OpenAPIBinding)
    assert (binding.method, binding.path, binding.body) == ("GET", "/v1/{city}/now", None)
    assert binding.parameters == (
        Parameter("city", "city", "path", "simple", explode=False),
        Parameter("text", "q", "query", "form", explode=True),
        Parameter("", "units", "query", "form", explode=True, fixed=Raw(b'"metric"')),
    )
    assert new.draft.input_schema == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "text": {"type": "string"}},
        "required": ["city", "text"],
        "additionalProperties": False,
    }
    assert new.draft.annotations.read_only_hint is True


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "dotted.name": {"type": "string"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
    },
    "required": ["tags"],
    "$defs": {"Tag": {"type": "string", "minLength": 1}},
}


def test_arguments_go_into_path_and_body_by_the_names_of_the_schema() -> None:
    new = make_from(rest="PUT http://localhost/pets/{id}", input_schema=SCHEMA)
    binding = new.draft.binding
    assert isinstance(binding, OpenAPIBinding)
    assert binding.body is not None
    assert binding.body.properties == (("dotted.name", "dotted.name"), ("tags", "tags"))
    assert (binding.body.media_type, binding.body.required) == ("application/json", True)
    assert new.draft.input_schema == {**SCHEMA, "required": ["tags", "id"]}  # paths need theirs


def test_the_mapping_is_that_of_the_importer() -> None:
    """The same operation, described and imported, gives the same binding."""
    listed = {"name": "tags", "in": "query", "schema": {"type": "array", "items": {}}}
    described = {
        "openapi": "3.1.0",
        "paths": {"/pets": {"get": {"operationId": "t", "parameters": [listed]}}},
    }
    (draft,) = read(described).drafts
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {}}}}
    assert make_from(rest="GET http://x/pets", input_schema=schema).draft.binding == draft.binding


def test_a_path_uses_the_address_and_the_credentials_of_its_source() -> None:
    new = make_from(rest="GET /pets/{id}/photo", source="pets")
    assert new.address is not None
    assert (new.address.name, new.address.base_url) == ("pets", None)
    assert isinstance(new.draft.binding, OpenAPIBinding)
    assert new.draft.binding.security == KEY


def test_a_document_becomes_one_field() -> None:
    document = "mutation ($id: ID!, $tags: [String!]) { tag(pet: $id, with: $tags) { id name } }"
    new = make_from(graphql=document, url="http://localhost:4000/graphql")
    binding = new.draft.binding
    assert isinstance(binding, GraphQLBinding)
    assert (binding.operation, binding.field) == ("mutation", "tag")
    assert binding.variables == (
        Variable("id", "pet", "ID!"),
        Variable("tags", "with", "[String!]"),
    )
    assert binding.selection.split() == ["{", "id", "name", "}"]
    assert new.draft.input_schema["required"] == ["id"]
    assert new.draft.annotations.read_only_hint is False


def test_an_action_and_how_its_service_is_called() -> None:
    new = make_from(hybrid="a.net/rule/delete/0.1.0", url="http://rules:8080", dialect="legacy")
    assert new.draft.binding == HybridBinding("a.net/rule/delete/0.1.0")
    assert new.address is not None
    assert new.address.options == HybridOptions(dialect="legacy")


def test_a_second_tool_for_an_mcp_tool_inherits_its_description() -> None:
    new = make_from(mcp="find", source="crm", name="find_customer", description="")
    assert new.draft.binding == McpBinding("find")
    assert (new.draft.name, new.draft.description) == ("find_customer", "Does it")
    assert new.draft.input_schema == {"type": "object", "required": ["q"]}


def test_functions_and_scripts_go_nowhere() -> None:
    new = make_from(function="count", description="")
    assert (new.draft.binding, new.draft.description) == (FunctionBinding("count"), "Counts")
    assert new.address is None
    code = "def main(arguments): return 1"
    script = make_from(code=code, language="python")
    assert script.draft.binding == ScriptBinding("python", code)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({}, "expected one of rest, graphql"),
        ({"rest": "GET http://x/", "function": "count"}, "found rest, function"),
        ({"rest": "http://x/"}, "expected a request such as"),
        ({"rest": "GET http://[::1/x"}, "expected a URL, or a path"),
        ({"rest": "GET //other.example/x", "source": "pets"}, "expected a URL, or a path"),
        ({"rest": "FETCH http://x/"}, "with one of GET"),
        ({"rest": "GET x/y"}, "a path that begins with /"),
        ({"rest": "GET ftp://x/y"}, "http:// or https://"),
        ({"rest": "GET http://user:secret@x/y"}, "without credentials"),
        ({"rest": "GET http://x/{id"}, "a brace in the path /{id has no other"),
        ({"rest": "GET http://x/{}"}, "a brace in the path /{} has no other, or nothing in it"),
        ({"rest": "GET http://x/?q=tag:{tag}"}, "an argument has to be all of q"),
        ({"rest": "GET http://x/", "source": "No Name"}, "the name of a source has at most 63"),
        ({"rest": "GET /pets"}, "expected a url or a source, where its calls go"),
        ({"rest": "GET /pets", "source": "pts"}, "there is no source pts; there are: crm, pets"),
        ({"rest": "GET /pets", "source": "crm"}, "of the kind mcp; expected openapi or manual"),
        ({"rest": "GET http://x/{id}", "input_schema": {"type": "object"}}, "does not describe"),
        ({"rest": "GET http://x/", "input_schema": {"type": "array"}}, '"type": "object"'),
        (
            {
                "rest": "GET http://x/",
                "input_schema": {"type": "object", "properties": {"a": {"type": "txt"}}},
            },
            "the input schema cannot be used",
        ),
        ({"rest": "GET http://x/", "description": " "}, "it needs a description"),
        ({"graphql": "{ a b }", "url": "http://x/"}, "one operation with one field"),
        ({"graphql": "{ a ", "url": "http://x/"}, "Syntax Error"),
        ({"graphql": "{ a(b: 1) }", "url": "http://x/"}, "give b as a variable"),
        ({"graphql": "query ($b: Int = 1) { a(b: $b) }", "url": "http://x/"}, "defaults"),
        ({"graphql": "query ($b: Int) { a { c(b: $b) } }", "url": "http://x/"}, "not b"),
        ({"graphql": "subscription { a }", "url": "http://x/"}, "one operation"),
        ({"hybrid": "x", "url": "http://x/", "dialect": "legacy"}, "host/service/action/version"),
        ({"mcp": "found", "source": "crm"}, "crm has no tool 'found'; it has find"),
        ({"mcp": "find", "source": "crm", "url": "http://x/"}, "import the server first"),
        ({"function": "count", "source": "pets"}, "it runs in the gateway"),
        ({"function": "nobody"}, "no function 'nobody'; there are: count, vague"),
        ({"function": "vague"}, "give it an input schema"),
        (
            {"function": "count", "input_schema": {"properties": {"text": {}, "txt": {}, "n": {}}}},
            "does not take txt, n, which the input schema has; it takes text, least",
        ),
        (
            {"function": "vague", "input_schema": {"properties": {"a": {}}}},
            "does not take a, which the input schema has; it takes nothing",
        ),
        ({"code": "def main(a): 1"}, "needs its language"),
        ({"code": "def main(a:", "language": "python"}, "line 1 of the source"),
        ({"code": "def other(a): 1", "language": "python"}, "defines no main"),
        ({"code": "var x", "language": "javascript"}, "defines no main"),
        ({"code": "#" * 101, "language": "python"}, "101 bytes, the most is 100"),
        ({"code": "\0", "language": "javascript"}, "no text"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_invalid_tools_are_refused_with_the_reason(said: dict[str, Any], told: str) -> None:
    answer = refusal_of(**said)
    assert told in answer
    assert answer.startswith("t: ")
    assert "secret" not in answer

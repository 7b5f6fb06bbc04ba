"""A tool that is a field of a GraphQL service, called."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.upstreams.graphql.upstream import META_ERRORS, GraphQLUpstream, build
from registry.importers.graphql import read
from schemas.binding import GraphQLBinding, Variable
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import META_NEXT, Tool
from tests.gateway.upstreams.conftest import source
from tests.servers.graphql import SDL, PetShop
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
DRAFTS = {draft.name: draft for draft in read(SDL.encode(), "shop.graphql").drafts}


def tool(name: str) -> Tool:
    draft = DRAFTS[name]
    schema = Raw(encode(draft.input_schema))
    return Tool(
        "uuid", name, None, draft.description, schema, None, draft.annotations, draft.binding,
        "pets", "digest",
    )  # fmt: skip


@pytest.fixture
def shop() -> PetShop:
    return PetShop()


@pytest.fixture
async def call(client, serve, shop):
    at = source(f"{await serve(shop)}/graphql")
    upstream = GraphQLUpstream(client)

    async def call(name: str, /, **arguments: Any):
        return await upstream.call(tool(name), at, arguments, CONTEXT)

    return call


def value_of(result) -> Any:
    assert not result.is_error, result
    return msgspec.json.decode(result.structured_content)


async def test_a_call_gives_the_value_of_the_field(call, shop):
    result = await call("pet", id="1")
    pet = value_of(result)
    assert pet == {
        "id": "1",
        "name": "Pet 1",
        "kind": "DOG",
        "born": "2020-01-01T00:00:00Z",
        "owner": {"id": "7", "name": "Ada", "email": None},
    }
    assert msgspec.json.decode(result.content[0].text) == pet
    [asked] = shop.requests
    assert asked["operationName"] == "pet"
    assert asked["variables"] == {"id": "1"}
    assert asked["query"].startswith("query pet($id: ID!) { pet(id: $id) { id name ")


async def test_the_request_names_its_media_types(call, shop):
    await call("count")
    [headers] = shop.headers
    assert headers["content-type"] == "application/json"
    assert headers["accept"] == "application/graphql-response+json, application/json;q=0.9"


async def test_the_trace_of_a_caller_is_passed_on(client, serve, shop):
    at, upstream = source(f"{await serve(shop)}/graphql"), GraphQLUpstream(client)
    told = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for traceparent in (told, "00-zz"):
        context = replace(CONTEXT, headers=CallHeaders(traceparent=traceparent))
        await upstream.call(tool("count"), at, {}, context)
    assert [headers.get("traceparent") for headers in shop.headers] == [told, None]
    assert shop.headers[0]["content-type"] == "application/json"


async def test_absent_arguments_are_not_sent_and_null_is(call, shop):
    assert value_of(await call("echo")) == "{}"
    assert value_of(await call("echo", text=None, numbers=[])) == '{"text": null, "numbers": []}'
    assert [asked["variables"] for asked in shop.requests] == [{}, {"text": None, "numbers": []}]


async def test_a_mutation_takes_input_objects_with_their_defaults(call, shop):
    assert value_of(await call("addPet", input={"name": "Rex"}))["kind"] == "DOG"
    assert shop.requests[0]["query"].startswith("mutation addPet($input: PetInput!) ")


async def test_a_query_and_a_mutation_of_one_name_are_two_tools(call):
    assert value_of(await call("count", kind="DOG")) == 5
    assert value_of(await call("count_mutation", by=2)) == 7


async def test_absent_arguments_get_the_default_of_the_service(call, shop):
    assert value_of(await call("count_mutation")) == 6
    assert shop.requests[0]["variables"] == {}


async def test_objects_of_different_types_have_a_typename(call):
    [pet, toy] = value_of(await call("things"))
    assert (pet["__typename"], pet["name"]) == ("Pet", "Pet 1")
    assert toy == {"__typename": "Toy", "id": "t", "squeaks": True}
    named = value_of(await call("named", name="Ada"))
    assert (named["__typename"], named["id"]) == ("Owner", "7")


async def test_alternative_inputs_take_a_single_key(call):
    assert value_of(await call("petBy", by={"name": "Pet 3"}))["id"] == "3"


async def test_no_object_is_null(call):
    result = await call("pet", id="99")
    assert bytes(result.structured_content) == b"null"
    assert result.content[0].text == "null"


async def test_an_error_without_data_is_readable_for_models(call):
    result = await call("pet", id="bad")
    assert result.is_error
    [content] = result.content
    assert content.text == "It ran away (at pet; GONE)"
    told = msgspec.json.decode(result.structured_content)
    assert told == {"errors": [{"message": "It ran away", "path": ["pet"], "code": "GONE"}]}


async def test_partial_data_name_the_missing_fields(call):
    result = await call("pet", id="half")
    pet = value_of(result)
    assert (pet["name"], pet["owner"]) == ("Pet 1", None)
    missing = {"message": "Nobody knows", "path": ["pet", "owner"], "code": "FORBIDDEN"}
    assert result.meta == {META_ERRORS: [missing]}
    assert "Nobody knows (at pet.owner; FORBIDDEN)" in result.content[1].text


async def test_errors_of_the_service_are_reported(call):
    result = await call("pet", id="1", _fields=["name", "nose"])
    assert result.is_error
    assert "Cannot query field 'nose' on type 'Pet'" in result.content[0].text


async def test_a_page_has_the_arguments_of_the_next_page(call):
    following = {"first": 2, "after": "2", "filter": {"kind": "DOG"}}
    result = await call("pets", first=2, filter={"kind": "DOG"})
    assert result.meta == {META_NEXT: {"arguments": following}}
    assert [pet["id"] for pet in value_of(result)["nodes"]] == ["1", "2"]
    last = await call("pets", first=2, after="4")
    assert last.meta is UNSET


async def test_pages_have_a_default_size(call, shop):
    assert DRAFTS["pets"].input_schema["properties"]["first"]["default"] == 20
    await call("pets")
    assert shop.requests[0]["variables"] == {"first": 20}
    await call("pets", last=3)
    assert shop.requests[1]["variables"] == {"last": 3}


async def test_a_caller_chooses_the_fields_of_one_call(call, shop):
    pet = value_of(await call("pet", id="1", _fields=["name", "owner.id"]))
    assert pet == {"name": "Pet 1", "owner": {"id": "7"}}
    assert "{ name owner { id } }" in shop.requests[0]["query"]


async def test_an_object_that_is_chosen_as_a_whole_has_the_fields_that_the_tool_selects(call):
    pet = value_of(await call("pet", id="1", _fields=["owner"]))
    assert pet == {"owner": {"id": "7", "name": "Ada", "email": None}}


async def test_a_page_of_chosen_fields_still_leads_to_the_next(call):
    result = await call("pets", first=1, _fields=["nodes.name"])
    assert value_of(result) == {
        "nodes": [{"name": "Pet 1"}],
        "pageInfo": {"hasNextPage": True, "endCursor": "1"},
    }
    assert result.meta[META_NEXT]["arguments"] == {"first": 1, "after": "1"}


async def test_fields_of_one_type_are_chosen_where_there_may_be_several(call):
    pets = await call("things", _fields=["on Pet.owner.name", "squeaks"])
    [pet, toy] = value_of(pets)
    assert (pet, toy) == ({"owner": {"name": "Ada"}}, {"squeaks": True})


async def test_fields_of_a_member_that_no_tool_selects_can_be_chosen(call, shop):
    """A path that the answer's schema lists reaches the member of a union (mending 29)."""
    listed = DRAFTS["things"].output_schema["items"]["description"]
    assert listed == "Not selected: on Pet.secret"
    [pet, _] = value_of(await call("things", _fields=["on Pet.secret", "on Pet.name"]))
    assert pet == {"secret": None, "name": "Pet 1"}
    assert "... on Pet { secret name }" in shop.requests[0]["query"]


@pytest.mark.parametrize("path", ["name } }", "na-me", "a(b:1)", "owner.$x", "...on Pet", "é"])
async def test_nothing_but_names_gets_into_a_request(call, shop, path):
    with pytest.raises(InvalidParams, match="is no name of a field"):
        await call("pet", id="1", _fields=[path])
    assert shop.requests == []


async def test_a_value_without_fields_has_none_to_choose(call):
    with pytest.raises(InvalidParams, match="no fields to choose from"):
        await call("count", _fields=["x"])


def body_of(binding: GraphQLBinding, **arguments: Any) -> dict[str, Any]:
    return msgspec.json.decode(build(binding, arguments).body)


def test_an_argument_of_its_own_called_like_ours_is_the_fields_own():
    binding = GraphQLBinding("query", "pets", (Variable("_fields", "_fields", "String"),), "{ id }")
    assert body_of(binding, _fields="x")["variables"] == {"_fields": "x"}
    assert body_of(binding, _fields="x")["query"].endswith("{ id } }")


def test_a_hidden_argument_is_always_sent():
    fixed = Variable("", "region", "Region!", Raw(b'"EU"'))
    binding = GraphQLBinding("query", "pets", (fixed,), "{ id }")
    assert body_of(binding)["variables"] == {"region": "EU"}


async def answer_query(client, serve, status, body, media_type="application/json"):
    upstream, at = GraphQLUpstream(client), source(await serve(Recorder(status, body, media_type)))
    return await upstream.call(tool("pet"), at, {"id": "1"}, CONTEXT)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"{}", "pets did not answer with a GraphQL response"),
        (200, b"[]", "pets did not answer with a GraphQL response"),
        (200, b"<html>", "pets did not answer with a GraphQL response"),
        (200, b'{"data": {}}', "pets answered without pet"),
        (200, b'{"data": null}', "pets answered without pet"),
        (200, b'{"data": 1}', "pets answered without pet"),
        (200, b'{"errors": 7}', "Failed"),
        (200, b'{"errors": ["no"]}', "no"),
        (200, b'{"data": null, "errors": [{}]}', "Failed"),
        (400, b'{"errors": [{"message": "Bad", "type": "NOT_FOUND"}]}', "Bad (NOT_FOUND)"),
        (500, b'{"errors": [{"message": "a\\nTraceback (most"}]}', "a"),
        (302, b'{"data": {"pet": null}}', "HTTP 302 Found: redirects are not followed"),
        (503, b"{}", "HTTP 503 Service Unavailable\n{}"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_told(client, serve, status, body, expected):
    result = await answer_query(client, serve, status, body)
    assert result.is_error
    assert result.content[0].text == expected


async def test_an_answer_counts_whatever_its_status(client, serve):
    result = await answer_query(
        client, serve, 206, b'{"data": {"pet": {"id": 12345678901234567890}}}'
    )
    assert bytes(result.structured_content) == b'{"id": 12345678901234567890}'


async def test_a_trailing_slash_of_the_endpoint_is_kept(client, serve):
    recorder = Recorder(200, b'{"data": {"pet": null}}')
    url = await serve(recorder)
    for path in ("/graphql/", "/graphql"):
        at = source(f"{url}{path}")
        await GraphQLUpstream(client).call(tool("pet"), at, {"id": "1"}, CONTEXT)
    assert [seen.target for seen in recorder.seen] == ["/graphql/", "/graphql"]


async def test_a_source_that_is_gone_or_away_is_told(client):
    upstream = GraphQLUpstream(client)
    gone = await upstream.call(tool("pet"), None, {"id": "1"}, CONTEXT)
    assert gone.content[0].text == "The source of pet is gone"
    away = await upstream.call(tool("pet"), source("http://127.0.0.1:9"), {"id": "1"}, CONTEXT)
    assert away.is_error
    assert "could not be reached" in away.content[0].text

import pytest

from gateway.methods.prompts import Prompts
from registry.catalog.catalog import Catalog
from schemas.errors import Fault, InvalidParams, MethodNotFound, RelayedFault
from schemas.mcp.revisions import V2024_11_05, V2025_11_25
from schemas.mcp.snapshot import ServerFacts
from tests.gateway.methods.federation import (
    Answers,
    context,
    decode_result,
    item,
    lists,
    request,
    skill_files,
    source,
)
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

CATALOG = Catalog(
    sources=[source("one"), source("two")],
    items=[
        item("prompt", "ask"),
        item("prompt", "ask", "two_ask", "two", "stateless"),
        item("prompt", "zap"),
        item("resource", "test://x", "toolgate://two/test://x", "two"),
        item("resource", "test://x"),
    ],
)
LINK = {"type": "resource", "resource": {"uri": "test://x", "text": "t"}}
MESSAGES = {"messages": [{"role": "user", "content": LINK}], "description": "d"}


def prompts(answer=MESSAGES, catalog=CATALOG):
    relay = Answers(answer)
    of = lists(catalog)
    return Prompts(of, relay, skill_files(of)), relay


def get(name, **more):
    return request("prompts/get", {"name": name, **more})


@by_revision
async def test_a_prompt_is_got_from_its_server_by_its_own_name(revision):
    methods, relay = prompts()
    more = {"arguments": {"a": "1"}, "_meta": {"progressToken": 7}}
    result = decode_result(await methods.get(context(revision), get("two_ask", **more)))
    (asked,) = relay.asked
    assert (asked.source.name, asked.method, asked.eras) == ("two", "prompts/get", "stateless")
    assert asked.params == {"name": "ask", **more}
    assert relay.contexts[0].params["name"] == "two_ask"
    (message,) = result["messages"]
    assert message["content"]["resource"]["uri"] == "toolgate://two/test://x"
    assert result["description"] == "d"
    assert ("resultType" in result) is revision.result_type


async def test_older_clients_get_content_of_known_types():
    audio = {"type": "audio", "data": "", "mimeType": "audio/wav"}
    methods, _ = prompts({"messages": [{"role": "user", "content": audio}]})
    result = decode_result(await methods.get(context(V2024_11_05), get("ask")))
    assert result["messages"][0]["content"]["type"] == "text"


@by_revision
@pytest.mark.parametrize("name", ["other", "", "ask ", "ASK", "x" * 5000])
async def test_a_name_that_nobody_has_is_refused(revision, name):
    methods, relay = prompts()
    with pytest.raises(InvalidParams, match="Unknown prompt") as caught:
        await methods.get(context(revision), get(name))
    assert len(caught.value.message) < 200
    assert relay.asked == []


@pytest.mark.parametrize("params", [{}, {"name": 1}, {"name": "ask", "arguments": []}, []])
async def test_bad_params_are_named(params):
    methods, relay = prompts()
    with pytest.raises(InvalidParams):
        await methods.get(context(V2025_11_25), request("prompts/get", params))
    assert relay.asked == []


@by_revision
async def test_the_error_of_a_server_reaches_the_client(revision):
    methods, _ = prompts(RelayedFault(-32602, "Missing argument: a", {"x": 1}))
    with pytest.raises(Fault) as caught:
        await methods.get(context(revision), get("ask"))
    assert (caught.value.code, caught.value.data) == (-32602, {"x": 1})


@by_revision
async def test_prompts_are_listed_page_by_page(revision):
    methods, _ = prompts()
    first = decode_result(await methods.list(context(revision), request("prompts/list")))
    cursor = {"cursor": first["nextCursor"]}
    rest = decode_result(await methods.list(context(revision), request("prompts/list", cursor)))
    names = [one["name"] for one in first["prompts"] + rest["prompts"]]
    assert names == ["ask", "two_ask", "zap"]
    assert "nextCursor" not in rest
    assert ("ttlMs" in first, "ttlMs" in rest) == (revision.result_type,) * 2


@by_revision
async def test_prompt_methods_are_unknown_without_a_prompting_server(revision):
    only_tools = ServerFacts("2025-11-25", {"tools": {}})
    methods, _ = prompts(catalog=Catalog(sources=[source("one", only_tools)]))
    for verb, ask in ((methods.list, request("prompts/list")), (methods.get, get("ask"))):
        with pytest.raises(MethodNotFound, match="no server here has prompts"):
            await verb(context(revision), ask)

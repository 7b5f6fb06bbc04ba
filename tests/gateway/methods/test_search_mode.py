"""Tools that are found rather than listed, through every front of the gateway."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from mcp import ClientSession
from mcp.client.client import Client as McpClient
from mcp.client.sse import sse_client
from msgspec.structs import replace

from config.load import load
from config.settings import Settings, Toolset
from registry.display.token_budgets import tokens
from tests.fixtures_gateway import Client, running
from tests.gateway.disclosing import (
    OWN,
    SEARCH,
    call_for_structure,
    call_tool,
    disclosing,
    finding,
    names,
    searching,
)
from tests.gateway.portal import portal, token, with_tokens
from tests.gateway.shared import anyio_backend, client, service
from tests.polling import until

__all__ = ["anyio_backend", "client", "service"]
pytestmark = pytest.mark.anyio


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return searching(settings, tmp_path)


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings) -> Settings:
    return searching(shared_settings, Path(shared_settings.sources["pets"].openapi).parent)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_finds_and_calls_a_tool(client: Client, mode: Any) -> None:
    async with McpClient(client.url + SEARCH, mode=mode) as mcp:
        assert [tool.name for tool in (await mcp.list_tools()).tools] == OWN
        found = await mcp.call_tool("search_tools", {"query": "Remove a pet."})
        best = found.structured_content["tools"][0]
        assert best["name"] == "deletePet"
        assert best["inputSchema"]["required"] == ["id"]
        inside = {"name": best["name"], "arguments": {"id": 3}}
        result = await mcp.call_tool("call_tool", inside)
        assert result.structured_content["heard"]["method"] == "DELETE"
        assert result.structured_content["heard"]["path"] == "/pets/3"
        assert result == await mcp.call_tool("deletePet", {"id": 3})


async def test_a_client_of_2024_11_05_does_so_over_sse(client: Client) -> None:
    async with (
        sse_client(client.url + "/mcp/sse?mode=search&profile=gemini") as (receive, send),
        ClientSession(receive, send) as session,
    ):
        await session.initialize()
        assert [tool.name for tool in (await session.list_tools()).tools] == OWN
        found = await session.call_tool("search_tools", {"query": "Look at a pet"})
        assert "additionalProperties" not in found.content[0].text
        assert '"name":"createPet"' in found.content[0].text
        result = await session.call_tool("call_tool", {"name": "getPet", "arguments": {"id": 7}})
        assert '"/pets/7"' in result.content[0].text


async def test_search_methods_work_over_json_rpc_and_in_batches(client: Client) -> None:
    inside = {"name": "getPet", "arguments": {"id": 5}}
    batch = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 2, "method": "search_tools", "params": {"query": "add a pet"}},
        {"jsonrpc": "2.0", "id": 3, "method": "call_tool", "params": inside},
        {"jsonrpc": "2.0", "id": 4, "method": "describe_tools", "params": {"names": ["getPet"]}},
        {"jsonrpc": "2.0", "id": 5, "method": "call_tool", "params": {"name": "getPett"}},
        {"jsonrpc": "2.0", "id": 6, "method": "tools/call",
         "params": {"name": "call_tool", "arguments": inside}},
    ]  # fmt: skip
    _, answers, _ = await client.post("/rpc?mode=search", batch)
    by_id = {one["id"]: one for one in answers}
    assert [one["name"] for one in by_id[1]["result"]["tools"]] == OWN
    assert by_id[2]["result"]["tools"][0]["name"] == "createPet"
    assert by_id[3]["result"]["heard"]["path"] == "/pets/5"
    assert by_id[4]["result"]["tools"][0]["inputSchema"]["required"] == ["id"]
    assert by_id[5]["error"]["code"] == -32602
    assert "there is no tool 'getPett'; there is getPet" in by_id[5]["error"]["message"]
    assert by_id[6]["result"]["structuredContent"]["heard"]["path"] == "/pets/5"


async def test_the_mode_of_lists_comes_from_request_toolset_or_settings(
    settings: Settings,
) -> None:
    everything = 65
    async with running(settings) as client:
        assert len(await names(client, "/mcp")) == everything
        assert await names(client) == OWN
        assert await names(client, "/mcp/two") == OWN
        assert await names(client, "/mcp/two?mode=direct") == ["deletePet", "getPet"]
        assert await names(client, "/mcp/two?mode=auto") == ["deletePet", "getPet"]
        status, answer, _ = await client.post("/mcp?mode=fast", {})
        assert status == 400
        text = "There is no such mode; there is direct, search, auto"
        assert text in answer["error"]["message"]
    async with running(disclosing(settings, mode="search")) as client:
        assert await names(client, "/mcp") == OWN
        assert len(await names(client, "/mcp?mode=direct")) == everything


async def test_auto_searches_where_the_list_would_be_long(settings: Settings) -> None:
    async with running(disclosing(settings, mode="auto", list_tokens=2000)) as client:
        assert await names(client, "/mcp") == OWN
        assert await names(client, "/mcp?scope=two&mode=auto") == ["deletePet", "getPet"]
        cost = client.gateway.catalogs.of(client.gateway.principal.tenant).lists.tools().tokens
    for limit, searches in ((cost, False), (cost - 1, True)):
        async with running(disclosing(settings, mode="auto", list_tokens=limit)) as client:
            assert (await names(client, "/mcp") == OWN) == searches


async def test_tools_of_a_toolset_are_found_there_alone(client: Client) -> None:
    found = await call_for_structure(client, "search_tools", "/mcp/two", query="pet", limit=20)
    assert {one["name"] for one in found["tools"]} == {"deletePet", "getPet"}
    refused = await call_tool(client, "call_tool", "/mcp/two", name="createPet")
    assert refused["isError"]
    assert "there is no tool 'createPet'" in refused["content"][0]["text"]
    other = await call_for_structure(
        client, "describe_tools", "/mcp/two", names=["createPet", "getPet"]
    )
    assert [one["name"] for one in other["tools"]] == ["getPet"]
    assert other["unknown"][0]["name"] == "createPet"


async def test_forbidden_tools_are_not_found_described_or_called(
    settings: Settings, tmp_path: Path
) -> None:
    async with portal(with_tokens(settings, tmp_path)) as to:
        for bearer, sees in ((None, True), (f"Bearer {token(scope='other')}", False)):
            headers = {} if bearer is None else {"authorization": bearer}

            async def asks(method: str, sent: dict[str, str] = headers, **params: Any) -> str:
                request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                return (await to.post("/rpc", request, **sent)).body.decode()

            assert ("rule_deleteRule" in await asks("search_tools", query="delete rule")) == sees
            said = await asks("describe_tools", names=["rule_deleteRule"])
            assert ("inputSchema" in said) == sees
            said = await asks("call_tool", name="rule_deleteRule", arguments={})
            assert ("there is no tool 'rule_deleteRule'" in said) != sees
            assert ("Deletes a rule" in await asks("tools/list", query="deleteRULE")) == sees
            assert ("rule_deleteRule" in await asks("rpc.discover")) == sees
            assert ("rule_deleteRule" in await asks("rpc.discover", query="rule")) == sees


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "name: is required"),
    ({"name": 5}, "name: expected string, got 5"),
    ({"name": "createPet", "arguments": []}, "arguments: expected object"),
    ({"name": "createPet", "arguments": "no JSON"}, "arguments: expected object"),
    ({"name": "createPet", "other": 1}, "other"),
    ({"name": "creatPet"}, "there is no tool 'creatPet'; there is createPet"),
    ({"name": "call_tool", "arguments": {"name": "call_tool"}}, "call_tool does not call"),
    ({"name": "createPet", "arguments": {}}, "Invalid arguments for createPet: name: is req"),
    ({"name": "x" * 5000}, "there is no tool 'xxxxx"),
    ({"name": "getPet", "arguments": {"id": 1}, "skill": "nothing"}, "skill"),
)


async def test_a_call_that_cannot_be_passed_on_says_why(client: Client) -> None:
    sessions = [await client.session(one) for one in ("2025-03-26", "2025-06-18", "2025-11-25")]
    for arguments, said in WRONG:
        result = await call_tool(client, "call_tool", **arguments)
        assert result["isError"], arguments
        assert said in result["content"][0]["text"]
        assert len(result["content"][0]["text"]) < 500
        for session in sessions:
            params = {"name": "call_tool", "arguments": arguments}
            assert said in json.dumps(await session.call("tools/call", params))


async def test_arguments_may_be_written_as_json(client: Client) -> None:
    written = await call_for_structure(
        client, "call_tool", name="createPet", arguments='{"name": "Rex"}'
    )
    assert written["heard"]["body"] == '{"name":"Rex"}'


HOSTILE = ("pet " * 25_000, "\0pet", "' OR 1=1; --", "\U0001f431 \u5bb6\u5ead", "%_\\&|!():*")


async def test_any_query_has_an_answer(client: Client) -> None:
    for query in HOSTILE:
        found = await call_for_structure(client, "search_tools", query=query)
        assert tokens(json.dumps(found, separators=(",", ":"))) <= 2000
    for query in ("", "   "):
        refused = await call_tool(client, "search_tools", query=query)
        assert refused["isError"]
        assert "the query is empty" in refused["content"][0]["text"]
    nothing = await call_for_structure(client, "search_tools", query="zzyzx")
    assert nothing["tools"] == []
    assert "Nothing was found" in nothing["more"]
    assert "words only" in nothing["note"]


async def test_a_search_of_a_domain_finds_its_tools_alone(
    client: Client, shared_settings: Settings
) -> None:
    with psycopg.connect(shared_settings.database.url, autocommit=True) as db:
        db.execute("UPDATE tool_t SET routing_domain = 'care' WHERE name = 'getPet'")
    found = await call_for_structure(
        client, "search_tools", query="pet", domain="care", detail="names"
    )
    assert [one["name"] for one in found["tools"]] == ["getPet"]
    for domain in ("nowhere", "\0care", "' OR 1=1; --"):
        nothing = await call_for_structure(client, "search_tools", query="pet", domain=domain)
        assert nothing["tools"] == []
        assert "Nothing was found" in nothing["more"]
    assert len((await call_for_structure(client, "search_tools", query="pet"))["tools"]) > 1


async def test_a_large_answer_names_the_omitted_parts_and_their_retrieval(
    settings: Settings,
) -> None:
    async with running(finding(settings, answer_tokens=250, limit_max=20)) as client:
        found = await call_for_structure(client, "search_tools", query="one more", limit=20)
        assert tokens(json.dumps(found, separators=(",", ":"))) <= 250
        assert 0 < len(found["tools"]) < 20
        refused = await call_tool(client, "search_tools", query="one more", limit=21)
        assert "limit: " in refused["content"][0]["text"]
        assert "maximum of 20" in refused["content"][0]["text"]
        assert f"{20 - len(found['tools'])} left out: ask for fewer" in found["more"]
        only = await call_for_structure(
            client, "search_tools", query="one more", detail="names", limit=3
        )
        assert [set(one) for one in only["tools"]] == [{"name", "description", "score"}] * 3


async def test_several_tools_are_described_at_once(client: Client) -> None:
    both = ["createPet", "getPet", "getPet"]
    described = await call_for_structure(client, "describe_tools", names=[*both, "getPett"])
    assert [one["name"] for one in described["tools"]] == ["createPet", "getPet"]
    assert described["unknown"][0]["name"] == "getPett"
    assert described["unknown"][0]["near"][0] == "getPet"
    parts = await call_for_structure(client, "describe_tools", names=both, path="name")
    assert parts["tools"][0] == {
        "name": "createPet", "path": "name", "schema": {"type": "string"},
    }  # fmt: skip
    assert "there is no 'name' in the input schema of getPet" in parts["tools"][1]["error"]
    refused = await call_tool(client, "describe_tools", names=["nobody"])
    assert refused["isError"]
    assert "names: there is no tool 'nobody'" in refused["content"][0]["text"]


async def test_light_4j_s_filters_list_the_tools_themselves_in_every_mode(client: Client) -> None:
    for path in ("/mcp", SEARCH):
        assert await names(client, path, query="a pET") == ["createPet", "deletePet"]
        assert len(await names(client, path, query="PETS")) == 65  # the name of their source
        assert await names(client, path, intent="remove") == ["deletePet"]
        assert await names(client, path, query="pet", intent="REMOVE") == ["deletePet"]
        assert await names(client, path, query="zzyzx") == []
    assert await names(client, SEARCH, query="", intent=None) == OWN


async def test_an_intent_that_no_tool_contains_is_looked_for_by_meaning(client: Client) -> None:
    for path in ("/mcp", SEARCH):
        found = await call_for_structure(client, "search_tools", query="remove an animal", limit=5)
        listed = await names(client, path, intent="remove an animal")
        assert listed == [one["name"] for one in found["tools"]]
        assert listed
        both = await names(client, path, intent="remove an animal", query="delete")
        assert both == ["deletePet"]
        assert await names(client, path, query="remove an animal") == []
    assert await names(client, "/mcp/two", intent="remove an animal") == ["deletePet"]


async def test_filtered_lists_have_pages(settings: Settings) -> None:
    mcp = replace(settings.mcp, page_size=25)
    async with running(replace(settings, mcp=mcp)) as client:
        found, cursor = [], {}
        for _ in range(3):
            params = {"query": "one MORE", **cursor}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
            result = (await client.rpc(request))["result"]
            found += [one["name"] for one in result["tools"]]
            cursor = {"cursor": result.get("nextCursor")}
        assert cursor == {"cursor": None}
        assert found == [f"more_{n:04}" for n in range(60)]


async def test_filters_are_texts(client: Client) -> None:
    for wrong in (5, ["pet"], {"a": 1}, True):
        for member in ("query", "intent"):
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            answer = await client.rpc({**request, "params": {member: wrong}})
            assert answer["error"]["code"] == -32602


async def test_the_document_of_all_methods_can_be_narrowed_too(client: Client) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "rpc.discover", "params": {"query": "REMOVE"}}
    document = (await client.rpc(request))["result"]
    own = ["tools/list", "tools/call", "rpc.discover"]
    assert [one["name"] for one in document["methods"]] == [*own, "deletePet"]


async def test_a_tool_of_a_source_that_has_a_name_of_ours_gets_its_source_s_prefix(
    settings: Settings, tmp_path: Path
) -> None:
    document = json.loads((tmp_path / "pets.json").read_text())
    document["paths"]["/own"] = {
        "get": {"operationId": "search_tools", "summary": "Tools of the shop"},
        "post": {"operationId": "call_tool", "summary": "Rings a tool"},
    }
    (tmp_path / "pets.json").write_text(json.dumps(document))
    async with running(settings) as client:
        assert await names(client) == ["call_tool", "describe_tools", "search_tools"]
        assert (await call_for_structure(client, "pets_search_tools"))["heard"]["path"] == "/own"
        found = await call_for_structure(client, "search_tools", query="ring a tool")
        assert found["tools"][0]["name"] == "pets_call_tool"
        done = await call_for_structure(client, "call_tool", name="pets_call_tool")
        assert done["heard"]["method"] == "POST"


async def test_a_list_that_grows_too_long_is_news(settings: Settings, tmp_path: Path) -> None:
    """A toolset that is listed directly becomes one that is searched, and its client hears."""
    few = {"more": Toolset(include=("more_*",), mode="auto")}
    settings = disclosing(replace(settings, toolsets=few), list_tokens=4000)
    searching(settings, tmp_path, 3)
    async with running(settings) as client:
        path = "/mcp/more"
        assert len(await names(client, path)) == 3
        changed: list[Any] = []
        client.gateway.events.lists_changed.subscribe(
            lambda tenant, kinds: changed.append((tenant, kinds))
        )
        searching(settings, tmp_path, 200)
        await client.gateway.feed.refresh("pets")
        assert await names(client, path) == OWN
        assert changed == [(client.gateway.principal.tenant, frozenset({"tools"}))]


async def test_tools_are_found_by_meaning_and_subsequent_calls_are_logged(
    settings: Settings,
) -> None:
    bundled = replace(load(None, {}).embedding, poll_s=0.1)
    learning = finding(replace(settings, embedding=bundled), feedback=True, usage_log=True)
    with psycopg.connect(settings.database.url, autocommit=True) as database:
        async with running(learning) as client:
            embeddings = client.gateway.embeddings
            counted = "SELECT FROM entity_embedding_t WHERE status = 'ready'"
            await until(lambda: database.execute(counted).rowcount == 65)
            await until(lambda: embeddings.embedder("tools") is not None)
            session = await client.session("2025-11-25")
            query = {"name": "search_tools", "arguments": {"query": "Get rid of an animal."}}
            answer = (await session.call("tools/call", query))["result"]["structuredContent"]
            assert "note" not in answer
            assert "deletePet" in [one["name"] for one in answer["tools"]]
            for tool, arguments in (("getPet", {"id": 404}), ("deletePet", {"id": 4})):
                inside = {"name": tool, "arguments": arguments}
                called = {"name": "call_tool", "arguments": inside}
                await session.call("tools/call", called)
            learnt = "SELECT name FROM usage_query_t JOIN tool_t ON tool_id = entity_id"
            await until(lambda: database.execute(learnt).rowcount > 0)
            assert database.execute(learnt).fetchall() == [("deletePet",)]
            logged = "SELECT query, name FROM usage_request_t JOIN tool_t ON tool_id = ANY (called)"
            await until(lambda: database.execute(logged).rowcount > 0)
            assert database.execute(logged).fetchall() == [("Get rid of an animal.", "deletePet")]

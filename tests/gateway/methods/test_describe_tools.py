"""describe_tool, and lists that leave something out, through every front of the gateway."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.client import Client as McpClient
from mcp.client.sse import sse_client
from mcp.types import Implementation
from msgspec.structs import replace

from config.settings import Settings, Toolset
from registry.display.token_budgets import tokens
from tests.fixtures_gateway import META, MODERN, Client, pets, running
from tests.gateway.portal import portal, token, with_tokens
from tests.gateway.shared import anyio_backend, client, service

__all__ = ["anyio_backend", "client", "service"]

pytestmark = pytest.mark.anyio

DEPTHS = ("house", "room", "shelf", "box")
LONG_NAME = "aToolWithANameThatIsLongerThanWhatAClientLeavesForIt"
CLIENT_INFO = {"name": "test", "version": "1"}
CLIENT = "io.modelcontextprotocol/clientInfo"


def big_pet() -> dict[str, Any]:
    """A schema that no list shows whole: deep, circular, and with much to read."""
    inner: dict[str, Any] = {"$ref": "#/components/schemas/Pet"}
    for name in DEPTHS[::-1]:
        texts = {
            f"{name}_{n}": {"type": "string", "description": f"Field {n} of it. " * 8}
            for n in range(40)
        }
        inner = {"type": "object", "properties": {**texts, name: inner}}
    return {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "home": inner},
    }


def description() -> dict[str, Any]:
    document = pets()
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}}
    document["components"] = {"schemas": {"Pet": big_pet()}}
    document["paths"]["/big"] = {
        "post": {
            "operationId": "createBig",
            "summary": "Add a pet that says much",
            "description": "It goes on and on. " * 100,
            "requestBody": {"required": True, **body},
            "responses": {"200": {"description": "ok", **body}},
        }
    }
    document["paths"]["/long"] = {"get": {"operationId": LONG_NAME, "summary": "Long"}}
    return document


def with_big_tool(settings: Settings) -> Settings:
    Path(settings.sources["pets"].openapi).write_text(json.dumps(description()))
    few = {"big": Toolset(include=("createBig",)), "small": Toolset(include=("getPet",))}
    return replace(settings, toolsets=few)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return with_big_tool(settings)


@pytest.fixture(scope="module")
def shared_settings(shared_settings: Settings) -> Settings:
    return with_big_tool(shared_settings)


async def tools_of(client: Client, path: str = "/mcp", name: str = "") -> dict[str, Any]:
    """What a 2026-07-28 client of this name sees listed."""
    meta = {**META, **({CLIENT: {"name": name, "version": "1"}} if name else {})}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
    status, answer, _ = await client.post(path, request, headers)
    assert status == 200, answer
    return {tool["name"]: tool for tool in answer["result"]["tools"]}


ERAS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN)


@pytest.fixture(scope="module", params=["settings", "toolset", "profile"])
async def budget_gateway(
    shared_settings: Settings, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[Client, str, int]]:
    """A gateway that shortens a tool by one of three budgets; the path of the list, and tokens."""
    least = {"cursor": 250} if request.param == "profile" else {}
    toolsets = {"big": Toolset(include=("createBig",), tool_tokens=300)}
    profiles = replace(shared_settings.profiles, tool_tokens=least)
    path, most = {"settings": ("/mcp", 1000), "toolset": ("/mcp/big", 300),
                  "profile": ("/mcp?profile=cursor", 250)}[request.param]  # fmt: skip
    async with running(replace(shared_settings, toolsets=toolsets, profiles=profiles)) as client:
        yield client, path, most


@pytest.mark.parametrize("era", ERAS)
async def test_a_summarised_tool_is_listed_described_and_called(
    budget_gateway: tuple[Client, str, int], era: str
) -> None:
    """describe_tool tells what the list leaves out; calls are checked against all of it."""
    client, path, most = budget_gateway
    async with speaking(client, path, era) as ask:
        listed = {one["name"]: one for one in (await ask("tools/list", {}))["tools"]}
        assert tokens(json.dumps(listed["createBig"], separators=(",", ":"))) <= most
        assert "Call describe_tool for all." in json.dumps(listed["createBig"])
        asked = {"name": "createBig", "path": "home.house"}
        told = await ask("tools/call", {"name": "describe_tool", "arguments": asked})
        schema = json.loads(told["content"][0]["text"])["schema"]
        assert schema["properties"].keys() >= {"room", "room_39"}
        inside = {"name": "Rex", "home": {"house_1": "x"}}
        called = await ask("tools/call", {"name": "createBig", "arguments": inside})
        assert not called.get("isError")
        wrong = {"name": "createBig", "arguments": {"name": "Rex", "home": {"house_1": 5}}}
        assert (await ask("tools/call", wrong))["isError"]


@asynccontextmanager
async def speaking(client: Client, path: str, era: str) -> AsyncIterator[Any]:
    """A client of an era: what it asks with a method and params; a session where there are some."""
    headers = {"MCP-Protocol-Version": era}
    if era != MODERN:
        hello = {"protocolVersion": era, "capabilities": {}, "clientInfo": CLIENT_INFO}
        request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        _, _, answered = await client.post(path, request)
        headers["Mcp-Session-Id"] = answered["mcp-session-id"]

    async def ask(method: str, params: dict[str, Any]) -> Any:
        sent = dict(headers)
        if era == MODERN:
            params = {**params, "_meta": META}
            sent |= {"Mcp-Method": method}
            sent |= {"Mcp-Name": params["name"]} if "name" in params else {}
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        status, answer, _ = await client.post(path, request, sent)
        assert status in (200, 400), answer
        return answer.get("result") or {"isError": True, **answer["error"]}

    yield ask


async def describe_tool(client: Client, **arguments: Any) -> Any:
    answer = await client.rpc(
        {"jsonrpc": "2.0", "id": 1, "method": "describe_tool", "params": arguments}
    )
    return answer.get("result") or answer["error"]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_describe_tool_gives_the_shortened_parts_to_the_official_client(
    client: Client, mode: Any
) -> None:
    async with McpClient(client.url + "/mcp", mode=mode) as mcp:
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        assert len(json.dumps(tools["createBig"].input_schema)) < 4_000
        assert tools["createBig"].output_schema is None
        assert tools["createBig"].description.endswith("It goes on and on. …")
        assert "Call describe_tool for all." in str(tools["createBig"].input_schema)
        assert tools["describe_tool"].annotations.read_only_hint is True
        result = await mcp.call_tool("describe_tool", {"name": "createBig", "path": "home.house"})
        told = json.loads(result.content[0].text)
        assert told["schema"]["properties"].keys() >= {"room", "room_39"}
        called = await mcp.call_tool("createBig", {"name": "Rex", "home": {"house_1": "x"}})
        assert not called.is_error
        refused = await mcp.call_tool("createBig", {"name": "Rex", "home": {"house_1": 5}})
        assert refused.is_error
        assert "home.house_1: expected string, got 5" in refused.content[0].text


async def test_a_client_of_2024_11_05_is_told_too(client: Client) -> None:
    async with (
        sse_client(client.url + "/mcp/sse?profile=gemini") as (receive, send),
        ClientSession(receive, send) as session,
    ):
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert "$ref" not in str(tools["createBig"].input_schema)
        result = await session.call_tool("describe_tool", {"name": "createBig"})
        assert "$ref" not in result.content[0].text


async def test_json_rpc_callers_get_the_whole_description(client: Client) -> None:
    told = await describe_tool(client, name="createBig")
    assert told["description"].count("It goes on and on.") > 90
    assert told["inputSchema"]["properties"]["home"]["properties"].keys() >= {"house", "house_39"}
    assert "house_39" in str(told["outputSchema"])
    assert told["name"] == "createBig"


async def test_unknown_tools_and_parts_are_refused_with_suggestions(client: Client) -> None:
    assert "there is no tool 'createBigg'; there is createBig" in str(
        await describe_tool(client, name="createBigg")
    )
    answer = str(await describe_tool(client, name="createBig", path="home.hosue"))
    assert "there is no 'hosue' in the input schema of createBig; there is house" in answer
    assert "name: is required" in str(await describe_tool(client))


async def test_a_long_answer_is_cut_and_can_be_gone_on_with(settings: Settings) -> None:
    told, parts = "", 0
    arguments: dict[str, Any] = {"name": "createBig"}
    async with running(replace(settings, answers=replace(settings.answers, tokens=4000))) as to:
        while arguments:
            params = {"name": "describe_tool", "arguments": arguments}
            _, answer = await to.modern("tools/call", params)
            told += answer["result"]["content"][0]["text"]
            parts += 1
            meta = answer["result"]["_meta"]
            arguments = meta.get("toolgate/continue", {}).get("arguments", {})
    assert parts > 2
    assert json.loads(told)["name"] == "createBig"


async def test_an_unshortened_list_has_no_describe_tool(client: Client) -> None:
    assert list(await tools_of(client, "/mcp/small")) == ["getPet"]
    assert list(await tools_of(client, "/mcp/big")) == ["createBig", "describe_tool"]


async def test_a_toolset_describes_its_own_tools_alone(client: Client) -> None:
    params = {"name": "describe_tool", "arguments": {"name": "createBig"}, "_meta": META}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call",
               "Mcp-Name": "describe_tool"}  # fmt: skip
    answers = {
        name: (await client.post(f"/mcp/{name}", request, headers))[1]["result"]
        for name in ("big", "small")
    }
    assert not answers["big"].get("isError")
    assert answers["small"]["isError"]
    assert "there is no tool 'createBig'" in answers["small"]["content"][0]["text"]


async def test_descriptions_of_forbidden_tools_are_refused(
    settings: Settings, tmp_path: Path
) -> None:
    async with portal(with_tokens(settings, tmp_path)) as to:
        request = {"jsonrpc": "2.0", "id": 1, "method": "describe_tool",
                   "params": {"name": "rule_deleteRule"}}  # fmt: skip
        told = (await to.post("/rpc", request)).json
        assert told["result"]["name"] == "rule_deleteRule"
        stranger = f"Bearer {token(scope='other')}"
        refused = (await to.post("/rpc", request, authorization=stranger)).json
        assert "there is no tool 'rule_deleteRule'" in str(refused["error"])


async def test_the_client_name_selects_the_profile_of_its_list(client: Client) -> None:
    plain, gemini = await tools_of(client), await tools_of(client, name="gemini-cli-mcp-client")
    assert plain["createPet"]["inputSchema"]["additionalProperties"] is False
    assert "additionalProperties" not in str(gemini)
    by_address = await tools_of(client, "/mcp?profile=gemini", name="claude-code")
    assert by_address == gemini


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_name_that_is_shortened_for_a_client_calls_its_tool(
    client: Client, mode: Any
) -> None:
    info = Implementation(name="claude-code", version="2")
    async with McpClient(client.url + "/mcp", mode=mode, client_info=info) as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        [short] = [name for name in names if name.startswith("aToolWith")]
        assert len("mcp__toolgate__" + short) <= 64
        for name in (short, LONG_NAME):
            result = await mcp.call_tool(name, {})
            assert result.structured_content["heard"]["path"] == "/long"
        told = await mcp.call_tool("describe_tool", {"name": short})
        assert json.loads(told.content[0].text)["name"] == short


async def test_a_cut_answer_names_the_tool_by_its_listed_name(settings: Settings) -> None:
    few = replace(settings, answers=replace(settings.answers, tokens=25))
    info = Implementation(name="claude-code", version="2")
    async with running(few) as client, McpClient(client.url + "/mcp", client_info=info) as mcp:
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        [short] = [name for name in names if name.startswith("aToolWith")]
        result = await mcp.call_tool(short, {})
        for _ in range(2):
            assert f"To go on, call {short} with" in result.content[1].text
            handle = result.meta["toolgate/continue"]["arguments"]
            result = await mcp.call_tool(short, handle)


async def test_a_profile_that_there_is_not_is_refused(client: Client) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for path in ("/mcp?profile=nobody", "/rpc?profile=nobody"):
        status, answer, _ = await client.post(path, request)
        assert status == 400
        assert "There is no such profile; there is bedrock, claude" in answer["error"]["message"]
    answer = (await client.post("/rpc?profile=codex", request))[1]
    assert "createBig" in str(answer["result"])


async def test_metrics_show_the_costs_of_lists(settings: Settings) -> None:
    async with running(settings) as client:
        await tools_of(client, name="cursor-vscode")
        async with client.http.get(client.url + "/metrics") as response:
            text = await response.text()
    for profile in ("plain", "cursor"):
        cost = re.search(rf'toolgate_list_tokens{{profile="{profile}"}} (\S+)', text)
        assert cost is not None
        assert 500 < float(cost[1]) < 2000
        assert f'toolgate_list_shortened{{profile="{profile}"}} 1.0' in text

"""The official `mcp` client in front of the gateway, in every era that it speaks."""

import re
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.client import Client as McpClient
from mcp.client.sse import sse_client

from config.settings import Settings
from tests.fixtures_gateway import Client
from tests.gateway.portal import DATA, portal, service
from tests.servers import rules

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_official_client_lists_and_calls(
    client: Client, mode: Any, revision: str
) -> None:
    async with McpClient(client.url + "/mcp", mode=mode) as mcp:
        assert mcp.protocol_version == revision
        names = [tool.name for tool in (await mcp.list_tools()).tools]
        assert len(names) == 5
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
        result = await mcp.call_tool("createPet", {"name": "Rex", "age": 3})
        assert result.structured_content["heard"]["body"] == '{"name":"Rex","age":3}'
        failed = await mcp.call_tool("getPet", {"id": 404})
        assert failed.is_error
        assert failed.structured_content["status"] == 404


async def test_a_client_of_2024_11_05_lists_and_calls_over_sse(client: Client) -> None:
    async with (
        sse_client(client.url + "/mcp/sse") as (receive, send),
        ClientSession(receive, send) as session,
    ):
        initialized = await session.initialize()
        assert initialized.protocol_version == "2024-11-05"
        assert len((await session.list_tools()).tools) == 5
        result = await session.call_tool("getPet", {"id": 3})
        assert '"/pets/3"' in result.content[0].text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_lists_and_calls_a_hybrid_action(
    settings: Settings, mode: Any
) -> None:
    async with (
        portal(settings) as to,
        McpClient(to.client.url + "/mcp", mode=mode) as mcp,
    ):
        tools = {tool.name: tool for tool in (await mcp.list_tools()).tools}
        listed = tools["rule_deleteRule"]
        assert listed.meta == {"toolgate/service": service("deleteRule")}
        assert listed.description == "Deletes a rule."
        assert listed.input_schema == rules.KEYS
        assert tools["rule_getRules"].annotations.read_only_hint is True
        done = await mcp.call_tool("rule_deleteRule", DATA)
        assert (done.content[0].text, done.is_error) == ("OK", False)
        asked = await mcp.call_tool("rule_getRules", {"x": 1})
        assert asked.structured_content == {"rules": [], "asked": {"x": 1}}
        assert (await mcp.call_tool("rule_label", {"data": "ab"})).content[0].text == "AB"
        difference = await mcp.call_tool("subtract", {"minuend": 3, "subtrahend": 1})
        assert difference.content[0].text == "2"
        failed = await mcp.call_tool("rule_updateRule", DATA)
        assert failed.is_error
        assert failed.content[0].text.startswith("HTTP 400 ERR10001 AUTH_TOKEN_EXPIRED: ")
        assert failed.structured_content["body"] == rules.EXPIRED
        wrong = await mcp.call_tool("rule_deleteRule", {})
        assert wrong.is_error
        assert rules.state.done == [DATA, {"x": 1}, DATA]

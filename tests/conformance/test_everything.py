"""The "everything" server answers the official client in both eras, or in the one it is for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import anyio
import pytest
from mcp import MCPError, types
from mcp.client.client import Client
from mcp.client.subscriptions import ToolsListChanged

from tests.fixtures_servers import serving
from tests.servers.everything import everything
from tests.servers.everything_wire import Era

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
DEADLINE_S = 30


@asynccontextmanager
async def endpoint(era: Era = "both") -> AsyncIterator[str]:
    app, lifespan = everything(era)
    async with lifespan, serving(app) as url:
        yield url + "/mcp"


async def answer_elicitation(_context: Any, params: Any) -> types.ElicitResult:
    names = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content=dict.fromkeys(names, "Alice"))


async def answer_sampling(_context: Any, _params: Any) -> types.CreateMessageResult:
    return types.CreateMessageResult(
        role="assistant", content=types.TextContent(text="Paris"), model="none"
    )


async def answer_roots(_context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/alice")])


@asynccontextmanager
async def client(url: str, mode: str) -> AsyncIterator[Client]:
    """A client that answers whatever it is asked."""
    able = Client(
        url,
        mode=mode,
        elicitation_callback=answer_elicitation,
        sampling_callback=answer_sampling,
        list_roots_callback=answer_roots,
    )
    with anyio.fail_after(DEADLINE_S):
        async with able as connected:
            yield connected


async def call_for_text(connected: Client, name: str, **arguments: Any) -> str:
    result = await connected.call_tool(name, arguments)
    assert not result.is_error, result
    return result.content[0].text


@MODES
async def test_answers_of_the_client_reach_the_tool(mode: str) -> None:
    async with endpoint() as url, client(url, mode) as connected:
        name = "test_input_required_result"
        assert await call_for_text(connected, f"{name}_elicitation") == "Hello, Alice!"
        assert await call_for_text(connected, f"{name}_sampling") == "Paris"
        assert await call_for_text(connected, f"{name}_list_roots") == "file:///home/alice"
        assert await call_for_text(connected, f"{name}_multiple_inputs") == "Paris Alice (1)"
        assert await call_for_text(connected, f"{name}_multi_round") == "Alice likes Alice."


@MODES
async def test_prompts_and_resources_are_there_in_both_eras(mode: str) -> None:
    async with endpoint() as url, client(url, mode) as connected:
        prompt = await connected.get_prompt("test_input_required_result_prompt")
        assert prompt.messages[0].content.text == "Context: {'context': 'Alice'}"
        read = await connected.read_resource("test://template/123/data")
        assert '"id": "123"' in read.contents[0].text
        with pytest.raises(MCPError) as missing:
            await connected.read_resource("test://nowhere")
        assert missing.value.error.code == (-32002 if mode == "legacy" else -32602)


@MODES
async def test_a_changed_list_has_one_tool_more(mode: str) -> None:
    async with endpoint() as url, client(url, mode) as connected:
        before = [tool.name for tool in (await connected.list_tools()).tools]
        await call_for_text(connected, "test_trigger_tool_change")
        listed = await connected.list_tools(cache_mode="bypass")
        assert [tool.name for tool in listed.tools] == [*before, "test_changed"]


async def test_a_listening_client_hears_of_a_change() -> None:
    async with (
        endpoint() as url,
        client(url, "2026-07-28") as connected,
        connected.listen(tools_list_changed=True) as heard,
    ):
        await call_for_text(connected, "test_trigger_tool_change")
        assert await anext(aiter(heard)) == ToolsListChanged()


@pytest.mark.parametrize(
    ("era", "mode", "works"),
    [
        ("handshake", "legacy", True),
        ("handshake", "2026-07-28", False),
        ("stateless", "2026-07-28", True),
        ("stateless", "legacy", False),
    ],
)
async def test_a_server_of_one_era_refuses_the_other(era: Era, mode: str, works: bool) -> None:
    async with endpoint(era) as url:
        try:
            async with client(url, mode) as connected:
                text = await call_for_text(connected, "test_simple_text")
        except* MCPError:
            text = ""
    assert bool(text) is works


async def test_a_stateless_server_names_its_revision_on_initialize() -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with (
        endpoint("stateless") as url,
        aiohttp.ClientSession() as http,
        http.post(url, json=request) as response,
    ):
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-06-18"}

"""The MCP server that is measured through the gateway, and the proxy that is its floor."""

import os
from typing import Any

import aiohttp
import anyio
import msgspec
import pytest
from mcp.client.client import Client as McpClient

from benchmarks import calls, floor
from benchmarks.mcp_server import CHANGED, TOOL, TOOLS, McpServer
from tests.fixtures_servers import Serve
from tests.polling import until

pytestmark = pytest.mark.anyio

LISTEN = {"notifications": {"toolsListChanged": True}}


def stateless(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """What aiohttp sends for the same request as is measured."""
    request = calls.stateless(1, method, params)
    return {"data": request.bodies[0], "headers": dict(request.headers)}


async def read_until(response: aiohttp.ClientResponse, needle: bytes) -> bytes:
    seen = b""
    with anyio.fail_after(30):
        while needle not in seen:
            seen += await response.content.readany()
    return seen


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_the_official_client_lists_and_calls(serve: Serve, mode: Any, revision: str) -> None:
    url = await serve(McpServer())
    async with McpClient(f"{url}/mcp", mode=mode) as mcp:
        assert mcp.protocol_version == revision
        assert len((await mcp.list_tools()).tools) == TOOLS
        result = await mcp.call_tool(TOOL, calls.ARGUMENTS)
    assert calls.NEEDLE.decode() in result.content[0].text
    assert not result.is_error


async def test_a_tool_that_is_not_there_is_refused(serve: Serve) -> None:
    url = await serve(McpServer())
    async with (
        aiohttp.ClientSession(url) as http,
        http.post("/mcp", **stateless("tools/call", {"name": "no_such_tool"})) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (404, -32601)


async def test_a_tool_that_is_added_is_told_to_every_stream_and_listed(serve: Serve) -> None:
    url = await serve(McpServer())
    async with (
        aiohttp.ClientSession(url) as http,
        http.get("/mcp") as session,
        http.post("/mcp", **stateless("subscriptions/listen", LISTEN)) as listening,
    ):
        await read_until(session, b"\n\n")
        await read_until(listening, b"notifications/subscriptions/acknowledged")
        async with http.post("/tools") as response:
            added = (await response.json())["name"]
        assert CHANGED.encode() in await read_until(session, b"}\n\n")
        told = (await read_until(listening, b"}\n\n")).split(b"data: ")[1]
        async with http.post("/mcp", **stateless("tools/list", {})) as response:
            listed = [tool["name"] for tool in (await response.json())["result"]["tools"]]
    assert msgspec.json.decode(told) == {
        "jsonrpc": "2.0",
        "method": CHANGED,
        "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}},
    }
    assert listed[-1] == added
    assert len(listed) == TOOLS + 1


async def test_open_streams_are_counted(serve: Serve) -> None:
    url = await serve(McpServer())

    async def count() -> bytes:
        async with http.get("/streams") as response:
            return await response.read()

    async with aiohttp.ClientSession(url) as http:
        async with http.get("/mcp") as stream:
            await read_until(stream, b"\n\n")
            assert await count() == b"1"
            stream.close()

        async def all_ended() -> bool:
            return await count() == b"0"

        await until(all_ended)


async def test_the_floor_forwards_its_requests(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(McpServer())
    monkeypatch.setitem(os.environ, "TOOLGATE_BENCH_UPSTREAM", server)
    async with floor.lifespan(floor.app):
        front = await serve(floor.app)
        async with McpClient(f"{front}/mcp", mode="legacy") as mcp:
            assert len((await mcp.list_tools()).tools) == TOOLS
        request = stateless("tools/call", calls.call(TOOL))
        bodies = []
        for url in (server, front):
            async with aiohttp.ClientSession(url) as http, http.post("/mcp", **request) as answer:
                bodies.append(await answer.read())
        assert bodies[0] == bodies[1]
        assert calls.NEEDLE in bodies[0]
        wrong = stateless("no/such/method", {})
        async with aiohttp.ClientSession(front) as http, http.post("/mcp", **wrong) as answer:
            assert answer.status == 404

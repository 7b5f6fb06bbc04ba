"""Our links to servers built with the official SDK, over each of its transports."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from gateway.upstreams.http.client import Client
from gateway.upstreams.mcp.link_and_handlers import Link
from gateway.upstreams.mcp.transport_choice import Transports
from schemas.source import McpOptions, Source
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.conftest import Ears

pytestmark = pytest.mark.anyio

SERVER = (sys.executable, "-m", "tests.servers.mcp_sdk")
STARTED_S = 60  # a loaded machine is slow, not wrong
ELICITS = {"elicitation": {"form": {}}}


@asynccontextmanager
async def start_server(transport: str) -> AsyncIterator[tuple[Source, Any]]:
    """The server as a source, and the stream of what it says on stderr."""
    if transport == "stdio":
        options = McpOptions((*SERVER, "stdio"))
        yield Source("id", "small", "mcp", "", None, True, options=options), None
        return
    async with await anyio.open_process([*SERVER, transport]) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(STARTED_S):
                url = (await TextReceiveStream(process.stdout).receive()).strip()
            url += "/sse" if transport == "sse" else "/mcp"
            source = Source("id", "small", "mcp", url, None, True, options=McpOptions())
            yield source, process.stderr
        finally:
            process.kill()


@pytest.fixture
async def official_server(anyio_backend: str) -> AsyncIterator[Any]:
    values = limits(timeout_s=STARTED_S, response_limit_bytes=10**7)
    client = Client(values, {})
    ways: list[Any] = []

    def reach(source: Source) -> Any:
        ways.append(
            Transports(client.connections, values, {}, {"name": "toolgate", "version": "1"})(source)
        )
        return ways[-1]

    yield reach
    for way in ways:
        await way.close()
    await client.close()


async def add(link: Link, way: Any, a: int, b: int) -> Any:
    params = {"name": "add", "arguments": {"a": a, "b": b}}
    members = await link.request("tools/call", params, None, way.timeout)
    return json.loads(bytes(members["structuredContent"]))["result"]


async def until(said: Any, word: bytes) -> None:
    with anyio.fail_after(STARTED_S):
        while word not in await said.receive():
            pass


@pytest.mark.parametrize("transport", ["http", "http-json", "sse", "stdio"])
async def test_sessions(official_server, transport):
    async def answer(method: str, params: Any) -> Any:
        return {"action": "accept", "content": {"name": "Ann"}}

    ears, background = Ears(answer=answer), Ears(answer=answer)
    async with start_server(transport) as (source, _):
        way = official_server(source)
        spoken = await way.probe()
        assert spoken.handshake is not None
        assert spoken.handshake.revision.name == "2025-11-25"
        assert spoken.handshake.server_info["name"] == "small"
        link = await way.open(spoken, ELICITS, background)
        sums = await asyncio.gather(*(add(link, way, number, 1) for number in range(10)))
        assert sums == list(range(1, 11))

        params = {"name": "steps", "arguments": {"count": 3}, "_meta": {"progressToken": "t"}}
        await link.request("tools/call", params, ears, way.timeout)
        if transport != "http-json":  # which has nowhere to say it
            progress = [params["progress"] for _, params in ears.heard]
            assert progress == [1, 2, 3]
            assert {params["progressToken"] for _, params in ears.heard} == {"t"}

            params = {"name": "greet", "arguments": {}}
            members = await link.request("tools/call", params, ears, way.timeout)
            assert b"Hello, Ann!" in bytes(members["content"])
            asked = background if way.one_stream else ears
            assert [method for method, _ in asked.asked_for] == ["elicitation/create"]
        await link.close()
        assert not link.alive


@pytest.mark.parametrize("transport", ["http", "http-json", "stdio"])
async def test_2026_07_28(official_server, transport):
    async with start_server(transport) as (source, _):
        way = official_server(source)
        spoken = await way.probe()
        assert spoken.stateless is not None
        link = await way.stateless(spoken)
        sums = await asyncio.gather(*(add(link, way, number, 1) for number in range(10)))
        assert sums == list(range(1, 11))
        ears = Ears()
        params = {"name": "steps", "arguments": {"count": 3}, "_meta": {"progressToken": 7}}
        await link.request("tools/call", params, ears, way.timeout)
        if transport != "http-json":
            assert [params["progress"] for _, params in ears.heard] == [1, 2, 3]
            assert {params["progressToken"] for _, params in ears.heard} == {7}
        async with link.listen({"toolsListChanged": True}, ears) as over:
            assert not over.done()
        assert ears.heard[-1][0] == "notifications/subscriptions/acknowledged"
        await link.close()


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_cancelled_calls_are_cancelled_at_official_servers(official_server, era):
    async with start_server("http") as (source, said):
        way = official_server(source)
        spoken = await way.probe()
        opening = way.stateless(spoken) if era == "stateless" else way.open(spoken, {}, Ears())
        link = await opening
        ears = Ears()
        calling = asyncio.create_task(
            link.request("tools/call", {"name": "wait", "arguments": {}}, ears, way.timeout)
        )
        await until(said, b"waiting")
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await until(said, b"cancelled")
        await link.close()

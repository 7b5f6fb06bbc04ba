"""Clients that accept JSON and no event stream."""

import asyncio

import anyio
import pytest

from config.settings import Settings
from tests.fixtures_gateway import META, MODERN, Client, Recorder, running, with_mcp

pytestmark = pytest.mark.anyio

JSON = {"Accept": "application/json"}
CALL = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow"}}
ROUTING = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "slow"}


@pytest.mark.parametrize("modern", [True, False])
async def test_a_long_call_of_a_client_without_streams_is_answered_with_json(
    settings: Settings, service: Recorder, modern: bool
) -> None:
    """The answer stays JSON where keep-alives would have begun a stream (mending 22)."""
    async with running(with_mcp(settings, keep_alive_s=0.03)) as client:
        headers, call = ROUTING, {**CALL, "params": {"name": "slow", "_meta": META}}
        if not modern:
            headers, call = (await client.session()).headers, CALL
        calling = asyncio.create_task(client.post("/mcp", call, {**headers, **JSON}))
        with anyio.fail_after(30):
            await service.arrived.wait()
            streams = {**headers, "Accept": "application/json, text/event-stream"}
            async with client.http.post(
                client.url + "/mcp", json={**call, "id": 6}, headers=streams
            ) as later:  # its first keep-alive is due after that of the first call
                assert later.content_type == "text/event-stream"
                service.release.set()
                status, answer, received = await calling
    assert (status, received["content-type"]) == (200, "application/json")
    assert "content" in answer["result"]


async def test_a_subscription_of_a_client_without_streams_is_refused(client: Client) -> None:
    """A listener that accepts no stream is told so at once (mending 22)."""
    with anyio.fail_after(30):
        _, answer = await client.modern("subscriptions/listen", {"notifications": {}}, **JSON)
    assert answer["error"]["code"] == -32600
    assert "text/event-stream" in answer["error"]["message"]


@pytest.mark.parametrize("accept", ["*/*", "application/json, Text/Event-Stream", "text/*"])
async def test_ranges_of_accept_admit_streams(
    settings: Settings, service: Recorder, accept: str
) -> None:
    async with running(with_mcp(settings, keep_alive_s=0.03)) as client:
        headers = {**(await client.session()).headers, "Accept": accept}
        with anyio.fail_after(30):
            async with client.http.post(client.url + "/mcp", json=CALL, headers=headers) as answer:
                assert answer.content_type == "text/event-stream"
                service.release.set()
                await answer.read()

"""What changes at a server behind the gateway, and who hears of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from config.settings import Settings
from tests.fixtures_gateway import META, MODERN, Client
from tests.gateway.federation.conftest import Stream, caller, gateway_to, post_message
from tests.servers.everything_wire import Era

pytestmark = pytest.mark.anyio

SERVERS: tuple[Era, ...] = ("handshake", "stateless", "both")
WATCHED = "test://watched-resource"
UPDATE = {"name": "test_trigger_resource_update", "arguments": {"uri": WATCHED}}
LISTS = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
TOOLS_CHANGED = "notifications/tools/list_changed"


async def until(stream: Stream, method: str) -> Any:
    """The first message of this method; lists change together, and come in any order."""
    while (told := await stream.next())["method"] != method:
        assert told["method"] in LISTS
    return told


@asynccontextmanager
async def listening(client: Client, **wanted: Any) -> AsyncIterator[Stream]:
    """A 2026-07-28 listen stream that has been acknowledged."""
    params = {"notifications": wanted, "_meta": META}
    request = {"jsonrpc": "2.0", "id": "ear", "method": "subscriptions/listen", "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    async with post_message(client, request, headers) as stream:
        acknowledged = await stream.next()
        assert acknowledged["params"]["notifications"] == wanted
        yield stream


@asynccontextmanager
async def streaming(client: Client, session: Any) -> AsyncIterator[Stream]:
    """The standalone stream of a session."""
    headers = {**session.headers, "Accept": "text/event-stream"}
    async with client.http.get(client.url + "/mcp", headers=headers) as response:
        assert response.status == 200
        yield Stream(response)


@pytest.mark.parametrize("server", SERVERS)
async def test_a_tool_that_a_server_adds_is_told_and_listed(bare: Settings, server: Era) -> None:
    async with gateway_to(bare, every=server) as client:
        session = await client.session("2025-11-25")
        who = await caller(client, MODERN)
        async with (
            listening(client, toolsListChanged=True) as ear,
            streaming(client, session) as stream,
        ):
            assert "test_changed" not in str(await session.call("tools/list"))
            await who.result("tools/call", {"name": "test_trigger_tool_change"})
            told = await until(ear, TOOLS_CHANGED)
            assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "ear"
            await until(stream, TOOLS_CHANGED)
            assert "test_changed" in str(await session.call("tools/list"))


@pytest.mark.parametrize("server", SERVERS)
async def test_a_changed_resource_is_announced_to_subscribers(bare: Settings, server: Era) -> None:
    async with gateway_to(bare, every=server) as client:
        session, other = await client.session("2025-11-25"), await client.session("2025-11-25")
        who = await caller(client, MODERN)
        assert (await session.call("resources/subscribe", {"uri": WATCHED}))["result"] == {}
        async with (
            listening(client, resourceSubscriptions=[WATCHED]) as ear,
            streaming(client, session) as stream,
            streaming(client, other) as silent,
        ):
            await who.result("tools/call", UPDATE)
            for heard in (await ear.next(), await stream.next()):
                assert heard["method"] == "notifications/resources/updated"
                assert heard["params"]["uri"] == WATCHED
            await who.result("tools/call", {"name": "test_trigger_tool_change"})
            assert (await silent.next())["method"] in LISTS


async def test_a_client_that_unsubscribed_hears_nothing_more(bare: Settings) -> None:
    async with gateway_to(bare, every="both") as client:
        session = await client.session("2025-11-25")
        who = await caller(client, MODERN)
        await session.call("resources/subscribe", {"uri": WATCHED})
        async with streaming(client, session) as stream:
            await session.call("resources/unsubscribe", {"uri": WATCHED})
            await who.result("tools/call", UPDATE)
            await who.result("tools/call", {"name": "test_trigger_tool_change"})
            assert (await stream.next())["method"] in LISTS
        with anyio.fail_after(20):
            while len(client.gateway.shared.hub.watches):  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)


async def test_a_resource_of_nobody_cannot_be_subscribed_to(bare: Settings) -> None:
    async with gateway_to(bare, every="both", other="both") as client:
        session = await client.session("2025-11-25")
        refused = await session.call("resources/subscribe", {"uri": "nobody://here"})
        assert refused["error"]["code"] == -32002

"""Servers that go away, and tell nobody."""

from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import MODERN, running
from tests.fixtures_servers import serving
from tests.gateway.federation.conftest import caller
from tests.gateway.federation.servers import known_to_be_down
from tests.servers.everything import everything
from tests.servers.everything_wire import Era

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("server", ["handshake", "stateless", "both"])
async def test_a_server_that_went_away_is_known_to_be_after_the_first_call(
    bare: Settings, server: Era
) -> None:
    app, lifespan = everything(server)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lifespan)
        behind = AsyncExitStack()
        url = await behind.enter_async_context(serving(app))
        sources = {"every": SourceSettings(mcp=f"{url}/mcp")}
        client = await stack.enter_async_context(running(replace(bare, sources=sources)))
        servers = client.gateway.federation.servers
        with anyio.fail_after(20):
            while servers.failures():  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        await behind.aclose()
        who = await caller(client, MODERN, {})
        circuits = client.gateway.access.bounds.breaker._circuits
        # a first call may still be sent, and its answer lost, which says nothing of the next
        while "every" not in circuits or not circuits["every"].calls:
            failed = await who.result("tools/call", {"name": "test_simple_text"})
            assert failed["error"]["code"] == 1502
            assert url not in str(failed)
        assert (circuits["every"].calls, circuits["every"].failures) == (1, 1)
        with anyio.fail_after(20):
            while not servers.failures():  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.01)
        listed = (await who.result("tools/list", {}))["result"]
        assert len(listed["tools"]) > 20
        assert listed["ttlMs"] == 0


async def test_a_server_that_is_back_is_called_at_once(bare: Settings) -> None:
    """Neither the breaker nor the memory of what failed keeps calls from a server that answers."""
    app, lifespan = everything("both")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lifespan)
        behind = AsyncExitStack()
        url = await behind.enter_async_context(serving(app))
        sources = {"every": SourceSettings(mcp=f"{url}/mcp")}
        breaker = replace(bare.breaker, calls=8, open_s=3000, longest_s=3000)
        settings = replace(bare, sources=sources, breaker=breaker)
        client = await stack.enter_async_context(running(settings))
        await known_to_be_down(client, set())
        who = await caller(client, MODERN, {})
        port = int(url.rpartition(":")[2])

        async def call() -> Any:
            return await who.result("tools/call", {"name": "test_simple_text"})

        await behind.aclose()
        while "error" not in await call():
            pass
        url = await behind.enter_async_context(serving(app, port=port))
        assert "result" in await call()

        await behind.aclose()
        spared = client.gateway.access.bounds.breaker
        with anyio.fail_after(30):
            while not spared.states():
                await call()
        await known_to_be_down(client, {"every"})
        await stack.enter_async_context(serving(app, port=port))
        await known_to_be_down(client, set())
        assert spared.states() == {}
        assert "result" in await call()

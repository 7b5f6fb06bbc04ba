"""Servers behind a gateway that a test can stop, and that are not all alike."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
from msgspec.structs import replace
from starlette.types import ASGIApp

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving

Served = tuple[ASGIApp, AbstractAsyncContextManager[Any]]

DEADLINE_S = 30


class Fleet:
    """A gateway, and the servers behind it."""

    def __init__(self, client: Client, stacks: Mapping[str, AsyncExitStack]) -> None:
        self.client = client
        self._stacks = stacks

    async def kill(self, name: str) -> None:
        """Stop a server, and wait until the gateway knows."""
        await self._stacks[name].aclose()
        await known_to_be_down(self.client, {name})


@asynccontextmanager
async def fleet(
    settings: Settings, servers: Mapping[str, Served], **options: Any
) -> AsyncIterator[Fleet]:
    """A gateway with a source for each server, too; `options` are those of all of them."""
    async with AsyncExitStack() as stack:
        sources, stacks = dict(settings.sources), {}
        for name, (app, lifespan) in servers.items():
            await stack.enter_async_context(lifespan)
            stacks[name] = await stack.enter_async_context(AsyncExitStack())
            url = await stacks[name].enter_async_context(serving(app))
            sources[name] = SourceSettings(mcp=f"{url}/mcp", **options)
        client = await stack.enter_async_context(running(replace(settings, sources=sources)))
        await known_to_be_down(client, set())
        yield Fleet(client, stacks)


async def known_to_be_down(client: Client, names: set[str]) -> None:
    with anyio.fail_after(DEADLINE_S):
        while client.gateway.federation.servers.failures().keys() != names:  # noqa: ASYNC110 - it tells nobody
            await anyio.sleep(0.01)

"""Commands that ask other MCP servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from config.settings import Settings
from gateway.methods.server import SERVER
from gateway.upstreams.connections import Connections
from gateway.upstreams.mcp.lister import Lister
from gateway.upstreams.mcp.servers import Servers
from gateway.upstreams.mcp.ways import Ways


class _NoAudience:
    """A command asks once; it does not stay to hear what changes."""

    async def lists_changed(self, source: str) -> None: ...

    def resource_changed(self, source: str, uri: str) -> None: ...

    def came_or_went(self, source: str) -> None: ...


@asynccontextmanager
async def open_lister(settings: Settings) -> AsyncIterator[Lister]:
    """Asks MCP servers as the gateway does, until the block ends."""
    connections = Connections(settings.upstream, settings.sources)
    client = msgspec.to_builtins(SERVER)
    ways = Ways(connections, settings.upstream, settings.sources, client)
    servers = Servers(ways, _NoAudience(), settings.upstream)
    try:
        yield Lister(servers, settings.upstream)
    finally:
        await servers.close()
        await connections.close()

"""Client connections of commands to other MCP servers."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from rich.text import Text

from config.settings import Settings
from gateway.app.access_for_commands import NONE, Stores
from gateway.cli.common.output import err
from gateway.cli.common.text import harmless
from gateway.methods.results_by_revision import SERVER
from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.mcp.list_reader import Lister
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.transport_choice import Transports
from gateway.upstreams.remote_documents import RemoteDocuments


class _NoAudience:
    """Null audience: a command does not wait for change notifications."""

    async def lists_changed(self, source: str) -> None: ...

    def resource_changed(self, source: str, uri: str) -> None: ...

    def reachability_changed(self, source: str) -> None: ...


class _Overheard(logging.Handler):
    """Log handler that prints output of a child process, which may explain a failure."""

    def emit(self, record: logging.LogRecord) -> None:
        members = vars(record)
        if record.getMessage() == "stdio_stderr":
            err.print(Text(harmless(f"{members['source']}: {members['line']}"), style="dim"))
        elif record.getMessage() == "stdio_exited" and members.get("code"):
            err.print(Text(f"{members['source']} ended with code {members['code']}", style="dim"))


@contextmanager
def _overhearing() -> Iterator[None]:
    logger, handler = logging.getLogger("toolgate.upstream"), _Overheard()
    level, logger.propagate = logger.level, False  # a command reports its own failures
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


@asynccontextmanager
async def open_lister(settings: Settings, stores: Stores = NONE) -> AsyncIterator[RemoteDocuments]:
    """A lister with the gateway's settings, open until the block ends. `stores`: credentials of the
    registry, by source."""
    connections = SourcePools(settings.upstream, settings.sources)
    connections.store(stores)
    client = msgspec.to_builtins(SERVER)
    ways = Transports(connections, settings.upstream, settings.sources, client)
    servers = Servers(ways, _NoAudience(), settings.upstream)
    with _overhearing():
        try:
            yield RemoteDocuments(Lister(servers, settings.upstream), connections, settings.imports)
        finally:
            await servers.close()
            await connections.close()

"""How each source is reached, by the settings as they are."""

from collections.abc import Mapping
from typing import Any

from config.settings import UpstreamSettings as Limits
from config.sources import SourceSettings
from gateway.upstreams.auth.caller import Holder
from gateway.upstreams.http.connections import Connections, UpstreamFailed
from gateway.upstreams.mcp.http_way import HttpWay
from gateway.upstreams.mcp.link import Hearer, Link, StatelessWay, Timeout
from gateway.upstreams.mcp.probe import Spoken, options_of
from gateway.upstreams.mcp.stdio_way import StdioWay
from schemas.source import Source


class Ways:
    """How the sources are reached, by the settings as they are."""

    def __init__(
        self,
        connections: Connections,
        limits: Limits,
        sources: Mapping[str, SourceSettings],
        client: Mapping[str, Any],
    ) -> None:
        """`client` is how the gateway introduces itself: `clientInfo`."""
        self._connections = connections
        self._client = client
        self.configure(limits, sources)

    def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """For ways that are asked for from now on."""
        self._limits = limits
        self._sources = sources

    def __call__(self, source: Source) -> "HttpWay | StdioWay | NoWay":
        if not options_of(source).command:
            return HttpWay(source, self._connections, self._client)
        if not self._limits.stdio:
            return NoWay(f"{source.name} is a command, and commands are off (upstream.stdio)")
        settings = self._sources.get(source.place, SourceSettings())
        return StdioWay(source, settings, self._limits, self._client)


class NoWay:
    """To a server that must not be reached."""

    one_stream = False
    timeout = Timeout(1.0, 1.0)
    pool = None

    def __init__(self, why: str) -> None:
        self._why = why

    async def probe(self) -> Spoken:
        raise UpstreamFailed(self._why)

    async def open(
        self,
        spoken: Spoken,  # noqa: ARG002
        capabilities: Mapping[str, Any],  # noqa: ARG002
        background: Hearer,  # noqa: ARG002
        holder: Holder | None = None,  # noqa: ARG002
    ) -> Link:
        raise UpstreamFailed(self._why)

    async def stateless(self, spoken: Spoken) -> StatelessWay:  # noqa: ARG002
        raise UpstreamFailed(self._why)

    async def close(self) -> None:
        pass

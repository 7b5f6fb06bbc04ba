"""The way to a server that has an address: probed, and linked to."""

from collections.abc import Mapping
from typing import Any

from gateway.upstreams.auth.caller import Holder
from gateway.upstreams.http.connections import Connections, SourcePool, UpstreamFailed
from gateway.upstreams.mcp.envelope import DISCOVER
from gateway.upstreams.mcp.http import HttpLink
from gateway.upstreams.mcp.http_sse import open_http_sse
from gateway.upstreams.mcp.link import Facts, Hearer, Hello, Link, StatelessWay, Timeout
from gateway.upstreams.mcp.nobody import Nobody
from gateway.upstreams.mcp.probe import (
    UNKNOWN,
    Spoken,
    demanded,
    handshake_facts,
    options_of,
    stateless_facts,
)
from gateway.upstreams.mcp.stateless import StatelessLink
from schemas.source import Source


class HttpWay:
    """To a server with an address."""

    def __init__(self, source: Source, connections: Connections, client: Mapping[str, Any]) -> None:
        """`client` is how we introduce ourselves: `clientInfo`."""
        self._source = source
        self._connections = connections
        self._client = client
        self.one_stream = False

    @property
    def timeout(self) -> Timeout:
        pool = self.pool
        return Timeout(pool.timeout_s, max(pool.timeout_s, pool.limits.mcp_call_max_s))

    async def probe(self) -> Spoken:
        """Raises UpstreamFailed."""
        era = options_of(self._source).era
        stateless = await self._discovered() if era != "handshake" else None
        if era == "stateless":
            return Spoken(demanded(self._source, stateless), None)
        hello, timeout = Hello(self._client), self._patience()
        opening = HttpLink.open(self.pool, hello, Nobody(), timeout)
        handshake = await handshake_facts(opening, stateless)
        if isinstance(handshake, Facts):
            return self._found(Spoken(stateless, handshake))
        if stateless is not None:
            return self._found(Spoken(stateless, None))
        opening_sse = open_http_sse(self.pool, hello, Nobody(), timeout)
        older = await handshake_facts(opening_sse, None)
        if isinstance(older, Facts):
            return self._found(Spoken(None, older, "sse"))
        raise UpstreamFailed(
            f"{self._source.name} does not answer as an MCP server of any revision: {handshake}"
        )

    async def open(
        self,
        spoken: Spoken,
        capabilities: Mapping[str, Any],
        background: Hearer,
        holder: Holder | None = None,
    ) -> Link:
        """A session at a server of a handshake revision. Raises RelayedFault and
        UpstreamFailed."""
        hello, timeout = Hello(self._client, capabilities), self._patience()
        if spoken.transport == "sse":
            return await open_http_sse(self.pool, hello, background, timeout, holder=holder)
        return await HttpLink.open(
            self.pool, hello, background, timeout, listen=True, holder=holder
        )

    async def stateless(self, spoken: Spoken) -> StatelessWay:
        return StatelessLink(self.pool, Hello(self._client), spoken.stateless or UNKNOWN)

    async def close(self) -> None:
        """The connections are not its own."""

    @property
    def pool(self) -> SourcePool:
        return self._connections.of(self._source)

    def _patience(self) -> Timeout:
        return Timeout(self.pool.timeout_s, self.pool.timeout_s)

    def _found(self, spoken: Spoken) -> Spoken:
        self.one_stream = spoken.transport == "sse"
        return spoken

    async def _discovered(self) -> Facts | None:
        link = StatelessLink(self.pool, Hello(self._client), UNKNOWN)
        try:
            return await stateless_facts(
                self._source.name, link.request(DISCOVER, {}, None, self._patience())
            )
        finally:
            await link.close()

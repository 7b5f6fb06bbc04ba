"""The way to a server that is a command: processes of it, probed and linked to."""

from collections.abc import Coroutine, Mapping
from typing import Any

from config.settings import UpstreamSettings as Limits
from config.sources import SourceSettings
from gateway.upstreams.auth.caller import Holder
from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.mcp.duplex import DuplexLink
from gateway.upstreams.mcp.envelope import DISCOVER
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
from gateway.upstreams.mcp.process import NOT_STARTED, ProcessCommand
from gateway.upstreams.mcp.respawn import Respawn
from gateway.upstreams.mcp.stdio import open_stdio, open_stdio_stateless
from schemas.errors import Unavailable
from schemas.source import Source

DISCOVER_S = 10.0  # a process that has not said by then what it is will not say it at all


class StdioWay:
    """To a server that is a command."""

    one_stream = True
    pool = None

    def __init__(
        self, source: Source, settings: SourceSettings, limits: Limits, client: Mapping[str, Any]
    ) -> None:
        self._source = source
        self._limits = limits
        self._client = client
        self._links: set[DuplexLink] = set()
        self._opening = 0
        self._respawn = Respawn(source.name, limits.stdio_restart_max_s)
        self._command = ProcessCommand(
            source.name,
            options_of(source).command,
            settings.env,
            limits.stdio_memory_bytes,
            limits.response_limit_bytes,
        )
        timeout_s = settings.timeout_s or limits.timeout_s
        self.timeout = Timeout(timeout_s, max(timeout_s, limits.mcp_call_max_s))

    async def probe(self) -> Spoken:
        """Raises UpstreamFailed. Each era is asked of a process of its own: one that was asked in
        the one may not answer in the other."""
        era = options_of(self._source).era
        stateless = await self._discovered() if era != "handshake" else None
        if era == "stateless":
            return Spoken(demanded(self._source, stateless), None, "stdio")
        handshake = await handshake_facts(self._session(Hello(self._client), Nobody()), stateless)
        if isinstance(handshake, Facts):
            return Spoken(stateless, handshake, "stdio")
        if stateless is not None:
            return Spoken(stateless, None, "stdio")
        raise UpstreamFailed(f"{self._source.name} does not answer as an MCP server: {handshake}")

    async def open(
        self,
        spoken: Spoken,  # noqa: ARG002
        capabilities: Mapping[str, Any],
        background: Hearer,
        holder: Holder | None = None,  # noqa: ARG002 - a command has its credentials already
    ) -> Link:
        """Raises RelayedFault and UpstreamFailed, and Unavailable when there are too many."""
        return await self._session(Hello(self._client, capabilities), background)

    async def stateless(self, spoken: Spoken) -> StatelessWay:
        return await self._process(spoken.stateless or UNKNOWN, self._respawn)

    async def close(self) -> None:
        for link in list(self._links):
            await link.close()

    async def _session(self, hello: Hello, background: Hearer) -> Link:
        timeout = Timeout(self.timeout.idle_s, self.timeout.idle_s)
        return await self._counted(
            open_stdio(
                self._command,
                self._respawn,
                hello,
                background,
                timeout,
                asks_limit=self._limits.mcp_asks,
            )
        )

    async def _process(self, facts: Facts, respawn: Respawn) -> StatelessWay:
        hello = Hello(self._client)
        opening = open_stdio_stateless(self._command, respawn, hello, Nobody(), facts)
        return await self._counted(opening)

    async def _counted(self, opening: Coroutine[Any, Any, DuplexLink]) -> DuplexLink:
        self._links = {link for link in self._links if link.alive}
        if len(self._links) + self._opening >= self._limits.stdio_processes:
            opening.close()
            limit = self._limits.stdio_processes
            raise Unavailable(f"{self._source.name} has {limit} processes already, all in use")
        self._opening += 1
        try:
            link = await opening
        finally:
            self._opening -= 1
        self._links.add(link)
        return link

    async def _discovered(self) -> Facts | None:
        self._respawn.check()
        # what ends when it is asked in the newer era may serve the older ones well
        trial = Respawn(self._source.name, 1.0)
        link = await self._process(UNKNOWN, trial)
        try:
            limit_s = min(DISCOVER_S, self.timeout.idle_s)
            timeout = Timeout(limit_s, limit_s)
            found = await stateless_facts(
                self._source.name, link.request(DISCOVER, {}, None, timeout), silent=False
            )
        finally:
            await link.close()
        if trial.why == NOT_STARTED:  # nor would it be for the other era
            raise UpstreamFailed(f"{self._source.name} {NOT_STARTED}")
        return found

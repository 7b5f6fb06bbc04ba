"""Transport of each MCP server, HTTP or a command: probes it and opens links."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from config.settings import UpstreamSettings as Limits
from config.sources import SourceSettings
from gateway.upstreams.auth.caller import CallerHolder
from gateway.upstreams.http.source_pools import SourcePool, SourcePools, UpstreamFailed
from gateway.upstreams.mcp.backoff import RestartBackoff
from gateway.upstreams.mcp.duplex_link import DuplexLink
from gateway.upstreams.mcp.handshake import (
    DISCOVER,
    UNKNOWN,
    SupportedEras,
    handshake_facts,
    options_of,
    required_era,
    stateless_facts,
)
from gateway.upstreams.mcp.http_sse import open_http_sse
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    Link,
    MessageHandler,
    NullHandler,
    ServerDescription,
    SubscribableLink,
    Timeout,
)
from gateway.upstreams.mcp.stdio import (
    NOT_STARTED,
    ProcessCommand,
    open_stdio,
    open_stdio_stateless,
)
from gateway.upstreams.mcp.streamable_http_links import HttpLink, StatelessLink
from schemas.errors import Unavailable
from schemas.source import Source

DISCOVER_S = 10.0  # a process that has not answered server/discover by then never will


class HttpTransport:
    """Transport of a server with an address."""

    def __init__(self, source: Source, connections: SourcePools, client: Mapping[str, Any]) -> None:
        """A transport of the source's address. `client`: the gateway's `clientInfo`."""
        self._source = source
        self._connections = connections
        self._client = client
        self.one_stream = False

    @property
    def timeout(self) -> Timeout:
        pool = self.pool
        return Timeout(pool.timeout_s, max(pool.timeout_s, pool.limits.mcp_call_max_s))

    async def probe(self) -> SupportedEras:
        """Probe the eras of the server. Raises UpstreamFailed."""
        self.pool.redirected_to = None
        era = options_of(self._source).era
        stateless = await self._discover() if era != "handshake" else None
        if era == "stateless":
            return SupportedEras(required_era(self._source, stateless), None)
        profile, timeout = ClientProfile(self._client), self._patience()
        opening = HttpLink.open(self.pool, profile, NullHandler(), timeout)
        handshake = await handshake_facts(opening, stateless)
        if isinstance(handshake, ServerDescription):
            return self._settle(SupportedEras(stateless, handshake))
        if stateless is not None:
            return self._settle(SupportedEras(stateless, None))
        opening_sse = open_http_sse(self.pool, profile, NullHandler(), timeout)
        older = await handshake_facts(opening_sse, None)
        if isinstance(older, ServerDescription):
            return self._settle(SupportedEras(None, older, "sse"))
        raise UpstreamFailed(
            f"{self._source.name} does not answer as an MCP server of any revision: {handshake}"
        )

    async def open(
        self,
        eras: SupportedEras,
        capabilities: Mapping[str, Any],
        background: MessageHandler,
        holder: CallerHolder | None = None,
    ) -> Link:
        """Open a session at a server of a handshake revision. Raises RelayedFault and
        UpstreamFailed."""
        profile, timeout = ClientProfile(self._client, capabilities), self._patience()
        if eras.transport == "sse":
            return await open_http_sse(self.pool, profile, background, timeout, holder=holder)
        return await HttpLink.open(
            self.pool, profile, background, timeout, listen=True, holder=holder
        )

    async def stateless(self, eras: SupportedEras) -> SubscribableLink:
        return StatelessLink(self.pool, ClientProfile(self._client), eras.stateless or UNKNOWN)

    async def close(self) -> None:
        """No-op: the connections belong to `SourcePools`."""

    @property
    def pool(self) -> SourcePool:
        return self._connections.of(self._source)

    def _patience(self) -> Timeout:
        return Timeout(self.pool.timeout_s, self.pool.timeout_s)

    def _settle(self, eras: SupportedEras) -> SupportedEras:
        self.one_stream = eras.transport == "sse"
        return eras

    async def _discover(self) -> ServerDescription | None:
        link = StatelessLink(self.pool, ClientProfile(self._client), UNKNOWN)
        try:
            return await stateless_facts(
                self._source.name, link.request(DISCOVER, {}, None, self._patience())
            )
        finally:
            await link.close()


class StdioTransport:
    """Transport of a server that is a command."""

    one_stream = True
    pool = None

    def __init__(
        self,
        source: Source,
        environment: Callable[[], Mapping[str, str]],
        *,
        settings: SourceSettings,
        limits: Limits,
        client: Mapping[str, Any],
    ) -> None:
        self._source = source
        self._limits = limits
        self._client = client
        self._links: set[DuplexLink] = set()
        self._opening = 0
        self._backoff = RestartBackoff(source.name, limits.stdio_restart_max_s)
        self._environment = environment
        timeout_s = settings.timeout_s or limits.timeout_s
        self.timeout = Timeout(timeout_s, max(timeout_s, limits.mcp_call_max_s))

    @property
    def _command(self) -> ProcessCommand:
        return ProcessCommand(
            self._source.name,
            options_of(self._source).command,
            env=self._environment(),
            memory_bytes=self._limits.stdio_memory_bytes,
            line_limit_bytes=self._limits.response_limit_bytes,
        )

    async def probe(self) -> SupportedEras:
        """Probe each era in a process of its own: one probed in one era may not answer in the
        other. Raises UpstreamFailed."""
        era = options_of(self._source).era
        stateless = await self._discover() if era != "handshake" else None
        if era == "stateless":
            return SupportedEras(required_era(self._source, stateless), None, "stdio")
        handshake = await handshake_facts(
            self._session(ClientProfile(self._client), NullHandler()), stateless
        )
        if isinstance(handshake, ServerDescription):
            return SupportedEras(stateless, handshake, "stdio")
        if stateless is not None:
            return SupportedEras(stateless, None, "stdio")
        raise UpstreamFailed(f"{self._source.name} does not answer as an MCP server: {handshake}")

    async def open(
        self,
        eras: SupportedEras,  # noqa: ARG002
        capabilities: Mapping[str, Any],
        background: MessageHandler,
        holder: CallerHolder | None = None,  # noqa: ARG002 - a command has its credentials already
    ) -> Link:
        """Start a process for requests of 2026-07-28. Raises RelayedFault and UpstreamFailed, and
        Unavailable at the limit of processes."""
        return await self._session(ClientProfile(self._client, capabilities), background)

    async def stateless(self, eras: SupportedEras) -> SubscribableLink:
        return await self._process(eras.stateless or UNKNOWN, self._backoff)

    async def close(self) -> None:
        for link in list(self._links):
            await link.close()

    async def _session(self, profile: ClientProfile, background: MessageHandler) -> Link:
        timeout = Timeout(self.timeout.idle_s, self.timeout.idle_s)
        return await self._count(
            open_stdio(
                self._command,
                self._backoff,
                profile,
                background=background,
                timeout=timeout,
                requests_limit=self._limits.mcp_client_requests,
            )
        )

    async def _process(self, facts: ServerDescription, backoff: RestartBackoff) -> SubscribableLink:
        profile = ClientProfile(self._client)
        opening = open_stdio_stateless(
            self._command, backoff, profile, background=NullHandler(), facts=facts
        )
        return await self._count(opening)

    async def _count(self, opening: Coroutine[Any, Any, DuplexLink]) -> DuplexLink:
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

    async def _discover(self) -> ServerDescription | None:
        self._backoff.check()
        # a process that exits on a request of the newer era may serve the older ones well
        trial = RestartBackoff(self._source.name, 1.0)
        link = await self._process(UNKNOWN, trial)
        try:
            limit_s = min(DISCOVER_S, self.timeout.idle_s)
            timeout = Timeout(limit_s, limit_s)
            facts = await stateless_facts(
                self._source.name, link.request(DISCOVER, {}, None, timeout), silent=False
            )
        finally:
            await link.close()
        if trial.why == NOT_STARTED:  # the other era would fail likewise
            raise UpstreamFailed(f"{self._source.name} {NOT_STARTED}")
        return facts


class Transports:
    """Factory of the transports of sources, by the current settings."""

    def __init__(
        self,
        connections: SourcePools,
        limits: Limits,
        sources: Mapping[str, SourceSettings],
        client: Mapping[str, Any],
    ) -> None:
        """A factory with these settings. `client`: the gateway's `clientInfo`."""
        self._connections = connections
        self._client = client
        self.configure(limits, sources)

    def configure(self, limits: Limits, sources: Mapping[str, SourceSettings]) -> None:
        """Replace the settings, for transports made from now on."""
        self._limits = limits
        self._sources = sources

    def __call__(self, source: Source) -> "HttpTransport | StdioTransport | DisabledTransport":
        if not options_of(source).command:
            return HttpTransport(source, self._connections, self._client)
        if not self._limits.stdio:
            return DisabledTransport(
                f"{source.name} is a command, and commands are off (upstream.stdio)"
            )
        settings = self._sources.get(source.place, SourceSettings())

        def environment() -> Mapping[str, str]:
            stored = self._connections.environment_of(source)
            return {**dict(options_of(source).env), **stored, **settings.env}

        return StdioTransport(
            source, environment, settings=settings, limits=self._limits, client=self._client
        )


class DisabledTransport:
    """Transport of a server that must not be called: all operations fail."""

    one_stream = False
    timeout = Timeout(1.0, 1.0)
    pool = None

    def __init__(self, why: str) -> None:
        self._why = why

    async def probe(self) -> SupportedEras:
        raise UpstreamFailed(self._why)

    async def open(
        self,
        eras: SupportedEras,  # noqa: ARG002
        capabilities: Mapping[str, Any],  # noqa: ARG002
        background: MessageHandler,  # noqa: ARG002
        holder: CallerHolder | None = None,  # noqa: ARG002
    ) -> Link:
        raise UpstreamFailed(self._why)

    async def stateless(self, eras: SupportedEras) -> SubscribableLink:  # noqa: ARG002
        raise UpstreamFailed(self._why)

    async def close(self) -> None:
        pass

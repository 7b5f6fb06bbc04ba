"""One MCP server behind the gateway, and its state at run time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from config.settings import UpstreamSettings as Limits
from gateway.context import Context
from gateway.upstreams.auth.caller import Caller, Holder
from gateway.upstreams.auth.delegation import NONE, Headers, on_behalf, proof, refuted
from gateway.upstreams.http.connections import SourcePool as Connected
from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.mcp.endpoint import HttpRefused
from gateway.upstreams.mcp.link import Hearer, Link, StatelessWay, Timeout
from gateway.upstreams.mcp.pool import SessionPool, Terms
from gateway.upstreams.mcp.probe import Spoken
from gateway.upstreams.mcp.watcher import Audience, Watcher
from schemas.errors import MethodNotFound
from schemas.mcp.revisions import V2025_11_25, Revision
from schemas.source import Source

LISTS = ("tools", "prompts", "resources")
# Negative cache: a failed probe that took this long is remembered as long. Quicker failures, such
# as a refused connection, are shared by the calls that waited for the probe: the next probes again.
FAILED_FOR_S = 1.0


Members = dict[str, Raw]  # of a result


class Way(Protocol):
    """Transport of one source."""

    one_stream: bool  # messages outside answers come on a stream that all calls of a session share

    @property
    def timeout(self) -> Timeout: ...

    async def probe(self) -> Spoken: ...

    @property
    def pool(self) -> Connected | None:
        """The connections to a server that has an address."""

    async def open(
        self,
        spoken: Spoken,
        capabilities: Mapping[str, Any],
        background: Hearer,
        holder: Holder | None = None,
    ) -> Link:
        """A session at a server of a handshake revision; `holder` is its owner."""

    async def stateless(self, spoken: Spoken) -> StatelessWay: ...

    async def close(self) -> None: ...


class McpServer:
    """One server. A Hearer of messages that belong to no call."""

    def __init__(self, source: Source, way: Way, audience: Audience, limits: Limits) -> None:
        self.source = source
        self.levels: WeakKeyDictionary[Link, int] = WeakKeyDictionary()
        sessions = limits.mcp_sessions
        if source.options.command:
            # one for each session, and one for requests of 2026-07-28
            sessions = min(sessions, max(1, limits.stdio_processes - 1))
        self.pool = SessionPool(self._open, self, sessions, limits.mcp_idle_s, limits.timeout_s)
        self.watcher = Watcher(self, audience, limits.mcp_refresh_s)
        self.news = self.watcher.news
        self.requests = 0  # passed on
        self.calls = 0  # running
        self.failures = 0  # requests without a usable answer
        self._way = way
        self._limits = limits
        self._probing = asyncio.Lock()
        self._spoken: Spoken | None = None
        self._until = 0.0
        self._failure: UpstreamFailed | None = None
        self._failed_at = 0.0
        self._stateless: StatelessWay | None = None

    @property
    def timeout(self) -> Timeout:
        return self._way.timeout

    @property
    def busy(self) -> bool:
        """Whether calls run, including those that wait for their clients."""
        return self.calls > 0 or self.pool.busy

    @property
    def one_stream(self) -> bool:
        return self._way.one_stream

    @property
    def revision(self) -> Revision:
        """Of its sessions."""
        facts = self._spoken.handshake if self._spoken else None
        return facts.revision if facts else V2025_11_25

    @property
    def tells(self) -> bool:
        """Whether the server announces all changes of its lists, and can be heard."""
        facts = self._spoken and (self._spoken.stateless or self._spoken.handshake)
        lists = [facts.capabilities.get(name) for name in LISTS] if facts else []
        there = [said for said in lists if isinstance(said, dict)]
        told = bool(there) and all(said.get("listChanged") for said in there)
        return told and self.watcher.hears

    async def spoken(self) -> Spoken:
        """The eras that it speaks, cached for `mcp_probe_s`. Raises UpstreamFailed if unknown."""
        asked = time.monotonic()
        if self._spoken is not None and asked < self._until:
            return self._spoken
        async with self._probing:
            fresh = time.monotonic() < self._until
            if self._failure is not None and (fresh or self._failed_at > asked):
                raise UpstreamFailed(str(self._failure))
            if self._spoken is not None and fresh:
                return self._spoken
            return await self._probe()

    async def _probe(self) -> Spoken:
        began = time.monotonic()
        try:
            spoken = await self._way.probe()
        except UpstreamFailed as error:
            self._spoken, self._failure = None, error
            self._failed_at = time.monotonic()
            slow = self._failed_at - began >= FAILED_FOR_S
            self._until = self._failed_at + FAILED_FOR_S if slow else 0.0
            raise
        self._spoken, self._failure = spoken, None
        self._until = time.monotonic() + self._limits.mcp_probe_s
        return spoken

    def forget(self) -> None:
        """Invalidate the cached probe: the server did not behave as probed."""
        self._until = 0.0

    async def stateless(self) -> StatelessWay:
        """Raises UpstreamFailed."""
        if self._stateless is None or not self._stateless.alive:
            await self._new_stateless(await self.spoken())
        if self._stateless is None:
            raise UpstreamFailed(f"{self.source.name} does not speak 2026-07-28 any more")
        return self._stateless

    async def _new_stateless(self, spoken: Spoken) -> None:
        before = self._stateless
        if before is not None and before.alive and spoken.stateless:
            return
        self._stateless = await self._way.stateless(spoken) if spoken.stateless else None
        if before is not None:
            await before.close()

    def caller(self, context: Context) -> Caller | None:
        """The caller to authenticate as, None if the server gets none. Raises UpstreamFailed."""
        pool = self._way.pool
        return None if pool is None else on_behalf(pool, context)

    async def proved(
        self, caller: Caller | None, send: Callable[[Headers], Awaitable[Members]]
    ) -> Members:
        """What `send` returns, given the caller's credentials as headers; retried once with new
        ones on a 401. Raises UpstreamFailed and what `send` raises."""
        pool = self._way.pool
        if caller is None or pool is None:
            return await send(NONE)
        headers = await proof(pool, caller)
        try:
            return await send(headers)
        except HttpRefused as refused:
            if refused.http_status != 401 or not refuted(pool, caller, headers):
                raise
        return await send(await proof(pool, caller))

    async def _open(self, terms: Terms, background: Hearer, holder: Holder) -> Link:
        capabilities = msgspec.json.decode(terms.capabilities)
        return await self._way.open(await self.spoken(), capabilities, background, holder)

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        self.news(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ARG002
        raise MethodNotFound(f"Nobody is here to be asked: {method[:100]}")

    async def close(self) -> None:
        await self.pool.close()
        if self._stateless is not None:
            await self._stateless.close()
        await self._way.close()

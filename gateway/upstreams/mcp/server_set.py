"""The MCP servers behind the gateway: one `McpServer` each, and their gauges."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from config.settings import UpstreamSettings as Limits
from gateway.upstreams.mcp.server import ChangeSubscriber, McpServer, Transport, Watcher
from schemas.source import Source

log = logging.getLogger("toolgate.upstream")

REAP_EVERY_S = 30.0
LOOK_EVERY_S = 0.5


class Servers:
    def __init__(
        self, transport: Callable[[Source], Transport], audience: ChangeSubscriber, limits: Limits
    ) -> None:
        """The servers of the gateway; `transport` returns the transport of a source."""
        self._transport = transport
        self._audience = audience
        self._limits = limits
        self._servers: dict[str, McpServer] = {}
        self._following: dict[McpServer, asyncio.Task[None]] = {}
        self._removed: dict[str, Watcher] = {}  # of removed sources, with resources still watched
        self._closing: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()  # shutdown: running calls are not waited for

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[McpServer]:
        return iter(list(self._servers.values()))

    def of(self, source: Source) -> McpServer:
        """The server of `source`, created on first use."""
        present = self._servers.get(source.place)
        if present is not None:
            if present.source is source:
                return present
            if _target(present.source) == _target(source):
                present.source = source
                return present
            return self._replace(present, source)
        server = self._servers[source.place] = self._server(source)
        before = self._removed.pop(source.place, None)
        if before is not None:
            server.watcher.take_over(before)
        return server

    def get(self, source: Source) -> McpServer | None:
        """The server in the place of `source`, which may have been edited since; None: it is
        gone."""
        return self._servers.get(source.place)

    async def unwatch(self, source: Source, uri: str) -> None:
        """End a watch at the server in the place of `source`, which may have been removed since."""
        server = self.get(source)
        watcher = server.watcher if server is not None else self._removed.get(source.place)
        if watcher is None:
            return
        await watcher.unwatch(uri)
        if not watcher.is_used:
            self._removed.pop(source.place, None)

    def follow(self, sources: Iterable[Source]) -> None:
        """Watch the servers among `sources`, and no others. Servers that are only being probed for
        an import keep their state."""
        servers = {self.of(source) for source in sources if source.facts.server}
        for server in self._following.keys() - servers:
            self._drop(server)
            if server.watcher.is_used:
                self._removed[server.source.place] = server.watcher
        for server in servers - self._following.keys():
            self._follow(server)

    def restart(self) -> None:
        """Replace all servers: the configuration of their transports may have changed."""
        for server in list(self._servers.values()):
            self._replace(server, server.source)

    def failures(self) -> dict[str, str]:
        """Failure reasons of the servers that do not answer, by source."""
        watchers = ((server.source.name, server.watcher.failure) for server in self._following)
        return {name: failure for name, failure in watchers if failure is not None}

    async def run(self) -> None:
        """Close idle sessions periodically, until cancelled."""
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            for server in list(self._servers.values()):
                await server.pool.reap()

    def close_owner(self, owner: str) -> None:
        """Close the upstream sessions of the client session `owner`, which has ended."""
        for server in self._servers.values():
            if server.pool.owned_by(owner):
                self._later(server.pool.drop_owner(owner))

    async def close(self) -> None:
        self._hurry.set()
        for server in list(self._servers.values()):
            self._drop(server)
        if self._closing:
            await asyncio.wait(self._closing)

    def _server(self, source: Source) -> McpServer:
        return McpServer(source, self._transport(source), self._audience, self._limits)

    def _replace(self, before: McpServer, source: Source) -> McpServer:
        """A new server in place of `before`, with the same watched resources."""
        followed = before in self._following
        self._drop(before)
        server = self._servers[source.place] = self._server(source)
        server.watcher.take_over(before.watcher)
        if followed:
            self._follow(server)
        return server

    def _follow(self, server: McpServer) -> None:
        self._following[server] = asyncio.create_task(server.watcher.run())

    def _drop(self, server: McpServer) -> None:
        """Remove the server; it is closed once its running calls have ended."""
        task = self._following.pop(server, None)
        if task is not None:
            task.cancel()
        del self._servers[server.source.place]
        self._later(self._close(server, task))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        closing = asyncio.create_task(work)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, server: McpServer, following: "asyncio.Task[None] | None") -> None:
        if following is not None:
            await asyncio.wait({following})
            if not following.cancelled() and (error := following.exception()):
                name = server.source.name
                log.error("mcp_watcher_crashed", exc_info=error, extra={"source": name})
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.mcp_call_max_s):
                while server.busy and not self._hurry.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await self._hurry.wait()
        await server.close()


def _target(source: Source) -> tuple[object, ...]:
    return source.location, source.base_url, source.base_url_trusted, source.options


class ServerGauges(Collector):
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def collect(self) -> Iterator[Metric]:
        labels = ("source",)
        up = GaugeMetricFamily(
            "toolgate_mcp_server_up", "1 while the MCP server answers.", labels=labels
        )
        sessions = GaugeMetricFamily(
            "toolgate_mcp_sessions", "Open sessions at the MCP server.", labels=labels
        )
        requests = CounterMetricFamily(
            "toolgate_mcp_requests", "Requests passed on to the MCP server.", labels=labels
        )
        failures = CounterMetricFamily(
            "toolgate_mcp_failures",
            "Requests without a usable answer of the MCP server.",
            labels=labels,
        )
        times = HistogramMetricFamily(
            "toolgate_mcp_request_seconds",
            "Time until the MCP server has answered.",
            labels=("source", "method"),
        )
        for server in self._servers:
            name = (server.source.name,)
            up.add_metric(name, server.watcher.failure is None)
            sessions.add_metric(name, len(server.pool))
            requests.add_metric(name, server.requests)
            failures.add_metric(name, server.failures)
            for method, histogram in list(server.times.items()):
                times.add_metric((*name, method), histogram.cumulative(), histogram.sum)
        yield from (up, sessions, requests, failures, times)

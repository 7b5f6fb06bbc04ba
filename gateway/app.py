"""The composition root: the only place that names concrete classes and sees all settings."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from config.settings import Settings
from gateway.abc import Upstream
from gateway.admin.health import Health, Probes
from gateway.context import Principal
from gateway.guards.access_log import AccessLog
from gateway.guards.front_door import FrontDoor
from gateway.guards.origin import OriginGuard
from gateway.guards.refusal import crashed, not_found
from gateway.methods.discovery import Discovery
from gateway.methods.lifecycle import SERVER, Lifecycle
from gateway.methods.subscriptions import Subscriptions
from gateway.methods.tools import Tools
from gateway.middleware.telemetry import Metrics
from gateway.protocol.dispatcher import Dispatcher, Method
from gateway.protocol.running import Batches, BatchLimits
from gateway.state.hub import Hub
from gateway.state.memory import Sessions
from gateway.transports.http_sse import HttpSse
from gateway.transports.jsonrpc_http import JsonRpcHTTP
from gateway.transports.streamable_http import StreamableHTTP
from gateway.upstreams.client import Client
from gateway.upstreams.openapi import OpenAPIUpstream
from registry.catalog import Catalogs
from registry.feed import Feed
from schemas.binding import OpenAPIBinding
from schemas.mcp.revisions import Revision

log = logging.getLogger("toolgate.app")

REAP_EVERY_S = 30


class Gateway:
    """The parts of one gateway process, wired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.catalogs = Catalogs()
        self.hub = Hub(settings.mcp.stream_limit)
        self.sessions = Sessions(
            self.hub,
            settings.mcp.session_idle_s,
            settings.mcp.session_limit,
            settings.mcp.session_calls,
        )
        # Nobody has to say who they are yet, which is why only loopback is served.
        self.principal = Principal("anonymous", settings.tenant.host_id)
        self.client = Client(settings.upstream, settings.sources)
        self.feed = Feed(
            settings.database,
            settings.imports,
            settings.sources,
            settings.tenant.host_id,
            self.catalogs,
        )
        self.health = Health(self.feed.state)
        self.dispatcher = self._dispatcher()
        self.catalogs.on_change(self.hub.tools_changed)
        self._gauges()

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        # Not asyncio's: its tasks are cancelled once, and under Python 3.11 the pool of psycopg may
        # miss that (`asyncio.wait_for` drops it when a connection arrives at the same moment).
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.feed.run)
            tasks.start_soon(self._reap)
            try:
                yield
            finally:
                self.drain()
                tasks.cancel_scope.cancel()
        self.sessions.close_all()
        await self.client.close()

    def drain(self) -> None:
        """Begin to stop: streams end, new work is refused, what runs may finish."""
        self.health.draining = True
        self.hub.close()

    async def reconfigure(self, settings: Settings) -> None:
        """Take what can change without a restart: how sources are called, and the sources."""
        self.settings = replace(
            self.settings,
            upstream=settings.upstream,
            sources=settings.sources,
            logging=settings.logging,
        )
        await self.client.configure(settings.upstream, settings.sources)
        await self.feed.reconfigure(settings.sources)

    def app(self) -> Starlette:
        """The ASGI application."""
        settings = self.settings
        probes = Probes(self.health, self.metrics.registry)
        return Starlette(
            routes=[
                Route("/health", probes.alive),
                Route("/ready", probes.ready),
                Route("/metrics", probes.metrics),
                Route("/", self._index),
            ],
            middleware=[
                *([Middleware(AccessLog)] if settings.logging.access else []),
                Middleware(
                    OriginGuard,
                    hosts=settings.server.allowed_hosts,
                    origins=settings.server.allowed_origins,
                ),
                Middleware(FrontDoor, fronts=self._fronts(), ready=lambda: self.health.ready),
            ],
            exception_handlers={404: not_found, 500: crashed},
            lifespan=self.lifespan,
        )

    def _fronts(self) -> dict[str, ASGIApp]:
        mcp, rpc, server = self.settings.mcp, self.settings.rpc, self.settings.server
        limits = BatchLimits(
            rpc.batch_limit,
            rpc.batch_concurrency,
            rpc.batch_timeout_s,
            rpc.batch_answer_limit_bytes,
            self.settings.upstream.connections,
        )
        batches = Batches(limits)
        body = server.body_limit_bytes
        parts = (self.dispatcher, self.sessions, self.hub, self.principal)
        message_path = f"{mcp.path}/message"
        http_sse = HttpSse(*parts, message_path, body, mcp.keep_alive_s, server.drain_s)
        return {
            mcp.path: StreamableHTTP(*parts, batches, body, mcp.keep_alive_s),
            rpc.path: JsonRpcHTTP(self.dispatcher, self.principal, batches, body),
            f"{mcp.path}/sse": http_sse,
            message_path: http_sse,
        }

    def _dispatcher(self) -> Dispatcher:
        mcp = self.settings.mcp
        upstreams: dict[type, Upstream] = {OpenAPIBinding: OpenAPIUpstream(self.client)}
        tools = Tools(self.catalogs, upstreams, mcp.page_size, mcp.list_ttl_ms)
        lifecycle = Lifecycle(mcp.instructions, mcp.list_ttl_ms)
        subscriptions = Subscriptions(self.hub, mcp.keep_alive_s)
        methods = {
            "initialize": Method(lifecycle.initialize, lambda r: r.handshake),
            "notifications/initialized": Method(lifecycle.initialized, lambda r: r.handshake),
            "notifications/cancelled": Method(subscriptions.cancelled, lambda r: r.handshake),
            "ping": Method(lifecycle.ping, lambda r: r.handshake),
            "server/discover": Method(lifecycle.discover, lambda r: r.mcp and not r.handshake),
            "subscriptions/listen": Method(
                subscriptions.listen, lambda r: r.mcp and not r.handshake
            ),
            "tools/list": Method(tools.list, _always),
            "tools/call": Method(tools.call, _always),
            "rpc.discover": Method(Discovery(self.catalogs).discover, lambda r: not r.mcp),
        }
        return Dispatcher(methods, tools.call_by_name, [self.metrics.middleware])

    def _gauges(self) -> None:
        def tools() -> int:
            return len(self.catalogs.of(self.principal.tenant).tools)

        gauges: list[tuple[str, str, Callable[[], float]]] = [
            ("toolgate_sessions", "Open sessions.", lambda: len(self.sessions)),
            ("toolgate_streams", "Open server-to-client streams.", lambda: self.hub.streams),
            ("toolgate_tools", "Tools in the catalog of the default tenant.", tools),
            ("toolgate_ready", "1 when requests are served.", lambda: self.health.ready),
            ("toolgate_database_up", "1 while the database answers.",
             lambda: self.feed.state.database == "ok"),
        ]  # fmt: skip
        for name, text, read in gauges:
            self.metrics.gauge(name, text, read)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            reaped = self.sessions.reap()
            if reaped:
                log.info("sessions_reaped", extra={"count": reaped})

    async def _index(self, _request: Request) -> Response:
        mcp, rpc = self.settings.mcp.path, self.settings.rpc.path
        return JSONResponse(
            {
                "name": SERVER.name,
                "version": SERVER.version,
                "endpoints": {"mcp": mcp, "mcp-2024-11-05": f"{mcp}/sse", "jsonrpc": rpc},
            }
        )


def _always(_revision: Revision) -> bool:
    return True


def build_app(settings: Settings) -> Starlette:
    """The gateway as an ASGI application, for a server of your own."""
    return Gateway(settings).app()

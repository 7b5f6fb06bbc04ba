"""The composition root: the only place that names concrete classes and sees all settings."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace as with_fields

import anyio
import psycopg
from msgspec.structs import replace
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from config.settings import Settings, SourceSettings
from gateway import hybrid
from gateway.abc import Upstream
from gateway.admin.health import Health, Probes
from gateway.context import Principal
from gateway.guards.access_log import AccessLog
from gateway.guards.authentication import Authenticator
from gateway.guards.front_door import FrontDoor
from gateway.guards.origin import OriginGuard
from gateway.guards.refusal import crashed, not_found
from gateway.methods.discovery import Discovery
from gateway.methods.lifecycle import SERVER, Lifecycle
from gateway.methods.services import Services
from gateway.methods.subscriptions import Subscriptions
from gateway.methods.tools import Tools
from gateway.middleware.legacy import LegacyUse
from gateway.middleware.telemetry import Metrics
from gateway.protocol.dialects import Rules
from gateway.protocol.dispatcher import Dispatcher, Method
from gateway.protocol.running import Batches, BatchLimits
from gateway.state.hub import Hub
from gateway.state.idempotency import Idempotency
from gateway.state.memory import Sessions
from gateway.transports.http_sse import HttpSse
from gateway.transports.jsonrpc_http import Front, JsonRpcHTTP
from gateway.transports.streamable_http import StreamableHTTP
from gateway.upstreams.client import Client
from gateway.upstreams.hybrid import HybridUpstream
from gateway.upstreams.openapi import OpenAPIUpstream
from gateway.upstreams.python import Limits, PythonUpstream
from registry.catalog import Catalogs
from registry.feed import Feed
from schemas.binding import HybridBinding, OpenAPIBinding, PythonBinding
from schemas.errors import ToolgateError
from schemas.hybrid import Side
from schemas.mcp.revisions import JSON_RPC, PORTAL

log = logging.getLogger("toolgate.app")

REAP_EVERY_S = 30
_NONE: Mapping[str, hybrid.Service] = {}


class Gateway:
    """The parts of one gateway process, wired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drained_by = 0.0  # monotonic time
        self.metrics = Metrics()
        self.catalogs = Catalogs()
        self.hub = Hub(settings.mcp.stream_limit)
        self.sessions = Sessions(
            self.hub,
            settings.mcp.session_idle_s,
            settings.mcp.session_limit,
            settings.mcp.session_calls,
        )
        self.authenticator = Authenticator(settings.auth, settings.tenant.host_id)
        self.principal = Principal("anonymous", settings.tenant.host_id)
        self.services = load_services(settings.sources)
        self.client = Client(settings.upstream, settings.sources)
        self.feed = Feed(
            settings.database,
            settings.imports,
            settings.sources,
            settings.tenant.host_id,
            self.catalogs,
            {name: service.actions for name, service in self.services.items()},
        )
        self.idempotency = Idempotency(lambda: self.feed.pool, settings.portal.idempotency_ttl_s)
        limits = Limits(
            self._timeout_of, settings.upstream.python_threads, settings.upstream.python_calls
        )
        self.python = PythonUpstream(self.services, self.idempotency.once, limits)
        self.legacy_use = LegacyUse()
        self.health = Health(self.feed.state)
        self.dispatcher, self.portal_dispatcher = self._dispatchers()
        self.catalogs.on_change(self.hub.tools_changed)
        self.metrics.registry.register(self.legacy_use)
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
                await self.python.finishing.settle(self._drained_by)
                tasks.cancel_scope.cancel()
        self.sessions.close_all()
        await self.client.close()

    def drain(self) -> None:
        """Begin to stop: streams end, new work is refused, what runs may finish."""
        if not self.health.draining:
            self._drained_by = time.monotonic() + self.settings.server.drain_s
        self.health.draining = True
        self.hub.close()

    async def reconfigure(self, settings: Settings) -> None:
        """Take what can change without a restart: how sources are called, and the sources.

        Raises ToolgateError, before anything has changed, for a Python service that cannot be
        loaded; one that is loaded already stays as it is.
        """
        services = load_services(settings.sources, self.services)
        self.settings = replace(
            self.settings,
            upstream=settings.upstream,
            sources=settings.sources,
            logging=settings.logging,
        )
        self.services.clear()
        self.services.update(services)
        await self.client.configure(settings.upstream, settings.sources)
        described = {name: service.actions for name, service in services.items()}
        await self.feed.reconfigure(settings.sources, described)

    def _timeout_of(self, source: str) -> float:
        adjusted = self.settings.sources.get(source)
        return (adjusted and adjusted.timeout_s) or self.settings.upstream.timeout_s

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
        parts = (self.dispatcher, self.sessions, self.hub, self.authenticator.identify)
        message_path = f"{mcp.path}/message"
        http_sse = HttpSse(*parts, message_path, body, mcp.keep_alive_s, server.drain_s)
        front = Front(self.dispatcher, self.authenticator.identify, batches, body)
        portal = with_fields(front, dispatcher=self.portal_dispatcher)
        return {
            mcp.path: StreamableHTTP(*parts, batches, body, mcp.keep_alive_s),
            f"{mcp.path}/sse": http_sse,
            message_path: http_sse,
            rpc.path: JsonRpcHTTP(front, Rules(JSON_RPC, spec=True, legacy=rpc.legacy)),
            **{path: JsonRpcHTTP(portal, rules) for path, rules in self._portal().items()},
        }

    def _portal(self) -> dict[str, Rules]:
        portal = self.settings.portal
        if not portal.enabled:
            return {}

        def rules(side: Side, legacy: bool) -> Rules:
            return Rules(
                PORTAL,
                spec=portal.compat == "spec",
                legacy=legacy,
                wrapped=portal.pre_handler_errors == "wrapped",
                side=side,
                auth_first=portal.auth_first,
                void_body=b"{}" if portal.void_body == "object" else b"",
            )

        return {
            portal.query_path: rules("query", portal.query_legacy),
            portal.command_path: rules("command", portal.command_legacy),
        }

    def _dispatchers(self) -> tuple[Dispatcher, Dispatcher]:
        """Of MCP and `/rpc`, and of the portal paths, whose tools/list is another one."""
        mcp, portal = self.settings.mcp, self.settings.portal
        verify_scope = self.settings.auth.verify_scope
        upstreams: dict[type, Upstream] = {
            OpenAPIBinding: OpenAPIUpstream(self.client),
            HybridBinding: HybridUpstream(self.client),
            PythonBinding: self.python,
        }
        tools = Tools(self.catalogs, upstreams, mcp.page_size, mcp.list_ttl_ms, verify_scope)
        services = Services(self.catalogs, upstreams, verify_scope, tools.call_by_name)
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
            "tools/list": Method(tools.list, lambda r: r.mcp or r.tools_are_methods),
            "tools/call": Method(tools.call, lambda r: r.mcp or r.tools_are_methods),
            "rpc.discover": Method(
                Discovery(self.catalogs).discover, lambda r: r.tools_are_methods
            ),
        }
        on_portal = {
            "tools/list": Method(services.list, lambda r: r is PORTAL, portal.anonymous_list),
            "tools/call": Method(services.call, lambda r: r is PORTAL, open_to_all=True),
        }
        middleware = [self.metrics.middleware, self.legacy_use.middleware]
        return (
            Dispatcher(methods, services.call_by_id, middleware),
            Dispatcher(on_portal, services.call_by_id, middleware),
        )

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
            with suppress(psycopg.OperationalError, PoolTimeout):
                await self.idempotency.purge()

    async def _index(self, _request: Request) -> Response:
        mcp, rpc, portal = self.settings.mcp.path, self.settings.rpc.path, self.settings.portal
        paths = {"mcp": mcp, "mcp-2024-11-05": f"{mcp}/sse", "jsonrpc": rpc}
        if portal.enabled:
            paths |= {"portal-query": portal.query_path, "portal-command": portal.command_path}
        return JSONResponse({"name": SERVER.name, "version": SERVER.version, "endpoints": paths})


def load_services(
    sources: Mapping[str, SourceSettings], loaded: Mapping[str, hybrid.Service] = _NONE
) -> dict[str, hybrid.Service]:
    """The services written in Python. Raises ToolgateError that names every source that fails."""
    services: dict[str, hybrid.Service] = {}
    broken: list[str] = []
    for name, source in sources.items():
        if source.python is not None:
            known = loaded.get(name)
            try:
                if known is None or known.target != source.python:
                    known = hybrid.load(source.python)
                services[name] = known
            except ToolgateError as error:
                broken.append(f"sources.{name}.python: {error}")
    if broken:
        raise ToolgateError("\n  ".join(broken))
    return services


def build_app(settings: Settings) -> Starlette:
    """The gateway as an ASGI application, for a server of your own."""
    return Gateway(settings).app()

"""One gateway process: its parts, wired, from the first request to the last."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import msgspec
import psycopg
from msgspec.structs import replace
from psycopg_pool import PoolTimeout
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from config.settings import Settings
from gateway.abc import Upstream
from gateway.admin.health import Health, Probes
from gateway.app.access import Access
from gateway.app.admin import Below, Parts, admin_api
from gateway.app.embedding import Embeddings
from gateway.app.federation import Federation
from gateway.app.files import reading
from gateway.app.fronts import fronts
from gateway.app.list_gauges import ListGauges
from gateway.app.methods import dispatchers
from gateway.app.services import load_services
from gateway.app.shared import Shared
from gateway.app.skills import SkillParts, file_reader
from gateway.app.stored_secrets import StoredSecrets
from gateway.context import Principal
from gateway.functions import load_functions
from gateway.guards.access_log import AccessLog
from gateway.guards.front_door import FrontDoor
from gateway.guards.origin import OriginGuard
from gateway.guards.refusal import crashed, not_found
from gateway.methods.answering import Answering, Mismatches
from gateway.methods.lists import Lists
from gateway.methods.server import SERVER
from gateway.methods.usage import Usage
from gateway.middleware.legacy import LegacyUse
from gateway.middleware.telemetry import Metrics
from gateway.protocol.dispatcher import Dispatcher
from gateway.state.idempotency import Idempotency
from gateway.state.news import KINDS
from gateway.upstreams.asking import Asking
from gateway.upstreams.caller import OwnAudiences
from gateway.upstreams.client import Client
from gateway.upstreams.downloads import Downloads
from gateway.upstreams.function import FunctionUpstream
from gateway.upstreams.graphql import GraphQLUpstream
from gateway.upstreams.hybrid import HybridUpstream
from gateway.upstreams.mcp.gauges import ServerGauges
from gateway.upstreams.mcp.ways import Ways
from gateway.upstreams.openapi import OpenAPIUpstream
from gateway.upstreams.python import Limits, PythonUpstream
from gateway.upstreams.script import ScriptUpstream
from gateway.upstreams.tls import contexts
from gateway.upstreams.uploads import Uploads
from registry.catalog import Catalog
from registry.catalogs import Catalogs
from registry.feed import Feed
from registry.profiles import Profiles
from registry.search import Search
from registry.search.feedback import Feedback
from registry.search.indexes import ensure_indexes
from registry.shaping import Shaping
from schemas.binding import (
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
    ScriptBinding,
)
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.app")

REAP_EVERY_S = 30


class Gateway:
    """The parts of one gateway process, wired."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._drained_by = 0.0  # monotonic time
        host_id, upstream = settings.tenant.host_id, settings.upstream
        self.principal = Principal("anonymous", host_id)
        self.metrics = Metrics()
        self.legacy_use = LegacyUse()
        shaping = Shaping(
            settings.budgets, Profiles(settings.profiles), settings.answers.fields == "shown"
        )
        self.catalogs = Catalogs(
            settings.toolsets, shaping, lists_skills=settings.skills.listed, own=host_id
        )
        self.shared = Shared(
            settings.mcp,
            settings.state,
            settings.answers,
            self.catalogs,
            lambda: self.feed.database,
            settings.limits,
            settings.auth.mode != "none",
        )
        self.services = load_services(settings.sources)
        self.functions = load_functions(settings.functions)
        own = OwnAudiences.of(settings.auth, settings.server.public_url)
        self.client = Client(upstream, settings.sources, own)
        self.secrets = StoredSecrets(settings.secrets, host_id, self.client.connections.store)
        self.ways = Ways(
            self.client.connections, upstream, settings.sources, msgspec.to_builtins(SERVER)
        )
        self.federation = Federation(
            host_id,
            settings.mcp,
            upstream,
            self.ways,
            self.shared,
            self.catalogs,
            tuple(settings.toolsets),
        )
        described = {name: service.actions for name, service in self.services.items()}
        self.asking = Asking(self.federation.lister, self.client.connections, settings.imports)
        self.feed = Feed(
            settings.database,
            settings.imports,
            settings.sources,
            host_id,
            self.catalogs,
            described,
            self.asking,
        )
        self.federation.refresh = self.feed.refresh
        self.access = Access(
            settings,
            lambda: self.feed.database,
            self.feed.settled.wait,
            self.shared.hub.sweep,
            self.shared.stores.counter,
            self.secrets.load,
        )
        self.feed.before.append(self.access.load)
        self.shared.rules = self.access.sight.version
        self.access.sight.changed = lambda tenant: self.shared.hub.changed(tenant, KINDS)
        self.embeddings = Embeddings(
            settings.embedding,
            lambda: self.feed.database,
            self.feed.settled.wait,
            partial(ensure_indexes, exact_limit=settings.search.exact_limit),
        )
        self.search = Search(
            lambda: self.feed.pool,
            lambda: self.embeddings.embedder,
            settings.search,
            settings.disclosure.when_down,
            lambda: self.embeddings.serving.note,
        )
        self.idempotency = Idempotency(lambda: self.feed.pool, settings.portal.idempotency_ttl_s)
        limits = Limits(self._timeout_of, upstream.python_threads, upstream.python_calls)
        self.python = PythonUpstream(self.services, self.idempotency.once, limits)
        self.mismatches = Mismatches()
        self.health = Health(self.feed.state, self.access.bounds.breaker.broken)
        self.dispatcher, self.portal_dispatcher = self._dispatchers()
        self.catalogs.on_load(self.federation.follow)
        self.catalogs.on_change(self.shared.hub.changed)
        self._show()

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        # Not asyncio's: its tasks are cancelled once, and under Python 3.11 the pool of psycopg may
        # miss that (`asyncio.wait_for` drops it when a connection arrives at the same moment).
        shared = self.shared
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.feed.run)
                tasks.start_soon(self._reap)
                tasks.start_soon(shared.stores.run)
                tasks.start_soon(shared.bus.run)
                tasks.start_soon(shared.sessions.beat, self.settings.state.beat_s)
                tasks.start_soon(self.federation.servers.run)
                tasks.start_soon(self.embeddings.run)
                tasks.start_soon(self.access.run)
                tasks.start_soon(self.access.bounds.shedding.run)
                try:
                    yield
                finally:
                    self.drain()
                    await self.python.finishing.settle(self._drained_by)
                    await self.access.settle()
                    tasks.cancel_scope.cancel()
        finally:
            await shared.sessions.close_all()
            await self.federation.close()
            await self.embeddings.close()
            await self.access.close()
            await shared.stores.close()
            await self.client.close()

    def drain(self) -> None:
        """Begin to stop: streams end, new work is refused, what runs may finish."""
        if not self.health.draining:
            self._drained_by = time.monotonic() + self.settings.server.drain_s
        self.health.draining = True
        self.embeddings.stop()
        self.shared.hub.close()

    async def reconfigure(self, settings: Settings) -> None:
        """Take what can change without a restart: how sources are called, and the sources.

        Raises ToolgateError, before anything has changed, for certificates that cannot be used,
        and for a Python service or function that cannot be loaded; one that is loaded already
        stays as it is.
        """
        contexts(settings.sources)
        services = load_services(settings.sources, self.services)
        functions = load_functions(settings.functions, self.functions)
        self.access.authenticator.reload()
        before = self.settings
        self.settings = replace(
            self.settings,
            upstream=settings.upstream,
            sources=settings.sources,
            logging=settings.logging,
            functions=settings.functions,
            scripts=settings.scripts,
        )
        self.services.clear()
        self.services.update(services)
        self.functions.clear()
        self.functions.update(functions)
        if (before.upstream, before.sources) != (settings.upstream, settings.sources):
            await self.client.configure(settings.upstream, settings.sources)
            self.ways.configure(settings.upstream, settings.sources)
            self.federation.servers.restart()
        described = {name: service.actions for name, service in services.items()}
        await self.feed.reconfigure(settings.sources, described)

    def app(self) -> Starlette:
        """The ASGI application."""
        settings = self.settings
        probes = Probes(self.health, self.metrics.registry)
        both = (self.dispatcher, self.portal_dispatcher)
        served = fronts(settings, self.shared, both, self.access.identify)
        return Starlette(
            routes=[
                Route("/health", probes.alive),
                Route("/ready", probes.ready),
                Route("/metrics", probes.metrics),
                *([Below(settings.admin.path, self._admin())] if settings.admin.enabled else []),
                Route("/", self._index),
                *self.access.told.routes,
            ],
            middleware=[
                *([Middleware(AccessLog)] if settings.logging.access else []),
                Middleware(
                    OriginGuard,
                    hosts=settings.server.allowed_hosts,
                    origins=settings.server.allowed_origins,
                ),
                *self.access.told.middleware,
                Middleware(
                    FrontDoor,
                    fronts=served,
                    ready=lambda: self.health.ready,
                    shed=self.access.bounds.shedding.refusal,
                ),
            ],
            exception_handlers={404: not_found, 500: crashed},
            lifespan=self.lifespan,
        )

    def _admin(self) -> ASGIApp:
        return admin_api(
            Parts(
                self.settings,
                lambda: self.feed.pool,
                lambda: self.settings.sources,
                self.asking,
                self.access.identify_admin,
                self.health,
                self.catalogs,
                self.shared.sessions,
                self.shared.bus.node,
                lambda: self.shared.hub.streams,
                self.access.sight.engine,
                self.access.remember,
            )
        )

    def _dispatchers(self) -> tuple[Dispatcher, Dispatcher]:
        answers, kept = self.settings.answers, self.shared.kept
        downloads = Downloads(kept, answers.inline_bytes, answers.download_bytes)
        uploads = Uploads(
            lambda: self.settings.upstream,
            reading(lambda context, request: self.dispatcher.outcome(context, request)),
        )
        upstreams: dict[type, Upstream] = {
            OpenAPIBinding: OpenAPIUpstream(self.client, uploads, downloads),
            GraphQLBinding: GraphQLUpstream(self.client),
            HybridBinding: HybridUpstream(self.client),
            PythonBinding: self.python,
            McpBinding: self.federation.upstream,
            FunctionBinding: FunctionUpstream(self.functions, self.python, self._timeout_of),
            ScriptBinding: ScriptUpstream(lambda: self.settings.scripts),
        }
        middleware = [
            self.metrics.middleware,
            self.legacy_use.middleware,
            *self.access.middleware,
        ]
        feedback = Feedback(lambda: self.feed.pool)
        return dispatchers(
            self.settings,
            self.catalogs,
            upstreams,
            self.access.guards,
            self.federation,
            self.shared,
            middleware,
            Answering(kept, answers.tokens, self._validates, self.mismatches),
            self.search.run,
            Usage(feedback.record) if self.settings.search.feedback else None,
            self._skilled,
            self.access.sight,
        )

    def _skilled(self, lists: Lists) -> SkillParts:
        sessions, read_file = self.shared.sessions, file_reader(lambda: self.feed.pool)
        sealer = self.federation.sealer
        return SkillParts(self.settings, lists, sealer, sessions, self.search.run, read_file)

    def _validates(self, source: str) -> bool:
        adjusted = self.settings.sources.get(source)
        return adjusted is not None and adjusted.validate_answers == "report"

    def _timeout_of(self, source: str) -> float:
        adjusted = self.settings.sources.get(source)
        return (adjusted and adjusted.timeout_s) or self.settings.upstream.timeout_s

    def _show(self) -> None:
        """Let metrics tell of all this."""

        def catalog() -> Catalog:
            return self.catalogs.of(self.principal.tenant)

        for collector in (
            self.legacy_use,
            self.mismatches,
            self.embeddings,
            self.access.auditing,
            ServerGauges(self.federation.servers),
            ListGauges(catalog),
        ):
            self.metrics.registry.register(collector)
        self.access.bounds.show(self.metrics)
        sessions, hub, federation = self.shared.sessions, self.shared.hub, self.federation
        gauges: list[tuple[str, str, Callable[[], float]]] = [
            ("toolgate_sessions", "Open sessions.", lambda: len(sessions)),
            ("toolgate_streams", "Open server-to-client streams.", lambda: hub.streams),
            ("toolgate_tools", "Tools in the catalog of the default tenant.",
             lambda: len(catalog().tools)),
            ("toolgate_ready", "1 when requests are served.", lambda: self.health.ready),
            ("toolgate_database_up", "1 while the database answers.",
             lambda: self.feed.state.database == "ok"),
            ("toolgate_parked_calls", "Calls that wait for an answer of their client.",
             lambda: len(federation.parking)),
        ]  # fmt: skip
        for name, text, read in gauges:
            self.metrics.gauge(name, text, read)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(REAP_EVERY_S)
            reaped = self.shared.sessions.reap()
            if reaped:
                log.info("sessions_reaped", extra={"count": reaped})
            with suppress(Unavailable):
                await self.shared.sessions.renew()
            await self.shared.stores.purge()
            with suppress(psycopg.OperationalError, PoolTimeout):
                await self.idempotency.purge()

    async def _index(self, _request: Request) -> Response:
        mcp, rpc, portal = self.settings.mcp.path, self.settings.rpc.path, self.settings.portal
        paths = {"mcp": mcp, "mcp-2024-11-05": f"{mcp}/sse", "jsonrpc": rpc}
        if portal.enabled:
            paths |= {"portal-query": portal.query_path, "portal-command": portal.command_path}
        if self.settings.admin.enabled and self.settings.auth.mode != "none":
            paths["admin"] = self.settings.admin.path
        return JSONResponse({"name": SERVER.name, "version": SERVER.version, "endpoints": paths})

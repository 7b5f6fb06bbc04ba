"""Wiring of wings: each is opened, served and closed independently, and so are its failures.

Imported only where a wing is switched on.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast
from weakref import WeakKeyDictionary

import anyio
import psycopg
from anyio.abc import TaskGroup
from prometheus_client import CollectorRegistry
from psycopg_pool import PoolTimeout
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from config.settings import Settings
from gateway.abc import Handler, Middleware, Route, ToolCall, Upstream
from gateway.app.access import Access
from gateway.app.admin import PathPrefix
from gateway.context import Context, new_request_id
from gateway.events import Events
from gateway.methods.calls import CallPlans
from gateway.methods.results import SERVER
from gateway.operations.http import send_response
from gateway.operations.serving import Repeats, problem_response
from gateway.protocol.dispatcher import OTHER
from gateway.protocol.shapes import tool_result
from gateway.state.idempotency import IdempotencyKeys
from gateway.upstreams.wing import WingUpstream
from gateway.wings.abc import CallTool, Offer, Wing, WingParts
from gateway.wings.serving import WingApi, WingOperations, drafts, not_open
from gateway.wings.table import load_wings, section
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.catalog.feed import SingleFlight
from registry.database.migrate import migrate
from registry.database.postgres import Database, DatabaseHandle, Pool
from registry.embedding.abc import Embedder
from registry.search.query import SearchQuery, SearchResult
from registry.sources.imports import Sources
from registry.sources.source_reader import ImportSpec
from registry.sources.store import ToolStore
from schemas.binding import WingBinding
from schemas.errors import Fault, MethodNotFound, ToolgateError, Unavailable
from schemas.jsonrpc import Request, decode_members
from schemas.mcp.revisions import JSON_RPC, V2025_11_25
from schemas.source import HybridOptions
from schemas.tool import Tool, ToolDraft, ToolResult

log = logging.getLogger("toolgate.wings")

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0  # before a wing that failed is opened again
READY_WAIT_S = 30.0  # time limit of readiness for the wings to open

WingState = Literal["opening", "ok", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WingGround:
    """The parts of a gateway that its wings are wired to."""

    settings: Settings
    handle: DatabaseHandle
    events: Events
    catalogs: Catalogs
    access: Access
    upstreams: dict[str, Upstream]  # of open wings, by name
    metrics: CollectorRegistry
    middleware: Callable[[], Sequence[Middleware]]  # of every message, outermost first
    outcome: Callable[[Context, Request], Awaitable[Any]]  # of the dispatcher
    embedder: Callable[[str], Embedder | None]
    search: Callable[[SearchQuery], Awaitable[SearchResult]]


class Wings:
    """The wings that are switched on. Raises ToolgateError for one that cannot be imported."""

    def __init__(self, ground: WingGround) -> None:
        self._ground = ground
        self._served = [
            ServedWing(wing, ground, offering=self.middleware, opened=self._opened)
            for wing in load_wings(ground.settings)
        ]
        self._tasks: TaskGroup | None = None
        self._offered: set[str] = set()  # tenants that have the tools of all wings that are open
        self._offering: defaultdict[str, SingleFlight] = defaultdict(SingleFlight)
        ground.events.database_connected.subscribe(self._begin)
        ground.events.catalog_loaded.subscribe(self._catalog_loaded)

    @property
    def routes(self) -> list[BaseRoute]:
        return [PathPrefix(path, app) for one in self._served for path, app in one.apps.items()]

    @property
    def states(self) -> dict[str, str]:
        """States of the wings by name, for the details of readiness."""
        return {f"wing {one.name}": one.state for one in self._served}

    def middleware(self, handle: Handler, _route: Route) -> Handler:
        """Offers the tools to a tenant that was new, before its first request is handled."""

        async def offered(context: Context, request: Request) -> Any:
            tenant = context.principal.tenant
            if tenant not in self._offered and context.identity.refusal is None:
                await self._offering[tenant].run(partial(self._offer_to, tenant))
            return await handle(context, request)

        return offered

    def reconfigure(self) -> None:
        """Use the current middleware and guards for requests that come over HTTP."""
        for one in self._served:
            one.calls.wire()

    async def run(self) -> None:
        """Open the wings once the database responds, and keep them open until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            for one in self._served:
                tasks.start_soon(one.run)

    async def stop(self, deadline: float) -> None:
        """Stop the wings before `deadline`, in monotonic time; those that are late are
        cancelled."""
        with anyio.CancelScope(deadline=deadline):
            async with anyio.create_task_group() as tasks:
                for one in self._served:
                    tasks.start_soon(one.stop)

    async def _begin(self, _pool: Pool) -> None:
        """Open each wing, and wait for the first attempts, for a limited time."""
        with anyio.move_on_after(READY_WAIT_S):
            for one in self._served:
                one.begin()
            for one in self._served:
                await one.attempted.wait()

    def _opened(self) -> None:
        """A wing was opened: it has stored its tools for the tenants in the database alone."""
        self._offered.clear()

    async def _offer_to(self, tenant: str) -> None:
        if tenant in self._offered:
            return
        known = self._ground.catalogs.of(tenant).sources
        missing = [one for one in self._served if one.state == "ok" and one.name not in known]
        if all([await one.offer_to(tenant, loads=True) for one in missing]):
            self._offered.add(tenant)
            self._offering.pop(tenant, None)

    def _catalog_loaded(self, tenant: str) -> None:
        """Offer the tools to a tenant that was new to this gateway."""
        known = self._ground.catalogs.of(tenant).sources
        for one in self._served:
            if self._tasks is not None and one.state == "ok" and one.name not in known:
                self._tasks.start_soon(one.offer_to, tenant)


class ServedWing:
    """Supervisor of one wing, which is opened again after each failure."""

    def __init__(
        self,
        wing: Wing,
        ground: WingGround,
        *,
        offering: Middleware,
        opened: Callable[[], None],
    ) -> None:
        """`offering` is the middleware of all wings. `opened` is called each time that it was
        opened."""
        self.name = wing.name
        self._was_opened = opened
        self.state: WingState = "opening"
        self.attempted = anyio.Event()  # opened for the first time, or failed to
        self.calls = WingCalls(wing.name, ground, offering)
        self._wing = wing
        self._ground = ground
        self._begun = anyio.Event()
        self._stopping = anyio.Event()
        self._closed = anyio.Event()
        self._drafts: Sequence[ToolDraft] = ()
        self._apps: Mapping[str, ASGIApp] = {}
        settings = ground.settings
        keys = IdempotencyKeys(ground.handle.pool, settings.admin.idempotency_ttl_s)
        self._verifies = settings.auth.verify_scope
        self._api = WingApi(
            wing,
            settings.server.body_limit_bytes,
            SERVER.version,
            identify=ground.access.identify,
            repeats=Repeats(keys),
            call=self.calls,
            verify_scope=self._verifies,
        )

    @property
    def apps(self) -> dict[str, ASGIApp]:
        """Apps of the wing by path; they answer while it is open."""
        return {
            self._wing.root: self._api,
            **{path: _Mounted(self.name, path, lambda: self._apps) for path in self._wing.mounts},
        }

    def begin(self) -> None:
        self._begun.set()

    async def run(self) -> None:
        try:
            await self._begun.wait()
            pause_s = FIRST_RETRY_S
            while not self._stopping.is_set():
                if await self._opened() > LONGEST_RETRY_S:
                    pause_s = FIRST_RETRY_S
                self.attempted.set()
                with anyio.move_on_after(pause_s):
                    await self._stopping.wait()
                pause_s = min(pause_s * 2, LONGEST_RETRY_S)
        finally:
            self._closed.set()

    async def stop(self) -> None:
        """Stop the wing, and wait until it is closed."""
        self._stopping.set()
        if self._begun.is_set():
            await self._closed.wait()

    async def offer_to(self, tenant: str, *, loads: bool = False) -> bool:
        """Store the tools for a tenant besides the gateway's own; failures are logged. False if it
        may succeed later. `loads`: load the catalog also if another gateway has stored them."""
        try:
            await self._store(tenant)
            if loads and self.name not in self._ground.catalogs.of(tenant).sources:
                await self._ground.catalogs.reload(ToolStore(self._database.pool), tenant)
        except (ToolgateError, psycopg.OperationalError, PoolTimeout) as error:
            extra = {"wing": self.name, "tenant": tenant, "reason": str(error)}
            log.error("wing_tools_not_stored", extra=extra)
            return isinstance(error, ToolgateError)
        return True

    async def _store(self, tenant: str) -> None:
        """Store the tools for a tenant and load its catalog, if they are not those stored. Raises
        ToolgateError, and psycopg.OperationalError."""
        store, limits = ToolStore(self._database.pool), self._ground.settings.imports
        sources = Sources(store, tenant, limits, offered={self.name: self._drafts})
        options = HybridOptions()
        location = f"wing:{self.name}"
        spec = ImportSpec(self.name, location, kind="wing", options=options, origin="wing")
        if await sources.import_changed(spec) is not None:
            await self._ground.catalogs.reload(store, tenant)

    async def _opened(self) -> float:
        """Open the wing and wait until it is stopped or fails; returns for how many seconds it was
        open."""
        since = math.inf
        try:
            async with self._wing.open(await self._parts()) as offer:
                with self._serving(offer):
                    await self._offer_tools()
                    self._was_opened()
                    since, self.state = time.monotonic(), "ok"
                    log.info("wing_open", extra={"wing": self.name})
                    self.attempted.set()
                    await self._work(offer)
        except (ToolgateError, psycopg.OperationalError, PoolTimeout) as error:
            self.state = "failed"
            log.error("wing_failed", extra={"wing": self.name, "reason": str(error)})
        except Exception:
            self.state = "failed"
            log.exception("wing_failed", extra={"wing": self.name})
        return max(0.0, time.monotonic() - since)

    async def _work(self, offer: Offer) -> None:
        async with anyio.create_task_group() as tasks:
            for task in offer.tasks:
                tasks.start_soon(task)
            await self._stopping.wait()
            tasks.cancel_scope.cancel()

    @property
    def _database(self) -> Database:
        """The database. Raises Unavailable before it has responded."""
        opened = self._ground.handle.opened
        if opened is None:
            raise Unavailable("The database does not respond yet")
        return opened

    async def _parts(self) -> WingParts:
        """The parts of the wing. Raises ToolgateError and psycopg.Error, also for migrations that
        fail."""
        ground, database = self._ground, self._database
        if self._wing.migrations is not None:
            async with database.connect() as connection:
                await migrate(connection, [self._wing.migrations])
        return WingParts(
            settings=section(ground.settings, self.name),
            tenant=ground.settings.tenant.host_id,
            database=database,
            call=calling(ground.outcome),
            catalogs=ground.catalogs,
            events=ground.events,
            embedder=ground.embedder,
            search=ground.search,
            identify=ground.access.identify,
        )

    @contextmanager
    def _serving(self, offer: Offer) -> Iterator[None]:
        """Serve what the wing offers. Raises ToolgateError if it offers what it may not."""
        # Jobs run the operations of the admin API alone: those of wings answer at once.
        at_once = [replace(one, job=None) for one in offer.operations]
        offer = replace(offer, operations=at_once)
        self._drafts = drafts(self._wing, offer)
        self._apps = offer.apps
        server = self._api.serve(offer.operations)
        self._ground.upstreams[self.name] = WingOperations(server, self._verifies)
        for collector in offer.collectors:
            self._ground.metrics.register(collector)
        try:
            yield
        finally:
            for collector in offer.collectors:
                self._ground.metrics.unregister(collector)
            del self._ground.upstreams[self.name]
            self._api.withdraw()
            self._apps = {}

    async def _offer_tools(self) -> None:
        """Store the tools for all tenants, unless they are stored."""
        own = self._ground.settings.tenant.host_id
        await self._store(own)
        for tenant in await ToolStore(self._database.pool).hosts():
            if tenant != own:
                await self.offer_to(tenant)


class WingCalls:
    """Calls of a wing's operations that come over its REST API, guarded like any call of a tool."""

    def __init__(self, name: str, ground: WingGround, offering: Middleware) -> None:
        self._name = name
        self._offering = offering
        self._ground = ground
        self._tools: WeakKeyDictionary[Catalog, Mapping[str, Tool]] = WeakKeyDictionary()
        self.wire()

    async def __call__(self, context: Context, request: Request) -> object:
        return await self._handle(context, request)

    def wire(self) -> None:
        """Use the middleware and the guards of now."""
        access = self._ground.access
        upstreams: dict[type, Upstream] = {WingBinding: WingUpstream(self._ground.upstreams)}
        self._plans = CallPlans(upstreams, access.guards, access.policy_view)
        handle: Handler = self._call
        middleware = [*self._ground.middleware(), self._offering, *access.middleware]
        for wrap in reversed(middleware):
            handle = wrap(handle, Route(JSON_RPC, OTHER))
        self._handle = handle

    async def _call(self, context: Context, request: Request) -> object:
        """`request`: the id of the operation, and the arguments."""
        context.require_identity()
        whole = self._ground.catalogs.of(context.principal.tenant)
        catalog = self._ground.access.policy_view.view(context, whole, whole)
        tool = self._tools_of(catalog).get(request.method)
        if tool is None:
            raise MethodNotFound(f"There is no operation {request.method} here")
        plan = self._plans.plan(catalog, tool)
        return await plan.execute(ToolCall(tool, plan.source, request.params, context))

    def _tools_of(self, catalog: Catalog) -> Mapping[str, Tool]:
        """The tools of the wing by the id of their operation."""
        tools = self._tools.get(catalog)
        if tools is None:
            source = catalog.sources.get(self._name)
            is_own = source is not None and source.facts.own  # else of the same name
            own = (tool for tool in catalog.tools if is_own and tool.source == self._name)
            tools = {cast("WingBinding", tool.binding).operation: tool for tool in own}
            self._tools[catalog] = tools
        return tools


class _Mounted:
    """A path of a wing: served by what the wing offers for it, while it is open."""

    def __init__(self, name: str, path: str, apps: Callable[[], Mapping[str, ASGIApp]]) -> None:
        self._name = name
        self._path = path
        self._apps = apps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._apps().get(self._path)
        if app is not None:
            await app(scope, receive, send)
            return
        request_id = new_request_id()
        response = problem_response(not_open(self._name), request_id)
        await send_response(send, response, request_id, head=scope["method"] == "HEAD")


def calling(outcome: Callable[[Context, Request], Awaitable[Any]]) -> CallTool:
    """Calls of tools by a wing; `outcome` is the dispatcher's, so all middleware runs."""

    async def call(context: Context, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        # a revision that has the method, whatever the caller uses, and without server-to-client
        # requests
        asking = replace(context, revision=V2025_11_25, params={}, peer=None)
        params = {"name": name, "arguments": dict(arguments)}
        result = await outcome(asking, Request("2.0", "tools/call", params, context.request_id))
        if isinstance(result, Fault):
            raise result
        return tool_result(decode_members(result))

    return call

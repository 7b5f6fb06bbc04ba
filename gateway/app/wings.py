"""Wiring of wings: each is opened, served and closed independently, and so are its failures.

Imported only where a wing is switched on.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast
from weakref import WeakKeyDictionary

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw, UnsetType
from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from config.settings import Settings
from gateway.app.access import Access
from gateway.app.admin import PathPrefix
from gateway.app.method_tables import calling, resource_reader
from gateway.app.middleware_order import call_guards, message_middleware
from gateway.context import Context, Identify, Principal, new_request_id
from gateway.guards.body_budget import LimitedBody, declared_size
from gateway.interfaces import (
    Events,
    Guard,
    Handler,
    Log,
    Middleware,
    Relay,
    Route,
    ToolCall,
    Upstream,
)
from gateway.methods.call_checks import (
    own_argument_names,
    problem_text,
    problems_of,
    restore_names,
    without_null,
)
from gateway.methods.call_plans import CallPlans
from gateway.methods.results_by_revision import SERVER, call_result
from gateway.middleware.guardrails import Guardrails
from gateway.operations.operation import Operation
from gateway.operations.operation_server import IdempotentRunner, problem_response
from gateway.operations.paging import Pages
from gateway.operations.problems import ProblemDetails, bad_request, unavailable
from gateway.operations.request_parsing import too_large
from gateway.operations.rest_api import again_later, check_known, send_response
from gateway.policy.visibility import PolicyView
from gateway.protocol.dispatcher import OTHER
from gateway.state.idempotency import IdempotencyKeys
from gateway.state.sessions import Sessions
from gateway.state.stored_answers import StoredAnswers, handle_of
from gateway.telemetry.traces import Operate, no_trace
from gateway.upstreams.wing import WingUpstream
from gateway.wings.document_library import Library
from gateway.wings.interface import (
    AdminAccess,
    Answer,
    CallerSettings,
    CheckCall,
    Concerns,
    FollowRun,
    Notify,
    ResourceContents,
    Screen,
    SignDetached,
    View,
    Wing,
    WingContributions,
    WingParts,
    background,
)
from gateway.wings.job_operations import job_operations
from gateway.wings.models.configured_models import ConfiguredModels, StoredKeys
from gateway.wings.models.messages import OnModelUsed
from gateway.wings.resources_and_prompts import WingRelay, offered_import
from gateway.wings.table import components_of, load_wings, mistakes, section, with_jobs
from gateway.wings.wing_operations import ObservedCalls, WingApi, WingOperations, drafts, not_open
from gateway.wings.wing_restarts import WingLife
from registry.access.secrets import Keys
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.catalog.feed import SingleFlight
from registry.database.migrate import migrate
from registry.database.postgres import AWAY, Database, DatabaseHandle, Pool
from registry.database.tenants import list_tenants
from registry.embedding.embedder import Embedder
from registry.search.query import SearchQuery, SearchResult
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from schemas.binding import WingBinding
from schemas.errors import (
    Denied,
    Fault,
    InvalidParams,
    MethodNotFound,
    PayloadTooLarge,
    ToolgateError,
    TooManyRequests,
    Unavailable,
)
from schemas.jsonrpc import Request, decode_json, encode
from schemas.mcp.revisions import JSON_RPC
from schemas.memo import Memo
from schemas.source import HybridOptions
from schemas.tool import Annotations, Tool, ToolResult

if TYPE_CHECKING:  # a gateway whose wings have none does not import them
    from gateway.app.jobs import Jobs

log = logging.getLogger("toolgate.wings")

NAMES_KEPT = 1024  # tools of later calls whose names of arguments are cached
READY_WAIT_S = 30.0  # time limit of readiness for the wings to open


@dataclass(frozen=True, slots=True, kw_only=True)
class WingDependencies:
    """The parts of a gateway that its wings are wired to."""

    settings: Settings
    handle: DatabaseHandle
    events: Events
    catalogs: Catalogs
    access: Access
    upstreams: dict[str, Upstream]  # of open wings, by name
    offers: dict[str, WingContributions]  # of open wings, by name
    metrics: CollectorRegistry
    counting: Callable[[], Sequence[Middleware]]  # as in `message_middleware`
    outcome: Callable[[Context, Request], Awaitable[Any]]  # of the dispatcher
    stored_answers: StoredAnswers
    embedder: Callable[[str], Embedder | None]
    search: Callable[[SearchQuery], Awaitable[SearchResult]]
    secrets: StoredKeys
    log: Log
    jobs: "Jobs | None"  # None: all operations answer at once
    sessions: Sessions
    operate: Operate = no_trace
    sign: SignDetached | None = None
    on_used: OnModelUsed | None = None
    sources_down: Callable[[], Mapping[str, str]] = dict


class Wings:
    """The wings that are switched on. Raises ToolgateError for one that cannot be imported, and for
    mistakes in the settings of one that is not optional."""

    def __init__(self, dependencies: WingDependencies) -> None:
        if texts := mistakes(dependencies.settings):
            raise ToolgateError("\n  ".join(texts))
        self._dependencies = dependencies
        self._models = models = ConfiguredModels(
            dependencies.settings.models,
            dependencies.secrets,
            dependencies.operate,
            dependencies.on_used,
        )
        dependencies.metrics.register(models.use)
        self._served = [
            ServedWing(
                wing, dependencies, offering=self.middleware, on_open=self._on_open, models=models
            )
            for wing in load_wings(dependencies.settings)
        ]
        self._tasks: TaskGroup | None = None
        self._offered: set[str] = set()  # tenants that have the tools of all wings that are open
        self._offering: defaultdict[str, SingleFlight] = defaultdict(SingleFlight)
        dependencies.events.database_connected.subscribe(self._begin)
        dependencies.events.catalog_loaded.subscribe(self._catalog_loaded)

    @property
    def offers(self) -> Mapping[str, WingContributions]:
        """Contributions of open wings, by name."""
        return self._dependencies.offers

    @property
    def routes(self) -> list[BaseRoute]:
        return [PathPrefix(path, app) for wing in self._served for path, app in wing.apps.items()]

    @property
    def public_paths(self) -> list[str]:
        """Paths that pages of any origin may read."""
        return [path for wing in self._served for path in wing.public_paths]

    @property
    def largest_body(self) -> int:
        """The highest limit of bodies among their paths, in bytes."""
        return max((wing.largest_body for wing in self._served), default=0)

    @property
    def states(self) -> dict[str, str]:
        """States of the wings by name, for the details of readiness."""
        return {f"wing {wing.name}": wing.state for wing in self._served}

    @property
    def names_not_ready(self) -> list[str]:
        """The wings without which the gateway is not ready, as they were never open."""
        return [wing.name for wing in self._required_wings if not wing.opened.is_set()]

    async def wait_until_open(self) -> None:
        """Wait until each of them has been open."""
        for wing in self._required_wings:
            await wing.opened.wait()

    @property
    def _required_wings(self) -> "list[ServedWing]":
        optional = self._dependencies.settings.wings.optional
        return [wing for wing in self._served if wing.name not in optional]

    @property
    def admin_operations(self) -> list[Operation]:
        """The operations of the admin API for the wings."""
        return [operation for wing in self._served for operation in wing.admin_operations]

    @property
    def guards(self) -> list[Guard]:
        """Guards of the wings that observe calls."""
        settings, offers = self._dependencies.settings, self._dependencies.offers
        return [
            ObservedCalls(wing.name, offers)
            for wing in self._served
            if wing.observes is not None and wing.observes(section(settings, wing.name))
        ]

    def middleware(self, handle: Handler, _route: Route) -> Handler:
        """Offers the tools to a tenant that was new, before its first request is handled."""

        async def offer_and_handle(context: Context, request: Request) -> Any:
            tenant = context.principal.tenant
            if tenant not in self._offered and context.identity.refusal is None:
                await self._offering[tenant].run(partial(self._offer_to, tenant))
            return await handle(context, request)

        return offer_and_handle

    def relay(self, relay: Relay) -> Relay:
        """The relay of requests to other servers, and to the wings for what they offer."""
        return WingRelay(relay, self._dependencies.offers)

    async def complete_results(self, principal: Principal, tools: Sequence[Tool]) -> Sequence[Tool]:
        """The tools, with what open wings know of their results."""
        for offer in [*self._dependencies.offers.values()]:
            if offer.complete_results is not None:
                tools = await offer.complete_results(principal, tools)
        return tools

    def answering(self, handle: Handler, route: Route) -> Handler:
        """Lets open wings answer requests of MCP, next to the handlers of the gateway."""
        for wing in self._served:
            if route.revision.mcp and route.method in wing.methods:
                handle = wing.answering(handle, route.method)
        return handle

    def reconfigure(self) -> None:
        """Use the current middleware and guards for requests that come over HTTP."""
        for wing in self._served:
            wing.calls.wire()

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Check the sections of the wings; the function that is returned applies them. Raises
        ToolgateError."""
        applying = [wing.prepare(section(settings, wing.name)) for wing in self._served]

        def apply() -> None:
            for apply_section in applying:
                apply_section()

        return apply

    async def run(self) -> None:
        """Open the wings once the database responds, and keep them open until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                for wing in self._served:
                    tasks.start_soon(wing.run)
        finally:
            self._tasks = None  # the feed may still load catalogs
            with anyio.CancelScope(shield=True):
                await self._models.close()

    async def stop(self, deadline: float) -> None:
        """Stop the wings before `deadline`, in monotonic time; those that are late are
        cancelled."""
        with anyio.CancelScope(deadline=deadline):
            async with anyio.create_task_group() as tasks:
                for wing in self._served:
                    tasks.start_soon(wing.stop)

    async def _begin(self, _pool: Pool) -> None:
        """Open each wing, and wait for the first attempts, for a limited time."""
        with anyio.move_on_after(READY_WAIT_S):
            for wing in self._served:
                wing.begin()
            for wing in self._served:
                await wing.attempted.wait()

    def _on_open(self) -> None:
        """A wing was opened: it has stored its tools for the tenants in the database alone."""
        self._offered.clear()

    async def _offer_to(self, tenant: str) -> None:
        if tenant in self._offered:
            return
        sources = self._dependencies.catalogs.of(tenant).sources
        missing = [wing for wing in self._served if wing.state == "ok" and wing.name not in sources]
        if all([await wing.offer_to(tenant, loads=True) for wing in missing]):
            self._offered.add(tenant)
            self._offering.pop(tenant, None)

    def _catalog_loaded(self, tenant: str) -> None:
        """Offer the tools to a tenant that was new to this gateway."""
        sources = self._dependencies.catalogs.of(tenant).sources
        for wing in self._served:
            if self._tasks is not None and wing.state == "ok" and wing.name not in sources:
                self._tasks.start_soon(wing.offer_to, tenant)


class ServedWing(WingLife):
    """Supervisor of one wing of a gateway."""

    def __init__(
        self,
        wing: Wing,
        dependencies: WingDependencies,
        *,
        offering: Middleware,
        on_open: Callable[[], None],
        models: ConfiguredModels,
    ) -> None:
        """`offering` is the middleware of all wings. `on_open` is called each time that it was
        opened."""
        super().__init__(wing)
        self._models = models
        self._was_opened = on_open
        self.calls = WingCalls(wing.name, dependencies, offering)
        self._dependencies = dependencies
        self._own = section(dependencies.settings, wing.name)
        self._jobs = dependencies.jobs if self.name in with_jobs(dependencies.settings) else None
        self._imported = offered_import(self.name, (), WingContributions())
        self._has_tools = True
        self._apps: Mapping[str, ASGIApp] = {}
        self._answers: Mapping[str, Answer] = {}
        self.methods, self.observes = wing.methods, wing.observes
        settings = dependencies.settings
        keys = IdempotencyKeys(dependencies.handle.pool, settings.admin.idempotency_ttl_s)
        self._verifies = settings.auth.verify_scope
        self._api = WingApi(
            wing,
            settings.server.body_limit_bytes,
            SERVER.version,
            identify=dependencies.access.identify,
            repeats=IdempotentRunner(keys),
            call=self.calls,
            verify_scope=self._verifies,
            defer=None if self._jobs is None else self._jobs.defer,
            masks=settings.guardrails.mask,
            keep_alive_s=settings.mcp.keep_alive_s,
        )

    @property
    def apps(self) -> dict[str, ASGIApp]:
        """Apps of the wing by path; they answer while it is open."""
        mounted: dict[str, ASGIApp] = {path: self._mounted_app(path) for path in self._wing.mounts}
        root = self._wing.root
        streams = mounted.pop(root, None)
        return {root: self._api if streams is None else _Streaming(self._api, streams), **mounted}

    @property
    def public_paths(self) -> frozenset[str]:
        return self._wing.public

    @property
    def largest_body(self) -> int:
        """The highest limit of bodies among its paths with one of their own, in bytes."""
        wing_settings = section(self._dependencies.settings, self.name)
        return max(
            (getattr(wing_settings, member) for member in self._wing.body_limits.values()),
            default=0,
        )

    @property
    def admin_operations(self) -> Sequence[Operation]:
        if self._wing.admin is None:
            return ()
        wing_settings = section(self._dependencies.settings, self.name)
        events = self._dependencies.events
        return self._wing.admin(
            AdminAccess(
                settings=wing_settings,
                pool=self._open_pool,
                pages=self._pages,
                events=events,
                tenant=self._dependencies.settings.tenant.host_id,
                keys=Keys.of(self._dependencies.settings.secrets),
            )
        )

    @property
    def _pages(self) -> Pages:
        admin = self._dependencies.settings.admin
        return Pages(admin.page_size, admin.page_limit)

    def prepare(self, wing_settings: Any) -> Callable[[], None]:
        """Check another section of settings; the function that is returned applies it. Raises
        ToolgateError."""
        offer = self._dependencies.offers.get(self.name)
        changes = offer is not None and offer.reconfigure is not None and wing_settings != self._own
        applied = (
            offer.reconfigure(wing_settings) if changes and offer and offer.reconfigure else None
        )

        def apply() -> None:
            self._own = wing_settings
            if applied is not None:
                applied()

        return apply

    def _mounted_app(self, path: str) -> "_Mounted":
        settings, member = self._dependencies.settings, self._wing.body_limits.get(path)
        limit_bytes, setting = settings.server.body_limit_bytes, "server.body_limit_bytes"
        identify = None
        if member is not None:
            limit_bytes = getattr(section(settings, self.name), member)
            setting = f"{self.name}.{member}"
            identify = None if path in self._wing.refuses else self._dependencies.access.identify
        return _Mounted(
            self.name,
            lambda: self._apps.get(path),
            limit_bytes=limit_bytes,
            setting=setting,
            identify=identify,
        )

    def answering(self, handle: Handler, method: str) -> Handler:
        async def answer_or_handle(context: Context, request: Request) -> Any:
            answer = self._answers.get(method)
            if answer is None:
                return await handle(context, request)
            return await answer(context, request, handle)

        return answer_or_handle

    async def offer_to(self, tenant: str, *, loads: bool = False) -> bool:
        """Store the tools for a tenant besides the gateway's own; failures are logged. False if it
        may succeed later. `loads`: load the catalog also if another gateway has stored them."""
        if not self._has_tools:
            return True
        try:
            await self._store(tenant)
            if loads and self.name not in self._dependencies.catalogs.of(tenant).sources:
                await self._dependencies.catalogs.reload(ToolStore(self._database.pool), tenant)
        except (ToolgateError, *AWAY) as error:
            extra = {"wing": self.name, "tenant": tenant, "reason": str(error)}
            log.error("wing_tools_not_stored", extra=extra)
            return isinstance(error, ToolgateError)
        return True

    async def _store(self, tenant: str) -> None:
        """Store the tools for a tenant and load its catalog, if they are not those stored. Raises
        ToolgateError, and psycopg.OperationalError."""
        store, limits = ToolStore(self._database.pool), self._dependencies.settings.imports
        sources = Sources(store, tenant, limits, offered={self.name: self._imported})
        options = HybridOptions()
        location = f"wing:{self.name}"
        spec = ImportSpec(self.name, location, kind="wing", options=options, origin="wing")
        if await sources.import_changed(spec) is not None:
            await self._dependencies.catalogs.reload(store, tenant)

    @property
    def _database(self) -> Database:
        """The database. Raises Unavailable before it has responded."""
        opened = self._dependencies.handle.opened
        if opened is None:
            raise Unavailable("The database does not respond yet")
        return opened

    async def parts(self) -> WingParts:
        dependencies, database = self._dependencies, self._database
        await migrate_wing(self._wing, database)
        parts = stored_parts(
            dependencies.settings,
            self.name,
            database,
            embedder=dependencies.embedder,
            search=dependencies.search,
            models=self._models,
            offers=dependencies.offers,
            guardrails=lambda: dependencies.access.guardrails,
        )
        return replace(
            parts,
            settings=self._own,
            call=calling(dependencies.outcome),
            check=checking(dependencies.catalogs, dependencies.access.policy_view),
            read=self._read,
            view=self._view,
            catalogs=dependencies.catalogs,
            events=dependencies.events,
            identify=dependencies.access.identify,
            notify=telling(dependencies.sessions),
            log=dependencies.log,
            operate=dependencies.operate,
            sign=dependencies.sign,
            follow=partial(follow_of, dependencies.offers),
            sources_down=dependencies.sources_down,
            concerns=partial(concerns_of, dependencies.offers),
        )

    @property
    def _view(self) -> View:
        dependencies = self._dependencies
        return viewing(
            dependencies.catalogs, dependencies.access.policy_view, verify_scope=self._verifies
        )

    async def _read(self, context: Context, uri: str) -> ResourceContents | None:
        dependencies, catalog = self._dependencies, self._view(context)
        members = await resource_reader(dependencies.outcome)(uri, context)
        if members is None or "contents" not in members:
            return None
        if (handle := handle_of(uri)) is None:
            located = catalog.locate(uri)
            return ResourceContents(members["contents"], located.source.name if located else "")
        stored = await dependencies.stored_answers.slice(context.principal, handle, 0, 0)
        tool = None if stored is None else catalog.by_id(stored.info.tool)
        return ResourceContents(members["contents"], "" if tool is None else tool.source)

    @asynccontextmanager
    async def serving(self, offer: WingContributions) -> AsyncIterator[None]:
        offer = replace(offer, operations=self._operations(offer))
        self._imported = offered_import(self.name, drafts(self._wing, offer), offer)
        self._has_tools = bool(offer.operations)
        self._apps = offer.apps
        self._answers = offer.answers
        with ExitStack() as stack:
            stack.callback(self._withdraw)
            server = self._api.serve(offer.operations)
            self._dependencies.upstreams[self.name] = WingOperations(server, self._verifies)
            self._dependencies.offers[self.name] = offer
            self._dependencies.catalogs.list_wing(self.name, is_listed=offer.listed)
            for collector in offer.collectors:
                self._dependencies.metrics.register(collector)
                stack.callback(self._dependencies.metrics.unregister, collector)
            if self._jobs is not None:
                stack.enter_context(self._jobs.offering(server))
            await self._offer_tools()
            self._was_opened()
            yield

    def _withdraw(self) -> None:
        self._dependencies.upstreams.pop(self.name, None)
        self._dependencies.offers.pop(self.name, None)
        self._api.withdraw()
        self._apps = {}
        self._answers = {}

    def _operations(self, offer: WingContributions) -> Sequence[Operation]:
        """The operations, and those on their jobs; or all of them without jobs."""
        if self._jobs is None:
            return [replace(operation, job=None) for operation in offer.operations]
        no_tool = self._wing.no_job_tools
        return job_operations(self.name, offer.operations, self._pool, self._pages, no_tool=no_tool)

    def _pool(self) -> Pool:
        """Raises ProblemDetails."""
        pool = self._dependencies.handle.pool()
        if pool is None:
            raise unavailable("The database does not answer yet.")
        return pool

    def _open_pool(self) -> Pool:
        """Raises ProblemDetails while the wing is not open."""
        if self.name not in self._dependencies.offers:
            raise not_open(self.name)
        return self._pool()

    async def _offer_tools(self) -> None:
        """Store the tools for all tenants, unless they are stored."""
        if not self._has_tools:
            return
        gateway_tenant = self._dependencies.settings.tenant.host_id
        await self._store(gateway_tenant)
        for tenant in await list_tenants(self._database.pool):
            if tenant != gateway_tenant:
                await self.offer_to(tenant)


async def migrate_wing(wing: Wing, database: Database) -> None:
    """Apply the migrations of the wing. Raises ToolgateError and psycopg.Error."""
    if wing.migrations is not None:
        async with database.connect() as connection:
            await migrate(connection, components_of(wing))


def stored_parts(
    settings: Settings,
    wing: str,
    database: Database,
    *,
    embedder: Callable[[str], Embedder | None],
    search: Callable[[SearchQuery], Awaitable[SearchResult]],
    models: ConfiguredModels,
    offers: Mapping[str, WingContributions],
    guardrails: Callable[[], Guardrails],
) -> WingParts:
    """The parts of a wing in a process that serves no calls: tools, requests and sessions are
    refused. A gateway replaces those."""
    return WingParts(
        settings=section(settings, wing),
        tenant=settings.tenant.host_id,
        public_url=settings.server.public_url,
        mcp_url=settings.server.public_url.rstrip("/") + settings.mcp.path,
        callers=CallerSettings(settings.auth, settings.oauth, settings.login),
        database=database,
        call=_refuse_call,
        check=_refuse_call,
        read=_refuse_read,
        view=lambda _context: Catalog(),
        catalogs=Catalogs(),
        events=Events(),
        embedder=embedder,
        search=search,
        models=models,
        identify=_refuse_request,
        notify=_find_no_session,
        result=call_result,
        keys=Keys.of(settings.secrets),
        library=partial(library_of, offers),
        screen=screening(guardrails, wing),
        console_url=_console_url(settings),
        certificate=settings.server.tls.cert,
    )


def _console_url(settings: Settings) -> str:
    """The address of the console, which its path follows; "": there is none."""
    public, console = settings.server.public_url.rstrip("/"), settings.console
    has_console = public and console.enabled and settings.admin.enabled
    return public + console.path if has_console else ""


def _refuse_call(_context: Context, name: str, _arguments: Mapping[str, Any]) -> NoReturn:
    raise Unavailable(f"{name} cannot be called: `toolgate worker` serves no tools")


def _refuse_read(_context: Context, uri: str) -> NoReturn:
    raise Unavailable(f"{uri} cannot be read: `toolgate worker` serves no resources")


def _refuse_request(_scope: Any) -> NoReturn:
    raise Unavailable("`toolgate worker` serves no requests")


async def _find_no_session(_principal: Principal, _toolset: str | None, *_message: Any) -> bool:
    return False


def library_of(offers: Mapping[str, WingContributions]) -> Library | None:
    """The documents that an open wing keeps; None: no such wing is open."""
    return next((wing.library for wing in offers.values() if wing.library is not None), None)


def concerns_of(offers: Mapping[str, WingContributions]) -> Mapping[str, Concerns]:
    """The concerns of open wings, by their names."""
    return {name: wing.concerns for name, wing in offers.items() if wing.concerns is not None}


def follow_of(offers: Mapping[str, WingContributions]) -> FollowRun | None:
    """The events of runs of the open wing that has the agent; None: it is not open."""
    return next((wing.follow for wing in offers.values() if wing.follow is not None), None)


class WingCalls:
    """Calls of a wing's operations that come over its REST API, guarded like any call of a tool."""

    def __init__(self, name: str, dependencies: WingDependencies, offering: Middleware) -> None:
        self._name = name
        self._offering = offering
        self._dependencies = dependencies
        self._tools: WeakKeyDictionary[Catalog, Mapping[str, Tool]] = WeakKeyDictionary()
        self.wire()

    async def __call__(self, context: Context, request: Request) -> object:
        return await self._handle(context, request)

    def wire(self) -> None:
        """Use the middleware and the guards of now."""
        access = self._dependencies.access
        upstreams: dict[type, Upstream] = {WingBinding: WingUpstream(self._dependencies.upstreams)}
        self._plans = CallPlans(upstreams, call_guards(access), access.policy_view)
        handle: Handler = self._call
        middleware = message_middleware(
            access, counting=self._dependencies.counting(), before_audit=[self._offering]
        )
        for wrap in reversed(middleware):
            handle = wrap(handle, Route(JSON_RPC, OTHER))
        self._handle = handle

    async def _call(self, context: Context, request: Request) -> object:
        """`request`: the id of the operation, and the arguments. An operation that a rule denies is
        one that there is not."""
        context.require_identity()
        unknown = MethodNotFound(f"There is no operation {request.method} here")
        full_catalog = self._dependencies.catalogs.of(context.principal.tenant)
        catalog = self._dependencies.access.policy_view.view(context, full_catalog, full_catalog)
        tool = self._tools_of(catalog).get(request.method)
        if tool is None:
            raise unknown
        plan = self._plans.plan(catalog, tool)
        try:
            return await plan.execute(ToolCall(tool, plan.source, request.params, context))
        except Denied as denied:
            raise unknown from denied

    def _tools_of(self, catalog: Catalog) -> Mapping[str, Tool]:
        """The tools of the wing by the id of their operation."""
        tools = self._tools.get(catalog)
        if tools is None:
            source = catalog.sources.get(self._name)
            is_own = source is not None and source.facts.own  # else of the same name
            wing_tools = (tool for tool in catalog.tools if is_own and tool.source == self._name)
            tools = {cast("WingBinding", tool.binding).operation: tool for tool in wing_tools}
            self._tools[catalog] = tools
        return tools


class _Streaming:
    """A REST API, and an application for requests that accept a stream of events."""

    def __init__(self, api: ASGIApp, streams: ASGIApp) -> None:
        self._api = api
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = (value for name, value in scope["headers"] if name == b"accept")
        streams = any(b"text/event-stream" in media_type for media_type in accepted)
        await (self._streams if streams else self._api)(scope, receive, send)


class _Mounted:
    """A path of a wing: served by what the wing offers for it, while it is open."""

    def __init__(
        self,
        name: str,
        app: Callable[[], ASGIApp | None],
        *,
        limit_bytes: int,
        setting: str,
        identify: Identify | None,
    ) -> None:
        """`limit_bytes`: of a request's body, by `setting`. `identify`: requests of callers that
        it does not know are refused before their bodies are read, but for those of methods that
        have none; None: the application does."""
        self._name = name
        self._app = app
        self._limit_bytes = limit_bytes
        self._setting = setting
        self._identify = identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except ProblemDetails as problem:
            request_id = new_request_id()
            response = problem_response(problem, request_id)
            await send_response(send, response, request_id, head=scope["method"] == "HEAD")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app()
        if app is None:
            raise not_open(self._name)
        if self._identify is not None and scope["method"] not in ("GET", "HEAD"):
            check_known(await self._identify(scope))
        if declared_size(dict(scope["headers"])) > self._limit_bytes:
            raise too_large(self._limit_bytes, self._setting)
        body = LimitedBody(self._limit_bytes, receive, send)
        try:
            await app(scope, body.receive, body.send)
        except (Fault, ExceptionGroup):  # of a task group of the application
            if body.refusal is None:
                raise
        if isinstance(body.refusal, TooManyRequests | Unavailable):
            raise again_later(body.refusal)
        if isinstance(body.refusal, PayloadTooLarge):
            raise too_large(self._limit_bytes, self._setting)
        if body.refusal is not None:
            raise bad_request(f"{body.refusal.message}.")


def viewing(catalogs: Catalogs, policy_view: PolicyView, *, verify_scope: bool) -> View:
    def view(context: Context) -> Catalog:
        tenant = context.principal.tenant
        endpoint, full_catalog = catalogs.of(tenant, context.toolset), catalogs.of(tenant)
        catalog = catalogs.visible(policy_view.view(context, endpoint, full_catalog))
        looks = verify_scope and context.identity.verified
        return catalog.visible_to(context.identity.scopes) if looks else catalog

    return view


def checking(catalogs: Catalogs, policy_view: PolicyView) -> CheckCall:
    own_names: Memo[str, Mapping[str, str]] = Memo(NAMES_KEPT)

    def own_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
        names = own_names.get(tool.digest)
        if names is None:
            names = own_names.put(tool.digest, own_argument_names(tool))
        return restore_names(dict(arguments), names)

    def check(context: Context, name: str, arguments: Mapping[str, Any]) -> Tool:
        tenant = context.principal.tenant
        endpoint, full_catalog = catalogs.of(tenant, context.toolset), catalogs.of(tenant)
        catalog = policy_view.view(context, endpoint, full_catalog)
        tool = catalog.find_called(name)
        if tool is None:
            raise InvalidParams(f"Unknown tool: {name[:100]}")
        checker, tool_arguments = catalog.checker(tool), own_arguments(tool, arguments)
        problems = problems_of(checker, tool_arguments)
        if problems and without_null(tool, checker, tool_arguments) is None:
            raise InvalidParams(f"Invalid arguments for {tool.name}: {problem_text(problems)}")
        if policy_view.decide(context, tool, tool_arguments).effect == "deny":
            raise InvalidParams(f"Unknown tool: {name[:100]}")
        return tool

    return check


def screening(guardrails: Callable[[], Guardrails], wing: str) -> Screen:
    def screen(principal: Principal, name: str, value: Any) -> Any:
        tool = Tool(
            id="", name=name, title=None, description="", input_schema=Raw(b"{}"),
            output_schema=None, annotations=Annotations(), binding=WingBinding(wing, name),
            source=wing, digest="",
        )  # fmt: skip
        call = ToolCall(tool, None, {}, background(principal))
        result = guardrails().screen(call, ToolResult((), Raw(encode(value))))
        if result is None or isinstance(result.structured_content, UnsetType):
            return None
        return decode_json(bytes(result.structured_content))

    return screen


def telling(sessions: Sessions) -> Notify:
    async def tell(
        principal: Principal, toolset: str | None, session_id: str, message: bytes
    ) -> bool:
        if sessions.needs_load(session_id):
            await sessions.load(session_id)
        session = sessions.find(session_id, principal, toolset)
        if session is None:
            return False
        await sessions.notify(session, message)
        return True

    return tell

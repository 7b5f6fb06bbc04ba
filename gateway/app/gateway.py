"""One gateway process: wiring and lifecycle of its parts."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from config.reload import REQUEST_PATH, reload_settings
from config.settings import Settings
from gateway.admin.health import Health
from gateway.admin.http_api import AdminApi
from gateway.admin.registry_parts import no_connection
from gateway.admin.resources.erasures import PersonErasure
from gateway.admin.resources.status import Examine, Restart
from gateway.admin.worker_peers import WorkerPeers
from gateway.app.access import Access
from gateway.app.admin import AdminParts, admin_api, operations_of
from gateway.app.catalogs import make_catalogs, personal_places
from gateway.app.components import components_of, has_jobs
from gateway.app.embedding import Embeddings
from gateway.app.erasers import (
    ErasedPlaces,
    SessionsOfPerson,
    rows_of_costs,
    rows_of_gateway,
    rows_of_login,
)
from gateway.app.method_tables import dispatchers, resource_reader
from gateway.app.metrics import register_gauges
from gateway.app.middleware_order import call_guards, message_middleware
from gateway.app.routes import admission, application, batches_of, fronts, mcp_front
from gateway.app.search_usage import usage_log
from gateway.app.shared_state import SharedState, reap
from gateway.app.stored_secrets import StoredSecrets
from gateway.app.telemetry_exports import make_metrics_export, make_trace_export
from gateway.app.upstreams import Federation, Upstreams
from gateway.audit.erasure import AuditEraser
from gateway.context import Context, Principal
from gateway.interfaces import Events, Guard, Middleware, PersonEraser, Relay, Upstream
from gateway.methods.lists import as_described
from gateway.methods.result_processing import AnswerProcessing, Mismatches
from gateway.middleware.message_metrics import CallMetrics, LegacyUse, Metrics
from gateway.operations.operation_server import OperationServer
from gateway.policy.engine import callers_rules
from gateway.policy.visibility import PolicyView
from gateway.protocol.dispatcher import Dispatcher
from gateway.telemetry.traces import no_trace
from gateway.transports.streamable_http import toolset_fronts, toolset_in, toolset_paths
from gateway.upstreams.http.client import Client
from gateway.upstreams.remote_documents import RemoteDocuments
from gateway.wings.table import enabled_wings, wing_kinds, with_jobs
from registry.catalog.catalog import Catalog
from registry.catalog.feed import Feed
from registry.database.postgres import DatabaseHandle
from registry.display.tool_shaper import ToolShaper
from registry.search import Search
from registry.search.indexes import ensure_indexes
from schemas.jsonrpc import Request

if TYPE_CHECKING:  # a gateway without them does not import them
    from gateway.app.connections import PersonalConnections
    from gateway.app.jobs import Jobs
    from gateway.app.login import Login
    from gateway.app.wings import Wings
    from gateway.console.asgi_app import Console
    from gateway.middleware.cost_ledger import CostLedger
    from gateway.middleware.hooks.configured_hook import Hooks
    from registry.search.read_replica import Replica


class Gateway:
    """The wired parts of one gateway process."""

    def __init__(
        self,
        settings: Settings,
        siblings: WorkerPeers | None = None,
        *,
        has_network_clients: bool = True,
    ) -> None:
        """Wire a gateway. `siblings`: the other workers of this machine (`server.workers`).
        `has_network_clients`: its clients may reach other gateways of its database."""
        self.settings = settings
        self._has_network_clients = has_network_clients
        self.siblings = siblings
        self.restart: Restart | None = None  # set before `app`, by the process that serves it
        self.examine: Examine | None = None  # likewise
        self.events = events = Events()
        self._handle = handle = DatabaseHandle()
        self._drained_by = 0.0  # deadline, monotonic time
        self.principal = Principal("anonymous", settings.tenant.host_id)
        self.metrics = Metrics()
        self.calls = CallMetrics(settings.metrics.tools) if settings.metrics.tools else None
        self.tracing = make_trace_export(settings, self.metrics, self.calls)
        self.metrics_export = make_metrics_export(settings, self.metrics)
        self.legacy_use = LegacyUse()
        self.costs = self._costs()
        self.mismatches = Mismatches()
        self.catalogs = make_catalogs(settings, events)
        policy_view = PolicyView(
            settings.policy,
            settings.limits.json_depth,
            events,
            callers_rules(settings.code, settings.toolsets),
        )
        self.shared = SharedState(
            settings, self.catalogs, handle.database, rules=policy_view.version, events=events
        )
        self.connections = self._connections()
        connector = None if self.connections is None else self.connections.connector
        self.upstreams = Upstreams(settings, handle.pool, connector)
        connections = self.upstreams.client.connections
        self.secrets = StoredSecrets(settings.secrets, self.principal.tenant, connections.store)
        self.federation = Federation(
            settings, self.upstreams.transports, self.shared, self.catalogs, events=events
        )
        self.asking = RemoteDocuments(self.federation.lister, connections, settings.imports)
        self.feed = self._feed()
        self.login = self._login()
        self.access = self._access(policy_view)
        self.embeddings = self._embeddings()
        self.replica = self._replica()
        self.search = self._search()
        self.health = Health(
            self.feed.state,
            self.access.bounds.breaker.states,
            self._states,
            unopened=lambda: () if self.wings is None else self.wings.names_not_ready,
            events=events,
        )
        self._upstreams = self._by_binding()
        self.admin: AdminApi | None = None
        self.console: Console | None = None  # made by `app`, as the admin API is
        self.jobs = self._jobs()
        self.wings = self._wings()
        self.erasure = self._erasure()
        self.dispatcher, self.portal_dispatcher = self._dispatchers()
        self.fronts: dict[str, ASGIApp] = {}  # by path; filled by `app`
        events.toolset_changed.subscribe(self._drop_fronts)
        self._show()

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        # Not asyncio's: its tasks are cancelled once, and under Python 3.11 the pool of psycopg may
        # miss that (`asyncio.wait_for` drops it when a connection arrives at the same moment).
        shared = self.shared
        if self.replica is not None:
            await self.replica.open()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.feed.run)
                tasks.start_soon(reap, shared, self.upstreams.idempotency)
                tasks.start_soon(shared.run)
                tasks.start_soon(self.federation.servers.run)
                tasks.start_soon(self.embeddings.run)
                tasks.start_soon(self.access.run)
                tasks.start_soon(self.access.bounds.shedding.run)
                if self.settings.search.usage_log:
                    tasks.start_soon(usage_log(self.settings.search, self._handle.pool).run)
                exports = (self.tracing, self.metrics_export)
                figures = None if self.console is None else self.console.figures
                parts = (self.wings, self.jobs, figures, self.connections, self.costs)
                for part in (*exports, *parts):
                    if part is not None:
                        tasks.start_soon(part.run)
                try:
                    yield
                finally:
                    self.drain()
                    await self.upstreams.python.finishing.settle(self._drained_by)
                    closed_by = self._drained_by
                    if self.jobs is not None:  # some may be of wings
                        await self.jobs.settle()
                        closed_by = time.monotonic() + self.settings.server.drain_s
                    if self.wings is not None:
                        await self.wings.stop(closed_by)
                    await self.access.settle()
                    if self.costs is not None:
                        await self.costs.flush()
                    tasks.cancel_scope.cancel()
        finally:
            await shared.sessions.close_all()
            await self.federation.close()
            await self.embeddings.close()
            if self.replica is not None:
                await self.replica.close()
            await self.access.close()
            await shared.stores.close()
            await self.upstreams.close()
            for export in (self.tracing, self.metrics_export):
                if export is not None:
                    await export.close()

    def drain(self) -> None:
        """Begin a graceful shutdown: close streams, refuse new work, let running calls finish."""
        if not self.health.draining:
            self._drained_by = time.monotonic() + self.settings.server.drain_s
        self.events.draining.publish()

    async def reconfigure(self, settings: Settings) -> None:
        """Apply settings that need no restart: see `config.reload`. Running calls finish
        with the old ones.

        Raises ToolgateError, before anything has changed, for unusable certificates, and for a
        Python service, function or hook that cannot be loaded; one that is already loaded stays as
        it is.
        """
        settings = reload_settings(self.settings, settings)
        loaded = self.upstreams.load(settings)
        hooks = self.access.hooks.load(settings)
        apply_to_wings = None if self.wings is None else self.wings.prepare(settings)
        self.access.authenticator.reload()
        before, self.settings = self.settings, settings
        self.catalogs.show_scripts(settings.scripts.enabled)
        if apply_to_wings is not None:
            apply_to_wings()
        has_changed = personal_places(before) != personal_places(settings)
        if has_changed or any(
            getattr(before, name) != getattr(settings, name) for name in REQUEST_PATH
        ):
            await self._serve_anew(before, hooks)
        if await self.upstreams.reconfigure(self.settings, loaded):
            self.federation.servers.restart()
        await self.feed.reconfigure(settings.sources, self.upstreams.actions, settings.imports)

    def app(self) -> Starlette:
        """The ASGI application."""
        settings = self.settings
        self.admin = admin_api(self._parts()) if settings.admin.enabled else None
        self.console = self._console(self.admin)
        self.fronts.update(self._fronts())
        registry = self.metrics.registry
        of_wings = 0 if self.wings is None else self.wings.largest_body
        return application(
            settings,
            self.access,
            fronts=self.fronts,
            find_front=self._find_front,
            admin=self.admin,
            console=self.console,
            wings=[] if self.wings is None else self.wings.routes,
            public=[] if self.wings is None else self.wings.public_paths,
            login=self._login_routes(),
            health=self.health,
            metrics=registry,
            lifespan=self.lifespan,
            largest_body=max(
                settings.server.body_limit_bytes, settings.admin.body_limit_bytes, of_wings
            ),
            siblings=self.siblings,
        )

    def _login_routes(self) -> Sequence[BaseRoute]:
        """The routes of the login, and of pages that ask who somebody is."""
        if self.login is None or self.connections is None:
            return ()
        login = self.login.serve(self.access)
        pages = self.connections.pages(
            login,
            access=self.access,
            catalogs=self.catalogs,
            pools=self.upstreams.client.connections,
            outcome=self._outcome,
            notify=self.shared.sessions.notify_id,
        )
        return [*login.routes, *pages.routes]

    async def _serve_anew(self, before: Settings, hooks: "Hooks | None") -> None:
        """Rebuild what serves new requests from the current settings. The catalogs take a moment;
        all else changes at once."""
        settings = self.settings
        personal = personal_places(settings)
        list_settings = (settings.toolsets, settings.profiles, personal)
        if (before.toolsets, before.profiles, personal_places(before)) != list_settings:
            await self.catalogs.reconfigure(settings.toolsets, ToolShaper.of(settings), personal)
        self.access.reconfigure(settings, hooks)
        self.shared.reconfigure(settings.limits)
        self.dispatcher, self.portal_dispatcher = self._dispatchers()
        if self.admin is not None:
            self.admin.serve(operations_of(self._parts()))
        if self.wings is not None:
            self.wings.reconfigure()
        served = self._fronts()
        self.fronts.clear()
        self.fronts.update(served)
        if hooks is not None:
            await hooks.retire_replaced()

    def _fronts(self) -> dict[str, ASGIApp]:
        self._mcp = mcp_front(
            self.settings,
            self.shared,
            dispatcher=self.dispatcher,
            identify=self.access.identify,
            batches=batches_of(self.settings),
            admit=admission(self.catalogs),
        )
        main = fronts(self.settings, self._mcp, self.portal_dispatcher)
        if self.admin is None or not self.settings.admin.tools:
            return main
        return {**main, **self._admin_fronts(self.admin)}

    def _find_front(self, path: str) -> ASGIApp | None:
        """The front of a toolset that is not in the settings. One that no tenant has stored gets a
        front for one request, which refuses as that of another tenant's does."""
        settings = self.settings
        name = toolset_in(path, settings.mcp.path)
        if name is None or f"{path}/".startswith(
            (f"{settings.admin.path}/", f"{settings.console.path}/")
        ):
            return None
        served = toolset_fronts(self._mcp, name)
        if self.catalogs.is_stored(name):
            self.fronts.update(served)
        return served.get(path)

    def _drop_fronts(self, _tenant: str, toolset: str) -> None:
        """Forget the fronts of a toolset that no tenant has any more."""
        if not self.catalogs.is_stored(toolset) and toolset not in self.settings.toolsets:
            for path in toolset_paths(self.settings.mcp.path, toolset):
                self.fronts.pop(path, None)

    def _admin_fronts(self, api: AdminApi) -> Mapping[str, ASGIApp]:
        from gateway.app.admin_tools import admin_fronts

        return admin_fronts(
            self.settings,
            api,
            state=self.shared,
            catalogs=self.catalogs,
            access=self.access,
            costs=self._cost_middleware,
            counting=self._counting,
            answering=self._answering(),
        )

    def _erasure(self) -> PersonErasure:
        """The erasure of people; memories take with them what may be copies of them."""
        pool, settings = self._handle.pool, self.settings

        async def flush_costs() -> None:
            if self.costs is not None:
                await self.costs.flush()

        gateway_erasers: list[PersonEraser] = [
            *rows_of_gateway(settings, pool),
            rows_of_costs(pool, flush_costs),
            SessionsOfPerson(self.shared.sessions),
        ]
        if self.connections is not None and self.login is not None:
            gateway_erasers += rows_of_login(
                pool, self.login.erase, self.connections.connector.erase
            )
        erasure = ErasedPlaces(
            settings=lambda: self.settings,
            pool=pool,
            own=gateway_erasers,
            audit=AuditEraser(pool, settings.audit.key.encode(), self.access.auditing.settle),
            offers={} if self.wings is None else self.wings.offers,
        ).erasure
        self.events.person_erased.subscribe(erasure.erase_copies)
        return erasure

    async def wait_for_wings(self) -> None:
        """Wait until each wing that is not optional has been open."""
        if self.wings is not None:
            await self.wings.wait_until_open()

    def _states(self) -> dict[str, str]:
        """States of the parts that serving depends on, beside the database and the sources."""
        unreachable, state = self.shared.stores.unreachable, self.embeddings.state
        shared = {} if unreachable is None else {"redis": "unreachable" if unreachable() else "ok"}
        failed = state == "ok" and self.search.model_failed
        wings = {} if self.wings is None else self.wings.states
        return {**shared, **wings, "embeddings": "unavailable" if failed else state}

    def _costs(self) -> "CostLedger | None":
        if not self.settings.costs.enabled:
            return None
        from gateway.middleware.cost_ledger import CostLedger

        tenant = self.settings.tenant.host_id
        return CostLedger(self.settings.costs, tenant, self._handle.pool)

    def _wings(self) -> "Wings | None":
        """The wings that are switched on; None: there are none."""
        if not enabled_wings(self.settings):
            return None
        from gateway.app.wings import WingDependencies, Wings

        on_used = None
        if self.costs is not None:
            from gateway.app.costs import listener_of

            on_used = listener_of(self.costs)
        return Wings(
            WingDependencies(
                settings=self.settings,
                handle=self._handle,
                events=self.events,
                catalogs=self.catalogs,
                access=self.access,
                upstreams=self.upstreams.wings,
                offers={},
                metrics=self.metrics.registry,
                counting=lambda: self._counting,
                outcome=self.access.hooks.asking_later(self._outcome),
                stored_answers=self.shared.kept,
                embedder=self.embeddings.embedder,
                search=self.search.run,
                secrets=lambda: self.secrets.entries,
                log=self.shared.stores.log,
                jobs=self.jobs,
                sessions=self.shared.sessions,
                operate=no_trace if self.tracing is None else self.tracing.sampler.operation,
                sign=None if self.login is None else self.login.sign_detached,
                on_used=on_used,
                sources_down=self._sources_down,
            )
        )

    def _sources_down(self) -> Mapping[str, str]:
        """Reasons by source that does not work, as this process sees it."""
        imports = {
            name: "Its description could not be imported."
            for name, state in self.feed.state.sources.items()
            if state == "failed"
        }
        servers = {
            server.source.name: "The MCP server does not answer."
            for server in self.federation.servers
            if server.watcher.failure is not None
        }
        broken = dict.fromkeys(self.health.broken(), "Its calls fail, and are refused for a while.")
        return {**imports, **servers, **broken}

    def _console(self, api: AdminApi | None) -> "Console | None":
        if not self.settings.console.enabled or api is None:
            return None
        from gateway.app.console import CallChains, console_of

        return console_of(
            lambda: self.settings,
            api,
            access=self.access,
            state=self.shared,
            catalogs=self.catalogs,
            metrics=self.metrics,
            pool=self._handle.pool,
            outcome=self._outcome,
            offers={} if self.wings is None else self.wings.offers,
            states=lambda: self.health.details,
            siblings=self.siblings,
            examine=self.examine,
            chains=CallChains(
                client=self.upstreams.client,
                federation=self.federation,
                upstreams=self._by_binding,
                dispatcher=lambda upstreams: self._dispatchers(upstreams)[0],
            ),
        )

    def _catalog(self) -> Catalog:
        return self.catalogs.of(self.principal.tenant)

    def _feed(self) -> Feed:
        settings = self.settings
        return Feed(
            settings.database,
            settings.imports,
            settings.sources,
            self.principal.tenant,
            catalogs=self.catalogs,
            services=self.upstreams.actions,
            lister=self.asking,
            handle=self._handle,
            events=self.events,
            wings=enabled_wings(settings),
            components=components_of(self.settings),
            own_state=self._has_network_clients and settings.state.backend == "memory",
        )

    def _access(self, policy_view: PolicyView) -> Access:
        people = self.connections
        return Access(
            self.settings,
            self._handle,
            sweep=self.shared.hub.sweep,
            counter=self.shared.stores.counter,
            secrets=self.secrets.load,
            policy_view=policy_view,
            catalogs=self.catalogs,
            events=self.events,
            before_rules=() if people is None else [people.guard(policy_view)],
            innermost=self._innermost(),
            login=None if self.login is None else self.login.access,
            connections=None if people is None else people.connector.load,
            sealer=self.federation.sealer,
        )

    def _connections(self) -> "PersonalConnections | None":
        """People's accounts at sources, which need a login: whoever opens a link has to be the
        person who made the call."""
        if not self.settings.login.enabled:
            return None
        from gateway.app.connections import PersonalConnections
        from gateway.app.login import record_acts

        record = record_acts(lambda: self.access, "connection", self.principal.tenant)
        connections = PersonalConnections(lambda: self.settings, self._handle.pool, record)
        self.metrics.registry.register(connections.connector.metrics)
        return connections

    def _login(self) -> "Login | None":
        if not self.settings.login.enabled:
            return None
        from gateway.app.login import Login

        return Login(self.settings, self._handle.pool)

    def _innermost(self) -> list[Guard]:
        """The guards next to a call, of what is switched on."""
        counting = [] if self.calls is None else [self.calls]
        return counting + ([] if self.tracing is None else [self.tracing.sampler])

    def _embeddings(self) -> Embeddings:
        indexed = partial(ensure_indexes, exact_limit=self.settings.search.exact_limit)
        return Embeddings(
            self.settings.embedding,
            self._handle,
            indexed,
            events=self.events,
            kinds=wing_kinds(self.settings),
        )

    def _search(self) -> Search:
        return Search(
            self._handle.pool,
            self.embeddings.embedder,
            self.settings.search,
            when_down=self.settings.disclosure.when_down,
            why=self.embeddings.missing,
            replica=self.replica,
        )

    def _replica(self) -> "Replica | None":
        if not self.settings.database.read_url:
            return None
        from registry.search.read_replica import Replica

        replica = Replica(self.settings.database, self.events.catalog_loaded)
        self.metrics.gauge(
            "toolgate_search_replica_reads",
            "Transactions of searches on the replica.",
            lambda: replica.reads,
        )
        self.metrics.gauge(
            "toolgate_search_replica_fallbacks",
            "Transactions of searches that the primary took over from the replica.",
            lambda: replica.fallbacks,
        )
        return replica

    def _jobs(self) -> "Jobs | None":
        if not has_jobs(self.settings):
            return None
        from gateway.app.jobs import JobRules, Jobs, removal_alone

        server = self._admin_operations
        if not self.settings.admin.enabled:
            alone = removal_alone(self.settings, self._handle)
            server = lambda: alone  # noqa: E731
        rules = JobRules(self.access.policy_view, with_jobs(self.settings), loads=False)
        heard = self.access.auditing.remember_job
        jobs = Jobs(self.settings, self._handle, server, on_act=heard, rules=rules)
        self.events.draining.subscribe(jobs.stop)
        self.metrics.registry.register(jobs)
        return jobs

    def _admin_operations(self) -> OperationServer:
        admin = self.admin
        if admin is None:
            raise LookupError("the admin API is made by `app`")
        return admin.operations

    def _show(self) -> None:
        """Register the metrics collectors."""
        counted = (self.legacy_use, self.mismatches, self.embeddings, self.access.auditing)
        self.metrics.registry.register(self.access.hooks)
        for collector in counted:
            self.metrics.registry.register(collector)
        if self.calls is not None:
            self.metrics.registry.register(self.calls)
        if self.tracing is not None:
            self.metrics.registry.register(self.tracing.sampler)
        self.access.bounds.show(self.metrics)
        state = self.feed.state
        register_gauges(
            self.metrics,
            catalog=self._catalog,
            shared_state=self.shared,
            federation=self.federation,
            state=state,
            health=self.health,
            approvals=lambda: self.access.approvals_waiting,
            certificate=self.settings.server.tls.cert,
        )

    def _parts(self) -> AdminParts:
        people = self.connections
        return AdminParts(
            settings=self.settings,
            pool=self._handle.pool,
            sources=lambda: self.settings.sources,
            lister=self.asking,
            identify=self.access.identify_admin,
            health=self.health,
            load_catalogs=lambda: self.catalogs,
            sessions=self.shared.sessions,
            node=self.shared.bus.node,
            streams=lambda: self.shared.hub.streams,
            engine=self.access.policy_view.engine,
            record=self.access.auditing.remember,
            reload=self.access.reload,
            find=self.search.run,
            functions=lambda: self.upstreams.functions,
            scripts=lambda: self.settings.scripts,
            disconnect=no_connection if people is None else people.connector.disconnect,
            of_wings=() if self.wings is None else self.wings.admin_operations,
            jobs_of_wings=tuple if self.jobs is None else self.jobs.of_wings,
            restart=self.restart,
            defer=self.jobs.defer if self.jobs is not None else None,
            erasure=self.erasure,
        )

    def _by_binding(
        self, mcp: Upstream | None = None, client: Client | None = None
    ) -> Mapping[type, Upstream]:
        """The upstreams; those with another `mcp` and `client` are for one call."""
        reads, answers = resource_reader(self._outcome), self.shared.kept
        return self.upstreams.by_binding(
            mcp or self.federation.upstream, answers, reads, client, sealer=self.federation.sealer
        )

    async def _outcome(self, context: Context, request: Request) -> Any:
        """The outcome of a request that a tool call makes, with the current middleware."""
        return await self.dispatcher.outcome(context, request)

    @property
    def _counting(self) -> list[Middleware]:
        counting = self.metrics if self.tracing is None else self.tracing.sampler
        return [counting.middleware, self.legacy_use.middleware]

    @property
    def _cost_middleware(self) -> list[Middleware]:
        return [] if self.costs is None else [self.costs.middleware]

    @property
    def guards(self) -> list[Guard]:
        """Guards of every call, outermost first; a call passes those that apply to its tool."""
        return call_guards(self.access, innermost=[] if self.wings is None else self.wings.guards)

    @property
    def executors(self) -> Mapping[type, Upstream]:
        """Upstreams by the class of the bindings that they execute."""
        return self._upstreams

    def _answering(self) -> AnswerProcessing:
        answers, validated = self.shared.kept, self.upstreams.validated
        return AnswerProcessing(answers, self.settings.answers.tokens, validated, self.mismatches)

    def _dispatchers(
        self, upstreams: Mapping[type, Upstream] | None = None
    ) -> tuple[Dispatcher, Dispatcher]:
        """The dispatchers; those on other `upstreams` are for one call."""
        offering = [] if self.wings is None else [self.wings.middleware]
        relay: Relay = self.federation.relay
        answering, people = [] if self.wings is None else [self.wings.answering], self.connections
        return dispatchers(
            self.settings,
            catalogs=self.catalogs,
            upstreams=self._upstreams if upstreams is None else upstreams,
            access=self.access,
            federation=self.federation,
            relay=relay if self.wings is None else self.wings.relay(relay),
            state=self.shared,
            middleware=message_middleware(
                self.access,
                costs=self._cost_middleware,
                counting=self._counting,
                before_audit=offering,
                innermost=answering,
            ),
            guards=self.guards,
            answering=self._answering(),
            find=self.search.run,
            pool=self._handle.pool,
            accounts=None
            if people is None
            else partial(people.tool, self.catalogs, self.upstreams.client.connections),
            complete=as_described if self.wings is None else self.wings.complete_results,
        )


def build_app(settings: Settings) -> Starlette:
    """The gateway as an ASGI application, for any ASGI server."""
    return Gateway(settings).app()

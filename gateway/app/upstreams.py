"""Wiring of the upstreams: the HTTP client, Python services, MCP servers behind the gateway."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from config.settings import Scripts, Settings
from config.sources import SourceSettings
from gateway.app.shared_state import SharedState
from gateway.hybrid.functions import Function, load_functions
from gateway.hybrid.python_services import Service
from gateway.hybrid.python_services import load as load_service
from gateway.interfaces import Events, Upstream
from gateway.methods.results_by_revision import SERVER
from gateway.protocol.sealed_state import Sealer, TaskIds
from gateway.state.background_tasks import BackgroundTasks
from gateway.state.change_streams import Endpoint
from gateway.state.idempotency import Idempotency
from gateway.state.stored_answers import StoredAnswers
from gateway.upstreams.a2a.card_watch import CardWatch
from gateway.upstreams.a2a.upstream import A2aUpstream
from gateway.upstreams.auth.caller import OwnAudiences
from gateway.upstreams.auth.personal_accounts import Connector
from gateway.upstreams.function import FunctionUpstream
from gateway.upstreams.graphql.upstream import GraphQLUpstream
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.downloads import Downloads
from gateway.upstreams.http.source_pools import contexts
from gateway.upstreams.http.uploads import ReadResource, Uploads
from gateway.upstreams.hybrid.upstream import HybridUpstream
from gateway.upstreams.mcp.list_reader import Lister
from gateway.upstreams.mcp.parked_calls import DeferredCalls, ParkedCalls, RemoteParking
from gateway.upstreams.mcp.relay import McpRelay, McpUpstream
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.transport_choice import Transports
from gateway.upstreams.python import ActionLimits, PythonUpstream
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from gateway.upstreams.script import ScriptUpstream
from gateway.upstreams.wing import WingUpstream
from registry.catalog.catalog import Catalog, ResourceLocation
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Pool
from schemas.binding import (
    A2aBinding,
    Binding,
    FunctionBinding,
    GraphQLBinding,
    HybridBinding,
    McpBinding,
    OpenAPIBinding,
    PythonBinding,
    ScriptBinding,
    WingBinding,
)
from schemas.errors import MethodNotFound, ToolgateError
from schemas.hybrid import Action
from schemas.mcp.messages import ListKind

_NONE: Mapping[str, Service] = {}

ALL_LISTS: frozenset[ListKind] = frozenset({"tools", "prompts", "resources"})


def load_services(
    sources: Mapping[str, SourceSettings], earlier: Mapping[str, Service] = _NONE
) -> dict[str, Service]:
    """Load the Python services. Raises ToolgateError that names every source that fails."""
    services: dict[str, Service] = {}
    broken: list[str] = []
    for name, source in sources.items():
        if source.python is not None:
            service = earlier.get(name)
            try:
                if service is None or service.target != source.python:
                    service = load_service(source.python)
                services[name] = service
            except ToolgateError as error:
                broken.append(f"sources.{name}.python: {error}")
    if broken:
        raise ToolgateError("\n  ".join(broken))
    return services


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Loaded Python services and functions, by their names in the settings."""

    services: dict[str, Service]
    functions: dict[str, Function]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Shared components of the upstreams."""

    client: Client
    uploads: Uploads
    downloads: Downloads
    python: PythonUpstream
    mcp: Upstream
    functions: Mapping[str, Function]  # by their names in the current settings
    timeout_of: Callable[[str], float]  # seconds, by the name of a source
    scripts: Callable[[], Scripts]
    wings: Mapping[str, Upstream]  # those that are open, by name
    sealer: Callable[[], Awaitable[Sealer]]
    background: BackgroundTasks


UPSTREAMS: dict[type[Binding], Callable[[Parts], Upstream]] = {
    OpenAPIBinding: lambda of: OpenAPIUpstream(of.client, of.uploads, of.downloads),
    GraphQLBinding: lambda of: GraphQLUpstream(of.client),
    HybridBinding: lambda of: HybridUpstream(of.client),
    PythonBinding: lambda of: of.python,
    McpBinding: lambda of: of.mcp,
    A2aBinding: lambda of: A2aUpstream(of.client, of.uploads, of.sealer, of.background),
    FunctionBinding: lambda of: FunctionUpstream(of.functions, of.python, of.timeout_of),
    ScriptBinding: lambda of: ScriptUpstream(of.scripts),
    WingBinding: lambda of: WingUpstream(of.wings),
}
"""What makes the executor of a kind of bindings; see `schemas.source.KINDS`."""


def _client(settings: Settings) -> type[Client]:
    if not settings.tracing.enabled:
        return Client
    from gateway.upstreams.http.traced_client import TracedClient

    return TracedClient


class Upstreams:
    def __init__(
        self,
        settings: Settings,
        pool: Callable[[], Pool | None],
        connector: Connector | None = None,
    ) -> None:
        """`connector`: of people's accounts at sources; None: nobody logs in here."""
        self._settings = settings
        self.validated = set(_validated_sources(settings))  # sources; the set follows the settings
        self.services = load_services(settings.sources)
        self.functions = load_functions(settings.functions)
        self.wings: dict[str, Upstream] = {}  # those that are open, by name
        self._background = BackgroundTasks()  # what cancels tasks of agents
        upstream, sources = settings.upstream, settings.sources
        audiences = OwnAudiences.of(settings.auth, settings.server.public_url)
        self.client = _client(settings)(upstream, sources, audiences, connector)
        self.transports = Transports(
            self.client.connections, upstream, sources, msgspec.to_builtins(SERVER)
        )
        self.idempotency = Idempotency(pool, settings.portal.idempotency_ttl_s)
        limits = ActionLimits(self._timeout_of, upstream.python_threads, upstream.python_calls)
        self.python = PythonUpstream(self.services, self.idempotency.once, limits)

    @property
    def actions(self) -> dict[str, Sequence[Action]]:
        """The actions of each Python service."""
        return {name: service.actions for name, service in self.services.items()}

    def by_binding(
        self,
        mcp: Upstream,
        stored_answers: StoredAnswers,
        read_resource: ReadResource,
        client: Client | None = None,
        *,
        sealer: Callable[[], Awaitable[Sealer]],
    ) -> dict[type, Upstream]:
        """The upstreams by the class of the bindings that they execute; `mcp` is one of them.
        `client`: another one than that of all calls."""
        answers = self._settings.answers
        downloads = Downloads(stored_answers, answers.inline_bytes, answers.download_bytes)
        uploads = Uploads(lambda: self._settings.upstream, read_resource)
        parts = Parts(
            client=client or self.client,
            uploads=uploads,
            downloads=downloads,
            python=self.python,
            mcp=mcp,
            functions=self.functions,
            timeout_of=self._timeout_of,
            scripts=lambda: self._settings.scripts,
            wings=self.wings,
            sealer=sealer,
            background=self._background,
        )
        return {binding: make(parts) for binding, make in UPSTREAMS.items()}

    def load(self, settings: Settings) -> LoadedCode:
        """Load what new settings add; loaded code stays as it is. Raises ToolgateError, also for
        unusable certificates."""
        contexts(settings.sources)
        return LoadedCode(
            load_services(settings.sources, self.services),
            load_functions(settings.functions, self.functions),
        )

    async def reconfigure(self, settings: Settings, code: LoadedCode) -> bool:
        """Apply loaded code and settings of sources; returns whether the latter have changed."""
        before, self._settings = self._settings, settings
        self.validated.clear()
        self.validated.update(_validated_sources(settings))
        self.services.clear()
        self.services.update(code.services)
        self.functions.clear()
        self.functions.update(code.functions)
        if (before.upstream, before.sources) == (settings.upstream, settings.sources):
            return False
        await self.client.configure(settings.upstream, settings.sources)
        self.transports.configure(settings.upstream, settings.sources)
        return True

    async def close(self) -> None:
        await self.client.close()  # which ends what runs in the background
        await self._background.drain()

    def _timeout_of(self, source: str) -> float:
        adjusted = self._settings.sources.get(source)
        return (adjusted and adjusted.timeout_s) or self._settings.upstream.timeout_s


def _validated_sources(settings: Settings) -> Iterator[str]:
    """The sources whose answers are validated against their description."""
    sources = settings.sources.items()
    return (name for name, adjusted in sources if adjusted.validate_answers == "report")


class Federation:
    """Implements `ChangeSubscriber`, for the servers of one tenant."""

    def __init__(
        self,
        settings: Settings,
        transports: Transports,
        state: SharedState,
        catalogs: Catalogs,
        *,
        events: Events,
    ) -> None:
        mcp, upstream = settings.mcp, settings.upstream
        self._tenant = settings.tenant.host_id
        self._fail_closed = mcp.when_down == "fail_closed"
        self._stores = stores = state.stores
        self._hub = state.hub
        self._catalogs = catalogs
        self._sealer: Sealer | None = None
        self._watched: dict[
            tuple[Endpoint, str], ResourceLocation
        ] = {}  # as it was when the watch began
        self._events = events
        self.servers = Servers(transports, self, upstream)
        self.lister = Lister(self.servers, upstream)
        self.cards = CardWatch(settings.imports, upstream.a2a_refresh_s, self.lists_changed)
        self.parking = ParkedCalls(mcp.parked_calls, mcp.parked_s)
        remote = RemoteParking(state.bus, stores.log, stores.sessions, self.parking)
        deferred = DeferredCalls(
            self.parking, remote, node=state.bus.node, sealer=self.sealer, parked_s=mcp.parked_s
        )
        self.relay = McpRelay(self.servers, deferred, upstream.mcp_client_requests)
        self.task_ids = TaskIds(self.sealer)
        self.upstream = McpUpstream(self.relay, self.task_ids)
        events.catalog_loaded.subscribe(self._follow)
        events.watch_changed.subscribe(self._watch_changed)
        events.session_ended.subscribe(lambda session: self.servers.close_owner(session.id))

    async def sealer(self) -> Sealer:
        """Encryption of client-held state. Raises Unavailable while the secret is unreadable."""
        if self._sealer is None:
            self._sealer = Sealer(await self._stores.secret())
        return self._sealer

    def _follow(self, tenant: str) -> None:
        """Watch the servers in the catalog of `tenant`, which has been loaded."""
        if tenant == self._tenant:
            sources = self._catalogs.of(tenant).sources.values()
            self.servers.follow(sources)
            self.cards.follow(sources)

    def down(self, tenant: str, catalog: Catalog) -> Sequence[str]:
        """The servers of `catalog` that are unreachable."""
        failures = self.servers.failures() if tenant == self._tenant else {}
        return [name for name in catalog.servers if name in failures]

    async def lists_changed(self, source: str) -> None:
        await self._events.source_changed.publish(source)

    def resource_changed(self, source: str, uri: str) -> None:
        for toolset in (None, *self._catalogs.toolsets_of(self._tenant)):
            exposed = self._catalogs.of(self._tenant, toolset).expose(source, uri)
            self._hub.resource_updated(self._tenant, toolset, exposed)

    def reachability_changed(self, source: str) -> None:
        if source not in self.servers.failures():
            self._events.source_recovered.publish(source)
        if self._fail_closed:
            self._hub.change(self._tenant, ALL_LISTS)

    async def close(self) -> None:
        self.parking.close()
        await self.cards.close()
        await self.servers.close()

    async def _watch_changed(self, place: Endpoint, uri: str, begins: bool) -> None:
        if begins:
            located = self._catalogs.of(*place).locate(uri)
            if located is None:
                raise MethodNotFound("No server here has this resource")
            await self.relay.watch(located.source, located.uri)
            self._watched[place, uri] = located
        elif located := self._watched.pop((place, uri), None):
            await self.relay.unwatch(located.source, located.uri)

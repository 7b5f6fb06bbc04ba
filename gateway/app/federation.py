"""The MCP servers behind the gateway, wired to the registry and to the gateway's clients."""

from collections.abc import Awaitable, Callable, Sequence

from config.settings import Settings
from gateway.app.shared import Shared
from gateway.protocol.sealed import Sealer
from gateway.protocol.task_ids import TaskIds
from gateway.state.watches import Place
from gateway.upstreams.mcp.deferred import Deferred
from gateway.upstreams.mcp.lister import Lister
from gateway.upstreams.mcp.parking import Parking
from gateway.upstreams.mcp.relay import McpRelay
from gateway.upstreams.mcp.remote import RemoteParking
from gateway.upstreams.mcp.servers import Servers
from gateway.upstreams.mcp.upstream import McpUpstream
from gateway.upstreams.mcp.ways import Ways
from registry.catalog.catalog import Catalog, Kind, Located
from registry.catalog.catalogs import Catalogs
from schemas.errors import MethodNotFound

ALL_LISTS: frozenset[Kind] = frozenset({"tools", "prompts", "resources"})


class Federation:
    """Implements `Audience`, for the servers of one tenant."""

    def __init__(self, settings: Settings, ways: Ways, shared: Shared, catalogs: Catalogs) -> None:
        mcp, upstream = settings.mcp, settings.upstream
        self._toolsets = tuple(settings.toolsets)
        self._tenant = settings.tenant.host_id
        self._fail_closed = mcp.when_down == "fail_closed"
        self._stores = stores = shared.stores
        self._hub = shared.hub
        self._catalogs = catalogs
        self._sealer: Sealer | None = None
        self._watched: dict[tuple[Place, str], Located] = {}  # as it was when that began
        self.refresh: Callable[[str], Awaitable[None]] = _nothing  # read a source's lists again
        self.came: Callable[[str], None] = _unheard  # hears of servers that answer again
        self.servers = Servers(ways, self, upstream)
        self.lister = Lister(self.servers, upstream)
        self.parking = Parking(mcp.parked_calls, mcp.parked_s)
        remote = RemoteParking(shared.bus, stores.log, stores.sessions, self.parking)
        deferred = Deferred(self.parking, remote, shared.bus.node, self.sealer, mcp.parked_s)
        self.relay = McpRelay(self.servers, deferred, upstream.mcp_asks)
        self.task_ids = TaskIds(self.sealer)
        self.upstream = McpUpstream(self.relay, self.task_ids)
        shared.hub.watches.connect = self._connect
        shared.sessions.on_drop = self.servers.owner_left

    def reconfigure(self, settings: Settings) -> None:
        self._toolsets = tuple(settings.toolsets)

    async def sealer(self) -> Sealer:
        """Of what clients carry for us. Raises Unavailable while the secret cannot be read."""
        if self._sealer is None:
            self._sealer = Sealer(await self._stores.secret())
        return self._sealer

    def follow(self, tenant: str) -> None:
        """The catalog of `tenant` has been loaded: watch the servers in it."""
        if tenant == self._tenant:
            self.servers.follow(self._catalogs.of(tenant).sources.values())

    def down(self, tenant: str, catalog: Catalog) -> Sequence[str]:
        """The servers of `catalog` that do not answer."""
        failures = self.servers.failures() if tenant == self._tenant else {}
        return [name for name in catalog.servers if name in failures]

    async def lists_changed(self, source: str) -> None:
        await self.refresh(source)

    def resource_changed(self, source: str, uri: str) -> None:
        for toolset in (None, *self._toolsets):
            exposed = self._catalogs.of(self._tenant, toolset).expose(source, uri)
            self._hub.resource_updated(self._tenant, toolset, exposed)

    def came_or_went(self, source: str) -> None:
        if source not in self.servers.failures():
            self.came(source)
        if self._fail_closed:
            self._hub.changed(self._tenant, ALL_LISTS)

    async def close(self) -> None:
        self.parking.close()
        await self.servers.close()

    async def _connect(self, place: Place, uri: str, begins: bool) -> None:
        if begins:
            located = self._catalogs.of(*place).locate(uri)
            if located is None:
                raise MethodNotFound("No server here has this resource")
            await self.relay.watch(located.source, located.uri)
            self._watched[place, uri] = located
        elif located := self._watched.pop((place, uri), None):
            await self.relay.unwatch(located.source, located.uri)


def _unheard(_source: str) -> None: ...


async def _nothing(_source: str) -> None: ...

"""Status of the gateway, and its toolsets."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from config.settings import Toolset
from config.value_types import DisclosureMode
from gateway.admin.health import Health
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import ProblemDetails, conflict, not_found
from registry.catalog.catalogs import Catalogs

READ = "admin:registry:read"
RESTART = "admin:sessions:write"  # it ends sessions


class GatewayStatus(Struct, frozen=True):
    """Status of this gateway. `sources` are those of the settings, with the result of their import;
    they and totals over all tenants are visible to the gateway's own tenant and to operators."""

    status: str
    version: str
    node: str
    database: str
    ready: bool
    tools: int
    sessions: int | None
    streams: int | None
    sources: Mapping[str, str]


class ToolsetView(Struct, frozen=True):
    """A toolset of the settings, and its number of tools. Its filters are visible to the gateway's
    own tenant."""

    name: str
    sources: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    mode: DisclosureMode | None
    tools: int


Numbers = Callable[[], tuple[str, str, int, int]]
"""Version, node, sessions and streams of this gateway."""


class Restarted(Struct, frozen=True):
    """Restarted part: the program, or the settings alone where one process serves."""

    restarts: Literal["program", "settings"]


Restart = Callable[[], Restarted]
Examine = Callable[[], Awaitable[Sequence[Mapping[str, str]]]]
"""The checks of `toolgate doctor`, each with `status`, `name` and `detail`; none where they cannot
be made."""


class StatusOperations:
    def __init__(
        self,
        dependencies: OperationDependencies,
        health: Health,
        *,
        catalogs: Catalogs,
        toolsets: Mapping[str, Toolset],
        numbers: Numbers,
        restart: Restart | None,
    ) -> None:
        """`restart`: None where the process is another program's."""
        self._dependencies = dependencies
        self._health = health
        self._catalogs = catalogs
        self._toolsets = toolsets
        self._numbers = numbers
        self._restart = restart

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "getStatus", "GET", "/status", "Show the status of this gateway.", READ,
                self.status, GatewayStatus,
            ),
            Operation(
                "listToolsets", "GET", "/toolsets", "List the toolsets.", READ, self.list,
                ListPage[ToolsetView], query=Paging,
            ),
            Operation(
                "getToolset", "GET", "/toolsets/{toolset}", "Show a toolset.", READ, self.get,
                ToolsetView,
            ),
            Operation(
                "restartGateway", "POST", "/restart",
                "Read the settings anew, and replace the processes once others are ready.", RESTART,
                self.restart, Restarted, 202, problems=(403, 409),
                no_tool="it restarts what its caller talks to",
            ),
        )  # fmt: skip

    async def restart(self, request: OperationInput) -> Restarted:
        if not self._dependencies.is_operator(request):
            raise ProblemDetails(403, "forbidden", "Only operators restart the gateway.")
        if self._restart is None:
            raise conflict("This process was not started by `toolgate serve`.")
        return self._restart()

    async def status(self, request: OperationInput) -> GatewayStatus:
        version, node, sessions, streams = self._numbers()
        feed, operator = self._health.feed, self._dependencies.is_operator(request)
        return GatewayStatus(
            status=self._health.status,
            version=version,
            node=node,
            database=feed.database,
            ready=self._health.ready,
            tools=len(self._catalogs.of(request.tenant).tools),
            sessions=sessions if operator else None,
            streams=streams if operator else None,
            sources=feed.sources if self._dependencies.is_own(request) else {},
        )

    async def list(self, request: OperationInput) -> ListPage[ToolsetView]:
        views = [self._view(request, name) for name in self._toolsets]
        return self._dependencies.pages.page(request.query, views, lambda one: one.name)

    async def get(self, request: OperationInput) -> ToolsetView:
        name = request.names["toolset"]
        if name not in self._toolsets:
            raise not_found("toolset", name)
        return self._view(request, name)

    def _view(self, request: OperationInput, name: str) -> ToolsetView:
        toolset = self._toolsets[name]
        tools = len(self._catalogs.of(request.tenant, name).tools)
        visible = toolset if self._dependencies.is_own(request) else Toolset()
        return ToolsetView(
            name=name,
            sources=tuple(visible.sources),
            include=tuple(visible.include),
            exclude=tuple(visible.exclude),
            mode=toolset.mode,
            tools=tools,
        )

"""Status of the gateway."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from gateway.admin.health import Health
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.problems import ProblemDetails, conflict
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
        numbers: Numbers,
        restart: Restart | None,
    ) -> None:
        """`restart`: None where the process is another program's."""
        self._dependencies = dependencies
        self._health = health
        self._catalogs = catalogs
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

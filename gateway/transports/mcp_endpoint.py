"""Shared base of the two MCP transports: the parts of the gateway, and the toolset of an
endpoint."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.types import Scope

from gateway.context import Identify, Principal, QueryOptions, Session
from gateway.protocol.batches import Batches
from gateway.protocol.dispatcher import Dispatcher
from gateway.state.change_streams import Hub
from gateway.state.client_requests import ClientRequests
from gateway.state.session_streams import Streams
from gateway.state.sessions import Sessions
from gateway.transports.http_messages import query_options, query_value
from schemas.errors import SessionNotFound, UnknownToolset

NO_TOOLSET = "There is no such toolset, or it is not for your roles"


def _unknown(_principal: Principal, _toolset: str) -> None:
    raise UnknownToolset(NO_TOOLSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpFront:
    dispatcher: Dispatcher
    sessions: Sessions
    hub: Hub
    streams: Streams
    asks: ClientRequests
    identify: Identify
    batches: Batches
    body_limit_bytes: int
    keep_alive_s: float
    drain_s: float
    retry_ms: int = 1000
    sessionless: bool = False
    get_opens_sse: bool = True
    path: str = "/mcp"
    admit: Callable[[Principal, str], None] = _unknown  # to a toolset; raises UnknownToolset
    profiles: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class McpEndpoint:
    """An MCP endpoint: of all tools, or of one toolset."""

    front: McpFront
    toolset: str | None = None

    def toolset_of(self, scope: Scope) -> str | None:
        """The toolset of a request: `?scope=` may select one. Raises UnknownToolset for a second
        one; whether the caller may use it is decided by `McpFront.admit`."""
        if not scope["query_string"]:
            return self.toolset
        toolset = query_value(scope, "scope")
        if self.toolset is not None and toolset not in (None, self.toolset):
            raise UnknownToolset(NO_TOOLSET)
        return self.toolset if toolset is None else toolset

    def admitted_toolset(self, scope: Scope, principal: Principal) -> str | None:
        """The toolset of a request of `principal`. Raises UnknownToolset."""
        toolset = self.toolset_of(scope)
        if toolset is not None:
            self.front.admit(principal, toolset)
        return toolset

    def query_options(self, scope: Scope) -> QueryOptions:
        """The other options in the query. Raises InvalidRequest."""
        return query_options(scope, self.front.profiles)

    async def session(self, scope: Scope, session_id: str, principal: Principal) -> Session:
        """The open session, if it is the principal's and of this endpoint. Raises SessionNotFound,
        and Unavailable."""
        toolset, sessions = self.admitted_toolset(scope, principal), self.front.sessions
        if sessions.needs_load(session_id):
            await sessions.load(session_id)
        session = sessions.find(session_id, principal, toolset)
        if session is None:
            raise SessionNotFound("Session not found: it ended or never was")
        return session

    def message_path(self, toolset: str | None) -> str:
        """The path to which a 2024-11-05 client of the toolset POSTs its messages."""
        below = f"{self.front.path}/{toolset}" if toolset else self.front.path
        return f"{below}/message"

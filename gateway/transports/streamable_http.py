"""The MCP endpoint: streamable HTTP of 2025-03-26 to 2025-11-25 and of 2026-07-28, on one path.

A GET without a session is treated as one of a 2024-11-05 client configured with this URL: it gets
that revision's stream, unless the settings disable this.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.context import Identity, Principal, Session
from gateway.protocol.admission import Headers, check_version
from gateway.protocol.sse import STANDALONE, read_position
from gateway.transports.event_stream import EventStreams
from gateway.transports.http_sse import HttpSseEndpoint
from gateway.transports.mcp import McpEndpoint, McpFront
from gateway.transports.post import Posting
from gateway.transports.request import (
    RequestHeaders,
    header,
    read_headers,
    require_acceptable,
)
from gateway.transports.responses import Responder
from schemas.errors import Fault, MethodNotAllowed, SessionRequired
from schemas.mcp.revisions import STATELESS


class StreamableHTTP:
    """ASGI application of the MCP endpoint, or of a toolset's."""

    def __init__(self, endpoint: McpEndpoint, http_sse: HttpSseEndpoint) -> None:
        self._endpoint = endpoint
        self._front = endpoint.front
        self._http_sse = http_sse
        self._event_streams = EventStreams(endpoint.front)
        posting = Posting(endpoint)
        self._verbs = {"POST": posting.serve, "GET": self._get, "DELETE": self._delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" and self._begins_old_stream(scope):
            await self._http_sse(scope, receive, send)
            return
        responder = Responder(send)
        serve = self._verbs.get(scope["method"], self._not_allowed)
        try:
            identity = await self._front.identify(scope)
            if identity.refusal is not None:
                raise identity.refusal
            await serve(scope, receive, responder, identity)
        except Fault as fault:
            await responder.fault(fault)

    async def _get(
        self, scope: Scope, receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        """Open the standalone stream, or resume a stream."""
        headers = _handshake_headers(scope)
        require_acceptable(headers.accept, "text/event-stream")
        session = await self._session(scope, headers, identity.principal)
        last = header(scope, b"last-event-id")
        position = read_position(last) if last else None
        if position is None or position.stream == STANDALONE:
            await self._event_streams.standalone(session, position, identity, receive, responder)
        else:
            await self._event_streams.replay(session, position, identity, receive, responder)

    async def _delete(
        self, scope: Scope, _receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        headers = _handshake_headers(scope)
        session = await self._session(scope, headers, identity.principal)
        await self._front.sessions.delete(session)
        await responder.empty(204)

    async def _not_allowed(
        self, scope: Scope, _receive: Receive, _responder: Responder, _identity: Identity
    ) -> None:
        verbs = ", ".join(self._verbs)
        raise MethodNotAllowed(f"{scope['method'][:20]} is not part of MCP: {verbs}", verbs)

    def _begins_old_stream(self, scope: Scope) -> bool:
        headers = read_headers(scope)
        return (
            self._front.get_opens_sse
            and headers.session is None
            and headers.version is None
            and "text/event-stream" in (headers.accept or "")  # not a browser
            and not header(scope, b"last-event-id")
        )

    async def _session(self, scope: Scope, headers: Headers, principal: Principal) -> Session:
        if headers.session is None:
            raise SessionRequired(
                "Mcp-Session-Id is missing. POST `initialize` first; 2024-11-05 clients use the "
                "/sse endpoint below this one"
            )
        return await self._endpoint.session(scope, headers.session, principal)


def mcp_fronts(front: McpFront) -> dict[str, ASGIApp]:
    """The applications of all MCP paths: of all tools, and of each toolset."""
    fronts: dict[str, ASGIApp] = {}
    for toolset in (None, *front.toolsets):
        fronts |= toolset_fronts(front, toolset)
    return fronts


def toolset_fronts(front: McpFront, toolset: str | None) -> dict[str, ASGIApp]:
    """The applications of the paths of one toolset; None: of all tools."""
    endpoint = McpEndpoint(front, toolset)
    path = f"{front.path}/{toolset}" if toolset else front.path
    http_sse = HttpSseEndpoint(endpoint)
    return {
        path: StreamableHTTP(endpoint, http_sse),
        f"{path}/sse": http_sse,
        f"{path}/message": http_sse,
    }


def _handshake_headers(scope: Scope) -> RequestHeaders:
    """The headers of a method that needs a session. Raises MethodNotAllowed, or for an unknown
    version."""
    headers = read_headers(scope)
    if headers.version in STATELESS:
        raise MethodNotAllowed("2026-07-28 has POST only; use subscriptions/listen", "POST")
    check_version(headers)
    return headers

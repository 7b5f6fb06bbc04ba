"""POST of the MCP endpoint: a message or a batch, and its answer.

The answer is JSON, unless messages or long silence precede it: then it is an event stream, which a
client in a session can resume. For a client that accepts no event stream it is always JSON, without
messages before it."""

import re
from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.context import NO_OPTIONS, Context, Identity, Principal, Session
from gateway.protocol.admission import AdmittedRequest, Headers, admit, check_version
from gateway.protocol.batches import member_server
from gateway.protocol.cancellable_requests import run_cancellable
from gateway.protocol.dispatcher import UnknownMethod
from gateway.protocol.sse_writer import STANDALONE, read_position
from gateway.state.session_streams import Ids
from gateway.transports.client_connection import (
    WATCH_S,
    DisconnectWatch,
    KeepAliveTimer,
    PostPeer,
    SessionPeer,
)
from gateway.transports.event_stream import EventStreams
from gateway.transports.http_messages import (
    JSON,
    JSON_TYPE,
    SSE_TYPE,
    RequestHeaders,
    Responder,
    accepts,
    call_headers,
    fault_headers,
    header,
    one_command,
    read_body,
    read_headers,
    require_acceptable,
    require_json,
)
from gateway.transports.http_sse import HttpSseEndpoint
from gateway.transports.mcp_endpoint import McpEndpoint, McpFront
from schemas.errors import (
    ClaimsRequired,
    Fault,
    HeaderMismatch,
    MethodNotAllowed,
    MissingClientCapability,
    Overloaded,
    SessionRequired,
    TooManyRequests,
    UnsupportedProtocolVersion,
)
from schemas.hybrid import ScopeMismatch
from schemas.jsonrpc import (
    ErrorReply,
    Invalid,
    Message,
    Reply,
    Request,
    RequestId,
    Response,
    decode,
    pieces,
)
from schemas.mcp.revisions import STATELESS, Revision

TOOLSET_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

# Errors that 2026-07-28 maps to HTTP 400; method not found has a status of its own per revision.
_SAID_BY_STATUS = (
    HeaderMismatch.code,
    MissingClientCapability.code,
    UnsupportedProtocolVersion.code,
)


class PostHandler:
    def __init__(self, endpoint: McpEndpoint) -> None:
        self._endpoint = endpoint
        self._front = endpoint.front
        self._pulse = KeepAliveTimer(endpoint.front.keep_alive_s)
        self._watches = KeepAliveTimer(WATCH_S)
        self._serve_member = member_server(endpoint.front.dispatcher)

    async def serve(
        self, scope: Scope, receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        headers, front, endpoint = read_headers(scope), self._front, self._endpoint
        if headers.content_type != JSON_TYPE:
            require_json(headers.content_type)
        if headers.accept is None or JSON_TYPE not in headers.accept:
            require_acceptable(headers.accept, JSON_TYPE, SSE_TYPE)
        accept = headers.accept  # what most clients send is seen without a call
        streams = accept is None or SSE_TYPE in accept or accepts(accept, SSE_TYPE)
        toolset, options = endpoint.toolset, NO_OPTIONS
        if toolset is not None or scope["query_string"]:
            toolset = endpoint.admitted_toolset(scope, identity.principal)
            options = endpoint.query_options(scope)
        limits = front.batches.limits
        body = await read_body(headers.content_length, receive, front.body_limit_bytes)
        message = decode(body, limits.items, limits.depth)
        principal, sessions = identity.principal, front.sessions
        try:
            if headers.session is not None and sessions.needs_load(headers.session):
                await sessions.load(headers.session)
            find = partial(sessions.find, principal=principal, toolset=toolset)
            admitted = admit(headers, message, find, front.sessionless)
            mirrored = headers.mirrored if admitted.revision.routing_headers else None
            carried = call_headers(headers, scope, routing_headers=mirrored)
            if isinstance(message, list):
                one_command(carried)
            session = admitted.session
            if admitted.opens is not None:
                session = await self._open(admitted, principal, toolset)
        except Fault as fault:
            await responder.fault(fault, _id_of(message))
            return
        peer = (
            PostPeer(responder, self._pulse)
            if session is None
            else SessionPeer(
                responder, self._pulse, front=front, session=session, ids=_ids_of(message)
            )
        )
        context = Context(
            identity,
            admitted.revision,
            responder.request_id,
            session,
            peer=peer if streams else None,
            headers=carried,
            toolset=toolset,
            options=options,
        )
        if streams:
            self._pulse.enter(peer)
        try:
            match message:
                case Request():
                    await self._answer(context, peer, message, receive)
                case list():
                    await self._answer_batch(context, peer, message)
                case Response():
                    await self._take(session, message)
                    await responder.empty(202)
        finally:
            self._pulse.leave(peer)

    async def _open(
        self, request: AdmittedRequest, principal: Principal, toolset: str | None
    ) -> Session | None:
        opens = request.opens
        if opens is None:
            return request.session
        return await self._front.sessions.open(
            request.revision, principal, opens.client_info, opens.capabilities, toolset=toolset
        )

    async def _answer(
        self,
        context: Context,
        peer: PostPeer,
        request: Request,
        receive: Receive,
    ) -> None:
        dispatcher, session = self._front.dispatcher, context.session
        if request.id is UNSET:
            await dispatcher.dispatch(context, request)
            await peer.responder.empty(202)
        elif request.method == "initialize" and session is not None:
            await self._answer_initialize(context, peer, session, request)
        elif session is not None:  # disconnecting does not cancel: there is a message for it
            reply = await run_cancellable(dispatcher, context, session, request)
            await _finish(peer, reply, context)
        elif context.revision.handshake:  # sessionless: there is no cancellation
            reply = await dispatcher.dispatch(context, request)
            await _finish(peer, reply, context)
        else:
            # 2026-07-28: disconnecting is cancellation
            with DisconnectWatch(receive, self._watches):
                reply = await dispatcher.dispatch(context, request)
                await _finish(peer, reply, context)

    async def _answer_initialize(
        self,
        context: Context,
        peer: PostPeer,
        session: Session,
        request: Request,
    ) -> None:
        reply = await self._front.dispatcher.dispatch(context, request)
        headers = []
        if isinstance(reply, ErrorReply):
            self._front.sessions.close(session)
        else:
            headers = [(b"mcp-session-id", session.id.encode())]
        await _finish(peer, reply, context, headers)

    async def _answer_batch(self, context: Context, peer: PostPeer, batch: list[Message]) -> None:
        responder = peer.responder
        for member in batch:
            if isinstance(member, Response):
                await self._take(context.session, member)
        body = await self._front.batches.run(self._serve_member, context, batch)
        if peer.is_silent() or not await peer.finish(body):
            await (responder.empty(202) if body is None else responder.json(body))

    async def _take(self, session: Session | None, response: Response) -> None:
        if session is not None:
            await self._front.asks.answer(session, response)


async def _finish(
    peer: PostPeer,
    reply: Reply | ErrorReply | None,
    context: Context,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    responder = peer.responder
    if not peer.is_silent() and await peer.finish(reply):
        return
    fault = context.fault
    if isinstance(reply, Reply):
        await responder.send(200, pieces(reply), [JSON, *headers])
    elif reply is None:
        await responder.empty(202)  # cancelled: no answer is expected
    elif fault is not None and _is_told_by_status(fault, context.revision):
        await responder.json(pieces(reply), fault.status, [*headers, *fault_headers(fault)])
    else:
        await responder.json(pieces(reply), _status(reply, context.revision), headers)


def _is_told_by_status(fault: Fault, revision: Revision) -> bool:
    """Whether the HTTP status reports it, too: clients have to wait, or to request more scopes."""
    if isinstance(fault, ScopeMismatch):
        return revision.scope_challenges
    return isinstance(fault, TooManyRequests | Overloaded | ClaimsRequired)


def _status(reply: ErrorReply, revision: Revision) -> int:
    if isinstance(reply, UnknownMethod):
        return revision.unknown_method_status
    return 400 if revision.routing_headers and reply.error.code in _SAID_BY_STATUS else 200


def _id_of(message: Message | list[Message]) -> RequestId:
    """The id for an error reply; null where there is none or it is not legal in MCP."""
    if isinstance(message, Request | Invalid) and isinstance(message.id, str | int):
        return message.id
    return None


def _ids_of(message: Message | list[Message]) -> Ids:
    """The id of a request, or the ids of the requests of a batch."""
    if isinstance(message, Request) and isinstance(message.id, str | int):
        return message.id
    if isinstance(message, list):
        return [
            _id_of(request)
            for request in message
            if isinstance(request, Request) and request.id is not UNSET
        ]
    return _id_of(message)


class StreamableHTTP:
    """ASGI application of the MCP endpoint, or of a toolset's."""

    def __init__(self, endpoint: McpEndpoint, http_sse: HttpSseEndpoint) -> None:
        self._endpoint = endpoint
        self._front = endpoint.front
        self._http_sse = http_sse
        self._event_streams = EventStreams(endpoint.front)
        posting = PostHandler(endpoint)
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
        require_acceptable(headers.accept, SSE_TYPE)
        session = await self._session(scope, headers, identity.principal)
        last = header(scope, b"last-event-id")
        position = read_position(last) if last else None
        if position is None or position.stream == STANDALONE:
            await self._event_streams.standalone(
                session, position, identity=identity, receive=receive, responder=responder
            )
        else:
            await self._event_streams.replay(
                session, position, identity=identity, receive=receive, responder=responder
            )

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
            and SSE_TYPE in (headers.accept or "")  # not a browser
            and not header(scope, b"last-event-id")
        )

    async def _session(self, scope: Scope, headers: Headers, principal: Principal) -> Session:
        if headers.session is None:
            raise SessionRequired(
                "Mcp-Session-Id is missing. POST `initialize` first; 2024-11-05 clients use the "
                "/sse endpoint below this one"
            )
        return await self._endpoint.session(scope, headers.session, principal)


def toolset_in(path: str, mcp_path: str) -> str | None:
    """The NAME of `/mcp/NAME`, `/mcp/NAME/sse` or `/mcp/NAME/message`; None for another path."""
    if not path.startswith(f"{mcp_path}/"):
        return None
    name, _, rest = path[len(mcp_path) + 1 :].partition("/")
    return name if rest in {"", "sse", "message"} and TOOLSET_NAME.fullmatch(name) else None


def toolset_fronts(front: McpFront, toolset: str | None) -> dict[str, ASGIApp]:
    """The applications of the paths of one toolset; None: of all tools."""
    endpoint = McpEndpoint(front, toolset)
    http_sse = HttpSseEndpoint(endpoint)
    path, *paths_of_sse = toolset_paths(front.path, toolset)
    return {path: StreamableHTTP(endpoint, http_sse), **dict.fromkeys(paths_of_sse, http_sse)}


def toolset_paths(mcp_path: str, toolset: str | None) -> tuple[str, str, str]:
    path = f"{mcp_path}/{toolset}" if toolset else mcp_path
    return path, f"{path}/sse", f"{path}/message"


def _handshake_headers(scope: Scope) -> RequestHeaders:
    """The headers of a method that needs a session. Raises MethodNotAllowed, or for an unknown
    version."""
    headers = read_headers(scope)
    if headers.version in STATELESS:
        raise MethodNotAllowed("2026-07-28 has POST only; use subscriptions/listen", "POST")
    check_version(headers)
    return headers

"""The MCP endpoint: streamable HTTP of 2025-03-26 to 2025-11-25 and of 2026-07-28, on one path.

Not here yet, and said so to clients: `Last-Event-ID` and resumption (a stream begins anew), and
requests from server to client.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from gateway.context import Context, Identity, Outbox, Principal, Session
from gateway.protocol import sse
from gateway.protocol.admission import Admitted, Headers, admit, check_version
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.running import Batches, member_server, run_cancellable
from gateway.state.hub import Hub
from gateway.state.memory import Sessions
from gateway.transports.http import (
    Responder,
    Watch,
    caller,
    header,
    letter,
    one_command,
    read_body,
    require_json,
    routing_headers,
)
from schemas.errors import (
    Fault,
    MethodNotAllowed,
    MethodNotFound,
    NotAcceptable,
    SessionNotFound,
    SessionRequired,
)
from schemas.jsonrpc import (
    ErrorReply,
    Invalid,
    Message,
    Reply,
    Request,
    RequestId,
    decode,
    encode,
    pieces,
)
from schemas.mcp.revisions import STATELESS


class StreamableHTTP:
    """ASGI application of the MCP endpoint."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: Sessions,
        hub: Hub,
        identify: Callable[[Scope], Identity],
        batches: Batches,
        body_limit_bytes: int,
        keep_alive_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._serve_member = member_server(dispatcher)
        self._sessions = sessions
        self._hub = hub
        self._identify = identify
        self._batches = batches
        self._body_limit_bytes = body_limit_bytes
        self._keep_alive_s = keep_alive_s
        self._verbs = {"POST": self._post, "GET": self._get, "DELETE": self._delete}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        serve = self._verbs.get(scope["method"], self._not_allowed)
        try:
            await serve(scope, receive, responder, caller(self._identify, scope))
        except Fault as fault:
            await responder.fault(fault)

    async def _post(
        self, scope: Scope, receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        require_json(scope)
        _require_acceptable(header(scope, b"accept"), "application/json", "text/event-stream")
        body = await read_body(scope, receive, self._body_limit_bytes)
        headers = routing_headers(scope)
        message = decode(body, self._batches.limits.items)
        try:
            carried = letter(scope)
            if isinstance(message, list):
                one_command(carried)
            find = partial(self._sessions.find, principal=identity.principal)
            admitted = admit(headers, message, find)
            session = self._open(admitted, identity.principal)
        except Fault as fault:
            await responder.fault(fault, _id_of(message))
            return
        peer = _Peer(responder)
        context = Context(identity, admitted.revision, responder.request_id, session, peer, carried)
        match message:
            case Request():
                await self._answer(context, message, receive, responder)
            case list():
                await self._answer_batch(context, message, responder)
            case _:  # a response: no request of ours is open
                await responder.empty(202)

    async def _answer(
        self, context: Context, request: Request, receive: Receive, responder: Responder
    ) -> None:
        if request.id is UNSET:
            await self._dispatcher.dispatch(context, request)
            await responder.empty(202)
        elif context.session is None:
            with Watch(receive):  # 2026-07-28: going away is how a client cancels
                reply = await self._dispatcher.dispatch(context, request)
                await _finish(responder, reply, context)
        else:
            await self._answer_in_session(context, context.session, request, responder)

    async def _answer_in_session(
        self, context: Context, session: Session, request: Request, responder: Responder
    ) -> None:
        """A client of these revisions cancels by message; going away does not cancel."""
        reply = await run_cancellable(self._dispatcher, context, session, request)
        if reply is None:
            await responder.empty(202)  # cancelled: the client does not want to hear more
            return
        headers = []
        if request.method == "initialize":
            if isinstance(reply, ErrorReply):
                self._sessions.close(session)
            else:
                headers = [(b"mcp-session-id", session.id.encode())]
        await _finish(responder, reply, context, headers)

    async def _answer_batch(
        self, context: Context, batch: list[Message], responder: Responder
    ) -> None:
        body = await self._batches.run(self._serve_member, context, batch)
        await (responder.empty(202) if body is None else responder.json(body))

    async def _get(
        self, scope: Scope, receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        """The stream for what the server says unasked (handshake revisions)."""
        headers = _handshake_headers(scope)
        _require_acceptable(header(scope, b"accept"), "text/event-stream")
        session = self._session(headers, identity.principal)
        outbox = self._sessions.take_stream(session)
        session.streams += 1
        try:
            with self._hub.stream(outbox), Watch(receive):
                await responder.stream([(b"mcp-session-id", session.id.encode())])
                await self._forward(outbox, responder)
        finally:
            session.streams -= 1
            session.touch()

    async def _forward(self, outbox: Outbox, responder: Responder) -> None:
        await responder.chunk(sse.KEEP_ALIVE)  # the headers reach the client with the first bytes
        async for messages in outbox.batches(self._keep_alive_s):
            await responder.chunk(b"".join(map(sse.event, messages)) or sse.KEEP_ALIVE)
        await responder.chunk(b"", more=False)

    async def _delete(
        self, scope: Scope, _receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        headers = _handshake_headers(scope)
        self._sessions.close(self._session(headers, identity.principal))
        await responder.empty(204)

    async def _not_allowed(
        self, scope: Scope, _receive: Receive, _responder: Responder, _identity: Identity
    ) -> None:
        verbs = ", ".join(self._verbs)
        raise MethodNotAllowed(f"{scope['method'][:20]} is not part of MCP: {verbs}", verbs)

    def _session(self, headers: Headers, principal: Principal) -> Session:
        if headers.session is None:
            raise SessionRequired(
                "Mcp-Session-Id is missing. POST `initialize` first; 2024-11-05 clients use the "
                "/sse endpoint below this one"
            )
        session = self._sessions.find(headers.session, principal)
        if session is None:
            raise SessionNotFound("Session not found: it ended or never was")
        return session

    def _open(self, admitted: Admitted, principal: Principal) -> Session | None:
        opens = admitted.opens
        if opens is None:
            return admitted.session
        return self._sessions.open(
            admitted.revision, principal, opens.client_info, opens.capabilities
        )


class _Peer:
    """The client of one POST: the first notification turns the answer into a stream."""

    __slots__ = ("_responder",)

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    async def notify(self, message: bytes) -> None:
        if not self._responder.started:
            await self._responder.stream()
        await self._responder.chunk(sse.event(message))

    async def keep_alive(self) -> None:
        if self._responder.started:
            await self._responder.chunk(sse.KEEP_ALIVE)


def _handshake_headers(scope: Scope) -> Headers:
    """The headers of what only sessions have. Raises MethodNotAllowed, or for no known version."""
    headers = routing_headers(scope)
    if headers.version in STATELESS:
        raise MethodNotAllowed("2026-07-28 has POST only; use subscriptions/listen", "POST")
    check_version(headers)
    return headers


async def _finish(
    responder: Responder,
    reply: Reply | ErrorReply | None,
    context: Context,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    if reply is None:
        return
    if responder.started:
        await responder.chunk(sse.event(encode(reply)), more=False)
        return
    unknown = isinstance(reply, ErrorReply) and reply.error.code == MethodNotFound.code
    status = context.revision.unknown_method_status if unknown else 200
    await responder.json(pieces(reply), status, headers)


def _id_of(message: Message | list[Message]) -> RequestId:
    """The id that a refusal answers to; null where there is none or it is not legal in MCP."""
    if isinstance(message, Request | Invalid) and isinstance(message.id, str | int):
        return message.id
    return None


def _require_acceptable(accept: str, *types: str) -> None:
    """Raises NotAcceptable. The specification wants both types listed; one of them will do."""
    if types[0] in accept:
        return
    ranges = {*types, *(f"{name.split('/')[0]}/*" for name in types), "*/*"}
    if accept and not any(media_range in accept.lower() for media_range in ranges):
        raise NotAcceptable(f"Accept must include {' and '.join(types)}, not only {accept[:100]}")

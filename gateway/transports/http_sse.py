"""HTTP+SSE of 2024-11-05: `GET /mcp/sse` is the session, `POST /mcp/message` its way in.

All answers go out on the stream, and the session lives as long as the stream does.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from gateway.context import Context, Identity, Outbox, Principal, Session
from gateway.protocol.dispatcher import Dispatcher, usable_id
from gateway.protocol.running import run_cancellable
from gateway.state.hub import Hub
from gateway.state.memory import Sessions
from gateway.transports.http import (
    Responder,
    caller,
    letter,
    query_value,
    read_body,
    require_json,
)
from schemas.errors import Fault, InvalidRequest, MethodNotAllowed, SessionNotFound
from schemas.jsonrpc import Invalid, Message, Request, decode, encode
from schemas.mcp.revisions import V2024_11_05


class HttpSse:
    """ASGI application of both endpoints."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: Sessions,
        hub: Hub,
        identify: Callable[[Scope], Identity],
        message_path: str,
        body_limit_bytes: int,
        keep_alive_s: float,
        drain_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._hub = hub
        self._identify = identify
        self._message_path = message_path
        self._body_limit_bytes = body_limit_bytes
        self._keep_alive_s = keep_alive_s
        self._drain_s = drain_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].rstrip("/") == self._message_path:
            await self._message(scope, receive, send)
        else:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        try:
            principal = caller(self._identify, scope).principal
            if scope["method"] != "GET":
                raise MethodNotAllowed("This is the event stream of 2024-11-05: GET it", "GET")
            session = self._sessions.open(V2024_11_05, principal, {}, {})
        except Fault as fault:
            await responder.fault(fault)
            return
        session.streams += 1
        try:
            with self._hub.stream(session.outbox):
                events = EventSourceResponse(
                    self._events(session),
                    ping=int(self._keep_alive_s) or 1,
                    # it sees the server stop by itself: what runs may finish first
                    shutdown_grace_period=self._drain_s,
                )
                await events(scope, receive, send)
        except Fault as fault:
            await responder.fault(fault)
        finally:
            session.streams -= 1
            self._sessions.close(session)

    async def _message(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        try:
            identity = caller(self._identify, scope)
            if scope["method"] != "POST":
                raise MethodNotAllowed("Messages are POSTed here", "POST")
            require_json(scope)
            body = await read_body(scope, receive, self._body_limit_bytes)
            session = self._session(scope, identity.principal)
            peer = _Peer(session.outbox)
            context = Context(
                identity, session.revision, responder.request_id, session, peer, letter(scope)
            )
            self._accept(decode(body, batch_limit=0), context, session)
        except Fault as fault:
            await responder.fault(fault)
            return
        await responder.empty(202)

    async def _events(self, session: Session) -> AsyncIterator[ServerSentEvent]:
        endpoint = f"{self._message_path}?session_id={session.id}"
        yield _event(endpoint, "endpoint")
        async for messages in session.outbox.batches(self._keep_alive_s):
            for message in messages:
                yield _event(message.decode(), "message")
        if session.running:  # the gateway stops: what runs may finish, and its answer go out
            await asyncio.wait(session.running.values())
        for message in await session.outbox.take(0):
            yield _event(message.decode(), "message")

    def _session(self, scope: Scope, principal: Principal) -> Session:
        session_id = query_value(scope, "session_id")
        if session_id is None:
            raise InvalidRequest("session_id is missing: POST to the address of the endpoint event")
        session = self._sessions.find(session_id, principal)
        if session is None or session.revision is not V2024_11_05:
            raise SessionNotFound("Session not found: its stream is closed, or never was")
        return session

    def _accept(self, message: Message | list[Message], context: Context, session: Session) -> None:
        """Start serving; the answer goes to the stream. Raises InvalidRequest for no message."""
        if isinstance(message, list):
            raise InvalidRequest("The batch is empty")
        if isinstance(message, Invalid):
            raise message.fault
        if isinstance(message, Request):
            usable_id(message, session.revision)
            task = asyncio.create_task(self._serve(context, session, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, context: Context, session: Session, request: Request) -> None:
        reply = await run_cancellable(self._dispatcher, context, session, request)
        if reply is not None:
            session.outbox.put(encode(reply))


def _event(data: str, name: str) -> ServerSentEvent:
    return ServerSentEvent(data, event=name, sep="\n")


class _Peer:
    __slots__ = ("_outbox",)

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def notify(self, message: bytes) -> None:
        self._outbox.put(message)

    async def keep_alive(self) -> None:
        """The stream keeps itself alive."""

"""HTTP+SSE of 2024-11-05: `GET /mcp/sse` opens the session, `POST /mcp/message` sends to it.

All answers go to the stream, and the session lives as long as the stream does. Messages may arrive
at another node than the one with the stream: answers reach it through the log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from urllib.parse import urlencode

from msgspec import UNSET
from starlette.types import Receive, Scope, Send

from gateway.context import Context, Outbox, Principal, QueryOptions, Session
from gateway.interfaces import SessionChange
from gateway.protocol import sse_writer
from gateway.protocol.admission import read_introduction
from gateway.protocol.cancellable_requests import run_cancellable
from gateway.protocol.dispatcher import check_id
from gateway.protocol.sse_writer import STANDALONE
from gateway.transports.client_connection import DisconnectWatch, StreamPeer, send_all
from gateway.transports.event_stream import EventStreams
from gateway.transports.http_messages import (
    Responder,
    call_headers,
    caller,
    query_value,
    read_body,
    read_headers,
    require_json,
    require_same_site,
)
from gateway.transports.mcp_endpoint import McpEndpoint
from schemas.errors import Fault, InvalidRequest, MethodNotAllowed, SessionNotFound, Unavailable
from schemas.jsonrpc import Invalid, Message, Request, Response, decode, encode
from schemas.mcp.revisions import V2024_11_05

log = logging.getLogger("toolgate.mcp")


class HttpSseEndpoint:
    """ASGI application of both endpoints, and of a GET of the MCP endpoint."""

    def __init__(self, endpoint: McpEndpoint) -> None:
        front = endpoint.front
        self._endpoint = endpoint
        self._front = front
        self._event_streams = EventStreams(front)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].rstrip("/") == self._endpoint.message_path(self._endpoint.toolset):
            await self._message(scope, receive, send)
        else:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        try:
            require_same_site(scope)  # GET opens a session here
            identity = await caller(self._front.identify, scope)
            if scope["method"] != "GET":
                raise MethodNotAllowed("This is the event stream of 2024-11-05: GET it", "GET")
            principal = identity.principal
            toolset = self._endpoint.admitted_toolset(scope, principal)
            options = self._endpoint.query_options(scope)
            session = await self._front.sessions.open(
                V2024_11_05, principal, {}, {}, toolset=toolset
            )
        except Fault as fault:
            await responder.fault(fault)
            return
        try:
            with (
                self._front.sessions.stream(session) as outbox,
                self._front.streams.watch(session, STANDALONE, outbox.stir),
                DisconnectWatch(receive) as watch,
            ):
                outbox.on_overflow, outbox.still = watch.give_up, identity.still
                await responder.stream()
                await send_all(responder, self._chunks(session, outbox, options), watch)
        except Fault as fault:
            await responder.fault(fault)
        finally:
            self._front.sessions.close(session)
            session.outbox.clear()  # ending calls may still hold it

    async def _message(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        try:
            identity = await caller(self._front.identify, scope)
            if scope["method"] != "POST":
                raise MethodNotAllowed("Messages are POSTed here", "POST")
            headers = read_headers(scope)
            require_json(headers.content_type)
            limit_bytes = self._front.body_limit_bytes
            body = await read_body(headers.content_length, receive, limit_bytes)
            session = await self._session(scope, identity.principal)
            context = Context(identity, session.revision, responder.request_id, session)
            context.headers, context.toolset = call_headers(headers, scope), session.toolset
            context.options = self._endpoint.query_options(scope)
            await self._accept(decode(body, 0, self._front.batches.limits.depth), context, session)
        except Fault as fault:
            await responder.fault(fault)
            return
        await responder.empty(202)

    async def _chunks(
        self, session: Session, outbox: Outbox, options: QueryOptions
    ) -> AsyncIterator[bytes]:
        path = self._endpoint.message_path(session.toolset)
        wishes = {name: wish for name, wish in asdict(options).items() if wish is not None}
        query = urlencode({"session_id": session.id, **wishes})
        yield sse_writer.event(f"{path}?{query}".encode(), b"endpoint")
        async for messages in self._event_streams.messages(session, outbox):
            for message in messages:
                yield sse_writer.event(message)
            if not messages:
                yield sse_writer.KEEP_ALIVE
        if session.running:  # shutdown: running calls may finish, and their answers are sent
            await asyncio.wait(session.running.values(), timeout=self._front.drain_s)
        for message in await outbox.take(0):
            yield sse_writer.event(message)

    async def _session(self, scope: Scope, principal: Principal) -> Session:
        session_id = query_value(scope, "session_id")
        if session_id is None:
            raise InvalidRequest("session_id is missing: POST to the address of the endpoint event")
        session = await self._endpoint.session(scope, session_id, principal)
        if session.revision is not V2024_11_05:
            raise SessionNotFound("Session not found: it is one of streamable HTTP")
        return session

    async def _accept(
        self, message: Message | list[Message], context: Context, session: Session
    ) -> None:
        """Start serving; the answer goes to the stream. Raises InvalidRequest for an invalid
        message."""
        match message:
            case list():
                raise InvalidRequest("The batch is empty")
            case Invalid():
                raise message.fault
            case Response():
                await self._front.asks.answer(session, message)
            case Request():
                if message.id is not UNSET:
                    check_id(message.id)
                if message.method == "initialize":
                    await self._introduce(session, message)
                peer = StreamPeer(session, self._front.streams, self._front.asks)
                context.peer = peer
                task = asyncio.create_task(self._serve(context, peer, session, message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _introduce(self, session: Session, request: Request) -> None:
        """Record the client's identity: its stream was opened before `initialize`."""
        params = read_introduction(request)
        change = SessionChange(client=params.client_info, capabilities=params.capabilities)
        await self._front.sessions.change(session, change)

    async def _serve(
        self, context: Context, peer: StreamPeer, session: Session, request: Request
    ) -> None:
        reply = await run_cancellable(self._front.dispatcher, context, session, request)
        if reply is not None:
            try:
                await peer.answer(encode(reply))
            except Unavailable:  # the client runs into its own timeout
                log.warning("answer_lost", extra={"request_id": context.request_id})

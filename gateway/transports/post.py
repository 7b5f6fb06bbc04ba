"""POST of the MCP endpoint: a message or a batch, and its answer.

The answer is JSON, unless messages or long silence precede it: then it is an event stream, which a
client in a session can resume.
"""

from collections.abc import Sequence
from functools import partial

from msgspec import UNSET
from starlette.types import Receive, Scope

from gateway.context import NO_WISHES, Context, Identity, Principal, Session
from gateway.protocol.admission import Admitted, admit
from gateway.protocol.dispatcher import UnknownMethod
from gateway.protocol.running import member_server, run_cancellable
from gateway.state.streams import Ids
from gateway.transports.mcp import McpEndpoint
from gateway.transports.peers import PostPeer, Pulse, SessionPeer, Watch
from gateway.transports.request import (
    JSON_TYPE,
    call_headers,
    one_command,
    read_body,
    read_headers,
    require_acceptable,
    require_json,
)
from gateway.transports.responses import JSON, Responder, fault_headers
from schemas.errors import (
    Fault,
    HeaderMismatch,
    MissingClientCapability,
    Overloaded,
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
from schemas.mcp.revisions import Revision

# Errors that 2026-07-28 maps to HTTP 400; method not found has a status of its own per revision.
_SAID_BY_STATUS = (
    HeaderMismatch.code,
    MissingClientCapability.code,
    UnsupportedProtocolVersion.code,
)


class Posting:
    def __init__(self, endpoint: McpEndpoint) -> None:
        self._endpoint = endpoint
        self._front = endpoint.front
        self._pulse = Pulse(endpoint.front.keep_alive_s)
        self._serve_member = member_server(endpoint.front.dispatcher)

    async def serve(
        self, scope: Scope, receive: Receive, responder: Responder, identity: Identity
    ) -> None:
        headers, front, endpoint = read_headers(scope), self._front, self._endpoint
        if headers.content_type != JSON_TYPE:
            require_json(headers.content_type)
        if headers.accept is None or JSON_TYPE not in headers.accept:
            require_acceptable(headers.accept, JSON_TYPE, "text/event-stream")
        toolset, wishes = endpoint.toolset, NO_WISHES
        if scope["query_string"]:
            toolset, wishes = endpoint.toolset_of(scope), endpoint.wishes_of(scope)
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
            carried = call_headers(headers, scope, mirrored=mirrored)
            if isinstance(message, list):
                one_command(carried)
            session = admitted.session
            if admitted.opens is not None:
                session = await self._open(admitted, principal, toolset)
        except Fault as fault:
            await responder.fault(fault, _id_of(message))
            return
        if session is None:
            peer = PostPeer(responder, self._pulse)
        else:
            peer = SessionPeer(responder, self._pulse, front, session, _ids_of(message))
        request_id = responder.request_id
        context = Context(
            identity, admitted.revision, request_id, session, peer, carried, toolset, wishes
        )
        self._pulse.enter(peer)
        try:
            match message:
                case Request():
                    await self._answer(context, peer, message, receive, responder)
                case list():
                    await self._answer_batch(context, peer, message, responder)
                case Response():
                    await self._take(session, message)
                    await responder.empty(202)
        finally:
            self._pulse.leave(peer)

    async def _open(
        self, admitted: Admitted, principal: Principal, toolset: str | None
    ) -> Session | None:
        opens = admitted.opens
        if opens is None:
            return admitted.session
        return await self._front.sessions.open(
            admitted.revision, principal, opens.client_info, opens.capabilities, toolset
        )

    async def _answer(
        self,
        context: Context,
        peer: PostPeer,
        request: Request,
        receive: Receive,
        responder: Responder,
    ) -> None:
        dispatcher, session = self._front.dispatcher, context.session
        if request.id is UNSET:
            await dispatcher.dispatch(context, request)
            await responder.empty(202)
        elif request.method == "initialize" and session is not None:
            await self._answer_initialize(context, peer, session, request, responder)
        elif session is not None:  # disconnecting does not cancel: there is a message for it
            reply = await run_cancellable(dispatcher, context, session, request)
            await _finish(peer, responder, reply, context)
        elif context.revision.handshake:  # sessionless: there is no cancellation
            reply = await dispatcher.dispatch(context, request)
            await _finish(peer, responder, reply, context)
        else:
            with Watch(receive):  # 2026-07-28: disconnecting is cancellation
                reply = await dispatcher.dispatch(context, request)
                await _finish(peer, responder, reply, context)

    async def _answer_initialize(
        self,
        context: Context,
        peer: PostPeer,
        session: Session,
        request: Request,
        responder: Responder,
    ) -> None:
        reply = await self._front.dispatcher.dispatch(context, request)
        headers = []
        if isinstance(reply, ErrorReply):
            self._front.sessions.close(session)
        else:
            headers = [(b"mcp-session-id", session.id.encode())]
        await _finish(peer, responder, reply, context, headers)

    async def _answer_batch(
        self, context: Context, peer: PostPeer, batch: list[Message], responder: Responder
    ) -> None:
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
    responder: Responder,
    reply: Reply | ErrorReply | None,
    context: Context,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    if not peer.is_silent() and await peer.finish(reply):
        return
    fault = context.failed
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
    return isinstance(fault, TooManyRequests | Overloaded)


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
        return [_id_of(one) for one in message if isinstance(one, Request) and one.id is not UNSET]
    return _id_of(message)

"""`POST /rpc`: JSON-RPC 2.0 exactly as its specification, batches included.

HTTP status: 200 with an answer, 204 when there is nothing to say (only notifications), 4xx when
the HTTP request itself cannot be served.
"""

from starlette.types import Receive, Scope, Send

from gateway.context import Context, Principal
from gateway.protocol.dispatcher import Dispatcher
from gateway.protocol.running import Batches
from gateway.transports.http import Responder, Watch, read_body, require_json
from schemas.errors import Fault, InvalidRequest, MethodNotAllowed, ParseError
from schemas.jsonrpc import Invalid, Message, Request, decode, encode, error_reply, pieces
from schemas.mcp.revisions import JSON_RPC

Body = bytes | list[bytes | memoryview]


class JsonRpcHTTP:
    """ASGI application of the JSON-RPC endpoint."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        principal: Principal,
        batches: Batches,
        body_limit_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._principal = principal
        self._batches = batches
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = Responder(send)
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed("JSON-RPC is POSTed here", "POST")
            require_json(scope)
            body = await read_body(scope, receive, self._body_limit_bytes)
        except Fault as fault:
            await responder.fault(fault)
            return
        context = Context(self._principal, JSON_RPC, responder.request_id)
        with Watch(receive):
            answer = await self._answer(body, context)
            await (responder.empty(204) if answer is None else responder.json(answer))

    async def _answer(self, body: bytes, context: Context) -> Body | None:
        try:
            return await self._serve(decode(body, self._batches.limits.items), context)
        except (ParseError, InvalidRequest) as fault:
            return encode(error_reply(None, fault, context.request_id))

    async def _serve(self, message: Message | list[Message], context: Context) -> Body | None:
        match message:
            case list():
                return await self._batches.run(self._dispatcher, context, message)
            case Request():
                reply = await self._dispatcher.dispatch(context, message)
                return None if reply is None else pieces(reply)
            case Invalid():
                return encode(error_reply(message.id, message.fault, context.request_id))
            case _:
                raise InvalidRequest("This is a response; nobody asked anything")

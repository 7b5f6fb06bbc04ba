"""`/rpc` and the portal paths: JSON-RPC 2.0, batches included, and the legacy hybrid payload.

By POST, and by `GET ?cmd=`. HTTP status of `/rpc`: 200 with an answer, 202 with the job that a
request has become whose client prefers it (RFC 7240), 204 without one (only notifications), 401
and 403 for unauthorised callers, other 4xx when the HTTP request itself cannot
be served. The portal paths answer according to `portal.compat`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote_plus

from msgspec import UNSET
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from gateway.context import NO_OPTIONS, AsyncPreference, Context, Identify, Identity, QueryOptions
from gateway.operations.job_declarations import RESPOND_ASYNC, prefers_async
from gateway.protocol.batches import Batches
from gateway.protocol.dialects import (
    Answer,
    Legacy,
    Rules,
    legacy_answer,
    read,
    refusal,
    reply,
    rpc_answer,
)
from gateway.protocol.dispatcher import Answer as Reply
from gateway.protocol.dispatcher import Dispatcher
from gateway.transports.client_connection import WATCH_S, DisconnectWatch, KeepAliveTimer
from gateway.transports.http_messages import (
    RequestHeaders,
    Responder,
    call_headers,
    fault_headers,
    one_command,
    query_options,
    query_value,
    read_body,
    read_headers,
    read_unauthenticated_body,
    require_json,
    require_same_site,
)
from schemas.errors import Fault, InvalidRequest, MethodNotAllowed
from schemas.hybrid import (
    METHOD_NOT_ALLOWED,
    REQUEST_BODY_EMPTY,
    REQUEST_CMD_EMPTY,
    TUPLE,
    StatusFault,
)
from schemas.jsonrpc import Invalid, Message, Request, decode_strict, encode
from schemas.jsonrpc import Reply as Envelope
from schemas.mcp.revisions import HYBRID, JSON_RPC

CMD = "cmd="
RESPONSE = "This is a response; nobody asked anything"
NAME_LENGTH = 100  # characters of an unverified toolset name

HeaderPairs = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Dependencies shared by the /rpc and /portal endpoints."""

    dispatcher: Dispatcher
    identify: Identify
    batches: Batches
    body_limit_bytes: int
    unauthenticated_body_bytes: int
    profiles: Collection[str] = ()
    mcp_path: str = "/mcp"
    toolset: str | None = None  # the only toolset at its paths; None: all


class JsonRpcHTTP:
    """ASGI application of one path."""

    def __init__(self, front: Front, rules: Rules) -> None:
        self._front = front
        self._watches = KeepAliveTimer(WATCH_S)
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder, rules = Responder(send), self._rules
        try:
            headers = read_headers(scope)
            carried = call_headers(headers, scope, side=rules.side, auth_first=rules.auth_first)
            if rules.spec and headers.prefer and prefers_async({"prefer": headers.prefer}):
                carried = replace(carried, respond_async=AsyncPreference())
            options = self._options(scope) if scope["query_string"] else NO_OPTIONS
            identity = await self._front.identify(scope)  # needs no body
            body = await self._body(scope, headers, receive, identity)
        except Fault as fault:  # of the HTTP request itself
            if rules.spec:
                await responder.fault(fault)
            else:
                await _send(responder, legacy_answer(fault, rules), fault)
            return
        try:
            if not body.strip():
                empty = REQUEST_CMD_EMPTY if scope["method"] == "GET" else REQUEST_BODY_EMPTY
                raise StatusFault(empty, text="The body is empty")
            limits = self._front.batches.limits
            message = read(body, rules, limits.items, limits.depth)
        except Fault as fault:
            await _send(responder, refusal(body, fault, rules, responder.request_id), fault)
            return
        revision = HYBRID if isinstance(message, Legacy) else rules.revision
        toolset, request_id = self._front.toolset, responder.request_id
        context = Context(
            identity, revision, request_id, headers=carried, toolset=toolset, options=options
        )
        with DisconnectWatch(receive, self._watches):
            await self._serve(message, context, responder)

    def _options(self, scope: Scope) -> QueryOptions:
        """The options in the query. Raises InvalidRequest."""
        rules = self._rules
        options = query_options(scope, self._front.profiles) if rules.spec else NO_OPTIONS
        if rules.revision is JSON_RPC:
            self._refuse_toolset(scope)
        return options

    def _refuse_toolset(self, scope: Scope) -> None:
        """Raises InvalidRequest for `?scope=`, which is for MCP only. In a legacy payload it is an
        argument."""
        toolset = query_value(scope, "scope")
        if toolset is None or (scope["method"] == "GET" and query_value(scope, "cmd") is None):
            return
        at = f"{self._front.mcp_path}/{toolset[:NAME_LENGTH]}"
        raise InvalidRequest(f"`scope` has no effect here: the tools of a toolset are at {at}")

    async def _body(
        self, scope: Scope, headers: RequestHeaders, receive: Receive, identity: Identity
    ) -> bytes:
        """The JSON text, from query or body. Raises the Fault of the HTTP request."""
        method = scope["method"]
        if method == "GET":
            command = _command(scope)
            if not command and self._rules.spec:
                raise StatusFault(REQUEST_CMD_EMPTY, text="A GET carries its request as ?cmd=")
            return command
        if method != "POST":
            text = METHOD_NOT_ALLOWED.description.format(method, scope["path"])
            raise MethodNotAllowed(text, "GET, POST")
        if self._rules.spec:  # light-hybrid-4j ignores it
            require_json(headers.content_type)
        front, length = self._front, headers.content_length
        if identity.refusal is None or front.unauthenticated_body_bytes >= front.body_limit_bytes:
            return await read_body(length, receive, front.body_limit_bytes)
        limit_bytes = front.unauthenticated_body_bytes
        return await read_unauthenticated_body(identity.refusal, length, receive, limit_bytes)

    async def _serve(
        self, message: Message | Legacy | list[Message], context: Context, responder: Responder
    ) -> None:
        rules, request_id = self._rules, context.request_id
        match message:
            case list():
                await self._serve_batch(message, context, responder)
            case Legacy(request):
                outcome = await self._front.dispatcher.outcome(context, request)
                await _send(responder, legacy_answer(outcome, rules), outcome, rules.legacy_headers)
            case Request():
                outcome = await self._front.dispatcher.outcome(context, message)
                if message.id is UNSET:
                    await responder.empty(204)
                else:
                    answer = rpc_answer(message.id, outcome, rules, request_id)
                    more: HeaderPairs = ()
                    if context.headers.respond_async is not None:
                        answer, more = _accept(answer, context.headers.respond_async)
                    await _send(responder, answer, outcome, more)
            case Invalid(id_, fault):
                await _send(responder, rpc_answer(id_, fault, rules, request_id), fault)
            case _:
                fault = InvalidRequest(RESPONSE)
                await _send(responder, rpc_answer(None, fault, rules, request_id), fault)

    async def _serve_batch(
        self, batch: list[Message], context: Context, responder: Responder
    ) -> None:
        try:
            one_command(context.headers)
            body = await self._front.batches.run(self._member, context, batch)
        except InvalidRequest as fault:
            await _send(responder, rpc_answer(None, fault, self._rules, context.request_id), fault)
            return
        await (responder.empty(204) if body is None else responder.json(body))

    async def _member(self, context: Context, member: Message) -> Reply | None:
        match member:
            case Request():
                outcome = await self._front.dispatcher.outcome(context, member)
                if member.id is UNSET:
                    return None
                if not isinstance(outcome, Fault):
                    return Envelope(member.id, outcome)
                return reply(member.id, outcome, self._rules, context.request_id)
            case Invalid(id_, fault):
                return reply(id_, fault, self._rules, context.request_id)
        return reply(None, InvalidRequest(RESPONSE), self._rules, context.request_id)


def _accept(answer: Answer, preference: AsyncPreference) -> tuple[Answer, HeaderPairs]:
    """The answer with the status and the headers of a request that has become a job."""
    if not preference.location:
        return answer, ()
    location = (b"location", preference.location.encode())
    return replace(answer, status=202), (location, (b"preference-applied", RESPOND_ASYNC.encode()))


def _command(scope: Scope) -> bytes:
    """The JSON text of a GET: its `cmd`, or a legacy payload in separate parameters.

    Decoded once. (light-hybrid-4j decodes twice, which turns every plus into a blank.)
    """
    require_same_site(scope)
    try:
        query = scope["query_string"].decode("ascii")
        if query.startswith(CMD) and "&" not in query:  # the only parameter, as nearly always
            return unquote_plus(query[len(CMD) :], errors="strict").encode()
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidRequest("The query is not percent-encoded UTF-8") from error
    values = dict(pairs)
    if len(values) < len(pairs):
        raise InvalidRequest("A parameter is there twice")
    if "cmd" in values and any(part in values for part in TUPLE):
        raise InvalidRequest("cmd excludes the parts of a payload: send one or the other")
    if "cmd" in values or not all(values.get(part) for part in TUPLE):
        return bytes(values.get("cmd", ""), "utf-8")
    payload = {part: values.pop(part) for part in TUPLE}
    text = values.pop("data", "")
    data = decode_strict(text.encode()) if text else {}
    if not isinstance(data, dict):
        raise InvalidRequest("`data` must be an object where further parameters belong into it")
    body: bytes = encode({**payload, "data": {**data, **values}})
    return body


async def _send(
    responder: Responder,
    answer: Answer,
    outcome: object,
    more: HeaderPairs = (),
) -> None:
    headers = [(b"content-type", answer.media_type), *more] if answer.body else [*more]
    if isinstance(outcome, Fault):
        headers += fault_headers(outcome)
    await responder.send(answer.status, answer.body, headers)

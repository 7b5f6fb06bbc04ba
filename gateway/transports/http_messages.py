"""Raw ASGI: the headers, query and body of a request, and its one response."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_args
from urllib.parse import parse_qs

from msgspec import ValidationError, convert
from starlette.types import Receive, Scope, Send

from config.value_types import CodeDisclosure, DisclosureMode
from gateway.context import (
    NO_OPTIONS,
    NOT_MIRRORED,
    CallHeaders,
    Identify,
    Identity,
    QueryOptions,
    new_request_id,
)
from gateway.protocol.admission import Headers
from gateway.protocol.challenges import challenge
from schemas.errors import (
    Fault,
    Forbidden,
    InvalidRequest,
    MalformedEnvelope,
    MethodNotAllowed,
    NotAcceptable,
    PayloadTooLarge,
    TooManyRequests,
    Unavailable,
    UnsupportedMediaType,
)
from schemas.hybrid import Side
from schemas.jsonrpc import RequestId, encode, error_reply

JSON_TYPE = "application/json"
SSE_TYPE = "text/event-stream"


def query_options(scope: Scope, profiles: Collection[str]) -> QueryOptions:
    """The options in the query. Raises InvalidRequest for an unknown profile, mode or disclosure of
    programs; agents are resolved by the registry."""
    if not scope.get("query_string"):
        return NO_OPTIONS
    profile = query_value(scope, "profile")
    if profile is not None and profile not in profiles:
        raise InvalidRequest(f"There is no such profile; there is {', '.join(sorted(profiles))}")
    return QueryOptions(
        profile,
        _choice(scope, "mode", DisclosureMode),
        _choice(scope, "code", CodeDisclosure),
        query_value(scope, "agent"),
    )


def _choice(scope: Scope, name: str, choices: Any) -> Any:
    """The value in the query, one of the literal `choices`; None: there is none. Raises
    InvalidRequest."""
    try:
        return convert(query_value(scope, name), choices | None)
    except ValidationError as error:
        values = ", ".join(get_args(choices))
        raise InvalidRequest(f"There is no such {name}; there is {values}") from error


class RequestHeaders(Headers):
    """The headers of a request that its front reads; None: not sent."""

    accept: str | None = None
    content_type: str | None = None
    content_length: str | None = None
    idempotency_key: str | None = None
    authorization: str | None = None
    scope_token: str | None = None
    correlation_id: str | None = None
    traceability_id: str | None = None
    traceparent: str | None = None
    prefer: str | None = None
    key_repeated: bool = False  # Idempotency-Key is sent more than once


_ATTRIBUTES = {
    b"mcp-protocol-version": "version",
    b"mcp-session-id": "session",
    b"mcp-method": "method",
    b"mcp-name": "name",
    b"accept": "accept",
    b"content-type": "content_type",
    b"content-length": "content_length",
    b"idempotency-key": "idempotency_key",
    b"authorization": "authorization",
    b"x-scope-token": "scope_token",
    b"x-correlation-id": "correlation_id",
    b"x-traceability-id": "traceability_id",
    b"traceparent": "traceparent",
    b"prefer": "prefer",
}
_FIRST_COUNTS = frozenset({"accept", "content_type", "content_length"})  # else the last
_ROUTING = frozenset({"version", "session", "method", "name"})
_PARAMETER_PREFIX = b"mcp-param-"


def read_headers(scope: Scope) -> RequestHeaders:
    """The headers of a request, in one pass (ASGI has lower-case names)."""
    headers = RequestHeaders()
    for name, value in scope["headers"]:
        attribute = _ATTRIBUTES.get(name)
        if attribute is None:
            if name[:10] == _PARAMETER_PREFIX:
                _mirror(headers, name, value)
            continue
        if getattr(headers, attribute) is not None:
            if attribute in _FIRST_COUNTS:
                continue
            _note_repeated(headers, name, attribute)
        setattr(headers, attribute, value.decode("latin-1").strip(" \t"))
    return headers


def _note_repeated(headers: RequestHeaders, name: bytes, attribute: str) -> None:
    if attribute in _ROUTING:
        headers.duplicated = name.decode("latin-1")
    elif attribute == "idempotency_key":
        headers.key_repeated = True


def _mirror(headers: RequestHeaders, name: bytes, value: bytes) -> None:
    """Record a `Mcp-Param-*` header: the rest of its name, and its value."""
    argument = name[len(_PARAMETER_PREFIX) :].decode("latin-1")
    if headers.mirrored is None:
        headers.mirrored = {}
    if argument in headers.mirrored:
        headers.duplicated = name.decode("latin-1")
    headers.mirrored[argument] = value.decode("latin-1").strip(" \t")


async def caller(identify: Identify, scope: Scope) -> Identity:
    """The authenticated caller. Raises the Fault of a failed authentication."""
    identity = await identify(scope)
    if identity.refusal is not None:
        raise identity.refusal
    return identity


def call_headers(
    headers: RequestHeaders,
    scope: Scope,
    *,
    side: Side | None = None,
    auth_first: bool = True,
    routing_headers: Mapping[str, str] | None = None,
) -> CallHeaders:
    """The headers meant for a service. Raises InvalidRequest for a repeated Idempotency-Key."""
    if headers.key_repeated:
        raise InvalidRequest("Idempotency-Key is sent more than once")
    return CallHeaders(
        side=side,
        auth_first=auth_first,
        idempotency_key=headers.idempotency_key,
        authorization=headers.authorization,
        scope_token=headers.scope_token,
        correlation_id=headers.correlation_id,
        traceability_id=headers.traceability_id,
        traceparent=headers.traceparent,
        client=(scope.get("client") or ("",))[0],
        mirrored=routing_headers or NOT_MIRRORED,
    )


def one_command(headers: CallHeaders) -> None:
    """Raises InvalidRequest for a batch that has an Idempotency-Key."""
    if headers.idempotency_key is not None:
        raise InvalidRequest("An Idempotency-Key is for one command; send each by itself")


def header(scope: Scope, name_bytes: bytes) -> str:
    for name, value in scope["headers"]:
        if name == name_bytes:
            return str(value.decode("latin-1"))
    return ""


def require_json(content_type: str | None) -> None:
    """Raises UnsupportedMediaType. Also CSRF protection: HTML forms cannot send this type."""
    if (content_type or "").split(";", 1)[0].strip().lower() != JSON_TYPE:
        raise UnsupportedMediaType(
            f"Content-Type must be {JSON_TYPE}, not {(content_type or 'missing')[:100]}"
        )


def require_same_site(scope: Scope) -> None:
    """CSRF protection of GETs. Raises Forbidden for requests made by a page of another site, by a
    link or an image: they have no Origin, but current browsers add this header (Fetch Metadata)."""
    if header(scope, b"sec-fetch-site") == "cross-site" and not header(scope, b"origin"):
        raise Forbidden("Another site may not make a browser send requests here")


def require_acceptable(accept: str | None, *types: str) -> None:
    """Raises NotAcceptable. The specification requires both types; we accept one of them."""
    if accept and not any(accepts(accept, name) for name in types):
        raise NotAcceptable(f"Accept must include {' and '.join(types)}, not only {accept[:100]}")


def accepts(accept: str | None, media_type: str) -> bool:
    """Whether an Accept header admits a media type; without the header all are admitted."""
    if not accept or media_type in accept:
        return True
    accept = accept.lower()
    ranges = media_type, f"{media_type.partition('/')[0]}/*", "*/*"
    return any(media_range in accept for media_range in ranges)


async def read_body(declared: str | None, receive: Receive, limit_bytes: int) -> bytes:
    """The whole request body, of which `declared` is the Content-Length. Raises PayloadTooLarge as
    early as possible, and InvalidRequest when the client disconnects before its end."""
    if declared is not None and declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("The client went away before its body was complete")
        body: bytes = message.get("body", b"")
        size += len(body)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if not message.get("more_body", False):
            return b"".join([*chunks, body]) if chunks else body
        chunks.append(body)


async def read_unauthenticated_body(
    refusal: Fault, declared: str | None, receive: Receive, limit_bytes: int
) -> bytes:
    """`read_body` for a caller without a token, which some requests do not need; `refusal` is
    raised for a larger body."""
    try:
        return await read_body(declared, receive, limit_bytes)
    except PayloadTooLarge as large:
        raise refusal from large


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body exceeds {limit_bytes} bytes (server.body_limit_bytes)")


def query_value(scope: Scope, name: str) -> str | None:
    """The last value of a query parameter; None when there is none."""
    query: bytes = scope["query_string"]
    values = parse_qs(query.decode("latin-1")).get(name) if query else None
    return values[-1] if values else None


def fault_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    """The headers that go with the status of `fault`."""
    headers = []
    if isinstance(fault, MethodNotAllowed):
        headers.append((b"allow", fault.allow.encode()))
    if isinstance(fault, TooManyRequests | Unavailable):
        headers.append((b"retry-after", b"%d" % fault.retry_after))
    elif fault.status == 503:
        headers.append((b"retry-after", b"1"))
    value = challenge(fault)
    if value is not None:
        headers.append((b"www-authenticate", value.encode()))
    return headers


JSON = (b"content-type", b"application/json")


class Responder:
    """Sends the one response of an HTTP request; every response has an X-Request-Id."""

    __slots__ = ("_send", "request_id", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.request_id = new_request_id()
        self.started = False

    async def json(
        self,
        body: bytes | Sequence[bytes | memoryview],
        status: int = 200,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Answer with `body`, whole or in pieces."""
        await self.send(status, body, [JSON, *headers])

    async def send(
        self,
        status: int,
        body: bytes | Sequence[bytes | memoryview],
        headers: Iterable[tuple[bytes, bytes]],
    ) -> None:
        """Answer with `body` of any type, whole or in pieces."""
        pieces = [body] if isinstance(body, bytes) else body
        length = sum(map(len, pieces))
        self.started = True
        start = [
            (b"content-length", b"%d" % length),
            *headers,
            (b"x-request-id", self.request_id.encode()),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": start})
        for piece in pieces[:-1]:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": pieces[-1]})

    async def empty(self, status: int, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        await self._start(status, [(b"content-length", b"0"), *headers])
        await self._send({"type": "http.response.body"})

    async def fault(self, fault: Fault, id_: RequestId = None) -> None:
        """Reject the whole HTTP request; the body is JSON-RPC on every front."""
        status = fault.failed_status()
        # clients that probe for 2026-07-28 expect an envelope error without data
        bare = isinstance(fault, MalformedEnvelope)
        body = encode(error_reply(id_, fault, None if bare else self.request_id))
        await self.json(body, status, fault_headers(fault))

    async def stream(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Begin a stream of server-sent events, with proxy buffering disabled."""
        await self._start(
            200,
            [
                (b"content-type", SSE_TYPE.encode()),
                (b"cache-control", b"no-cache, no-transform"),
                (b"x-accel-buffering", b"no"),
                *headers,
            ],
        )

    async def chunk(self, data: bytes, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        headers.append((b"x-request-id", self.request_id.encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

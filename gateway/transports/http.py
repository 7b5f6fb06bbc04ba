"""Raw ASGI, the parts that the fronts share: headers, bodies, replies, who is still there."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope, Send

from gateway.context import Identify, Identity, Letter, new_request_id
from gateway.protocol.admission import Headers
from schemas.errors import (
    Fault,
    InvalidRequest,
    MalformedEnvelope,
    MethodNotAllowed,
    NotAcceptable,
    PayloadTooLarge,
    TooManyRequests,
    Unavailable,
    UnsupportedMediaType,
)
from schemas.hybrid import MISSING_AUTH_TOKEN, ScopeMismatch, Side, StatusFault
from schemas.jsonrpc import RequestId, encode, error_reply

JSON = (b"content-type", b"application/json")
_ROUTING = {
    b"mcp-protocol-version": "version",
    b"mcp-session-id": "session",
    b"mcp-method": "method",
    b"mcp-name": "name",
}
_MIRRORED = b"mcp-param-"
REALM = 'Bearer realm="toolgate"'
UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
OFFLINE = "offline_access"  # not about the resource (MCP 2026-07-28, authorization)
_LETTER = {
    b"idempotency-key": "idempotency_key",
    b"authorization": "authorization",
    b"x-scope-token": "scope_token",
    b"x-correlation-id": "correlation_id",
    b"x-traceability-id": "traceability_id",
}
WATCH_AFTER_S = 0.05  # most calls are over by then, and need no second task


def routing_headers(scope: Scope) -> Headers:
    """The headers that decide the era of a request (ASGI gives their names in lower case)."""
    headers = Headers()
    for name, value in scope["headers"]:
        attribute = _ROUTING.get(name)
        if attribute is None:
            if name[:10] == _MIRRORED:
                _mirror(headers, name, value)
            continue
        if getattr(headers, attribute) is not None:
            headers.duplicated = name.decode("latin-1")
        setattr(headers, attribute, value.decode("latin-1").strip(" \t"))
    return headers


def _mirror(headers: Headers, name: bytes, value: bytes) -> None:
    """Note a `Mcp-Param-*`: what follows in its name, and what it says."""
    argument = name[len(_MIRRORED) :].decode("latin-1")
    if headers.mirrored is None:
        headers.mirrored = {}
    if argument in headers.mirrored:
        headers.duplicated = name.decode("latin-1")
    headers.mirrored[argument] = value.decode("latin-1").strip(" \t")


async def caller(identify: Identify, scope: Scope) -> Identity:
    """Who asks. Raises the Fault that says why nobody knows."""
    identity = await identify(scope)
    if identity.refusal is not None:
        raise identity.refusal
    return identity


def letter(
    scope: Scope,
    side: Side | None = None,
    auth_first: bool = True,
    mirrored: Mapping[str, str] | None = None,
) -> Letter:
    """What the headers say for a service. Raises InvalidRequest for one key too many."""
    carried: dict[str, Any] = {"client": (scope.get("client") or ("",))[0]}
    for name, value in scope["headers"]:
        attribute = _LETTER.get(name)
        if attribute is None:
            continue
        if attribute == "idempotency_key" and attribute in carried:
            raise InvalidRequest("Idempotency-Key is sent more than once")
        carried[attribute] = value.decode("latin-1")
    if mirrored:
        carried["mirrored"] = mirrored
    return Letter(side, auth_first, **carried)


def one_command(carried: Letter) -> None:
    """Raises InvalidRequest for a batch that has an Idempotency-Key."""
    if carried.idempotency_key is not None:
        raise InvalidRequest("An Idempotency-Key is for one command; send each by itself")


def header(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            return str(value.decode("latin-1"))
    return ""


def require_json(scope: Scope) -> None:
    """Raises UnsupportedMediaType. Besides correctness: no HTML form can send this type."""
    found = header(scope, b"content-type")
    if found.split(";", 1)[0].strip().lower() != "application/json":
        raise UnsupportedMediaType(
            f"Content-Type must be application/json, not {found[:100] or 'missing'}"
        )


def require_acceptable(accept: str, *types: str) -> None:
    """Raises NotAcceptable. The specification wants both types listed; one of them will do."""
    if types[0] in accept:
        return
    ranges = {*types, *(f"{name.split('/')[0]}/*" for name in types), "*/*"}
    if accept and not any(media_range in accept.lower() for media_range in ranges):
        raise NotAcceptable(f"Accept must include {' and '.join(types)}, not only {accept[:100]}")


async def read_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """The whole request body. Raises PayloadTooLarge as soon as it is known to be, and
    InvalidRequest when the client goes before it has sent all."""
    declared = header(scope, b"content-length")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("The client went away before its body was complete")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body exceeds {limit_bytes} bytes (server.body_limit_bytes)")


def fault_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    """The headers that belong to the status of `fault`."""
    headers = []
    if isinstance(fault, MethodNotAllowed):
        headers.append((b"allow", fault.allow.encode()))
    if isinstance(fault, TooManyRequests | Unavailable):
        headers.append((b"retry-after", b"%d" % fault.retry_after))
    elif fault.status == 503:
        headers.append((b"retry-after", b"1"))
    said = challenge(fault)
    if said is not None:
        headers.append((b"www-authenticate", said.encode()))
    return headers


def challenge(fault: Fault) -> str | None:
    """The WWW-Authenticate header of `fault` (RFC 6750, 3): an error only where a token came."""
    if not isinstance(fault, StatusFault):
        return REALM if fault.status == 401 else None
    match fault.status, fault.as_status.code:
        case 401, MISSING_AUTH_TOKEN.code:
            return REALM
        case 401, _:
            text = UNQUOTABLE.sub("'", fault.as_status.description)
            return f'{REALM}, error="invalid_token", error_description="{text}"'
        case 403, _:  # the description names scopes of the caller's, so the body alone has it
            return f'{REALM}, error="insufficient_scope"{_wanted(fault)}'
    return None


def _wanted(fault: Fault) -> str:
    """The parameter that names the scopes which are missing, but none that is no scope at all
    (RFC 6749, 3.3), or that asks for more than to come in."""
    scopes = fault.scopes if isinstance(fault, ScopeMismatch) else ()
    told = " ".join(one for one in scopes if not UNQUOTABLE.search(one) and one != OFFLINE)
    return f', scope="{told}"' if told else ""


class Responder:
    """Sends the one response of an HTTP request; every response names its request id."""

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
        await self._start(status, [(b"content-length", b"%d" % length), *headers])
        for piece in pieces[:-1]:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        await self._send({"type": "http.response.body", "body": pieces[-1]})

    async def empty(self, status: int, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        await self._start(status, [(b"content-length", b"0"), *headers])
        await self._send({"type": "http.response.body"})

    async def fault(self, fault: Fault, id_: RequestId = None) -> None:
        """Refuse the whole HTTP request; the body is JSON-RPC on every front."""
        status = fault.status if fault.status >= 400 else 400
        # clients that test for 2026-07-28 look for an envelope error without data
        bare = isinstance(fault, MalformedEnvelope)
        body = encode(error_reply(id_, fault, None if bare else self.request_id))
        await self.json(body, status, fault_headers(fault))

    async def stream(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Begin a stream of server-sent events; no proxy may buffer it."""
        await self._start(
            200,
            [
                (b"content-type", b"text/event-stream"),
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


class Watch:
    """Cancels the task that entered it when the client goes away.

    Inside, nobody else may call `receive`: the request body has been read.
    """

    __slots__ = ("_receive", "_task", "_timer", "_watcher", "gone")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watcher: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self.gone = False

    def __enter__(self) -> "Watch":
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._begin)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        task, self._task = self._task, None
        if kind is asyncio.CancelledError and self.gone and task is not None:
            return task.uncancel() == 0  # ours, and only ours: the request just ends here
        return False

    def give_up(self) -> None:
        """The client is not worth waiting for: as if it had gone."""
        if self._task is not None and not self.gone:
            self.gone = True
            self._task.cancel("the client went away")

    def _begin(self) -> None:
        self._timer = None
        self._watcher = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        message: Message = await self._receive()
        while message["type"] != "http.disconnect":
            message = await self._receive()
        self.give_up()


async def send_all(responder: Responder, chunks: AsyncIterator[bytes], watch: Watch) -> None:
    """The rest of a stream, and its end.

    A client that has gone is looked for, too: under Python 3.11 a client of a database may miss
    that its task was cancelled (`asyncio.wait_for` drops it when an answer comes at that moment).
    """
    async for chunk in chunks:
        if watch.gone:
            return
        await responder.chunk(chunk)
    await responder.chunk(b"", more=False)


def query_value(scope: Scope, name: str) -> str | None:
    """The last value of a query parameter; None when there is none."""
    values = parse_qs(scope["query_string"].decode("latin-1")).get(name)
    return values[-1] if values else None

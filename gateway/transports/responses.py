"""Raw ASGI: the one response of an HTTP request, and the headers of faults."""

import re
from collections.abc import Iterable, Sequence

from starlette.types import Send

from gateway.context import new_request_id
from schemas.errors import Fault, MalformedEnvelope, MethodNotAllowed, TooManyRequests, Unavailable
from schemas.hybrid import MISSING_AUTH_TOKEN, ScopeMismatch, StatusFault
from schemas.jsonrpc import RequestId, encode, error_reply

REALM = 'Bearer realm="toolgate"'
UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")
OFFLINE = "offline_access"  # not about the resource (MCP 2026-07-28, authorization)


def fault_headers(fault: Fault) -> list[tuple[bytes, bytes]]:
    """The headers that go with the status of `fault`."""
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
    """The WWW-Authenticate header of `fault` (RFC 6750, 3): with an error only if a token was
    sent."""
    if not isinstance(fault, StatusFault):
        return REALM if fault.status == 401 else None
    match fault.status, fault.as_status.code:
        case 401, MISSING_AUTH_TOKEN.code:
            return REALM
        case 401, _:
            text = UNQUOTABLE.sub("'", fault.as_status.description)
            return f'{REALM}, error="invalid_token", error_description="{text}"'
        case 403, _:  # the description names the caller's scopes: body only
            return f'{REALM}, error="insufficient_scope"{_wanted(fault)}'
    return None


def _wanted(fault: Fault) -> str:
    """The parameter with the missing scopes; without invalid ones (RFC 6749, 3.3), and those not
    needed for access."""
    scopes = fault.scopes if isinstance(fault, ScopeMismatch) else ()
    told = " ".join(one for one in scopes if not UNQUOTABLE.search(one) and one != OFFLINE)
    return f', scope="{told}"' if told else ""


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
        status = fault.status if fault.status >= 400 else 400
        # clients that probe for 2026-07-28 expect an envelope error without data
        bare = isinstance(fault, MalformedEnvelope)
        body = encode(error_reply(id_, fault, None if bare else self.request_id))
        await self.json(body, status, fault_headers(fault))

    async def stream(self, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Begin a stream of server-sent events, with proxy buffering disabled."""
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

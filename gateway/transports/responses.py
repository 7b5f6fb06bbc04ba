"""Raw ASGI: the one response of an HTTP request."""

from collections.abc import Iterable, Sequence

from starlette.types import Send

from gateway.context import new_request_id
from gateway.transports.fault_headers import fault_headers
from schemas.errors import Fault, MalformedEnvelope
from schemas.jsonrpc import RequestId, encode, error_reply

JSON = (b"content-type", b"application/json")


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

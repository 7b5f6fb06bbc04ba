"""Memory budget of request bodies, in total and per client address.

A body counts from before its first byte until its request is answered, because what was decoded of
it lives as long. A body of at most SMALL_BYTES does not count: the server buffers as much for any
connection anyway. The sender need not be authenticated here, see `read_body`.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.access import LimitsSettings
from gateway.guards.error_responses import refuse
from gateway.guards.load_shedding import memory_limit
from gateway.state.rate_windows import network_of
from schemas.errors import (
    Fault,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    TooManyRequests,
    UnsupportedContentCoding,
)

SMALL_BYTES = 65536  # uvicorn stops reading a connection above that (its HIGH_WATER_LIMIT)
SHARE = 8  # of the memory limit, for all bodies
CLIENT_SHARE = 4  # of that, for the bodies of one address
UNKNOWN_BYTES = 64 << 20  # for all bodies, where the memory size is unknown
RETRY_AFTER_S = 1.0  # Retry-After: the end of a request cannot be predicted
CHUNKED = -1  # no Content-Length
FEW_DIGITS = len(str(SMALL_BYTES))

OF_ALL = "The gateway has as many large bodies as it can hold; try again later"
OF_CLIENT = (
    "Too many bytes of bodies at a time from this address (limits.client_buffered_body_bytes)"
)


class BodyBudget:
    """Counter of the bytes in use, in total and per client network."""

    def __init__(
        self, limits: LimitsSettings, on_refused: Callable[[str], None] = lambda _limit: None
    ) -> None:
        """A budget from `limits`; `on_refused` is called with the name of the exceeded limit."""
        self.reconfigure(limits)
        self._on_refused = on_refused
        self._clients: Counter[str | None] = Counter()  # by network
        self.held_bytes = 0

    def reconfigure(self, limits: LimitsSettings) -> None:
        most = limits.buffered_body_bytes or memory_limit(limits) // SHARE or UNKNOWN_BYTES
        self._most = most
        self._of_client = limits.client_buffered_body_bytes or most // CLIENT_SHARE

    def take(self, client: str | None, size: int, of_request: int = 0) -> None:
        """Count `size` more bytes of a client's body, after its first `of_request`. `client` None:
        behind a trusted proxy, where only the total is bounded. Raises TooManyRequests and
        Overloaded, except for the only body: one is always accepted."""
        of_client = self._clients.get(client, 0)
        if client is not None and of_client > of_request and of_client + size > self._of_client:
            self._on_refused("client_buffered_body_bytes")
            raise TooManyRequests(OF_CLIENT, RETRY_AFTER_S, "limits.client_buffered_body_bytes")
        if self.held_bytes > of_request and self.held_bytes + size > self._most:
            self._on_refused("buffered_body_bytes")
            raise Overloaded(OF_ALL, RETRY_AFTER_S)
        self._clients[client] += size
        self.held_bytes += size

    def give_back(self, client: str | None, size: int) -> None:
        """Release `size` bytes of a client."""
        self.held_bytes -= size
        self._clients[client] -= size
        if not self._clients[client]:
            del self._clients[client]


class BodyGuard:
    """Refuses a body before it is read: 429 or 503 beyond the budget, 415 if it is encoded."""

    def __init__(self, app: ASGIApp, budget: BodyBudget, largest_bytes: int) -> None:
        """A guard in front of `app`. `largest_bytes`: fronts read no body whose declared length
        exceeds it."""
        self._app = app
        self._budget = budget
        self._largest = largest_bytes

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope["method"] == "GET":  # bodies of GET are not read
            return self._app(scope, receive, send)
        fields = dict(scope["headers"])
        coding = fields.get(b"content-encoding")
        if coding and coding.lower() != b"identity":  # no front decodes, so each would misread it
            return refuse(scope, receive, send, UnsupportedContentCoding(coding.decode("latin-1")))
        size = declared_size(fields)
        if 0 <= size <= SMALL_BYTES or size > self._largest:
            return self._app(scope, receive, send)
        return self._serve(size, scope, receive, send)

    async def _serve(self, size: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Body(self._budget, network_of((scope.get("client") or ("",))[0]), receive)
        try:
            if size != CHUNKED:
                body.grow(size)
        except Fault as fault:
            await refuse(scope, receive, send, fault)
            return
        try:
            await self._app(scope, body.receive if size == CHUNKED else receive, send)
        finally:
            body.leave()


class _Body:
    """One body and its share of the budget."""

    def __init__(self, budget: BodyBudget, client: str, receive: Receive) -> None:
        self._budget = budget
        self._client = client
        self._receive = receive
        self._size = 0  # received so far
        self._held = 0

    def grow(self, size: int) -> None:
        """Take more of the budget. Raises TooManyRequests and Overloaded."""
        self._size += size
        if size and self._size > SMALL_BYTES:  # the share taken stays when the budget shrinks
            self._budget.take(self._client, self._size - self._held, self._held)
            self._held = self._size

    async def receive(self) -> Message:
        """The next message of a body without Content-Length. Raises as `grow` does."""
        message = await self._receive()
        self.grow(len(message.get("body", b"")))
        return message

    def leave(self) -> None:
        if self._held:
            self._budget.give_back(self._client, self._held)


class LimitedBody:
    """A body of at most `limit_bytes`, streamed to an application. The application's response
    gives way to `refusal`, unless it has begun."""

    def __init__(self, limit_bytes: int, receive: Receive, send: Send) -> None:
        self._left = limit_bytes
        self._receive = receive
        self._send = send
        self._begun = False
        self._ended = False
        self.refusal: Fault | None = None  # of the body: by this limit, the budget, or its end

    async def receive(self) -> Message:
        """The next message. Raises PayloadTooLarge, what the budget raises, and InvalidRequest if
        the client leaves within the body, unless it is being answered."""
        try:
            message = await self._receive()
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise PayloadTooLarge("The body is larger than the limit")
            if message["type"] == "http.disconnect" and not (self._ended or self._begun):
                raise InvalidRequest("The body ended too early")
            self._ended = self._ended or not message.get("more_body", False)
        except Fault as fault:
            self.refusal = None if self._begun else fault
            raise
        return message

    async def send(self, message: Message) -> None:
        if self.refusal is None:
            self._begun = True
            await self._send(message)


def declared_size(fields: Mapping[bytes, bytes]) -> int:
    """Declared body size: 0 for none or a small one, CHUNKED without a Content-Length. `fields`:
    the headers of the request."""
    length = fields.get(b"content-length")
    if b"transfer-encoding" in fields:
        return CHUNKED
    if length is None or len(length) < FEW_DIGITS:  # fast path: true of most requests
        return 0
    return int(length) if length.isdigit() else CHUNKED

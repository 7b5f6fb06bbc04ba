"""Requests to services, recorded for the person who tries a tool: what was sent, what came back.

Each trial has a client of its own on the connections of all calls, so that other calls do not pass
here. A preview records the request and sends nothing. Secrets are masked: all headers but a few
that never hold one and those that the caller's arguments give, parameters that security schemes
name, and every value of the source's credentials wherever it stands.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

from config.decode import without_credentials
from gateway.abc import Relay, RelayRequest
from gateway.context import Context
from gateway.http.http1 import DEFAULT_HEADERS
from gateway.upstreams.http.client import (
    Client,
    HttpRequest,
    HttpResponse,
    Reader,
    address_of,
    replaced,
)
from gateway.upstreams.http.connections import SourcePool, UpstreamFailed, read
from schemas.errors import Fault, SourceDown
from schemas.jsonrpc import encode
from schemas.masking import MASK
from schemas.source import Source
from schemas.tool import Tool

SHOWN_BYTES = 100_000  # of a body
EXCHANGES = 10  # of a call: a retry and a fetch of a schema are some
SHORTEST = 4  # characters of a secret that is masked inside of other texts
OPEN_HEADERS = frozenset(
    {
        *("accept", "accept-encoding", "accept-language", "content-type", "content-length"),
        *("content-disposition", "content-encoding", "user-agent", "idempotency-key", "date"),
        *("traceparent", "x-correlation-id", "x-traceability-id", "if-match", "if-none-match"),
        *("etag", "last-modified", "cache-control", "expires", "vary", "server", "retry-after"),
        *("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "allow"),
    }
)


class NotSent(UpstreamFailed):
    """The request of a preview, which is recorded and not sent."""


@dataclass(slots=True)
class ServiceExchange:
    """A request to a service, and its answer. Secrets are masked."""

    method: str
    address: str
    headers: Mapping[str, str]
    body: str
    status: int = 0  # 0: there was no answer
    reason: str = ""
    answer_headers: Mapping[str, str] | None = None
    answer_body: str = ""
    failure: str = ""


class Recording:
    def __init__(self, tool: Tool, arguments: Any, *, sends: bool, inspected: bool = False) -> None:
        """The exchanges of a call. `sends`: False for a preview; `inspected`: guardrails are about
        the tool, so that bodies of answers are left out."""
        self.exchanges: list[ServiceExchange] = []
        self.arguments = arguments
        self.sends = sends
        self._inspected = inspected
        self._own = frozenset(_texts(arguments))
        self._secrets: set[str] = set()
        named = (one for alternative in tool.binding.security for one in alternative)
        hidden = "|".join(re.escape(quote(one.name, safe="")) for one in named if one.name)
        self._parameters = re.compile(rf"(?<=[?&])({hidden})=[^&#]*") if hidden else None

    def masked(self, text: str) -> str:
        """The text without the secrets that were sent."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def begin(
        self, pool: SourcePool, request: HttpRequest, headers: Mapping[str, str]
    ) -> ServiceExchange | None:
        """Record a request over HTTP; None where there are enough."""
        self._learn(pool)
        shown = self._headers(headers, learns=True)
        address = without_userinfo(address_of(pool, request.server) + request.target)
        if self._parameters is not None:
            address = self._parameters.sub(rf"\1={MASK}", address)
        body = "" if request.body is None else self._body(request.body)
        if request.stream is not None:
            body = "…"
        return self._added(ServiceExchange(request.method, self.masked(address), shown, body))

    def begin_relayed(self, request: RelayRequest) -> ServiceExchange | None:
        """Record a request to another MCP server."""
        source = request.source
        message = {"jsonrpc": "2.0", "method": request.method, "params": request.params}
        address = without_credentials(source.base_url or source.location)
        body = self._body(encode(message))
        return self._added(ServiceExchange("MCP", address, self._headers(request.headers), body))

    def end(self, exchange: ServiceExchange | None, response: HttpResponse) -> None:
        if exchange is None:
            return
        exchange.status, exchange.reason = response.status, response.reason
        exchange.answer_headers = self._headers(response.headers)
        exchange.answer_body = self._answered(response.body)

    def end_relayed(self, exchange: ServiceExchange | None, members: Mapping[str, Any]) -> None:
        if exchange is not None:
            exchange.answer_body = self._answered(encode({"result": members}))

    def _added(self, exchange: ServiceExchange) -> ServiceExchange | None:
        if len(self.exchanges) >= EXCHANGES:
            return None
        self.exchanges.append(exchange)
        return exchange

    def _learn(self, pool: SourcePool) -> None:
        """Remember the secrets of a source, also as URLs write them."""
        entries = pool.credentials.values()
        values = [
            *(one for entry in entries for one in (entry.value, entry.token, entry.password)),
            *(entry.client_secret for entry in entries),
            *pool.headers.values(),
        ]
        self._keep(*(one for one in values if one))

    def _keep(self, *values: str) -> None:
        for one in values:
            for written in (one, one.rpartition(" ")[2], quote(one, safe=""), quote_plus(one)):
                if len(written) >= SHORTEST and written not in self._own:
                    self._secrets.add(written)

    def _headers(self, headers: Mapping[str, str], *, learns: bool = False) -> dict[str, str]:
        found = {}
        for name, value in headers.items():
            is_open = name.lower() in OPEN_HEADERS or value in self._own
            if learns and not is_open:
                self._keep(value)
            found[name] = self.masked(value) if is_open else MASK
        return found

    def _body(self, body: bytes) -> str:
        return self.masked(body[:SHOWN_BYTES].decode(errors="replace"))

    def _answered(self, body: bytes) -> str:
        return "" if self._inspected else self._body(body)


class RecordingClient(Client):
    """A client on the connections of another one, for one call."""

    def __init__(self, client: Client, recording: Recording) -> None:
        self.connections = client.connections
        self._client = client
        self._recording = recording

    async def forward(
        self,
        pool: SourcePool,
        request: HttpRequest,
        reader: Reader = read,
        *,
        headers: Mapping[str, str] | None = None,
        inline_bytes: int = 0,
    ) -> HttpResponse:
        sent = pool.with_configured(request.headers) if headers is None else headers
        exchange = self._recording.begin(pool, request, replaced(DEFAULT_HEADERS, sent))
        if not self._recording.sends:
            raise NotSent("This is a preview.")
        try:
            response = await self._client.forward(
                pool, request, reader, headers=headers, inline_bytes=inline_bytes
            )
        except UpstreamFailed as error:
            if exchange is not None:
                exchange.failure = str(error)
            raise
        self._recording.end(exchange, response)
        return response


class RecordingRelay:
    """Implements `Relay`, for one call."""

    def __init__(self, relay: Relay, recording: Recording) -> None:
        self._relay = relay
        self._recording = recording

    async def request(self, request: RelayRequest, context: Context) -> dict[str, Any]:
        exchange = self._recording.begin_relayed(request)
        if not self._recording.sends:
            raise SourceDown("This is a preview.")
        try:
            members = await self._relay.request(request, context)
        except Fault as fault:
            if exchange is not None:
                exchange.failure = fault.message
            raise
        self._recording.end_relayed(exchange, members)
        return members

    async def watch(self, source: Source, uri: str) -> None:
        await self._relay.watch(source, uri)

    async def unwatch(self, source: Source, uri: str) -> None:
        await self._relay.unwatch(source, uri)


def without_userinfo(address: str) -> str:
    """The URL without user and password."""
    return re.sub(r"^([a-z]+://)[^/@?#]*@", rf"\1{MASK}@", address)


def _texts(value: Any) -> Iterator[str]:
    """The scalars of arguments, as headers write them."""
    waiting: list[Any] = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, Sequence) and not isinstance(one, str):
            waiting += one
        elif one is not None:
            yield str(one)

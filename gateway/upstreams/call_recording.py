"""Requests to services, recorded for the person who tries a tool: what was sent, what came back.

Each trial has a client of its own on the connections of all calls, so that other calls do not pass
here. A preview records the request and sends nothing. Secrets are masked: all headers but a few
that never hold one and those that the caller's arguments give, parameters that security schemes
name, and every value of the source's credentials wherever it stands, as JSON, HTML and URLs write
it.
"""

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from gateway.context import Context
from gateway.http_client.http1 import DEFAULT_HEADERS
from gateway.interfaces import Relay, RelayRequest
from gateway.upstreams.http.client import (
    Client,
    HttpRequest,
    HttpResponse,
    Reader,
    address_of,
    replace_headers,
)
from gateway.upstreams.http.source_pools import SourcePool, SourcePools, UpstreamFailed, read
from schemas.errors import Fault, SourceDown
from schemas.jsonrpc import encode
from schemas.masking import MASK, mask_secrets
from schemas.source import Source
from schemas.tool import Tool
from schemas.urls import without_credentials

BODY_BYTES = 100_000  # of a body
EXCHANGES = 10  # of a call: a retry and a fetch of a schema are some
SHORTEST = 4  # characters of a secret that is masked inside of other texts; others are as words
PIECE = 8  # characters of a part of a header or query that may be a secret
USERINFO = re.compile(r"^([^:/?#]+://)([^/?#]*)@")  # up to the last @, as clients read it
PROVING = frozenset({"authorization", "cookie", "proxy-authorization", "x-scope-token"})
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


class CallRecording:
    def __init__(self, tool: Tool, arguments: Any, *, sends: bool, inspected: bool = False) -> None:
        """The exchanges of a call. `sends`: False for a preview; `inspected`: guardrails are about
        the tool, so that bodies of answers are left out."""
        self.exchanges: list[ServiceExchange] = []
        self.arguments = arguments
        self.sends = sends
        self._inspected = inspected
        self._own = frozenset(_texts(arguments))
        self._secrets: set[str] = set()
        self._words: set[str] = set()  # secrets too short to be masked inside of other texts
        security = tool.binding.security
        named = [
            credential.name
            for alternative in security
            for credential in alternative
            if credential.name
        ]
        self._proving = {*PROVING, *(name.lower() for name in named)}  # headers
        hidden = "|".join(re.escape(quote(name, safe="")) for name in named)
        self._parameters = re.compile(rf"(?<=[?&])({hidden})=[^&#]*") if hidden else None

    def mask(self, text: str, *, is_cut: bool = False) -> str:
        """The text without the secrets that were sent. `is_cut`: it may end inside of one."""
        text = mask_secrets(text, self._secrets, self._words)
        longest = max(map(len, self._secrets), default=0)
        return text[: max(0, len(text) - longest)] if is_cut else text

    def begin(
        self, pool: SourcePool, request: HttpRequest, headers: Mapping[str, str]
    ) -> ServiceExchange | None:
        """Record a request over HTTP; None where there are enough."""
        base = address_of(pool, request.server)
        self._learn(pool, base)
        masked_headers = self._headers(headers, learns=True)
        address = without_userinfo(base + request.target)
        if self._parameters is not None:
            address = self._parameters.sub(rf"\1={MASK}", address)
        body = "" if request.body is None else self._body(request.body)
        if request.stream is not None:
            body = "…"
        return self._add(ServiceExchange(request.method, self.mask(address), masked_headers, body))

    def begin_relayed(
        self, pool: SourcePool, request: RelayRequest, context: Context
    ) -> ServiceExchange | None:
        """Record a request to another MCP server."""
        source = request.source
        self._learn(pool, pool.address or "")
        self._learn_header("Authorization", context.headers.authorization or "")
        message = {"jsonrpc": "2.0", "method": request.method, "params": request.params}
        address = without_credentials(source.base_url or source.location)
        body = self._body(encode(message))
        return self._add(ServiceExchange("MCP", address, self._headers(request.headers), body))

    def end(self, exchange: ServiceExchange | None, response: HttpResponse) -> None:
        if exchange is None:
            return
        exchange.status, exchange.reason = response.status, self.mask(response.reason)
        exchange.answer_headers = self._headers(response.headers)
        exchange.answer_body = self._answer_body(response.body)

    def end_relayed(self, exchange: ServiceExchange | None, members: Mapping[str, Any]) -> None:
        if exchange is not None:
            exchange.answer_body = self._answer_body(encode({"result": members}))

    def fail(self, exchange: ServiceExchange | None, why: str) -> None:
        if exchange is not None:
            exchange.failure = self.mask(why)

    def _add(self, exchange: ServiceExchange) -> ServiceExchange | None:
        if len(self.exchanges) >= EXCHANGES:
            return None
        self.exchanges.append(exchange)
        return exchange

    def _learn(self, pool: SourcePool, address: str) -> None:
        """Remember the secrets of a source."""
        for entry in pool.credentials.values():
            for part in (entry.value, entry.token, entry.password, entry.client_secret):
                self._keep(part or "")
        match = USERINFO.match(address)
        if match is not None:
            user, _, password = match[2].partition(":")
            plain = f"{unquote(user)}:{unquote(password)}"
            written = base64.b64encode(plain.encode()).decode()
            for part in (user, password, unquote(user), unquote(password), written):
                self._keep(part)
        for _, value in parse_qsl(address.partition("?")[2]):
            if len(value) >= PIECE:
                self._keep(value)
        for name, value in pool.headers.items():
            self._proving.add(name.lower())
            self._learn_header(name, value)

    def _learn_header(self, name: str, value: str) -> None:
        """Remember a header that is masked, and what services make of it."""
        if len(value) >= SHORTEST or name.lower() in PROVING:
            self._keep(value)
        bare = value.rpartition(" ")[2]
        if len(bare) >= SHORTEST:
            self._keep(bare)
        if value[:6].lower() == "basic ":
            self._keep(_password(bare))
        if name.lower() == "cookie":
            for part in value.split(";"):
                if len(text := part.partition("=")[2].strip()) >= PIECE:
                    self._keep(text)

    def _keep(self, secret: str) -> None:
        if not secret or secret in self._own:
            return
        if len(secret) < SHORTEST:
            self._words.add(secret)
        else:
            self._secrets.update(_spellings(secret))

    def _headers(self, headers: Mapping[str, str], *, learns: bool = False) -> dict[str, str]:
        shown_headers = {}
        for name, value in headers.items():
            low = name.lower()
            is_open = low in OPEN_HEADERS or (value in self._own and low not in self._proving)
            if learns and not is_open:
                self._learn_header(name, value)
            shown_headers[name] = self.mask(value) if is_open else MASK
        return shown_headers

    def _body(self, body: bytes) -> str:
        text = body[:BODY_BYTES].decode(errors="replace")
        return self.mask(text, is_cut=len(body) > BODY_BYTES)

    def _answer_body(self, body: bytes) -> str:
        return "" if self._inspected else self._body(body)


class RecordingClient(Client):
    """A client on the connections of another one, for one call."""

    def __init__(self, client: Client, recording: CallRecording) -> None:
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
        sent = headers
        if sent is None:
            sent = pool.call_headers(request.headers, request.proofs)
        exchange = self._recording.begin(pool, request, replace_headers(DEFAULT_HEADERS, sent))
        if not self._recording.sends:
            raise NotSent("This is a preview.")
        try:
            response = await self._client.forward(
                pool, request, reader, headers=headers, inline_bytes=inline_bytes
            )
        except UpstreamFailed as error:
            self._recording.fail(exchange, str(error))
            raise
        self._recording.end(exchange, response)
        return response


class RecordingRelay:
    """Implements `Relay`, for one call."""

    def __init__(self, relay: Relay, connections: SourcePools, recording: CallRecording) -> None:
        """`connections`: to the servers of the relay."""
        self._relay = relay
        self._connections = connections
        self._recording = recording

    async def request(self, request: RelayRequest, context: Context) -> dict[str, Any]:
        pool = self._connections.of(request.source)
        exchange = self._recording.begin_relayed(pool, request, context)
        if not self._recording.sends:
            raise SourceDown("This is a preview.")
        try:
            members = await self._relay.request(request, context)
        except Fault as fault:
            self._recording.fail(exchange, fault.message)
            raise
        self._recording.end_relayed(exchange, members)
        return members

    async def watch(self, source: Source, uri: str) -> None:
        await self._relay.watch(source, uri)

    async def unwatch(self, source: Source, uri: str) -> None:
        await self._relay.unwatch(source, uri)


def without_userinfo(address: str) -> str:
    """The URL without user and password."""
    return USERINFO.sub(rf"\1{MASK}@", address)


def _spellings(secret: str) -> set[str]:
    """A secret as URLs, HTML and JSON write it, and JSON in a text of JSON."""
    inner = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    inner |= {text.replace("/", "\\/") for text in inner}
    inner |= {re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", each) for each in inner}
    in_url = {quote(secret, safe=""), quote(secret), quote_plus(secret)}
    in_url |= {re.sub("%..", lambda match: match[0].lower(), each) for each in in_url}
    return {
        secret,
        html.escape(secret),
        *inner,
        *(json.dumps(text)[1:-1] for text in inner),
        *in_url,
    }


def _password(credentials: str) -> str:
    """The password of basic credentials; "" where they cannot be read."""
    try:
        return base64.b64decode(credentials).decode().partition(":")[2]
    except ValueError:
        return ""


def _texts(value: Any) -> Iterator[str]:
    """The scalars of arguments, as headers write them."""
    waiting: list[Any] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, Sequence) and not isinstance(node, str):
            waiting += node
        elif node is not None:
            yield str(node)

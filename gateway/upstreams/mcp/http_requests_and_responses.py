"""HTTP endpoint of one MCP server: sends requests, reads responses in each content type."""

import logging
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import aiohttp
from msgspec import UNSET, Raw
from multidict import CIMultiDict
from yarl import URL

from gateway.http_client.deadline import Deadline
from gateway.http_client.failure_texts import failure_text, is_outage
from gateway.http_client.http1 import Http1Response, Site, TooLarge
from gateway.http_client.sse_parser import SseParser
from gateway.upstreams.auth.caller import CallerHolder
from gateway.upstreams.auth.delegation import AUTHORIZATION, auth_headers, invalidate_token
from gateway.upstreams.http.client import HookedHeaders, replace_headers
from gateway.upstreams.http.responses_as_results import OUTAGE_STATUSES
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed, read
from gateway.upstreams.mcp import message_parsers
from gateway.upstreams.mcp.cookies import SessionCookies
from gateway.upstreams.mcp.message_parsers import JsonTextParser, MalformedMessage, ServerMessage
from gateway.upstreams.mcp.running_requests import Exchange, Exchanges, IdleTimeout, TimedTasks
from registry.documents.ssrf_protection import read_url
from schemas.errors import RelayedFault

log = logging.getLogger("toolgate.upstream")

TARGET = 300  # characters of the target of a redirect in an error
ERROR_LIMIT_BYTES = 65536  # of the body of an error response
END_S = 3.0  # time limit of the DELETE that ends a session
DRAIN_S = 1.0  # how long an answered stream may take to end before its connection is closed
JSON = "application/json"
REDIRECTS = frozenset({307, 308})  # those that keep method and body (RFC 9110, 15.4)
REDIRECT_LIMIT = 5  # in a row
LINES = ("application/x-ndjson", "application/jsonl")
SSE = "text/event-stream"
HEADERS = {"Content-Type": JSON, "Accept": f"{JSON}, {SSE}"}

TROUBLE = (aiohttp.ClientError, OSError, TooLarge, MalformedMessage)


class HttpStatusError(UpstreamFailed):
    """An HTTP error status without a JSON-RPC error."""

    def __init__(self, text: str, status: int, detail: str = "", challenge: str = "") -> None:
        """`challenge`: the WWW-Authenticate of a 401 or 403."""
        super().__init__(text, down=status in OUTAGE_STATUSES, detail=detail)
        self.challenge = challenge
        self.http_status = status
        self.is_session_unknown = status == 404


class HttpFault(RelayedFault):
    """A JSON-RPC error that came with an HTTP status other than success."""

    def __init__(self, code: int, message: str, data: Any, status: int) -> None:
        super().__init__(code, message, data)
        self.http_status = status
        # servers made after the TypeScript SDK's examples send 400 instead of 404
        unknown = status == 400 and code == -32000 and "session" in message.lower()
        self.is_session_unknown = status == 404 or unknown


class ServerEndpoint:
    """URL of one server and its connection pool, which is held until `close`."""

    def __init__(
        self, pool: SourcePool, holder: CallerHolder | None = None, *, keeps_cookies: bool = True
    ) -> None:
        """The endpoint of the pool's server. `holder`: the caller to authenticate as, for requests
        without credentials of their own. `keeps_cookies`: for one session. Raises UpstreamFailed
        when the server has no address that may be called."""
        if pool.address is None:
            raise UpstreamFailed(
                f"{pool.source} has no address; set sources.{pool.source}.base_url"
            )
        self.name = pool.source
        self.pool = pool
        self._holder = holder or CallerHolder()
        self.limit_bytes = pool.limits.response_limit_bytes
        self.tasks = TimedTasks(pool.source)
        self._keeps_cookies = keeps_cookies
        self._cookies: SessionCookies | None = None  # once the server has set any
        try:
            self.url = pool.url(pool.address)
            self._site = Site(self.url)
        except (aiohttp.ClientError, OSError) as error:
            raise self.failure(error) from error
        pool.hold()
        self._holds = True

    async def close(self) -> None:
        await self.tasks.close()
        self.release()

    def release(self) -> None:
        """Release the connection pool: no more streams will be opened."""
        if self._holds:
            self._holds = False
            self.pool.release()

    def failure(self, error: Exception, idle_timeout: IdleTimeout | None = None) -> UpstreamFailed:
        """The UpstreamFailed that callers get for `error`."""
        log.warning("upstream_failed", extra={"source": self.name, "error": type(error).__name__})
        if isinstance(error, MalformedMessage):
            return UpstreamFailed(f"{self.name} {error}")
        timeout_s = idle_timeout.limit_s if idle_timeout is not None else self.pool.timeout_s
        late = type(error) is TimeoutError
        return UpstreamFailed(
            f"{self.name} {failure_text(error, timeout_s)}", late, is_outage(error)
        )

    async def headers(
        self, own_headers: Mapping[str, str], headers: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Headers of a request: configured ones, the credentials of the caller, and those of hooks,
        which replace all others. Raises UpstreamFailed."""
        hooked = headers.hooked if isinstance(headers, HookedHeaders) else None
        if self.pool.by_caller and not any(name in headers for name in self.pool.proofs):
            headers = {**headers, **await auth_headers(self.pool, self._holder.caller)}
        if not headers:
            return self.pool.with_configured(own_headers)
        merged = self.pool.with_configured({**headers, **own_headers})
        return merged if hooked is None else replace_headers(merged, hooked)

    def post(
        self, body: bytes, headers: Mapping[str, str], long_lived: bool = False
    ) -> Awaitable[Http1Response]:
        """POST a request; `long_lived` for streams. The caller closes the response, and passes on
        what is to be `settled`."""
        http = self.pool.unlimited_pool if long_lived else self.pool.http
        if self._cookies is not None:
            headers = self._cookies.with_cookies(headers, self.url)
        return http.request(self._site, "POST", "", headers, body=body)

    @asynccontextmanager
    async def notify(
        self, body: bytes, headers: Mapping[str, str], url: URL | None = None
    ) -> AsyncIterator[Http1Response]:
        """POST a message that has no response. Uses no connection of a call, since the call may
        wait for this message."""
        response = await self._request("POST", headers, url=url or self.url, body=body)
        with closing(response):
            yield response

    @asynccontextmanager
    async def stream(self, headers: Mapping[str, str]) -> AsyncIterator[Http1Response]:
        """GET a long-lived event stream."""
        headers = {**headers, "Accept": SSE}
        response = await self._request("GET", headers, url=self.url, repeatable=True)
        with closing(response):
            yield response

    async def end(self, headers: Mapping[str, str]) -> None:
        """End the session with DELETE; failures are only logged."""
        try:
            with Deadline(END_S):
                response = await self._request("DELETE", headers, url=self.url, repeatable=True)
                response.close()
        except (aiohttp.ClientError, OSError) as error:
            log.info("mcp_end_failed", extra={"source": self.name, "error": type(error).__name__})

    async def _request(
        self,
        method: str,
        headers: Mapping[str, str],
        *,
        url: URL,
        body: bytes | None = None,
        repeatable: bool = False,
    ) -> Http1Response:
        """Send a request outside the limit of connections."""
        sent = headers if self._cookies is None else self._cookies.with_cookies(headers, url)
        response = await self.pool.unlimited_pool.request(
            Site(url), method, "", sent, body=body, repeatable=repeatable
        )
        if self.is_unsettled(response):
            return await self.settle(response, headers, url=url, long_lived=True)
        return response

    @staticmethod
    def is_unsettled(response: Http1Response) -> bool:
        """Whether an answer leads elsewhere, or sets cookies."""
        return response.status in REDIRECTS or "Set-Cookie" in response.headers

    async def settle(
        self,
        response: Http1Response,
        headers: Mapping[str, str],
        *,
        url: URL | None = None,
        long_lived: bool = False,
    ) -> Http1Response:
        """The answer behind the redirects inside the origin, each of which is sent the method, the
        body and `headers` again; cookies are kept on the way. A redirect that leads elsewhere, or
        is one too many, is itself the answer. Raises what requests raise."""
        http = self.pool.unlimited_pool if long_lived else self.pool.http
        url = url or self.url
        for _ in range(REDIRECT_LIMIT):
            self._receive_cookies(response, url)
            target = _target(response, url) if response.status in REDIRECTS else None
            if target is None or target.origin() != url.origin():
                break
            response.close()
            self._note_redirect(response.status, url, target)
            sent = headers if self._cookies is None else self._cookies.with_cookies(headers, target)
            method, body = response.request.method, response.request.body
            response = await http.request(Site(target), method, "", sent, body=body)
            url = target
        return response

    def _receive_cookies(self, response: Http1Response, url: URL) -> None:
        lines = response.headers.getall("Set-Cookie", ())
        if not lines or not self._keeps_cookies:
            return
        if self._cookies is None:
            self._cookies = SessionCookies(self.name, self.pool.limits.mcp_cookies_bytes)
        self._cookies.receive(lines, url)

    def _note_redirect(self, status: int, url: URL, target: URL) -> None:
        if url != self.url:
            return
        self.pool.redirected_to = _address(target)
        if status == 308:  # permanent
            self.url, self._site = target, Site(target)

    def finish(self, response: Http1Response) -> None:
        """Drain the rest of a response, commonly empty, so that its connection can be reused."""

        async def read_on() -> None:
            try:
                async for _ in response.iter_any():
                    pass
            finally:
                response.close()

        if response.complete:
            response.close()
        else:
            self.tasks.run(read_on(), DRAIN_S)

    async def refusal(self, response: Http1Response) -> HttpStatusError | HttpFault:
        """The error for a response other than 2xx."""
        status = response.status
        if status in (401, 403):
            challenge = response.headers.get("WWW-Authenticate", "")
            return HttpStatusError(self._proof_error(response), status, challenge=challenge)
        if 300 <= status < 400:
            return self._redirect_error(response)
        try:
            text = await read(response, min(ERROR_LIMIT_BYTES, self.limit_bytes))
            for message in message_parsers.decode(text):
                if message.error is not UNSET:
                    error = message.error
                    return HttpFault(error.code, error.message, error.data, status)
        except (TooLarge, MalformedMessage):
            pass
        return HttpStatusError(f"{self.name} answered HTTP {status}", status)

    def _redirect_error(self, response: Http1Response) -> HttpStatusError:
        """The error for a redirect that was not followed; its target is for operators."""
        status, target = response.status, _target(response, self.url)
        if target is None:
            text = f"{self.name} answered HTTP {status}: a redirect that leads to no HTTP address"
            return HttpStatusError(text, status)
        if status in REDIRECTS and target.origin() == self.url.origin():
            text = f"{self.name} answered HTTP {status}: more than {REDIRECT_LIMIT} redirects"
            return HttpStatusError(text, status)
        where = _address(target)
        log.warning("mcp_redirect_refused", extra={"source": self.name, "target": where})
        text = f"{self.name} answered HTTP {status}: redirects to elsewhere are not followed"
        detail = f"; this one leads to {where}: name that address if it is the server's own"
        return HttpStatusError(text, status, detail)

    def _proof_error(self, response: Http1Response) -> str:
        """Error text for a rejected authentication (401 or 403). After a 401 the gateway's own
        token is invalidated."""
        status, request_headers = response.status, CIMultiDict(response.request.headers)
        if not self.pool.by_caller:
            return f"{self.name} refused the gateway's credentials (HTTP {status})"
        if AUTHORIZATION in request_headers:
            if status == 401:
                invalidate_token(self.pool, None, request_headers)
            return f"{self.name} refused the token that it got (HTTP {status})"
        return (
            f"{self.name} requires a token where there is no caller (HTTP {status}): set "
            f"sources.{self.name}.exchange.actor: client, or sources.{self.name}.headers"
        )

    async def answer(
        self,
        response: Http1Response,
        exchange: Exchange,
        exchanges: Exchanges,
        events: SseParser,
    ) -> dict[str, Raw] | None:
        """The result in a 2xx answer; None for a stream of events that ended without one.

        Raises RelayedFault, and whatever is in TROUBLE.
        """
        kind = response.content_type
        if kind == JSON and response.content_length is not None:
            text = await read(response, self.limit_bytes)
            if len(messages := message_parsers.decode(text)) == 1 and messages[0].method is UNSET:
                return _own(messages[0], exchange).members()
            return await _handle(messages, exchange, exchanges)
        if kind == SSE:
            return await self._read_stream(response, exchange, exchanges, events)
        if kind in (JSON, *LINES):
            members = await self._read_stream(
                response, exchange, exchanges, JsonTextParser(self.limit_bytes)
            )
            if members is None:
                raise MalformedMessage("ended its answer before it was complete")
            return members
        if response.status == 202:
            raise MalformedMessage("accepted the request without answering it")
        raise MalformedMessage(f"answered with {_type(kind)}; expected {JSON} or {SSE}")

    async def _read_stream(
        self,
        response: Http1Response,
        exchange: Exchange,
        exchanges: Exchanges,
        events: SseParser | JsonTextParser,
    ) -> dict[str, Raw] | None:
        begun = False
        async for chunk in response.iter_any():
            exchange.idle_timeout.restart()
            exchange.read_bytes += len(chunk)
            if exchange.read_bytes > self.limit_bytes:
                raise TooLarge(self.limit_bytes)
            if not begun and chunk.strip():
                begun = True
                events = parser_of(chunk, events, self.limit_bytes)
            for event in events.feed(chunk):
                members = await _handle(message_parsers.decode(event.data), exchange, exchanges)
                if members is not None:
                    return members
        for event in events.end():
            members = await _handle(message_parsers.decode(event.data), exchange, exchanges)
            if members is not None:
                return members
        return None


def parser_of(
    start: bytes, events: SseParser | JsonTextParser, limit_bytes: int
) -> SseParser | JsonTextParser:
    """The parser for a body that begins with `start`. No line of an event stream begins with a
    brace or a bracket: such a body is JSON, which some servers label as events."""
    if start.lstrip()[:1] in (b"{", b"["):
        return JsonTextParser(limit_bytes)
    return events


def _own(message: ServerMessage, exchange: Exchange) -> ServerMessage:
    """The `message` as the answer to our request. Raises MalformedMessage."""
    if message.answers(exchange.id) or (message.id in (None, UNSET) and message.error is not UNSET):
        return message
    raise MalformedMessage("answered with the id of another request")


async def _handle(
    messages: list[ServerMessage], exchange: Exchange, exchanges: Exchanges
) -> dict[str, Raw] | None:
    """Handle the messages received for our request; returns its result, if it is among them."""
    members = None
    for message in messages:
        if message.answers(exchange.id):
            members = message.members()
        else:
            await exchanges.receive(message, exchange)
    return members


def _target(response: Http1Response, url: URL) -> URL | None:
    """Where a redirect of `url` leads, without credentials; None for no HTTP address."""
    location = response.headers.get("Location")
    if location is None:
        return None
    try:
        target = url.join(read_url(location)).with_user(None)
    except ValueError:  # a lone surrogate among them
        return None
    return target if target.scheme in ("http", "https") and target.host else None


def _address(target: URL) -> str:
    """An address as operators read it: without its query, which may be a key."""
    return str(target.with_query(None))[:TARGET]


def _type(kind: str) -> str:
    return kind[:60] if kind.isascii() and kind.isprintable() else "a type that cannot be read"

"""Streamable HTTP of the handshake revisions, 2025-03-26 to 2025-11-25: one session at a server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from msgspec import Raw

from gateway.context import reason_of
from gateway.http_client.http1 import ConnectFailed, FixedHeaders, Http1Response
from gateway.http_client.sse_parser import SseParser
from gateway.upstreams.auth.caller import CallerHolder
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed
from gateway.upstreams.mcp import message_parsers
from gateway.upstreams.mcp.duplex_link import LISTEN, AcknowledgementHandler, listening
from gateway.upstreams.mcp.handshake import (
    INITIALIZED,
    initialize,
    notify_missed_changes,
    read_facts,
    routing_headers,
    with_envelope,
)
from gateway.upstreams.mcp.http_requests_and_responses import (
    HEADERS,
    REDIRECTS,
    SSE,
    TROUBLE,
    HttpStatusError,
    ServerEndpoint,
    parser_of,
)
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    Link,
    MessageHandler,
    NullHandler,
    ServerDescription,
    SessionLost,
    SubscribableLink,
    Timeout,
)
from gateway.upstreams.mcp.message_parsers import JsonTextParser, MalformedMessage
from gateway.upstreams.mcp.running_requests import Exchange, Exchanges
from schemas.errors import RelayedFault
from schemas.mcp.headers import NAMED_BY
from schemas.mcp.messages import CANCELLED
from schemas.mcp.revisions import V2025_11_25, Revision
from schemas.memo import Memo

log = logging.getLogger("toolgate.upstream")

LISTEN_S = 1.0  # time limit for a stream to begin
HEADERS_CACHED = 256  # items of a server whose headers are kept
NAME = 512  # characters of the name of one: URIs are as long as callers like


class HttpLink(Link):
    """Link that is one session over streamable HTTP."""

    def __init__(
        self, pool: SourcePool, background: MessageHandler, holder: CallerHolder | None = None
    ) -> None:
        self._endpoint = ServerEndpoint(pool, holder)
        self._background = background
        self._exchanges = Exchanges(
            pool.source, background, self._post, pool.limits.mcp_client_requests
        )
        self._headers = FixedHeaders(HEADERS)
        self._session: str | None = None
        self._lost = False
        self._listening: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()  # the server has shown whether it offers a GET stream

    @classmethod
    async def open(
        cls,
        pool: SourcePool,
        profile: ClientProfile,
        background: MessageHandler,
        timeout: Timeout,
        *,
        revision: Revision = V2025_11_25,
        listen: bool = False,
        holder: CallerHolder | None = None,
    ) -> "HttpLink":
        """Open a session, offering `revision`. `listen` also opens the GET stream for messages
        outside our requests; `holder` is its owner. Raises RelayedFault and UpstreamFailed."""
        link = cls(pool, background, holder)
        try:
            await link._begin(profile, revision, timeout)
        except BaseException:
            await link.close()
            raise
        if listen:
            await link._open_stream()
        return link

    @property
    def receives_messages(self) -> bool:
        return self._listening is not None and not self._listening.done()

    @property
    def alive(self) -> bool:
        return not self._lost and not self._endpoint.pool.retired

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        handler: MessageHandler | None,
        timeout: Timeout,
        *,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        if self._lost:
            raise SessionLost(f"{self._endpoint.name} has ended the session", sent=False)
        exchange = self._exchanges.begin(method, params, handler, timeout)
        over = False
        try:
            with exchange.idle_timeout:
                members = await self._result_of(exchange, headers)
            over = True
            return members
        except asyncio.CancelledError as error:
            exchange.cancel_reason = reason_of(error)
            raise
        except (RelayedFault, SessionLost, HttpStatusError):
            over = True
            raise
        except ConnectFailed as error:
            over = True  # nothing was sent
            raise self._endpoint.failure(error) from error
        except TROUBLE as error:
            raise self._endpoint.failure(error, exchange.idle_timeout) from error
        finally:
            self._exchanges.end(exchange)
            if not over and not self._lost:
                self._endpoint.tasks.run(self.notify(CANCELLED, exchange.cancel_params))

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._post(message_parsers.notice(method, params))

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._exchanges.close()
        if self._session is not None and not self._lost:
            self._lost = True
            with suppress(UpstreamFailed):  # the owner's token may have expired
                await self._endpoint.end(await self._endpoint.headers(self._headers, {}))
        self._lost = True
        await self._endpoint.close()

    async def _begin(self, profile: ClientProfile, revision: Revision, timeout: Timeout) -> None:
        exchange = self._exchanges.begin("initialize", initialize(profile, revision), None, timeout)
        try:
            with exchange.idle_timeout:
                self.facts = read_facts(await self._result_of(exchange, {}))
        except TROUBLE as error:
            raise self._endpoint.failure(error, exchange.idle_timeout) from error
        finally:
            self._exchanges.end(exchange)
        self._send_always("MCP-Protocol-Version", self.facts.revision.name)
        await self.notify(INITIALIZED, {})

    async def _result_of(self, exchange: Exchange, headers: Mapping[str, str]) -> dict[str, Raw]:
        events = SseParser(self._endpoint.limit_bytes)
        request_headers = await self._endpoint.headers(self._headers, headers)
        response = await self._endpoint.post(exchange.body, request_headers)
        try:
            # `is_unsettled`, without a call for each answer
            if response.status in REDIRECTS or "Set-Cookie" in response.headers:
                response = await self._endpoint.settle(response, request_headers)
            await self._check(response)
            if self._session is None:
                self._take_session(response)
            members = await self._endpoint.answer(response, exchange, self._exchanges, events)
            self._endpoint.finish(response)
        except aiohttp.ClientPayloadError:
            response.close()
            if not events.last_id:
                raise
            members = None  # cut off, but it can be resumed
        except BaseException:
            response.close()
            raise
        return members if members is not None else await self._resume(exchange, events)

    async def _resume(self, exchange: Exchange, events: SseParser) -> dict[str, Raw]:
        """The result in the rest of a stream that ended without one, resumed by Last-Event-ID."""
        rounds = 0
        while True:
            last_id = events.last_id
            if not last_id:
                raise MalformedMessage("closed the stream before it answered")
            exchange.idle_timeout.pause()  # the pause is the one that the server asked for
            try:
                await asyncio.sleep(events.pause_s(rounds))
            finally:
                exchange.idle_timeout.resume()
            try:
                async with self._endpoint.stream(await self._resuming(events)) as response:
                    await self._check(response)
                    members = await self._endpoint.answer(
                        response, exchange, self._exchanges, events
                    )
            except aiohttp.ClientPayloadError:
                members = None
            if members is not None:
                return members
            rounds = rounds + 1 if events.last_id == last_id else 0

    async def _resuming(self, events: SseParser) -> Mapping[str, str]:
        headers = {**self._headers, "Last-Event-ID": events.last_id} if events.last_id else {}
        return await self._endpoint.headers(headers or self._headers, {})

    async def _post(self, body: bytes) -> None:
        """POST a message that has no response. Raises as `request` does."""
        try:
            async with asyncio.timeout(self._endpoint.pool.timeout_s):
                headers = await self._endpoint.headers(self._headers, {})
                async with self._endpoint.notify(body, headers) as response:
                    await self._check(response)
        except TROUBLE as error:
            raise self._endpoint.failure(error) from error

    async def _check(self, response: Http1Response, *, ends_session: bool = True) -> None:
        """Raises SessionLost, RelayedFault and UpstreamFailed unless the status is a success.
        `ends_session`: whether a 404 can be about the session, not about the route."""
        if 200 <= response.status < 300:
            return
        refusal = await self._endpoint.refusal(response)
        if self._session is not None and ends_session and refusal.is_session_unknown:
            self._lose()
            text = f"{self._endpoint.name} has ended the session"
            raise SessionLost(text, sent=response.request.method == "GET") from refusal
        raise refusal

    def _lose(self) -> None:
        self._lost = True
        self._endpoint.release()
        if self._listening is not None and self._listening is not asyncio.current_task():
            self._listening.cancel()

    def _take_session(self, response: Http1Response) -> None:
        session = response.headers.get("Mcp-Session-Id")
        if session is not None:
            self._session = session
            self._send_always("Mcp-Session-Id", session)

    def _send_always(self, name: str, value: str) -> None:
        """Send a header with all requests from now on."""
        self._headers = FixedHeaders({**self._headers, name: value})

    async def _open_stream(self) -> None:
        """Open the GET stream, on which messages of the server are received from now on."""
        self._listening = asyncio.create_task(self._listen())
        self._listening.add_done_callback(lambda _task: self._heard.set())
        try:
            with suppress(TimeoutError):  # some servers send headers with the first message only
                async with asyncio.timeout(LISTEN_S):
                    await self._heard.wait()
        except BaseException:
            await self.close()
            raise

    async def _listen(self) -> None:
        """Read the GET stream of messages outside our requests; reconnects while offered."""
        events = SseParser(self._endpoint.limit_bytes)
        rounds, opened = 0, False
        while True:
            try:
                async with self._endpoint.stream(await self._resuming(events)) as response:
                    # until a GET was answered, 404 may mean that there is no route for GET
                    await self._check(response, ends_session=opened)
                    opened = True
                    self._heard.set()
                    if response.content_type != SSE:
                        return
                    if rounds and not events.last_id:
                        await notify_missed_changes(self.facts, self._background)
                    rounds = 0 if await self._read_stream(response, events) else rounds
            except (UpstreamFailed, RelayedFault) as error:
                # 405, or 404: the server offers no stream (2025-03-26 to 2025-11-25, transports)
                if getattr(error, "http_status", 0) < 500:
                    return
                self._heard.set()
            except TROUBLE as error:
                self._heard.set()
                log.info(
                    "mcp_stream_lost",
                    extra={"source": self._endpoint.name, "error": type(error).__name__},
                )
            await asyncio.sleep(events.pause_s(rounds))
            rounds += 1

    async def _read_stream(self, response: Http1Response, events: SseParser) -> bool:
        """Read the stream to its end; returns whether any event came."""
        received = False
        async for chunk in response.iter_any():
            for event in events.feed(chunk):
                received = True
                for message in message_parsers.decode(event.data):
                    await self._exchanges.receive(message, None)
        events.end()
        return received


class StatelessLink(SubscribableLink):
    """Link to one stateless server; opening it sends no request."""

    def __init__(self, pool: SourcePool, profile: ClientProfile, facts: ServerDescription) -> None:
        """A link to the pool's server. Raises UpstreamFailed when the server has no address that
        may be called."""
        self.facts = facts
        # requests of all callers: a cookie of one is not for the others
        self._endpoint = ServerEndpoint(pool, keeps_cookies=False)
        self._profile = profile
        self._exchanges = Exchanges(pool.source, NullHandler(), None, 0)
        self._prepared: Memo[tuple[str, str | None], FixedHeaders] = Memo(HEADERS_CACHED)
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed and not self._endpoint.pool.retired

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        handler: MessageHandler | None,
        timeout: Timeout,
        *,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        if self._closed:
            raise SessionLost(f"The way to {self._endpoint.name} was closed", sent=False)
        params = with_envelope(params, self._profile.client)
        exchange = self._exchanges.begin(method, params, handler, timeout)
        method_headers = self._headers(method, params)
        try:
            with exchange.idle_timeout:
                return await self._result_of(
                    exchange, await self._endpoint.headers(method_headers, headers)
                )
        except TROUBLE as error:
            raise self._endpoint.failure(error, exchange.idle_timeout) from error
        finally:
            self._exchanges.end(exchange)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """No-op: 2026-07-28 has no notifications of clients over HTTP (basic/transports)."""

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._endpoint.close()

    @asynccontextmanager
    async def listen(
        self, filter_: Mapping[str, Any], handler: MessageHandler
    ) -> AsyncIterator["asyncio.Future[Any]"]:
        params = with_envelope({"notifications": dict(filter_)}, self._profile.client)
        acknowledged = AcknowledgementHandler(handler)
        limit_s = self._endpoint.pool.timeout_s
        exchange = self._exchanges.begin(LISTEN, params, acknowledged, Timeout(limit_s, limit_s))
        async with listening(
            self._follow(exchange), acknowledged, self._endpoint.name, limit_s
        ) as over:
            yield over

    async def _follow(self, exchange: Exchange) -> None:
        """Receive the notifications of a stream until the server ends it."""
        listen_headers = {**HEADERS, **routing_headers(LISTEN, {})}
        try:
            headers = await self._endpoint.headers(listen_headers, {})
            response = await self._endpoint.post(exchange.body, headers, long_lived=True)
            try:
                if response.status in REDIRECTS:
                    response = await self._endpoint.settle(response, headers, long_lived=True)
                await self._listen(response, exchange)
            finally:
                response.close()
        except TROUBLE as error:
            raise self._endpoint.failure(error) from error
        finally:
            self._exchanges.end(exchange)

    async def _listen(self, response: Http1Response, exchange: Exchange) -> None:
        """Read the messages of a stream; only the size of a single one is limited, not that of the
        stream."""
        if not 200 <= response.status < 300:
            raise await self._endpoint.refusal(response)
        limit_bytes = self._endpoint.limit_bytes
        sse, begun = response.content_type == SSE, False
        events = SseParser(limit_bytes) if sse else JsonTextParser(limit_bytes)
        async for chunk in response.iter_any():
            if not begun and chunk.strip():
                begun = True
                events = parser_of(chunk, events, limit_bytes)
            for event in events.feed(chunk):
                if await self._is_over(event.data, exchange):
                    return
        for event in events.end():
            if await self._is_over(event.data, exchange):
                return
        raise MalformedMessage("closed the stream of notifications")

    async def _is_over(self, text: bytes, exchange: Exchange) -> bool:
        """Handle messages; True if the stream has ended. Raises the error that ends it."""
        for message in message_parsers.decode(text):
            if message.answers(exchange.id):
                message.members()
                return True
            await self._exchanges.receive(message, exchange)
        return False

    def _headers(self, method: str, params: Mapping[str, Any]) -> FixedHeaders:
        """The headers of all requests of a method for an item of this name."""
        name = params.get(NAMED_BY.get(method, ""))
        key = method, name if isinstance(name, str) else None
        prepared_headers = self._prepared.use(key)
        if prepared_headers is None:
            prepared_headers = FixedHeaders({**HEADERS, **routing_headers(method, params)})
            if len(key[1] or "") <= NAME:
                self._prepared.put(key, prepared_headers)
        return prepared_headers

    async def _result_of(self, exchange: Exchange, headers: Mapping[str, str]) -> dict[str, Raw]:
        response = await self._endpoint.post(exchange.body, headers)
        try:
            if response.status in REDIRECTS:
                response = await self._endpoint.settle(response, headers)
            if not 200 <= response.status < 300:
                raise await self._endpoint.refusal(response)
            events = SseParser(self._endpoint.limit_bytes)
            members = await self._endpoint.answer(response, exchange, self._exchanges, events)
            if members is None:
                raise MalformedMessage("closed the stream before it answered")
        except BaseException:
            response.close()
            raise
        self._endpoint.finish(response)
        return members

"""Streamable HTTP of 2026-07-28: every request is independent and has its own stream.

Closing the stream cancels the request. A server must not send requests here; the input that it
needs stands in its result, which our caller has to handle.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from msgspec import Raw

from gateway.upstreams.http.connections import SourcePool
from gateway.upstreams.mcp import wire
from gateway.upstreams.mcp.duplex import LISTEN, Acknowledged, listening
from gateway.upstreams.mcp.endpoint import HEADERS, SSE, TROUBLE, ServerEndpoint
from gateway.upstreams.mcp.events import EventStream, JsonText
from gateway.upstreams.mcp.handshake import routing_headers, with_envelope
from gateway.upstreams.mcp.link import Hearer, Hello, LinkFacts, SessionLost, StatelessWay, Timeout
from gateway.upstreams.mcp.listeners import Nobody
from gateway.upstreams.mcp.talk import Exchange, Talk
from gateway.upstreams.mcp.wire import Garbage


class StatelessLink(StatelessWay):
    """Link to one server; opening it sends no request."""

    def __init__(self, pool: SourcePool, hello: Hello, facts: LinkFacts) -> None:
        """Raises UpstreamFailed when the server has no address that may be called."""
        self.facts = facts
        self._endpoint = ServerEndpoint(pool)
        self._hello = hello
        self._talk = Talk(pool.source, Nobody(), None, 0)
        self._closed = False

    @property
    def alive(self) -> bool:
        return not self._closed and not self._endpoint.pool.retired

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        hearer: Hearer | None,
        timeout: Timeout,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        if self._closed:
            raise SessionLost(f"The way to {self._endpoint.name} was closed", sent=False)
        params = with_envelope(params, self._hello.client)
        exchange = self._talk.begin(method, params, hearer, timeout)
        sent = {**HEADERS, **routing_headers(method, params)}
        try:
            with exchange.patience:
                return await self._asked(exchange, await self._endpoint.headers(sent, headers))
        except TROUBLE as error:
            raise self._endpoint.failure(error, exchange.patience) from error
        finally:
            self._talk.end(exchange)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """No-op: there are none over HTTP (2026-07-28, basic/transports)."""

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._endpoint.close()

    @asynccontextmanager
    async def listen(
        self, wanted: Mapping[str, Any], hearer: Hearer
    ) -> AsyncIterator["asyncio.Future[Any]"]:
        params = with_envelope({"notifications": dict(wanted)}, self._hello.client)
        told = Acknowledged(hearer)
        limit_s = self._endpoint.pool.timeout_s
        exchange = self._talk.begin(LISTEN, params, told, Timeout(limit_s, limit_s))
        async with listening(self._follow(exchange), told, self._endpoint.name, limit_s) as over:
            yield over

    async def _follow(self, exchange: Exchange) -> None:
        """Receive the notifications of a stream until the server ends it."""
        sent = {**HEADERS, **routing_headers(LISTEN, {})}
        try:
            headers = await self._endpoint.headers(sent, {})
            response = await self._endpoint.post(exchange.body, headers, aside=True)
            try:
                await self._heard(response, exchange)
            finally:
                response.close()
        except TROUBLE as error:
            raise self._endpoint.failure(error) from error
        finally:
            self._talk.end(exchange)

    async def _heard(self, response: aiohttp.ClientResponse, exchange: Exchange) -> None:
        """Only the size of a single message is limited, not that of the stream."""
        if not 200 <= response.status < 300:
            raise await self._endpoint.refusal(response)
        limit_bytes = self._endpoint.limit_bytes
        sse = response.content_type == SSE
        events = EventStream(limit_bytes) if sse else JsonText(limit_bytes)
        async for chunk in response.content.iter_any():
            for event in events.feed(chunk):
                if await self._is_over(event.data, exchange):
                    return
        for event in events.end():
            if await self._is_over(event.data, exchange):
                return
        raise Garbage("closed the stream of notifications")

    async def _is_over(self, text: bytes, exchange: Exchange) -> bool:
        """Handle messages; True if the stream has ended. Raises the error that ends it."""
        for message in wire.decode(text):
            if message.answers(exchange.id):
                message.members()
                return True
            await self._talk.hear(message, exchange)
        return False

    async def _asked(self, exchange: Exchange, headers: Mapping[str, str]) -> dict[str, Raw]:
        response = await self._endpoint.post(exchange.body, headers)
        try:
            if not 200 <= response.status < 300:
                raise await self._endpoint.refusal(response)
            events = EventStream(self._endpoint.limit_bytes)
            members = await self._endpoint.answer(response, exchange, self._talk, events)
            if members is None:
                raise Garbage("closed the stream before it answered")
        except BaseException:
            response.close()
            raise
        self._endpoint.finish(response)
        return members

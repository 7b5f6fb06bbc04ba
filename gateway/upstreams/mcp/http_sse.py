"""HTTP+SSE of 2024-11-05: a stream opened by GET names the address for POSTs and carries all
messages of the server."""

import asyncio
import logging
from collections.abc import Mapping

from yarl import URL

from gateway.http_client.deadline import Deadline
from gateway.http_client.sse_parser import ServerEvent, SseParser
from gateway.state.background_tasks import wait_for_first
from gateway.upstreams.auth.caller import CallerHolder
from gateway.upstreams.http.source_pools import SourcePool
from gateway.upstreams.mcp.duplex_link import DuplexLink
from gateway.upstreams.mcp.http_requests_and_responses import JSON, SSE, TROUBLE, ServerEndpoint
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    MessageHandler,
    SessionLost,
    Timeout,
)
from gateway.upstreams.mcp.message_parsers import MalformedMessage
from registry.documents.ssrf_protection import read_url
from schemas.mcp.revisions import V2025_11_25, Revision

log = logging.getLogger("toolgate.upstream")

HEADERS = {"Content-Type": JSON}


async def open_http_sse(
    pool: SourcePool,
    profile: ClientProfile,
    background: MessageHandler,
    timeout: Timeout,
    *,
    revision: Revision = V2025_11_25,  # servers agree to newer ones on this transport too
    holder: CallerHolder | None = None,
) -> DuplexLink:
    """Open a session over HTTP+SSE. Raises RelayedFault and UpstreamFailed."""
    link = DuplexLink(background, profile, pool.source, pool.limits.mcp_client_requests)
    try:
        link.carrier = carrier = HttpSseCarrier(ServerEndpoint(pool, holder), link)
        await carrier.connect(timeout)
        await link.begin(revision, timeout)
    except BaseException:
        await link.close()
        raise
    return link


class HttpSseCarrier:
    """Carrier of one event stream, and of the POST address that it named."""

    def __init__(self, endpoint: ServerEndpoint, link: DuplexLink) -> None:
        self.name = endpoint.name
        self.limit_bytes = endpoint.limit_bytes
        self.open = True
        self._endpoint = endpoint
        self._link = link
        self._reading: asyncio.Task[None] | None = None
        self._address: asyncio.Future[URL] = asyncio.get_running_loop().create_future()

    async def connect(self, timeout: Timeout) -> None:
        """Open the stream. Raises RelayedFault and UpstreamFailed."""
        self._reading = asyncio.create_task(self._read())
        try:
            with Deadline(timeout.idle_s):
                await wait_for_first(self._reading, self._address)
                if not self._address.done():
                    self._reading.result()
                    raise MalformedMessage("closed the stream before it named its endpoint")
        except TROUBLE as error:
            raise self._endpoint.failure(error) from error

    async def send(self, body: bytes, headers: Mapping[str, str] = {}) -> None:
        try:
            async with (
                asyncio.timeout(self._endpoint.pool.timeout_s),
                self._endpoint.notify(
                    body, await self._endpoint.headers(HEADERS, headers), await self._address
                ) as response,
            ):
                if 200 <= response.status < 300:
                    return
                refusal = await self._endpoint.refusal(response)
                if response.status == 404:
                    raise SessionLost(f"{self.name} has ended the session", sent=False) from refusal
                raise refusal
        except TROUBLE as error:
            raise self._endpoint.failure(error) from error

    async def close(self) -> None:
        self.open = False
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._address.cancel()
        await self._endpoint.close()

    async def _read(self) -> None:
        """Read the stream. Failures are raised until the address is known; later ones only end the
        link."""
        try:
            await self._stream()
        except TROUBLE as error:
            if not self._address.done():
                raise
            log.info("mcp_stream_lost", extra={"source": self.name, "error": type(error).__name__})
        finally:
            self.open = False
            self._link.lose(SessionLost(f"{self.name} has ended the session", sent=True))

    async def _stream(self) -> None:
        events = SseParser(self.limit_bytes)
        async with self._endpoint.stream(await self._endpoint.headers({}, {})) as response:
            if not 200 <= response.status < 300:
                raise await self._endpoint.refusal(response)
            if response.content_type != SSE:
                raise MalformedMessage("answered GET with no stream of events")
            async for chunk in response.iter_any():
                for event in events.feed(chunk):
                    self._event(event)

    def _event(self, event: ServerEvent) -> None:
        if event.name == "message":
            self._link.receive(event.data)
        elif event.name == "endpoint" and not self._address.done():
            self._address.set_result(self._own_address(event.data))

    def _own_address(self, data: bytes) -> URL:
        """The POST address. Raises MalformedMessage for one of another origin than the server's."""
        try:
            url = self._endpoint.url.join(read_url(data.decode().strip()))
            if url.origin() == self._endpoint.url.origin():
                return url
        except ValueError as error:
            raise MalformedMessage("named an endpoint that is no address") from error
        raise MalformedMessage("named an endpoint at another server")

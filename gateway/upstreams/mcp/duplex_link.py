"""Link to a server over one stream in each direction: HTTP+SSE and standard input and output.

Responses, requests and notifications are multiplexed on one stream and assigned by id and token.
Each request has a mailbox, so that a slow client does not hold up the others. Messages that exceed
the mailbox are dropped, but never a response.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

from msgspec import UNSET, Raw

from gateway.context import reason_of
from gateway.http_client.deadline import Deadline
from gateway.http_client.http1 import TooLarge
from gateway.state.background_tasks import wait_for_first
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp import message_parsers
from gateway.upstreams.mcp.handshake import INITIALIZED, initialize, read_facts, with_envelope
from gateway.upstreams.mcp.link_and_handlers import (
    ClientProfile,
    Mailbox,
    MessageHandler,
    SessionLost,
    SubscribableLink,
    Timeout,
)
from gateway.upstreams.mcp.message_parsers import MalformedMessage, ServerMessage
from gateway.upstreams.mcp.running_requests import Exchange, Exchanges, TimedTasks
from schemas.mcp.messages import CANCELLED, META_SUBSCRIPTION, PROGRESS
from schemas.mcp.revisions import Revision

LISTEN = "subscriptions/listen"

log = logging.getLogger("toolgate.upstream")


UNLIMITED = Timeout(1e9, 1e9)
ACKNOWLEDGED_WITHIN_S = 30.0


class AcknowledgementHandler:
    """A MessageHandler that sets an event on its first notification."""

    def __init__(self, handler: MessageHandler) -> None:
        self.event = asyncio.Event()
        self._handler = handler

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        await self._handler.on_notification(method, params)
        self.event.set()

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        return await self._handler.on_request(method, params)


@asynccontextmanager
async def listening(
    work: Coroutine[Any, Any, Any], acknowledged: AcknowledgementHandler, name: str, limit_s: float
) -> AsyncIterator["asyncio.Future[Any]"]:
    """Context that runs `work`, which reads the stream, in the background. Raises what `work`
    raises before its first notification, and UpstreamFailed when that takes longer than
    `limit_s`."""
    following = asyncio.create_task(work)
    try:
        try:
            with Deadline(limit_s):
                await wait_for_first(following, acknowledged.event.wait())
        except TimeoutError as error:
            text = f"{name} did not acknowledge the subscription within {limit_s:g} s"
            raise UpstreamFailed(text, late=True) from error
        if not acknowledged.event.is_set():
            following.result()
        yield following
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class Carrier(Protocol):
    """Sends messages to the server; received messages go to `DuplexLink.arrived`."""

    name: str  # of the source
    limit_bytes: int

    @property
    def open(self) -> bool:
        """Whether the server is still connected."""

    async def send(self, body: bytes, headers: Mapping[str, str] = {}) -> None:
        """Send one message, with these headers where a message has any. Raises UpstreamFailed, and
        SessionLost when the server was gone before."""

    async def close(self) -> None: ...


class DuplexLink(SubscribableLink):
    """One session, or the link to a stateless server, over one carrier."""

    def __init__(
        self, background: MessageHandler, profile: ClientProfile, name: str, requests_limit: int
    ) -> None:
        """A link without a connection: `carrier` has to be set next, and `facts` unless `begin` is
        called."""
        self.carrier: Carrier | None = None
        self._profile = profile
        self._name = name
        self._exchanges = Exchanges(name, background, self._send, requests_limit)
        self._tasks = TimedTasks(name)
        self._boxes: dict[int, Mailbox] = {}
        self._background = Mailbox()
        self._hearing = asyncio.create_task(self._hear_background())

    @property
    def alive(self) -> bool:
        return self._background.over is None and self.carrier is not None and self.carrier.open

    async def begin(self, revision: Revision, timeout: Timeout) -> None:
        """Send `initialize`, offering `revision`. Raises RelayedFault and UpstreamFailed."""
        params = initialize(self._profile, revision)
        members = await self._result_of(
            self._exchanges.begin("initialize", params, None, timeout), cancels=False
        )
        try:
            self.facts = read_facts(members)
        except MalformedMessage as error:
            raise UpstreamFailed(f"{self._name} {error}") from error
        await self.notify(INITIALIZED, {})

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        handler: MessageHandler | None,
        timeout: Timeout,
        *,
        headers: Mapping[str, str] = {},
    ) -> dict[str, Raw]:
        if not self.facts.revision.handshake:
            params = with_envelope(params, self._profile.client)
        exchange = self._exchanges.begin(method, params, handler, timeout)
        return await self._result_of(exchange, headers=headers)

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send(message_parsers.notice(method, params))

    @asynccontextmanager
    async def listen(
        self, filter_: Mapping[str, Any], handler: MessageHandler
    ) -> AsyncIterator["asyncio.Future[Any]"]:
        params = with_envelope({"notifications": dict(filter_)}, self._profile.client)
        acknowledged = AcknowledgementHandler(handler)
        exchange = self._exchanges.begin(LISTEN, params, acknowledged, UNLIMITED)
        exchange.endless = True
        async with listening(
            self._result_of(exchange), acknowledged, self._name, ACKNOWLEDGED_WITHIN_S
        ) as ended:
            yield ended

    async def close(self) -> None:
        self.lose(SessionLost(f"The session at {self._name} was closed", sent=True))
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)
        self._exchanges.close()
        await self._tasks.close()
        if self.carrier is not None:
            await self.carrier.close()

    def receive(self, text: bytes) -> None:
        """Receive one JSON text from the server."""
        try:
            messages = message_parsers.decode(text)
        except MalformedMessage as error:
            log.info("mcp_unreadable", extra={"source": self._name, "error": str(error)})
            return
        for message in messages:
            self._sort(message, len(text))

    def lose(self, error: UpstreamFailed) -> None:
        """Fail the background mailbox and all running requests: the connection has ended."""
        self._background.fail(error)
        for box in self._boxes.values():
            box.fail(error)

    def _sort(self, message: ServerMessage, size: int) -> None:
        if message.method is UNSET:
            box = self._boxes.get(message.id) if isinstance(message.id, int) else None
            if box is not None:
                box.put(message, required=True)
            return
        owner = self._owner(message)
        if owner is None and message.method == PROGRESS:
            return
        if owner is None or owner.id not in self._boxes:
            self._background.put(message, required=message.method == CANCELLED)
            return
        owner.idle_timeout.restart()
        owner.read_bytes += size
        limit_bytes = self.carrier.limit_bytes if self.carrier is not None else 0
        if owner.read_bytes > limit_bytes and not owner.endless:
            too_large = TooLarge(limit_bytes)
            self._boxes[owner.id].fail(UpstreamFailed(f"{self._name} {too_large}"))
        else:
            self._boxes[owner.id].put(message)

    def _owner(self, message: ServerMessage) -> Exchange | None:
        if message.method == PROGRESS:
            return self._exchanges.owner(message)
        meta = (message.params or {}).get("_meta")
        subscription = meta.get(META_SUBSCRIPTION) if isinstance(meta, dict) else None
        return self._exchanges.running.get(subscription) if type(subscription) is int else None

    async def _result_of(
        self, exchange: Exchange, cancels: bool = True, headers: Mapping[str, str] = {}
    ) -> dict[str, Raw]:
        """Wait for the result of a request. Cancelling this cancels the request at the server, if
        `cancels`."""
        box = self._boxes[exchange.id] = Mailbox()
        settled = not cancels
        try:
            with exchange.idle_timeout:
                await self._send(exchange.body, headers)
                while True:
                    message = await box.get()
                    if message.answers(exchange.id):
                        settled = True
                        return message.members()
                    await self._exchanges.receive(message, exchange)
        except asyncio.CancelledError as error:
            exchange.cancel_reason = reason_of(error)
            raise
        except TimeoutError as error:
            limit_s = exchange.idle_timeout.limit_s
            text = f"{self._name} did not answer within {limit_s:g} s"
            raise UpstreamFailed(text, late=True, down=True) from error
        except MalformedMessage as error:
            raise UpstreamFailed(f"{self._name} {error}") from error
        finally:
            del self._boxes[exchange.id]
            self._exchanges.end(exchange)
            if not settled and self.alive:
                self._tasks.run(self.notify(CANCELLED, exchange.cancel_params))

    async def _hear_background(self) -> None:
        with suppress(UpstreamFailed):
            while True:
                await self._exchanges.receive(await self._background.get(), None)

    async def _send(self, body: bytes, headers: Mapping[str, str] = {}) -> None:
        if self.carrier is None or not self.alive:
            raise SessionLost(f"{self._name} has ended the session", sent=False)
        await self.carrier.send(body, headers)

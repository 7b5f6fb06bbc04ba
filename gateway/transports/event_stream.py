"""Event streams that a client opens by GET, or resumes."""

import logging
import time
from collections.abc import AsyncIterator

from starlette.types import Receive

from gateway.context import Identity, Outbox, Session, new_request_id
from gateway.protocol import sse_writer
from gateway.protocol.sse_writer import STANDALONE, Position
from gateway.state.session_streams import READ_AT_ONCE, UNKNOWN_EVENT, ReplayedEvent
from gateway.transports.client_connection import DisconnectWatch, send_all
from gateway.transports.http_messages import Responder
from gateway.transports.mcp_endpoint import McpFront
from schemas.errors import InvalidRequest, Unavailable

log = logging.getLogger("toolgate.streams")


class EventStreams:
    def __init__(self, front: McpFront) -> None:
        self._sessions = front.sessions
        self._streams = front.streams
        self._keep_alive_s = front.keep_alive_s
        self._retry_ms = front.retry_ms

    async def standalone(
        self,
        session: Session,
        position: Position | None,
        *,
        identity: Identity,
        receive: Receive,
        responder: Responder,
    ) -> None:
        """The standalone stream, from `position` on, for `identity`."""
        if position is not None:
            await self._streams.standalone(session, position.after)  # rejected before it begins
            session.last_event_id = position.after
        version = None if position is None else position.version
        with (
            self._sessions.stream(session, version) as outbox,
            self._streams.watch(session, STANDALONE, outbox.stir),
            DisconnectWatch(receive) as watch,
        ):
            outbox.on_overflow, outbox.still = watch.give_up, identity.still
            await responder.stream([(b"mcp-session-id", session.id.encode())])
            await responder.chunk(await self._first(session, outbox))
            await send_all(responder, self._standalone_chunks(session, outbox), watch)

    async def messages(self, session: Session, outbox: Outbox) -> AsyncIterator[list[bytes]]:
        """Messages of a stream without event ids (2024-11-05); the caller arranges for `stir`.
        Yields empty lists as keep-alives."""
        outbox.stir()  # reads events from before the watch
        while True:
            messages = await outbox.take(self._keep_alive_s)
            if outbox.closed and not messages:
                return
            messages += [message for _, message in await self._new_events(session, outbox)]
            yield messages

    async def replay(
        self,
        session: Session,
        position: Position,
        *,
        identity: Identity,
        receive: Receive,
        responder: Responder,
    ) -> None:
        """Replay the stream of one POST after `position`, until its answer was sent."""
        outbox = Outbox()
        outbox.still = identity.still
        with (
            self._sessions.replaying(session, outbox),
            self._streams.watch(session, position.stream, outbox.stir),
        ):
            events = [] if position.ended else await self._missed_events(session, position)
            with DisconnectWatch(receive) as watch:
                await responder.stream([(b"mcp-session-id", session.id.encode())])
                chunks = self._replayed_chunks(session, position, events, outbox)
                await send_all(responder, chunks, watch)

    async def _missed_events(self, session: Session, position: Position) -> list[ReplayedEvent]:
        events = await self._streams.replay(session, position)
        if not events and not await self._streams.exists(session, position.stream):
            raise InvalidRequest(UNKNOWN_EVENT)
        return events

    async def _first(self, session: Session, outbox: Outbox) -> bytes:
        """The first chunk: the server sends the headers with it."""
        if session.last_event_id is None:
            session.last_event_id = await self._streams.newest(session)
        if not session.revision.priming:
            return sse_writer.KEEP_ALIVE
        return sse_writer.priming(_news_position(session, outbox.lists_version).id, self._retry_ms)

    async def _standalone_chunks(self, session: Session, outbox: Outbox) -> AsyncIterator[bytes]:
        outbox.stir()  # reads events from before the watch
        while True:
            news, version = await outbox.take(self._keep_alive_s), outbox.lists_version
            if outbox.closed and not news:
                return
            parts = [sse_writer.event(message) for message in news[:-1]]
            if news:  # id on the last only: a client that missed any gets all again
                parts.append(sse_writer.event(news[-1], id_=_news_position(session, version).id))
            parts += [
                sse_writer.event(message, id_=Position(STANDALONE, after, version).id)
                for after, message in await self._new_events(session, outbox)
            ]
            yield b"".join(parts) or sse_writer.KEEP_ALIVE

    async def _new_events(self, session: Session, outbox: Outbox) -> list[tuple[str, bytes]]:
        """New events of the standalone stream's log, if it may have any."""
        if not outbox.stale:
            return []
        outbox.stale = False
        try:
            events = await self._streams.standalone(session, session.last_event_id or "")
        except Unavailable:
            return []  # the log wakes us when it is back
        except InvalidRequest:
            log.warning("stream_messages_missed", extra={"session": session.id[:8]})
            session.last_event_id = await self._streams.newest(session)
            return []
        if events:
            session.last_event_id = events[-1].id
        if len(events) == READ_AT_ONCE:
            outbox.stir()
        return [(event.id, event.data) for event in events]

    async def _replayed_chunks(
        self, session: Session, position: Position, events: list[ReplayedEvent], outbox: Outbox
    ) -> AsyncIterator[bytes]:
        while True:
            parts = [
                sse_writer.event(event.message, id_=event.position.id)
                for event in events
                if event.message
            ]
            if events:
                position = events[-1].position
            yield b"".join(parts) or sse_writer.KEEP_ALIVE
            if position.ended or outbox.closed or session.ended:
                return
            if len(events) < READ_AT_ONCE:
                await self._more(position, outbox)
            outbox.stale = False
            try:
                events = await self._streams.replay(session, position)
            except Unavailable:
                events = []

    async def _more(self, position: Position, outbox: Outbox) -> None:
        """Wait for more events, the death of the node that writes them, or the next keep-alive."""
        until = time.monotonic() + self._keep_alive_s
        while not (outbox.stale or outbox.closed) and time.monotonic() < until:
            left_s = until - time.monotonic()
            await outbox.take(min(left_s, self._streams.heartbeat_s))
            if not outbox.stale and await self._streams.is_orphaned(position):
                return


def _news_position(session: Session, version: str) -> Position:
    return Position(STANDALONE, session.last_event_id or "", version, new_request_id())

"""Standalone streams: the node that has the standalone stream of a session open sends all its
notifications.

That node watches the resources that the session subscribed to. Until there is such a stream, the
node of the subscription does; then it hands over, with its pending notifications.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.context import Outbox, Session
from gateway.state.background_tasks import BackgroundTasks
from gateway.state.change_streams import (
    LIST_NOTIFICATIONS,
    Follower,
    Hub,
    changed_lists,
    update_notification,
)
from gateway.state.node_bus import Bus
from schemas.errors import Fault

# bus messages: a node has opened the stream, and watches the resources
STREAM_OPENED, WATCHES_TAKEN = "stream opened", "watches taken"

log = logging.getLogger("toolgate.sessions")


class StandaloneStreams:
    def __init__(self, hub: Hub, bus: Bus, background: BackgroundTasks) -> None:
        self._hub = hub
        self._bus = bus
        self._background = background
        self._claims: Counter[str] = Counter()  # own announcements not yet received back

    @contextmanager
    def stream(self, session: Session, lists_version: str | None) -> Iterator[Outbox]:
        """Context of the session's standalone stream, open here and closed at other nodes.

        `lists_version` is the version of the lists that the client last saw, if it sent one: later
        changes wait in the outbox. Raises Unavailable at the limit of streams, and TooManyRequests
        at that of the principal.
        """
        outbox = Outbox()
        messages = {kind: LIST_NOTIFICATIONS[kind] for kind in session.announced_lists}
        follower = Follower(session.principal.tenant, session.toolset, outbox, messages)
        with self._hub.stream(outbox, follower, session.principal.key):
            session.outbox = session.outbox.hand_over(outbox)
            self._catch_up(
                session, outbox.lists_version if lists_version is None else lists_version
            )
            session.streams += 1
            session.has_stream = True
            try:
                self._take_over(session)
                yield outbox
            finally:
                session.streams -= 1
                session.has_stream = session.has_stream and session.outbox is not outbox
                session.touch()

    def stream_opened(self, session: Session | None, message: dict[str, Any]) -> None:
        """Handle the announcement that a node has opened the stream. The last announcement wins."""
        if message["node"] == self._bus.node:
            self._own_claim_received(message["session"])
        elif session is not None and not self._claims[session.id]:
            session.outbox, session.last_event_id = session.outbox.hand_over(), None
            session.has_stream = False

    def drop_unsubscribed(self, session: Session) -> list[str]:
        """See `Hub.drop_unsubscribed`."""
        return self._hub.drop_unsubscribed(session)

    async def resubscribe(self, session: Session, unsubscribed: Collection[str]) -> None:
        """Handle changed subscriptions: the client changed them at another node; those in
        `unsubscribed` were cancelled here."""
        if session.has_stream:
            await self._watch(session)
            await self._bus.broadcast(
                WATCHES_TAKEN, session=session.id, uris=sorted(session.watched)
            )
        await self._hub.unwatch_unused(session, unsubscribed)

    async def release(self, session: Session, uris: Sequence[str]) -> list[bytes]:
        """Release the watches of `uris` to another node; returns their pending notifications of
        this node."""
        await self._unwatch(session, session.watched.intersection(uris))
        if session.has_stream:
            return []
        released, still_watched = (
            map(update_notification, uris),
            set(map(update_notification, session.watched)),
        )
        waiting = await session.outbox.take(0)
        for message in waiting:
            if message in still_watched:
                session.outbox.put(message)
        return [message for message in released if message in waiting]

    def end(self, session: Session) -> None:
        if session.watched:
            self._background.start(self._unwatch(session, session.watched))

    def _own_claim_received(self, session_id: str) -> None:
        self._claims[session_id] -= 1
        self._claims += Counter()  # removes zero counts

    def _catch_up(self, session: Session, lists_version: str) -> None:
        outbox = session.outbox
        outbox.lists_version = self._hub.version(session.principal.tenant, session.toolset)
        for kind in changed_lists(lists_version, outbox.lists_version):
            if kind in session.announced_lists:
                outbox.put_once(LIST_NOTIFICATIONS[kind])

    def _take_over(self, session: Session) -> None:
        if self._bus.shared:
            self._claims[session.id] += 1
            self._background.start(self._claim_stream(session))
        elif session.subscriptions - session.watched:
            self._background.start(self._watch_all(session))

    async def _claim_stream(self, session: Session) -> None:
        if not await self._bus.broadcast(STREAM_OPENED, session=session.id):
            self._own_claim_received(session.id)
        await self._watch_all(session)
        await self._bus.broadcast(WATCHES_TAKEN, session=session.id, uris=sorted(session.watched))

    async def _watch_all(self, session: Session) -> None:
        """Watch all subscribed resources; those not watched here before may have changed, so the
        client is notified."""
        for uri in await self._watch(session):
            session.outbox.put_once(update_notification(uri))

    async def _watch(self, session: Session) -> list[str]:
        """Watch the resources that the session subscribed to; returns those not watched before."""
        watched = []
        for uri in sorted(session.subscriptions - session.watched):
            if uri not in session.subscriptions:
                continue  # unsubscribed from while this waited
            try:
                await self._hub.watch(session, uri)
            except Fault as fault:
                log.warning("watch_failed", extra={"reason": fault.message[:300]})
            else:
                watched.append(uri)
        return watched

    async def _unwatch(self, session: Session, uris: set[str]) -> None:
        for uri in sorted(uris):
            await self._hub.unwatch(session, uri)

"""Notifications of a client come from one node: the one that has its standalone stream.

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
from gateway.state.bus import Bus
from gateway.state.hub import LIST_NOTIFICATIONS, Follower, Hub, changed_lists, update_notification
from schemas.errors import Fault

STREAMS, TELLS = "streams", "tells"  # bus messages: a node has the stream, and watches

log = logging.getLogger("toolgate.sessions")


class StandaloneStreams:
    def __init__(self, hub: Hub, bus: Bus, later: BackgroundTasks) -> None:
        self._hub = hub
        self._bus = bus
        self._later = later
        self._claims: Counter[str] = Counter()  # own announcements not yet received back

    @contextmanager
    def stream(self, session: Session, told: str | None) -> Iterator[Outbox]:
        """The standalone stream of the session, open here, and closed at other nodes.

        `told` is the version of the lists that the client last saw, if it sent one: later changes
        wait in the outbox. Raises Unavailable at the limit of streams, and TooManyRequests at that
        of the principal.
        """
        outbox = Outbox()
        messages = {kind: LIST_NOTIFICATIONS[kind] for kind in session.news}
        follower = Follower(session.principal.tenant, session.toolset, outbox, messages)
        with self._hub.stream(outbox, follower, session.principal.key):
            session.outbox = session.outbox.hand_over(outbox)
            self._catch_up(session, outbox.told if told is None else told)
            session.streams += 1
            session.tells = True
            try:
                self._take_over(session)
                yield outbox
            finally:
                session.streams -= 1
                session.tells = session.tells and session.outbox is not outbox
                session.touch()

    def heard(self, session: Session | None, said: dict[str, Any]) -> None:
        """A node has opened the stream. The last announcement wins."""
        if said["node"] == self._bus.node:
            self._heard_ourselves(said["session"])
        elif session is not None and not self._claims[session.id]:
            session.outbox, session.heard = session.outbox.hand_over(), None
            session.tells = False

    def silence(self, session: Session) -> list[str]:
        """See `Hub.silence`."""
        return self._hub.silence(session)

    async def resubscribed(self, session: Session, gone: Collection[str]) -> None:
        """The client changed its subscriptions at another node; those in `gone` were silenced
        here."""
        if session.tells:
            await self._watch(session)
            await self._bus.say(TELLS, session=session.id, uris=sorted(session.watched))
        await self._hub.settle(session, gone)

    async def leave(self, session: Session, uris: Sequence[str]) -> list[bytes]:
        """Another node watches `uris`; returns their pending notifications of this node."""
        await self._unwatch(session, session.watched.intersection(uris))
        if session.tells:
            return []
        theirs, ours = (
            map(update_notification, uris),
            set(map(update_notification, session.watched)),
        )
        waiting = await session.outbox.take(0)
        for message in waiting:
            if message in ours:
                session.outbox.put(message)
        return [message for message in theirs if message in waiting]

    def end(self, session: Session) -> None:
        if session.watched:
            self._later.do(self._unwatch(session, session.watched))

    def _heard_ourselves(self, session_id: str) -> None:
        self._claims[session_id] -= 1
        self._claims += Counter()  # removes zero counts

    def _catch_up(self, session: Session, told: str) -> None:
        outbox = session.outbox
        outbox.told = self._hub.version(session.principal.tenant, session.toolset)
        for kind in changed_lists(told, outbox.told):
            if kind in session.news:
                outbox.put_once(LIST_NOTIFICATIONS[kind])

    def _take_over(self, session: Session) -> None:
        if self._bus.shared:
            self._claims[session.id] += 1
            self._later.do(self._took_over(session))
        elif session.subscriptions - session.watched:
            self._later.do(self._watch_all(session))

    async def _took_over(self, session: Session) -> None:
        if not await self._bus.say(STREAMS, session=session.id):
            self._heard_ourselves(session.id)
        await self._watch_all(session)
        await self._bus.say(TELLS, session=session.id, uris=sorted(session.watched))

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

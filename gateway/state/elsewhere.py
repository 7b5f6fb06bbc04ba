"""The same sessions at other nodes: what is said of them on the bus, and what is heard."""

import math
from typing import Any

from gateway.abc import SessionStore
from gateway.context import Session
from gateway.state.bus import Bus
from gateway.state.memory_stores import MemoryCounter
from gateway.state.open_sessions import OpenSessions
from gateway.state.telling import STREAMS, TELLS, Telling

CANCELS = 100  # of a session in a minute that other nodes are told of: any id may be named there
CANCELS_WINDOW_S = 60


class Elsewhere:
    def __init__(
        self, bus: Bus, store: SessionStore, open_here: OpenSessions, telling: Telling
    ) -> None:
        self._bus = bus
        self._store = store
        self._open = open_here
        self._telling = telling
        self._cancels = MemoryCounter()  # a limit at each node bounds what all of them say
        bus.on("ended", self._ended)
        bus.on("changed", self._changed)
        bus.on(STREAMS, self._streams, own=True)
        bus.on(TELLS, self._tells)
        bus.on("tell", self._tell)
        bus.on("cancel", self._cancel)
        bus.on_missed(self._look_again)

    async def end(self, session_id: str) -> None:
        await self._bus.say("ended", session=session_id)

    async def changed(self, session: Session) -> None:
        """What the store has of it."""
        await self._bus.say("changed", session=session.id)

    async def tell(self, session: Session, message: bytes) -> None:
        """Say it on the session's standalone stream, if another node has that."""
        if self._bus.shared:
            await self._bus.say("tell", session=session.id, message=message.decode())

    async def cancel(self, session: Session, request_id: int | str) -> None:
        """Stop a request of the session, if another node runs it."""
        if not self._bus.shared:
            return
        if (await self._cancels.hit(session.id, CANCELS, CANCELS_WINDOW_S)).allowed:
            await self._bus.say("cancel", session=session.id, id=request_id)

    async def purge(self) -> None:
        await self._cancels.purge()

    async def _ended(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None:
            self._open.drop(session)

    async def _changed(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        record = await self._store.get(said["session"]) if session is not None else None
        if session is None or record is None:
            return
        session.log_level = record.log_level
        session.skills = set(record.skills)
        session.client, session.capabilities = record.client, record.capabilities
        session.subscriptions = set(record.subscriptions)
        await self._telling.resubscribed(session)

    async def _streams(self, said: dict[str, Any]) -> None:
        self._telling.heard(self._open.get(said["session"]), said)

    async def _tells(self, said: dict[str, Any]) -> None:
        """Another node, which has the stream, has heard of a subscription that was made here."""
        session = self._open.get(said["session"])
        if session is not None and not session.tells:
            for message in await self._telling.leave(session, said["uris"]):
                await self.tell(session, message)

    async def _tell(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None and session.tells:
            session.outbox.put_once(said["message"].encode())

    async def _cancel(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None:
            session.cancel(said["id"])

    def _look_again(self) -> None:
        """What was said of sessions is unknown: ask the store before they are used."""
        for session in self._open:
            session.renewed = -math.inf

"""The same sessions at other nodes: what is said of them on the bus, and what is heard.

A change of a session is answered once every node that has the session open acts by it: each of
them confirms it on the bus (invalidation before the answer). So the next request is served alike
wherever it comes in, and no request has to ask the store first.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.abc import SessionRecord, SessionStore
from gateway.context import Session
from gateway.state.bus import Bus
from gateway.state.memory_stores import MemoryCounter
from gateway.state.open_sessions import OpenSessions
from gateway.state.records import update
from gateway.state.telling import STREAMS, TELLS, ClientNews
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.sessions")

CANCELS = 100  # of a session in a minute that other nodes are told of: any id may be named there
CANCELS_WINDOW_S = 60


@dataclass(slots=True, eq=False)
class Loading:
    """A session that is being loaded."""

    # what was said meanwhile
    version: int = 0  # that it has to have
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Waiting:
    nodes: set[str]  # that have not confirmed yet
    over: asyncio.Event


class Elsewhere:
    def __init__(
        self,
        bus: Bus,
        store: SessionStore,
        open_here: OpenSessions,
        telling: ClientNews,
        wait_s: float,
    ) -> None:
        """Nodes that do not confirm a change within `wait_s` are not waited for until they are
        heard again."""
        self._bus = bus
        self._store = store
        self._open = open_here
        self._telling = telling
        self._wait_s = wait_s
        self._cancels = MemoryCounter()  # a limit at each node bounds what all of them say
        self._loads: defaultdict[str, list[Loading]] = defaultdict(list)
        self._waits: dict[tuple[str, int], _Waiting] = {}  # by session and version
        self._silent: set[str] = set()  # nodes
        bus.on("ended", self._ended)
        bus.on("changed", self._changed)
        bus.on("acts", self._acts)
        bus.on(STREAMS, self._streams, own=True)
        bus.on(TELLS, self._tells)
        bus.on("tell", self._tell)
        bus.on("cancel", self._cancel)
        bus.on_missed(self._look_again)

    async def end(self, session_id: str) -> None:
        """The store has it no longer. A request that came here meanwhile may have loaded it."""
        self._over(session_id)
        await self._bus.say("ended", session=session_id)

    async def changed(self, record: SessionRecord) -> None:
        """Return when the other nodes that have the session open act by the record, unless they
        are silent."""
        others = set(record.nodes) - {self._bus.node}
        with self._waiting(record, others - self._silent) as waiting:
            if others and await self._bus.say("changed", session=record.id, version=record.version):
                await self._confirmed(waiting)

    @contextmanager
    def loading(self, session_id: str) -> Iterator[Loading]:
        """Inside, hear of changes of a session that is not open here yet."""
        loading = Loading()
        self._loads[session_id].append(loading)
        try:
            yield loading
        finally:
            self._loads[session_id].remove(loading)
            if not self._loads[session_id]:
                del self._loads[session_id]

    def take_over(self, session: Session, record: SessionRecord) -> Collection[str]:
        """Have the session here say what the record does; what it hears of no longer."""
        update(session, record)
        return self._telling.silence(session)

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
        self._over(said["session"])

    def _over(self, session_id: str) -> None:
        for loading in self._loads.get(session_id, ()):
            loading.ended = True
        session = self._open.get(session_id)
        if session is not None:
            self._open.drop(session)

    async def _changed(self, said: dict[str, Any]) -> None:
        session_id, version = said["session"], said["version"]
        for loading in self._loads.get(session_id, ()):
            loading.version = max(loading.version, version)
        session = self._open.get(session_id)
        if session is not None and session.version < version:
            await self._refresh(session)
        gone = self._telling.silence(session) if session is not None else ()
        await self._bus.say("acts", session=session_id, version=version, to=said["node"])
        if session is not None:
            await self._telling.resubscribed(session, gone)

    async def _refresh(self, session: Session) -> None:
        try:
            record = await self._store.get(session.id)
        except Unavailable:
            record = None
        if record is None:
            session.renewed = -math.inf  # whoever uses it has to ask again
        else:
            update(session, record)

    @contextmanager
    def _waiting(self, record: SessionRecord, nodes: set[str]) -> Iterator[_Waiting]:
        key = record.id, record.version
        waiting = self._waits[key] = _Waiting(nodes, asyncio.Event())
        try:
            yield waiting
        finally:
            del self._waits[key]

    async def _confirmed(self, waiting: _Waiting) -> None:
        if not waiting.nodes:
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.over.wait()
        except TimeoutError:
            log.warning("session_change_unconfirmed", extra={"nodes": sorted(waiting.nodes)})
            self._silent |= waiting.nodes

    async def _acts(self, said: dict[str, Any]) -> None:
        """Another node acts by a change that was made here."""
        self._silent.discard(said["node"])
        waiting = self._waits.get((said["session"], said["version"]))
        if waiting is not None and said["to"] == self._bus.node:
            waiting.nodes.discard(said["node"])
            if not waiting.nodes:
                waiting.over.set()

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

"""Session coherence between nodes: messages about sessions on the bus, and heartbeats.

A change of a session is acknowledged once every node that has it open has confirmed it on the bus
(invalidation before the answer). So the next request is served alike at any node, and no request
has to read the store first.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.context import Session
from gateway.interfaces import SessionRecord, SessionStore
from gateway.state.memory import MemoryCounter
from gateway.state.node_bus import Bus
from gateway.state.open_sessions import OpenSessions, update
from gateway.state.standalone_streams import STREAM_OPENED, WATCHES_TAKEN, StandaloneStreams
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.sessions")

CANCELS = 100  # per session and minute that are broadcast: any id may be named there
CANCELS_WINDOW_S = 60

FIRST_HEARTBEAT_S = 0.1


@dataclass(slots=True, eq=False)
class Loading:
    """A session that is being loaded."""

    # from messages received meanwhile
    version: int = 0  # minimum version
    ended: bool = False


@dataclass(slots=True, eq=False)
class _Waiting:
    nodes: set[str]  # nodes that have not confirmed yet
    done: asyncio.Event


class PeerNodes:
    def __init__(
        self,
        bus: Bus,
        store: SessionStore,
        *,
        open_sessions: OpenSessions,
        standalone: StandaloneStreams,
        wait_s: float,
    ) -> None:
        """Nodes that do not confirm a change within `wait_s` count as silent until their next
        confirmation."""
        self._bus = bus
        self._store = store
        self._open = open_sessions
        self._standalone = standalone
        self._wait_s = wait_s
        self._cancels = MemoryCounter()  # a limit per node bounds the traffic of all
        self._loads: defaultdict[str, list[Loading]] = defaultdict(list)
        self._waits: dict[tuple[str, int], _Waiting] = {}  # by session and version
        self._silent: set[str] = set()  # nodes
        bus.on("ended", self._on_end)
        bus.on("changed", self._on_change)
        bus.on("applied", self._on_applied)
        bus.on(STREAM_OPENED, self._stream_opened, from_self=True)
        bus.on(WATCHES_TAKEN, self._watches_taken)
        bus.on("notify", self._notify)
        bus.on("cancel", self._cancel)
        bus.on_missed(self._invalidate)

    async def end(self, session_id: str) -> None:
        """Drop a session deleted from the store, here and at the other nodes. A concurrent request
        may have loaded it."""
        self._drop(session_id)
        await self._bus.broadcast("ended", session=session_id)

    async def change(self, record: SessionRecord) -> None:
        """Announce a change; returns when all other nodes that have the session open, except silent
        ones, have applied it."""
        other_nodes = set(record.nodes) - {self._bus.node}
        with self._waiting(record, other_nodes - self._silent) as waiting:
            if other_nodes and await self._bus.broadcast(
                "changed", session=record.id, version=record.version
            ):
                await self._confirm(waiting)

    @contextmanager
    def loading(self, session_id: str) -> Iterator[Loading]:
        """Context in which changes of a session that is not open here yet are tracked."""
        loading = Loading()
        self._loads[session_id].append(loading)
        try:
            yield loading
        finally:
            self._loads[session_id].remove(loading)
            if not self._loads[session_id]:
                del self._loads[session_id]

    def take_over(self, session: Session, record: SessionRecord) -> Collection[str]:
        """Update the session here from `record`; returns the URIs whose subscriptions it no longer
        has."""
        update(session, record)
        return self._standalone.drop_unsubscribed(session)

    async def notify(self, session_id: str, message: bytes) -> None:
        """Send `message` on the session's standalone stream, if another node has it open."""
        if self._bus.shared:
            await self._bus.broadcast("notify", session=session_id, message=message.decode())

    async def cancel(self, session: Session, request_id: int | str, reason: str = "") -> None:
        """Cancel a request of the session, if another node runs it."""
        if not self._bus.shared:
            return
        if (await self._cancels.hit(session.id, CANCELS, CANCELS_WINDOW_S)).is_allowed:
            await self._bus.broadcast("cancel", session=session.id, id=request_id, reason=reason)

    async def purge(self) -> None:
        await self._cancels.purge()

    async def _on_end(self, message: dict[str, Any]) -> None:
        self._drop(message["session"])

    def _drop(self, session_id: str) -> None:
        for loading in self._loads.get(session_id, ()):
            loading.ended = True
        session = self._open.get(session_id)
        if session is not None:
            self._open.drop(session)

    async def _on_change(self, message: dict[str, Any]) -> None:
        session_id, version = message["session"], message["version"]
        for loading in self._loads.get(session_id, ()):
            loading.version = max(loading.version, version)
        session = self._open.get(session_id)
        if session is not None and session.version < version:
            await self._refresh(session)
        gone = self._standalone.drop_unsubscribed(session) if session is not None else ()
        await self._bus.broadcast(
            "applied", session=session_id, version=version, to=message["node"]
        )
        if session is not None:
            await self._standalone.resubscribe(session, gone)

    async def _refresh(self, session: Session) -> None:
        try:
            record = await self._store.get(session.id)
        except Unavailable:
            record = None
        if record is None:
            session.renewed = -math.inf  # reload from the store before the next use
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

    async def _confirm(self, waiting: _Waiting) -> None:
        if not waiting.nodes:
            return
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.done.wait()
        except TimeoutError:
            log.warning("session_change_unconfirmed", extra={"nodes": sorted(waiting.nodes)})
            self._silent |= waiting.nodes

    async def _on_applied(self, message: dict[str, Any]) -> None:
        """Handle a confirmation: another node has applied a change that was made here."""
        self._silent.discard(message["node"])
        waiting = self._waits.get((message["session"], message["version"]))
        if waiting is not None and message["to"] == self._bus.node:
            waiting.nodes.discard(message["node"])
            if not waiting.nodes:
                waiting.done.set()

    async def _stream_opened(self, message: dict[str, Any]) -> None:
        self._standalone.stream_opened(self._open.get(message["session"]), message)

    async def _watches_taken(self, message: dict[str, Any]) -> None:
        """Handle a handover: the node with the stream has taken over watches made here."""
        session = self._open.get(message["session"])
        if session is not None and not session.has_stream:
            for pending in await self._standalone.release(session, message["uris"]):
                await self.notify(session.id, pending)

    async def _notify(self, message: dict[str, Any]) -> None:
        session = self._open.get(message["session"])
        if session is not None and session.has_stream:
            session.outbox.put_once(message["message"].encode())

    async def _cancel(self, message: dict[str, Any]) -> None:
        session = self._open.get(message["session"])
        if session is not None:
            session.cancel(message["id"], message.get("reason", ""))  # older nodes send none

    def _invalidate(self) -> None:
        """Invalidate all sessions after missed messages: they are reloaded from the store before
        their next use."""
        for session in self._open:
            session.renewed = -math.inf


async def send_heartbeats(store: SessionStore, node: str, every_s: float) -> None:
    """Send heartbeats until cancelled; a node counts as dead after three missed ones. Returns at
    once where nodes share no store."""
    pause_s = min(every_s, FIRST_HEARTBEAT_S)  # the store may not be there yet
    while store.shared:
        try:
            await store.beat(node, 3 * every_s)
            pause_s = every_s
        except Unavailable:
            if pause_s == every_s:
                log.warning("heartbeat_missed")
        await asyncio.sleep(pause_s)

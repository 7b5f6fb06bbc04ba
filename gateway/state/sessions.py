"""Open sessions: those in use here, as objects, in front of the store that all nodes share.

A store that is not shared is not asked: then what is here is all there is. A shared one is asked
when a session is seen here for the first time, and again after a while, so that nothing is served
for long that ended while this node did not hear of it.
"""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from gateway.abc import Counter, SessionRecord, SessionStore
from gateway.context import REQUEST_ID_BYTES, Outbox, Principal, Session
from gateway.state.bus import Bus
from gateway.state.hub import Hub
from gateway.state.memory_stores import MemoryCounter
from gateway.state.news import KINDS
from gateway.state.records import record_of, restored
from gateway.state.tasks import Tasks
from gateway.state.telling import STREAMS, TELLS, Telling
from registry.catalog import Kind
from schemas.errors import InvalidParams, TooManyRequests, Unavailable
from schemas.mcp.revisions import HANDSHAKE, Revision

log = logging.getLogger("toolgate.sessions")

RATE_WINDOW_S = 60
RENEW_AT_MOST_S = 60.0
FIRST_BEAT_S = 0.1
ID_LIMIT = 128  # characters; ours have 32
STREAM_LIMIT = 20  # of one session at a time; a client has one, and those that it came back to
CANCELS = 100  # of a session in a minute that other nodes are told of: any id may be named there

Announces = Callable[[str, str | None], Collection[Kind]]
"""The lists of a tenant, or of one of its toolsets, that clients are told of when they change."""


def _all_lists(_tenant: str, _toolset: str | None) -> Collection[Kind]:
    return KINDS


@dataclass(frozen=True, slots=True)
class SessionLimits:
    idle_s: float  # a session that nobody has used for so long ends
    sessions: int  # at this node
    calls: int  # of one session at a time
    rate: int  # sessions that one principal may open in a minute, at all nodes
    of_one: int = 0  # of one principal at this node; 0: as many as it likes


class Sessions:
    def __init__(
        self,
        hub: Hub,
        bus: Bus,
        store: SessionStore,
        counter: Counter,
        limits: SessionLimits,
        announces: Announces = _all_lists,
    ) -> None:
        self._hub = hub
        self._bus = bus
        self._store = store
        self._counter = counter
        self._limits = limits
        self._announces = announces
        self._renew_after_s = min(RENEW_AT_MOST_S, limits.idle_s / 10)
        self._open: dict[str, Session] = {}
        self._owned: dict[tuple[str, str], dict[str, Session]] = {}  # by whose they are
        self._cancels = MemoryCounter()  # a limit at each node bounds what all of them say
        self.on_drop: Callable[[str], None] = _unheard  # hears the ids of those that are let go
        self.later = Tasks()  # done before the last session is gone
        self._telling = Telling(hub, bus, self.later)
        hub.on_subscribed = self.changed
        bus.on("ended", self._ended_elsewhere)
        bus.on("changed", self._changed_elsewhere)
        bus.on(STREAMS, self._streams, own=True)
        bus.on(TELLS, self._told_elsewhere)
        bus.on("tell", self._tell)
        bus.on("cancel", self._cancelled_elsewhere)
        bus.on_missed(self._look_again)

    def __len__(self) -> int:
        return len(self._open)

    async def open(
        self,
        revision: Revision,
        principal: Principal,
        client: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        toolset: str | None = None,
    ) -> Session:
        """At the limit the session unused for longest goes; Unavailable when all are in use.
        Raises TooManyRequests, too."""
        await self._count(principal)
        self._make_room_of(principal)
        self._make_room()
        session = Session(
            secrets.token_urlsafe(24),
            revision,
            principal,
            client,
            capabilities,
            self._limits.calls,
            toolset,
            outbox=Outbox(self._hub.version(principal.tenant, toolset)),
            news=frozenset(self._announces(principal.tenant, toolset)),
        )
        if self._store.shared:
            await self._store.put(record_of(session), self._limits.idle_s)
        self._keep(session)
        return session

    def needs_load(self, session_id: str) -> bool:
        """Whether the store has to be asked before `find` can tell."""
        if not self._store.shared:
            return False
        session = self._open.get(session_id)
        return session is None or time.monotonic() - session.renewed > self._renew_after_s

    async def load(self, session_id: str) -> None:
        """Ask the store. Raises Unavailable when it does not answer."""
        if len(session_id) > ID_LIMIT:
            return
        record = await self._store.get(session_id)
        session = self._open.get(session_id)
        if record is None:
            if session is not None:
                self._drop(session)
            return
        if record.revision not in HANDSHAKE:
            return  # of a newer gateway
        await self._store.touch(session_id, self._limits.idle_s)
        if session is None:
            self._make_room()
            session = self._open.get(session_id) or self._keep(self._restored(record))
        session.renewed = time.monotonic()

    def find(
        self, session_id: str, principal: Principal, toolset: str | None = None
    ) -> Session | None:
        """The session, if it is open here and was opened by the same principal, at the same
        endpoint."""
        session = self._open.get(session_id)
        if session is None or session.principal.key != principal.key or session.toolset != toolset:
            return None
        if not self._store.shared and _is_idle(session, self._idle_since()):
            self.close(session)
            return None
        session.touch()
        return session

    async def changed(self, session: Session) -> None:
        """Let all nodes know what a client said of its session."""
        if self._store.shared:
            await self._store.put(record_of(session), self._limits.idle_s)
            await self._bus.say("changed", session=session.id)

    async def tell(self, session: Session, message: bytes) -> None:
        """Say it on the session's standalone stream, at whichever node that is; if it has one."""
        if session.tells:
            session.outbox.put_once(message)
        elif self._bus.shared:
            await self._bus.say("tell", session=session.id, message=message.decode())

    async def cancel(self, session: Session, request_id: int | str) -> None:
        """Stop a request of the session, at whichever node it runs. Raises InvalidParams for an id
        that no request can have."""
        if isinstance(request_id, str) and len(request_id.encode()) > REQUEST_ID_BYTES:
            raise InvalidParams(f"requestId must have at most {REQUEST_ID_BYTES} bytes")
        if session.cancel(request_id) or not self._bus.shared:
            return
        if (await self._cancels.hit(session.id, CANCELS, RATE_WINDOW_S)).allowed:
            await self._bus.say("cancel", session=session.id, id=request_id)

    def stream(self, session: Session, told: str | None = None) -> AbstractContextManager[Outbox]:
        """Inside, its standalone stream is open here; the one before it, perhaps dead, ends,
        wherever it is. See `Telling.stream`. Raises TooManyRequests, too."""
        _check_streams(session)
        return self._telling.stream(session, told)

    @contextmanager
    def replaying(self, session: Session, outbox: Outbox) -> Iterator[None]:
        """Inside, a stream of its is open that a client came back to. Raises Unavailable at the
        limit of streams, and TooManyRequests at that of the session."""
        _check_streams(session)
        with self._hub.stream(outbox, owner=session.principal.key):
            session.streams += 1
            try:
                yield
            finally:
                session.streams -= 1
                session.touch()

    def close(self, session: Session) -> None:
        """End the session, at all nodes; the others hear of it soon."""
        if self._drop(session) and self._store.shared:
            self.later.do(self._end_everywhere(session.id))

    async def delete(self, session: Session) -> None:
        """The same, done when this returns. Raises Unavailable when the store does not answer."""
        self._drop(session)
        if self._store.shared:
            await self._end_everywhere(session.id)

    async def all(self, tenant: str) -> list[SessionRecord]:
        """The open sessions of a tenant, at all nodes. Raises Unavailable."""
        if self._store.shared:
            return [record for record in await self._store.all() if record.tenant == tenant]
        own = (one for one in self._open.values() if one.principal.tenant == tenant)
        return [record_of(session) for session in own]

    async def end(self, record: SessionRecord) -> None:
        """End the session, at all nodes, whoever has it open. Raises Unavailable."""
        session = self._open.get(record.id)
        if session is not None:
            await self.delete(session)
        elif self._store.shared:
            await self._end_everywhere(record.id)

    def reap(self) -> int:
        """Let go of the sessions that nobody has used for too long; returns how many."""
        before = self._idle_since()
        idle = [session for session in self._open.values() if _is_idle(session, before)]
        for session in idle:
            self._drop(session)  # a shared store forgets it by itself, once it is idle everywhere
        return len(idle)

    async def renew(self) -> None:
        """Keep those in use from expiring in the store. Raises Unavailable."""
        if self._store.shared:
            await self._cancels.purge()
            late = time.monotonic() - self._renew_after_s
            for session in list(self._open.values()):
                if session.renewed < late and (session.streams or session.running):
                    await self.load(session.id)

    async def beat(self, every_s: float) -> None:
        """Show that this node is alive until cancelled; after three beats missed it is not."""
        pause_s = min(every_s, FIRST_BEAT_S)  # the store may not be there yet
        while self._store.shared:
            try:
                await self._store.beat(self._bus.node, 3 * every_s)
                pause_s = every_s
            except Unavailable:
                if pause_s == every_s:
                    log.warning("beat_missed")
            await asyncio.sleep(pause_s)

    async def close_all(self) -> None:
        """Let go of all sessions: this node stops, and others may go on with them."""
        for session in list(self._open.values()):
            self._drop(session)
        await self.later.done()

    def _restored(self, record: SessionRecord) -> Session:
        news = self._announces(record.tenant, record.toolset)
        return restored(record, self._limits.calls, frozenset(news))

    async def _count(self, principal: Principal) -> None:
        key = f"sessions/{principal.tenant}/{principal.id[:256]}"
        verdict = await self._counter.hit(key, self._limits.rate, RATE_WINDOW_S)
        if not verdict.allowed:
            raise TooManyRequests(
                f"Too many new sessions (limit {self._limits.rate} in a minute); use those that "
                "are open, or try again later",
                verdict.retry_after_s,
            )

    def _keep(self, session: Session) -> Session:
        self._open[session.id] = session
        self._owned.setdefault(session.principal.key, {})[session.id] = session
        return session

    def _make_room_of(self, principal: Principal) -> None:
        """The same for one more of one principal's. Raises TooManyRequests."""
        owned, most = self._owned.get(principal.key, {}), self._limits.of_one
        if not most or len(owned) < most:
            return
        oldest = _unused_for_longest(owned.values())
        if oldest is None:
            text = f"You have {most} sessions in use, as many as you can: end one first"
            raise TooManyRequests(text, 1.0, "limits.principal_sessions")
        self.close(oldest)

    def _make_room(self) -> None:
        """Clients that never say goodbye must not lock out the others until they are idle."""
        if len(self._open) < self._limits.sessions or self.reap():
            return
        oldest = _unused_for_longest(self._open.values())
        if oldest is None:
            limit = self._limits.sessions
            raise Unavailable(f"Too many sessions in use (limit {limit}); try again later")
        self._drop(oldest)

    def _drop(self, session: Session) -> bool:
        """Let go of the session at this node; False when it was gone."""
        if self._open.pop(session.id, None) is None:
            return False
        owned = self._owned[session.principal.key]
        del owned[session.id]
        if not owned:
            del self._owned[session.principal.key]
        session.end()
        self._telling.end(session)
        self.on_drop(session.id)
        return True

    async def _end_everywhere(self, session_id: str) -> None:
        await self._store.delete(session_id)
        await self._bus.say("ended", session=session_id)

    async def _ended_elsewhere(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None:
            self._drop(session)

    async def _changed_elsewhere(self, said: dict[str, Any]) -> None:
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

    async def _told_elsewhere(self, said: dict[str, Any]) -> None:
        """Another node, which has the stream, has heard of a subscription that was made here."""
        session = self._open.get(said["session"])
        if session is not None and not session.tells:
            for message in await self._telling.leave(session, said["uris"]):
                await self._bus.say("tell", session=session.id, message=message.decode())

    async def _tell(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None and session.tells:
            session.outbox.put_once(said["message"].encode())

    async def _cancelled_elsewhere(self, said: dict[str, Any]) -> None:
        session = self._open.get(said["session"])
        if session is not None:
            session.cancel(said["id"])

    def _look_again(self) -> None:
        """What was said of sessions is unknown: ask the store before they are used."""
        for session in self._open.values():
            session.renewed = -math.inf

    def _idle_since(self) -> float:
        return time.monotonic() - self._limits.idle_s


def _check_streams(session: Session) -> None:
    if session.streams >= STREAM_LIMIT:
        text = f"This session has {session.streams} open streams, as many as it can: end one first"
        raise TooManyRequests(text, 1.0)


def _unheard(_session_id: str) -> None: ...


def _unused_for_longest(sessions: Iterable[Session]) -> Session | None:
    unused = (session for session in sessions if _is_idle(session, math.inf))
    return min(unused, key=lambda session: session.last_used, default=None)


def _is_idle(session: Session, since: float) -> bool:
    return session.last_used <= since and session.streams == 0 and not session.running

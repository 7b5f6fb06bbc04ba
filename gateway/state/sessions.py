"""Sessions of clients: opened, looked up, changed and closed, over the store that all nodes share.

A store that is not shared is not read: this node has all sessions. A shared store is read at the
first request of a session here, and periodically again, so that a session that another node has
closed unnoticed is not served for long.
"""

import math
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from msgspec.structs import replace

from gateway.context import REASON_CHARACTERS, REQUEST_ID_BYTES, Outbox, Principal, Session
from gateway.interfaces import Counter, Events, SessionChange, SessionRecord, SessionStore
from gateway.state.background_tasks import BackgroundTasks
from gateway.state.change_streams import LIST_KINDS, Hub
from gateway.state.node_bus import Bus
from gateway.state.open_sessions import (
    OpenSessions,
    SessionLimits,
    is_unused,
    record_of,
    restore_session,
    update,
    with_change,
)
from gateway.state.peer_nodes import PeerNodes
from gateway.state.standalone_streams import StandaloneStreams
from schemas.errors import InvalidParams, SessionNotFound, TooManyRequests
from schemas.mcp.messages import ListKind
from schemas.mcp.revisions import HANDSHAKE, Revision

RATE_WINDOW_S = 60
RENEW_AT_MOST_S = 60.0
CHANGE_WAIT_S = 2.0
ID_LIMIT = 128  # characters; ours have 32
STREAM_LIMIT = 20  # of one session at a time: its own, and replayed ones

Announces = Callable[[str, str | None], Collection[ListKind]]
"""The lists of a tenant, or of one of its toolsets, that clients are told of when they change."""


def _all_lists(_tenant: str, _toolset: str | None) -> Collection[ListKind]:
    return LIST_KINDS


class Sessions:
    def __init__(
        self,
        hub: Hub,
        bus: Bus,
        *,
        store: SessionStore,
        counter: Counter,
        limits: SessionLimits,
        announces: Announces = _all_lists,
        change_wait_s: float = CHANGE_WAIT_S,
        events: Events | None = None,
    ) -> None:
        self._hub = hub
        self._node = bus.node
        self._store = store
        self._counter = counter
        self._limits = limits
        self._announces = announces
        self._renew_after_s = min(RENEW_AT_MOST_S, limits.idle_s / 10)
        self._open = OpenSessions(limits, self._on_drop)
        self.background = BackgroundTasks()  # finished before `close_all` returns
        self._standalone = StandaloneStreams(hub, bus, self.background)
        self._peers = PeerNodes(
            bus, store, open_sessions=self._open, standalone=self._standalone, wait_s=change_wait_s
        )
        events = events or Events()
        events.subscription_changed.subscribe(self.change)
        self._session_ended = events.session_ended

    def set_principal_limit(self, per_principal: int) -> None:
        """Change the limit of sessions here per principal; as in SessionLimits."""
        self._open.set_principal_limit(per_principal)

    def __len__(self) -> int:
        return len(self._open)

    async def open(
        self,
        revision: Revision,
        principal: Principal,
        client: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        *,
        toolset: str | None = None,
    ) -> Session:
        """Open a session. At the limit the least recently used one is evicted. Raises Unavailable
        when all are in use, and TooManyRequests."""
        await self._count(principal)
        excess = self._open.excess_session(principal)
        if excess is not None:
            self.close(excess)
        self._open.make_room()
        session = Session(
            secrets.token_urlsafe(24),
            revision,
            principal=principal,
            client=client,
            capabilities=capabilities,
            calls_limit=self._limits.calls,
            toolset=toolset,
            outbox=Outbox(self._hub.version(principal.tenant, toolset)),
            announced_lists=frozenset(self._announces(principal.tenant, toolset)),
        )
        if self._store.shared:
            record = replace(record_of(session), nodes=(self._node,))
            await self._store.put(record, self._limits.idle_s)
        return self._open.add(session)

    def needs_load(self, session_id: str) -> bool:
        """Whether the store has to be read before `find`."""
        if not self._store.shared:
            return False
        session = self._open.get(session_id)
        return session is None or time.monotonic() - session.renewed > self._renew_after_s

    async def load(self, session_id: str) -> None:
        """Load the session from the store. Raises Unavailable when it does not answer."""
        if len(session_id) > ID_LIMIT:
            return
        with self._peers.loading(session_id) as loading:
            record = await self._store.hold(session_id, self._node, self._limits.idle_s)
            needed_version = 0  # a store that lost the change, as by a failover, is read once more
            while record is not None and max(record.version, needed_version) < loading.version:
                needed_version = loading.version
                record = await self._store.get(session_id)
            self._on_load(session_id, None if loading.ended else record)

    def find(
        self, session_id: str, principal: Principal, toolset: str | None = None
    ) -> Session | None:
        """The session, if it is open here and was opened by the same principal, at the same
        endpoint."""
        session = self._open.get(session_id)
        if session is None or session.toolset != toolset:
            return None
        owner, now = session.principal, time.monotonic()
        if owner.id != principal.id or owner.tenant != principal.tenant:
            return None
        idle_since = now - self._limits.idle_s
        if session.last_used <= idle_since and not self._store.shared and is_unused(session):
            self.close(session)
            return None
        session.last_used = now
        return session

    async def change(self, session: Session, change: SessionChange) -> None:
        """Apply a change that the client requested of its session; all nodes apply it before this
        returns. Cancellation does not stop it halfway. Raises SessionNotFound when the session has
        ended, and Unavailable: then the session here is unchanged."""
        if self._store.shared:
            await self.background.shield(self._change(session, change))
        else:
            update(session, with_change(record_of(session), change))

    async def notify(self, session: Session, message: bytes) -> None:
        """Send `message` on the session's standalone stream, at whichever node has it open, if
        any."""
        if session.has_stream:
            session.outbox.put_once(message)
        else:
            await self._peers.notify(session.id, message)

    async def notify_id(self, session_id: str, message: bytes) -> None:
        """`notify`, for a session that may not be open at this node."""
        session = self._open.get(session_id)
        if session is not None:
            await self.notify(session, message)
        else:
            await self._peers.notify(session_id, message)

    async def cancel(self, session: Session, request_id: int | str, reason: str = "") -> None:
        """Cancel a request of the session, at whichever node runs it. Raises InvalidParams for an
        id that no request can have."""
        if isinstance(request_id, str) and len(request_id.encode()) > REQUEST_ID_BYTES:
            raise InvalidParams(f"requestId must have at most {REQUEST_ID_BYTES} bytes")
        reason = reason[:REASON_CHARACTERS]
        if not session.cancel(request_id, reason):
            await self._peers.cancel(session, request_id, reason)

    def stream(
        self, session: Session, lists_version: str | None = None
    ) -> AbstractContextManager[Outbox]:
        """Context in which the session's standalone stream is open here; its predecessor, perhaps a
        dead connection, is closed at any node. See `StandaloneStreams.stream`. Raises
        TooManyRequests, too."""
        _check_streams(session)
        return self._standalone.stream(session, lists_version)

    @contextmanager
    def replaying(self, session: Session, outbox: Outbox) -> Iterator[None]:
        """Context of a stream that the client resumed. Raises Unavailable at the limit of streams,
        and TooManyRequests at that of the session."""
        _check_streams(session)
        with self._hub.stream(outbox, owner=session.principal.key):
            session.streams += 1
            try:
                yield
            finally:
                session.streams -= 1
                session.touch()

    def close(self, session: Session) -> None:
        """End the session, at all nodes; the others are notified in the background."""
        if self._open.drop(session) and self._store.shared:
            self.background.start(self._end_everywhere(session.id))

    async def delete(self, session: Session) -> None:
        """Close the session as `close` does, and wait until that is complete. Raises Unavailable
        when the store does not answer."""
        self._open.drop(session)
        if self._store.shared:
            await self._end_everywhere(session.id)

    async def all(self, tenant: str) -> list[SessionRecord]:
        """The open sessions of a tenant, at all nodes. Raises Unavailable."""
        if self._store.shared:
            return [record for record in await self._store.all() if record.tenant == tenant]
        sessions = (session for session in self._open if session.principal.tenant == tenant)
        return [record_of(session) for session in sessions]

    async def end(self, record: SessionRecord) -> None:
        """End the session, at all nodes, wherever it is open. Raises Unavailable."""
        session = self._open.get(record.id)
        if session is not None:
            await self.delete(session)
        elif self._store.shared:
            await self._end_everywhere(record.id)

    def reap(self) -> int:
        """Drop the sessions past their idle timeout; returns how many."""
        return self._open.reap()

    async def renew(self) -> None:
        """Renew sessions in use, so that they do not expire in the store. Raises Unavailable."""
        if self._store.shared:
            await self._peers.purge()
            late = time.monotonic() - self._renew_after_s
            for session in self._open:
                if session.renewed < late and (session.streams or session.running):
                    await self.load(session.id)

    async def close_all(self) -> None:
        """Drop all sessions: this node shuts down, and others may continue with them."""
        for session in self._open:
            self._open.drop(session)
        await self.background.drain()

    async def _change(self, session: Session, change: SessionChange) -> None:
        record = await self._store.change(session.id, change, self._limits.idle_s)
        if record is None:
            session.renewed = -math.inf  # not dropped: that would cancel the current request
            raise SessionNotFound("Session not found: it ended. Send `initialize` again")
        update(session, record)
        await self._peers.change(record)

    def _on_load(self, session_id: str, record: SessionRecord | None) -> None:
        session = self._open.get(session_id)
        if record is None:
            if session is not None:
                self._open.drop(session)
            return
        if record.revision not in HANDSHAKE:
            return  # the session was written by a newer gateway
        if session is None:
            self._open.make_room()
            session = self._open.add(self._restore(record))
        elif session.version < record.version:
            gone = self._peers.take_over(session, record)
            self.background.start(self._standalone.resubscribe(session, gone))
        session.renewed = time.monotonic()

    def _restore(self, record: SessionRecord) -> Session:
        lists = self._announces(record.tenant, record.toolset)
        return restore_session(record, self._limits.calls, frozenset(lists))

    async def _count(self, principal: Principal) -> None:
        key = f"sessions/{principal.tenant}/{principal.id[:256]}"
        verdict = await self._counter.hit(key, self._limits.rate, RATE_WINDOW_S)
        if not verdict.is_allowed:
            raise TooManyRequests(
                f"Too many new sessions (limit {self._limits.rate} in a minute); use those that "
                "are open, or try again later",
                verdict.retry_after_s,
            )

    def _on_drop(self, session: Session) -> None:
        self._standalone.end(session)
        self._session_ended.publish(session)

    async def _end_everywhere(self, session_id: str) -> None:
        await self._store.delete(session_id)
        await self._peers.end(session_id)


def _check_streams(session: Session) -> None:
    if session.streams >= STREAM_LIMIT:
        text = f"This session has {session.streams} open streams, as many as it can: end one first"
        raise TooManyRequests(text, 1.0)

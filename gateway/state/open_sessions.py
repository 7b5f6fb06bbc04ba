"""The sessions in the memory of this node: idle timeout, eviction at the limits, and the records
that the store has of them.

Does not access the store or other nodes.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import UNSET, structs

from gateway.context import Outbox, Principal, Session
from gateway.interfaces import SessionChange, SessionRecord
from schemas.errors import TooManyRequests, Unavailable
from schemas.mcp.messages import ListKind
from schemas.mcp.revisions import HANDSHAKE


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    idle_s: float  # idle timeout of a session
    sessions: int  # at this node
    calls: int  # of one session at a time
    rate: int  # sessions that one principal may open in a minute, at all nodes
    per_principal: int = 0  # of one principal at this node; 0: unlimited


class OpenSessions:
    def __init__(self, limits: SessionLimits, on_drop: Callable[[Session], None]) -> None:
        """Sessions within `limits`; `on_drop` is called with each session that is dropped."""
        self._limits = limits
        self._on_drop = on_drop
        self._sessions: dict[str, Session] = {}
        self.get = self._sessions.get  # by id
        self._owned: dict[tuple[str, str], dict[str, Session]] = {}  # by principal

    def set_principal_limit(self, per_principal: int) -> None:
        """Change the limit per principal to `per_principal`; as in SessionLimits."""
        self._limits = dataclasses.replace(self._limits, per_principal=per_principal)

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def add(self, session: Session) -> Session:
        self._sessions[session.id] = session
        self._owned.setdefault(session.principal.key, {})[session.id] = session
        return session

    def drop(self, session: Session) -> bool:
        """Drop the session at this node; False when it was not open."""
        if self._sessions.pop(session.id, None) is None:
            return False
        owned = self._owned[session.principal.key]
        del owned[session.id]
        if not owned:
            del self._owned[session.principal.key]
        session.end()
        self._on_drop(session)
        return True

    def reap(self) -> int:
        """Drop the sessions past their idle timeout; returns how many."""
        before = self._idle_since()
        idle = [session for session in self._sessions.values() if _is_idle(session, before)]
        for session in idle:
            self.drop(session)  # a shared store expires it once it is idle at all nodes
        return len(idle)

    def make_room(self) -> None:
        """Evict the least recently used session at the limit, so that clients that never close
        theirs do not lock out others. Raises Unavailable when all are in use."""
        if len(self._sessions) < self._limits.sessions or self.reap():
            return
        oldest = _unused_for_longest(self._sessions.values())
        if oldest is None:
            limit = self._limits.sessions
            raise Unavailable(f"Too many sessions in use (limit {limit}); try again later")
        self.drop(oldest)

    def excess_session(self, principal: Principal) -> Session | None:
        """The session of a principal to evict before one more opens. Raises TooManyRequests when
        all are in use."""
        owned, limit = self._owned.get(principal.key, {}), self._limits.per_principal
        if not limit or len(owned) < limit:
            return None
        oldest = _unused_for_longest(owned.values())
        if oldest is None:
            text = f"You have {limit} sessions in use, as many as you can: end one first"
            raise TooManyRequests(text, 1.0, "limits.principal_sessions")
        return oldest

    def _idle_since(self) -> float:
        return time.monotonic() - self._limits.idle_s


def _unused_for_longest(sessions: Iterable[Session]) -> Session | None:
    unused = (session for session in sessions if _is_idle(session, math.inf))
    return min(unused, key=lambda session: session.last_used, default=None)


def _is_idle(session: Session, since: float) -> bool:
    return session.last_used <= since and is_unused(session)


def is_unused(session: Session) -> bool:
    """Whether the session has neither a stream nor a running request here."""
    return session.streams == 0 and not session.running


def record_of(session: Session) -> SessionRecord:
    return SessionRecord(
        session.id,
        session.revision.name,
        tenant=session.principal.tenant,
        principal=session.principal.id,
        toolset=session.toolset,
        client=dict(session.client),
        capabilities=dict(session.capabilities),
        log_level=session.log_level,
        subscriptions=tuple(sorted(session.subscriptions)),
        lists_version=session.outbox.lists_version,
        skills=tuple(sorted(session.skills)),
        version=session.version,
    )


def with_change(record: SessionRecord, change: SessionChange) -> SessionRecord:
    """The record with `change` applied, one version later."""
    changes = {name: getattr(change, name) for name in ("log_level", "client", "capabilities")}
    new: dict[str, Any] = {name: value for name, value in changes.items() if value is not UNSET}
    subscriptions = {*record.subscriptions, *change.subscribe}.difference(change.unsubscribe)
    skills = {*record.skills, *change.use}.difference(change.leave)
    new["subscriptions"], new["skills"] = tuple(sorted(subscriptions)), tuple(sorted(skills))
    return structs.replace(record, version=record.version + 1, **new)


def update(session: Session, record: SessionRecord) -> bool:
    """Update the session here from `record`; False when it has that version or a newer one: records
    may arrive out of order."""
    if record.version <= session.version:
        return False
    session.version, session.log_level = record.version, record.log_level
    session.client, session.capabilities = record.client, record.capabilities
    session.subscriptions, session.skills = set(record.subscriptions), set(record.skills)
    return True


def restore_session(
    record: SessionRecord, calls_limit: int, announced_lists: frozenset[ListKind]
) -> Session:
    """A session restored at a node that did not open it. Its principal's scopes and claims come
    with each request."""
    return Session(
        record.id,
        HANDSHAKE[record.revision],
        principal=Principal(record.principal, record.tenant),
        client=record.client,
        capabilities=record.capabilities,
        calls_limit=calls_limit,
        toolset=record.toolset,
        log_level=record.log_level,
        subscriptions=set(record.subscriptions),
        skills=set(record.skills),
        outbox=Outbox(record.lists_version),
        last_event_id=None,
        announced_lists=announced_lists,
        version=record.version,
    )

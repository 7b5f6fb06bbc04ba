"""Sessions in the memory of this process."""

import math
import secrets
import time
from collections.abc import Mapping
from typing import Any

from gateway.context import Outbox, Principal, Session
from gateway.state.hub import Hub
from schemas.errors import Unavailable
from schemas.jsonrpc import Notification, encode
from schemas.mcp.messages import TOOLS_CHANGED
from schemas.mcp.revisions import Revision

TOOLS_CHANGED_MESSAGE = encode(Notification(TOOLS_CHANGED))


class Sessions:
    """Open sessions."""

    def __init__(self, hub: Hub, idle_s: float, limit: int, calls_limit: int) -> None:
        """At most `limit` sessions, each with at most `calls_limit` calls at a time."""
        self._hub = hub
        self._idle_s = idle_s
        self._limit = limit
        self._calls_limit = calls_limit
        self._open: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        revision: Revision,
        principal: Principal,
        client: Mapping[str, Any],
        capabilities: Mapping[str, Any],
    ) -> Session:
        """At the limit the session unused for longest goes; Unavailable when all are in use."""
        if len(self._open) >= self._limit and self.reap() == 0:
            self._evict()
        session = Session(
            secrets.token_urlsafe(24),
            revision,
            principal,
            client,
            capabilities,
            self._calls_limit,
        )
        self._open[session.id] = session
        self._hub.follow(principal.tenant, session.outbox, TOOLS_CHANGED_MESSAGE)
        return session

    def find(self, session_id: str, principal: Principal) -> Session | None:
        """The session, if it is open and was opened by the same principal."""
        session = self._open.get(session_id)
        if session is None or session.principal.key != principal.key:
            return None
        if _is_idle(session, self._idle_since()):
            self.close(session)
            return None
        session.touch()
        return session

    def take_stream(self, session: Session) -> Outbox:
        """What a new stream of `session` is to send; the one before it, perhaps dead, ends."""
        tenant, before = session.principal.tenant, session.outbox
        session.outbox = before.hand_over()
        self._hub.leave(tenant, before)
        self._hub.follow(tenant, session.outbox, TOOLS_CHANGED_MESSAGE)
        return session.outbox

    def close(self, session: Session) -> None:
        if self._open.pop(session.id, None) is not None:
            self._hub.leave(session.principal.tenant, session.outbox)
            session.end()

    def reap(self) -> int:
        """Close the sessions that nobody has used for too long; returns how many."""
        before = self._idle_since()
        idle = [session for session in self._open.values() if _is_idle(session, before)]
        for session in idle:
            self.close(session)
        return len(idle)

    def _evict(self) -> None:
        """Clients that never say goodbye must not lock out the others until they are idle."""
        unused = (session for session in self._open.values() if _is_idle(session, math.inf))
        oldest = min(unused, key=lambda session: session.last_used, default=None)
        if oldest is None:
            raise Unavailable(f"Too many sessions in use (limit {self._limit}); try again later")
        self.close(oldest)

    def close_all(self) -> None:
        for session in list(self._open.values()):
            self.close(session)

    def _idle_since(self) -> float:
        return time.monotonic() - self._idle_s


def _is_idle(session: Session, since: float) -> bool:
    return session.last_used <= since and session.streams == 0 and not session.running

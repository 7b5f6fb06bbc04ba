"""Session pool at one server of a handshake revision, shared between compatible calls.

A session is negotiated once, with the capabilities of the client, and serves only calls with an
equal key: else a server would send requests to a client that cannot answer. Calls of clients
without capabilities share a session; any other call has one to itself while it runs, because a
server's request outside a call's own stream does not identify the call that it belongs to.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.upstreams.auth.caller import Caller, CallerHolder
from gateway.upstreams.mcp.link_and_handlers import Link, MessageHandler
from schemas.errors import RelayedFault, Unavailable


class SessionKey(Struct, frozen=True):
    """Key of a pooled session; only calls with equal keys share one."""

    capabilities: str = "{}"  # canonical JSON of the client's capabilities
    owner: str | None = None  # id of the client's session, where each has its own
    exclusive_to: tuple[str, str] | None = None  # one call at a time, of this caller alone
    caller: str = ""  # digest of the caller's token, where the server is to know the caller

    @property
    def shareable(self) -> bool:
        """Whether calls may share the session: no message outside a call's stream can be for one
        client alone."""
        return self.capabilities == "{}" and self.owner is None and self.exclusive_to is None


SHARED_KEY = SessionKey()
Open = Callable[[SessionKey, MessageHandler, CallerHolder], Awaitable[Link]]


class CurrentCallHandler:
    """Routes a session's messages outside calls to the call that holds the session now."""

    def __init__(self, otherwise: MessageHandler) -> None:
        self._otherwise = otherwise
        self.handler: MessageHandler | None = None

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        await (self.handler or self._otherwise).on_notification(method, params)

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:
        return await (self.handler or self._otherwise).on_request(method, params)


class _PooledSession:
    """A pooled session and its use."""

    __slots__ = ("calls", "holder", "idle_since", "key", "link", "slot")

    def __init__(
        self, key: SessionKey, link: Link, slot: CurrentCallHandler, holder: CallerHolder
    ) -> None:
        self.key = key
        self.holder = holder
        self.link = link
        self.slot = slot
        self.calls = 0
        self.idle_since = time.monotonic()


class Lease:
    """The use of a session by one call. (A generator's context manager takes 3% of a call.)"""

    __slots__ = ("_caller", "_handler", "_key", "_pool", "_session")

    def __init__(
        self,
        pool: "SessionPool",
        key: SessionKey,
        handler: MessageHandler | None,
        caller: Caller | None,
    ) -> None:
        self._caller = caller
        self._pool = pool
        self._key = key
        self._handler = handler

    async def __aenter__(self) -> Link:
        self._session = await self._pool.take(self._key, self._handler, self._caller)
        return self._session.link

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: object, _traceback: object
    ) -> None:
        cut_off = kind is not None and not issubclass(kind, RelayedFault)
        self._pool.give_back(self._session, cut_off)


class SessionPool:
    """The sessions at one server."""

    def __init__(
        self, open_: Open, background: MessageHandler, *, limit: int, idle_s: float, wait_s: float
    ) -> None:
        """A pool of at most `limit` sessions, for one of which a call waits at most `wait_s`;
        `background` gets the messages that belong to no call."""
        self._open = open_
        self._background = background
        self.limit = limit
        self._idle_s = idle_s
        self._wait_s = wait_s
        self._closing: set[asyncio.Task[None]] = set()
        self._sessions: list[_PooledSession] = []
        self._opening: defaultdict[SessionKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = 0  # open sessions and those being opened
        self._callers: Counter[tuple[str, str]] = Counter()  # of those, by owner
        self._share = max(1, limit * 3 // 4)  # quota of one caller
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def busy(self) -> bool:
        return any(pooled.calls for pooled in self._sessions)

    def lease(
        self, key: SessionKey, handler: MessageHandler | None, caller: Caller | None = None
    ) -> "Lease":
        """Lease a session for this key, opened if need be. Raises what opening raises, and
        Unavailable when all are in use for too long."""
        return Lease(self, key, handler, caller)

    async def take(
        self, key: SessionKey, handler: MessageHandler | None, caller: Caller | None
    ) -> _PooledSession:
        pooled = self._find(key) or await self._open_session(key, caller)
        pooled.calls += 1
        pooled.holder.caller = caller
        if not key.shareable:
            pooled.slot.handler = handler
        return pooled

    def give_back(self, pooled_session: _PooledSession, cut_off: bool) -> None:
        """Return a leased session. An exclusive one that a call left early (`cut_off`) is closed:
        its late messages must not be taken for another call's."""
        pooled_session.calls -= 1
        pooled_session.idle_since = time.monotonic()
        if pooled_session.calls == 0:
            pooled_session.slot.handler = None
        spoiled = cut_off and pooled_session.key.exclusive_to is not None
        if (spoiled or not pooled_session.link.alive) and self._forget(pooled_session):
            closing = asyncio.create_task(pooled_session.link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._freed.set()

    def _find(self, key: SessionKey) -> _PooledSession | None:
        for pooled in self._sessions:
            if pooled.key == key and pooled.link.alive and not (key.exclusive_to and pooled.calls):
                return pooled
        return None

    async def _open_session(self, key: SessionKey, caller: Caller | None) -> _PooledSession:
        if key.exclusive_to is not None:
            return await self._new(key, caller)
        lock = self._opening[key]
        try:
            async with lock:  # single-flight: calls on an equal key wait for one opening
                return self._find(key) or await self._new(key, caller)
        finally:
            if not lock.locked():
                self._opening.pop(key, None)

    async def _new(self, key: SessionKey, caller: Caller | None) -> _PooledSession:
        await self._wait_for_slot(key)
        slot, holder = CurrentCallHandler(self._background), CallerHolder(caller)
        try:
            pooled = _PooledSession(key, await self._open(key, slot, holder), slot, holder)
        except BaseException:
            self._free_slot(key)
            raise
        self._sessions.append(pooled)
        return pooled

    async def _wait_for_slot(self, key: SessionKey) -> None:
        """Wait for a free slot, evicting the longest idle session; callers have a quota."""
        caller = key.exclusive_to
        while self._slots >= self.limit or (caller and self._callers[caller] >= self._share):
            unused = [
                pooled
                for pooled in self._sessions
                if pooled.calls == 0
                and (self._slots >= self.limit or pooled.key.exclusive_to == caller)
            ]
            if unused:
                await self._close(min(unused, key=lambda pooled: pooled.idle_since))
                continue
            self._freed.clear()
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._freed.wait()
            except TimeoutError as error:
                raise Unavailable(f"All {self.limit} sessions at the server are in use") from error
        self._slots += 1
        if caller:
            self._callers[caller] += 1

    def _free_slot(self, key: SessionKey) -> None:
        self._slots -= 1
        if caller := key.exclusive_to:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]
        self._freed.set()

    async def reap(self) -> None:
        """Close idle sessions after the idle timeout, except for the one that all share."""
        before = time.monotonic() - self._idle_s
        for pooled in list(self._sessions):
            idle = pooled.calls == 0 and pooled.idle_since < before and pooled.key != SHARED_KEY
            if idle or not pooled.link.alive:
                await self._close(pooled)

    def owned_by(self, owner: str) -> bool:
        return any(pooled.key.owner == owner for pooled in self._sessions)

    async def drop_owner(self, owner: str) -> None:
        """Close the sessions that belonged to a client's session that has ended."""
        for pooled in list(self._sessions):
            if pooled.key.owner == owner:
                await self._close(pooled)

    async def close(self) -> None:
        for pooled in list(self._sessions):
            await self._close(pooled)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _close(self, pooled_session: _PooledSession) -> None:
        if self._forget(pooled_session):
            await pooled_session.link.close()

    def _forget(self, pooled_session: _PooledSession) -> bool:
        if pooled_session not in self._sessions:
            return False
        self._sessions.remove(pooled_session)
        self._free_slot(pooled_session.key)
        return True

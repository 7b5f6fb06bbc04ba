"""Pool of sessions at one server of a handshake revision, shared between compatible calls.

A session is negotiated once, with what the client can be asked, and serves only calls on equal
terms: else a server would ask a client that cannot answer. Where the client can be asked nothing,
calls share a session; else each has one to itself while it runs, because a server's request outside
a call's own stream does not identify the call that it belongs to.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.upstreams.auth.caller import Caller, CallerHolder
from gateway.upstreams.mcp.link import Link, MessageHandler
from schemas.errors import RelayedFault, Unavailable


class SessionKey(Struct, frozen=True):
    """Key of a session in the pool; only calls with equal terms share one."""

    capabilities: str = "{}"  # canonical JSON of what the client can be asked
    owner: str | None = None  # id of the client's session, where each has its own
    alone_for: tuple[str, str] | None = None  # one call at a time, of this caller alone
    caller: str = ""  # digest of the caller's token, where the server is to know the caller

    @property
    def mute(self) -> bool:
        """Whether no message outside a call's stream can be for one client alone."""
        return self.capabilities == "{}" and self.owner is None and self.alone_for is None


SHARED = SessionKey()
Open = Callable[[SessionKey, MessageHandler, CallerHolder], Awaitable[Link]]


class CurrentCallHandler:
    """Routes a session's messages outside calls to the call that holds the session now."""

    def __init__(self, otherwise: MessageHandler) -> None:
        self._otherwise = otherwise
        self.hearer: MessageHandler | None = None

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        await (self.hearer or self._otherwise).notified(method, params)

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        return await (self.hearer or self._otherwise).asked(method, params)


class _Kept:
    """A pooled session and its use."""

    __slots__ = ("calls", "desk", "holder", "idle_since", "link", "terms")

    def __init__(
        self, terms: SessionKey, link: Link, desk: CurrentCallHandler, holder: CallerHolder
    ) -> None:
        self.terms = terms
        self.holder = holder
        self.link = link
        self.desk = desk
        self.calls = 0
        self.idle_since = time.monotonic()


class Lease:
    """The use of a session by one call. (A generator's context manager takes 3% of a call.)"""

    __slots__ = ("_caller", "_hearer", "_kept", "_pool", "_terms")

    def __init__(
        self,
        pool: "SessionPool",
        terms: SessionKey,
        hearer: MessageHandler | None,
        caller: Caller | None,
    ) -> None:
        self._caller = caller
        self._pool = pool
        self._terms = terms
        self._hearer = hearer

    async def __aenter__(self) -> Link:
        self._kept = await self._pool.take(self._terms, self._hearer, self._caller)
        return self._kept.link

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: object, _traceback: object
    ) -> None:
        cut_off = kind is not None and not issubclass(kind, RelayedFault)
        self._pool.give_back(self._kept, cut_off)


class SessionPool:
    """The sessions at one server."""

    def __init__(
        self, open_: Open, background: MessageHandler, limit: int, idle_s: float, wait_s: float
    ) -> None:
        """At most `limit` sessions, for one of which a call waits at most `wait_s`; `background`
        gets the messages that belong to no call."""
        self._open = open_
        self._background = background
        self._limit = limit
        self._idle_s = idle_s
        self._wait_s = wait_s
        self._closing: set[asyncio.Task[None]] = set()
        self._kept: list[_Kept] = []
        self._opening: defaultdict[SessionKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places = 0  # open sessions and those being opened
        self._callers: Counter[tuple[str, str]] = Counter()  # of those, by owner
        self._share = max(1, limit * 3 // 4)  # quota of one caller
        self._freed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def busy(self) -> bool:
        return any(kept.calls for kept in self._kept)

    def lease(
        self, terms: SessionKey, hearer: MessageHandler | None, caller: Caller | None = None
    ) -> "Lease":
        """A session on these terms, opened if need be. Raises what opening raises, and
        Unavailable when all are in use for too long."""
        return Lease(self, terms, hearer, caller)

    async def take(
        self, terms: SessionKey, hearer: MessageHandler | None, caller: Caller | None
    ) -> _Kept:
        kept = self._find(terms) or await self._opened(terms, caller)
        kept.calls += 1
        kept.holder.caller = caller
        if not terms.mute:
            kept.desk.hearer = hearer
        return kept

    def give_back(self, kept: _Kept, cut_off: bool) -> None:
        """Release a session. One that a call left early (`cut_off`) and that is exclusive is
        closed: its late messages must not be taken for another call's."""
        kept.calls -= 1
        kept.idle_since = time.monotonic()
        if kept.calls == 0:
            kept.desk.hearer = None
        spoiled = cut_off and kept.terms.alone_for is not None
        if (spoiled or not kept.link.alive) and self._forget(kept):
            closing = asyncio.create_task(kept.link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        self._freed.set()

    def _find(self, terms: SessionKey) -> _Kept | None:
        for kept in self._kept:
            if kept.terms == terms and kept.link.alive and not (terms.alone_for and kept.calls):
                return kept
        return None

    async def _opened(self, terms: SessionKey, caller: Caller | None) -> _Kept:
        if terms.alone_for is not None:
            return await self._new(terms, caller)
        lock = self._opening[terms]
        try:
            async with lock:  # single-flight: calls on equal terms wait for one opening
                return self._find(terms) or await self._new(terms, caller)
        finally:
            if not lock.locked():
                self._opening.pop(terms, None)

    async def _new(self, terms: SessionKey, caller: Caller | None) -> _Kept:
        await self._place(terms)
        desk, holder = CurrentCallHandler(self._background), CallerHolder(caller)
        try:
            kept = _Kept(terms, await self._open(terms, desk, holder), desk, holder)
        except BaseException:
            self._leave(terms)
            raise
        self._kept.append(kept)
        return kept

    async def _place(self, terms: SessionKey) -> None:
        """Wait for a free slot, evicting the longest idle session; callers have a quota."""
        caller = terms.alone_for
        while self._places >= self._limit or (caller and self._callers[caller] >= self._share):
            unused = [
                kept
                for kept in self._kept
                if kept.calls == 0
                and (self._places >= self._limit or kept.terms.alone_for == caller)
            ]
            if unused:
                await self._close(min(unused, key=lambda kept: kept.idle_since))
                continue
            self._freed.clear()
            try:
                async with asyncio.timeout(self._wait_s):
                    await self._freed.wait()
            except TimeoutError as error:
                raise Unavailable(f"All {self._limit} sessions at the server are in use") from error
        self._places += 1
        if caller:
            self._callers[caller] += 1

    def _leave(self, terms: SessionKey) -> None:
        self._places -= 1
        if caller := terms.alone_for:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]
        self._freed.set()

    async def reap(self) -> None:
        """Close idle sessions after the idle timeout, except for the one that all share."""
        before = time.monotonic() - self._idle_s
        for kept in list(self._kept):
            idle = kept.calls == 0 and kept.idle_since < before and kept.terms != SHARED
            if idle or not kept.link.alive:
                await self._close(kept)

    def owned_by(self, owner: str) -> bool:
        return any(kept.terms.owner == owner for kept in self._kept)

    async def drop_owner(self, owner: str) -> None:
        """Close the sessions that belonged to a client's session that has ended."""
        for kept in list(self._kept):
            if kept.terms.owner == owner:
                await self._close(kept)

    async def close(self) -> None:
        for kept in list(self._kept):
            await self._close(kept)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _close(self, kept: _Kept) -> None:
        if self._forget(kept):
            await kept.link.close()

    def _forget(self, kept: _Kept) -> bool:
        if kept not in self._kept:
            return False
        self._kept.remove(kept)
        self._leave(kept.terms)
        return True

"""Who wants to hear that the lists of a tenant changed, or one of its resources."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType

from gateway.abc import SessionChange
from gateway.context import OUTBOX_LIMIT, Outbox, Session
from gateway.state.news import updated
from gateway.state.records import changed, record_of, update
from gateway.state.watches import Place, Watches
from registry.catalog.catalog import Kind
from schemas.errors import Fault, InvalidParams, TooManyRequests, Unavailable

SHARE = 10  # one of so many clients may have all the streams that it wants
SHARE_AT_LEAST = 50  # streams of one client, where there are few in all

SUBSCRIPTION_LIMIT = OUTBOX_LIMIT // 2  # all of them may have changed while nobody was reading

Owner = tuple[str, str]
"""The key of a principal."""

Version = Callable[[str, str | None], str]
"""The version of the lists of a tenant, or of one of its toolsets (see `news.fingerprint`)."""


class Follower:
    """One open stream: what it is told when a list changes."""

    __slots__ = ("joined", "messages", "outbox", "tenant", "toolset")

    def __init__(
        self,
        tenant: str,
        toolset: str | None,
        outbox: Outbox,
        messages: Mapping[Kind, bytes],
    ) -> None:
        self.tenant = tenant
        self.toolset = toolset
        self.outbox = outbox
        self.messages = messages
        self.joined = 0


OnSubscribed = Callable[[Session, SessionChange], Awaitable[None]]
"""Keep what a client said of its session. Raises Fault."""


async def _keep(session: Session, change: SessionChange) -> None:
    """Where there is no store."""
    update(session, changed(record_of(session), change))


class _Open(AbstractContextManager[None]):
    """A generator would take half a kilobyte for each of thousands of streams."""

    __slots__ = ("_follower", "_hub", "_outbox", "_owner")

    def __init__(
        self, hub: "Hub", outbox: Outbox, follower: Follower | None, owner: Owner | None
    ) -> None:
        self._hub = hub
        self._outbox = outbox
        self._follower = follower
        self._owner = owner

    def __enter__(self) -> None:
        self._hub.enter(self._outbox, self._follower, self._owner)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hub.leave(self._outbox, self._follower, self._owner)


class Hub:
    """Fans a change out to its followers; changes that nobody read yet are one piece of news."""

    def __init__(
        self,
        stream_limit: int,
        debounce_s: float = 0.0,
        version: Version = lambda _tenant, _toolset: "",
        owner_limit: int = 0,
        tells_apart: bool = True,
    ) -> None:
        """Changes within `debounce_s` are told together. One owner has at most `owner_limit`
        streams, 0 as many as the share that each may have; `tells_apart` is false where all owners
        are one."""
        self.version = version
        self.watches = Watches()
        self.on_subscribed: OnSubscribed = _keep
        self._begun: set[tuple[str, str]] = set()  # sessions, and what they are subscribing to
        self._followers: defaultdict[str, set[Follower]] = defaultdict(set)
        self._stream_limit = stream_limit
        self.bound_owners(owner_limit)
        self._tells_apart = tells_apart
        self._debounce_s = debounce_s
        self._open: set[Outbox] = set()
        self._owned: Counter[Owner] = Counter()  # streams
        self._closed = False
        self._changes = 0
        self._pending: dict[str, dict[Kind, int]] = {}  # which change of each kind was the last

    def bound_owners(self, owner_limit: int) -> None:
        """From now on one owner has at most `owner_limit` streams; as in the constructor."""
        share = max(SHARE_AT_LEAST, self._stream_limit // SHARE)
        self._owner_limit = min(owner_limit or share, share)

    @property
    def streams(self) -> int:
        return len(self._open)

    def changed(self, tenant: str, kinds: Collection[Kind]) -> None:
        """Tell the followers of `tenant`, soon."""
        self._changes += 1
        pending = self._pending.get(tenant)
        if pending is None:
            pending = self._pending[tenant] = {}
            if self._debounce_s:
                asyncio.get_running_loop().call_later(self._debounce_s, self._tell, tenant)
        pending.update(dict.fromkeys(kinds, self._changes))
        if not self._debounce_s:
            self._tell(tenant)

    def resource_updated(self, tenant: str, toolset: str | None, uri: str) -> None:
        """Tell who watches it that a resource, by the URI that clients know there, has changed."""
        self.watches.updated((tenant, toolset), uri)

    async def subscribe(self, session: Session, uri: str) -> None:
        """From now on tell `session` when the resource changes. Raises Fault when its server
        refuses, and InvalidParams beyond the limit."""
        if len(session.subscriptions) >= SUBSCRIPTION_LIMIT and uri not in session.subscriptions:
            raise InvalidParams(f"A session can subscribe to {SUBSCRIPTION_LIMIT} resources")
        self._begun.add((session.id, uri))
        try:
            await self.watch(session, uri)
            await self.on_subscribed(session, SessionChange(subscribe=(uri,)))
        except Fault:
            await self._unwatch_unless_subscribed(session, uri)
            raise
        finally:
            self._begun.discard((session.id, uri))
        await self._unwatch_unless_subscribed(session, uri)  # it may have been undone elsewhere

    async def unsubscribe(self, session: Session, uri: str) -> None:
        await self.on_subscribed(session, SessionChange(unsubscribe=(uri,)))
        await self._unwatch_unless_subscribed(session, uri)

    def silence(self, session: Session) -> list[str]:
        """Tell the session no longer of what it is not subscribed to any more; `settle` these."""
        gone = sorted(
            uri
            for uri in session.watched - session.subscriptions
            if (session.id, uri) not in self._begun
        )
        for uri in gone:
            session.watched.discard(uri)
            session.outbox.discard(updated(uri))
            self.watches.drop(_place(session), uri, session)
        return gone

    async def settle(self, session: Session, uris: Collection[str]) -> None:
        """Let the servers of resources know that nobody listens, where that is so."""
        for uri in uris:
            await self.watches.settle(_place(session), uri)

    async def watch(self, session: Session, uri: str) -> None:
        """Hear of the resource at this node, for `session`. Raises Fault as `subscribe` does."""
        if uri not in session.watched:
            session.watched.add(uri)
            try:
                await self.watches.add(_place(session), uri, session, updated(uri))
            except BaseException:
                session.watched.discard(uri)
                raise

    async def unwatch(self, session: Session, uri: str) -> None:
        if uri in session.watched:
            session.watched.discard(uri)
            await self.watches.remove(_place(session), uri, session)

    async def _unwatch_unless_subscribed(self, session: Session, uri: str) -> None:
        if uri not in session.subscriptions:
            session.outbox.discard(updated(uri))
            await self.unwatch(session, uri)

    def stream(
        self, outbox: Outbox, follower: Follower | None = None, owner: Owner | None = None
    ) -> AbstractContextManager[None]:
        """Inside, count an open stream that follows `outbox`, and tell `follower` of changes.
        `owner` is who may have a share of the streams only, if that is known. Raises Unavailable
        at the limit, and TooManyRequests at that of the owner."""
        return _Open(self, outbox, follower, owner)

    def enter(self, outbox: Outbox, follower: Follower | None, owner: Owner | None = None) -> None:
        if self._closed:
            raise Unavailable("The gateway is shutting down")
        if len(self._open) >= self._stream_limit:
            raise Unavailable(f"Too many open streams (limit {self._stream_limit})")
        if owner is not None and self._tells_apart:
            self._check_share(owner)
            self._owned[owner] += 1
        self._open.add(outbox)
        if follower is not None:
            follower.joined = self._changes
            self._followers[follower.tenant].add(follower)

    def leave(self, outbox: Outbox, follower: Follower | None, owner: Owner | None = None) -> None:
        self._open.discard(outbox)
        if owner is not None and self._tells_apart:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]
        if follower is not None:
            followers = self._followers[follower.tenant]
            followers.discard(follower)
            if not followers:
                del self._followers[follower.tenant]

    def sweep(self) -> None:
        """End the streams of those whose token, or key, is good no longer."""
        for outbox in list(self._open):
            if outbox.still is not None and not outbox.still():
                outbox.clear()
                outbox.close()

    def close(self) -> None:
        """End every stream, after what it still has to say: the gateway stops."""
        self._closed = True
        for outbox in list(self._open):
            outbox.close()

    def _check_share(self, owner: Owner) -> None:
        most = self._owner_limit
        if self._owned[owner] >= most:
            text = f"You have {most} open streams, as many as you can"
            raise TooManyRequests(text, 1.0, "limits.principal_streams")

    def _tell(self, tenant: str) -> None:
        pending = self._pending.pop(tenant)
        versions: dict[str | None, str] = {}
        for follower in self._followers.get(tenant, ()):
            since = [kind for kind, change in pending.items() if change > follower.joined]
            if not since:
                continue  # it began with the lists as they are now
            for kind in since:
                if kind in follower.messages:
                    follower.outbox.put_once(follower.messages[kind])
            if follower.toolset not in versions:
                versions[follower.toolset] = self.version(tenant, follower.toolset)
            follower.outbox.told = versions[follower.toolset]


def _place(session: Session) -> Place:
    return session.principal.tenant, session.toolset

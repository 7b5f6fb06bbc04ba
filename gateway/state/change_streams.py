"""Publish-subscribe hub: fans changes of lists and resources out to the open streams of a tenant.

It knows no upstream: `ResourceWatches` calls `connect` for the first listener of a resource, and
after the last one has left.
"""

import asyncio
import base64
import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, get_args

from gateway.context import OUTBOX_LIMIT, Outbox, Session
from gateway.interfaces import Events, SessionChange
from gateway.protocol.sse_writer import VERSION_LENGTH
from registry.catalog.catalog import Catalog
from schemas.errors import Fault, InvalidParams, TooManyRequests, Unavailable
from schemas.jsonrpc import Notification, encode
from schemas.mcp.messages import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    ListKind,
)

log = logging.getLogger("toolgate.watches")

LIST_KINDS: tuple[ListKind, ...] = get_args(ListKind)
LIST_METHODS: Mapping[ListKind, str] = {
    "tools": TOOLS_CHANGED,
    "prompts": PROMPTS_CHANGED,
    "resources": RESOURCES_CHANGED,
}
LIST_NOTIFICATIONS: Mapping[ListKind, bytes] = {
    kind: encode(Notification(LIST_METHODS[kind])) for kind in LIST_KINDS
}
_DIGITS = VERSION_LENGTH // len(LIST_KINDS)

SHARE = 10  # largest share of one client in all streams: a tenth
SHARE_AT_LEAST = 50  # streams of one client, where the limit is small

SUBSCRIPTION_LIMIT = OUTBOX_LIMIT // 2  # so that one update of each fits the outbox


def fingerprint(catalog: Catalog, rules: bytes = b"") -> str:
    """Fingerprint of the lists of `catalog`: a digest of equal length for each, the same for equal
    lists under equal visibility `rules`.

    Short, because it is part of event ids: two versions collide once in 16 million times.
    """
    digests = [catalog.lists.digests[kind] for kind in LIST_KINDS]
    if rules:
        digests = [hashlib.sha256(digest + rules).digest() for digest in digests]
    return "".join(base64.urlsafe_b64encode(digest).decode()[:_DIGITS] for digest in digests)


def changed_lists(old: str, new: str) -> list[ListKind]:
    """The lists that differ in two versions."""
    slices = [slice(n * _DIGITS, (n + 1) * _DIGITS) for n in range(len(LIST_KINDS))]
    return [kind for kind, part in zip(LIST_KINDS, slices, strict=True) if old[part] != new[part]]


def update_notification(uri: str) -> bytes:
    return encode(Notification(RESOURCE_UPDATED, {"uri": uri}))


Endpoint = tuple[str, str | None]
"""A tenant, and one of its toolsets: one URI may be another server's resource in each."""

Connect = Callable[[Endpoint, str, bool], Awaitable[None]]
"""Begin (or, with False, end) to hear of a resource by its URI. Raises Fault when its server
refuses."""


Owner = tuple[str, str]
"""The key of a principal."""


class Listener(Protocol):
    outbox: Outbox


class _Watch:
    __slots__ = ("connected", "listeners", "turn", "users")

    def __init__(self) -> None:
        self.listeners: dict[Listener, tuple[bytes, Owner | None]] = {}
        self.turn = asyncio.Lock()  # an upstream gets one change after the other
        self.connected = False
        self.users = 0  # tasks that hold or await `turn`


class ResourceWatches:
    """Listeners of resources, by the URI that clients use at an endpoint."""

    def __init__(self, connect: Connect, owner_limit: int = 0) -> None:
        """`owner_limit`: most resources of one owner, 0 for no limit."""
        self._connect = connect
        self.owner_limit = owner_limit
        self._watches: dict[tuple[Endpoint, str], _Watch] = {}
        self._owned: Counter[Owner] = Counter()

    def __len__(self) -> int:
        return len(self._watches)

    async def add(
        self,
        place: Endpoint,
        uri: str,
        listener: Listener,
        message: bytes,
        *,
        owner: Owner | None = None,
    ) -> None:
        """Add a listener: `message` is sent whenever the resource changes. `owner`, if known, is
        the principal whose share it counts against. Raises TooManyRequests beyond that, and Fault
        when its server refuses."""
        if owner is not None:
            self._take_share(owner)
        watch = self._watches.setdefault((place, uri), _Watch())
        watch.users += 1
        entry = watch.listeners[listener] = message, owner
        try:
            async with watch.turn:
                if not watch.connected and watch.listeners:
                    await self._connect(place, uri, True)
                    watch.connected = True
        except BaseException:
            if watch.listeners.get(listener) is entry:  # else it was removed, and added again
                self._leave(watch, listener)
            raise
        finally:
            watch.users -= 1
            self._forget(place, uri, watch)

    async def remove(self, place: Endpoint, uri: str, listener: Listener) -> None:
        self.drop(place, uri, listener)
        await self.settle(place, uri)

    def drop(self, place: Endpoint, uri: str, listener: Listener) -> None:
        """Remove the listener; `settle` then unsubscribes upstream if it was the last."""
        watch = self._watches.get((place, uri))
        if watch is not None:
            self._leave(watch, listener)

    async def settle(self, place: Endpoint, uri: str) -> None:
        """End a watch that has no listeners."""
        watch = self._watches.get((place, uri))
        if watch is None:
            return
        watch.users += 1
        try:
            async with watch.turn:
                if watch.connected and not watch.listeners:
                    watch.connected = False
                    await self._connect(place, uri, False)
        except Fault as fault:  # no listeners: later updates are dropped
            log.info("unwatch_failed", extra={"tenant": place[0], "reason": fault.message[:300]})
        finally:
            watch.users -= 1
            self._forget(place, uri, watch)

    def update(self, place: Endpoint, uri: str) -> None:
        watch = self._watches.get((place, uri))
        if watch is not None:
            for listener, (message, _) in watch.listeners.items():
                listener.outbox.put_once(message)

    def _take_share(self, owner: Owner) -> None:
        limit = self.owner_limit
        if limit and self._owned[owner] >= limit:
            text = f"You are subscribed to {limit} resources, as many as you can be"
            raise TooManyRequests(text, 1.0, "limits.principal_subscriptions")
        self._owned[owner] += 1

    def _leave(self, watch: _Watch, listener: Listener) -> None:
        _, owner = watch.listeners.pop(listener, (b"", None))
        if owner is not None:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]

    def _forget(self, place: Endpoint, uri: str, watch: _Watch) -> None:
        if not watch.users and not watch.listeners:
            self._watches.pop((place, uri), None)


Version = Callable[[str, str | None], str]
"""The version of the lists of a tenant, or of one of its toolsets (see `fingerprint`)."""


class Follower:
    """One open stream, and the message it gets for a change of each kind of list."""

    __slots__ = ("joined", "messages", "outbox", "tenant", "toolset")

    def __init__(
        self,
        tenant: str,
        toolset: str | None,
        outbox: Outbox,
        messages: Mapping[ListKind, bytes],
    ) -> None:
        self.tenant = tenant
        self.toolset = toolset
        self.outbox = outbox
        self.messages = messages
        self.joined = 0


class _Open(AbstractContextManager[None]):
    """Context manager of one open stream; a generator would take half a kilobyte for each of
    thousands."""

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
    """Fans a change out to its followers; pending notifications of the same kind are merged."""

    def __init__(
        self,
        stream_limit: int,
        debounce_s: float = 0.0,
        version: Version = lambda _tenant, _toolset: "",
        *,
        owner_limit: int = 0,
        owner_subscriptions: int = 0,
        distinct_principals: bool = True,
        events: Events | None = None,
    ) -> None:
        """Changes within `debounce_s` are debounced into one notification. One owner has at most
        `owner_limit` streams, 0 for the largest share, and `owner_subscriptions` to resources, 0
        for no limit; `distinct_principals` is false where all owners are the same."""
        self.version = version
        events = events or Events()
        self.watches = ResourceWatches(events.watch_changed.publish, owner_subscriptions)
        self._subscription_changed = events.subscription_changed
        self._subscribing: set[tuple[str, str]] = set()  # session id, URI
        self._followers: defaultdict[str, set[Follower]] = defaultdict(set)
        self._stream_limit = stream_limit
        self.set_owner_limit(owner_limit)
        self._distinct_principals = distinct_principals
        self._debounce_s = debounce_s
        self._open: set[Outbox] = set()
        self._owned: Counter[Owner] = Counter()  # streams
        self._closed = False
        self._changes = 0
        self._pending: dict[str, dict[ListKind, int]] = {}  # number of the last change of each kind
        events.lists_changed.subscribe(self.change)
        events.toolset_changed.subscribe(self.change_toolset)
        events.rules_changed.subscribe(lambda tenant: self.change(tenant, LIST_KINDS))
        events.draining.subscribe(self.close)

    def set_owner_limit(self, owner_limit: int) -> None:
        """Change the limit of streams per owner to `owner_limit`; as in the constructor."""
        share = max(SHARE_AT_LEAST, self._stream_limit // SHARE)
        self._owner_limit = min(owner_limit or share, share)

    @property
    def streams(self) -> int:
        return len(self._open)

    def change(self, tenant: str, kinds: Collection[ListKind]) -> None:
        """Notify the followers of `tenant`, after the debounce delay."""
        self._changes += 1
        pending = self._pending.get(tenant)
        if pending is None:
            pending = self._pending[tenant] = {}
            if self._debounce_s:
                asyncio.get_running_loop().call_later(self._debounce_s, self._notify, tenant)
        pending.update(dict.fromkeys(kinds, self._changes))
        if not self._debounce_s:
            self._notify(tenant)

    def change_toolset(self, tenant: str, toolset: str) -> None:
        """Notify the followers of one toolset, whose definition has changed."""
        followers = self._followers.get(tenant, ())
        concerned = [follower for follower in followers if follower.toolset == toolset]
        version = self.version(tenant, toolset) if concerned else ""
        for follower in concerned:
            for message in follower.messages.values():
                follower.outbox.put_once(message)
            follower.outbox.lists_version = version

    def resource_updated(self, tenant: str, toolset: str | None, uri: str) -> None:
        """Notify the sessions that watch a resource, by its URI in that endpoint, of a change."""
        self.watches.update((tenant, toolset), uri)

    async def subscribe(self, session: Session, uri: str) -> None:
        """Subscribe `session` to updates of a resource. Raises Fault when its server refuses, and
        InvalidParams beyond the limit."""
        subscriptions = session.subscriptions | session.watched  # with those that are being made
        if len(subscriptions) >= SUBSCRIPTION_LIMIT and uri not in subscriptions:
            raise InvalidParams(f"A session can subscribe to {SUBSCRIPTION_LIMIT} resources")
        self._subscribing.add((session.id, uri))
        try:
            await self.watch(session, uri)
            await self._subscription_changed.publish(session, SessionChange(subscribe=(uri,)))
        except Fault:
            await self._unwatch_unless_subscribed(session, uri)
            raise
        finally:
            self._subscribing.discard((session.id, uri))
        await self._unwatch_unless_subscribed(session, uri)  # another node may have unsubscribed

    async def unsubscribe(self, session: Session, uri: str) -> None:
        await self._subscription_changed.publish(session, SessionChange(unsubscribe=(uri,)))
        await self._unwatch_unless_subscribed(session, uri)

    def drop_unsubscribed(self, session: Session) -> list[str]:
        """Stop notifications of resources that the session has unsubscribed from; returns their
        URIs, to pass to `unwatch_unused`."""
        unsubscribed = sorted(
            uri
            for uri in session.watched - session.subscriptions
            if (session.id, uri) not in self._subscribing
        )
        for uri in unsubscribed:
            session.watched.discard(uri)
            session.outbox.discard(update_notification(uri))
            self.watches.drop(_place(session), uri, session)
        return unsubscribed

    async def unwatch_unused(self, session: Session, uris: Collection[str]) -> None:
        """Unsubscribe from upstream resources that have no listener left."""
        for uri in uris:
            await self.watches.settle(_place(session), uri)

    async def watch(self, session: Session, uri: str) -> None:
        """Watch the resource at this node, for `session`. Raises Fault as `subscribe` does."""
        if uri not in session.watched:
            session.watched.add(uri)
            message, owner = update_notification(uri), session.principal.key
            try:
                await self.watches.add(
                    _place(session),
                    uri,
                    session,
                    message,
                    owner=owner if self._distinct_principals else None,
                )
            except BaseException:
                session.watched.discard(uri)
                raise

    async def unwatch(self, session: Session, uri: str) -> None:
        if uri in session.watched:
            session.watched.discard(uri)
            await self.watches.remove(_place(session), uri, session)

    async def _unwatch_unless_subscribed(self, session: Session, uri: str) -> None:
        if uri not in session.subscriptions:
            session.outbox.discard(update_notification(uri))
            await self.unwatch(session, uri)

    def stream(
        self, outbox: Outbox, follower: Follower | None = None, owner: Owner | None = None
    ) -> AbstractContextManager[None]:
        """Context of an open stream: `outbox` is counted, and `follower` is notified of changes.
        `owner`, if known, is the principal whose share it counts against. Raises Unavailable at the
        limit, and TooManyRequests at the owner's."""
        return _Open(self, outbox, follower, owner)

    def enter(self, outbox: Outbox, follower: Follower | None, owner: Owner | None = None) -> None:
        if self._closed:
            raise Unavailable("The gateway is shutting down")
        if len(self._open) >= self._stream_limit:
            raise Unavailable(f"Too many open streams (limit {self._stream_limit})")
        if owner is not None and self._distinct_principals:
            self._check_share(owner)
            self._owned[owner] += 1
        self._open.add(outbox)
        if follower is not None:
            follower.joined = self._changes
            self._followers[follower.tenant].add(follower)

    def leave(self, outbox: Outbox, follower: Follower | None, owner: Owner | None = None) -> None:
        self._open.discard(outbox)
        if owner is not None and self._distinct_principals:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]
        if follower is not None:
            followers = self._followers[follower.tenant]
            followers.discard(follower)
            if not followers:
                del self._followers[follower.tenant]

    def sweep(self) -> None:
        """Close the streams whose token or API key is no longer valid."""
        for outbox in list(self._open):
            if outbox.still is not None and not outbox.still():
                outbox.clear()
                outbox.close()

    def close(self) -> None:
        """Close every stream once its outbox is drained: the gateway is shutting down."""
        self._closed = True
        for outbox in list(self._open):
            outbox.close()

    def _check_share(self, owner: Owner) -> None:
        limit = self._owner_limit
        if self._owned[owner] >= limit:
            text = f"You have {limit} open streams, as many as you can"
            raise TooManyRequests(text, 1.0, "limits.principal_streams")

    def _notify(self, tenant: str) -> None:
        pending = self._pending.pop(tenant)
        versions: dict[str | None, str] = {}
        for follower in self._followers.get(tenant, ()):
            since = [kind for kind, change in pending.items() if change > follower.joined]
            if not since:
                continue  # opened after the change
            for kind in since:
                if kind in follower.messages:
                    follower.outbox.put_once(follower.messages[kind])
            if follower.toolset not in versions:
                versions[follower.toolset] = self.version(tenant, follower.toolset)
            follower.outbox.lists_version = versions[follower.toolset]


def _place(session: Session) -> Endpoint:
    return session.principal.tenant, session.toolset

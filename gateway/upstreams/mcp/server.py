"""One MCP server behind the gateway: its state at run time, and the watch of its lists, resources
and availability."""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from msgspec import Raw

from config.settings import UpstreamSettings as Limits
from gateway.context import Context
from gateway.state.background_tasks import wait_for_first
from gateway.telemetry.histograms import BUCKETS_S, Histogram
from gateway.upstreams.auth.caller import Caller, CallerHolder
from gateway.upstreams.auth.delegation import NONE, Headers, auth_headers, on_behalf, renew_caller
from gateway.upstreams.http.client import hooked_headers
from gateway.upstreams.http.source_pools import SourcePool as Connected
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.backoff import RefreshBackoff
from gateway.upstreams.mcp.handshake import DISCOVER, SupportedEras
from gateway.upstreams.mcp.http_requests_and_responses import HttpStatusError
from gateway.upstreams.mcp.link_and_handlers import Link, MessageHandler, SubscribableLink, Timeout
from gateway.upstreams.mcp.session_pool import SHARED_KEY, SessionKey, SessionPool
from schemas.errors import Fault, MethodNotFound, RelayedFault
from schemas.mcp.messages import PROMPTS_CHANGED, RESOURCE_UPDATED, RESOURCES_CHANGED, TOOLS_CHANGED
from schemas.mcp.revisions import V2025_11_25, Revision
from schemas.source import Source

log = logging.getLogger("toolgate.upstream")

LIST_CHANGES = frozenset({TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED})
RETRY_FIRST_S, RETRY_LONGEST_S = 0.5, 30.0
CHECK_EVERY_S = 15.0  # health check of a server without calls
LOOK_EVERY_S = 1.0  # polling interval for a session that ended silently
GATHER_S = 0.02  # debounce: a server that adds ten tools sends ten notifications

LISTS = ("tools", "prompts", "resources")
# Negative cache: a failed probe that took this long is cached for as long. Quicker failures, such
# as a refused connection, are shared by the calls that waited for the probe: the next call probes
# again.
FAILED_FOR_S = 1.0


class ChangeSubscriber(Protocol):
    """Subscriber to the changes of all servers."""

    async def lists_changed(self, source: str) -> None:
        """Read the lists of `source` again: they may have changed."""

    def resource_changed(self, source: str, uri: str) -> None: ...

    def reachability_changed(self, source: str) -> None:
        """`Watcher.failure` of `source` has changed."""


class Watcher:
    def __init__(self, server: "McpServer", audience: ChangeSubscriber, refresh_s: float) -> None:
        self._server = server
        self._audience = audience
        self._refresh_s = refresh_s
        self._uris: Counter[str] = Counter()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by URI
        self._link: Link | None = None  # of a handshake revision, while connected
        self._backoff = RefreshBackoff()
        self._dirty = asyncio.Event()  # lists may have changed
        self._check_requested = asyncio.Event()
        self._regroup = asyncio.Event()  # the set of watched resources has changed
        self.failure: str | None = (
            "not reached yet"  # why the server does not answer; None: it does
        )

    def on_change(self, method: str, params: dict[str, Any]) -> None:
        """Handle a change notification of the server."""
        if method in LIST_CHANGES:
            self._dirty.set()
        elif method == RESOURCE_UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str) and uri in self._uris:
                self._audience.resource_changed(self._server.source.name, uri)

    def check_soon(self) -> None:
        """Check soon whether the server answers: a call failed."""
        self._check_requested.set()

    @property
    def receives_messages(self) -> bool:
        """Whether change notifications can be received."""
        return self._link is None or self._link.receives_messages

    @property
    def is_used(self) -> bool:
        """Whether some resource is watched."""
        return bool(self._uris)

    def take_over(self, before: "Watcher") -> None:
        """Take over the watched resources of `before`, whose server has a new transport."""
        self._uris, self._locks = before._uris, before._locks  # noqa: SLF001 - some change now

    async def watch(self, uri: str) -> None:
        """Watch a resource. Raises the error of a server that refuses."""
        async with self._lock(uri):  # a second one subscribes itself if the first fails
            self._uris[uri] += 1
            if self._uris[uri] > 1:
                return
            try:
                await self._send_subscription("resources/subscribe", uri)
            except BaseException:
                del self._uris[uri]
                raise

    async def unwatch(self, uri: str) -> None:
        self._uris[uri] -= 1  # before the lock: a cancelled wait for it must not keep the count
        if self._uris[uri] > 0:
            return
        del self._uris[uri]
        async with self._lock(uri):
            if uri not in self._uris:
                with suppress(UpstreamFailed, Fault):
                    await self._send_subscription("resources/unsubscribe", uri)

    def _lock(self, uri: str) -> asyncio.Lock:
        """The lock of those that begin or end to watch `uri`."""
        return self._locks.setdefault(uri, asyncio.Lock())

    async def _send_subscription(self, method: str, uri: str) -> None:
        """Subscribe or unsubscribe a resource at the server; a disconnected server is caught up on
        reconnection."""
        self._regroup.set()
        if self._link is not None:
            await self._link.request(method, {"uri": uri}, None, self._server.timeout)

    async def run(self) -> None:
        """Watch the server with reconnection and exponential backoff, until cancelled."""
        pause_s = RETRY_FIRST_S
        async with asyncio.TaskGroup() as group:
            group.create_task(self._refresh())
            while True:
                try:
                    await self._follow()
                    pause_s = RETRY_FIRST_S
                except (UpstreamFailed, Fault) as error:
                    if self.failure is None:
                        pause_s = RETRY_FIRST_S
                    self._turn(str(error))
                except Exception:  # whatever it sent: the server must not stay unwatched
                    log.exception("mcp_watch_failed", extra={"source": self._server.source.name})
                    self._turn("its messages could not be processed")
                self._link = None
                self._server.invalidate_probe()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_LONGEST_S)

    async def _follow(self) -> None:
        """Watch as long as the server answers."""
        supported = await self._server.supported_eras()
        if supported.stateless is not None:
            await self._listen(supported.stateless.capabilities)
        else:
            async with self._server.pool.lease(SHARED_KEY, None) as link:
                await self._stay(link)

    async def _stay(self, link: Link) -> None:
        self._link = link
        await self._subscribe_again(link)
        self._mark_up()
        checked = time.monotonic()
        while link.alive:
            doubted = await self._check_requested_within(LOOK_EVERY_S)
            if doubted or time.monotonic() - checked > CHECK_EVERY_S:
                await self._check(link, "ping")
                checked = time.monotonic()

    async def _subscribe_again(self, link: Link) -> None:
        """Subscribe all watched resources. A refused one, as of a deleted resource, is no failure
        of the server."""
        refused = 0
        for uri in list(self._uris):
            try:
                await link.request("resources/subscribe", {"uri": uri}, None, self._server.timeout)
            except RelayedFault:
                refused += 1
        if refused:
            extra = {"source": self._server.source.name, "number": refused}
            log.warning("mcp_subscriptions_refused", extra=extra)

    async def _check(self, link: Link, method: str) -> None:
        """Health check. Raises UpstreamFailed when the server does not answer; error answers count
        as answers."""
        with suppress(RelayedFault):
            await link.request(method, {}, None, self._server.timeout)

    async def _check_requested_within(self, seconds: float) -> bool:
        """Whether a call failed within `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._check_requested.wait()
        doubted = self._check_requested.is_set()
        self._check_requested.clear()
        return doubted

    async def _stand_by(self) -> None:
        """Poll a server without notifications, until some resource is to be watched."""
        self._mark_up()
        while not self._uris:
            await self._check_requested_within(CHECK_EVERY_S)
            await self._check(await self._server.stateless(), DISCOVER)

    async def _listen(self, capabilities: Mapping[str, Any]) -> None:
        """Listen to a 2026-07-28 server, whose filter is fixed at the start of a stream: for other
        resources a new stream is opened, and the old one closed only then."""
        filter_ = _listenable(capabilities)
        if not filter_ and not self._uris:
            await self._stand_by()
        current = AsyncExitStack()
        try:
            while True:
                self._regroup.clear()
                newer = AsyncExitStack()
                ended = await newer.enter_async_context(await self._listening(filter_))
                await current.aclose()
                current = newer
                if self.failure is not None:
                    self._mark_up()
                await wait_for_first(ended, self._regroup.wait())  # other resources to watch
                if ended.done():
                    return ended.result()
        finally:
            await current.aclose()

    async def _listening(
        self, filter_: Mapping[str, Any]
    ) -> AbstractAsyncContextManager["asyncio.Future[None]"]:
        resources = {"resourceSubscriptions": sorted(self._uris)} if self._uris else {}
        link = await self._server.stateless()
        return link.listen({**filter_, **resources}, self._server)

    def _mark_up(self) -> None:
        """Mark the server as up, and report all of its lists and resources as changed:
        notifications were missed."""
        self._turn(None)
        self._dirty.set()
        for uri in self._uris:
            self._audience.resource_changed(self._server.source.name, uri)

    def _turn(self, failure: str | None) -> None:
        before, self.failure = self.failure, failure
        if before != failure:
            name = self._server.source.name
            (log.info if failure is None else log.warning)(
                "mcp_server_up" if failure is None else "mcp_server_down",
                extra={"source": name, **({"reason": failure} if failure else {})},
            )
            self._audience.reachability_changed(name)

    async def _refresh(self) -> None:
        """Have the lists read again when they may have changed, and periodically if the server does
        not announce changes."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    None if self._server.announces_changes else self._refresh_s
                ):
                    await self._dirty.wait()
            wait_s = self._backoff.wait_s(time.monotonic()) if self._dirty.is_set() else 0.0
            await asyncio.sleep(max(GATHER_S, wait_s))
            self._dirty.clear()
            try:
                await self._audience.lists_changed(self._server.source.name)
            except Exception:  # a faulty list must not end the watch for later changes
                log.exception("mcp_refresh_failed", extra={"source": self._server.source.name})
            self._backoff.read(time.monotonic())


def _listenable(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The notifications that a 2026-07-28 server offers, as a filter."""
    return {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if isinstance(capabilities.get(kind), dict) and capabilities[kind].get("listChanged")
    }


Members = dict[str, Raw]  # of a result


class Transport(Protocol):
    """Transport of one source."""

    one_stream: bool  # messages outside answers come on a stream that all calls of a session share

    @property
    def timeout(self) -> Timeout: ...

    async def probe(self) -> SupportedEras: ...

    @property
    def pool(self) -> Connected | None:
        """The connections to a server with an address."""

    async def open(
        self,
        eras: SupportedEras,
        capabilities: Mapping[str, Any],
        background: MessageHandler,
        holder: CallerHolder | None = None,
    ) -> Link:
        """A session at a server of a handshake revision; `holder` is its owner."""

    async def stateless(self, eras: SupportedEras) -> SubscribableLink: ...

    async def close(self) -> None: ...


class McpServer:
    """One MCP server behind the gateway. A MessageHandler of messages that belong to no call."""

    def __init__(
        self, source: Source, transport: Transport, audience: ChangeSubscriber, limits: Limits
    ) -> None:
        self.source = source
        self.levels: WeakKeyDictionary[Link, int] = WeakKeyDictionary()
        sessions = limits.mcp_sessions
        if source.options.command:
            # one for each session, and one for requests of 2026-07-28
            sessions = min(sessions, max(1, limits.stdio_processes - 1))
        self.pool = SessionPool(
            self._open, self, limit=sessions, idle_s=limits.mcp_idle_s, wait_s=limits.timeout_s
        )
        self.watcher = Watcher(self, audience, limits.mcp_refresh_s)
        self.on_change = self.watcher.on_change
        self.requests = 0  # passed on
        self.times = defaultdict[str, Histogram](
            partial(Histogram, BUCKETS_S)
        )  # of those, by method
        self.calls = 0  # running
        self.failures = 0  # requests without a usable answer
        self._transport = transport
        self._limits = limits
        self._probing = asyncio.Lock()
        self._supported: SupportedEras | None = None
        self._until = 0.0
        self._failure: UpstreamFailed | None = None
        self._failed_at = 0.0
        self._stateless: SubscribableLink | None = None

    @property
    def timeout(self) -> Timeout:
        return self._transport.timeout

    @property
    def busy(self) -> bool:
        """Whether calls run, including those that wait for their clients."""
        return self.calls > 0 or self.pool.busy

    @property
    def one_stream(self) -> bool:
        return self._transport.one_stream

    @property
    def redirected_to(self) -> str | None:
        """The address that the server's own one redirects to."""
        pool = self._transport.pool
        return None if pool is None else pool.redirected_to

    @property
    def revision(self) -> Revision:
        """The revision of its sessions."""
        facts = self._supported.handshake if self._supported else None
        return facts.revision if facts else V2025_11_25

    @property
    def announces_changes(self) -> bool:
        """Whether the server announces all changes of its lists over a channel that the gateway
        receives."""
        facts = self._supported and (self._supported.stateless or self._supported.handshake)
        lists = [facts.capabilities.get(name) for name in LISTS] if facts else []
        declarations = [entry for entry in lists if isinstance(entry, dict)]
        announces = bool(declarations) and all(entry.get("listChanged") for entry in declarations)
        return announces and self.watcher.receives_messages

    async def supported_eras(self) -> SupportedEras:
        """The eras that the server supports, cached for `mcp_probe_s`. Raises UpstreamFailed if
        unknown."""
        requested_at = time.monotonic()
        if self._supported is not None and requested_at < self._until:
            return self._supported
        async with self._probing:
            fresh = time.monotonic() < self._until
            if self._failure is not None and (fresh or self._failed_at > requested_at):
                raise UpstreamFailed(str(self._failure))
            if self._supported is not None and fresh:
                return self._supported
            return await self._probe()

    async def _probe(self) -> SupportedEras:
        began = time.monotonic()
        try:
            supported = await self._transport.probe()
        except UpstreamFailed as error:
            self._supported, self._failure = None, error
            self._failed_at = time.monotonic()
            slow = self._failed_at - began >= FAILED_FOR_S
            self._until = self._failed_at + FAILED_FOR_S if slow else 0.0
            raise
        self._supported, self._failure = supported, None
        self._until = time.monotonic() + self._limits.mcp_probe_s
        return supported

    def invalidate_probe(self) -> None:
        """Invalidate the cached probe: the server did not behave as probed."""
        self._until = 0.0

    async def stateless(self) -> SubscribableLink:
        """The link for requests of 2026-07-28. Raises UpstreamFailed."""
        if self._stateless is None or not self._stateless.alive:
            await self._new_stateless(await self.supported_eras())
        if self._stateless is None:
            raise UpstreamFailed(f"{self.source.name} no longer supports 2026-07-28")
        return self._stateless

    async def _new_stateless(self, eras: SupportedEras) -> None:
        before = self._stateless
        if before is not None and before.alive and eras.stateless:
            return
        self._stateless = await self._transport.stateless(eras) if eras.stateless else None
        if before is not None:
            await before.close()

    async def caller(self, context: Context) -> Caller | None:
        """The caller to authenticate as. Raises UpstreamFailed, and what a Connector raises."""
        pool = self._transport.pool
        return None if pool is None else await on_behalf(pool, self.source, context)

    @property
    def by_caller(self) -> bool:
        """Whether callers authenticate themselves at the server."""
        pool = self._transport.pool
        return pool is not None and pool.by_caller

    def hooked_headers(self, headers: Headers, hook_headers: Headers) -> Headers:
        """Headers of a request with those of hooks. Raises UpstreamFailed for a server that gets
        none."""
        pool = self._transport.pool
        if pool is None:
            raise UpstreamFailed(f"{self.source.name} is a command, which gets no headers of hooks")
        return hooked_headers(pool, headers, hook_headers)

    def authenticate(
        self, caller: Caller | None, send: Callable[[Headers], Awaitable[Members]]
    ) -> Awaitable[Members]:
        """Call `send` with the caller's credentials as headers; retried once with new ones on a
        401. Raises UpstreamFailed and what `send` raises."""
        pool = None if caller is None else self._transport.pool
        if caller is None or pool is None:
            return send(NONE)
        return _send_with_credentials(pool, caller, send)

    async def _open(
        self, key: SessionKey, background: MessageHandler, holder: CallerHolder
    ) -> Link:
        capabilities = msgspec.json.decode(key.capabilities)
        return await self._transport.open(
            await self.supported_eras(), capabilities, background, holder
        )

    async def on_notification(self, method: str, params: dict[str, Any]) -> None:
        self.on_change(method, params)

    async def on_request(self, method: str, params: dict[str, Any]) -> Any:  # noqa: ARG002
        raise MethodNotFound(f"No client is here to answer: {method[:100]}")

    async def close(self) -> None:
        await self.pool.close()
        if self._stateless is not None:
            await self._stateless.close()
        await self._transport.close()


async def _send_with_credentials(
    pool: Connected, caller: Caller, send: Callable[[Headers], Awaitable[Members]]
) -> Members:
    headers = await auth_headers(pool, caller)
    try:
        return await send(headers)
    except HttpStatusError as refused:
        status, challenge = refused.http_status, refused.challenge
        renewed = await renew_caller(pool, caller, headers, status=status, challenge=challenge)
        if renewed is None:
            raise
    return await send(await auth_headers(pool, renewed))

"""Watches one MCP server: changes of its lists and resources, and whether it answers."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from gateway.upstreams.http.connections import UpstreamFailed
from gateway.upstreams.mcp.backoff import Calm
from gateway.upstreams.mcp.handshake import DISCOVER
from gateway.upstreams.mcp.link import Link
from gateway.upstreams.mcp.pool import PLAIN
from schemas.errors import Fault, RelayedFault
from schemas.mcp.messages import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
)

if TYPE_CHECKING:
    from gateway.upstreams.mcp.server import McpServer

log = logging.getLogger("toolgate.upstream")

LIST_CHANGES = frozenset({TOOLS_CHANGED, PROMPTS_CHANGED, RESOURCES_CHANGED})
RETRY_FIRST_S, RETRY_LONGEST_S = 0.5, 30.0
CHECK_EVERY_S = 15.0  # health check of a server without calls
LOOK_EVERY_S = 1.0  # polling interval for a session that ended silently
GATHER_S = 0.02  # debounce: a server that adds ten tools sends ten notifications


class Audience(Protocol):
    """Subscriber to the changes of all servers."""

    async def lists_changed(self, source: str) -> None:
        """Read the lists of `source` again: they may have changed."""

    def resource_changed(self, source: str, uri: str) -> None: ...

    def reachability_changed(self, source: str) -> None:
        """`Watcher.failure` of `source` has changed."""


class Watcher:
    def __init__(self, server: "McpServer", audience: Audience, refresh_s: float) -> None:
        self._server = server
        self._audience = audience
        self._refresh_s = refresh_s
        self._uris: Counter[str] = Counter()
        self._link: Link | None = None  # of a handshake revision, while connected
        self._calm = Calm()
        self._dirty = asyncio.Event()  # lists may have changed
        self._doubted = asyncio.Event()
        self._regroup = asyncio.Event()  # the set of watched resources has changed
        self.failure: str | None = (
            "not reached yet"  # why the server does not answer; None: it does
        )

    def news(self, method: str, params: dict[str, Any]) -> None:
        """Handle a change notification of the server."""
        if method in LIST_CHANGES:
            self._dirty.set()
        elif method == RESOURCE_UPDATED:
            uri = params.get("uri")
            if isinstance(uri, str) and uri in self._uris:
                self._audience.resource_changed(self._server.source.name, uri)

    def doubt(self) -> None:
        """Check soon whether the server answers: a call failed."""
        self._doubted.set()

    @property
    def hears(self) -> bool:
        """Whether change notifications can be received."""
        return self._link is None or self._link.hears

    def go_on_for(self, before: "Watcher") -> None:
        """Take over the watched resources of `before`, whose server has a new transport."""
        self._uris.update(before._uris)  # noqa: SLF001

    async def watch(self, uri: str) -> None:
        """Raises the error of a server that refuses."""
        self._uris[uri] += 1
        if self._uris[uri] > 1:
            return
        try:
            await self._tell("resources/subscribe", uri)
        except BaseException:
            del self._uris[uri]
            raise

    async def unwatch(self, uri: str) -> None:
        self._uris[uri] -= 1
        if self._uris[uri] <= 0:
            del self._uris[uri]
            with suppress(UpstreamFailed, Fault):
                await self._tell("resources/unsubscribe", uri)

    async def _tell(self, method: str, uri: str) -> None:
        """Subscribe or unsubscribe; a disconnected server is caught up on reconnection."""
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
                except Exception:  # whatever it sent: the server must not stay unwatched for ever
                    log.exception("mcp_watch_failed", extra={"source": self._server.source.name})
                    self._turn("what it said could not be taken")
                self._link = None
                self._server.forget()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_LONGEST_S)

    async def _follow(self) -> None:
        """Watch as long as the server answers."""
        spoken = await self._server.spoken()
        if spoken.stateless is not None:
            await self._listen(spoken.stateless.capabilities)
        else:
            async with self._server.pool.lease(PLAIN, None) as link:
                await self._stay(link)

    async def _stay(self, link: Link) -> None:
        self._link = link
        for uri in list(self._uris):
            await link.request("resources/subscribe", {"uri": uri}, None, self._server.timeout)
        self._here()
        checked = time.monotonic()
        while link.alive:
            doubted = await self._doubt_within(LOOK_EVERY_S)
            if doubted or time.monotonic() - checked > CHECK_EVERY_S:
                await self._check(link, "ping")
                checked = time.monotonic()

    async def _check(self, link: Link, method: str) -> None:
        """Raises UpstreamFailed when the server does not answer; error answers count as answers."""
        with suppress(RelayedFault):
            await link.request(method, {}, None, self._server.timeout)

    async def _doubt_within(self, seconds: float) -> bool:
        """Whether a call failed within `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._doubted.wait()
        doubted = self._doubted.is_set()
        self._doubted.clear()
        return doubted

    async def _stand_by(self) -> None:
        """Poll a server without notifications, until some resource is to be watched."""
        self._here()
        while not self._uris:
            await self._doubt_within(CHECK_EVERY_S)
            await self._check(await self._server.stateless(), DISCOVER)

    async def _listen(self, capabilities: Mapping[str, Any]) -> None:
        """In 2026-07-28 the filter is fixed at the start of a stream: for other resources open a
        new one, and close the old one only then."""
        wanted = _listenable(capabilities)
        if not wanted and not self._uris:
            await self._stand_by()
        current = AsyncExitStack()
        try:
            while True:
                self._regroup.clear()
                newer = AsyncExitStack()
                ended = await newer.enter_async_context(await self._listening(wanted))
                await current.aclose()
                current = newer
                if self.failure is not None:
                    self._here()
                await self._either(ended)
                if ended.done():
                    return ended.result()
        finally:
            await current.aclose()

    async def _listening(
        self, wanted: Mapping[str, Any]
    ) -> AbstractAsyncContextManager["asyncio.Future[None]"]:
        resources = {"resourceSubscriptions": sorted(self._uris)} if self._uris else {}
        link = await self._server.stateless()
        return link.listen({**wanted, **resources}, self._server)

    async def _either(self, ended: "asyncio.Future[None]") -> None:
        """Wait until the server ends the stream, or other resources are to be watched."""
        regroup = asyncio.ensure_future(self._regroup.wait())
        either: set[asyncio.Future[Any]] = {ended, regroup}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            regroup.cancel()

    def _here(self) -> None:
        """Record that the server answers, and report all as changed: notifications were missed."""
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
                async with asyncio.timeout(None if self._server.tells else self._refresh_s):
                    await self._dirty.wait()
            wait_s = self._calm.wait_s(time.monotonic()) if self._dirty.is_set() else 0.0
            await asyncio.sleep(max(GATHER_S, wait_s))
            self._dirty.clear()
            try:
                await self._audience.lists_changed(self._server.source.name)
            except Exception:  # a faulty list must not end the watch for later changes
                log.exception("mcp_refresh_failed", extra={"source": self._server.source.name})
            self._calm.read(time.monotonic())


def _listenable(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The notifications that a 2026-07-28 server offers, as a filter."""
    return {
        f"{kind}ListChanged": True
        for kind in ("tools", "prompts", "resources")
        if isinstance(capabilities.get(kind), dict) and capabilities[kind].get("listChanged")
    }

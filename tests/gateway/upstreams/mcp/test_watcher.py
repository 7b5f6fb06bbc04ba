"""What is followed of a server: its lists and the resources that somebody watches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.mcp import backoff
from gateway.upstreams.mcp import server as mcp_server
from gateway.upstreams.mcp.backoff import RefreshBackoff
from gateway.upstreams.mcp.relay import McpRelay
from gateway.upstreams.mcp.server import McpServer, Watcher
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.transport_choice import Transports
from schemas.errors import RelayedFault
from tests import polling
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.audience import Audience
from tests.gateway.upstreams.mcp.conftest import mcp_source
from tests.servers.mcp_wire import Scripted, Turn, note

pytestmark = pytest.mark.anyio

CHANGED = note("notifications/tools/list_changed")


class Telling:
    """A server that says what a test wants, on the stream of its session."""

    def __init__(self, subscribe: Callable[[Turn], Awaitable[None]] = Turn.result) -> None:
        self.server = Scripted(
            {"GET": self._stream, "resources/subscribe": subscribe},
            capabilities={"tools": {"listChanged": True}, "resources": {"subscribe": True}},
        )
        self._streams: list[Turn] = []
        self._there = asyncio.Event()

    async def tell(self, *messages: Any) -> None:
        await self._there.wait()
        for message in messages:
            await self._streams[-1].event(message)

    async def _stream(self, turn: Turn) -> None:
        await turn.begin()
        self._streams.append(turn)
        self._there.set()
        await turn.wait_until_left()


@asynccontextmanager
async def follow_server(url: str, audience: Audience) -> AsyncIterator[McpServer]:
    connections = SourcePools(limits(), {})
    ways = Transports(connections, limits(), {}, {"name": "t"})
    servers = Servers(ways, audience, limits())
    source = mcp_source(f"{url}/mcp", era="handshake")
    servers.follow([source])
    try:
        with anyio.fail_after(30):
            yield servers.of(source)
    finally:
        await servers.close()
        await connections.close()


async def test_lists_that_always_change_are_read_with_backoff(serve, monkeypatch):
    telling, audience = Telling(), Audience()
    pauses: list[float] = []

    class Noted(RefreshBackoff):
        """Its clock stands still, and nobody waits."""

        def wait_s(self, now: float) -> float:
            pauses.append(super().wait_s(0.0))
            return 0.0

        def read(self, now: float) -> None:
            super().read(0.0)

    monkeypatch.setattr(mcp_server, "RefreshBackoff", Noted)
    monkeypatch.setattr(backoff, "AT_ONCE", 0)
    async with follow_server(await serve(telling.server), audience):
        for count in range(1, 9):
            await audience.until(lambda count=count: len(audience.read) >= count)
            await telling.tell(CHANGED, CHANGED)
    assert pauses[:8] == [0, 1, 2, 4, 8, 16, 32, 60]


async def test_while_a_change_waits_nothing_is_read(serve, monkeypatch):
    monkeypatch.setattr(backoff, "FIRST_S", 3600.0)
    monkeypatch.setattr(backoff, "AT_ONCE", 0)
    telling, audience = Telling(), Audience()
    async with follow_server(await serve(telling.server), audience) as server:
        await server.watcher.watch("x:1")
        await audience.until(lambda: bool(audience.read))
        audience.changed.clear()
        await telling.tell(*[CHANGED] * 50, note("notifications/resources/updated", uri="x:1"))
        await audience.until(lambda: bool(audience.changed))
        with anyio.move_on_after(5 * mcp_server.GATHER_S):  # what must not happen gives no sign
            await audience.until(lambda: len(audience.read) > 1)
    assert len(audience.read) == 1


def test_a_few_changes_are_read_at_once():
    paced, waits = RefreshBackoff(), []
    for _ in range(backoff.AT_ONCE + 3):
        waits.append(paced.wait_s(0.0))
        paced.read(0.0)
    assert waits == [*[0.0] * (backoff.AT_ONCE + 1), 1.0, 2.0]


def test_a_change_after_a_minute_of_quiet_is_the_first_again(monkeypatch):
    monkeypatch.setattr("gateway.upstreams.mcp.backoff.AT_ONCE", 0)
    calm = RefreshBackoff()
    now, waits = 0.0, []
    for _ in range(4):  # a change comes with each reading
        waits.append(calm.wait_s(now))
        now += waits[-1]
        calm.read(now)
    assert waits == [0, 1, 2, 4]
    assert calm.wait_s(now + 8) == 0  # as long as it would have had to wait
    calm.read(now + 8)
    assert calm.wait_s(now + 8) == 8
    calm.read(now + 16)
    assert calm.wait_s(now + 76) == 0
    calm.read(now + 76)
    assert calm.wait_s(now + 76.25) == 0.75


async def test_only_of_resources_that_somebody_watches_is_heard(serve):
    telling, audience = Telling(), Audience()
    async with follow_server(await serve(telling.server), audience) as server:
        await server.watcher.watch("x:1")
        await audience.until(lambda: bool(audience.read))
        audience.changed.clear()
        uris = ["x:2", "x:1", "", None, ["x:1"], "x:1"]
        await telling.tell(*(note("notifications/resources/updated", uri=uri) for uri in uris))
        await audience.until(lambda: len(audience.changed) >= 2)
        assert audience.changed == ["x:1", "x:1"]
        await server.watcher.unwatch("x:1")
        await telling.tell(note("notifications/resources/updated", uri="x:1"), CHANGED)
        await audience.until(lambda: len(audience.read) >= 2)
        assert audience.changed == ["x:1", "x:1"]


async def test_a_refused_or_cancelled_watch_leaves_other_watches_of_the_resource(serve):
    attempts: list[asyncio.Event] = []

    async def subscribe(turn: Turn) -> None:
        attempts.append(asyncio.Event())
        if len(attempts) < 3:
            await attempts[-1].wait()
            await turn.error(-32000)
        else:
            await turn.result()

    telling, audience = Telling(subscribe), Audience()
    async with follow_server(await serve(telling.server), audience) as server:
        await audience.until(lambda: server.watcher.failure is None)
        refused, cancelled, last = (
            asyncio.create_task(server.watcher.watch("x:1")) for _ in range(3)
        )
        await polling.until(lambda: len(attempts) == 1)
        attempts[0].set()
        with pytest.raises(RelayedFault):
            await refused
        await polling.until(lambda: len(attempts) == 2)
        cancelled.cancel()
        await last
        attempts[1].set()
        audience.changed.clear()
        await telling.tell(note("notifications/resources/updated", uri="x:1"))
        await audience.until(lambda: audience.changed == ["x:1"])


async def test_a_watch_that_fails_at_a_replaced_server_is_not_counted_by_its_successor(serve):
    begun = asyncio.Event()

    async def subscribe(turn: Turn) -> None:
        begun.set()
        await turn.wait_until_left()

    telling, audience = Telling(subscribe), Audience()
    async with follow_server(await serve(telling.server), audience) as server:
        await audience.until(lambda: server.watcher.failure is None)
        watch = asyncio.create_task(server.watcher.watch("x:1"))
        await begun.wait()
        newer = Watcher(server, audience, 60)
        newer.take_over(server.watcher)
        watch.cancel()
        await asyncio.wait([watch])
        newer.on_change("notifications/resources/updated", {"uri": "x:1"})
        assert audience.changed == []


async def test_end_of_a_watch_leaves_the_server_of_an_edited_or_removed_source():
    connections = SourcePools(limits(), {})
    servers = Servers(Transports(connections, limits(), {}, {"name": "t"}), Audience(), limits())
    relay = McpRelay(servers, cast("Any", None), 1)
    former, edited = (mcp_source(f"http://127.0.0.1:9/{path}") for path in ("old", "new"))
    for _ in range(2):
        await relay.watch(former, "x:1")
    server = servers.of(edited)
    await relay.unwatch(former, "x:1")
    assert list(servers) == [server]
    servers.follow([server.source])
    servers.follow([])
    await relay.unwatch(former, "x:1")
    assert list(servers) == []
    await servers.close()
    await connections.close()


async def test_a_refused_subscription_on_connection_leaves_the_server_up(serve, caplog):
    async def subscribe(turn: Turn) -> None:
        if turn.params["uri"] == "x:gone":
            await turn.error(-32002)
        else:
            await turn.result()

    telling, audience = Telling(subscribe), Audience()
    async with follow_server(await serve(telling.server), audience) as server:
        for uri in ("x:gone", "x:1"):
            await server.watcher.watch(uri)  # before the connection, so nobody refuses
        with anyio.fail_after(5):
            await audience.until(lambda: server.watcher.failure is None)
        audience.changed.clear()
        await telling.tell(note("notifications/resources/updated", uri="x:1"))
        await audience.until(lambda: audience.changed == ["x:1"])
    assert "mcp_subscriptions_refused" in [record.message for record in caplog.records]


async def test_watches_of_a_removed_source_are_made_again_when_the_source_returns(serve):
    subscribed: list[str] = []

    async def subscribe(turn: Turn) -> None:
        subscribed.append(turn.params["uri"])
        await turn.result()

    url, connections = await serve(Telling(subscribe).server), SourcePools(limits(), {})
    servers = Servers(Transports(connections, limits(), {}, {"name": "t"}), Audience(), limits())
    relay = McpRelay(servers, cast("Any", None), 1)
    source, returned = (mcp_source(f"{url}/mcp", era="handshake") for _ in range(2))
    servers.follow([source])
    for uri in ("x:1", "x:2"):
        await relay.watch(source, uri)
    with anyio.fail_after(5):
        await polling.until(lambda: subscribed == ["x:1", "x:2"])
        servers.follow([])
        await relay.unwatch(source, "x:1")
        servers.follow([returned])
        await polling.until(lambda: subscribed == ["x:1", "x:2", "x:2"])
    await servers.close()
    await connections.close()


async def test_unusable_lists_are_read_again_on_change(serve, caplog, monkeypatch):
    monkeypatch.setattr(backoff, "FIRST_S", 0.0)
    telling, audience = Telling(), Audience()

    def crash() -> None:
        if len(audience.read) == 1:
            raise ValueError("secret")

    audience.fails = crash
    async with follow_server(await serve(telling.server), audience) as server:
        await audience.until(lambda: bool(audience.read))
        audience.fails = lambda: None
        await telling.tell(CHANGED)
        await audience.until(lambda: len(audience.read) >= 2)
        assert server.watcher.failure is None
    assert "mcp_refresh_failed" in [record.message for record in caplog.records]


async def test_a_server_whose_news_cannot_be_taken_is_followed_again(serve, caplog, monkeypatch):
    monkeypatch.setattr(mcp_server, "RETRY_FIRST_S", 0.01)
    telling, audience = Telling(), Audience()

    def crash() -> None:
        if audience.turns == 1:
            audience.fails = lambda: None
            raise ValueError("secret")

    audience.fails = crash
    async with follow_server(await serve(telling.server), audience) as server:
        await audience.until(lambda: audience.turns >= 3)  # came, could not be taken, came
        assert server.watcher.failure is None
        await audience.until(lambda: bool(audience.read))
    assert "mcp_watch_failed" in [record.message for record in caplog.records]

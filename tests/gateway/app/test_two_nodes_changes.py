"""Requests of one session at two gateways in quick succession: no change is lost, and the next
request is served by what the one before it was answered."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from gateway.interfaces import SessionChange
from tests.fixtures_gateway import Client, SessionClient, running
from tests.fixtures_redis import RedisServer
from tests.fixtures_servers import Serve
from tests.gateway.app.test_two_nodes import Nodes, at
from tests.gateway.app.test_two_nodes import shared_settings as shared_settings
from tests.gateway.events import listening
from tests.gateway.verbs import install
from tests.polling import until
from tests.servers.mcp_wire import Scripted, Turn, note

pytestmark = pytest.mark.anyio

ids = itertools.count(1)
STORE = ("hgetall", "hset", "hdel", "hincrby", "get")  # commands that read or write a session
SUBSCRIBE = "resources/subscribe"
URIS = [f"test://{number}" for number in range(40)]


class Telling(Scripted):
    """An MCP server whose resources can be watched, and whose tool says how it logs."""

    def __init__(self) -> None:
        super().__init__(
            {
                "resources/list": self._resources,
                "resources/subscribe": self._finish_call,
                "resources/unsubscribe": self._finish_call,
                "tools/list": self._tools,
                "tools/call": self._call,
                "logging/setLevel": self._finish_call,
                "GET": self._listen,
            },
            capabilities={"resources": {"subscribe": True}, "logging": {}, "tools": {}},
        )
        self._ears: list[Turn] = []

    async def tell(self, uri: str) -> None:
        for ear in self._ears:
            await ear.event(note("notifications/resources/updated", uri=uri))

    async def _resources(self, turn: Turn) -> None:
        await turn.result(resources=[{"uri": uri, "name": uri[-2:]} for uri in URIS])

    async def _tools(self, turn: Turn) -> None:
        tool = {"name": "talk", "description": "Logs.", "inputSchema": {"type": "object"}}
        await turn.result(tools=[tool])

    async def _call(self, turn: Turn) -> None:
        await turn.begin()
        for level in ("debug", "error"):
            await turn.event(note("notifications/message", level=level, data=level))
        await turn.event({"jsonrpc": "2.0", "id": turn.id, "result": {"content": []}})
        await turn.end()

    async def _finish_call(self, turn: Turn) -> None:
        await turn.result()

    async def _listen(self, turn: Turn) -> None:
        await turn.begin()
        self._ears.append(turn)
        await turn.wait_until_left()


@pytest.fixture
def server() -> Telling:
    return Telling()


@pytest.fixture
async def nodes(shared_settings: Settings, serve: Serve, server: Telling) -> AsyncIterator[Nodes]:
    source = SourceSettings(mcp=f"{await serve(server)}/mcp")
    mcp = replace(shared_settings.mcp, keep_alive_s=60)  # answers that take a while stay JSON
    settings = replace(shared_settings, sources={"telling": source}, mcp=mcp)
    async with running(settings) as a, running(settings) as b:
        async with asyncio.timeout(30):
            for client in (a, b):
                await client.gateway.shared.bus.following.wait()
        yield Nodes(a, b, install(a.gateway), install(b.gateway))


async def both(nodes: Nodes) -> tuple[SessionClient, SessionClient]:
    """One session, open at both nodes."""
    session = await nodes.a.session("2025-11-25")
    there = nodes.of_b(session)
    assert (await there.call("ping"))["result"] == {}
    return session, there


async def call_and_check(session: SessionClient, method: str, **params: Any) -> None:
    answer = await session.call(method, params, next(ids))
    assert answer.get("result") == {}, answer


def knows(client: Client, session: SessionClient) -> set[str]:
    return at(client, session).subscriptions


async def test_concurrent_subscriptions_at_two_nodes_are_all_kept(nodes: Nodes) -> None:
    ways = await both(nodes)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number, uri in enumerate(URIS):
                tasks.start_soon(
                    lambda n=number, u=uri: call_and_check(ways[n % 2], SUBSCRIBE, uri=u)
                )
    assert knows(nodes.a, ways[0]) == knows(nodes.b, ways[1]) == set(URIS)
    record = await nodes.a.gateway.shared.stores.sessions.get(ways[0].id)
    assert record is not None
    assert set(record.subscriptions) == set(URIS)


async def test_a_change_that_was_answered_is_acted_by_at_the_other_node(nodes: Nodes) -> None:
    ways, clients = await both(nodes), (nodes.a, nodes.b)
    with anyio.fail_after(60):
        for number, uri in enumerate(URIS):
            here, there = number % 2, (number + 1) % 2
            await call_and_check(ways[here], SUBSCRIBE, uri=uri)
            assert uri in knows(clients[there], ways[there])
            await call_and_check(ways[there], "resources/unsubscribe", uri=uri)
            assert uri not in knows(clients[here], ways[here])


async def test_a_log_level_holds_for_the_next_call_at_the_other_node(nodes: Nodes) -> None:
    ways = await both(nodes)
    call = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "talk"}}
    for number in range(10):
        level = ("debug", "error")[number % 2]
        await call_and_check(ways[number % 2], "logging/setLevel", level=level)
        other = (number + 1) % 2
        async with listening((nodes.a, nodes.b)[other], "/mcp", ways[other].headers, call) as sent:
            said = [one.message for one in await sent.rest() if one.data]
        logged = [one["params"]["level"] for one in said if "method" in one]
        assert logged == {"debug": ["debug", "error"], "error": ["error"]}[level]


async def test_a_resource_unsubscribed_at_one_node_is_silent_at_the_other_node(
    nodes: Nodes, server: Telling
) -> None:
    session, there = await both(nodes)
    async with listening(nodes.a, "/mcp", session.headers) as events, asyncio.timeout(60):
        assert (await events.event()).data == ""
        for gone, kept in zip(URIS[::2][:10], URIS[1::2][:10], strict=True):
            await call_and_check(there, SUBSCRIBE, uri=gone)
            await call_and_check(there, SUBSCRIBE, uri=kept)
            await call_and_check(there, "resources/unsubscribe", uri=gone)
            await until(lambda uri=kept: uri in at(nodes.a, session).watched)
            await server.tell(gone)
            await server.tell(kept)
            assert (await events.event()).message["params"]["uri"] == kept
            await call_and_check(there, "resources/unsubscribe", uri=kept)


async def test_a_node_that_is_silent_holds_up_one_change_only(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    session, there = await both(nodes)
    b = nodes.b.gateway.shared
    b.bus.on("changed", _deaf)
    sessions = nodes.a.gateway.shared.sessions
    sessions._peers._wait_s = 0.5
    with anyio.fail_after(60):
        for level in ("debug", "info", "error"):
            await sessions.change(at(nodes.a, session), SessionChange(log_level=level))
    unheard = [one for one in caplog.records if one.message == "session_change_unconfirmed"]
    assert [one.nodes for one in unheard] == [[b.bus.node]]  # type: ignore[attr-defined]

    b.sessions._peers._invalidate()
    await call_and_check(there, "ping")
    assert at(nodes.b, there).log_level == "error"


async def _deaf(_said: dict[str, Any]) -> None:
    return None


@pytest.mark.parametrize("shared_settings", ["redis"], indirect=True)
async def test_a_redis_that_goes_and_comes_back_empty_is_told_in_errors(
    nodes: Nodes, redis_server: RedisServer
) -> None:
    """What was not kept was not answered, and a session that was lost is not found."""
    session, there = await both(nodes)
    await call_and_check(session, SUBSCRIBE, uri=URIS[0])
    redis_server.stop()
    with anyio.fail_after(60):
        refused = await session.call(SUBSCRIBE, {"uri": URIS[1]}, next(ids))
        assert "does not answer" in refused["error"]["message"]
        assert knows(nodes.a, session) == {URIS[0]}
        assert (await session.call("ping", id_=next(ids)))["result"] == {}  # asks no store
        redis_server.start()
        while "error" in (refused := await there.call(SUBSCRIBE, {"uri": URIS[1]}, next(ids))):
            if "does not answer" not in refused["error"]["message"]:
                break
    assert refused["error"]["code"] == -32001, refused
    ping = {"jsonrpc": "2.0", "id": next(ids), "method": "ping"}
    assert (await there.post(ping))[0] == 404
    again = await nodes.a.session("2025-11-25")
    await call_and_check(again, SUBSCRIBE, uri=URIS[1])
    await call_and_check(nodes.of_b(again), SUBSCRIBE, uri=URIS[2])
    assert knows(nodes.a, again) == {URIS[1], URIS[2]}


@pytest.mark.parametrize("shared_settings", ["redis"], indirect=True)
async def test_requests_that_change_nothing_ask_the_store_nothing(
    nodes: Nodes, redis_server: RedisServer
) -> None:
    ways = await both(nodes)
    with redis_server.client() as client:

        def count_store_requests() -> int:
            said = client.info("commandstats")
            return sum(said.get(f"cmdstat_{one}", {"calls": 0})["calls"] for one in STORE)

        before = count_store_requests()
        for way in ways * 10:
            assert (await way.call("ping", id_=next(ids)))["result"] == {}
            assert (await way.call("tools/list", id_=next(ids)))["result"]["tools"]
        assert count_store_requests() == before

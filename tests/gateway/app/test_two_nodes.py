"""Two gateways that share a Redis, or the database, serve one client: whichever it reaches."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from gateway.context import Session
from gateway.state.change_streams import update_notification
from tests.fixtures_gateway import Client, SessionClient, running, with_mcp
from tests.fixtures_servers import Serve
from tests.gateway.cli.processes import serving
from tests.gateway.events import Events, Sent, listening, refusal_of_stream
from tests.gateway.transports.test_client_requests import answer, ask
from tests.gateway.transports.test_resumed_streams import after, say
from tests.gateway.verbs import Verbs, install
from tests.polling import until
from tests.servers.mcp_wire import Scripted, Turn, reply

pytestmark = pytest.mark.anyio

URI = "test://watched"


@pytest.fixture(params=["redis", "postgres"])
def shared_settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Settings of gateways that share their state."""
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else ""
    state = replace(settings.state, backend=request.param, redis_url=url, change_wait_s=30)
    return replace(with_mcp(settings, keep_alive_s=0.2, debounce_ms=10), state=state)


@dataclass(frozen=True)
class Nodes:
    a: Client
    b: Client
    at_a: Verbs
    at_b: Verbs

    def of_b(self, session: SessionClient) -> SessionClient:
        """The same client, that reaches the other node."""
        return SessionClient(self.b, session.id, session.revision, session.initialized)


@pytest.fixture
async def nodes(shared_settings: Settings) -> AsyncIterator[Nodes]:
    async with running(shared_settings) as a, running(shared_settings) as b:
        async with asyncio.timeout(30):
            for client in (a, b):
                await client.gateway.shared.bus.following.wait()
        yield Nodes(a, b, install(a.gateway), install(b.gateway))


def at(client: Client, session: SessionClient) -> Session:
    found = client.gateway.shared.sessions.find(session.id, client.gateway.principal)
    assert found is not None
    return found


async def accept_watch(_tenant: str, _uri: str, _begins: bool) -> None:
    return None


async def quiet(events: Events) -> None:
    """The stream is open, and says nothing of its own accord."""
    line = await events.response.content.readline()
    assert line == b": keep-alive\n"


async def test_a_session_is_served_by_both(nodes: Nodes) -> None:
    session = await nodes.a.session("2025-11-25")
    there = nodes.of_b(session)
    assert (await there.call("ping"))["result"] == {}
    listed = (await there.call("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in listed][:2] == ["createPet", "deletePet"]
    assert (await session.call("ping"))["result"] == {}


async def test_messages_of_one_node_reach_the_stream_at_another(nodes: Nodes) -> None:
    session = await nodes.a.session()
    there = nodes.of_b(session)
    async with listening(nodes.a, "/mcp", session.headers) as events:
        await quiet(events)
        await there.call("ping")
        await nodes.b.gateway.shared.streams.send(at(nodes.b, there), b'"from b"')
        assert (await events.event()).message == "from b"


async def test_a_call_at_one_node_is_taken_up_at_the_other(nodes: Nodes) -> None:
    session = await nodes.a.session("2025-11-25")
    there = nodes.of_b(session)
    call = say("1", "2", hold=True, more=["3", "4"])
    async with listening(nodes.b, "/mcp", there.headers, call) as events:
        seen = [await events.event() for _ in range(2)]
        assert (seen[0].data, seen[1].text) == ("", "1")  # "2" gets lost on the way
        async with asyncio.timeout(30):
            await nodes.at_b.holding.wait()
    async with listening(nodes.a, "/mcp", after(session, seen[1].id)) as events:
        assert (await events.event()).text == "2"
        nodes.at_b.release.set()
        sent = await events.rest()
    assert [one.text for one in sent[:-1]] == ["3", "4"]
    assert sent[-1].message == {"jsonrpc": "2.0", "id": 1, "result": {"said": True}}


async def test_a_stream_moved_to_another_node_continues(nodes: Nodes) -> None:
    session = await nodes.a.session("2025-11-25")
    there = nodes.of_b(session)
    streams, opened = nodes.a.gateway.shared.streams, at(nodes.a, session)
    async with listening(nodes.a, "/mcp", session.headers) as before:
        await before.event()
        await streams.send(opened, b'"1"')
        seen = await before.event()
        await streams.send(opened, b'"2"')
        async with listening(nodes.b, "/mcp", after(there, seen.id)) as events:
            assert (await events.event()).data == ""
            assert (await events.event()).message == "2"
            await streams.send(opened, b'"3"')
            assert (await events.event()).message == "3"
            rest = await before.rest()  # it ends: a message goes out on one stream only
            assert [one.message for one in rest] in (["2"], ["2", "3"])


async def test_a_resource_that_was_subscribed_to_at_one_node_is_told_of_by_the_other(
    nodes: Nodes,
) -> None:
    session = await nodes.a.session()
    there = nodes.of_b(session)
    await there.call("ping")
    for node in (nodes.a, nodes.b):  # what servers say is another test's; here the test says it
        node.gateway.shared.hub.watches._connect = accept_watch
    async with listening(nodes.a, "/mcp", session.headers) as events, asyncio.timeout(30):
        await quiet(events)
        await nodes.b.gateway.shared.hub.subscribe(at(nodes.b, there), URI)
        await until(lambda: at(nodes.a, session).watched == {URI})
        nodes.a.gateway.shared.hub.resource_updated(nodes.a.gateway.principal.tenant, None, URI)
        assert (await events.event()).data.encode() == update_notification(URI)


async def test_a_call_is_cancelled_from_another_node(nodes: Nodes) -> None:
    session = await nodes.a.session()
    call = asyncio.create_task(session.post(say(hold=True, id_="x")))
    async with asyncio.timeout(30):
        await nodes.at_a.holding.wait()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": "x"}}
        assert await nodes.of_b(session).post({"jsonrpc": "2.0", **cancelled}) == (202, None)
        await nodes.at_a.cancelled.wait()
        assert await call == (202, None)


async def test_a_client_answers_at_another_node(nodes: Nodes) -> None:
    session = await nodes.a.session()
    async with listening(nodes.a, "/mcp", session.headers, ask()) as events:
        asked = await events.message()
        assert await nodes.of_b(session).post(answer(asked, result=7)) == (202, None)
        assert (await events.message())["result"] == {"answer": 7}


async def test_a_session_that_is_deleted_at_one_node_is_unknown_to_the_other(
    nodes: Nodes,
) -> None:
    session = await nodes.a.session()
    there = nodes.of_b(session)
    await there.call("ping")
    async with listening(nodes.b, "/mcp", there.headers) as events:
        async with nodes.a.http.delete(nodes.a.url + "/mcp", headers=session.headers) as response:
            assert response.status == 204
        await events.rest()  # the stream ends
        status, error = await there.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert (status, error["error"]["code"]) == (404, -32001)


async def test_a_2024_11_05_client_posts_to_one_node_and_listens_at_the_other(
    nodes: Nodes,
) -> None:
    async with listening(nodes.a, "/mcp/sse") as events:
        _, endpoint = await events.next()
        assert (await nodes.b.post(endpoint, say("1", "2")))[0] == 202
        told = [await events.event() for _ in range(3)]
        assert [one.text for one in told[:2]] == ["1", "2"]
        assert told[2].message["result"] == {"said": True}
        assert (await nodes.b.post(endpoint, ask(2)))[0] == 202
        asked = await events.message()
        assert (await nodes.a.post(endpoint, answer(asked, result=1)))[0] == 202
        assert (await events.message())["result"] == {"answer": 1}
    async with asyncio.timeout(30):
        while (await nodes.b.post(endpoint, say()))[0] != 404:
            pass


async def test_ids_of_one_session_are_good_at_no_node_for_another(nodes: Nodes) -> None:
    session, other = await nodes.a.session(), await nodes.a.session()
    async with listening(nodes.a, "/mcp", session.headers, say("secret")) as events:
        seen = await events.event()
    assert (await refusal_of_stream(nodes.b, "/mcp", after(nodes.of_b(other), seen.id)))[0] == 400


@dataclass
class Behind:
    """An MCP server whose tool reports progress twice, and then takes its time."""

    holding: asyncio.Event
    release: asyncio.Event

    def server(self) -> Scripted:
        plays = {"tools/list": self._list, "tools/call": self._call}
        return Scripted(plays, revision="2025-06-18", capabilities={"tools": {}})

    async def _list(self, turn: Turn) -> None:
        tool = {"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}
        await turn.result(tools=[tool])

    async def _call(self, turn: Turn) -> None:
        await turn.begin()
        token = turn.params["_meta"]["progressToken"]
        for progress in (1, 2):
            params = {"progressToken": token, "progress": progress}
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await turn.event(note)
        self.holding.set()
        await self.release.wait()
        await turn.event(reply(turn.id, content=[]))
        await turn.end()


@pytest.fixture
def short_lived(shared_settings: Settings) -> Settings:
    """The same, where a gateway counts as dead soon after its last heartbeat."""
    return replace(shared_settings, state=replace(shared_settings.state, heartbeat_s=0.2))


@pytest.fixture
async def behind(anyio_backend: str) -> AsyncIterator[Behind]:
    behind = Behind(asyncio.Event(), asyncio.Event())
    yield behind
    behind.release.set()


def write_settings(settings: Settings, path: Path) -> Path:
    """A settings file for a gateway of its own process."""
    state = {
        "backend": settings.state.backend,
        "redis_url": settings.state.redis_url,
        "heartbeat_s": settings.state.heartbeat_s,
    }
    sources = {name: {"mcp": source.mcp} for name, source in settings.sources.items()}
    mcp = {"keep_alive_s": settings.mcp.keep_alive_s, "debounce_ms": settings.mcp.debounce_ms}
    database = {"url": settings.database.url}
    path.write_text(
        json.dumps({"database": database, "state": state, "mcp": mcp, "sources": sources})
    )
    return path


async def test_a_client_whose_gateway_is_killed_goes_on_at_the_other(
    short_lived: Settings, tmp_path: Path, serve: Serve, behind: Behind
) -> None:
    url = await serve(behind.server())
    settings = replace(short_lived, sources={"behind": SourceSettings(mcp=f"{url}/mcp")})
    config = write_settings(settings, tmp_path / "toolgate.yaml")
    async with (
        running(settings) as b,  # imports the tools, which the other one finds stored
        serving("--config", str(config)) as process,
    ):
        await process.ready()
        a = Client(b.gateway, process.url, b.http)
        session = await a.session("2025-11-25")
        there = SessionClient(b, session.id, session.revision, session.initialized)
        call = {
            "jsonrpc": "2.0",
            "id": "long",
            "method": "tools/call",
            "params": {"name": "work", "arguments": {}, "_meta": {"progressToken": "p"}},
        }
        async with (
            listening(a, "/mcp", session.headers) as standalone,
            listening(a, "/mcp", session.headers, call) as events,
        ):
            unasked = await standalone.event()
            assert (await events.event()).data == ""
            first = await events.event()
            second = await events.event()
            async with asyncio.timeout(20):
                await behind.holding.wait()
            process.process.send_signal(signal.SIGKILL)
            await process.process.wait()
        assert [_progress(one) for one in (first, second)] == [1, 2]

        listed = (await there.call("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["work"]
        for seen, missed in ((first, [2]), (second, [])):
            async with listening(b, "/mcp", after(there, seen.id)) as events:
                *progressed, last = await events.rest()
            assert [_progress(one) for one in progressed] == missed
            assert (last.message["id"], last.message["error"]["code"]) == ("long", -32603)
            assert "its outcome is unknown" in last.message["error"]["message"]
        async with listening(b, "/mcp", after(there, last.id)) as events:
            assert await events.rest() == []  # one answer
        async with listening(b, "/mcp", after(there, unasked.id)) as events:
            assert (await events.event()).data == ""
            await b.gateway.shared.streams.send(at(b, there), b'"still here"')
            assert (await events.event()).message == "still here"


async def test_a_stream_that_was_taken_up_ends_soon_after_the_node_that_runs_its_call_died(
    short_lived: Settings, tmp_path: Path, serve: Serve, behind: Behind
) -> None:
    """The heartbeat of nodes tells, long before anything has to be said to keep the stream."""
    url = await serve(behind.server())
    mcp = replace(short_lived.mcp, keep_alive_s=3000)
    sources = {"behind": SourceSettings(mcp=f"{url}/mcp")}
    settings = replace(short_lived, sources=sources, mcp=mcp)
    config = write_settings(settings, tmp_path / "toolgate.yaml")
    async with running(settings) as b, serving("--config", str(config)) as process:
        await process.ready()
        a = Client(b.gateway, process.url, b.http)
        session = await a.session("2025-11-25")
        there = SessionClient(b, session.id, session.revision, session.initialized)
        params = {"name": "work", "arguments": {}, "_meta": {"progressToken": "p"}}
        call = {"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": params}
        async with listening(a, "/mcp", session.headers, call) as events:
            await events.event()
            first = await events.event()
        async with listening(b, "/mcp", after(there, first.id)) as events:
            assert _progress(await events.event()) == 2
            process.process.send_signal(signal.SIGKILL)
            await process.process.wait()
            async with asyncio.timeout(60):
                (last,) = await events.rest()
    assert "its outcome is unknown" in last.message["error"]["message"]


def _progress(sent: Sent) -> Any:
    assert sent.message["params"]["progressToken"] == "p"
    return sent.message["params"]["progress"]

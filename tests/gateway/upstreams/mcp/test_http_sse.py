"""HTTP+SSE of 2024-11-05: one stream for all that the server says."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from msgspec import Raw

from gateway.context import Cancellation
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.duplex_link import DuplexLink
from gateway.upstreams.mcp.http_sse import open_http_sse
from gateway.upstreams.mcp.link_and_handlers import SessionLost, Timeout
from schemas.errors import RelayedFault
from tests.gateway.upstreams.mcp.conftest import HELLO, LIMIT_BYTES, PATIENT, Ears, mcp_source
from tests.servers.mcp_wire import Scripted, Turn, TwoEndpoints, failure, note, question, reply

pytestmark = pytest.mark.anyio


@pytest.fixture
async def open_link(connections, serve):
    links: list[DuplexLink] = []

    async def open_(server: Any, background: Ears | None = None, **source: Any) -> DuplexLink:
        pool = connections.of(mcp_source(await serve(server) + "/sse"))
        links.append(await open_http_sse(pool, HELLO, background or Ears(), PATIENT))
        return links[-1]

    yield open_
    for link in links:
        await link.close()


async def echo(server: TwoEndpoints, message: Any) -> None:
    if "id" in message and "method" in message:
        await server.tell(json.loads(reply(message["id"], echo=message["params"])))


async def test_a_session_begins_with_the_address_that_the_stream_names(open_link):
    server = TwoEndpoints(echo)
    link = await open_link(server)
    assert link.alive
    assert link.revision.name == "2024-11-05"
    assert link.facts.server_info == {"name": "old", "version": "1"}
    assert await link.request("x", {"a": 1}, None, PATIENT) == {"echo": Raw(b'{"a": 1}')}
    assert [message["method"] for message in server.heard] == [
        "initialize",
        "notifications/initialized",
        "x",
    ]


async def test_headers_of_a_request_reach_the_server(open_link):
    """Those of hooks, for example."""
    server = TwoEndpoints(echo)
    link = await open_link(server)
    await link.request("x", {}, None, PATIENT, headers={"Authorization": "Bearer of-a-hook"})
    await link.request("y", {}, None, PATIENT)
    sent = [dict(seen.headers).get("authorization") for seen in server.seen]
    assert sent == [None, None, "Bearer of-a-hook", None]


async def test_answers_find_their_requests_in_any_order(open_link):
    waiting: list[Any] = []

    async def backwards(server: TwoEndpoints, message: Any) -> None:
        if "id" in message:
            waiting.append(message)
        if len(waiting) == 3:
            for one in reversed(waiting):
                await echo(server, one)

    link = await open_link(TwoEndpoints(backwards))
    with anyio.fail_after(30):
        answers = await asyncio.gather(
            *(link.request("x", {"n": number}, None, PATIENT) for number in range(3))
        )
    assert answers == [{"echo": Raw(b'{"n": %d}' % number)} for number in range(3)]


async def test_progress_goes_to_its_request_and_the_rest_to_the_background(open_link):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if "id" in message:
            token = message["params"]["_meta"]["progressToken"]
            await server.tell(note("notifications/progress", progressToken=token, progress=1))
            await server.tell(note("notifications/progress", progressToken=99, progress=1))
            await server.tell(note("notifications/tools/list_changed"))
            await server.tell(json.loads(reply(message["id"])))

    background, ears = Ears(), Ears()
    link = await open_link(TwoEndpoints(play), background)
    with anyio.fail_after(30):
        await link.request("x", {"_meta": {"progressToken": "t"}}, ears, PATIENT)
        await background.until(1)
    assert ears.heard == [("notifications/progress", {"progressToken": "t", "progress": 1})]
    assert background.heard == [("notifications/tools/list_changed", {})]


async def test_questions_are_asked_in_the_background_while_no_call_is_given_up(open_link, clock):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if message.get("method") == "x":
            await server.tell(question("q", "roots/list"))
        elif message.get("id") == "q":
            await server.tell(json.loads(reply(2, got=message["result"])))

    async def answer(method: str, params: Any) -> Any:
        clock.advance(4)
        await asyncio.sleep(0.01)
        return {"roots": []}

    link = await open_link(TwoEndpoints(play), Ears(answer=answer))
    members = await link.request("x", {}, None, Timeout(3, 60))
    assert json.loads(bytes(members["got"])) == {"roots": []}


async def test_a_cancelled_request_is_cancelled_at_the_server(open_link):
    """A server is told the reason that the client gave (mending 22)."""
    told = asyncio.Event()

    async def play(server: TwoEndpoints, message: Any) -> None:
        if message.get("method") == "notifications/cancelled":
            told.set()
        began.set()

    began = asyncio.Event()
    server = TwoEndpoints(play)
    link = await open_link(server)
    began.clear()
    calling = asyncio.create_task(link.request("x", {}, None, PATIENT))
    with anyio.fail_after(30):
        await began.wait()
        calling.cancel(Cancellation("Found elsewhere"))
        with pytest.raises(asyncio.CancelledError):
            await calling
        await told.wait()
    cancelled = {"requestId": server.heard[-2]["id"], "reason": "Found elsewhere"}
    assert server.heard[-1]["params"] == cancelled


async def test_errors_of_the_server_are_forwarded_unchanged(open_link):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if "id" in message:
            await server.tell(json.loads(failure(message["id"], -5, "m", [1])))

    link = await open_link(TwoEndpoints(play))
    with pytest.raises(RelayedFault) as caught:
        await link.request("x", {}, None, PATIENT)
    assert (caught.value.code, caught.value.data) == (-5, [1])


async def test_the_end_of_the_stream_is_the_end_of_the_session(open_link):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if message.get("method") == "x":
            server.hang_up()

    link = await open_link(TwoEndpoints(play))
    with anyio.fail_after(30), pytest.raises(SessionLost) as caught:
        await link.request("x", {}, None, PATIENT)
    assert caught.value.sent
    assert not link.alive
    with pytest.raises(SessionLost) as caught:
        await link.request("x", {}, None, PATIENT)
    assert not caught.value.sent


async def test_a_slow_listener_holds_nobody_up(open_link):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if message.get("method") == "x":
            token = message["params"]["_meta"]["progressToken"]
            for _ in range(50):
                await server.tell(note("notifications/progress", progressToken=token, progress=1))
        else:
            await echo(server, message)

    class Slow(Ears):
        async def on_notification(self, method: str, params: dict[str, Any]) -> None:
            await super().on_notification(method, params)
            await asyncio.Event().wait()

    link = await open_link(TwoEndpoints(play))
    ears = Slow()
    slow = asyncio.create_task(link.request("x", {"_meta": {"progressToken": 1}}, ears, PATIENT))
    with anyio.fail_after(30):
        await ears.until(1)
        for _ in range(10):
            await link.request("y", {}, None, PATIENT)
    slow.cancel()


async def test_messages_per_request_are_limited(open_link):
    async def play(server: TwoEndpoints, message: Any) -> None:
        if message.get("method") == "x":
            token = message["params"]["_meta"]["progressToken"]
            told = note("notifications/progress", progressToken=token, message="x" * 1000)
            for _ in range(100):
                await server.tell(told)
        else:
            await echo(server, message)

    link = await open_link(TwoEndpoints(play))
    with pytest.raises(UpstreamFailed, match=f"answered more than {LIMIT_BYTES} bytes"):
        await link.request("x", {"_meta": {"progressToken": 1}}, Ears(), PATIENT)
    assert await link.request("y", {}, None, PATIENT) == {"echo": Raw(b"{}")}


@pytest.mark.parametrize(
    "names", ["http://elsewhere.example.com/messages", "//elsewhere.example.com/x", "https:///x"]
)
async def test_an_endpoint_at_another_server_is_refused(open_link, names):
    with pytest.raises(UpstreamFailed, match="named an endpoint"):
        await open_link(TwoEndpoints(echo, names))


async def test_an_endpoint_at_another_port_is_refused(open_link, serve):
    other = Scripted()
    with pytest.raises(UpstreamFailed, match="named an endpoint at another server"):
        await open_link(TwoEndpoints(echo, await serve(other) + "/messages"))
    assert other.turns == []


def stream(*pieces: bytes, kind: str = "text/event-stream") -> Scripted:
    async def play(turn: Turn) -> None:
        await turn.begin(kind)
        for piece in pieces:
            await turn.piece(piece)
        await turn.end()

    return Scripted({"GET": play})


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (stream(), "closed the stream before it named its endpoint"),
        (stream(b"data: x\n\n"), "closed the stream before it named its endpoint"),
        (stream(b"<html>", kind="text/html"), "answered GET with no stream of events"),
        (stream(b"x" * 50_000), "answered more than"),
        (Scripted(), "answered HTTP 405"),
    ],
)
async def test_other_servers_are_not_taken_for_http_sse(open_link, connections, server, text):
    with pytest.raises(UpstreamFailed, match=text):
        await open_link(server)


async def test_a_stream_that_names_nothing_is_given_up(connections, serve):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.wait_until_left()

    pool = connections.of(mcp_source(await serve(Scripted({"GET": play}))))
    with pytest.raises(UpstreamFailed, match="did not answer"):
        await open_http_sse(pool, HELLO, Ears(), Timeout(0.05, 5))
    assert pool.unheld.is_set()

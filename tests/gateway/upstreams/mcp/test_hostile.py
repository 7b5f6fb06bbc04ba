"""Servers that answer as they must not: each call ends, with a text that names no address."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from msgspec import Raw

from config.sources import SourceSettings
from gateway.upstreams.http.source_pools import SourcePools, UpstreamFailed
from gateway.upstreams.mcp.handshake import UNKNOWN
from gateway.upstreams.mcp.link_and_handlers import Link
from gateway.upstreams.mcp.streamable_http_links import HttpLink, StatelessLink
from schemas.source import McpOptions, Source
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.conftest import HELLO, LIMIT_BYTES, PATIENT, Ears, mcp_source
from tests.servers.mcp_wire import Scripted, Turn, event, note, question, reply
from tests.servers.raw import response, speaking

pytestmark = pytest.mark.anyio

SSE = "text/event-stream"
CALL: dict[str, Any] = {"name": "x", "arguments": {}}
Play = Callable[[Turn], Awaitable[None]]


@pytest.fixture(params=["handshake", "stateless"])
async def link(request, serve, session, stateless):
    """`await link(play)`: to a server that answers tools/call so."""

    async def open_link(play: Play) -> Link:
        url = await serve(Scripted({"tools/call": play}))
        return await session(url) if request.param == "handshake" else stateless(url)

    return open_link


async def why(link: Link, ears: Ears | None = None) -> str:
    with anyio.fail_after(30):
        with pytest.raises(UpstreamFailed) as caught:
            await link.request("tools/call", CALL, ears, PATIENT)
    text = str(caught.value)
    assert text.startswith("things ")
    assert "127.0.0.1" not in text
    assert link.alive
    return text.removeprefix("things ")


def says(body: bytes, kind: str = "application/json", status: int = 200) -> Play:
    async def play(turn: Turn) -> None:
        await turn.say(status, body.replace(b"$id", str(turn.id).encode()), kind)

    return play


NO_MESSAGE = "sent an answer that is no JSON-RPC message"
# Python 3.14 looks at the stack, into which all fits that the limit of bytes lets through.
NESTED = NO_MESSAGE if sys.version_info >= (3, 14) else "sent an answer that is nested too deeply"
NO_OBJECT = "answered with a result that is no object"
OTHER = "answered with the id of another request"
UNANSWERED = "closed the stream before it answered"
TOO_LARGE = f"answered more than {LIMIT_BYTES} bytes (upstream.response_limit_bytes)"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", NO_MESSAGE),
        (b"garbage", NO_MESSAGE),
        (b'{"jsonrpc":"2.0","id":$id,"result":', NO_MESSAGE),
        (b'{"jsonrpc":"2.0","id":$id,"result":{"a":"\xff"}}', NO_MESSAGE),
        (b'{"jsonrpc":"2.0","id":$id,"result":[]}', NO_OBJECT),
        (b'{"jsonrpc":"2.0","id":$id,"result":null}', NO_OBJECT),
        (b'{"jsonrpc":"2.0","id":$id}', "answered with neither a result nor an error"),
        (b'{"jsonrpc":"2.0","id":$id,"error":"no"}', NO_MESSAGE),
        (b'{"jsonrpc":"2.0","id":99,"result":{}}', OTHER),
        (b'{"jsonrpc":"2.0","id":"$id","result":{}}', OTHER),
        (b'{"jsonrpc":"2.0","result":{}}', OTHER),
        (b'{"id":$id,"result":' + b'{"a":' + b"[" * 19_000, NESTED),
    ],
)  # fmt: skip
async def test_json_that_is_no_answer(link, body, text):
    assert await why(await link(says(body))) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", UNANSWERED),
        (b"data: gar\ndata: bage\n\n", NO_MESSAGE),
        (b'data: {"jsonrpc":"2.0","id":$id,"result":{}}\n', UNANSWERED),  # half a frame
        (b'data: {"jsonrpc":"2.0","id":99,"result":{}}\n\n', UNANSWERED),
        (b'data: {"jsonrpc":"2.0","id":$id,"result":1}\n\n', NO_OBJECT),
        (b"<html></html>", UNANSWERED),
    ],
)
async def test_a_stream_without_an_answer(link, body, text):
    assert await why(await link(says(body, SSE))) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("text/html", "answered with text/html; expected application/json or text/event-stream"),
        ("application/octet-stream",
         "answered with application/octet-stream; expected application/json or text/event-stream"),
    ],
)  # fmt: skip
async def test_another_type_of_content(link, kind, text):
    assert await why(await link(says(reply(1), kind))) == text


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (202, "accepted the request without answering it"),
        (302, "answered HTTP 302: a redirect that leads to no HTTP address"),
        (401, "refused the gateway's credentials (HTTP 401)"),
        (403, "refused the gateway's credentials (HTTP 403)"),
        (410, "answered HTTP 410"),
        (500, "answered HTTP 500"),
    ],
)
async def test_a_status_that_says_no(link, status, text):
    assert await why(await link(says(b"http://127.0.0.1/secret", "text/plain", status))) == text


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_where_a_redirect_leads_nobody_goes(link, serve, status):
    async def play(turn: Turn) -> None:
        await turn.say(status, location=elsewhere)

    other = Scripted()
    elsewhere = await serve(other)
    assert await why(await link(play)) == (
        f"answered HTTP {status}: redirects to elsewhere are not followed"
    )
    assert other.turns == []


@pytest.mark.parametrize("kind", [SSE, "application/json"])
async def test_an_endless_answer_is_cut_while_read(link, kind):
    async def play(turn: Turn) -> None:
        await turn.begin(kind)
        for _ in range(10_000):  # 100 MB
            await turn.piece(b"x" * 10_000)

    assert await why(await link(play)) == TOO_LARGE


async def test_an_answer_that_announces_its_size_is_not_read_at_all(link):
    assert await why(await link(says(b"x" * 50_000))) == TOO_LARGE


async def test_a_million_notifications_end_with_the_limit_of_the_answer(link):
    async def play(turn: Turn) -> None:
        await turn.begin()
        told = event(note("notifications/message", level="info", data="x")) * 100
        for _ in range(10_000):
            await turn.piece(told)

    ears = Ears()
    assert await why(await link(play), ears) == TOO_LARGE
    assert len(ears.heard) <= LIMIT_BYTES / 100 + 100


async def test_a_flood_of_questions_is_bounded(link):
    async def play(turn: Turn) -> None:
        await turn.begin()
        for number in range(150):
            await turn.event(question(number, "sampling/createMessage"))
        await turn.end()

    ears = Ears()
    assert await why(await link(play), ears) == UNANSWERED
    assert len(ears.asked_for) <= 3


async def test_an_answer_that_breaks_off(link):
    async def play(turn: Turn) -> None:
        await turn.begin("application/json")
        await turn.piece(b'{"jsonrpc":"2.0"')
        raise ConnectionResetError

    text = await why(await link(play))
    assert text == "closed the connection before its answer was complete"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\x01\x02",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata",
        response(b"{}", headers=b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n"),
    ],
)
async def test_bytes_that_are_no_http(stateless, answer):
    async with speaking(answer) as (url, _):
        await why(stateless(url))


async def test_a_silent_call_does_not_delay_other_calls(link):
    """The others keep working while one is silent."""

    async def play(turn: Turn) -> None:
        if turn.params["name"] == "x":
            await turn.wait_until_left()
        else:
            await turn.result()

    opened = await link(play)
    silent = asyncio.create_task(opened.request("tools/call", CALL, None, PATIENT))
    with anyio.fail_after(30):
        for _ in range(20):
            await opened.request("tools/call", {"name": "y"}, None, PATIENT)
    silent.cancel()


async def test_an_address_that_only_a_description_names_leads_to_no_private_network(serve):
    server = Scripted()
    url = await serve(server)
    source = Source("id", "things", "mcp", url, url, False, options=McpOptions())
    connections = SourcePools(limits(), {})
    expected = "lies in a private network"
    with pytest.raises(UpstreamFailed, match=expected):
        StatelessLink(connections.of(source), HELLO, UNKNOWN)
    with pytest.raises(UpstreamFailed, match=expected):
        await HttpLink.open(connections.of(source), HELLO, Ears(), PATIENT)
    assert server.turns == []
    assert connections.of(source).unheld.is_set()
    await connections.close()


async def test_configured_headers_go_to_trusted_addresses_only(serve):
    server = Scripted({"tools/call": lambda turn: turn.result()})
    url = await serve(server)
    sources = {"things": SourceSettings(headers={"Authorization": "Bearer s"})}
    connections = SourcePools(limits(), sources)
    pool = connections.of(mcp_source(url))
    link = await HttpLink.open(pool, HELLO, Ears(), PATIENT, listen=True)
    await link.request(
        "tools/call", CALL, None, PATIENT, headers={"authorization": "Bearer caller"}
    )
    await server.wait_for_request("GET")
    await link.close()
    assert [turn.seen.all("authorization") for turn in server.turns] == [["Bearer s"]] * 5
    foreign = Source("id", "things", "mcp", "http://example.com", None, False, options=McpOptions())
    untrusted = StatelessLink(connections.of(foreign), HELLO, UNKNOWN)
    with pytest.raises(UpstreamFailed, match=r"set sources\.things\.base_url"):
        await untrusted.request("tools/call", CALL, None, PATIENT)
    await untrusted.close()
    await connections.close()


async def test_a_connection_is_used_again_after_a_stream_that_was_read(serve, stateless):
    async def play(turn: Turn) -> None:
        await turn.begin()
        await turn.piece(event(json.loads(reply(turn.id, a=1))))
        await turn.end()

    peers = set()

    async def watch_peers(scope: Any, receive: Any, send: Any) -> None:
        peers.add(scope["client"])
        await server(scope, receive, send)

    server = Scripted({"tools/call": play})
    link = stateless(await serve(watch_peers))
    for _ in range(5):
        assert await link.request("tools/call", CALL, None, PATIENT) == {"a": Raw(b"1")}
        await asyncio.gather(*link._endpoint.tasks._tasks)
    assert len(peers) == 1

"""Servers behind load balancers, which recognise a session by a cookie, and servers that moved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec import Raw
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from config.sources import SourceSettings
from gateway.upstreams.http.source_pools import SourcePools, UpstreamFailed
from gateway.upstreams.mcp.cookies import SessionCookies
from gateway.upstreams.mcp.http_sse import open_http_sse
from gateway.upstreams.mcp.list_reader import Lister
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.streamable_http_links import HttpLink
from gateway.upstreams.mcp.transport_choice import Transports
from registry.sources.import_specs import ImportSpec
from schemas.errors import ImportRejected
from schemas.mcp.snapshot import decode_snapshot
from schemas.source import McpOptions
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.audience import Audience
from tests.gateway.upstreams.mcp.conftest import HELLO, PATIENT, Ears, mcp_source
from tests.servers.mcp_wire import Scripted, Turn, TwoEndpoints, note, reply
from tests.servers.rest import read_seen, respond

pytestmark = pytest.mark.anyio

DONE = {"content": Raw(b"[]")}
CALL: dict[str, Any] = {"name": "x", "arguments": {}}


@dataclass
class Balancer:
    """Sends on what has the cookie `node=a`, and whatever begins a session; answers the rest with
    404, as a node that does not know the session."""

    inner: ASGIApp
    sets: tuple[str, ...] = ("node=a; Path=/; HttpOnly",)
    cookies: list[str] = field(default_factory=list)  # as they came

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        self.cookies.append(headers.get(b"cookie", b"").decode())
        begins = b"mcp-session-id" not in headers and b"session_id" not in scope["query_string"]
        if not begins and "node=a" not in self.cookies[-1].split("; "):
            await read_seen(scope, receive)
            await respond(send, 404, b"Session not found")
            return

        async def with_cookies(message: Any) -> None:
            if message["type"] == "http.response.start" and begins:
                set_ = [(b"set-cookie", one.encode()) for one in self.sets]
                message = {**message, "headers": [*message.get("headers", ()), *set_]}
            await send(message)

        await self.inner(scope, receive, with_cookies)


@dataclass
class Moved:
    """Answers some paths with a redirect: a status, and where it leads."""

    inner: ASGIApp
    moves: Mapping[str, tuple[int, str]]
    asked: list[tuple[str, str]] = field(default_factory=list)  # methods of HTTP and paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append((scope["method"], scope["path"]))
        if scope["path"] not in self.moves:
            await self.inner(scope, receive, send)
            return
        await read_seen(scope, receive)
        status, target = self.moves[scope["path"]]
        await respond(send, status, b"", [("location", target)])


async def answer_empty(turn: Turn) -> None:
    await turn.result(content=[])


async def tools(turn: Turn) -> None:
    await turn.result(tools=[{"name": "x", "inputSchema": {"type": "object"}}])


def listing() -> Scripted:
    return Scripted({"tools/call": answer_empty, "tools/list": tools}, capabilities={"tools": {}})


async def test_a_session_keeps_the_cookies_of_its_balancer(serve, session):
    """Each request of a session has the cookies that its server has set (mending 15)."""
    balancer = Balancer(Scripted({"tools/call": answer_empty}))
    url = await serve(balancer)
    link = await session(url, listen=True)
    assert await link.request("tools/call", CALL, None, PATIENT) == DONE
    await link.close()
    assert balancer.cookies[0] == ""
    assert set(balancer.cookies[1:]) == {"node=a"}
    await session(url)
    assert balancer.cookies.count("") == 2  # another session begins without


async def test_cookies_are_kept_by_their_attributes(serve, session):
    sets = (
        "node=a; Path=/",
        "elsewhere=1; Path=/other",
        "foreign=1; Domain=example.com",
        "tls=1; Secure",
        "gone=1; Max-Age=0",
        'odd="a b"',
        "bytes=ab/+c==; Path=/mcp",
    )
    balancer = Balancer(Scripted({"tools/call": answer_empty}), sets)
    link = await session(await serve(balancer))
    await link.request("tools/call", CALL, None, PATIENT)
    sent = sorted(balancer.cookies[-1].split("; "))
    assert sent == ["bytes=ab/+c==", "node=a", 'odd="a b"']


async def test_configured_cookies_are_sent_besides(serve):
    balancer = Balancer(Scripted({"tools/call": answer_empty}))
    url = await serve(balancer)
    configured = {"things": SourceSettings(headers={"cookie": "key=k"})}
    connections = SourcePools(limits(), configured)
    link = await HttpLink.open(connections.of(mcp_source(f"{url}/mcp")), HELLO, Ears(), PATIENT)
    assert balancer.cookies == ["key=k", "key=k; node=a"]
    await link.close()
    await connections.close()


async def test_only_so_many_bytes_of_cookies_are_kept(serve, session, caplog):
    balancer = Balancer(Scripted(), ("node=a", f"much={'x' * 300}"))
    with pytest.raises(UpstreamFailed):
        await session(await serve(balancer))
    assert balancer.cookies[1] == ""
    assert any(one.message == "mcp_cookies_dropped" for one in caplog.records)


async def test_requests_without_sessions_keep_no_cookies(serve, stateless):
    balancer = Balancer(Scripted({"tools/call": answer_empty}))
    link = stateless(await serve(balancer))
    for _ in range(2):
        await link.request("tools/call", CALL, None, PATIENT)
    assert balancer.cookies == ["", ""]


async def test_both_ways_of_http_sse_have_the_cookies(serve, connections):
    async def echo(server: TwoEndpoints, message: Any) -> None:
        if "id" in message:
            await server.tell(note("notifications/one"))
            await server._stream.piece(b"data: " + reply(message["id"]) + b"\n\n")

    balancer = Balancer(TwoEndpoints(echo))
    pool = connections.of(mcp_source(f"{await serve(balancer)}/sse"))
    with anyio.fail_after(30):
        link = await open_http_sse(pool, HELLO, Ears(), PATIENT)
        assert await link.request("ping", {}, None, PATIENT) == {}
    await link.close()
    assert set(balancer.cookies[1:]) == {"node=a"}


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("target", ["/mcp/", "mcp/", "/v2/mcp?x=1"])
async def test_redirects_inside_the_origin_are_followed_with_method_and_body(
    serve, session, status, target
):
    """A server that redirects POST, GET and DELETE is used as if it did not (mending 15)."""
    moved = Moved(server := listing(), {"/mcp": (status, target)})
    link = await session(await serve(moved), listen=True)
    assert await link.request("tools/call", CALL, None, PATIENT) == DONE
    await link.close()
    assert [turn.seen.method for turn in server.turns] == ["POST", "POST", "GET", "POST", "DELETE"]
    assert server.turns[3].params == CALL
    assert server.turns[3].header("mcp-session-id") == "s-1"
    spared = status == 308  # a permanent one is not asked for again
    assert len(moved.asked) == len(server.turns) + (1 if spared else len(server.turns))


@pytest.mark.parametrize("status", [307, 308])
async def test_stateless_servers_may_redirect_too(serve, stateless, status):
    moved = Moved(listing(), {"/mcp": (status, "/new")})
    link = stateless(await serve(moved))
    assert await link.request("tools/call", CALL, None, PATIENT) == DONE


@pytest.mark.parametrize(
    ("status", "target", "where"),
    [
        (307, "http://other.example/mcp?key=k", "http://other.example/mcp"),
        (308, "http://me:secret@other.example/", "http://other.example/"),
        (307, "https://{host}/mcp", "https://{host}/mcp"),
        (301, "/mcp/", "http://{host}/mcp/"),
        (302, "/login?to=/mcp", "http://{host}/login"),
    ],
)
async def test_other_redirects_are_named_with_their_target(serve, status, target, where):
    """An import names the target of a redirect that is not followed (mending 15)."""
    moved = Moved(listing(), {})
    url = await serve(moved)
    host = url.removeprefix("http://")
    moved.moves = {"/mcp": (status, target.format(host=host))}
    async with Listing() as read:
        with pytest.raises(ImportRejected) as caught:
            await read(spec(f"{url}/mcp"))
    assert f"answered HTTP {status}: redirects to elsewhere are not followed" in str(caught.value)
    assert f"this one leads to {where.format(host=host)}:" in str(caught.value)
    assert "k" not in str(caught.value).partition("example")[2].partition(":")[0]
    assert {path for _, path in moved.asked} == {"/mcp"}


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("/mcp", "answered HTTP 307: more than 5 redirects"),
        ("mailto:me@example.com", "answered HTTP 307: a redirect that leads to no HTTP address"),
        ("http://[", "answered HTTP 307: a redirect that leads to no HTTP address"),
        ("//[a]@", "answered HTTP 307: a redirect that leads to no HTTP address"),
    ],
)
async def test_redirects_that_lead_nowhere_end(serve, session, target, text):
    moved = Moved(listing(), {"/mcp": (307, target)})
    with pytest.raises(UpstreamFailed, match=text):
        await session(await serve(moved))
    assert len(moved.asked) <= 6


async def test_an_import_notes_a_followed_redirect(serve):
    moved = Moved(listing(), {"/mcp": (307, "/mcp/?key=k")})
    url = await serve(moved)
    async with Listing() as read:
        snapshot = decode_snapshot(await read(spec(f"{url}/mcp")))
        moved.moves = {}
        again = decode_snapshot(await read(spec(f"{url}/mcp/")))
    [problem] = snapshot.problems
    assert problem.startswith(f"its URL redirects to {url}/mcp/: name that one instead")
    assert again.problems == ()


class Listing:
    """`async with Listing() as read`: `await read(spec)` is a snapshot."""

    async def __aenter__(self) -> Lister:
        settings = limits(response_limit_bytes=2**22)
        self._connections = SourcePools(settings, {})
        transports = Transports(self._connections, settings, {}, {"name": "t"})
        self._servers = Servers(transports, Audience(), settings)
        return Lister(self._servers, settings)

    async def __aexit__(self, *_: object) -> None:
        await self._servers.close()
        await self._connections.close()


def spec(url: str) -> ImportSpec:
    return ImportSpec("things", url, kind="mcp", options=McpOptions(era="handshake"))


async def test_paths_of_cookies_count() -> None:
    """Cookies of one name differ by their paths, of which a server has any number."""
    url, cookies = URL("http://127.0.0.1:9/mcp"), SessionCookies("balanced", 4096)
    for number in range(100):
        cookies.receive([f"a=b; Path=/mcp/{number:03d}{'x' * 900}"], url)
    assert len(cookies._jar) < 5

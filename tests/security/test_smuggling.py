"""Requests of which two readers could make different ones, on real sockets: the server behind a
proxy must not find a second request where the proxy saw a body. Each is refused whole, and the
connection with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from config.load import load
from gateway.guards.connection_limits import bounded_protocol
from tests.fixtures_servers import serving
from tests.servers.rest import respond

pytestmark = pytest.mark.anyio

START = b"POST / HTTP/1.1\r\nHost: x\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(HIDDEN)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"

HEADERS = {  # RFC 9112, sections 2.2, 5, 6.1 to 6.3
    "length then chunked": b"Content-Length: 4\r\n" + CHUNKED,
    "chunked then length": CHUNKED + b"Content-Length: 4\r\n",
    "two lengths": b"Content-Length: 0\r\n" + LENGTH,
    "a length twice": LENGTH * 2,
    "a list of lengths": b"Content-Length: 0, 5\r\n",
    "a length with a sign": b"Content-Length: +5\r\n",
    "a negative length": b"Content-Length: -1\r\n",
    "a length in hexadecimal": b"Content-Length: 0x5\r\n",
    "a length with a space": b"Content-Length: 1 0\r\n",
    "a huge length": b"Content-Length: 99999999999999999999999\r\n",
    "a space before the colon": b"Content-Length : 5\r\n",
    "a line that is folded": b"X-A: a\r\n Content-Length: 5\r\n",
    "an encoding that is folded": b"Transfer-Encoding:\r\n chunked\r\n",
    "a bare line feed": b"X-A: a\nContent-Length: 5\r\n",
    "a bare carriage return": b"X-A: a\rContent-Length: 5\r\n",
    "a zero byte": b"X-A: a\0b\r\n",
    "an encoding like chunked": b"Transfer-Encoding: xchunked\r\n",
    "an encoding after chunked": b"Transfer-Encoding: chunked, identity\r\n",
    "two encodings": CHUNKED + b"Transfer-Encoding: identity\r\n",
    "identity": b"Transfer-Encoding: identity\r\n",
    "a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
    "a length of nothing": b"Content-Length: \r\n",
    "a zero byte in a name": b"X-\0A: a\r\n",
    "a header without a name": b": a\r\n",
    "a header without a colon": b"X-A\r\n",
}
CHUNKS = {
    "a size with a prefix": b"0x3\r\nabc\r\n",
    "a size with a sign": b"+3\r\nabc\r\n",
    "a size beyond any number": b"FFFFFFFFFFFFFFFFF\r\nabc\r\n",
    "lines that end in line feeds": b"3\nabc\n",
    "an extension that ends in a line feed": b"3;a\nabc\r\n",
    "a chunk longer than its size": b"3\r\nabcd\r\n",
    "a chunk without an end": b"3\r\nabcX",
    "a negative size": b"-3\r\nabc\r\n",
    "a length among the trailers": b"3\r\nabc\r\n0\r\nContent-Length: 50\r\n\r\n",
}
OTHERS = {
    "line feeds alone": b"POST / HTTP/1.1\nHost: x\n" + LENGTH.replace(b"\r", b"") + b"\n" + HIDDEN,
    "a space before the first header": b"POST / HTTP/1.1\r\n Host: x\r\n\r\n" + HIDDEN,
    "a zero byte in the target": b"GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "tabs in the request line": b"GET\t/\tHTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a method in lower case": b"get / HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "another version": b"POST / HTTP/1.9\r\nHost: x\r\n\r\n" + HIDDEN,
    "a tunnel": b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a tunnel with a path": b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a tunnel that offers an upgrade": b"CONNECT /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
    b"Upgrade: h2c\r\n" + LENGTH + b"\r\n" + HIDDEN,
    "http/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
}
REFUSED = {
    **{name: START + headers + b"\r\n" + END + HIDDEN for name, headers in HEADERS.items()},
    **{name: START + CHUNKED + b"\r\n" + one + END + HIDDEN for name, one in CHUNKS.items()},
    **OTHERS,
}
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
SERVED = {  # the requests that both servers find
    "chunk extensions": (START + CHUNKED + b'\r\n3;a=b;c="d"\r\nabc\r\n' + END, ("/", b"abc")),
    "capitals": (START + CHUNKED.upper() + b"\r\n3\r\nabc\r\n" + END, ("/", b"abc")),
    "a length with zeros": (START + b"Content-Length: 0003\r\n\r\nabc", ("/", b"abc")),
    "a body of GET": (b"GET / HTTP/1.1\r\nHost: x\r\n" + LENGTH + b"\r\n" + HIDDEN, ("/", HIDDEN)),
    "an absolute target": (b"GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n", ("/a", b"")),
    "two slashes": (b"GET //y/a HTTP/1.1\r\nHost: x\r\n\r\n", ("//y/a", b"")),
    "a fragment": (b"GET /a#/b HTTP/1.1\r\nHost: x\r\n\r\n", ("/a", b"")),
    "the server itself": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ("*", b"")),
    "an early answer": (
        b"POST /early HTTP/1.1\r\nHost: x\r\n" + LENGTH + b"\r\n" + HIDDEN,
        ("/early", b""),
    ),
}


class Server:
    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.url = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", scope["path"] != "/early"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # half a body is none
            body += message["body"]
            more = message["more_body"]
        self.seen.append((scope["path"], body))
        await respond(send, 200, b"")

    async def status_lines(self, *pieces: bytes, end: bool = False) -> list[bytes]:
        """The status lines of all that is answered until the server hangs up. `end`: the client
        sends no more."""
        answer = await self.answer(*pieces, end=end)
        return [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]

    async def answer(self, *pieces: bytes, end: bool = False) -> bytes:
        """All bytes until the server hangs up; none of a connection that it resets."""
        address = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            if end:
                writer.write_eof()
            with anyio.fail_after(60):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serve(bounded_protocol(load(None, {}).limits, lambda _limit: None)) as server:
        yield server


@asynccontextmanager
async def serve(protocol: type[HttpToolsProtocol]) -> AsyncIterator[Server]:
    server = Server()
    async with serving(server, protocol) as server.url:
        yield server


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
async def test_ambiguous_requests_are_refused(server: Server, sent: bytes) -> None:
    assert await server.status_lines(sent) == [b"HTTP/1.1 400 Bad Request"]
    middle = len(sent) // 2
    assert len(await server.status_lines(sent[:middle], sent[middle:])) == 1
    assert server.seen == []


async def test_a_tunnel_is_refused_with_its_reason() -> None:
    exceeded: list[str] = []
    async with serve(bounded_protocol(load(None, {}).limits, exceeded.append)) as server:
        answer = await server.answer(b"CONNECT / HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN)
    assert b"CONNECT" in answer.partition(b"\r\n\r\n")[2]
    assert not exceeded


async def test_a_request_in_a_body_is_a_body(server: Server) -> None:
    plain = START + LENGTH + b"\r\n" + HIDDEN
    chunked = START + CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(HIDDEN), HIDDEN) + END
    assert len(await server.status_lines(plain + chunked + LAST)) == 3
    assert server.seen == [("/", HIDDEN), ("/", HIDDEN), ("/last", b"")]


@pytest.mark.parametrize(("sent", "request_"), SERVED.values(), ids=SERVED)
async def test_unusual_requests_are_read_as_by_uvicorn(
    server: Server, sent: bytes, request_: tuple[str, bytes]
) -> None:
    async with serve(HttpToolsProtocol) as reference:
        for target in (server, reference):
            assert len(await target.status_lines(sent + LAST)) == 2
            assert target.seen == [request_, ("/last", b"")]


@pytest.mark.parametrize("sent", [b"GARBAGE\r\n\r\n", b"\0", START + b"X\r\n\r\n"])
async def test_no_request_gets_the_refusal_of_the_next(server: Server, sent: bytes) -> None:
    request = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n"
    assert await server.status_lines(request + sent) == []


async def test_half_a_request_before_the_end_is_none(server: Server) -> None:
    for half in (START[:-1], START + LENGTH + b"\r\n" + HIDDEN[:-1]):
        assert await server.status_lines(half, end=True) == []
    assert server.seen == []


UPGRADES = (b"h2c", b"websocket", b"h2c, foo/2")


@pytest.mark.parametrize("protocol", UPGRADES)
async def test_a_body_of_a_request_that_offers_an_upgrade_is_its_body(
    server: Server, protocol: bytes
) -> None:
    """Clients of HTTP/2 offer it with any first request, as those of Java and `curl --http2`."""
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: A\r\n" % protocol
    )
    plain = START + offer + LENGTH + b"\r\n"
    chunked = START + offer + CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(HIDDEN), HIDDEN) + END
    none = START + offer + b"\r\n"
    expected = [("/", HIDDEN), ("/", b""), ("/", HIDDEN), ("/last", b"")]
    assert len(await server.status_lines(plain + HIDDEN + none + chunked + LAST)) == 4
    assert server.seen == expected
    assert len(await server.status_lines(plain, HIDDEN + none, chunked + LAST)) == 4
    assert server.seen == expected * 2


async def test_many_offers_of_an_upgrade_in_one_packet_are_limited(server: Server) -> None:
    offer = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n"
    assert len(await server.status_lines(offer * 5000)) <= 1
    assert len(server.seen) <= 1


@pytest.mark.parametrize("sent", [HEADERS["length then chunked"], HEADERS["two lengths"]])
async def test_ambiguous_offers_of_an_upgrade_are_refused(server: Server, sent: bytes) -> None:
    offer = START + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + sent + b"\r\n" + END + HIDDEN
    assert await server.status_lines(offer) == [b"HTTP/1.1 400 Bad Request"]
    assert server.seen == []


async def test_a_name_that_only_looks_like_a_length_is_none(server: Server) -> None:
    looks = START + b"Content_Length: 5\r\nContent-Length: 0\r\n\r\n"
    assert len(await server.status_lines(looks + LAST)) == 2
    assert server.seen == [("/", b""), ("/last", b"")]

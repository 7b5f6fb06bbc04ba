"""The HTTP/1.1 client: what it sends, what it accepts, and which connections it uses again."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.responses import Response
from yarl import URL

from gateway.http_client.http1 import (
    BUFFER_BYTES,
    HEAD_BYTES,
    HEADERS,
    Http1Request,
    MalformedRequest,
    MalformedResponse,
    Site,
    Stream,
)
from gateway.http_client.pool import Pool
from tests.properties import examples
from tests.servers.exact import Peer, talking

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
ANSWER = OK + b"Content-Length: 2\r\n\r\nok"
packed = partial(gzip.compress, mtime=0)
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
SITE = Site(URL("http://pets.example/v1"))


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


@asynccontextmanager
async def pool(limit: int = 10, **options: float) -> AsyncIterator[Pool]:
    """A pool that has no connection in use when it is left."""
    opened = Pool(True, None, limit=limit, connect_timeout_s=5, **options)
    try:
        with anyio.fail_after(20):
            yield opened
            assert opened.in_use == 0
    finally:
        await opened.close()
        assert opened.open == 0


async def ask(opened: Pool, url: str, method: str = "GET", **options) -> tuple[int, bytes]:
    """Status and body of one request."""
    response = await opened.request(Site(URL(url)), method, "/x", {}, **options)
    try:
        return response.status, await response.read()
    finally:
        response.close()


def sends(*data: bytes, close: bool = True):
    """Answers each request of a connection with `data`, then ends or waits for the client to."""

    async def talk(peer: Peer) -> None:
        while True:
            await peer.head()
            for piece in data:
                await peer.send(piece)
            if close:
                return

    return talk


# -- responses that are none --


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        OK + b"Content-Length: 2, 2\r\n\r\nok",
        OK + b"Content-Length: +2\r\n\r\nok",
        OK + b"Content-Length: -2\r\n\r\nok",
        OK + b"Content-Length: 0x2\r\n\r\nok",
        OK + b"Content-Length: 99999999999999999999\r\n\r\nok",
        OK + b"Content-Length:\r\n\r\nok",
        OK + b"Content-Length:\r\n 2\r\n\r\nok",
        OK + b"Content-Length : 2\r\n\r\nok",
        OK + b"Transfer-Encoding: gzip\r\n\r\nok",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK
        + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: \x0bchunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\nok",
        OK + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        OK + b" X: a\r\nContent-Length: 2\r\n\r\nok",
        OK + b"X: a\nContent-Length: 2\r\n\r\nok",
        OK + b"X: a\rY: b\r\nContent-Length: 2\r\n\r\nok",
        OK + b"X: a\0b\r\nContent-Length: 2\r\n\r\nok",
        OK + b"X\0: a\r\nContent-Length: 2\r\n\r\nok",
        OK + b"X\r\nContent-Length: 2\r\n\r\nok",
        OK + b": a\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/3.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"ICY 200 OK\r\n\r\nok",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nok",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + ANSWER,
        CHUNKED + b"2\nok\r\n0\r\n\r\n",
        CHUNKED + b"0x2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"-2\r\nok\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
        CHUNKED + b"ffffffffffffffffff\r\nok\r\n0\r\n\r\n",
        OK + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\nok",
    ],
)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytes"])
async def test_a_response_that_violates_http_is_refused(answer: bytes, split: bool) -> None:
    pieces = [answer[at : at + 1] for at in range(len(answer))] if split else [answer]
    async with talking(sends(*pieces)) as server, pool() as opened:
        with pytest.raises(MalformedResponse):
            await ask(opened, server.url)
        await server.all_left()
    assert server.connections == 1  # and was not asked again


async def endless(peer: Peer, beginning: bytes, again: bytes) -> None:
    await peer.head()
    await peer.send(beginning)
    while True:
        await peer.send(again)


@pytest.mark.parametrize(
    ("beginning", "again"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 100),
        (b"", b"\r\n" * 100),
        (b"HTTP/1.1 200 ", b"O" * 1000),
        (OK, b"X: y\r\n"),
        (OK, b"X: y\r\n" * 10_000),
        (OK + b"X: ", b"y" * 1000),
        (OK, b"y" * 1000),
        (CHUNKED + b"5;", b"x" * 1000),
        (CHUNKED, b"0" * 1000),
        (CHUNKED, b"1;" + b"x" * 2000 + b"\r\ny\r\n"),
        (CHUNKED + b"2\r\nok\r\n0\r\n", b"X: y\r\n"),
        (CHUNKED + b"2\r\nok\r\n0\r\nX: ", b"y" * 1000),
    ],
)
async def test_framing_without_end_is_given_up(beginning: bytes, again: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await endless(peer, beginning, again)

    async with talking(talk) as server, pool() as opened:
        with pytest.raises(MalformedResponse):
            await ask(opened, server.url)
        await server.all_left()


@pytest.mark.parametrize(
    ("head", "good"),
    [
        (b"X: y\r\n" * (HEADERS - 1), True),
        (b"X: y\r\n" * HEADERS, False),
        (b"X: " + b"y" * (HEAD_BYTES - 100) + b"\r\n", True),
        (b"X: " + b"y" * HEAD_BYTES + b"\r\n", False),
        (b"X: y\r\n" * 10_000, False),
    ],
)
async def test_a_head_has_a_longest_length_and_a_number_of_headers(head: bytes, good: bool) -> None:
    answer = OK + head + b"Content-Length: 2\r\n\r\nok"
    async with talking(sends(answer)) as server, pool() as opened:
        if good:
            assert await ask(opened, server.url) == (200, b"ok")
        else:
            with pytest.raises(MalformedResponse):
                await ask(opened, server.url)


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nok",
        CHUNKED + b"5\r\nok",
        CHUNKED + b"2\r\nok\r\n",
        CHUNKED + b"2\r\nok\r\n0\r\n",
        OK + b"Content-Encoding: gzip\r\n\r\n" + packed(b"ok" * 100)[:-4],
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok",
        OK + b"Content-Encoding: deflate\r\nContent-Length: 2\r\n\r\n\x00\x00",
        OK + b"Content-Encoding: gzip\r\n\r\n" + packed(b"ok") + b"more",
    ],
)
async def test_a_body_that_breaks_off_is_no_body(answer: bytes) -> None:
    async with talking(sends(answer)) as server, pool() as opened:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(opened, server.url)


@pytest.mark.parametrize("answer", [b"", b"HT", OK, b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_connection_that_ends_before_the_head_does(answer: bytes) -> None:
    async with talking(sends(answer)) as server, pool() as opened:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(opened, server.url, repeatable=True)
    assert server.connections == 1  # a new connection is none that was closed for being idle


# -- responses that are --


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ANSWER, (200, b"ok")),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
        (OK + b"Content-Length: 2 \t\r\n\r\nok", (200, b"ok")),
        (b"HTTP/1.0 200 OK\r\n\r\nto the end", (200, b"to the end")),
        (OK + b"\r\nto the end", (200, b"to the end")),
        (OK + b"\r\n", (200, b"")),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n", (200, b"ok")),
        (CHUNKED + b"2  \r\nok\r\n0\r\n\r\n", (200, b"ok")),  # padded by old servers
        (CHUNKED + b"1;a=b\r\no\r\n1;c\r\nk\r\n0\r\nX: trailer\r\n\r\n", (200, b"ok")),
        (CHUNKED + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n", (200, b"x" * 30_000)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER, (200, b"ok")),
        (b"HTTP/1.1 103 Early\r\nContent-Length: 7\r\n\r\n" * 2 + ANSWER, (200, b"ok")),
        (b"HTTP/1.1 204 None\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello", (204, b"")),
        (b"HTTP/1.1 304 None\r\nContent-Length: 5\r\n\r\n", (304, b"")),
        (b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok", (999, b"ok")),
        (OK + b"Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
        (OK + b"Content-Encoding: gzip\r\n\r\n" + packed(b"a") * 2, (200, b"aa")),
        (OK + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(b"a", wbits=-15), (200, b"a")),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n", (200, b"")),
        (OK + b"Content-Encoding: strange\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    ],
)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "bytes"])
async def test_a_response_is_read(answer: bytes, expected: tuple[int, bytes], split: bool) -> None:
    pieces = [answer[at : at + 1] for at in range(len(answer))] if split else [answer]
    pieces = pieces if len(pieces) < 1000 else [answer[:5], answer[5:]]
    async with talking(sends(*pieces)) as server, pool() as opened:
        assert await ask(opened, server.url) == expected


@pytest.mark.parametrize("coding", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
async def test_the_response_to_head_has_no_body(coding: bytes) -> None:
    async with talking(sends(OK + coding + b"\r\n\r\n", close=False)) as server, pool() as opened:
        for _ in range(2):
            assert await ask(opened, server.url, "HEAD") == (200, b"")


async def test_a_bomb_comes_in_pieces_of_bounded_size() -> None:
    bomb = packed(b"0" * 30_000_000)
    answer = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    async with talking(sends(answer)) as server, pool() as opened:
        response = await opened.request(Site(URL(server.url)), "GET", "/x", {})
        sizes = [len(piece) async for piece in response.iter_any()]
        response.close()
    assert sum(sizes) == 30_000_000
    assert max(sizes) <= 262_144


async def test_members_that_hold_nothing_have_an_end() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(OK + b"Content-Encoding: gzip\r\n\r\n")
        while True:
            await peer.send(packed(b"") * 1000)

    async with talking(talk) as server, pool() as opened:
        with pytest.raises(aiohttp.ClientPayloadError):
            await ask(opened, server.url)


async def test_many_members_are_one_body() -> None:
    members = b"".join(packed(b"%d," % number) for number in range(10_000))
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(members)
    async with talking(sends(head + members)) as server, pool() as opened:
        _, body = await ask(opened, server.url)
    assert body == b"".join(b"%d," % number for number in range(10_000))


async def test_a_server_that_sends_faster_than_is_read_has_to_wait() -> None:
    stopped, total = asyncio.Event(), 64 * BUFFER_BYTES

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(OK + b"Content-Length: %d\r\n\r\n" % total)
        for _ in range(64):
            peer.writer.write(b"x" * BUFFER_BYTES)
            try:
                async with asyncio.timeout(0.2):
                    await peer.writer.drain()
            except TimeoutError:
                stopped.set()
                await peer.writer.drain()

    async with talking(talk) as server, pool() as opened:
        response = await opened.request(Site(URL(server.url)), "GET", "/x", {})
        await stopped.wait()
        assert len(await response.read()) == total
        response.close()


# -- what is sent --


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/x", {"X": "a\r\nY: b"}),
        ("/x", {"X": "a\nb"}),
        ("/x", {"X": "a\rb"}),
        ("/x", {"X": "a\0b"}),
        ("/x", {"X": "\ud800"}),
        ("/x", {"X\r\nY": "a"}),
        ("/x", {"X Y": "a"}),
        ("/x", {"X:": "a"}),
        ("/x", {"": "a"}),
        ("/x HTTP/1.1\r\nX: y", {}),
        ("/x y", {}),
        ("/x\ty", {}),
        ("/x\0", {}),
    ],
)
def test_request_splitting_is_refused(target: str, headers: dict[str, str]) -> None:
    with pytest.raises(MalformedRequest):
        SITE.head(Http1Request("GET", target, headers))


def test_a_method_is_one_word() -> None:
    with pytest.raises(MalformedRequest):
        SITE.head(Http1Request("GET /y HTTP/1.1\r\nX:", "/x", {}))


@pytest.mark.parametrize(
    ("method", "body", "headers", "framing"),
    [
        ("GET", None, {}, []),
        ("GET", None, {"Content-Length": "9", "Transfer-Encoding": "chunked"}, []),
        ("POST", None, {}, ["Content-Length: 0"]),
        ("POST", b"ok", {"content-length": "9"}, ["Content-Length: 2"]),
        ("GET", b"", {}, ["Content-Length: 0"]),
    ],
)
def test_the_end_of_a_body_is_declared_by_the_client_alone(
    method: str, body: bytes | None, headers: dict[str, str], framing: list[str]
) -> None:
    lines = SITE.head(Http1Request(method, "/x", headers, body)).decode().split("\r\n")
    assert [
        one for one in lines if one.lower().startswith(("content-length", "transfer"))
    ] == framing


@pytest.mark.parametrize(
    ("url", "target", "line", "host"),
    [
        ("http://h", "/x?a=1", "GET /x?a=1 HTTP/1.1", "h"),
        ("http://h:80/v1", "/x#y", "GET /v1/x HTTP/1.1", "h"),
        ("http://h:81/v1/", "", "GET /v1/ HTTP/1.1", "h:81"),
        ("https://h:443", "", "GET / HTTP/1.1", "h"),
        ("http://[::1]:8080", "/é", "GET /é HTTP/1.1", "[::1]:8080"),
    ],
)
def test_the_head_names_path_and_host(url: str, target: str, line: str, host: str) -> None:
    lines = (
        Site(URL(url, encoded=True)).head(Http1Request("GET", target, {})).decode().split("\r\n")
    )
    assert lines[:2] == [line, f"Host: {host}"]


def test_headers_of_a_call_replace_headers_of_the_site() -> None:
    site = Site(URL("http://ann:s3cret@h/"))
    assert b"Authorization: Basic YW5uOnMzY3JldA==\r\n" in site.head(Http1Request("GET", "/x", {}))
    head = site.head(
        Http1Request("GET", "/x", {"authorization": "Bearer t", "ACCEPT": "text/plain"})
    )
    assert b"Basic" not in head
    assert head.lower().count(b"accept:") == 1


@pytest.mark.parametrize(
    "url", ["ftp://h", "http:///x", "//h", "http://bücher.example", "http://a%3Ab:secret@h"]
)
def test_a_url_that_cannot_be_called_is_no_site(url: str) -> None:
    with pytest.raises(aiohttp.InvalidURL):
        Site(URL(url, encoded=True))


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize("length", [None, 5])
async def test_a_streamed_body_arrives_and_its_connection_is_used_again(length: int | None) -> None:
    seen: list[bytes] = []
    end = b"2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n" if length is None else b"abcde"

    async def talk(peer: Peer) -> None:
        while True:
            await peer.head()
            seen.append(await peer.reader.readexactly(len(end)))
            await peer.send(ANSWER)

    async with talking(talk) as server, pool() as opened:
        for _ in range(2):
            body = Stream(pieces_of(b"ab", b"", b"cde"), length)
            assert await ask(opened, server.url, "POST", body=body) == (200, b"ok")
    assert seen == [end, end]
    assert server.connections == 1


@pytest.mark.parametrize("length", [4, 6], ids=["longer", "shorter"])
async def test_a_streamed_body_of_another_length_ends_its_connection(length: int) -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.wait_for_close()

    async with talking(talk) as server, pool() as opened:
        with pytest.raises(aiohttp.ClientConnectionError):
            await ask(opened, server.url, "POST", body=Stream(pieces_of(b"ab", b"cde"), length))
        await server.all_left()


async def test_a_response_that_precedes_the_end_of_the_request_is_taken_and_nothing_reused() -> (
    None
):
    async def slow() -> AsyncIterator[bytes]:
        yield b"ab"
        await asyncio.Event().wait()

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await peer.wait_for_close()

    async with talking(talk) as server, pool() as opened:
        for body in (Stream(slow(), 100), Stream(slow(), None), b"x" * 50_000_000):
            assert await ask(opened, server.url, "POST", body=body) == (413, b"no")
        await server.all_left()
    assert server.connections == 3


async def test_a_streamed_body_waits_for_its_reader() -> None:
    taken = 0

    async def fast() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1_000_000

    async def talk(peer: Peer) -> None:
        await peer.head()
        await anyio.wait_all_tasks_blocked()
        await peer.send(ANSWER)
        await peer.wait_for_close()

    async with talking(talk) as server, pool() as opened:
        await ask(opened, server.url, "POST", body=Stream(fast(), None))
    assert taken < 100


# -- against aiohttp --

_names = st.sampled_from(["X-A", "x-b", "Content-Type", "ETag", "Set-Cookie", "X-A"])
_values = st.text(st.characters(min_codepoint=33, max_codepoint=0x17F, exclude_characters="\x7f"))
_heads = st.lists(st.tuples(_names, _values), max_size=6)


@st.composite
def valid_responses(draw: st.DrawFn) -> bytes:
    """The bytes of a response, whose connection is closed after it."""
    status = draw(st.sampled_from([200, 201, 204, 304, 400, 404, 500, 503]))
    body = draw(st.binary(max_size=300))
    lines = [f"{name}: {value}".encode() for name, value in draw(_heads)]
    coding = draw(st.sampled_from(["", "gzip", "deflate"]))
    if coding:
        body = packed(body) if coding == "gzip" else zlib.compress(body)
        lines.append(b"Content-Encoding: " + coding.encode())
    framing = draw(st.sampled_from(["length", "chunked", "end"]))
    if status in (204, 304):
        body = b""
    elif framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        lines.append(b"transfer-encoding: Chunked")
        size = draw(st.integers(1, 200))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%X\r\n%b\r\n" % (len(one), one) for one in parts) + b"0\r\n\r\n"
    interim = b"HTTP/1.1 103 Early\r\nX-A: early\r\n\r\n" * draw(st.integers(0, 2))
    reason = draw(st.sampled_from([" OK", " Not  found ", ""])).encode()
    head = b"\r\n".join([b"HTTP/1.%d %d%b" % (draw(st.integers(0, 1)), status, reason), *lines])
    return interim + head + b"\r\n\r\n" + body


def _pairs(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers.items()]


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(answer=valid_responses())
async def test_a_valid_response_means_the_same_as_to_aiohttp(answer: bytes) -> None:
    async with talking(sends(answer)) as server, pool() as opened, aiohttp.ClientSession() as other:
        async with other.get(f"{server.url}/x") as theirs:
            expected = (theirs.status, theirs.reason, _pairs(theirs.headers))
            body = await theirs.read()
        ours = await opened.request(Site(URL(server.url)), "GET", "/x", {})
        assert (ours.status, ours.reason, _pairs(ours.headers)) == expected
        assert await ours.read() == body
        ours.close()


def test_request_headers_are_encoded_as_servers_decode() -> None:
    """Letters of Latin-1 are sent as browsers send and Starlette reads them (mending 29)."""
    headers = {"X-Name": "Åsa Ölander", "X-Plain": "a", "X-Place": "東京 é"}
    head = SITE.head(Http1Request("GET", "/x", headers))
    raw = [tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:-2]]
    arrived = Headers(raw=[(name.lower(), value) for name, value in raw])
    assert arrived["x-name"] == "Åsa Ölander"
    assert arrived["x-plain"] == "a"
    assert arrived["x-place"].encode("latin-1").decode() == "東京 é"  # no Latin-1: UTF-8


async def test_response_headers_are_decoded_as_servers_encode() -> None:
    """Starlette sends Latin-1, other servers UTF-8; both are read (mending 29)."""
    raw = Response(headers={"X-Name": "Åsa"}).raw_headers
    name = dict(raw)[b"x-name"]
    answer = OK + b"Content-Length: 0\r\nX-A: " + name + b"\r\nX-B: " + "Åsa".encode() + b"\r\n\r\n"
    async with talking(sends(answer)) as server, pool() as opened:
        response = await opened.request(Site(URL(server.url)), "GET", "/x", {})
        response.close()
        assert (response.headers["X-A"], response.headers["X-B"]) == ("Åsa", "Åsa")

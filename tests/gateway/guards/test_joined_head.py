"""Responses whose head goes out with the first bytes of their body, on real sockets."""

import asyncio
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import pytest

from config.load import load
from gateway.guards.connection_limits import bounded_protocol
from tests.fixtures_servers import serving

pytestmark = pytest.mark.anyio

DEADLINE_S = 60
LENGTH = [(b"content-length", b"6")]
HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: %s\r\n\r\n"


@pytest.fixture
def anyio_backend():
    return "asyncio", {"use_uvloop": True}  # what `toolgate serve` runs on


class App:
    def __init__(self):
        self.more = asyncio.Event()

    async def __call__(self, scope, receive, send):
        path = scope["path"]
        if path == "/read":
            await receive()
        status, headers = (204, []) if path == "/empty" else (200, LENGTH)
        if path in ("/stream", "/none"):
            headers = [] if path == "/stream" else [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if path == "/crash":
            raise ValueError("after the head")
        if path in ("/pieces", "/stream"):
            if path == "/stream":
                await self.more.wait()
            await send({"type": "http.response.body", "body": b"abc", "more_body": True})
            await self.more.wait()
            await send({"type": "http.response.body", "body": b"def"})
        else:
            body = b"" if path in ("/empty", "/none") else b"abcdef"
            await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connect():
    app = App()
    async with serving(app, bounded_protocol(load(None, {}).limits, [].append)) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            with anyio.fail_after(DEADLINE_S):
                yield app, reader, writer
        finally:
            writer.transport.abort()


async def read_head(reader):
    return (await reader.readuntil(b"\r\n\r\n")).lower()


@pytest.mark.parametrize(
    ("path", "body"), [(b"/whole", b"abcdef"), (b"/none", b""), (b"/empty", b"")]
)
async def test_pipelined_responses_are_complete_and_in_order(path, body):
    async with connect() as (_, reader, writer):
        writer.write(2 * HEAD % (path, b"keep-alive", path, b"keep-alive"))
        for _ in range(2):
            assert (await read_head(reader)).startswith(b"http/1.1 20")
            assert await reader.readexactly(len(body)) == body


async def test_the_head_comes_with_the_first_piece_and_not_with_the_last():
    async with connect() as (app, reader, writer):
        writer.write(HEAD % (b"/pieces", b"close"))
        assert b"content-length: 6" in await read_head(reader)
        assert await reader.readexactly(3) == b"abc"
        app.more.set()
        assert await reader.read() == b"def"


async def test_the_head_of_a_stream_does_not_wait_for_its_body():
    async with connect() as (app, reader, writer):
        writer.write(HEAD % (b"/stream", b"close"))
        assert b"transfer-encoding: chunked" in await read_head(reader)
        app.more.set()
        assert await reader.read() == b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"


async def test_a_response_to_head_is_a_head():
    async with connect() as (_, reader, writer):
        writer.write(b"HEAD /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"content-length: 6" in await read_head(reader)
        assert await reader.read() == b""


async def test_continue_is_said_before_the_head():
    async with connect() as (_, reader, writer):
        writer.write(
            b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert (await read_head(reader)).startswith(b"http/1.1 100")
        writer.write(b"{}")
        assert (await read_head(reader)).startswith(b"http/1.1 200")
        assert await reader.readexactly(6) == b"abcdef"


async def test_a_response_that_crashes_ends_behind_its_head():
    async with connect() as (_, reader, writer):
        writer.write(HEAD % (b"/crash", b"keep-alive"))
        assert b"content-length: 6" in await read_head(reader)
        assert await reader.read() == b""

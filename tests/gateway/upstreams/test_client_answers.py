"""What comes back: how much of it is read, and what is made of nonsense."""

import gzip
import zlib

import anyio
import pytest

from tests.gateway.upstreams.conftest import GET, failure, open_client, source
from tests.servers.raw import response, speaking
from tests.servers.rest import Endless, Recorder

pytestmark = pytest.mark.anyio

TOO_LARGE = "pets answered more than 1000 bytes (upstream.response_limit_bytes)"
UNREADABLE = "pets sent an answer that cannot be read"
CUT = "pets closed the connection before its answer was complete"


@pytest.mark.parametrize("size", [0, 1, 999, 1000])
@pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
async def test_an_answer_up_to_the_limit_is_read(client, serve, size, encoding):
    body = b"x" * size
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding or "", bytes)(body)
    headers = [("content-encoding", encoding)] if encoding else []
    answer = await client.send(source(await serve(Recorder(200, packed, headers=headers))), GET)
    assert answer.body == body


async def test_an_answer_declared_too_large_is_not_read(client, serve):
    assert await failure(client, source(await serve(Recorder(200, b"x" * 1001)))) == TOO_LARGE


async def test_an_answer_without_length_is_read_up_to_the_limit(client, serve):
    pets = Endless()
    with anyio.fail_after(30):
        assert await failure(client, source(await serve(pets))) == TOO_LARGE
        await pets.left.wait()
    assert pets.sent < 1000


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_a_decompression_bomb_counts_by_its_unpacked_size(client, serve, pack):
    bomb = pack(b"0" * 50_000_000)
    name = "gzip" if pack is gzip.compress else "deflate"
    pets = Recorder(200, bomb, headers=[("content-encoding", name)])
    assert await failure(client, source(await serve(pets))) == TOO_LARGE


async def test_an_error_of_the_service_is_limited_too(client, serve):
    assert await failure(client, source(await serve(Recorder(400, b"x" * 1001)))) == TOO_LARGE


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(client, serve, status):
    elsewhere = Recorder()
    location = [("location", await serve(elsewhere) + "/y")]
    answer = await client.send(source(await serve(Recorder(status, headers=location))), GET)
    assert answer.status == status
    assert elsewhere.seen == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"garbage\r\n\r\n", UNREADABLE),
        (b"HTTP/1.1 OK\r\n\r\n", UNREADABLE),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", UNREADABLE),
        (response(b"{}", headers=b"Content-Encoding: br\r\n"), UNREADABLE),
        (response(b"no gzip", headers=b"Content-Encoding: gzip\r\n"), CUT),
        (response(b"x", length=500), CUT),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", CUT),
        (b"", CUT),
    ],
)
async def test_an_answer_that_is_none(answer, why):
    async with speaking(answer) as (url, _), open_client(retries=0) as client:
        assert await failure(client, source(url)) == why


async def test_an_answer_that_ends_with_the_connection(client):
    async with speaking(b"HTTP/1.0 200 OK\r\n\r\nhello") as (url, _):
        assert (await client.send(source(url), GET)).body == b"hello"


async def test_an_answer_of_chunks(client):
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    )
    async with speaking(chunked) as (url, _):
        assert (await client.send(source(url), GET)).body == b"hello"

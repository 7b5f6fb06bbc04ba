"""Request bodies that are large, slow or many, on real sockets: what is refused before it is read,
and who is served all the same."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import DEADLINE_S, Client, SharedGateway
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.gateway.shared import anyio_backend

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
LARGE = 1_000_000
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
FRONTS = ["/mcp", "/mcp/message?session_id=x", "/rpc", "/portal/query", "/portal/command"]
FRONTS += ["/admin/v1/keys"]
PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def bearer(name: str) -> dict[str, str]:
    token = KEY.token(sub=name, exp=FOREVER, scope="admin")
    return {**JSON, "authorization": f"Bearer {token}"}


class Socket:
    """One connection, on which a request is sent piece by piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self, path: str, headers: dict[str, str], **more: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: localhost"]
        given = {**headers, **{name.replace("_", "-"): value for name, value in more.items()}}
        lines += [f"{name}: {value}" for name, value in given.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        with anyio.fail_after(DEADLINE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            body = await self._reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), headers, json.loads(body)


@asynccontextmanager
async def connect(client: Client) -> AsyncIterator[Socket]:
    address = urlsplit(client.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Socket(reader, writer)
    finally:
        writer.transport.abort()


@pytest.fixture(scope="module")
def shared_settings(
    shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Settings:
    limits = replace(
        shared_settings.limits, buffered_body_bytes=4 * LARGE, client_buffered_body_bytes=3 * LARGE
    )
    auth = by_jwks(tmp_path_factory.mktemp("keys"), [KEY.jwk()])
    return replace(shared_settings, auth=auth, limits=limits)


@pytest.fixture
async def client(shared_gateway: SharedGateway) -> Client:
    """The client of a gateway that holds no body, not even of the test before."""
    client = shared_gateway.client
    with anyio.fail_after(DEADLINE_S):
        while client.gateway.access.bounds.bodies.held_bytes:  # noqa: ASYNC110
            await anyio.sleep(0.001)
    return client


@pytest.mark.parametrize("path", FRONTS)
async def test_a_stranger_is_refused_before_a_large_body_is_read(client: Client, path: str) -> None:
    async with connect(client) as socket:
        await socket.head(path, JSON, content_length=str(LARGE), expect="100-continue")
        status, headers, _ = await socket.answer()
    assert status == 401
    assert headers["www-authenticate"].startswith("bearer")
    assert client.gateway.access.bounds.bodies.held_bytes == 0


@pytest.mark.parametrize("path", ["/rpc", "/portal/query", "/portal/command"])
async def test_a_stranger_s_body_of_no_known_size_is_read_only_so_far(
    client: Client, path: str
) -> None:
    async with connect(client) as socket:
        await socket.head(path, JSON, transfer_encoding="chunked")
        for _ in range(5):
            await socket.chunk(b" " * 16384)
        status, _, _ = await socket.answer()  # the body never ends
    assert status == 401


async def test_a_stranger_may_send_a_small_body(client: Client) -> None:
    legacy = {"host": "a.example.com", "service": "pets", "action": "get", "version": "0.1.0"}
    status, answer, _ = await client.post("/portal/query", legacy)
    assert (status, answer["code"]) == (400, "ERR11200")  # the data first, as in light-hybrid-4j


@pytest.mark.parametrize("path", FRONTS)
async def test_bodies_beyond_the_budget_are_refused_unread(client: Client, path: str) -> None:
    budget = client.gateway.access.bounds.bodies
    async with AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(connect(client)) for _ in range(3)]
        for socket in slow:
            await socket.head("/rpc", bearer("slow"), content_length=str(LARGE))
            await socket.send(b" " * 1000)
        with anyio.fail_after(DEADLINE_S):
            while budget.held_bytes < 3 * LARGE:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        more = await stack.enter_async_context(connect(client))
        await more.head(path, bearer("more"), content_length=str(LARGE), expect="100-continue")
        status, headers, _ = await more.answer()
        assert (status, headers["retry-after"]) == (429, "1")
        status, answer, _ = await client.post("/rpc", PING, bearer("small"))
        assert (status, "result" in answer) == (200, True)
        await slow[0].send(b" " * (LARGE - 1000))
        assert (await slow[0].answer())[2]["error"]["code"] == -32700
    with anyio.fail_after(DEADLINE_S):
        while budget.held_bytes:  # noqa: ASYNC110
            await anyio.sleep(0.001)
    status, answer, _ = await client.post("/rpc", {**PING, "more": "x" * LARGE}, bearer("again"))
    assert (status, "result" in answer) == (200, True)


@pytest.mark.parametrize("path", ["/mcp", "/rpc", "/portal/query", "/admin/v1/keys"])
async def test_a_body_that_grows_beyond_the_budget_is_read_no_further(
    client: Client, path: str
) -> None:
    async with connect(client) as slow, connect(client) as growing:
        await slow.head("/rpc", bearer("slow"), content_length=str(3 * LARGE))
        with anyio.fail_after(DEADLINE_S):
            while not client.gateway.access.bounds.bodies.held_bytes:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        await growing.head(path, bearer("grow"), transfer_encoding="chunked")
        for _ in range(5):
            await growing.chunk(b" " * 16384)
        status, headers, _ = await growing.answer()
        assert (status, headers["retry-after"]) == (429, "1")


async def test_pipelined_requests_with_large_bodies_are_answered_in_turn(client: Client) -> None:
    body = json.dumps({**PING, "more": "x" * LARGE}).encode()
    async with connect(client) as socket, anyio.create_task_group() as tasks:
        for _ in range(3):
            await socket.head("/rpc", bearer("pipe"), content_length=str(len(body)))
            tasks.start_soon(socket.send, body)
            assert (await socket.answer())[0] == 200
    assert client.gateway.access.bounds.bodies.held_bytes == 0


@pytest.mark.parametrize("path", FRONTS)
async def test_compressed_body_is_refused_unread_with_the_coding_that_is_read(
    client: Client, path: str
) -> None:
    """RFC 9110, 15.5.16."""
    encoded = {**bearer("ada"), "content-encoding": "gzip"}
    async with connect(client) as socket:
        await socket.head(path, encoded, content_length="20", expect="100-continue")
        status, headers, answer = await socket.answer()
    assert (status, headers["accept-encoding"]) == (415, "identity")
    assert "Content-Encoding gzip" in answer["error"]["message"]


async def test_body_with_the_coding_identity_is_served(client: Client) -> None:
    status, answer, _ = await client.post(
        "/rpc", PING, {**bearer("ada"), "content-encoding": "identity"}
    )
    assert (status, "result" in answer) == (200, True)

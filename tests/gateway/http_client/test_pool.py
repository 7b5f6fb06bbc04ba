"""Connections of the HTTP/1.1 client: which are used again, how many there are, how they end."""

import asyncio
import math
import socket
import ssl
import threading
from pathlib import Path

import aiohttp
import anyio
import pytest
from aiohttp.abc import AbstractResolver
from yarl import URL

from config.load import load
from gateway.http_client.http1 import ConnectFailed, Site, _keep_alive_s
from gateway.http_client.pool import IDLE_S, LOOK_AFTER_S, Pool
from registry.documents.ssrf_protection import PrivateAddress, PublicResolver
from tests.gateway.http_client.test_http1 import (
    ANSWER,
    CHUNKED,
    OK,
    anyio_backend,
    ask,
    pool,
    sends,
)
from tests.servers.exact import Peer, talking
from tests.servers.tls import Authority, https

__all__ = ["anyio_backend"]  # on both event loops

pytestmark = pytest.mark.anyio


async def test_a_connection_is_used_again() -> None:
    async with talking(sends(ANSWER, close=False)) as server, pool() as opened:
        for _ in range(5):
            assert await ask(opened, server.url, "POST", body=b"{}") == (200, b"ok")
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ANSWER + b"more",
        ANSWER + ANSWER,
        ANSWER + b"HTTP/1.1 200 OK\r\nContent-Le",
        CHUNKED + b"2\r\nok\r\n0\r\n\r\nmore",
        b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_a_connection_in_doubt_is_not_used_again(answer: bytes) -> None:
    async with talking(sends(answer, close=False)) as server, pool() as opened:
        for _ in range(2):
            status, body = await ask(opened, server.url)
            assert (status, body) in ((200, b"ok"), (204, b""))
    assert server.connections == 2


async def test_bytes_on_an_idle_connection_answer_no_request() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(ANSWER)
        if peer.number == 0:
            answered.set()
            await go_on.wait()
            await peer.send(OK + b"Content-Length: 6\r\n\r\npoison")
        await peer.wait_for_close()

    answered, go_on = asyncio.Event(), asyncio.Event()
    async with talking(talk) as server, pool() as opened:
        assert await ask(opened, server.url) == (200, b"ok")
        go_on.set()
        await server.all_left()  # the client has hung up
        assert await ask(opened, server.url) == (200, b"ok")
    assert server.connections == 2


async def hangs_up_second(peer: Peer) -> None:
    """Closes each connection but the last when its second request comes, without an answer."""
    await peer.head()
    await peer.send(ANSWER)
    await peer.head()


async def test_a_repeatable_request_is_resent_after_a_closing_connection() -> None:
    async with talking(hangs_up_second) as server, pool() as opened:
        await ask(opened, server.url)
        assert await ask(opened, server.url, repeatable=True) == (200, b"ok")
        assert server.connections == 2
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(opened, server.url, "POST", body=b"{}")
        assert server.connections == 2


async def test_a_request_is_not_resent_after_the_first_response_byte() -> None:
    async def talk(peer: Peer) -> None:
        await hangs_up_second(peer)
        await peer.send(b"H")

    async with talking(talk) as server, pool() as opened:
        await ask(opened, server.url)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await ask(opened, server.url, repeatable=True)
    assert server.connections == 1


async def test_a_server_that_ends_its_side_has_ended_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(ANSWER)
        peer.writer.write_eof()
        await peer.wait_for_close()

    async with talking(talk) as server, pool() as opened:
        for _ in range(3):
            assert await ask(opened, server.url, "POST", body=b"{}") == (200, b"ok")
            await server.all_left()
    assert server.connections == 3


async def test_a_response_that_is_closed_unread_ends_its_connection() -> None:
    answer = OK + b"Content-Length: 1000000\r\n\r\nbeginning"
    async with talking(sends(answer, close=False)) as server, pool() as opened:
        response = await opened.request(Site(URL(server.url)), "GET", "/x", {})
        response.close()
        response.close()  # which is nothing
        with pytest.raises(aiohttp.ClientConnectionError):
            await response.read()
        await server.all_left()


@pytest.mark.parametrize("sent", [b"", OK + b"X: ", CHUNKED + b"5\r\nab"])
async def test_a_cancelled_call_leaves_no_connection(sent: bytes) -> None:
    asked = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(sent)
        asked.set()
        await peer.wait_for_close()

    async with talking(talk) as server, pool(limit=1) as opened:
        for _ in range(3):
            asked.clear()
            calling = asyncio.create_task(ask(opened, server.url))
            await asked.wait()
            await anyio.wait_all_tasks_blocked()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await server.all_left()
            assert (opened.in_use, opened.open) == (0, 0)


async def test_calls_without_a_connection_wait_in_their_order() -> None:
    order: list[bytes] = []
    go_on = asyncio.Semaphore(0)

    async def talk(peer: Peer) -> None:
        while True:
            order.append((await peer.head()).split()[1])
            await go_on.acquire()
            await peer.send(ANSWER)

    async def call(opened: Pool, url: str, target: str) -> None:
        response = await opened.request(Site(URL(url)), "GET", target, {})
        await response.read()
        response.close()

    async with talking(talk) as server, pool(limit=1) as opened:
        calls = []
        for number in range(5):
            calls.append(asyncio.create_task(call(opened, server.url, f"/{number}")))
            await anyio.wait_all_tasks_blocked()
        calls[2].cancel()  # while it waits
        for _ in range(5):
            go_on.release()
        await asyncio.gather(*calls, return_exceptions=True)
    assert order == [b"/0", b"/1", b"/3", b"/4"]
    assert server.connections == 1


async def test_idle_connections_expire() -> None:
    async with talking(sends(ANSWER, close=False)) as server, pool(idle_s=0.05) as opened:
        await asyncio.gather(*(ask(opened, server.url) for _ in range(3)))
        await server.all_left()
        assert opened.open == 0
        assert await ask(opened, server.url) == (200, b"ok")
    assert server.connections == 4


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("timeout=5", 4),
        ("timeout=5, max=100", 4),
        ("max=100, Timeout = 30", 29),
        ('timeout="2"', 1),
        ("timeout=1", 0.5),
        ("timeout=0", 0),
        ("max=100", math.inf),
        ("timeout=soon", math.inf),
        ("", math.inf),
    ],
)
def test_servers_say_how_long_connections_may_be_idle(header: str, expected_s: float) -> None:
    assert _keep_alive_s(header) == expected_s


@pytest.mark.parametrize(("timeout", "connections"), [(b"0", 3), (b"60", 1)])
async def test_a_server_that_announces_its_idle_timeout_is_obeyed(
    timeout: bytes, connections: int
) -> None:
    """The `Keep-Alive` header of a peer shortens the idle timeout of a connection (mending 16)."""
    answer = OK + b"Keep-Alive: timeout=%b\r\nContent-Length: 2\r\n\r\nok" % timeout
    async with talking(sends(answer, close=False)) as server, pool() as opened:
        for _ in range(3):
            assert await ask(opened, server.url, "POST", body=b"{}") == (200, b"ok")
    assert server.connections == connections


def test_idle_connections_are_closed_before_usual_servers_close() -> None:
    """Uvicorn, Node and Apache close connections after 5 s (mending 16)."""
    assert IDLE_S < 5
    assert load(None, {}).upstream.connection_idle_s < 5


async def test_a_connection_that_was_closed_unnoticed_is_not_written_to() -> None:
    """A close that waits in the socket is seen before a request is written (mending 16)."""
    listener = socket.create_server(("127.0.0.1", 0))
    go_on = threading.Event()

    def serve() -> None:
        for _ in range(2):
            peer, _ = listener.accept()
            peer.recv(65536)
            peer.sendall(ANSWER)
            go_on.wait(20)
            peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with pool(idle_s=60) as opened:
        assert await ask(opened, url, "POST", body=b"{}") == (200, b"ok")
        for idle in opened._idle.values():
            idle[0].idle_since -= LOOK_AFTER_S + 1
        go_on.set()
        [connection] = opened._open
        while not connection.is_readable():  # the event loop does not run meanwhile
            pass
        assert await ask(opened, url, "POST", body=b"{}") == (200, b"ok")
    thread.join()
    listener.close()


async def test_a_connection_of_one_origin_serves_no_other() -> None:
    async with talking(sends(ANSWER, close=False)) as server, pool() as opened:
        await ask(opened, server.url)
        await ask(opened, server.url.replace("127.0.0.1", "localhost"))
        await ask(opened, server.url)
    assert server.connections == 2


async def test_closing_ends_running_calls_and_refuses_later_calls() -> None:
    asked = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.head()
        asked.set()
        await peer.wait_for_close()

    async with talking(talk) as server, pool() as opened:
        calling = asyncio.create_task(ask(opened, server.url))
        await asked.wait()
        await opened.close()
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await calling
        with pytest.raises(ConnectFailed):
            await ask(opened, server.url)


class Told(AbstractResolver):
    """Resolves every name to what the test says at that time."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC):
        self.asked.append(host)
        kind = socket.AF_INET
        return [
            {"hostname": host, "host": one, "port": port, "family": kind, "proto": 0, "flags": 0}
            for one in self.hosts
        ]

    async def close(self) -> None: ...


async def test_connections_go_to_the_checked_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that resolves otherwise later (DNS rebinding) is not resolved a second time."""
    async with talking(sends(ANSWER, close=False)) as server:
        port = URL(server.url).port
        told = Told("127.0.0.1")
        opened = Pool(True, told, limit=1, connect_timeout_s=5)
        monkeypatch.setattr(socket, "getaddrinfo", None)
        assert await ask(opened, f"http://pets.example:{port}") == (200, b"ok")
        await opened.close()
    assert told.asked == ["pets.example"]


async def test_the_second_address_is_tried_when_the_first_refuses() -> None:
    async with talking(sends(ANSWER)) as server:
        told = Told("127.0.0.2", "127.0.0.1")
        opened = Pool(True, told, limit=1, connect_timeout_s=5)
        assert await ask(opened, f"http://pets.example:{URL(server.url).port}") == (200, b"ok")
        await opened.close()


async def test_a_name_that_leads_into_a_private_network_is_not_connected_to() -> None:
    async with talking(sends(ANSWER)) as server:
        opened = Pool(True, PublicResolver(), limit=1, connect_timeout_s=5)
        with pytest.raises(ConnectFailed) as caught:
            await ask(opened, server.url.replace("127.0.0.1", "localhost"))
        assert isinstance(caught.value.__cause__, PrivateAddress)
        await opened.close()
    assert server.connections == 0


async def test_a_name_is_resolved_anew_when_its_address_refuses() -> None:
    answer = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"
    async with talking(sends(answer)) as server:
        told = Told("127.0.0.1")
        opened = Pool(True, told, limit=1, connect_timeout_s=5)
        url = f"http://pets.example:{URL(server.url).port}"
        for _ in range(2):  # on two connections
            assert await ask(opened, url) == (200, b"ok")
        assert told.asked == ["pets.example"]
    for _ in range(2):
        with pytest.raises(ConnectFailed):
            await ask(opened, url)
    assert told.asked == ["pets.example"] * 2
    await opened.close()


class Gated(Told):
    """Resolves every name to loopback once it is let go."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")
        self.waited, self.go_on = asyncio.Event(), asyncio.Event()
        self.fails = False

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC):
        self.waited.set()
        await self.go_on.wait()
        if self.fails:
            self.asked.append(host)
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return await super().resolve(host, port)


async def test_concurrent_calls_share_one_lookup_of_a_name() -> None:
    resolver = Gated()
    async with talking(sends(ANSWER)) as server, pool() as opened:
        opened._resolver = resolver
        url = f"http://pets.example:{URL(server.url).port}"
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(ask(opened, url)) for _ in range(10)]
            await asyncio.sleep(0)
            calls[0].cancel()
            await asyncio.sleep(0)
            resolver.go_on.set()
        assert [call.result() for call in calls[1:]] == [(200, b"ok")] * 9
    assert resolver.asked == ["pets.example"]


async def test_a_failed_lookup_fails_its_waiters_and_is_not_cached() -> None:
    resolver = Gated()
    resolver.fails = True
    async with talking(sends(ANSWER)) as server, pool() as opened:
        opened._resolver = resolver
        url = f"http://pets.example:{URL(server.url).port}"
        resolver.go_on.set()
        failures = await asyncio.gather(
            *(ask(opened, url) for _ in range(3)), return_exceptions=True
        )
        assert [type(failure) for failure in failures] == [ConnectFailed] * 3
        assert resolver.asked == ["pets.example"]
        resolver.fails = False
        assert await ask(opened, url) == (200, b"ok")


async def test_addresses_are_held_for_their_time() -> None:
    resolver = Told("127.0.0.1")
    last = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"
    async with talking(sends(last)) as server, pool(dns_ttl_s=0) as opened:
        opened._resolver = resolver
        url = f"http://pets.example:{URL(server.url).port}"
        for _ in range(2):
            assert await ask(opened, url) == (200, b"ok")
    assert len(resolver.asked) == 2


async def test_a_lookup_ends_with_its_pool() -> None:
    resolver = Gated()
    async with pool() as opened:
        opened._resolver = resolver
        call = asyncio.create_task(ask(opened, "http://pets.example"))
        await resolver.waited.wait()
        await opened.close()
        with pytest.raises(ConnectFailed):
            await call


async def test_a_connection_that_is_made_while_the_pool_closes_is_closed_too() -> None:
    class Slow(Told):
        async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC):
            await opened.close()
            return await super().resolve(host, port, family)

    async with talking(sends(ANSWER, close=False)) as server:
        opened = Pool(True, Slow("127.0.0.1"), limit=1, connect_timeout_s=5)
        with pytest.raises(ConnectFailed):
            await ask(opened, f"http://pets.example:{URL(server.url).port}")
        await server.all_left()


async def test_tls_that_fails_leaves_no_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    async with https(authority.sign("server")) as (url, _):
        opened = Pool(trusting, None, limit=1, connect_timeout_s=5)
        assert (await ask(opened, url))[0] == 200
        await opened.close()
        opened = Pool(True, None, limit=1, connect_timeout_s=5)
        for _ in range(2):
            with pytest.raises(ConnectFailed) as caught:
                await ask(opened, url)
            assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert (opened.in_use, opened.open) == (0, 0)
        await opened.close()


async def test_a_handshake_without_answer_is_given_up_or_cancelled() -> None:
    arrived = asyncio.Event()

    async def talk(peer: Peer) -> None:
        await peer.reader.read(1)
        arrived.set()
        await peer.wait_for_close()

    async with talking(talk) as server:
        url = server.url.replace("http:", "https:")
        opened = Pool(True, None, limit=1, connect_timeout_s=0.05)
        with pytest.raises(ConnectFailed):
            await ask(opened, url)
        await opened.close()
        arrived.clear()
        async with pool(limit=1) as opened:
            calling = asyncio.create_task(ask(opened, url))
            await arrived.wait()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            await server.all_left()
            assert opened.open == 0

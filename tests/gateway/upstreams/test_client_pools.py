"""Connections: to whom they are made, how long they live, and how a call is taken back."""

import asyncio
import logging
import socket
from dataclasses import replace
from typing import Any

import anyio.lowlevel
import pytest

from config.sources import SchemeSettings, SourceSettings
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.source_pools import UpstreamFailed
from tests.gateway.upstreams.conftest import GET, failure, limits, open_client, source
from tests.servers.rest import Endless, Held, Recorder, Silent

pytestmark = pytest.mark.anyio

PRIVATE = (
    "pets lies in a private network and only its description says so;"
    " set its base_url, or imports.private_networks"
)


@pytest.fixture
def deaf():
    """The URL of a port where nobody accepts connections and no more fit in the queue."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in waiting:
            one.close()


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


async def test_a_connection_that_is_refused(client, closed_port, caplog):
    caplog.set_level(logging.WARNING)
    text = await failure(client, source(closed_port))
    assert text == "pets could not be reached: the connection was refused or timed out"
    [record] = caplog.records
    assert (record.message, record.source) == ("upstream_failed", "pets")


async def test_a_connection_that_is_not_made_in_time(deaf):
    async with open_client(connect_timeout_s=0.05, retries=1) as client:
        text = await failure(client, source(deaf))
    assert text == "pets could not be reached: the connection was refused or timed out"


async def test_a_name_that_does_not_resolve(client, monkeypatch):
    def nobody(*_arguments, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    text = await failure(client, source("http://pets.example.com"))
    assert text == "pets could not be reached: its host name does not resolve"


async def test_a_service_without_expected_tls_is_unreachable(client, serve):
    url = await serve(Recorder())
    text = await failure(client, source(url.replace("http:", "https:")))
    assert text == "pets could not be reached: TLS failed"


@pytest.mark.parametrize(
    "url", ["http://[bad", "http://h:99999", "http://", "ftp://h", "file:///etc/passwd"]
)
async def test_an_address_that_is_none(client, url):
    assert await failure(client, source(url)) == "pets has no usable address; set its base_url"


@pytest.mark.parametrize("url", ["http://a%3Ab:secret@pets.example", "http://a..b", "http://.a"])
async def test_a_description_with_an_address_that_is_none(client, url):
    of = source(url, trusted=False)
    assert await failure(client, of) == "pets has no usable address; set its base_url"


async def test_a_source_without_address_names_the_setting(client):
    text = await failure(client, source(None))
    assert "has no address" in text
    assert "sources.pets.base_url" in text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_description_cannot_lead_into_the_private_network(client, serve, host):
    pets = Recorder()
    url = (await serve(pets)).replace("127.0.0.1", host)
    assert await failure(client, source(url, trusted=False)) == PRIVATE
    assert pets.seen == []


async def test_a_server_of_the_operation_cannot_either(client, serve):
    pets = Recorder()
    request = HttpRequest("GET", "/x", {}, server=await serve(pets))
    assert await failure(client, source("http://example.com", trusted=False), request) == PRIVATE
    assert pets.seen == []


async def test_a_server_of_the_operation_is_called_where_the_description_decides(
    serve, monkeypatch
):
    monkeypatch.setattr("gateway.upstreams.http.source_pools.check_url_host", lambda url: None)
    pets = Recorder()
    request = HttpRequest("GET", "/x", {}, server=await serve(pets) + "/v2/")
    async with open_client() as client:
        await client.send(source("http://example.com", trusted=False), request)
    assert pets.seen[0].target == "/v2/x"


async def test_credentials_never_go_where_only_a_description_says(serve):
    adjusted = SourceSettings(headers={"Authorization": "Bearer s"})
    async with open_client(adjusted) as client:
        with pytest.raises(UpstreamFailed, match=r"set sources\.pets\.base_url"):
            await client.send(source("http://example.com", trusted=False), GET)


async def test_a_foreign_source_gets_no_settings_of_its_namesake(serve):
    pets, others = Recorder(), Recorder()
    headers = {"Authorization": "Bearer s"}
    adjusted = SourceSettings(headers=headers, base_url=await serve(pets))
    own, foreign = source(None), replace(source(await serve(others)), foreign="b")
    async with open_client(adjusted) as client:
        client.connections.store({"pets": {"X-Key": SchemeSettings(value="s")}})
        for one in (own, foreign, own):
            await client.send(one, GET)
        assert client.connections.of(own) is client.connections.of(own)
    assert [dict(seen.headers)["authorization"] for seen in pets.seen] == ["Bearer s"] * 2
    [seen] = others.seen
    assert not {"authorization", "x-key"} & set(dict(seen.headers))


async def test_a_private_address_that_the_operator_set_is_called(serve):
    pets = Recorder()
    async with open_client(SourceSettings(base_url=await serve(pets))) as client:
        await client.send(source("http://10.0.0.1", trusted=False), GET)
    assert len(pets.seen) == 1


@pytest.mark.parametrize("waiting_for", ["connection", "headers", "body"])
async def test_a_call_that_is_taken_back_ends_at_once_and_the_service_is_told(
    deaf, serve, waiting_for
):
    service: Any = {"headers": Silent(), "body": Endless()}.get(waiting_for)
    url = deaf if service is None else await serve(service)
    async with open_client(response_limit_bytes=10**9) as client:
        calling = asyncio.create_task(client.send(source(url), GET))
        with anyio.fail_after(30):
            if service is not None:
                await service.asked.wait()
            await anyio.lowlevel.checkpoint()
            calling.cancel("by the client")
            with pytest.raises(asyncio.CancelledError) as caught:
                await calling
            if service is not None:
                await service.left.wait()
    assert caught.value.args == ("by the client",)  # who cancelled decides what becomes of it


@pytest.mark.parametrize("limit", [{"head_limit_bytes": 20}, {"headers_limit": 1}])
async def test_the_settings_limit_the_head_of_an_answer(serve, limit):
    url = await serve(Recorder())
    async with open_client(**limit) as client:
        assert await failure(client, source(url)) == "pets sent an answer that cannot be read"


async def test_no_more_connections_than_allowed(serve):
    pets = Held()
    async with open_client(connections=2) as client, asyncio.TaskGroup() as calls:
        url = await serve(pets)
        answers = [calls.create_task(client.send(source(url), GET)) for _ in range(5)]
        with anyio.fail_after(30):
            for _ in range(2):
                await pets.asked.acquire()
            await anyio.wait_all_tasks_blocked()
            assert pets.asked.locked()  # nobody else got through
            for _ in range(5):
                pets.release.release()
    assert sorted(answer.result().body for answer in answers) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_source_keeps_its_connections_over_a_reload_of_the_catalog(client, serve):
    url = await serve(Recorder())
    await client.send(source(url), GET)
    pool = client.connections._pools["pets"][1]
    await client.send(source(url), GET)  # equal, but another object
    assert client.connections._pools["pets"][1] is pool
    await client.send(source(url + "/v2"), GET)
    assert client.connections._pools["pets"][1] is not pool
    assert list(client.connections._closing) == [pool]


async def test_new_settings_apply_to_new_calls_while_old_calls_end_unchanged(serve, clock):
    old, new = Held(), Recorder()
    async with open_client(SourceSettings(base_url=await serve(old))) as client:
        calling = asyncio.create_task(client.send(source(None), GET))
        with anyio.fail_after(90):
            await old.asked.acquire()
            changed = SourceSettings(base_url=await serve(new), headers={"X-A": "1"})
            await client.configure(limits(), {"pets": changed})
            await client.send(source(None), GET)
            old.release.release()
            assert (await calling).body == b"1"
            [(pool, closing)] = client.connections._closing.items()
            clock.advance(pool.timeout_s)
            await closing
    assert pool.http.closed
    assert client.connections._closing == {}
    assert new.seen[0].all("x-a") == ["1"]


async def test_closing_leaves_nothing_open(serve):
    async with open_client() as client:
        url = await serve(Recorder())
        await client.send(source(url), GET)
        await client.configure(limits(), {})
        await client.send(source(url), GET)
        pools = [*client.connections._closing, client.connections._pools["pets"][1]]
        await client.close()
        assert [pool.http.closed for pool in pools] == [True, True]

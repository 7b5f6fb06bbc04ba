"""What the gateway says unasked: tools changed, to clients of every era, over every stream."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from config.settings import Settings
from gateway.context import Session, new_request_id
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from tests.fixtures_gateway import META, MODERN, Client, Recorder, pets, running, with_mcp
from tests.gateway.events import listening

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


async def change_tools(store: ToolStore, settings: Settings, path: Path, count: int) -> None:
    """Import the description again, with `count` more operations."""
    await anyio.Path(path).write_text(json.dumps(pets(count)))
    sources = Sources(store, settings.tenant.host_id, settings.imports)
    await sources.import_(ImportSpec("pets", str(path), base_url=settings.sources["pets"].base_url))


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_session_hears_of_changes_on_its_stream(
    client: Client, store: ToolStore, settings: Settings, tmp_path: Path, revision: str
) -> None:
    session = await client.session(revision)
    async with listening(client, "/mcp", session.headers) as events:
        await change_tools(store, settings, tmp_path / "pets.json", 2)
        assert await events.message() == {"jsonrpc": "2.0", "method": CHANGED}
    listed = await session.call("tools/list")
    assert len(listed["result"]["tools"]) == 7


async def test_events_before_the_opening_of_the_stream_are_not_lost(
    client: Client, store: ToolStore, settings: Settings, tmp_path: Path
) -> None:
    session = await client.session()
    await change_tools(store, settings, tmp_path / "pets.json", 1)
    async with listening(client, "/mcp", session.headers) as events:
        assert (await events.message())["method"] == CHANGED


async def test_a_new_stream_takes_over_from_a_possibly_dead_stream(client: Client) -> None:
    session = await client.session()
    async with (
        listening(client, "/mcp", session.headers) as old,
        listening(client, "/mcp", session.headers) as new,
    ):
        with pytest.raises(EOFError):
            await old.next()
        client.gateway.shared.hub.change(client.gateway.principal.tenant, {"tools"})
        assert (await new.message())["method"] == CHANGED


async def test_a_stateless_client_hears_its_requested_notifications(
    client: Client, store: ToolStore, settings: Settings, tmp_path: Path
) -> None:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    params = {
        "_meta": META,
        "notifications": {"toolsListChanged": True, "promptsListChanged": True},
    }
    body = {"jsonrpc": "2.0", "id": "sub-1", "method": "subscriptions/listen", "params": params}
    tag = {"io.modelcontextprotocol/subscriptionId": "sub-1"}
    async with listening(client, "/mcp", headers, body) as events:
        acknowledged = await events.message()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        assert acknowledged["params"]["_meta"] == tag
        await change_tools(store, settings, tmp_path / "pets.json", 1)
        changed = await events.message()
        assert (changed["method"], changed["params"]["_meta"]) == (CHANGED, tag)
        client.gateway.drain()
        final = await events.message()
        assert final["id"] == "sub-1"
        assert final["result"] == {"resultType": "complete", "_meta": tag}


async def test_a_stateless_client_that_did_not_ask_hears_nothing(client: Client) -> None:
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "subscriptions/listen"}
    params = {"_meta": META, "notifications": {}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}
    async with listening(client, "/mcp", headers, body) as events:
        assert (await events.message())["params"]["notifications"] == {}
        client.gateway.shared.hub.change(client.gateway.principal.tenant, {"tools"})
        client.gateway.drain()
        assert (await events.message())["id"] == 7
    assert client.gateway.shared.hub.streams == 0


async def test_a_2024_11_05_stream_is_the_session(
    client: Client, store: ToolStore, settings: Settings, tmp_path: Path
) -> None:
    async with listening(client, "/mcp/sse") as events:
        name, endpoint = await events.next()
        assert name == "endpoint"
        assert endpoint.startswith("/mcp/message?session_id=")
        ping = {"jsonrpc": "2.0", "id": "p", "method": "ping"}
        status, answer, _ = await client.post(endpoint, ping)
        assert (status, answer) == (202, None)
        assert await events.message() == {"jsonrpc": "2.0", "id": "p", "result": {}}
        await change_tools(store, settings, tmp_path / "pets.json", 1)
        assert (await events.message())["method"] == CHANGED
        assert len(client.gateway.shared.sessions) == 1
        status, answer, _ = await client.post(endpoint, [ping])
        assert (status, answer["error"]["code"]) == (400, -32600)
    status, answer, _ = await client.post("/mcp/message?session_id=unknown", ping)
    assert (status, answer["error"]["code"]) == (404, -32001)
    status, answer, _ = await client.post("/mcp/message", ping)
    assert (status, answer["error"]["code"]) == (400, -32600)


@asynccontextmanager
async def deaf(client: Client) -> AsyncIterator[str]:
    """Where a 2024-11-05 client POSTs that reads no more than that from its stream."""
    host = client.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"), limit=1000)
    writer.write(f"GET /mcp/sse HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    async with asyncio.timeout(30):
        told = await reader.readuntil(b"data: ")
        assert told.startswith(b"HTTP/1.1 200")
        endpoint = await reader.readline()
    try:
        yield endpoint.decode().strip()
    finally:
        writer.close()


async def call_much(client: Client, endpoint: str) -> int:
    """The status of a call whose answer is long."""
    arguments = {"name": "x" * 200_000}
    params = {"name": "createPet", "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": new_request_id(), "method": "tools/call", "params": params}
    status, _, _ = await client.post(endpoint, call)
    return status


def alive(session_id: str) -> bool:
    found = (one for one in gc.get_objects() if isinstance(one, Session))
    return any(one.id == session_id for one in found)


async def test_answers_that_nobody_read_go_with_their_client(client: Client) -> None:
    gc.collect()
    gc.disable()  # nor does a gateway that serves collect what is in cycles for long
    try:
        async with deaf(client) as endpoint:
            for _ in range(40):
                assert await call_much(client, endpoint) == 202
            session_id = endpoint.partition("session_id=")[2]
            assert alive(session_id)
        async with asyncio.timeout(30):
            while alive(session_id):
                await anyio.lowlevel.checkpoint()
    finally:
        gc.enable()


async def test_a_client_that_does_not_read_loses_its_session(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.context.OUTBOX_BYTES", 1_000_000)
    async with deaf(client) as endpoint, asyncio.timeout(20):
        assert client.gateway.shared.hub.streams == 1
        while (status := await call_much(client, endpoint)) == 202:
            pass
        assert status == 404
    assert client.gateway.shared.hub.streams == 0


async def test_a_2024_11_05_client_introduces_itself_briefly(client: Client) -> None:
    hello = {
        "protocolVersion": "2024-11-05",
        "capabilities": {"experimental": {"x": "y" * 20_000}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    async with listening(client, "/mcp/sse") as events:
        _, endpoint = await events.next()
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        status, answer, _ = await client.post(endpoint, request)
        assert (status, answer["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sse"])
async def test_silent_streams_are_kept_alive(settings: Settings, path: str) -> None:
    async with running(with_mcp(settings, keep_alive_s=0.02)) as client:
        session = await client.session()
        headers = session.headers if path == "/mcp" else None
        async with listening(client, path, headers) as events, asyncio.timeout(30):
            if path == "/mcp/sse":
                await events.next()
            for _ in range(3):
                assert await events.response.content.readline() == b": keep-alive\n"
                assert await events.response.content.readline() == b"\n"


async def test_streams_and_sessions_have_limits(settings: Settings) -> None:
    async with running(with_mcp(settings, stream_limit=1, session_limit=2)) as client:
        first, second = await client.session(), await client.session()
        async with listening(client, "/mcp", first.headers):
            headers = {**second.headers, "Accept": "text/event-stream"}
            async with client.http.get(client.url + "/mcp", headers=headers) as refused:
                assert refused.status == 503
                assert refused.headers["Retry-After"]
            third = await client.session()  # the second goes: the first has a stream
            assert (await second.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0] == 404
            assert (await first.call("ping"))["result"] == {}
            assert (await third.call("ping"))["result"] == {}


async def test_a_session_runs_a_limited_number_of_calls(
    settings: Settings, service: Recorder
) -> None:
    async with running(with_mcp(settings, session_calls=1)) as client:
        session = await client.session()
        slow = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}}
        call = asyncio.create_task(session.post(slow))
        async with asyncio.timeout(30):
            await service.arrived.wait()
            assert (await session.call("ping", id_=2))["error"]["code"] == 1503
            service.release.set()
            assert (await call)[0] == 200


async def test_draining_ends_streams_and_refuses_new_work(client: Client) -> None:
    session = await client.session()
    async with listening(client, "/mcp", session.headers) as events:
        client.gateway.drain()
        with pytest.raises(EOFError):
            await events.next()
    status, answer = await session.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert status == 503
    assert answer["error"]["code"] == 1503


async def test_draining_lets_a_2024_11_05_call_finish_and_answer(
    client: Client, service: Recorder
) -> None:
    async with listening(client, "/mcp/sse") as events:
        _, endpoint = await events.next()
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "slow"}}
        assert (await client.post(endpoint, call))[0] == 202
        async with asyncio.timeout(30):
            await service.arrived.wait()
        client.gateway.drain()
        service.release.set()
        assert (await events.message())["id"] == 5

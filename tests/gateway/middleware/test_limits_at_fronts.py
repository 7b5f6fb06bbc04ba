"""Limits at every front: 429 with Retry-After, and errors that say when to come back."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import META, MODERN, Client, running
from tests.gateway.events import listening
from tests.gateway.guards.signing import FOREVER, by_jwks, signer

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
CALLS = 3
ACTION = "a.example.com/pets/get/0.1.0"
LEGACY = {"host": "a.example.com", "service": "pets", "action": "get", "version": "0.1.0"}
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
MODERN_HEADERS = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEY.token(sub=name, exp=FOREVER)}"}


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    limits = replace(
        settings.limits, principal_calls=CALLS, principal_sessions=2, principal_streams=1
    )
    limited = replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]), limits=limits)
    async with running(limited) as client:
        yield client


def rpc(method: str, id_: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


async def session(client: Client, name: str) -> dict[str, str]:
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    status, answer, headers = await client.post("/mcp", body, bearer(name))
    assert status == 200, answer
    opened = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-06-18"}
    return {**bearer(name), **opened}


async def test_one_call_too_many_is_a_429_at_every_front(client: Client) -> None:
    handshake = await session(client, "handshake")
    modern = rpc("tools/list", _meta=META)
    fronts = [
        ("/mcp", modern, {**bearer("modern"), **MODERN_HEADERS}),
        ("/mcp", rpc("tools/list"), handshake),
        ("/rpc", rpc("tools/list"), bearer("rpc")),
        ("/portal/query", rpc(ACTION), bearer("portal")),
    ]
    for path, body, headers in fronts:
        for _ in range(CALLS):
            status, answer, _ = await client.post(path, body, headers)
            assert status != 429, answer
        status, answer, sent = await client.post(path, body, headers)
        assert status == 429, (path, answer)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
        error = answer["error"]
        assert error["code"] == 1429
        assert "at most 3 in 60 s (limits.principal_calls)" in error["message"]
        assert error["data"]["limit"] == "limits.principal_calls"
        assert 1 <= error["data"]["retryAfter"] == int(sent["retry-after"]) <= 61
    status, _ = await client.modern("tools/list", **bearer("another"))
    assert status == 200
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert (await client.post("/mcp", ping, handshake))[0] == 200
    async with client.http.get(client.url + "/metrics") as response:
        assert 'toolgate_refusals_total{limit="principal_calls"} 4.0' in await response.text()


async def test_a_legacy_client_gets_a_status_and_a_batch_an_error_for_each(client: Client) -> None:
    for _ in range(CALLS):
        await client.post("/portal/command", LEGACY, bearer("old"))
    status, answer, headers = await client.post("/portal/command", LEGACY, bearer("old"))
    assert status == answer["statusCode"] == 429
    assert (answer["code"], answer["message"]) == ("ERR18429", "TOO_MANY_REQUESTS")
    assert int(headers["retry-after"]) >= 1

    for path in ("/rpc", "/portal/query"):
        batch = [rpc("tools/list" if path == "/rpc" else ACTION, id_) for id_ in range(CALLS + 2)]
        status, answers, headers = await client.post(path, batch, bearer(path))
        assert status == 200
        assert "retry-after" not in headers
        codes = [one.get("error", {}).get("code") for one in answers]
        assert sorted(codes, key=str).count(1429) == 2, answers
        late = [one for one in answers if one.get("error", {}).get("code") == 1429]
        assert all(one["error"]["data"]["retryAfter"] >= 1 for one in late)


async def test_the_official_client_is_told_and_goes_on(client: Client) -> None:
    mine = bearer("official")
    async with httpx2.AsyncClient(headers=mine) as http:
        transport = streamable_http_client(f"{client.url}/mcp", http_client=http)
        with anyio.fail_after(60):
            async with McpClient(transport) as official:
                await client.post("/rpc", [rpc("rpc.discover", n) for n in range(CALLS)], mine)
                with pytest.raises(MCPError, match="Too many calls") as refused:
                    await official.list_tools()
                assert refused.value.error.code == 1429
                assert refused.value.error.data["retryAfter"] >= 1


async def test_a_2024_11_05_client_gets_refusals_on_its_stream(client: Client) -> None:
    async with listening(client, "/mcp/sse", bearer("sse")) as events:
        address = (await events.next())[1]
        for number in range(CALLS + 1):
            body = rpc("tools/list", number)
            assert (await client.post(address, body, bearer("sse")))[0] == 202
        answers = [json.loads((await events.next())[1]) for _ in range(CALLS + 1)]
    assert [one["error"]["code"] for one in answers if "error" in one] == [1429]


async def test_a_principal_has_so_many_sessions_and_streams(client: Client) -> None:
    first, second = [await session(client, "ann") for _ in range(2)]
    third = await session(client, "ann")
    await session(client, "bob")
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    statuses = [(await client.post("/mcp", ping, one))[0] for one in (first, second, third)]
    assert statuses == [404, 200, 200]  # the one unused for longest has ended
    accept = {"Accept": "text/event-stream"}
    async with client.http.get(f"{client.url}/mcp", headers={**third, **accept}) as stream:
        assert stream.status == 200
        async with client.http.get(f"{client.url}/mcp", headers={**second, **accept}) as more:
            assert (more.status, more.headers["retry-after"]) == (429, "1")
            error = json.loads(await more.read())["error"]
    assert error["data"]["limit"] == "limits.principal_streams"


async def test_an_overloaded_gateway_answers_503_at_every_endpoint(client: Client) -> None:
    shedding = client.gateway.access.bounds.shedding
    shedding._limit = 1  # byte
    shedding.look(0.0)
    for path in ("/mcp", "/rpc", "/portal/query"):
        status, answer, headers = await client.post(path, rpc("tools/list"), bearer("x"))
        assert (status, headers["retry-after"], answer["error"]["code"]) == (503, "1", 1503)
    async with client.http.get(client.url + "/health") as response:
        assert response.status == 200


async def test_calls_at_a_time_have_an_end(client: Client) -> None:
    rate_limits = client.gateway.access.bounds.rate_limits
    rate_limits._running.total = client.gateway.settings.limits.concurrent
    modern = {**bearer("m"), **MODERN_HEADERS}
    for path, body, headers in [
        ("/mcp", rpc("tools/list", _meta=META), modern),
        ("/rpc", rpc("tools/list"), bearer("m")),
        ("/portal/query", rpc(ACTION), bearer("m")),
    ]:
        status, answer, sent = await client.post(path, body, headers)
        assert (status, answer["error"]["code"], sent["retry-after"]) == (503, 1503, "1")


async def test_a_model_is_told_of_a_limit_and_an_error_goes_to_other_callers(
    client: Client,
) -> None:
    """A JSON-RPC error, or a 429, reaches the client of a model and not the model."""
    call = {"name": "listPets", "arguments": {}}
    handshake = await session(client, "told")
    modern = {**bearer("stateless"), **MODERN_HEADERS, "Mcp-Method": "tools/call"}
    calls = [
        (rpc("tools/call", **call), handshake),
        (rpc("tools/call", **call, _meta=META), {**modern, "Mcp-Name": "listPets"}),
    ]
    for body, headers in calls:
        for _ in range(CALLS):
            await client.post("/mcp", body, headers)
        status, answer, _ = await client.post("/mcp", body, headers)
        assert status == 200
        assert answer["result"]["isError"] is True
        text = answer["result"]["content"][0]["text"]
        assert "at most 3 in 60 s (limits.principal_calls); try again in" in text
    assert answer["result"]["structuredContent"]["retryAfter"] >= 1
    for _ in range(CALLS):
        await client.post("/rpc", rpc("listPets"), bearer("program"))
    status, answer, sent = await client.post("/rpc", rpc("listPets"), bearer("program"))
    assert (status, answer["error"]["code"]) == (429, 1429)
    assert int(sent["retry-after"]) >= 1

"""The acceptance vectors of the light platform for MCP, each under its number there."""

import asyncio
from typing import Any

import pytest

from tests.fixtures_gateway import META, MODERN, Client

pytestmark = pytest.mark.anyio

SESSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
HEADERS = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


def request(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


@pytest.mark.parametrize("revision", SESSIONS)
async def test_m21_a_session_from_its_first_to_its_last_request(
    client: Client, revision: str
) -> None:
    session = await client.session(revision)
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await session.post(initialized) == (202, None)
    assert len((await session.call("tools/list"))["result"]["tools"]) == 5
    called = await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}})
    assert called["result"]["content"][0]["type"] == "text"


async def test_m23_a_batch_without_version_header(client: Client) -> None:
    session = await client.session("2025-03-26")
    batch = [request("ping", id_=1), request("tools/list", id_="two"), request("nope", id_=3)]
    status, answers, _ = await client.post("/mcp", batch, {"Mcp-Session-Id": session.id})
    assert (status, [one["id"] for one in answers]) == (200, [1, "two", 3])


async def test_m24_an_unknown_session_and_one_that_was_deleted(client: Client) -> None:
    session = await client.session()
    unknown = {"Mcp-Session-Id": "unknown"}
    assert (await client.post("/mcp", request("ping"), unknown))[0] == 404
    async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
        assert response.status == 204
    assert (await session.post(request("ping")))[0] == 404


async def test_m27_what_a_stateless_client_discovers_and_may_cache(client: Client) -> None:
    _, discovered = await client.modern("server/discover")
    assert MODERN in discovered["result"]["supportedVersions"]
    assert "tools" in discovered["result"]["capabilities"]
    for method in ("server/discover", "tools/list"):
        _, answer = await client.modern(method)
        assert isinstance(answer["result"]["ttlMs"], int)
        assert answer["result"]["ttlMs"] >= 0
        assert answer["result"]["cacheScope"] in {"public", "private"}


async def test_m28_an_unsupported_version(client: Client) -> None:
    meta = {**META, VERSION: "2099-01-01"}
    headers = {**HEADERS, "MCP-Protocol-Version": "2099-01-01"}
    status, answer, _ = await client.post("/mcp", request("tools/list", {"_meta": meta}), headers)
    assert (status, answer["error"]["code"]) == (400, -32022)
    assert MODERN in answer["error"]["data"]["supported"]


@pytest.mark.parametrize("said", [None, [], "invalid", ...])
async def test_m29_capabilities_that_are_none(client: Client, said: Any) -> None:
    meta = {VERSION: MODERN} if said is ... else {VERSION: MODERN, CAPABILITIES: said}
    status, answer, _ = await client.post("/mcp", request("tools/list", {"_meta": meta}), HEADERS)
    assert (status, answer["error"]["code"]) == (400, -32602)
    assert "data" not in answer["error"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("=?base64?Z2V0UGV0?=", None), ("=?base64?Z2V0UGV0=?=", -32020), ("listPets", -32020)],
)
async def test_m30_the_name_in_a_header(client: Client, name: str, code: int | None) -> None:
    call = {"name": "getPet", "arguments": {"id": 1}}
    _, answer = await client.modern("tools/call", call, **{"Mcp-Name": name})
    assert answer.get("error", {}).get("code") == code


async def test_m31_versions_that_contradict_each_other(client: Client) -> None:
    body = request("tools/list", {"_meta": META})
    contradicting = {**HEADERS, "MCP-Protocol-Version": "2025-11-25"}
    status, answer, _ = await client.post("/mcp", body, contradicting)
    assert (status, answer["error"]["code"]) == (400, -32020)
    twice = [*HEADERS.items(), ("MCP-Protocol-Version", MODERN)]
    async with client.http.post(client.url + "/mcp", json=body, headers=twice) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, -32020)


async def test_m32_twelve_lists_at_a_time(client: Client) -> None:
    listed = await asyncio.gather(*(client.modern("tools/list") for _ in range(12)))
    assert [(status, len(answer["result"]["tools"])) for status, answer in listed] == [
        (200, 5)
    ] * 12

"""The acceptance vectors of the light platform for MCP, each under its number there."""

import asyncio
from typing import Any

import pytest

from tests.fixtures_gateway import META, MODERN, Client
from tests.gateway.shared import anyio_backend, client, service

__all__ = ["anyio_backend", "client", "service"]

pytestmark = pytest.mark.anyio

SESSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
HEADERS = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}


def request(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


@pytest.mark.parametrize("revision", SESSIONS)
async def test_a_session_works_from_its_first_to_its_last_request(
    client: Client, revision: str
) -> None:
    """A session works from its first to its last request (M21)."""
    session = await client.session(revision)
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await session.post(initialized) == (202, None)
    assert len((await session.call("tools/list"))["result"]["tools"]) == 5
    called = await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}})
    assert called["result"]["content"][0]["type"] == "text"


async def test_a_batch_without_version_header_is_answered(client: Client) -> None:
    """A batch without version header is answered (M23)."""
    session = await client.session("2025-03-26")
    batch = [request("ping", id_=1), request("tools/list", id_="two"), request("nope", id_=3)]
    status, answers, _ = await client.post("/mcp", batch, {"Mcp-Session-Id": session.id})
    assert (status, [one["id"] for one in answers]) == (200, [1, "two", 3])


async def test_unknown_and_deleted_sessions_are_not_found(client: Client) -> None:
    """Unknown and deleted sessions are not found (M24)."""
    session = await client.session()
    unknown = {"Mcp-Session-Id": "unknown"}
    assert (await client.post("/mcp", request("ping"), unknown))[0] == 404
    async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
        assert response.status == 204
    assert (await session.post(request("ping")))[0] == 404


async def test_discovery_and_lists_of_a_stateless_client_are_cacheable(client: Client) -> None:
    """Discovery and lists of a stateless client are cacheable (M27)."""
    _, discovered = await client.modern("server/discover")
    assert MODERN in discovered["result"]["supportedVersions"]
    assert "tools" in discovered["result"]["capabilities"]
    for method in ("server/discover", "tools/list"):
        _, answer = await client.modern(method)
        assert isinstance(answer["result"]["ttlMs"], int)
        assert answer["result"]["ttlMs"] >= 0
        assert answer["result"]["cacheScope"] in {"public", "private"}


async def test_an_unsupported_version_is_refused(client: Client) -> None:
    """An unsupported version is refused (M28)."""
    meta = {**META, VERSION: "2099-01-01"}
    headers = {**HEADERS, "MCP-Protocol-Version": "2099-01-01"}
    status, answer, _ = await client.post("/mcp", request("tools/list", {"_meta": meta}), headers)
    assert (status, answer["error"]["code"]) == (400, -32022)
    assert MODERN in answer["error"]["data"]["supported"]


@pytest.mark.parametrize("said", [None, [], "invalid", ...])
async def test_invalid_client_capabilities_are_refused(client: Client, said: Any) -> None:
    """Invalid client capabilities are refused (M29)."""
    meta = {VERSION: MODERN} if said is ... else {VERSION: MODERN, CAPABILITIES: said}
    status, answer, _ = await client.post("/mcp", request("tools/list", {"_meta": meta}), HEADERS)
    assert (status, answer["error"]["code"]) == (400, -32602)
    assert "data" not in answer["error"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("=?base64?Z2V0UGV0?=", None), ("=?base64?Z2V0UGV0=?=", -32020), ("listPets", -32020)],
)
async def test_the_mcp_name_header_must_match_the_called_tool(
    client: Client, name: str, code: int | None
) -> None:
    """The MCP name header must match the called tool (M30)."""
    call = {"name": "getPet", "arguments": {"id": 1}}
    _, answer = await client.modern("tools/call", call, **{"Mcp-Name": name})
    assert answer.get("error", {}).get("code") == code


async def test_contradicting_versions_are_refused(client: Client) -> None:
    """Contradicting versions are refused (M31)."""
    body = request("tools/list", {"_meta": META})
    contradicting = {**HEADERS, "MCP-Protocol-Version": "2025-11-25"}
    status, answer, _ = await client.post("/mcp", body, contradicting)
    assert (status, answer["error"]["code"]) == (400, -32020)
    twice = [*HEADERS.items(), ("MCP-Protocol-Version", MODERN)]
    async with client.http.post(client.url + "/mcp", json=body, headers=twice) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, -32020)


async def test_twelve_concurrent_lists_are_answered(client: Client) -> None:
    """Twelve concurrent lists are answered (M32)."""
    listed = await asyncio.gather(*(client.modern("tools/list") for _ in range(12)))
    assert [(status, len(answer["result"]["tools"])) for status, answer in listed] == [
        (200, 5)
    ] * 12

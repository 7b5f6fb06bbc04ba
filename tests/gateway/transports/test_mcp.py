"""The MCP endpoint over raw HTTP: what each revision asks of the server, to the letter."""

import asyncio
import json
from typing import Any

import pytest

from config.settings import Settings
from tests.fixtures_gateway import META, MODERN, Client, Recorder, running, with_mcp
from tests.gateway.shared import anyio_backend, client, service
from tests.gateway.verbs import install

__all__ = ["anyio_backend", "client", "service"]

pytestmark = pytest.mark.anyio


HANDSHAKE = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def request(method: str, params: Any = None, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "id": id_, "params": params or {}}


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_initialize_agrees_on_the_revision_that_was_asked_for(
    client: Client, revision: str
) -> None:
    session = await client.session(revision)
    assert session.initialized["protocolVersion"] == revision
    assert session.initialized["capabilities"] == {"tools": {"listChanged": True}, "resources": {}}
    assert session.initialized["serverInfo"]["name"] == "toolgate"
    assert all(0x21 <= ord(char) <= 0x7E for char in session.id)


@pytest.mark.parametrize("revision", ["2026-07-28", "2099-01-01", "next"])
async def test_initialize_for_an_unknown_revision_offers_the_latest(
    client: Client, revision: str
) -> None:
    session = await client.session(revision)
    assert session.initialized["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("revision", HANDSHAKE)
async def test_a_session_pings_lists_and_calls(client: Client, revision: str) -> None:
    session = await client.session(revision)
    assert (await session.call("ping"))["result"] == {}
    listed = (await session.call("tools/list"))["result"]
    assert [tool["name"] for tool in listed["tools"]][:2] == ["createPet", "deletePet"]
    assert "resultType" not in listed
    result = (await session.call("tools/call", {"name": "getPet", "arguments": {"id": 1}}))[
        "result"
    ]
    assert json.loads(result["content"][0]["text"])["heard"]["path"] == "/pets/1"
    assert ("structuredContent" in result) is (revision >= "2025-06-18")


async def test_tools_have_the_shape_of_each_revision(client: Client) -> None:
    old = await (await client.session("2024-11-05")).call("tools/list")
    new = await (await client.session("2025-03-26")).call("tools/list")
    assert "annotations" not in old["result"]["tools"][0]
    hints = {tool["name"]: tool["annotations"] for tool in new["result"]["tools"]}
    assert hints["listPets"]["readOnlyHint"] is True
    assert hints["deletePet"]["destructiveHint"] is True
    assert hints["deletePet"]["idempotentHint"] is True


async def test_a_stateless_request_needs_no_session(client: Client) -> None:
    status, answer = await client.modern("tools/call", {"name": "getPet", "arguments": {"id": 1}})
    result = answer["result"]
    assert status == 200
    assert result["resultType"] == "complete"
    assert result["structuredContent"]["heard"]["path"] == "/pets/1"
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toolgate"


async def test_discover_and_lists_have_a_ttl(client: Client) -> None:
    _, discovered = await client.modern("server/discover")
    _, listed = await client.modern("tools/list")
    for result in (discovered["result"], listed["result"]):
        assert result["resultType"] == "complete"
        assert result["ttlMs"] == 60_000
        assert result["cacheScope"] == "private"
    assert discovered["result"]["supportedVersions"][0] == MODERN
    assert discovered["result"]["capabilities"] == {"tools": {"listChanged": True}, "resources": {}}


MISSING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
OLD_META = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}


@pytest.mark.parametrize(
    ("params", "headers", "status", "code"),
    [
        ({}, {}, 400, -32602),  # the header says modern, the body has no _meta
        ({"_meta": {**META, "io.modelcontextprotocol/clientCapabilities": 1}}, {}, 400, -32602),
        ({"_meta": META}, {"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
        ({"_meta": META}, {"Mcp-Method": "tools/call"}, 400, -32020),
        ({"_meta": META}, {"Mcp-Method": ""}, 400, -32020),
        ({"_meta": OLD_META}, {"MCP-Protocol-Version": "2099-01-01"}, 400, -32022),
        ({"_meta": META, "cursor": "%%%"}, {}, 200, -32602),
    ],
)
async def test_the_stateless_ladder_refuses(
    client: Client, params: Any, headers: dict[str, str], status: int, code: int
) -> None:
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list", **headers}
    got, answer, _ = await client.post("/mcp", {**MISSING, "params": params}, sent)
    assert (got, answer["error"]["code"], answer["id"]) == (status, code, 1)


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "unknown/method"]
)
async def test_methods_missing_from_2026_07_28_are_404(client: Client, method: str) -> None:
    status, answer = await client.modern(method)
    assert (status, answer["error"]["code"], answer["id"]) == (404, -32601, 1)


async def test_methods_missing_upstream_are_an_answer(settings: Settings) -> None:
    async with running(settings) as client:
        install(client.gateway)
        status, answer = await client.modern("test/lack")
    assert (status, answer["error"]["code"]) == (200, -32601)


@pytest.mark.parametrize("revision", HANDSHAKE[1:])
async def test_a_client_that_says_too_much_of_itself_gets_no_session(
    client: Client, revision: str
) -> None:
    info = {"name": "x" * 20_000, "version": "1"}
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": info}
    status, answer, headers = await client.post("/mcp", request("initialize", hello))
    assert (status, answer["error"]["code"]) == (400, -32602)
    assert "at most 16384 are kept" in answer["error"]["message"]
    assert "mcp-session-id" not in headers


async def test_unsupported_versions_are_refused_with_the_supported_versions(client: Client) -> None:
    for headers in ({"MCP-Protocol-Version": "1999-01-01"},):
        status, answer, _ = await client.post("/mcp", request("tools/list"), headers)
        assert (status, answer["error"]["code"]) == (400, -32022)
        assert answer["error"]["data"]["requested"] == "1999-01-01"
        assert MODERN in answer["error"]["data"]["supported"]


async def test_the_name_header_must_mirror_the_body(client: Client) -> None:
    call = {"name": "getPet", "arguments": {"id": 1}}
    encoded = "=?base64?Z2V0UGV0?="
    for name, expected in [("getPet", 200), (encoded, 200), ("listPets", 400), ("", 400)]:
        status, _ = await client.modern("tools/call", call, **{"Mcp-Name": name})
        assert status == expected, name


async def test_bad_arguments_are_a_result_or_an_error_by_revision(
    client: Client,
) -> None:
    call = {"name": "getPet", "arguments": {}}
    older = await (await client.session("2025-06-18")).call("tools/call", call)
    newer = await (await client.session("2025-11-25")).call("tools/call", call)
    assert older["error"]["code"] == -32602
    assert newer["result"]["isError"] is True
    assert "id: is required" in newer["result"]["content"][0]["text"]


async def test_an_unknown_tool_is_an_error_in_every_era(client: Client) -> None:
    call = {"name": "nobody", "arguments": {}}
    answer = await (await client.session()).call("tools/call", call)
    assert answer["error"]["code"] == -32602
    status, answer = await client.modern("tools/call", call)
    assert (status, answer["error"]["code"]) == (200, -32602)


async def test_pages_are_complete_and_in_order(settings: Settings) -> None:
    async with running(with_mcp(settings, page_size=2)) as client:
        session = await client.session()
        names: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await session.call("tools/list", cursor))["result"]
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
    assert names == ["createPet", "deletePet", "getPet", "listPets", "slow"]


async def test_batches_belong_to_2025_03_26_only(client: Client) -> None:
    batch = [request("ping", id_=1), request("tools/list", id_="b"), request("nope", id_=3)]
    status, answers = await (await client.session("2025-03-26")).post(batch)
    assert status == 200
    assert [answer["id"] for answer in answers] == [1, "b", 3]
    assert answers[2]["error"]["code"] == -32601
    for revision in ("2025-06-18", "2025-11-25"):
        status, answer = await (await client.session(revision)).post(batch)
        assert (status, answer["error"]["code"]) == (400, -32600)
    status, answer, _ = await client.post("/mcp", batch)
    assert (status, answer["error"]["code"]) == (400, -32600)


async def test_batch_rules_of_2025_03_26(client: Client) -> None:
    session = await client.session("2025-03-26")
    silent = [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert await session.post(silent) == (202, None)
    for batch in (
        [],
        [request("initialize")],
        [request("ping"), {"jsonrpc": "2.0", "id": 5, "result": {}}],
    ):
        status, answer = await session.post(batch)
        assert (status, answer["error"]["code"]) == (400, -32600)


async def test_a_session_ends_by_delete_and_is_unknown_afterwards(client: Client) -> None:
    session = await client.session()
    async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
        assert response.status == 204
    status, answer = await session.post(request("ping"))
    assert (status, answer["error"]["code"]) == (404, -32001)
    async with client.http.delete(client.url + "/mcp", headers=session.headers) as response:
        assert response.status == 404


async def test_requests_without_a_session_are_told_to_initialize(client: Client) -> None:
    status, answer, _ = await client.post("/mcp", request("tools/list"))
    assert status == 400
    assert "initialize" in answer["error"]["message"]


async def test_modern_clients_have_post_only(client: Client) -> None:
    headers = {"MCP-Protocol-Version": MODERN}
    for method in ("GET", "DELETE", "PUT"):
        async with client.http.request(method, client.url + "/mcp", headers=headers) as response:
            assert response.status == 405
            assert "POST" in response.headers["Allow"]
            assert (await response.json())["error"]["code"] == -32600


async def test_an_unsupported_version_header_is_refused_for_every_verb(client: Client) -> None:
    session = await client.session()
    headers = {**session.headers, "MCP-Protocol-Version": "1999-01-01"}
    for method in ("GET", "DELETE"):
        async with client.http.request(method, client.url + "/mcp", headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == -32022


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "text/html"}, 406),
        ({"Content-Type": "text/plain"}, 415),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Host": "evil.example.com"}, 403),
        ({"Origin": "http://localhost:6274"}, 200),
    ],
)
async def test_the_http_request_is_checked_first(
    client: Client, headers: dict[str, str], status: int
) -> None:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}
    got, _, _ = await client.post("/mcp", request("initialize", params), headers)
    assert got == status


async def test_cancelling_by_notification_stops_the_call_upstream(
    client: Client, service: Recorder
) -> None:
    session = await client.session()
    call = asyncio.create_task(session.post(request("tools/call", {"name": "slow"}, 9)))
    async with asyncio.timeout(30):
        await service.arrived.wait()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": 9}}
        assert await session.post({"jsonrpc": "2.0", **cancelled}) == (202, None)
        await service.gone.wait()
        assert await call == (202, None)


async def test_a_handshake_client_that_leaves_does_not_cancel(
    client: Client, service: Recorder
) -> None:
    session = await client.session()
    call = asyncio.create_task(session.post(request("tools/call", {"name": "slow"}, 9)))
    async with asyncio.timeout(30):
        await service.arrived.wait()
        call.cancel()
        open_session = client.gateway.shared.sessions.find(session.id, client.gateway.principal)
        assert open_session is not None
        serving = open_session.running[9]
        service.release.set()
        await asyncio.wait({serving})
    assert not service.gone.is_set()


async def test_a_modern_client_that_leaves_cancels(client: Client, service: Recorder) -> None:
    call = asyncio.create_task(client.modern("tools/call", {"name": "slow"}))
    async with asyncio.timeout(30):
        await service.arrived.wait()
        call.cancel()
        await service.gone.wait()


async def test_an_id_that_is_in_use_is_refused(client: Client, service: Recorder) -> None:
    session = await client.session()
    first = asyncio.create_task(session.post(request("tools/call", {"name": "slow"}, 9)))
    async with asyncio.timeout(30):
        await service.arrived.wait()
        answer = await session.call("ping", id_=9)
        assert answer["error"]["code"] == -32600
        service.release.set()
        assert (await first)[0] == 200


@pytest.mark.parametrize("id_", [None, 1.5])
async def test_mcp_ids_are_strings_or_integers(client: Client, id_: Any) -> None:
    session = await client.session()
    status, answer = await session.post(request("ping", id_=id_))
    assert (status, answer["error"]["code"], answer["id"]) == (400, -32600, None)


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_null_is_absent_wherever_a_member_is_optional(client: Client, revision: str) -> None:
    """Clients may write null for `params`, and for each optional member of them (mending 19)."""
    session = await client.session(revision)
    status, answer = await session.post(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": None}
    )
    assert status == 200
    assert answer["result"]["tools"]
    absent = {"_meta": None, "cursor": None}
    assert (await session.call("tools/list", absent))["result"] == answer["result"]
    absent = {"name": "listPets", "arguments": None, "task": None, "_meta": None}
    answer = await session.call("tools/call", absent)
    assert json.loads(answer["result"]["content"][0]["text"])["heard"]["query"] == ""

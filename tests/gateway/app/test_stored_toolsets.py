"""Toolsets in the database: served at once by every gateway, to callers of their tenant."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from config.settings import Settings, Toolset
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running, with_mcp
from tests.gateway.events import listening, refusal_of_stream
from tests.gateway.guards.signing import FOREVER, by_jwks, signer
from tests.polling import until

pytestmark = pytest.mark.anyio

KEY = signer("ES256", kid="2026")
OTHER_TENANT = "00000000-0000-4000-8000-0000000000aa"
NEW = {"If-None-Match": "*"}
READING = {"include": ["get*", "list*"], "description": "Reads"}


def bearer(name: str, scope: str = "admin", **claims: Any) -> dict[str, str]:
    held = {"host": "own", "scope": f"{scope} portal.r portal.w", **claims}
    token = KEY.token(sub=name, exp=FOREVER, **held)
    return {"Authorization": f"Bearer {token}"}


ADA = bearer("ada")


@pytest.fixture
def shared_settings(settings: Settings, tmp_path: Path) -> Settings:
    auth = by_jwks(
        tmp_path, [KEY.jwk()], tenant_claim="host", tenants={"own": HOST, "other": OTHER_TENANT}
    )
    return replace(
        with_mcp(settings, debounce_ms=10),
        auth=auth,
        admin=replace(settings.admin, requests=0, stored_toolsets=2),
        toolsets={"small": Toolset(include=("getPet",))},
    )


@pytest.fixture
async def nodes(shared_settings: Settings) -> AsyncIterator[tuple[Client, Client]]:
    async with running(shared_settings) as a, running(shared_settings) as b:
        yield a, b


async def admin(
    client: Client, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    sent = {**ADA, **headers}
    url = f"{client.url}/admin/v1{path}"
    async with client.http.request(method, url, json=body, headers=sent) as answer:
        return answer.status, await answer.json(content_type=None) if answer.status != 204 else None


async def names(client: Client, toolset: str, headers: dict[str, str] = ADA) -> Any:
    """The names of the tools at the endpoint of a toolset, or the status of a refusal."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    status, _, sent = await client.post(f"/mcp/{toolset}", body, headers)
    if status != 200:
        return status
    session = {**headers, "Mcp-Session-Id": sent["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    _, answer, _ = await client.post(f"/mcp/{toolset}", listing, session)
    return [tool["name"] for tool in answer["result"]["tools"]]


async def await_names(client: Client, toolset: str, expected: Any) -> None:
    async def are_served() -> bool:
        return bool(await names(client, toolset) == expected)

    await until(are_served)


async def test_stored_toolset_is_served_by_every_gateway_without_a_restart(
    nodes: tuple[Client, Client],
) -> None:
    a, b = nodes
    assert await names(a, "reading") == 404
    status, made = await admin(a, "PUT", "/toolsets/reading", READING, **NEW)
    assert (status, made["tools"], made["origin"], made["created_by"]) == (201, 2, "stored", "ada")
    assert await names(a, "reading") == ["getPet", "listPets"]  # where it was made, at once
    await await_names(b, "reading", ["getPet", "listPets"])
    for path in ("/mcp/reading", "/mcp?scope=reading"):
        assert (await refusal_of_stream(b, path))[0] == 401

    changed = {**READING, "include": ["create*"]}
    status, view = await admin(a, "PUT", "/toolsets/reading", changed, **{"If-Match": "*"})
    assert (status, view["version"]) == (200, 2)
    assert await names(a, "reading") == ["createPet"]
    await await_names(b, "reading", ["createPet"])

    assert (await admin(a, "DELETE", "/toolsets/reading", **{"If-Match": "*"}))[0] == 204
    assert await names(a, "reading") == 404
    await await_names(b, "reading", 404)

    async def is_recorded() -> bool:
        _, log = await admin(a, "GET", "/audit?subject=reading")
        methods = [record["entry"]["method"] for record in log["items"]]
        return methods == ["deleteToolset", "putToolset", "putToolset"]

    await until(is_recorded)


async def test_names_of_the_settings_cannot_be_shadowed(nodes: tuple[Client, Client]) -> None:
    client = nodes[0]
    status, problem = await admin(client, "PUT", "/toolsets/small", READING, **NEW)
    assert status in {409, 412}
    status, problem = await admin(client, "PUT", "/toolsets/small", READING, **{"If-Match": "*"})
    assert (status, problem["detail"]) == (
        409,
        (
            "small is a toolset of the settings, which go before stored ones: change or remove it "
            "there, or choose another name."
        ),
    )
    status, problem = await admin(client, "PUT", "/toolsets/admin", READING, **NEW)
    assert status == 422
    assert "expected a path of its own, found /mcp/admin" in problem["detail"]
    assert await names(client, "small") == ["getPet"]


async def test_patterns_that_take_long_to_compile_are_refused(
    nodes: tuple[Client, Client],
) -> None:
    """A thousand patterns of a hundred wildcards take 20 s, and all callers wait."""
    costly = {"exclude": ["*a" * 51] * 20}
    for method, path, body in (
        ("PUT", "/toolsets/slow", costly),
        ("POST", "/toolset-previews", {"toolset": costly}),
        ("POST", "/policy/matches", costly),
    ):
        status, problem = await admin(nodes[0], method, path, body, **NEW)
        assert status == 422, (path, problem)
        assert "expected at most 1000 wildcards in all patterns, found 1020" in str(problem)


async def test_stored_toolset_is_small(nodes: tuple[Client, Client]) -> None:
    """All processes have those of all tenants in memory."""
    for body, text in (
        ({"instructions": "i" * 4001}, "instructions: expected at most 4000 characters"),
        ({"roles": ["staff"] * 101}, "roles: expected at most 100"),
        ({"roles": ["r" * 201]}, "of at most 200 characters"),
    ):
        status, problem = await admin(nodes[0], "PUT", "/toolsets/big", body, **NEW)
        assert (status, text in str(problem)) == (422, True), problem


async def test_stored_toolsets_have_a_limit_for_each_tenant(nodes: tuple[Client, Client]) -> None:
    client = nodes[0]
    for name in ("one", "two"):
        assert (await admin(client, "PUT", f"/toolsets/{name}", READING, **NEW))[0] == 201
    status, problem = await admin(client, "PUT", "/toolsets/three", READING, **NEW)
    assert (status, "admin.stored_toolsets" in problem["detail"]) == (409, True)
    _, document = await admin(client, "GET", "/toolset-exports")
    assert yaml.safe_load(document["yaml"]) == {"toolsets": {"one": READING, "two": READING}}


async def test_toolset_belongs_to_its_tenant_and_its_roles(nodes: tuple[Client, Client]) -> None:
    client = nodes[0]
    for_staff = {**READING, "roles": ["staff"]}
    assert (await admin(client, "PUT", "/toolsets/reading", for_staff, **NEW))[0] == 201
    assert await names(client, "reading") == 404
    assert await names(client, "reading", bearer("eve", "x", roles=["staff"])) == [
        "getPet", "listPets",
    ]  # fmt: skip

    foreign = bearer("zoe", host="other", roles=["staff", "operator"])
    assert await names(client, "reading", foreign) == 404
    assert (await admin(client, "GET", "/toolsets/reading", **foreign))[0] == 404
    assert (await admin(client, "DELETE", "/toolsets/reading", **foreign, **{"If-Match": "*"}))[
        0
    ] in {404, 412}
    _, listed = await admin(client, "GET", "/toolsets", **foreign)
    assert [toolset["name"] for toolset in listed["items"]] == ["small"]
    assert (await admin(client, "GET", "/toolsets", **bearer("eve", "x")))[0] == 403


async def test_clients_of_a_changed_toolset_are_told(nodes: tuple[Client, Client]) -> None:
    client = nodes[0]
    assert (await admin(client, "PUT", "/toolsets/reading", READING, **NEW))[0] == 201
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    streams = []
    for path in ("/mcp/reading", "/mcp/small"):
        _, _, sent = await client.post(path, body, ADA)
        streams.append({**ADA, "Mcp-Session-Id": sent["mcp-session-id"]})
    async with (
        listening(client, "/mcp/reading", streams[0]) as events,
        listening(client, "/mcp/small", streams[1]) as others,
    ):
        changed = {**READING, "include": ["create*"]}
        await admin(client, "PUT", "/toolsets/reading", changed, **{"If-Match": "*"})
        assert (await events.event()).message["method"] == "notifications/tools/list_changed"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await others.event()


async def test_preview_counts_the_tools_of_a_toolset(nodes: tuple[Client, Client]) -> None:
    trial = {"toolset": {"include": ["get*", "nothing-*"], "sources": []}, "limit": 1}
    status, preview = await admin(nodes[0], "POST", "/toolset-previews", trial)
    assert (status, preview["tools"], len(preview["items"])) == (200, 1, 1)
    assert preview["unmatched"] == ["nothing-*"]
    assert {"plain", "openai"} <= {entry["profile"] for entry in preview["tokens"]}
    assert all(entry["tokens"] > 0 for entry in preview["tokens"])
    foreign = bearer("zoe", host="other", roles=["operator"])
    status, hidden = await admin(nodes[0], "GET", "/toolsets/small/tools", **foreign)
    assert (status, hidden["unmatched"]) == (200, []), "its filters are for the own tenant"
    _, clients = await admin(nodes[0], "GET", "/toolsets/small/clients")
    assert clients["url"].endswith("/mcp/small")
    assert any("/mcp/small" in client["text"] for client in clients["clients"])

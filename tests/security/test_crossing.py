"""Two tenants of one gateway, who have people of the same names: nothing of one is there for the
other, by whatever door they ask."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.protocol import cursors
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from tests.fixtures_gateway import META, MODERN, Client, Recorder, pets, running
from tests.gateway.events import listening
from tests.gateway.guards.signing import by_jwks
from tests.gateway.policy.test_policy_at_fronts import KEY, Caller, every_call, request, without

pytestmark = pytest.mark.anyio

OTHER = "01964b05-0000-7000-8000-0000000000b0"
SECRET, NOBODY = "getVaultKey", "getNothing1"  # of one length: an answer may be cut by it


def vault() -> dict[str, Any]:
    """What the other tenant has: a tool of its own, and one that both have."""
    found = pets()
    one = found["paths"]["/pets/{id}"]
    of_vault = {**one["get"], "operationId": SECRET, "summary": "A key of the vault"}
    return {
        **found,
        "paths": {
            "/vault/{id}": {"parameters": one["parameters"], "get": of_vault},
            "/pets/{id}": one,
        },
    }


class Member(Caller):
    """Somebody of one tenant."""

    def __init__(self, client: Client, name: str, tenant: str) -> None:
        super().__init__(client, name, tenant=tenant)


@pytest.fixture
async def client(
    settings: Settings, tmp_path: Path, service: Recorder
) -> AsyncIterator[tuple[Client, Member, Member]]:
    """A gateway, and ada of each of its tenants."""
    tenants = {"a": settings.tenant.host_id, "b": OTHER}
    auth = by_jwks(tmp_path, [KEY.jwk()], tenant_claim="tenant", tenants=tenants)
    (tmp_path / "vault.json").write_text(json.dumps(vault()))
    async with running(replace(settings, auth=auth)) as client:
        assert client.gateway.feed.pool is not None
        store = ToolStore(client.gateway.feed.pool)
        spec = ImportSpec("vault", str(tmp_path / "vault.json"), base_url=service.url)
        await Sources(store, OTHER, settings.imports).import_(spec)
        await client.gateway.catalogs.reload(store, OTHER)
        yield client, Member(client, "ada", "a"), Member(client, "ada", "b")


Both = tuple[Client, Member, Member]


async def test_a_tool_of_another_tenant_looks_like_a_missing_tool(
    client: Both, service: Recorder
) -> None:
    _, ours, theirs = client
    allowed = await every_call(theirs, SECRET, {"id": 1})
    assert all("/vault/1" in json.dumps(answer) for answer in allowed.values())
    before = len(service.requests)
    denied = await every_call(ours, SECRET, {"id": 1})
    unknown = await every_call(ours, NOBODY, {"id": 1})
    for front, answer in denied.items():
        if front != "call_tool":  # it says which names of one's own are near
            assert without(SECRET, answer) == without(NOBODY, unknown[front]), front
        assert "vault" not in json.dumps(answer).replace(SECRET, ""), front
    assert len(service.requests) == before


async def test_lists_searches_and_descriptions_have_one_s_own(client: Both) -> None:
    _, ours, theirs = client
    assert await theirs.list_tools() == {SECRET, "getPet", "deletePet"}
    mine = await ours.list_tools()
    assert SECRET not in mine
    assert "listPets" in mine
    asked = [
        await ours.session("tools/list"),
        await ours.session("tools/list", "2024-11-05"),
        await ours.rpc(request("rpc.discover", {})),
        await ours.rpc([request("tools/list", {}), request("tools/list", {}, 2)]),
        await ours.call_own_tool("search_tools", query="key of the vault", limit=20),
        await ours.modern("resources/list"),
        await ours.modern("prompts/list"),
        await ours.modern("server/discover"),
    ]
    assert "vault" not in json.dumps(asked).lower()
    described = await ours.call_own_tool("describe_tools", names=[SECRET])
    assert described["isError"]
    assert "key of the vault" not in json.dumps(described)


async def test_a_tenant_is_the_token_s_whatever_a_request_says(client: Both) -> None:
    both, ours, _ = client
    meta = {**META, "tenant": "b", "hostId": OTHER, "host_id": OTHER}
    params = {"_meta": meta, "tenant": "b", "hostId": OTHER, "host_id": OTHER}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list", **ours.bearer}
    claimed = {"X-Tenant-Id": "b", "X-Host-Id": OTHER, "X-Forwarded-User": "root"}
    _, answer, _ = await both.post(f"/mcp?tenant=b&host_id={OTHER}", body, sent | claimed)
    assert SECRET not in json.dumps(answer)
    assert "listPets" in json.dumps(answer)
    for tenant in (OTHER, "B", "", "a,b", ["b"], None, "c"):
        stranger = Caller(both, "ada", tenant=tenant)
        answer = await stranger.modern("tools/list")
        assert answer["error"]["data"]["code"] == "ERR10000", tenant


async def test_a_cursor_of_another_tenant_is_a_place_in_one_s_own_list(client: Both) -> None:
    _, ours, _ = client
    page = await ours.modern("tools/list", cursor=cursors.seal("getVaultKey", "tools"))
    names = [one["name"] for one in page["result"]["tools"]]
    assert names == sorted(name for name in await ours.list_tools() if name > SECRET)


async def test_a_session_and_its_events_are_of_one_tenant(client: Both) -> None:
    both, ours, theirs = client
    about = {"protocolVersion": "2025-11-25", "capabilities": {}}
    about["clientInfo"] = {"name": "t", "version": "1"}
    _, _, headers = await both.post("/mcp", request("initialize", about), theirs.bearer)
    session = {"Mcp-Session-Id": headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    listing = request("tools/list", {})
    assert (await both.post("/mcp", listing, {**session, **theirs.bearer}))[0] == 200
    unknown = {**session, "Mcp-Session-Id": "0" * len(session["Mcp-Session-Id"])}
    found = []
    for one in (session, unknown):
        status, answer, _ = await both.post("/mcp", listing, {**one, **ours.bearer})
        found.append((status, without("x", answer)))
        for method in ("GET", "DELETE"):
            more = {"Last-Event-ID": "1", "Accept": "text/event-stream"}
            sent = {**one, **ours.bearer, **(more if method == "GET" else {})}
            async with both.http.request(method, both.url + "/mcp", headers=sent) as response:
                found.append((response.status, without("x", await response.json())))
    assert found[:3] == found[3:]
    assert {status for status, _ in found} == {404}
    assert (await both.post("/mcp", listing, {**session, **theirs.bearer}))[0] == 200


async def test_a_session_is_the_gateway_s_to_name(client: Both) -> None:
    """Fixation: an id that a client brings along is none, and another is given."""
    both, ours, _ = client
    chosen = "chosen-by-the-client-0123456789abcdef"
    about = {"protocolVersion": "2025-06-18", "capabilities": {}}
    about["clientInfo"] = {"name": "t", "version": "1"}
    brought = {"Mcp-Session-Id": chosen, **ours.bearer}
    status, _, headers = await both.post("/mcp", request("initialize", about), brought)
    assert headers.get("mcp-session-id") != chosen
    sent = {**brought, "MCP-Protocol-Version": "2025-06-18"}
    assert (await both.post("/mcp", request("tools/list", {}), sent))[0] == 404
    assert status in (200, 404)


async def test_a_change_of_one_tenant_is_not_told_to_the_other(client: Both) -> None:
    both, ours, theirs = client
    method = "subscriptions/listen"
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    wanted = {"toolsListChanged": True, "resourcesListChanged": True}
    params = {"_meta": META, "notifications": wanted}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    changed = both.gateway.shared.hub.change
    async with (
        listening(both, "/mcp", {**headers, **ours.bearer}, body) as mine,
        listening(both, "/mcp", {**headers, **theirs.bearer}, body) as other,
    ):
        await mine.message()  # that it is heard
        await other.message()
        changed(OTHER, frozenset({"tools"}))
        assert (await other.message())["method"] == "notifications/tools/list_changed"
        changed(both.gateway.principal.tenant, frozenset({"resources"}))
        assert (await mine.message())["method"] == "notifications/resources/list_changed"
